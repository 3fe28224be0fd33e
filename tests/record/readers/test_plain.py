"""What somebody's own loop prints: names and numbers in any order, bars, tables, blocks of several lines."""

import math

import numpy as np
import pytest

from gptwright.errors import RunError
from gptwright.record.evidence import IN_BITS, IN_EPOCHS, NUMBERED, EventKind, LogEvidence
from gptwright.record.readers import read_log


def read(text: str) -> LogEvidence:
    return read_log(None, data=text.encode())


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (
            "[Step {s}] Loss: {l} | LR: 0.000300 | Tokens/s: 21,034",
            {"learning_rate": 3e-4, "tokens_per_second": 21034},
        ),
        ("step {s} | loss {l} | dt 0.55s", {"seconds": 0.55}),
        (
            "step {s}   | loss {l}  | lr 1.57e-04 | 148,936 tok/s",
            {"learning_rate": 1.57e-4, "tokens_per_second": 148936},
        ),
        (
            "iter {s} | loss {l} | lr 0.00003 | grad_norm 0.87 | 15.2k tokens/s",
            {"grad_norm": 0.87, "tokens_per_second": 15200},
        ),
        ('{{"step": {s}, "loss": {l}, "gradient_norm": 5.5967}}', {"grad_norm": 5.5967}),
        ("INFO:train: global_step={s} train_loss={l} step_time=34.0ms", {"seconds": 0.034}),
        ("steps: {s} loss: {l} iter time (s): 1.234 samples/sec: 12.9", {"seconds": 1.234}),
        ("Steps:   3%|3         | {s}/5000 [00:45<04:32,  2.00it/s, loss={l}, lr=0.0001]", {"seconds": 0.5}),
        ("[{s} | 33.44] loss={l} avg=3.30", {}),
        ("Iteration {s} of 5000: training loss = {l}", {}),
        (
            "step {s:>6}/20000 | train {l} | 1.85 s/step | 35.4k tok/s",
            {"seconds": 1.85, "tokens_per_second": 35400},
        ),
        ("2026-05-27 00:36:34,620 - INFO - Step {s}, Loss: {l}, aux loss: 0.01, best loss: 1.0", {}),
    ],
)
def test_a_line_is_read_by_its_words(line: str, values: dict[str, float]) -> None:
    log = read("".join(line.format(s=100 * n, l=f"{9 - 0.5 * n:.4f}") + "\n" for n in range(1, 6)))
    assert log.format.name == "plain prints"
    np.testing.assert_array_equal(log.train.step, [100, 200, 300, 400, 500])
    np.testing.assert_allclose(log.train.loss, [8.5, 8.0, 7.5, 7.0, 6.5])
    for name, value in values.items():
        np.testing.assert_allclose(getattr(log.train, name), value)


@pytest.mark.parametrize(
    "line",
    [
        "Step: {s}, Loss: {l}, Val Loss: {v}, Tokens/s: 142.18",
        "step: {s}         train loss: {l}        test loss: {v}         MFU: 63.91%",
        "iter {s}: train {l}, val {v}",
        "step {s}/5000 phase=1 train_loss={l} val_loss={v} elapsed=1.1s",
        "| step {s} | train/loss {l} | eval/loss {v} |",
    ],
)
def test_validation_beside_training(line: str) -> None:
    log = read("".join(line.format(s=10 * n, l=4 - n / 4, v=4.5 - n / 4) + "\n" for n in range(1, 5)))
    assert list(log.train.loss) == [3.75, 3.5, 3.25, 3.0]
    assert list(log.evals.val_loss) == [4.25, 4.0, 3.75, 3.5]
    assert list(log.evals.step) == [10, 20, 30, 40]


