"""Too large a micro-batch ends in a running training with the losses of a small one."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from gptwright.arithmetic.cut import cut_step
from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.errors import DeviceError, RunFailedError
from gptwright.hardware.limits import MemoryLimit
from gptwright.model.gpt import GPT
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train import fitting, memory
from gptwright.train.memory import explained, is_out_of_memory, shrunk
from gptwright.train.run import prepare_new, train_prepared
from gptwright.train.session import Session, build_session
from tests.train.conftest import Train, Watcher

BIG = {"batch_size": "8", "gradient_accumulation_steps": "1", "learning_rate": "1e-3", "min_lr": "1e-4"}
SMALL = BIG | {"batch_size": "2", "gradient_accumulation_steps": "4", "eval_iters": "8"}


class SmallCard:
    """A model on a card that holds so many sequences; what does not fit fails as torch's allocator says it.

    Args:
        session: what it is the model of.
        training: most sequences with gradients.
        evaluating: most sequences without.
        after: how many calls succeed regardless; another program takes the memory then.
    """

    def __init__(self, session: Session, *, training: int, evaluating: int = 999, after: int = 0) -> None:
        self.session = session
        self.limits = {True: training, False: evaluating}
        self.after = after
        self.calls = 0

    def __call__(self, tokens_BT: Tensor, targets_BT: Tensor, *, per_window: bool = False) -> Tensor:
        self.calls += 1
        if self.calls > self.after and len(tokens_BT) > self.limits[torch.is_grad_enabled()]:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 7.75 GiB"
            )
        loss = self.session.model(tokens_BT, targets_BT, per_window=per_window)
        assert isinstance(loss, Tensor)
        return loss


def on_a_small_card(out: Path, options: dict[str, str], **card: int) -> None:
    prepared = prepare_new(load_config([], options | {"out_dir": str(out)}))
    object.__setattr__(prepared.session.replica, "forward", SmallCard(prepared.session, **card))
    train_prepared(prepared, Watcher())


def numbers(out: Path, kind: str, *names: str) -> np.ndarray:
    records = read_metrics(out / "metrics.jsonl")
    return np.array([[r[name] for name in names] for r in records if r["kind"] == kind])


def guards(out: Path) -> list[dict[str, Any]]:
    return [r for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "guard"]


@pytest.mark.parametrize("after", [0, 11])
def test_a_step_that_does_not_fit_is_cut_finer_with_the_same_losses(
    tmp_path: Path, tiny: dict[str, str], train: Train, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """At the start, and in the middle of a run when somebody else takes the memory."""
    monkeypatch.setattr(fitting, "has_address_limit", lambda: True)
    train(tiny | SMALL, tmp_path / "small")
    on_a_small_card(tmp_path / "big", tiny | BIG, training=2, after=after)
    for kind, names in (
        ("train", ("loss", "grad_norm")),
        ("eval", ("train_loss", "val_loss", "val_windows")),
    ):
        big, small = numbers(tmp_path / "big", kind, *names), numbers(tmp_path / "small", kind, *names)
        assert len(big) == len(small) > 3
        np.testing.assert_allclose(big, small, rtol=2e-6)
    told = guards(tmp_path / "big")
    assert [(g["what"], g["batch_size"], g["gradient_accumulation_steps"]) for g in told] == [
        ("out-of-memory", 4, 2),
        ("out-of-memory", 2, 4),
    ]
    assert "the same 128 tokens per step" in told[0]["text"]
    assert (told[0]["step"] == 0) == (after == 0)
    config = RunFolder(tmp_path / "big").load_config().config
    assert (config.batch_size, config.gradient_accumulation_steps, config.eval_iters) == (2, 4, 8)


def test_a_step_that_fits_at_once_is_the_run_without_a_trial(
    tmp_path: Path, tiny: dict[str, str], train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.train.conftest import assert_same_weights, story

    train(tiny | BIG | {"dropout": "0.1"}, tmp_path / "plain")
    monkeypatch.setattr(fitting, "has_address_limit", lambda: True)
    train(tiny | BIG | {"dropout": "0.1"}, tmp_path / "tried")
    assert_same_weights(tmp_path / "plain", tmp_path / "tried")
    assert story(tmp_path / "plain") == story(tmp_path / "tried")


def test_what_did_not_fit_is_not_counted_as_what_the_run_takes(
    tmp_path: Path, tiny: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(fitting, "has_address_limit", lambda: True)
    monkeypatch.setattr(memory, "give_back", lambda device: given_back.append(device.type))
    on_a_small_card(tmp_path / "run", tiny | BIG | {"max_iters": "2"}, training=4, evaluating=2)
    assert given_back == ["cpu", "cpu"]


def test_a_float16_step_that_fails_at_its_end_is_made_anew(tiny: dict[str, str]) -> None:
    """When its gradients are unscaled already, which a scaler does once a step."""
    session = build_session(load_config([], tiny))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    session = replace(session, scaler=scaler)
    memory.free_what_is_left(session)
    for _ in range(2):
        tokens_BT = torch.zeros((1, 4), dtype=torch.int64)
        scaler.scale(session.model(tokens_BT, tokens_BT)).backward()
        scaler.unscale_(cast("torch.optim.Optimizer", session.optimizer))
        memory.free_what_is_left(session)
        assert scaler.get_scale() == 1024.0
        assert all(parameter.grad is None for parameter in session.model.parameters())


@pytest.mark.parametrize(("processes", "tried"), [(1, [8]), (2, [4]), (3, [3]), (8, [1])])
def test_what_is_tried_is_this_processs_own_micro_batch(
    tiny: dict[str, str], processes: int, tried: list[int]
) -> None:
    """Several processes share a step, and none makes the micro-batch of one alone."""
    session = build_session(load_config([], tiny | BIG))
    sizes: list[int] = []

    def forward(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        sizes.append(len(tokens_BT))
        loss: Tensor = session.model(tokens_BT, targets_BT)
        return loss

    session = replace(session, replica=replace(session.replica, forward=forward))
    memory.try_step(session, cut_step(8, batch_size=8, rank=processes - 1, size=processes))
    assert sizes == tried


def test_an_evaluation_has_its_own_batch(
    tmp_path: Path, tiny: dict[str, str], train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "has_address_limit", lambda: True)
    train(tiny | BIG, tmp_path / "plain")
    on_a_small_card(tmp_path / "small", tiny | BIG, training=8, evaluating=3)
    assert [g["what"] for g in guards(tmp_path / "small")] == ["out-of-memory", "out-of-memory"]
    assert RunFolder(tmp_path / "small").load_config().config.batch_size == 8
    train(tiny | BIG | {"eval_batch_size": "3"}, tmp_path / "asked")
    wanted = numbers(tmp_path / "plain", "eval", "train_loss", "val_loss")
    for other in ("small", "asked"):
        found = numbers(tmp_path / other, "eval", "train_loss", "val_loss")
        np.testing.assert_allclose(found, wanted, rtol=2e-6)


def test_what_fits_nowhere_or_may_not_be_cut_ends_with_what_to_do(
    tmp_path: Path, tiny: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "has_address_limit", lambda: True)
    with pytest.raises(RunFailedError, match=r"out of memory with a micro-batch of 1: [\s\S]*not even one"):
        on_a_small_card(tmp_path / "none", tiny | BIG, training=0)
    with pytest.raises(RunFailedError, match=r"out_of_memory = 'stop'[\s\S]*--batch_size=4 with more"):
        on_a_small_card(tmp_path / "stop", tiny | BIG | {"out_of_memory": "stop"}, training=4)
    last = read_metrics(tmp_path / "stop" / "metrics.jsonl")[-1]
    assert (last["kind"], last["state"]) == ("end", "failed")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.14 GiB.\nMore of it"),
        RuntimeError("MPS backend out of memory (MPS allocated: 17.9 GB)"),
    ],
)
def test_weights_that_fit_no_device_say_so(
    tiny: dict[str, str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(GPT, "to", mock.Mock(side_effect=error))
    with pytest.raises(DeviceError, match="the weights of this model alone do not fit") as caught:
        build_session(load_config([], tiny))
    assert caught.value.why == str(error).splitlines()[0]


@pytest.mark.parametrize(("batch", "steps", "wanted"), [(12, 40, (6, 80)), (9, 2, (3, 6)), (7, 1, (1, 7))])
def test_a_finer_cut_keeps_the_step_and_the_evaluation(
    batch: int, steps: int, wanted: tuple[int, int]
) -> None:
    config = TrainConfig(batch_size=batch, gradient_accumulation_steps=steps)
    finer = shrunk(config)
    assert finer is not None
    assert (finer.batch_size, finer.gradient_accumulation_steps) == wanted
    assert finer.sequences_per_step == config.sequences_per_step
    assert finer.eval_iters * finer.batch_size == config.eval_iters * config.batch_size
    assert shrunk(TrainConfig(batch_size=1)) is None


def test_a_finer_cut_of_a_huge_prime_is_found_at_once() -> None:
    finer = shrunk(TrainConfig(batch_size=999_999_999_989))
    assert finer is not None
    assert finer.batch_size == 1


def test_the_message_names_the_tensor() -> None:
    config = TrainConfig(batch_size=32)
    shape = ModelShape.of(config, 50304)
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has")
    assert "the size of the float32 logits" in explained(error, shape, config, "bfloat16")
    assert "32·1024·50304·4 bytes" in explained(error, shape, config, "bfloat16")
    cpu = RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
        " to allocate 6593445888 bytes. Error code 12 (Cannot allocate memory)"
    )
    assert is_out_of_memory(cpu)
    assert "the size of the float32 logits" in explained(cpu, shape, config, "float32")
    assert is_out_of_memory(RuntimeError("could not create a primitive"))
    blas = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    assert is_out_of_memory(RuntimeError(blas))
    assert not is_out_of_memory(RuntimeError("could not create a primitive descriptor for a convolution"))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
    assert explained(MemoryError(), shape, config, "float32") == "an allocation failed"


def test_what_the_kernel_would_kill_is_foreseen(
    tmp_path: Path, tiny: dict[str, str], train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {8: 900, 4: 500, 2: 300}
    monkeypatch.setattr(memory, "predicted_bytes", lambda _, config: needs[config.batch_size])
    monkeypatch.setattr(fitting, "memory_limit", lambda: MemoryLimit(600, "control group, /sys/x/memory.max"))
    train(tiny | BIG, tmp_path / "run")
    told = guards(tmp_path / "run")
    assert [g["batch_size"] for g in told] == [4]
    assert "(control group, /sys/x/memory.max), beyond which the system kills" in told[0]["text"]
    needs.update({4: 800, 2: 700, 1: 650})
    train(tiny | BIG, tmp_path / "least")
    assert [g.get("batch_size") for g in guards(tmp_path / "least")] == [4, 2, 1, None]
    assert guards(tmp_path / "least")[-1]["text"].endswith("kills the process; it is tried all the same")


UNDER_A_LIMIT = """
import json, resource, sys
import torch._dynamo  # which torch loads by itself later, under the limit
from pathlib import Path
from gptwright.config.load import load_config
from gptwright.train.run import prepare_new, train_prepared
class Deaf:
    def recorded(self, record): pass
    def stepped(self, step): pass
