"""What somebody's own loop prints, further: rarer names, bars that repeat, ends that are cut."""

import math

import numpy as np
import pytest

from gptwright.record.evidence import CARRIED, OF_CHARACTERS, SEVERAL_RUNS, LogEvidence
from gptwright.record.readers import read_log


def read(text: str) -> LogEvidence:
    return read_log(None, data=text.encode())


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("[ 120s] it={k:.1f}k loss={loss} ppl=24.8", [200, 400, 600]),
        ("train.py:210] [{s}] loss={loss}, learning_rate=0.0003", [200, 400, 600]),
        ("train.py:210] [{s}] train/loss={loss}", [200, 400, 600]),
        # 1,000 × 1.001 is 1,000.9999999999999.
        ("step {k:.3f}k | loss {loss}", [200, 1001, 1600]),
    ],
)
def test_a_counter(line: str, steps: list[int]) -> None:
    log = read("".join(line.format(s=s, k=s / 1000, loss=f"{5 - s / 400:.3f}") + "\n" for s in steps))
    np.testing.assert_array_equal(log.train.step, steps)
    np.testing.assert_allclose(log.train.loss, [5 - s / 400 for s in steps], atol=0.001)


def test_a_loss_whose_word_stands_behind_it() -> None:
    log = read("step 250 | loss train: 2.31 | loss val: 2.42\nstep 500 | loss train: 2.11 | loss val: 2.22\n")
    np.testing.assert_array_equal(log.train.loss, [2.31, 2.11])
    np.testing.assert_array_equal(log.evals.val_loss, [2.42, 2.22])


def test_perplexities_of_both_splits_on_one_line() -> None:
    log = read("epoch 1 | train ppl 90.02 | valid ppl 99.48\nepoch 2 | train ppl 54.60 | valid ppl 66.69\n")
    np.testing.assert_allclose(log.train.loss, np.log([90.02, 54.60]))
    np.testing.assert_allclose(log.evals.val_loss, np.log([99.48, 66.69]))


def test_a_training_perplexity_beside_losses_says_nothing_new() -> None:
    log = read("step 1 | val_loss 4.61 | ppl 90.02\nstep 2 | val_loss 4.41 | ppl 82.27\n")
    assert not len(log.train)


def bars(separator: str) -> str:
    """Three epochs of a bar that is drawn over itself, with the validation of the epoch before."""
    return separator.join(
        f"Epoch {epoch}: {done}%|██ | {done}/100 [00:10<00:10, 9.00it/s,"
        f" train_loss={4 - epoch - done / 200:.3f}, val_loss={4.5 - epoch:.3f}]"
        for epoch in range(3)
        for done in range(0, 101, 20)
    )


@pytest.mark.parametrize("separator", ["\r", "\n"])
def test_a_bar_repeats_its_validation(separator: str) -> None:
    log = read(bars(separator) + "\n")
    assert log.train.step[-1] == 300
    assert log.train.loss[-1] == 1.5
    np.testing.assert_array_equal(log.evals.val_loss, [4.5, 3.5, 2.5])
    assert log.hazards[CARRIED] == 3
    assert SEVERAL_RUNS not in log.hazards


def test_a_last_line_without_its_end_counts_where_it_ends_like_those_before() -> None:
    lines = "step 100 | loss 3.512\nstep 200 | loss 3.312\nstep 300 | loss 3.2"
    assert list(read(lines).train.step) == [100, 200]
    assert list(read(lines + "12").train.step) == [100, 200, 300]
    assert list(read("step 100 | loss 3.5 | 12k tok/s\nstep 200 | loss 3.3 | 12k tok/s").train.step) == [
        100,
        200,
    ]
    assert list(read("step 100 | loss 3.5 | n 120\nstep 200 | loss 3.3 | n 12").train.step) == [100]


def test_bits_a_character() -> None:
    log = read("step 500 | train bpc 2.10 | val bpc 2.21\nstep 1000 | train bpc 1.90 | val bpc 2.02\n")
    np.testing.assert_allclose(log.train.loss, math.log(2) * np.array([2.10, 1.90]))
    np.testing.assert_allclose(log.evals.val_loss, math.log(2) * np.array([2.21, 2.02]))
    assert log.hazards[OF_CHARACTERS] == 2