def test_a_bar_that_begins_anew_in_each_epoch_becomes_steps() -> None:
    text = ""
    for epoch in (1, 2, 3):
        text += f"Epoch {epoch}/4: 50%|5 | 133/266 [03:37<03:38,  1.64s/it, loss={5 - epoch}.5]\r"
        text += f"Epoch {epoch}/4: 100%|#| 266/266 [07:15<00:00,  1.64s/it, loss={5 - epoch}.25]\n"
        text += f"Epoch {epoch} | Train Loss: {5 - epoch}.4 | Val Loss: {5 - epoch}.6 | Perplexity: 40.1\n"
    log = read(text)
    assert list(log.train.step) == [133, 266, 399, 532, 665, 798]
    assert list(log.train.loss) == [4.5, 4.25, 3.5, 3.25, 2.5, 2.25]  # and not the means of the epochs
    assert list(log.evals.step) == [266, 532, 798]
    assert list(log.evals.val_loss) == [4.6, 3.6, 2.6]
    assert log.header["planned_steps"].value == 4 * 266
    assert log.header["epochs"].value == 3


def test_keras_old_and_new() -> None:
    old = (
        "1250/1250 [==============================] - 146s 117ms/step - loss: {} - dense_loss: 5.5"
        " - val_loss: {}\n"
    )
    new = "1250/1250 ━━━━━━━━━━━━━━━━━━━━ 146s 117ms/step - loss: {} - perplexity: 161.2 - val_loss: {}\n"
    for shape in (old, new):
        log = read("Epoch 1/3\n" + shape.format(5.5, 5.0) + "Epoch 2/3\n" + shape.format(4.7, 4.8))
        assert list(log.train.step) == [1250, 2500]
        assert list(log.evals.val_loss) == [5.0, 4.8]
        assert list(log.train.seconds) == [0.117, 0.117]
        assert log.header["planned_steps"].value == 3750


