"""What broke: memory that ran out, dtypes that a device lacks, losses that are gone."""

import json
import math
from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import read_run
from gptwright.findings import Finding
from gptwright.record.evidence import RunEvidence
from gptwright.record.readers import read_log
from tests.diagnose.rules.nanogpt_run import WEB, diagnosed, found, web_loss, write_run

SMALL = (
    "n_layer = 12\nn_head = 12\nn_embd = 768\nblock_size = 1024\n"
    "batch_size = 8\ngradient_accumulation_steps = 64\n"
)
HEAD = "tokens per iteration will be: 524,288\nnumber of parameters: 123.59M\n"
ON_APPLE = (
    "RuntimeError: MPS backend out of memory (MPS allocated: 16.02 GB, other allocations: 384.00 KB, max"
    " allowed: 18.13 GB). Tried to allocate 1.54 GB on private pool."
)
ON_CARD = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.54 GiB. GPU 0 has a total capacity of"
    " 11.99 GiB of which 0 bytes is free. Of the allocated memory {} is allocated by PyTorch, and 0.40 GiB is"
    " reserved by PyTorch but unallocated."
)


def findings(folder: Path, log: str, device: str, config: str = "", **facts: object) -> dict[str, Finding]:
    (folder / "log.txt").write_text(HEAD + log + "\n")
    (folder / "config.py").write_text(SMALL + config)
    stated = {"device": device, "vocab_size": 50304, **facts}
    (folder / "facts.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in stated.items()))
    return found(folder)


def test_apples_allocator_writes_gb_for_gib(tmp_path: Path) -> None:
    """8·1024·50304·4 bytes are 1.535 GiB, which Apple's allocator prints as 1.54 GB."""
    memory = findings(tmp_path, ON_APPLE, "Apple M1 Pro", "device = 'mps'\ndtype = 'bfloat16'\n")
    assert "8·1024·50304·4" in memory["out-of-memory"].message
    assert "logits" in memory["out-of-memory"].causes[0].text
    assert "Halve batch_size" in memory["out-of-memory"].actions[0].text


@pytest.mark.parametrize(("held", "another"), [("9.90 GiB", False), ("2.10 GiB", True)])
def test_another_process_is_suspected_only_where_this_one_held_little(
    tmp_path: Path, held: str, another: bool
) -> None:
    """Compiled, micro-batches of 8 need 6.9 GiB: that they did not fit 12 GB needs a reason."""
    memory = findings(tmp_path, ON_CARD.format(held), "RTX 4070", "compile = True\n")["out-of-memory"]
    assert ("look for another process" in memory.actions[0].text) is another
    assert ("no other process is to blame" in memory.actions[0].text) is not another


@pytest.mark.parametrize(
    ("device", "setting", "expected"),
    [
        ("Tesla T4", "cuda", True),
        ("Apple M1 Pro", "mps", False),
        ("Apple M1 Pro", None, False),
        ("Tesla T4", "cpu", False),
    ],
)
def test_nanogpt_ignores_its_dtype_without_cuda(
    tmp_path: Path, device: str, setting: str | None, expected: bool
) -> None:
    """Its train.py autocasts on CUDA alone: on Apple's GPUs and on CPUs it multiplies in float32."""
    config = "dtype = 'bfloat16'\n" + (f"device = {setting!r}\n" if setting else "")
    log = "iter 0: loss 10.9000, time 1000.00ms, mfu -100.00%"
    assert ("bf16-emulated" in findings(tmp_path, log, device, config)) is expected


def test_intervals_of_nan_iterations_are_no_numbers(tmp_path: Path) -> None:
    """Megatron-LM prints no loss for an interval that had none, but how many iterations were NaN."""
    line = (
        " iteration {:8d}/  500000 | consumed samples: {:12d} | elapsed time per iteration (ms): 4320.1 |"
        " learning rate: 1.5E-04 | global batch size:   256 |{} loss scale: 1.0 | grad norm: {} |"
        " number of skipped iterations: {:3d} | number of nan iterations: {:3d} |"
    )
    good = [
        line.format(n, n * 256, f" lm loss: {9 - n / 1000:.6E} |", 0.9, 0, 0) for n in range(100, 1001, 100)
    ]
    skipped = [line.format(1100, 1100 * 256, "", "inf", 100, 0)]
    bad = [line.format(n, n * 256, "", "nan", 100, 100) for n in range(1200, 1501, 100)]
    (tmp_path / "log.txt").write_text("\n".join([*good, *skipped, *bad]) + "\n")
    loss = found(tmp_path)["non-finite-loss"]
    assert "from step 1,200 on" in loss.message
    assert "8.0000 at step 1,000" in loss.message


def test_a_run_that_lost_what_it_had_learned_is_not_stuck(tmp_path: Path) -> None:
    """It was at 3.7 before it rose to 7.3 and stayed: it diverged, and it had learned context."""

    def curve(step: float) -> float:
        return web_loss(step) if step < 2400 else 7.3

    said = found(write_run(tmp_path, WEB, {"dataset": "openwebtext"}, curve))
    assert "divergence" in said
    assert "stuck-loss" not in said


def test_a_device_that_the_log_contradicts_is_not_accused_of_being_slow(tmp_path: Path) -> None:
    """45 TFLOP/s are 14 % of the stated A100 and 63 % of the RTX 3090 that the log names."""
    write_run(tmp_path, WEB, {"device": "A100"}, web_loss, last=1000, tflops=45.0)
    assert "low-mfu" in found(tmp_path)
    (tmp_path / "log.txt").write_text(nanochat(45e12))
    said = found(tmp_path)
    assert "device-mismatch" in said
    assert "low-mfu" not in said


def nanochat(flops: float) -> str:
    """A nanochat log of 286M parameters at so many FLOP/s."""
    head = [
        "GPU: NVIDIA GeForce RTX 3090 | Peak FLOPS (BF16): 7.10e+13",
        "Vocab size: 32,768",
        "Number of parameters: 286,261,730",
        "Estimated FLOPs per token: 8.870000e+08",
        "Total batch size 65,536 => gradient accumulation steps: 4",
    ]
    seconds = 65536 * 8.87e8 / flops
    lines = [
        f"step {n:05d}/02000 ({n / 20:.2f}%) | loss: {10 - n / 400:.6f} | lrm: 1.00"
        f" | dt: {seconds * 1e3:.2f}ms | tok/sec: {65536 / seconds:,.0f}"
        f" | bf16_mfu: {flops / 7.1e11:.2f} | total time: {n / 60:.2f}m"
        for n in range(400)
    ]
    return "\n".join([*head, *lines]) + "\n"


def of_log(text: str) -> Diagnosis:
    log = read_log(None, data=text.encode())
    return diagnose(read_run(RunEvidence(path="-", log=log, config=None, stated={})))


@pytest.mark.parametrize("evaluated", ["nan", "4.2874"])
def test_a_loss_that_was_never_a_number_is_not_the_rates_fault(evaluated: str) -> None:
    bad = (
        f"step 0: train loss {evaluated}, val loss {evaluated}\niter 0: loss nan, time 100.00ms, mfu 1.00%\n"
    )
    (broken,) = [finding for finding in of_log(bad).findings if finding.id == "non-finite-loss"]
    assert "so the learning rate is not the cause" in broken.message
    assert not any("rate" in cause.text for cause in broken.causes)
    assert not any("rate" in action.text for action in broken.actions)


def test_a_loss_that_was_lost_later_may_be_the_rates_fault() -> None:
    lines = [f"iter {10 * n}: loss {loss}, time 100.00ms, mfu 1.00%\n" for n, loss in enumerate((4.2, "nan"))]
    (broken,) = [finding for finding in of_log("".join(lines)).findings if finding.id == "non-finite-loss"]
    assert "is not the cause" not in broken.message
    assert any("rate" in action.text for action in broken.actions)


def test_an_evaluation_without_a_number_is_one() -> None:
    bad = "iter 0: loss 4.2, time 100.00ms, mfu 1.00%\nstep 100: train loss nan, val loss nan\n"
    (question,) = [each for each in of_log(bad).unknown if each.question == "Does it generalize?"]
    assert question.missing == "a validation loss that is a number: the log has none"


@pytest.mark.parametrize(("growth", "said"), [(24.0, True), (1.5, False)])
def test_a_gradient_that_grew_before_the_loss_was_lost_is_told(
    tmp_path: Path, growth: float, said: bool
) -> None:
    lines = []
    for step in range(0, 1200, 10):
        norm = 0.4 * (growth ** (max(0, step - 800) / 190) if step < 1000 else float("nan"))
        loss = web_loss(step) if step < 1000 else float("nan")
        told = f"loss: {loss:.6f} | lr 1.8e-03 | norm: {norm:.4f} | dt: 300.0ms | tok/sec: 1747626.00"
        lines.append(f"step {step:5d} | {told}\n")
    (tmp_path / "log.txt").write_text("".join(lines))
    finding = found(tmp_path)["non-finite-loss"]
    assert ("The gradient norm grew from 0.4 to 9.6." in finding.message) is said
    assert ("log:100" in {fact.source for fact in finding.evidence if fact.name == "grad_norm"}) is said


def test_evaluations_alone_that_are_no_numbers_leave_the_weights_sound(tmp_path: Path) -> None:
    lines = []
    for step in range(0, 2001, 10):
        if step and step % 500 == 0:
            lines.append(f"step {step}: train loss nan, val loss nan")
        lines.append(f"iter {step}: loss {web_loss(step):.4f}, time 30.00ms, mfu 10.00%")
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    finding = found(tmp_path)["non-finite-loss"]
    assert finding.severity == "warning"
    assert "4 of 4 evaluations are no numbers, the first at step 500 (line 51)" in finding.message
    assert "the evaluation is not" in finding.message
    assert not any("learning rate" in action.text for action in finding.actions)
    (tmp_path / "log.txt").write_text(
        "\n".join([*lines, "iter 2010: loss nan, time 30.00ms, mfu 10.00%"]) + "\n"
    )
    assert found(tmp_path)["non-finite-loss"].severity == "error"


def test_the_logits_are_told_of_any_trainers_model(tmp_path: Path) -> None:
    """32 · 1024 · 50257 · 4 bytes are 6.13 GiB, whatever else the Trainer's model is."""
    (tmp_path / "config.toml").write_text(
        "n_layer = 24\nn_head = 16\nn_embd = 1024\nblock_size = 1024\nbatch_size = 32\nvocab_size = 50257\n"
    )
    (tmp_path / "log.txt").write_text(
        "  0%|          | 0/10000 [00:00<?, ?it/s]\n"
        "{'loss': 10.91, 'grad_norm': 3.1, 'learning_rate': 1e-06, 'epoch': 0.01}\n"
        + ON_CARD.replace("1.54 GiB", "6.13 GiB").format("9.2 GiB")
        + "\n"
    )
    assert "float32 logits" in found(tmp_path)["out-of-memory"].message


def test_the_basis_of_the_device_that_the_log_names_is_no_wrong_one(tmp_path: Path) -> None:
    """A card is stated; the log's own nvidia-smi shows an A100, which nanoGPT's MFU is relative to."""
    write_run(tmp_path, WEB, {"device": "RTX 4090"}, web_loss, last=1000, tflops=120.0)
    assert "mfu-basis" in found(tmp_path)
    log = (tmp_path / "log.txt").read_text()
    row = "|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |"
    (tmp_path / "log.txt").write_text(f"{row}\n{log}")
    said = found(tmp_path)
    assert "device-mismatch" in said
    assert "mfu-basis" not in said


def test_many_times_the_peak_are_no_percentage(tmp_path: Path) -> None:
    write_run(tmp_path, WEB, {"device": "RTX 3060"}, web_loss, last=1000, tflops=930.0)
    assert "37 times the 25.5 TFLOP/s" in found(tmp_path)["impossible-throughput"].message


def test_the_first_step_alone_tells_no_speed_and_a_run_without_memory_no_length(tmp_path: Path) -> None:
    """The first step compiles; behind it there was no memory."""
    line = (
        "[rank0]:2025-06-11 10:00:{:02d},123 - root - INFO - step: {:2d}  loss: 10.84894  grad_norm:  1.6627"
        "  memory: 17.80GiB(75.65%)  tps: 2,100  tflops: 2.04  mfu: 0.65%\n"
    )
    head = (
        "[rank0]:2025-06-11 10:00:01,123 - root - INFO - CUDA capacity: NVIDIA GeForce RTX 4090 with 23.53GiB"
        " memory\n[rank0]:2025-06-11 10:00:02,123 - root - INFO - Model llama3 x size: 162,349,824 total"
        " parameters\n[rank0]:2025-06-11 10:00:02,123 - root - INFO - Peak FLOPS used for computing MFU:"
        " 3.120e+14\n"
    )
    (tmp_path / "log.txt").write_text(head + line.format(4, 1) + ON_CARD.format("9.2 GiB") + "\n")
    assert found(tmp_path).keys() == {"out-of-memory"}


def test_a_warning_of_slow_attention_is_a_cause_of_slowness(tmp_path: Path) -> None:
    write_run(tmp_path, WEB, {"device": "RTX 3090"}, web_loss, last=1000, tflops=7.0)
    log = (tmp_path / "log.txt").read_text()
    warning = "WARNING: using slow attention. Flash Attention requires PyTorch >= 2.0\n"
    (tmp_path / "log.txt").write_text(warning + log)
    causes = [cause.text for cause in found(tmp_path)["low-mfu"].causes]
    assert "attention runs in its plain form, as line 1 warns" in causes


def test_a_warning_is_quoted_without_what_stands_in_front_of_it(tmp_path: Path) -> None:
    write_run(tmp_path, WEB, {"device": "RTX 4070"}, web_loss, last=1000)
    log = (tmp_path / "log.txt").read_text()
    warning = (
        "W0321 09:14:07.120000 12345 torch/_inductor/utils.py:1137] [0/0] Not enough SMs to use"
        " max_autotune_gemm mode\n"
    )
    (tmp_path / "log.txt").write_text(warning + log)
    message = found(tmp_path)["known-warning"].message
    assert message.startswith("Line 1 warns “Not enough SMs to use max_autotune_gemm mode”: harmless")


def test_a_warning_that_is_printed_again_and_again_is_told_once(tmp_path: Path) -> None:
    warning = "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`."
    lines = [f"iter {step}: loss 4.2000, time 9.00ms, mfu 1.00%\n{warning}\n" for step in range(9)]
    (tmp_path / "log.txt").write_text("".join(lines))
    told = [finding.message for finding in diagnosed(tmp_path).findings if finding.id == "known-warning"]
    assert len(told) == 1
    assert told[0].startswith("Line 2 warns")


def test_llmc_says_what_it_had_no_memory_for(tmp_path: Path) -> None:
    """Its error names no size; the line in front of it does, and the table says how a step is cut."""
    rows = {
        "micro batch size B": 48,
        "sequence length T": 1024,
        "total batch size": 196608,
        "device": "NVIDIA GeForce RTX 3060",
        "precision": "BF16",
        "vocab_size V": 50257,
        "padded_vocab_size Vp": 50304,
        "num_layers L": 12,
        "num_heads NH": 12,
        "channels C": 768,
        "num_parameters": 124475904,
    }
    table = "".join(f"| {name:21} | {value!s:50} |\n" for name, value in rows.items())
    (tmp_path / "log.txt").write_text(
        f"{table}allocating 237 MiB for parameter gradients\nallocating 21960 MiB for activations\n"
        "[CUDA ERROR] at file llmc/cuda_common.h:54:\nout of memory\n"
    )
    finding = found(tmp_path)["out-of-memory"]
    assert finding.message == "An allocation failed (line 15): 21,960 MiB for activations."
    assert {fact.name: fact.source for fact in finding.evidence}["allocation_bytes"] == "log:13"
    cut = [int(str(value)) for value in finding.actions[0].settings.values()]
    assert math.prod(cut) * 1024 == 196_608


def test_evaluations_that_are_numbers_again_speak_for_the_weights(tmp_path: Path) -> None:
    text = "step 0: train loss 10.9512, val loss nan\n" + "".join(
        f"step {n}: train loss {11 - n / 400:.4f}, val loss {11 - n / 410:.4f}\n"
        for n in range(250, 1500, 250)
    )
    (tmp_path / "log.txt").write_text(text)
    finding = found(tmp_path)["non-finite-loss"]
    assert finding.severity == "warning"
    assert "1 of 6 evaluations are no numbers, the first at step 0" in finding.message