def test_bits_a_character_beside_the_loss_are_left_out() -> None:
    line = "| epoch 4 | {b} / 5493 batches | loss {loss} | ppl 2.02 | bpc {bpc}\n"
    log = read(line.format(b=10, loss=0.70, bpc=1.012) + line.format(b=20, loss=0.68, bpc=0.974))
    np.testing.assert_array_equal(log.train.loss, [0.70, 0.68])
    assert OF_CHARACTERS not in log.hazards


def test_thousands_of_a_counter_that_a_space_parts() -> None:
    log = read(
        "".join(
            f"step {s:,} : loss {5 - s / 1000:.3f}\n".replace(",", " ").replace(".", ",")
            for s in (900, 1000, 1100)
        )
    )
    np.testing.assert_array_equal(log.train.step, [900, 1000, 1100])
    assert SEVERAL_RUNS not in log.hazards


def test_litgpt_lines_that_repeat_the_last_validation() -> None:
    line = "Epoch 34 | iter {i} step {s} | loss train: 2.84, val: {v} | iter time: 112.20 ms (step)\n"
    log = read(
        "".join(
            line.format(i=5 * s, s=s, v=v) for s, v in ((100, "n/a"), (110, 2.9), (120, 2.9), (130, 2.861))
        )
    )
    assert log.format.name == "litgpt"
    np.testing.assert_array_equal(log.evals.val_loss, [2.9, 2.861])
    np.testing.assert_array_equal(log.evals.line, [2, 4])
    assert log.hazards[CARRIED] == 2
    own = read(line.format(i=500, s=100, v=2.9) + "iter 505: val loss 2.7000, val time: 4567.89 ms\n")
    np.testing.assert_array_equal(own.evals.val_loss, [2.7])


def test_a_table_with_all_that_loops_write_down() -> None:
    names = "step,train_loss,val_loss,learning_rate,grad_norm,tokens_seen,tokens_per_sec,elapsed_s\n"
    rows = "".join(
        f"{s},{5 - s / 400},{5.1 - s / 400},0.0006,0.8,{s * 65536},72000,{s * 0.9}\n" for s in (100, 200, 300)
    )
    log = read(names + rows)
    assert log.header["tokens_per_step"].value == 65_536
    np.testing.assert_array_equal(log.train.tokens_per_second, [72_000] * 3)
    np.testing.assert_array_equal(log.train.grad_norm, [0.8] * 3)
    np.testing.assert_allclose(log.train.seconds[1:], [0.9, 0.9])


def test_a_loss_with_its_unit() -> None:
    log = read("step=100 loss=3.21nats (4.63 bits)\nstep=200 loss=3.01 nats (4.34 bits)\n")
    np.testing.assert_array_equal(log.train.loss, [3.21, 3.01])


def test_a_number_in_front_of_the_training_loss_is_its_step() -> None:
    log = read("100 train loss: 3.51 test loss: 3.62\n200 train loss: 3.31 test loss: 3.42\n")
    np.testing.assert_array_equal(log.train.step, [100, 200])
    np.testing.assert_array_equal(log.evals.val_loss, [3.62, 3.42])


def test_the_loss_of_a_test_set_is_none_of_training() -> None:
    log = read(
        "Train Epoch: 1 [0/600]\tLoss: 2.31\nTrain Epoch: 1 [64/600]\tLoss: 2.11\n"
        "Test set: Average loss: 1.95\n"
    )
    np.testing.assert_array_equal(log.train.loss, [2.31, 2.11])
    np.testing.assert_array_equal(log.evals.val_loss, [1.95])


def test_a_list_of_objects_on_one_line() -> None:
    log = read(
        '[{"step": 100, "train_loss": 3.5, "val_loss": 3.6},'
        ' {"step": 200, "train_loss": 3.3, "val_loss": 3.4}]'
    )
    np.testing.assert_array_equal(log.train.step, [100, 200])
    np.testing.assert_array_equal(log.evals.val_loss, [3.6, 3.4])
    assert set(log.train.line) == {1}