def test_lightning_counts_epochs_from_zero() -> None:
    bar = "Epoch {}:  14%|1         | {}/704 [00:44<04:29,  2.00it/s, v_num=11, train_loss={}]\r"
    log = read("".join(bar.format(n // 2, 100 + n % 2, 5 - n / 4) for n in range(4)))
    assert list(log.train.step) == [100, 101, 804, 805]


def test_steps_of_an_epoch_without_its_length_are_numbered_in_order() -> None:
    log = read("".join(f"Epoch {n // 3}, Step {50 * (n % 3)}, Loss {9 - n}.5e+00\n" for n in range(6)))
    assert list(log.train.step) == [1, 2, 3, 4, 5, 6]
    assert log.hazards[NUMBERED] == 6


def test_epochs_alone() -> None:
    log = read(
        "".join(f"Epoch {n}/10, Train Loss: {6 - n / 2}, Val Loss: {6.5 - n / 2}\n" for n in range(1, 5))
    )
    assert list(log.evals.step) == [1, 2, 3, 4]
    assert log.hazards[IN_EPOCHS] == 8
    assert log.header["epochs"].value == 4


@pytest.mark.parametrize(
    "table",
    [
        "Step\tTraining Loss\tValidation Loss\n500\t3.5\tNo log\n1000\t3.0\t3.25\n1500\t2.5\t3.0\n",
        "Step Training Loss Validation Loss\n500 3.5 No log\n1000 3.0 3.25\n1500 2.5 3.0\n",
        "| Step | Train Loss | Val Loss | Note |\n|---|---|---|---|\n| 500 | 3.5 | - | |\n| 1000 |"
        " **3.0** | 3.25 | x |\n"
        "| 1500 | 2.5 | 3.0 | |\n",
        "epoch,step,train_loss,val_loss\n0,500,3.5,\n0,1000,3.0,\n0,1000,,3.25\n1,1500,2.5,\n1,1500,,3.0\n",
    ],
)
def test_tables(table: str) -> None:
    log = read(table)
    assert list(log.train.step) == [500, 1000, 1500]
    assert list(log.train.loss) == [3.5, 3.0, 2.5]
    assert list(log.evals.step) == [1000, 1500]
    assert list(log.evals.val_loss) == [3.25, 3.0]


def test_a_counter_above_its_losses() -> None:
    block = (
        "[batch={0}/1000]:\n\t Train time/batch: {0}\n\t Train loss/train/total: {1}\n\t Train"
        " throughput: 15234.1\n"
    )
    log = read("".join(block.format(n, 11 - n) for n in range(1, 5)))
    assert list(log.train.step) == [1, 2, 3, 4]
    assert list(log.train.loss) == [10, 9, 8, 7]


def test_fairseq_prints_bits_as_its_perplexity_tells() -> None:
    text = "".join(
        f"| epoch 001  {n}000 / 8223 loss={bits} (1.50), wps=962, wpb=908, lr=0.001, gnorm=2.1\n"
        f"| epoch 001 | valid on 'valid' subset | valid loss {bits} | valid ppl {2**bits:.2f}\n"
        for n, bits in ((1, 6.0), (2, 5.0))
    )
    log = read(text)
    np.testing.assert_allclose(log.train.loss, np.array([6.0, 5.0]) * math.log(2))
    np.testing.assert_allclose(log.evals.val_loss, np.array([6.0, 5.0]) * math.log(2))
    assert log.hazards[IN_BITS] == 2
    # A perplexity to the base of e is what everybody else prints.
    nats = read("".join(f"step {n}: loss {n}.0, ppl {math.e**n:.2f}\n" for n in range(1, 4)))
    assert list(nats.train.loss) == [1, 2, 3]


def test_what_stands_above_the_first_step() -> None:
    log = read(
        "Using device: NVIDIA GeForce RTX 3060\nvocab_size: 50257\ncontext_length: 512\n- batch_size: 8\n"
        "grad_accum_steps = 16\nModel parameters: 51.48M\n[Step 0] Loss: 10.9\n[Step 10] Loss:"
        " 9.8\nbatch_size: 99\n"
    )
    assert log.header["device"].value == "NVIDIA GeForce RTX 3060"
    assert log.header["parameters_total"].value == 51_480_000
    assert {name: fact.value for name, fact in log.settings.items()} == {
        "vocab_size": 50257,
        "block_size": 512,
        "batch_size": 8,
        "gradient_accumulation_steps": 16,
    }


def test_a_failure_before_the_first_step_is_a_log_too() -> None:
    log = read(
        'Traceback (most recent call last):\n  File "t.py"\ntorch.cuda.OutOfMemoryError: CUDA out of'
        " memory.\n"
    )
    assert [event.kind for event in log.events] == [EventKind.OUT_OF_MEMORY]
    assert not len(log.train)


def test_a_trainers_own_lines_are_read_by_its_own_reader_also_beside_others() -> None:
    evaluations = "".join(f"step {250 * n}: train loss 2.0000, val loss 2.1000\n" for n in range(9))
    assert read(evaluations).format.name == "nanoGPT"
    own = "".join(f"iter {10 * n} | loss 2.0 | lr 0.001\n" for n in range(90))
    both = read(evaluations + own)
    assert both.format.name == "plain prints"
    assert (len(both.train), len(both.evals)) == (99, 9)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("2026-05-27 {h:02d}:{m:02d}:{s:02d},620 - INFO - Epoch 1, Step {n}, Loss: {l}", 3.0),
        ("  step {n} (0.06M tok)  loss {l}  ({t}s)", 3.0),
        ("[{n} | {t}.00] loss={l} avg=3.30", 3.0),
        ("step {n}: loss {l}, elapsed {t}.0s", 3.0),
        ('{{"step": {n}, "train_loss": {l}, "dt_ms": 2500.0}}', 2.5),
        ("step {n} loss {l} step_time_s=2.5", 2.5),
        ("step {n} loss {l} iter_ms: 2500", 2.5),
        ("step {n}: loss {l}, time 4.0s", math.nan),  # of a step or of all: nothing says it
    ],
)
def test_the_time_of_a_step_from_a_clock(line: str, seconds: float) -> None:
    text = ""
    for n in range(100, 600, 100):
        t = 86_000 + 3 * n  # past midnight
        day = t % 86_400
        text += line.format(n=n, l=9 - n / 100, t=t, h=day // 3600, m=day // 60 % 60, s=day % 60) + "\n"
    np.testing.assert_allclose(read(text).train.seconds[1:], seconds)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("{n} iterations -- validation loss {l}", 100),
        ("{n}/13000 (epoch 0.5), train_loss = {l}, grad/param norm = 5.2e-03, time/batch = 0.12s", 100),
        (
            "2024-02-01 12:00:01.123\thost:0\tINFO\t[step={n}/1000]\n    train/CrossEntropyLoss={l}",
            100,
        ),
        ("=== Step {n} ===\ntrain loss: {l}\nlr: 0.0006", 100),
        ("loss: {l}", 1),
    ],
)
def test_where_a_counter_stands_elsewhere(line: str, step: int) -> None:
    log = read("".join(line.format(n=100 * n, l=f"{9 - 0.5 * n:.3f}") + "\n" for n in range(1, 7)))
    table = log.evals if "validation" in line else log.train
    losses = log.evals.val_loss if "validation" in line else log.train.loss
    assert list(table.step) == [step * n for n in range(1, 7)]
    assert list(losses) == [8.5, 8.0, 7.5, 7.0, 6.5, 6.0]


