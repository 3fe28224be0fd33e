"""The same promises on a CUDA device: precision, compilation, accumulation, resume. Skipped without one."""

from pathlib import Path

import numpy as np
import pytest
import torch

from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.loop import Trainer
from gptwright.train.seal import verified_payload
from gptwright.train.speak import Speaker
from tests.train.conftest import Train, story

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def losses(out: Path) -> np.ndarray:
    return np.array([r["loss"] for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "train"])


@pytest.fixture
def on_cuda(tiny: dict[str, str]) -> dict[str, str]:
    return tiny | {"device": "cuda", "compile": "False", "learning_rate": "1e-3", "min_lr": "1e-4"}


@pytest.mark.parametrize(
    ("dtype", "compile_model", "tolerance"),
    [
        ("float32", "False", 2e-3),
        ("bfloat16", "False", 3e-2),
        ("float16", "False", 1e-2),
        ("bfloat16", "True", 3e-2),
    ],
)
def test_every_precision_follows_the_cpus_curve(
    tmp_path: Path, on_cuda: dict[str, str], train: Train, dtype: str, compile_model: str, tolerance: float
) -> None:
    train(on_cuda | {"device": "cpu"}, tmp_path / "cpu")
    train(on_cuda | {"dtype": dtype, "compile": compile_model}, tmp_path / "cuda")
    np.testing.assert_allclose(losses(tmp_path / "cuda"), losses(tmp_path / "cpu"), rtol=0, atol=tolerance)


def test_cutting_a_step_differently_changes_nothing(
    tmp_path: Path, on_cuda: dict[str, str], train: Train
) -> None:
    curves = []
    for micro_batch, accumulation in ((1, 8), (2, 4), (8, 1)):
        out = tmp_path / f"{micro_batch}x{accumulation}"
        cut = {"batch_size": str(micro_batch), "gradient_accumulation_steps": str(accumulation)}
        train(on_cuda | cut | {"dtype": "float32"}, out)
        curves.append(losses(out))
    np.testing.assert_allclose(curves[1], curves[0], rtol=0, atol=2e-3)
    np.testing.assert_allclose(curves[2], curves[0], rtol=0, atol=2e-3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_resume_keeps_the_curve_and_the_scaler(
    tmp_path: Path, on_cuda: dict[str, str], train: Train, resume: Train, dtype: str
) -> None:
    options = on_cuda | {"dtype": dtype, "dropout": "0.2"}
    train(options, tmp_path / "whole")
    train(options, tmp_path / "stopped", 11)
    payload = verified_payload(RunFolder(tmp_path / "stopped"), "step-00000011")
    assert bool(payload["scaler"]) == (dtype == "float16")
    resume(tmp_path / "stopped")
    whole, stopped = losses(tmp_path / "whole"), losses(tmp_path / "stopped")
    np.testing.assert_allclose(stopped, whole, rtol=0, atol=1e-3)
    assert [r["step"] for r in story(tmp_path / "stopped")] == [r["step"] for r in story(tmp_path / "whole")]


@pytest.mark.parametrize("settings", [{}, {"optimizer": "muon", "arch": "modern"}])
def test_a_step_makes_the_host_wait_for_nothing(
    tmp_path: Path,
    on_cuda: dict[str, str],
    train: Train,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
) -> None:
    update = Trainer._update

    def watched(trainer: Trainer, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        # The first steps allocate, which may wait.
        torch.cuda.set_sync_debug_mode("error" if step >= 4 else "default")
        try:
            return update(trainer, step)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Trainer, "_update", watched)
    train(on_cuda | settings, tmp_path / "run")
    assert np.isfinite(losses(tmp_path / "run")).all()


def test_a_gpu_run_speaks_the_same_on_gpu_and_cpu(
    tmp_path: Path, on_cuda: dict[str, str], train: Train
) -> None:
    train(on_cuda | {"max_iters": "200", "learning_rate": "1e-2"}, tmp_path / "run")
    texts = [
        "".join(Speaker.of(tmp_path / "run", device=d).speak(max_new_tokens=80)) for d in ("cuda", "cpu")
    ]
    assert len(texts[0]) == 80
    # Rounding differs between devices, so the draws may part ways late, never at once.
    assert texts[0][:20] == texts[1][:20]


def test_auto_picks_the_gpu_bfloat16_and_compilation(
    tmp_path: Path, on_cuda: dict[str, str], train: Train
) -> None:
    train(on_cuda | {"device": "auto", "compile": "auto", "dtype": "auto"}, tmp_path / "run")
    facts = {f["name"]: f for f in RunFolder(tmp_path / "run").read_facts()["facts"]}
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    assert facts["dtype used"]["value"] == ("bfloat16" if native else "float16")
    assert facts["device used"]["value"] == "cuda:0"
    assert facts["compile used"]["value"] is True
    assert facts["peak"]["value"] > 1e12