options = json.loads(sys.argv[1])
prepared = prepare_new(load_config([], options))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
train_prepared(prepared, Deaf())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and limits the address space")
def test_under_a_limit_of_the_system_too_large_a_micro_batch_trains_as_a_small_one(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    """The kernel's own refusal: 512 × 64 tokens of this model take some 600 MB, and 260 MB are allowed."""
    large = tiny | {
        "n_embd": "64", "block_size": "64", "batch_size": "512", "gradient_accumulation_steps": "1",
        "max_iters": "2", "lr_decay_iters": "2", "eval_interval": "2", "eval_iters": "1",
        "learning_rate": "1e-3", "min_lr": "1e-4",
    }  # fmt: skip
    out = tmp_path / "limited"
    arguments = [json.dumps(large | {"out_dir": str(out)}), str(260 * 2**20)]
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = guards(out)
    assert told
    assert all(g["what"] == "out-of-memory" for g in told)
    micro = RunFolder(out).load_config().config.batch_size
    assert micro < 512
    pieces = 512 // micro
    cut = {
        "batch_size": str(micro),
        "gradient_accumulation_steps": str(pieces),
        "eval_iters": str(pieces),
    }
    train(large | cut, tmp_path / "small")
    wanted = numbers(tmp_path / "small", "train", "loss")
    assert len(wanted) == 2
    np.testing.assert_allclose(numbers(out, "train", "loss"), wanted, rtol=2e-6)