def test_a_table_of_fastai() -> None:
    log = read(
        "epoch     train_loss  valid_loss  accuracy  time    \n"
        "0         4.512345    4.312345    0.256789  12:34     \n"
        "1         4.112345    4.012345    0.286789  12:33     \n"
    )
    assert list(log.train.loss) == [4.512345, 4.112345]
    assert list(log.evals.val_loss) == [4.312345, 4.012345]
    assert log.header["epochs"].value == 2


def test_thousands_in_a_table_are_steps_like_any_other() -> None:
    rows = "".join(
        f"| {step:,} | {5 - step / 2000:.3f} | {5.1 - step / 2000:.3f} | 45.1k |\n"
        for step in range(500, 3001, 500)
    )
    log = read("| step | train loss | val loss | tok/s |\n|-----:|-----:|-----:|------|\n" + rows)
    np.testing.assert_array_equal(log.train.step, [500, 1000, 1500, 2000, 2500, 3000])
    np.testing.assert_allclose(log.evals.val_loss[[0, -1]], [4.85, 3.6])


def test_a_chart_that_wandb_exports_is_the_first_run_in_it() -> None:
    names = ("train/loss", "train/loss__MIN")
    columns = [f"run-{run} - {name}" for run in "ab" for name in names]
    head = ",".join(f'"{name}"' for name in ("Step", *columns)) + "\n"
    rows = "".join(
        f'"{step}","{4 - step / 100}","{4 - step / 100}","",""\n"{step + 5}","","","{9 - step / 100}",""\n'
        for step in range(0, 100, 20)
    )
    log = read(head + rows)
    np.testing.assert_array_equal(log.train.step, [0, 20, 40, 60, 80])
    np.testing.assert_allclose(log.train.loss, [4, 3.8, 3.6, 3.4, 3.2])
    assert log.hazards["columns of other runs, left out"] == 1


def test_a_lightning_csv_has_a_row_for_each_loss() -> None:
    log = read(
        "epoch,step,train_loss_step,val_loss\n0,49,5.0,\n0,99,4.5,\n0,99,,4.6\n1,149,4.0,\n1,199,3.5,\n1,199,,3.9\n"
    )
    np.testing.assert_array_equal(log.train.step, [49, 99, 149, 199])
    np.testing.assert_array_equal(log.evals.step, [99, 199])
    np.testing.assert_allclose(log.evals.val_loss, [4.6, 3.9])


