"""Lines that forks changed a little, and readers that would otherwise skip them."""

from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.record.evidence import LogEvidence
from gptwright.record.open_run import open_run
from gptwright.record.readers import read_log


def read(text: str) -> LogEvidence:
    return read_log(None, data=text.encode())


def test_losses_with_as_many_decimals_as_they_have() -> None:
    # A float printed as it is; more text follows, so neither number was cut.
    log = read(
        "step 0: train loss 4.335848, val loss 4.33226, mem 714.0 MiB\nstep 500: train loss 2.5, val"
        " loss 2.557\n"
    )
    assert list(log.evals.val_loss) == [4.33226]
    assert log.lines_skipped == 1


def test_milliseconds_after_a_space() -> None:
    log = read(
        "iter 0: loss 4.2670, time 17903.67 ms, mfu -100.00%\niter 30: loss 2.5883, time 157.04 ms,"
        " mfu 2.41%\n"
    )
    assert log.format.name == "nanoGPT"
    assert log.train.mfu[1] == pytest.approx(0.0241)


def test_llama2c_without_an_mfu() -> None:
    log = read(
        "step 0: train loss 11.6275, val loss 11.6275\n0 | loss 11.6250 | lr 3.000000e-04 | 104573.61ms\n"
        "10 | loss 9.3750 | lr 3.000000e-04 | 13597.70ms  \n"
    )
    assert log.format.name == "llama2.c"
    assert list(log.train.step) == [0, 10]


def test_the_lecture_with_the_size_in_words() -> None:
    log = read("number of parameters: 10.695233 M \nstep 0: train loss 4.2816, val loss 4.2797\n")
    assert log.header["parameters_total"].value == 10_695_233


def test_megatron_prints_no_loss_where_it_is_not_above_zero() -> None:
    line = (
        " iteration {}/  250000 | consumed samples:        43408 | elapsed time per iteration (ms):"
        " 4247.9 | learning"
        " rate: 2.999E-04 | global batch size:     8 | loss scale: 1.0 | grad norm: {} | actual"
        " seqlen:  2048 |\n"
    )
    log = read("".join(line.format(step, "nan") for step in range(5426, 5430)))
    assert list(log.train.loss_is_bad) == [True] * 4


def test_llms_from_scratch() -> None:
    log = read(
        "Ep 1 (Step 000000): Train loss 9.817, Val loss 9.924\nEp 1 (Step 000005): Train loss 8.066,"
        " Val loss 8.332\n"
        "Every effort moves you,,,\nEp 2 (Iter 000010): Train loss 6.619, Val loss 7.042\n"
    )
    assert log.format.name == "LLMs-from-scratch"
    assert list(log.evals.step) == [0, 5, 10]
    assert list(log.evals.train_loss) == [9.817, 8.066, 6.619]
    assert log.header["epochs"].value == 2


def test_hugging_face_counts_the_passes() -> None:
    log = read("".join(f"{{'loss': 4.{9 - n}, 'learning_rate': 5e-05, 'epoch': {n}.5}}\n" for n in range(4)))
    assert log.header["epochs"].value == 3.5


def test_trained_parameters_are_those_of_an_adapter_where_others_are_frozen() -> None:
    peft = "trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.06\n"
    trained = "  Number of trainable parameters = 4,194,304\n"
    dicts = "".join(
        f"{{'loss': {2 - n / 10}, 'learning_rate': 0.0003, 'epoch': 0.0{n}}}\n" for n in (2, 5, 7)
    )
    assert read(peft + trained + dicts).header["parameters_total"].value == 6_742_609_920
    assert read(trained + dicts).header["parameters_total"].value == 4_194_304
    litgpt = (
        "Number of trainable parameters: 1,126,400\n"
        "Number of non-trainable parameters: {frozen}\n"
        "Epoch 1 | iter 1 step 0 | loss train: 2.321, val: n/a | iter time: 512.12 ms\n"
        "Epoch 1 | iter 2 step 1 | loss train: 2.221, val: n/a | iter time: 212.12 ms (step)\n"
    )
    assert read(litgpt.format(frozen="1,100,048,384")).header["parameters_total"].value == 1_101_174_784
    assert read(litgpt.format(frozen="0")).header["parameters_total"].value == 1_126_400


LLMC_HEAD = (
    "| max_steps             | 20                                                 |\n"
    "| weight init method    | {}                                   |\n"
    "| num_parameters        | 124475904                                          |\n"
)


def test_llmc_fills_what_is_no_number_up_to_the_width_of_one() -> None:
    """The lines of anthonix/llm.c issue 2."""
    lines = [
        "step    9/20 | loss 7.123456 (+nanz)| norm 1.2345 (+nanz)| lr 3.00e-04 | 36.58 ms | 9.2% bf16 MFU"
        " | 112241 tok/s",
        *(
            f"step   {n}/20 | loss     nan (+nanz)| norm    nan (+nanz)| lr 3.00e-04 | 36.51 ms | 9.2%"
            " bf16 MFU | 112236 tok/s"
            for n in (10, 11)
        ),
    ]
    log = read(LLMC_HEAD.format("d12            ") + "\n".join(lines) + "\n")
    assert list(log.train.step) == [9, 10, 11]
    assert list(log.train.loss_is_bad) == [False, True, True]
    assert log.lines_skipped == 0
    assert log.settings["init_from"].value == "scratch"


