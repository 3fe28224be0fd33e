"""The same promises on a CUDA device: precision, compilation, accumulation, resume. Skipped without one."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.facts import stated
from gptwright.hardware.detect import find_device
from gptwright.hardware.probe import measure_matmul_peak, try_gpu_compiler
from gptwright.hardware.table import find_spec
from gptwright.model.gpt import GPT
from gptwright.plan.plan import make_plan
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.hook import Hook
from gptwright.train.loop import Trainer
from gptwright.train.measure import measure
from gptwright.train.precision import allow_tf32
from gptwright.train.replica import build_replica
from gptwright.train.run import prepare_new, train_prepared
from gptwright.train.score import score_run
from gptwright.train.seal import verified_payload
from gptwright.train.speak import Speaker
from gptwright.train.state import TrainState
from gptwright.train.world import World
from tests.train.conftest import Train, Watcher, story

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # What torch says of itself on a GPU, such as that the mode that finds waits is a prototype.
    pytest.mark.filterwarnings(r"default::UserWarning:torch\b"),
]


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


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "muon", "arch": "modern"},
        {"dtype": "float16", "dropout": "0.1"},
        {"loss_chunk": "16", "gradient_checkpointing": "True"},
    ],
)
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


def test_triton_makes_a_kernel_and_the_peak_is_the_tables() -> None:
    device = find_device("cuda")
    works, seen = try_gpu_compiler(device)
    assert works, seen
    known = find_spec(device.name, memory_bytes=device.memory_bytes)
    dtype = device.native_dtypes[-1]
    peak = known.spec.peak(dtype) if known else None
    if peak is None:
        pytest.skip(f"{device.name} has no row in the table")
    # What the collections of `hardware.families` reached, and a margin.
    assert 0.4 < measure_matmul_peak(device, getattr(torch, dtype)) / peak < 1.3


@pytest.mark.parametrize("compile_model", ["False", "True"])
def test_a_step_that_does_not_fit_the_card_is_cut_finer(
    tmp_path: Path, on_cuda: dict[str, str], compile_model: str
) -> None:
    """64 windows of 1,024 tokens take over 2 GiB here; the card is told to have one."""
    wide = {"n_embd": "512", "n_head": "8", "block_size": "1024", "batch_size": "64", "eval_batch_size": "4"}
    options = on_cuda | wide | {"gradient_accumulation_steps": "1", "eval_iters": "1", "max_iters": "3"}
    options |= {"compile": compile_model, "dtype": "float32", "out_dir": str(tmp_path / "run")}
    device = find_device("cuda")
    torch.cuda.empty_cache()
    prepared = prepare_new(load_config([], options))
    limit = torch.cuda.memory_reserved(device.torch_device) + 2**30
    torch.cuda.set_per_process_memory_fraction(limit / device.memory_bytes, device.torch_device)
    try:
        assert train_prepared(prepared, Watcher()).ending == "finished"
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device.torch_device)
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert {r["what"] for r in records if r["kind"] == "guard"} == {"out-of-memory"}
    config = RunFolder(tmp_path / "run").load_config().config
    assert config.batch_size < 64
    assert config.sequences_per_step == 64
    (end,) = (r for r in records if r["kind"] == "end")
    assert 0 < end["peak_memory_bytes"] <= limit


def test_a_batch_on_the_card_is_the_samplers(tmp_path: Path, on_cuda: dict[str, str]) -> None:
    """However far the copies are behind the host."""
    prepared = prepare_new(load_config([], on_cuda | {"out_dir": str(tmp_path / "run")}))
    session = prepared.session
    trainer = Trainer(
        session,
        prepared.run,
        state=TrainState(),
        metrics=None,
        listener=Watcher(),
        hook=Hook(None, run=tmp_path),
    )
    with trainer.batches:
        busy = torch.randn(4096, 4096, device="cuda")
        given = []
        for step in range(20):
            busy = busy @ busy.softmax(0)
            given.append(trainer.batches.batch(step))
    for step, batch in enumerate(given):
        for found, wanted in zip(batch, session.sampler.batch(step), strict=True):
            assert torch.equal(found.cpu(), torch.from_numpy(wanted))
    prepared.let_go()


def test_a_run_is_scored_the_same_on_gpu_and_cpu(
    tmp_path: Path, on_cuda: dict[str, str], train: Train
) -> None:
    train(on_cuda | {"dtype": "float32"}, tmp_path / "run")
    found = [score_run(RunFolder(tmp_path / "run"), device=place)["loss"] for place in ("cuda", "cpu")]
    assert found[0] == pytest.approx(found[1], abs=1e-3)


def test_a_plan_is_measured_compiled_and_not() -> None:
    small = TrainConfig(n_layer=2, n_head=2, n_embd=64, block_size=64, batch_size=4, device="cuda")
    measured = measure(make_plan(small, {"vocab_size": stated("vocab_size", 64)}, sources={}))
    assert {trial.compiled for trial in measured.trials} == {True, False}
    for trial in measured.trials:
        assert trial.problem is None
        assert trial.peak_bytes is not None
        assert trial.peak_bytes > 0


@pytest.mark.usefixtures("alone")
@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs NCCL")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_copies_and_parts_over_nccl_have_the_gradients_of_the_model(parallel: str, *, compiled: bool) -> None:
    options = {"n_layer": "2", "n_head": "2", "n_embd": "64", "block_size": "16"}
    shape = ModelShape.of(load_config([], options).config, 64)
    device = find_device("cuda")
    allow_tf32(device)
    tokens_BT = torch.randint(64, (4, 16), device="cuda")
    models = []
    for how in ("none", parallel):
        torch.manual_seed(1)
        models.append(GPT(shape))
        replica = build_replica(
            models[-1], parallel=how, compiled=compiled and how != "none", device=device, world=World()
        )
        for last in (False, True):
            replica.average_next(last)
            replica.forward(tokens_BT, tokens_BT.flip(0)).backward()  # type: ignore[no-untyped-call]
    wanted, found = (
        {name: getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for name, p in model.named_parameters()}
        for model in models
    )
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-4)