def test_the_perplexity_under_a_loss_is_no_other_loss() -> None:
    """It is rounded, so its logarithm is the loss of less digits, and 0 where it is printed as 1.0000."""
    block = (
        "[step={}/5000,epoch=0]\n    train/CrossEntropyLoss={}\n    train/Perplexity={}\n"
        "    throughput/total_tokens={}\n"
    )
    log = read(block.format(1, 9.417, "12,296", 65536) + block.format(2, 0.0000179, "1.0000", 131072))
    np.testing.assert_array_equal(log.train.loss, [9.417, 0.0000179])
    np.testing.assert_array_equal(log.train.line, [2, 6])


def test_a_sentence_of_two_steps_gives_each_its_own_losses() -> None:
    log = read(
        "after 2000 iters train loss was 1.31 and val loss 1.52, then at iter 3500 val loss was 1.49 but by"
        " 6000 iters val loss reached 1.66. train loss is now 0.71, any idea?"
    )
    np.testing.assert_array_equal(log.evals.step, [2000, 3500, 6000])
    np.testing.assert_array_equal(log.evals.val_loss, [1.52, 1.49, 1.66])
    np.testing.assert_array_equal(log.train.loss, [1.31])


def test_tokens_of_an_iteration_are_read_of_any_loop() -> None:
    log = read("tokens per iteration will be: 24,576\nit 10 of 400 :: loss 3.21\nit 20 of 400 :: loss 3.11\n")
    assert log.header["tokens_per_step"].value == 24_576


@pytest.mark.parametrize(("first", "of"), [(1, 2), (0, 1)])
def test_a_pair_in_brackets_behind_the_epoch_counts_its_steps(first: int, of: int) -> None:
    lines = [
        f"Epoch:[{epoch}/{of}]({step}/400), loss: {6 - step / 300 - epoch:.4f}, lr: 0.00050000\n"
        for epoch in (first, first + 1)
        for step in range(100, 401, 100)
    ]
    log = read("Model Params: 25.83M\n" + "".join(lines))
    np.testing.assert_array_equal(log.train.step, range(100, 801, 100))
    assert log.header["epochs"].value == 2


def test_a_number_is_no_other_numbers_beginning_or_end() -> None:
    """`1.31K` milliseconds are not 1, and the end of an exponent is no speed of the word behind it."""
    log = read(
        "".join(
            f"iteration: {n} / 90 | elapsed_time_per_iteration_ms: 1.31K | lm_loss: {9 - n / 90} |"
            f" lr=3.00e-04 tokens/s/gpu=15,212\n"
            for n in range(1, 9)
        )
    )
    assert len(log.train) == 8
    assert np.isnan(log.train.seconds).all()
    assert np.isnan(log.train.tokens_per_second).all()


@pytest.mark.parametrize(
    "table",
    [
        "step\ttrain loss\tval loss\n100  \t4.21\t\t4.30\n20000\t3.11\t3.25\n",
        "step\t\ttrain loss\tval loss\n100\t\t4.21\t\t4.30\n20000\t3.11\t\t3.25\n",
        "\tstep\ttrain loss\tval loss\n0\t100\t4.21\t4.30\n1\t20000\t3.11\t3.25\n",
    ],
)
def test_tabs_that_align_columns_part_no_empty_ones(table: str) -> None:
    log = read(table)
    np.testing.assert_array_equal(log.train.step, [100, 20000])
    np.testing.assert_array_equal(log.train.loss, [4.21, 3.11])
    np.testing.assert_array_equal(log.evals.val_loss, [4.30, 3.25])


def test_a_value_that_is_missing_between_tabs_moves_no_other() -> None:
    log = read("step\ttrain loss\tval loss\tlr\n100\t4.21\t\t0.001\n200\t3.11\t3.25\t0.001\n")
    np.testing.assert_array_equal(log.evals.step, [200])
    np.testing.assert_array_equal(log.train.loss, [4.21, 3.11])