@pytest.mark.parametrize(
    ("method", "start"),
    [
        ("gpt2_124M_bf16.bin", "gpt2_124M_bf16.bin"),
        ("gpt2:d12           ", "scratch"),
        ("intermediate checkpoint", None),
    ],
)
def test_llmc_says_whose_weights_it_starts_with(method: str, start: str | None) -> None:
    line = "step    9/20 | loss 3.123456 (+nanz)| norm 1.2345 (+nanz)| lr 3.00e-04 | 36.58 ms | 9.2% bf16 MFU"
    log = read(LLMC_HEAD.format(method) + f"{line} | 112241 tok/s\n")
    found = log.settings.get("init_from")
    assert (found.value if found is not None else None) == start


@pytest.mark.parametrize(("first", "start"), [(5.3255, "gpt2"), (10.9, None)])
def test_llmc_on_a_cpu_starts_with_gpt2(first: float, start: str | None) -> None:
    lines = [f"step {n}: train loss {first - n / 10:.6f} (took 1890.123456 ms)" for n in range(5)]
    log = read("\n".join(lines) + "\n")
    found = log.settings.get("init_from")
    assert (found.value if found is not None else None) == start


def test_a_batch_in_sequences_is_one_in_tokens_with_the_configs_context(tmp_path: Path) -> None:
    """Megatron prints sequences alone where its arguments are not in the log."""
    line = (
        " iteration {}/ 500 | consumed samples: {} | elapsed time per iteration (ms): 812.3 | learning rate:"
        " 3.000E-04 | global batch size:   256 | lm loss: {:.6E} | loss scale: 1.0 | grad norm: 0.4 |"
    )
    (tmp_path / "log.txt").write_text("".join(f"{line.format(n, 256 * n, 9 - n / 90)}\n" for n in (100, 200)))
    (tmp_path / "config.toml").write_text("block_size = 2048\n")
    per_step = read_run(open_run(str(tmp_path))).speed.tokens_per_step
    assert per_step is not None
    assert per_step.value == 524_288


@pytest.mark.parametrize(
    "line",
    [
        "iter {0}: loss 2.5881, ppl 13.3045, time 157.04ms, mfu 2.41%",
        "iter {0}: loss 2.5881, norm 0.91, lr 6.0e-04, time 157.04ms, tok/s 52,200, mfu 2.41%, mem 3GB",
        "iter {0}/4000: loss 2.5881, time 157.04ms, mfu 2.41%",
        "iter {0}: loss 2.5881, time 0.15704s, mfu 2.41%",
    ],
)
def test_a_line_of_nanogpts_keeps_its_meaning_with_more_in_it(line: str) -> None:
    """Its MFU is relative to an A100 and its evaluations are in eval mode, which no plain print says."""
    evals = "step 0: train loss 4.2874, val loss 4.2823\n"
    log = read(evals + "".join(f"{line.format(step)}\n" for step in range(0, 50, 10)))
    assert log.format.name == "nanoGPT"
    assert list(log.train.step) == [0, 10, 20, 30, 40]
    assert set(log.train.loss) == {2.5881}
    assert log.train.seconds[1] == pytest.approx(0.15704)
    assert log.train.mfu[4] == pytest.approx(0.0241)
    assert log.lines_skipped == 0


def test_an_adapter_is_trained_on_weights_that_are_not_fresh(tmp_path: Path) -> None:
    """A hundred thousand tokens are few for 7 billion fresh parameters, and enough for an adapter of them."""
    head = "Trainable parameters: 0.144% (10.486M/7258.511M)\nStarting training..., iters: 400\n"
    line = "Iter {}: Train loss {:.3f}, Learning Rate 1.000e-05, It/sec 0.830, Tokens/sec 212.410, Trained"
    text, tokens = head, 0
    for step in range(10, 401, 10):
        tokens += 2100 + 37 * (step % 70)
        text += f"{line.format(step, 1.2 + 9 / (step + 9))} Tokens {tokens}, Peak mem 9.120 GB\n"
    (tmp_path / "log.txt").write_text(text)
    reading = read_run(open_run(str(tmp_path)))
    assert not reading.starts_from_scratch
    assert "undertrained" not in {finding.id for finding in diagnose(reading).findings}
    # Texts are of uneven length: what was seen is what the log counts, and no product.
    assert reading.progress.tokens_seen is not None
    assert reading.progress.tokens_seen.value == tokens
    assert reading.progress.tokens_seen.source == "log:42"


def test_gpt_neox_keeps_megatrons_line() -> None:
    log = read(
        " samples/sec: 51.1 | iteration    1000/   32000 | elapsed time per iteration (ms): 626.4 | learning"
        " rate: 1.875E-04 | approx flops per GPU: 40.5TFLOPS | lm_loss: 4.611874E+00 | loss scale: 1.0 |\n"
        " validation results at iteration 1000 | lm_loss value: 4.702311E+00 | lm_loss_ppl value: 110.2 | \n"
    )
    assert log.train.seconds[0] == pytest.approx(0.6264)
    assert list(log.train.loss) == [4.611874]
    assert (log.evals.step[0], log.evals.val_loss[0]) == (1000, 4.702311)


def test_modded_nanogpts_first_line() -> None:
    line = "step {:4d}/6676 | train loss {:.4f} | lr_scale 1.00e+00 | ({:.2f} ms | {} tok/s)\n"
    log = read("".join(line.format(n, 11 - n / 9, 412.5, 1_271_004) for n in range(1, 9)))
    assert list(log.train.seconds) == pytest.approx([0.4125] * 8)
    assert log.header["planned_steps"].value == 6676