@pytest.mark.parametrize(
    "of_validation", ["Validating: 100%|██| 20/20", "Validation DataLoader 0: 100%|██| 20/20"]
)
def test_the_bar_of_an_evaluation_counts_no_steps(of_validation: str) -> None:
    lines = [
        f"Epoch {e}: 100%|██| 625/625 [01:23<00:00, 7.50it/s, train_loss={3 - e / 10}]\n"
        f"{of_validation} [00:02<00:00, 9.87it/s, val_loss={3.2 - e / 10}]\n"
        for e in range(4)
    ]
    log = read("".join(lines))
    assert log.last_run_segment == 0
    np.testing.assert_array_equal(log.train.step, [625, 1250, 1875, 2500])
    np.testing.assert_array_equal(log.evals.step, [625, 1250, 1875, 2500])
    np.testing.assert_allclose(log.evals.val_loss, [3.2, 3.1, 3.0, 2.9])


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("Ep 1 (step {s}): train_loss=4.2, val_loss=4.3, tokens_seen={t}", 1024),
        ("step {s} | loss 4.2 | total tokens: {t:,}", 32_768),
        ("step {s} | loss 4.2 | {t} tokens/s", None),
        ("step {s} | loss 4.2 | tokens seen: 5000", None),
        ("step {s} | loss 4.2 | tokens: {t}", 2048),
    ],
)
def test_tokens_since_the_start_tell_those_of_a_step(line: str, tokens: int | None) -> None:
    log = read("".join(line.format(s=s, t=(s + 1) * (tokens or 512)) + "\n" for s in range(0, 100, 5)))
    found = log.header.get("tokens_per_step")
    assert (found.value if found is not None else None) == tokens
    assert found is None or found.source == "derived"


@pytest.mark.parametrize(
    "line", ["Step {s:,} / 50,000 | Loss: 4.20", "[step {s:,}] loss=4.20", "iter {s:,}: loss 4.20"]
)
def test_a_counter_with_thousands(line: str) -> None:
    log = read("".join(line.format(s=s) + "\n" for s in range(500, 3001, 500)))
    np.testing.assert_array_equal(log.train.step, [500, 1000, 1500, 2000, 2500, 3000])
    assert log.last_run_segment == 0


def test_numbers_behind_a_counters_comma_are_not_its_thousands() -> None:
    log = read("".join(f"Epoch 1, Step {s}, 300 batches, Loss: 4.20\n" for s in (100, 200, 300, 400)))
    np.testing.assert_array_equal(log.train.step, [100, 200, 300, 400])


@pytest.mark.parametrize("parts", [("train", "val"), ("val", "train")])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_loss_in_an_object_has_the_name_of_that_object(parts: tuple[str, str], quote: str) -> None:
    losses = {"train": 4.52, "val": 4.61}
    objects = ", ".join(f'"{part}": {{"loss": {losses[part]}}}' for part in parts)
    lines = [f'{{"step": {step}, {objects}, "lr": 0.0003}}' for step in (100, 200, 300)]
    lines = [line.replace('"', quote) for line in lines]
    # Of a line that is cut nothing says whose the loss is.
    log = read("\n".join([*lines, lines[0][:-20]]) + "\n")
    np.testing.assert_array_equal(log.train.loss, [4.52] * 3)
    np.testing.assert_array_equal(log.evals.val_loss, [4.61] * 3)
    np.testing.assert_array_equal(log.train.learning_rate, [0.0003] * 3)


@pytest.mark.parametrize(
    ("header", "total"),
    [
        ("trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.06", 6_742_609_920),
        ("Trainable parameters = 41,943,040/8,030,261,248 (0.52% trained)", 8_030_261_248),
        ("4.2 M     Trainable params\n6.7 B     Non-trainable params\n6.7 B     Total params", 6_700_000_000),
        ("124 M     Trainable params\n0         Non-trainable params", 124_000_000),
        ("Trainable parameters: 29,940,000", 29_940_000),
    ],
)
def test_an_adapter_is_not_the_model(header: str, total: int) -> None:
    log = read(header + "\n" + "".join(f"step {n} loss {3 - n / 100}\n" for n in (10, 20, 30)))
    assert log.header["parameters_total"].value == total


def test_a_bar_with_a_loss_names_that_of_validation_without_the_word() -> None:
    bar = "Training: {p}%|###   | {s}/5000 [20:00<20:00,  2.08it/s, loss=1.45, {val}]\n"
    steps = ((50, 2500), (60, 3000), (70, 3500))
    log = read("".join(bar.format(p=p, s=s, val="val=1.62") for p, s in steps))
    np.testing.assert_array_equal(log.train.loss, [1.45] * 3)
    np.testing.assert_array_equal(log.evals.val_loss, [1.62] * 3)
    for other in ("val_acc=0.62", "val=62", "val=0.62%", "val=0.62 acc"):
        assert not len(read("".join(bar.format(p=p, s=s, val=other) for p, s in steps)).evals)