def test_a_unit_of_a_step_counts_none() -> None:
    lines = [
        f"[{n:>5}/4000] loss: {5 - n / 2000:.4f}  48.7 ms/step  33100 tok/s\n" for n in range(0, 400, 50)
    ]
    log = read("".join(lines))
    np.testing.assert_array_equal(log.train.step, range(0, 400, 50))
    np.testing.assert_array_equal(log.train.tokens_per_second, 33100)
    # A name with a slash in front of it does.
    log = read("train/loss: 3.1 train/step: 20\ntrain/loss: 3.0 train/step: 40\n")
    np.testing.assert_array_equal(log.train.step, [20, 40])


def test_a_bar_of_lightnings_names_what_its_loss_is_of() -> None:
    bar = "Epoch {}: 100%|####| 250/250 [00:30<00:00, 8.31it/s, v_num=2, train_loss_step={}, val_loss={}"
    log = read(
        "".join(f"{bar.format(n, 3.4 - n / 4, 3.5 - n / 4)}, train_loss_epoch=3.9]\n" for n in range(3))
    )
    np.testing.assert_array_equal(log.train.loss, [3.4, 3.15, 2.9])
    np.testing.assert_array_equal(log.evals.val_loss, [3.5, 3.25, 3.0])
    np.testing.assert_array_equal(log.train.step, [250, 500, 750])


def test_a_table_in_a_box() -> None:
    log = read(
        "┏━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┓\n┃ Step ┃ Train Loss ┃ Val Loss ┃\n"
        "┡━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━┩\n│  100 │     4.2100 │   4.3000 │\n"
        "├──────┼────────────┼──────────┤\n│  200 │     3.1100 │   3.2500 │\n"
        "└──────┴────────────┴──────────┘\n"
    )
    np.testing.assert_array_equal(log.train.step, [100, 200])
    np.testing.assert_array_equal(log.evals.val_loss, [4.3, 3.25])


def test_one_line_that_meets_a_power_of_two_makes_no_losses_of_bits() -> None:
    """The perplexity is of an older evaluation; 2 to the power of 4.9 happens to be 29.9."""
    losses = [6.1, 4.9, 4.2, 3.9, 3.7]
    log = read("".join(f"Iter: {n * 50}, Loss: {loss}, PPL: 29.9\n" for n, loss in enumerate(losses)))
    np.testing.assert_array_equal(log.train.loss, losses)


def test_names_of_a_loss_without_the_word() -> None:
    for name in ("nll", "cross entropy", "cross_entropy", "train/nll"):
        np.testing.assert_array_equal(
            read(f"step 50 {name}=3.2\nstep 100 {name}=3.1\n").train.loss, [3.2, 3.1]
        )


def test_a_step_that_took_milliseconds_is_no_step() -> None:
    log = read("it=40 loss 3.21 | step 48ms\nit=80 loss 3.11 | step 47 ms\n")
    np.testing.assert_array_equal(log.train.step, [40, 80])


@pytest.mark.parametrize("word", ["inf", "nan"])
def test_what_lines_show_before_the_first_evaluation_is_none(word: str) -> None:
    lines = [
        f"step {n} | train_loss {5 - n / 900:.4f} | val_loss {word if n < 500 else 4.6 - n // 500 / 10}\n"
        for n in range(0, 2000, 50)
    ]
    log = read("".join(lines))
    assert log.hazards[CARRIED] == 3
    assert np.isfinite(log.evals.val_loss).all()


def test_a_best_validation_makes_no_line_another_trainers() -> None:
    log = read(
        "".join(f"step {n}: loss {5 - n / 900:.4f}, best val loss 3.4142\n" for n in range(0, 500, 50))
    )
    assert log.format.name == "plain prints"
    assert len(log.train) == 10
    assert not len(log.evals)


def test_a_date_in_front_is_no_pair_of_counters() -> None:
    lines = [f"03/25 10:{n:02d}:44 - INFO - [{n}/40] lr: 3e-4 loss: {5 - n / 30:.4f}\n" for n in range(1, 30)]
    np.testing.assert_array_equal(read("".join(lines)).train.step, range(1, 30))
    np.testing.assert_array_equal(read("10/40 loss: 3.1\n20/40 loss: 3.0\n").train.step, [10, 20])