@pytest.mark.parametrize(
    "steps", [("1k", "2k", "3k"), ("1_000", "2_000", "3_000"), ("1,000", "2,000", "3,000")]
)
def test_a_counter_in_thousands(steps: tuple[str, ...]) -> None:
    log = read("".join(f"step {step}/10k: loss 4.21 val_loss 4.30\n" for step in steps))
    np.testing.assert_array_equal(log.train.step, [1000, 2000, 3000])
    assert log.header["planned_steps"].value == 10_000


@pytest.mark.parametrize("odd", ["{'a', {'b'}}", "{'a', ({},)}", '{"a": {', "{'loss', 'val'} {}", "{''{"])
def test_an_object_that_is_none_is_no_line(odd: str) -> None:
    log = read("".join(f"step {n} loss 3.{n}\n" for n in (10, 20, 30)) + f"step 40 loss 2.0 {odd}\n")
    np.testing.assert_array_equal(log.train.step, [10, 20, 30])


def test_a_ratio_of_parameters_is_no_count_of_them() -> None:
    lines = "".join(f"step {n}: loss {5 - n / 10:.3f}\n" for n in range(10))
    assert "parameters_total" not in read(f"Tokens : Params ratio: 20.00\n{lines}").header


@pytest.mark.parametrize(
    ("sentence", "step", "train", "val"),
    [
        ("After 1k steps train loss was 4.25 and val 4.27.", 1000, 4.25, 4.27),
        ("at 5k: train 3.42, val 3.43", 5000, 3.42, 3.43),
        ("val is 2.95 at 400k", 400_000, None, 2.95),
        ("Validation went to about 3.29 after 12,000 iterations", 12_000, None, 3.29),
    ],
)
def test_a_sentence_tells_the_step_and_the_losses_that_it_names(
    sentence: str, step: int, train: float | None, val: float | None
) -> None:
    log = read(f"I train a small GPT on my own text.\n{sentence}\n")
    assert list(log.train.loss) == ([] if train is None else [train])
    assert (list(log.evals.step), list(log.evals.val_loss)) == ([step], [val])


@pytest.mark.parametrize(
    "sentence",
    [
        "at 2k it was 3.78 / 3.79",
        "the card draws 300 W at 2k rpm and training takes 4.6 s",
        "val is 2.95",
        "train at 0.5k tokens per second",
    ],
)
def test_a_sentence_without_a_step_or_a_name_tells_nothing(sentence: str) -> None:
    with pytest.raises(RunError, match="no line"):
        read(f"{sentence}\n")


@pytest.mark.parametrize("number", ["{}", "np.float32({})"])
def test_a_history_of_epochs_on_one_line(number: str) -> None:
    losses = {"accuracy": [0.1, 0.2, 0.3], "loss": [4.21, 3.87, 3.5], "val_loss": [4.02, 3.9, 3.95]}
    lists = (f"'{n}': [{', '.join(number.format(v) for v in values)}]" for n, values in losses.items())
    log = read(f"{{{', '.join(lists)}}}\n")
    np.testing.assert_array_equal(log.train.loss, losses["loss"])
    np.testing.assert_array_equal(log.evals.val_loss, losses["val_loss"])
    assert log.header["epochs"].value == 3
    assert log.hazards[IN_EPOCHS]


def test_the_shape_of_a_batch_is_no_counter_and_a_pair_may_be_in_thousands() -> None:
    lines = [f"[{n / 1000:.2f}k/5k] loss {5 - n / 1000:.3f} | 410 ms" for n in range(50, 1001, 50)]
    log = read("\n".join(["batch 16 x 512 = 8.2k tokens/step", *lines]) + "\n")
    assert list(log.train.step) == list(range(50, 1001, 50))
    assert log.header["planned_steps"].value == 5000
