"""nanoGPT's checkpoints: the next loss after importing is nanoGPT's own, and ours come back bit for bit."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.errors import CheckpointError, RunError
from gptwright.interop.export import export_run
from gptwright.interop.nanogpt import read_nanogpt
from gptwright.model.gpt import GPT
from gptwright.optim.schedule import learning_rate
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.adopt import adopt
from gptwright.train.load import open_trained
from gptwright.train.run import prepare_resume
from tests.conftest import Answer, as_arguments
from tests.interop.conftest import MakeRun, assert_same_run, nanogpts_checkpoint
from tests.model.models import random_ids, shape_of, vivid_model


def update(model: Any, optimizer: Any, batch: torch.Tensor, rate: float) -> float:
    """One step as nanoGPT makes it; returns the loss before it."""
    found = model(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
    loss = found[1] if isinstance(found, tuple) else found
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def nanogpts_model(start: GPT) -> tuple[Any, torch.optim.Optimizer]:
    """nanoGPT's model and optimizer from the checkout that NANOGPT names, else ours in its layout."""
    config = TrainConfig()
    checkout = os.environ.get("NANOGPT")
    if checkout is None:
        groups = [
            {"params": [p for p in start.parameters() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in start.parameters() if p.dim() < 2], "weight_decay": 0.0},
        ]
        return start, torch.optim.AdamW(groups, lr=1e-2, betas=(config.beta1, config.beta2))
    spec = importlib.util.spec_from_file_location("nanogpts_model", Path(checkout) / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpts_model"] = module
    spec.loader.exec_module(module)
    shape = start.shape
    theirs = module.GPT(
        module.GPTConfig(
            block_size=shape.block_size, vocab_size=shape.vocab_size, n_layer=shape.n_layer,
            n_head=shape.n_head, n_embd=shape.n_embd, dropout=0.0, bias=shape.bias,
        )
    )  # fmt: skip
    theirs.load_state_dict(start.state_dict())
    theirs.shape = shape
    optimizer = theirs.configure_optimizers(0.1, 1e-2, (config.beta1, config.beta2), "cpu")
    return theirs, optimizer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_the_next_losses_after_importing_are_nanogpts(
    tmp_path: Path, dataset: Path, tiny: dict[str, str], prefix: str, *, bias: bool
) -> None:
    vocab_size = 40
    shape = shape_of(n_embd=32, block_size=16, vocab_size=vocab_size, bias=bias)
    theirs, optimizer = nanogpts_model(vivid_model(shape, std=0.1))
    config = load_config([], tiny).config
    for step in range(5):
        update(theirs, optimizer, random_ids((4, 17), 20, seed=step), learning_rate(config, step))
    (tmp_path / "out").mkdir()
    torch.save(nanogpts_checkpoint(theirs, optimizer, step=5, prefix=prefix), tmp_path / "out" / "ckpt.pt")

    foreign = read_nanogpt(tmp_path / "out" / "ckpt.pt")
    adopted = adopt(foreign, tmp_path / "run", load_settings({"dataset": str(dataset)}))
    assert adopted.config.learning_rate == 1e-2
    assert adopted.config.bias is bias
    assert RunFolder(tmp_path / "run").pointed("best") == "step-00000005"
    run = RunFolder.existing(tmp_path / "run")
    prepared = prepare_resume(run, run.load_config({"device": "cpu", "dtype": "float32", "kernels": "False"}))
    assert prepared.resumed is not None
    assert prepared.resumed.state.step == 5
    assert prepared.resumed.state.best_val_loss == 1.25
    session = prepared.session
    for step in range(5, 9):
        inputs, targets = session.sampler.batch(step)
        batch = torch.cat([torch.from_numpy(inputs), torch.from_numpy(targets)[:, -1:]], dim=1)
        wanted = update(theirs, optimizer, batch, learning_rate(config, step))
        ours = update(session.model, session.optimizer, batch, learning_rate(session.config, step))
        assert ours == pytest.approx(wanted, abs=1e-5)


def load_settings(options: dict[str, str]) -> Any:
    from gptwright.config.load import option_settings

    return option_settings(options)


@pytest.mark.parametrize("bias", ["True", "False"])
def test_ours_to_nanogpt_to_ours_is_exact_and_goes_on_the_same(
    tmp_path: Path, dataset: Path, make_run: MakeRun, bias: str, gptwright: Callable[..., Answer]
) -> None:
    run = make_run(bias=bias)
    exported = export_run(run, "nanogpt", tmp_path / "out")
    assert list(exported.files) == ["ckpt.pt", "meta.pkl"]
    answer = gptwright(
        "import", str(tmp_path / "out"), "--out", str(tmp_path / "back"), "--dataset", str(dataset)
    )
    assert answer.status == 0, answer.err
    back = open_trained(RunFolder(tmp_path / "back"), checkpoint="last")
    assert_same_run(run, back)
    assert back.tokenizer is not None
    assert run.tokenizer is not None
    assert back.tokenizer.sha256 == run.tokenizer.sha256
    # nanoGPT's config does not say how a CPU multiplied: each of the two would take what is quicker now.
    way = {"dtype": "float32", "kernels": "False"}
    more = as_arguments({"max_iters": "9", "lr_decay_iters": "24", "log_interval": "1"} | way)
    for folder in ("run", "back"):
        assert gptwright("resume", str(tmp_path / folder), *more).status == 0
    losses = [
        [r["loss"] for r in read_metrics(tmp_path / f / "metrics.jsonl") if r["kind"] == "train"][-3:]
        for f in ("run", "back")
    ]
    assert losses[0] == losses[1]
    assert gptwright("diagnose", str(tmp_path / "back")).status == 0


def test_what_nanogpt_reads_is_what_torch_loads(tmp_path: Path, make_run: MakeRun) -> None:
    """As sample.py and train.py read it: torch.load, the model's and the optimizer's own load_state_dict."""
    run = make_run()
    export_run(run, "nanogpt", tmp_path / "out")
    checkpoint = torch.load(tmp_path / "out" / "ckpt.pt", map_location="cpu", weights_only=True)
    assert checkpoint["iter_num"] == 6
    model, optimizer = nanogpts_model(GPT(run.shape))
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert [len(group["params"]) for group in checkpoint["optimizer"]["param_groups"]] == [10, 5]
    assert checkpoint["config"]["dataset"] == str((tmp_path / "out").resolve())


@pytest.mark.skipif("NANOGPT" not in os.environ, reason="needs a checkout of nanoGPT in NANOGPT")
def test_nanogpts_own_sample_speaks(tmp_path: Path, make_run: MakeRun) -> None:
    export_run(make_run(), "nanogpt", tmp_path / "out")
    done = subprocess.run(
        [
            sys.executable, "sample.py", f"--out_dir={tmp_path / 'out'}", "--device=cpu", "--dtype=float32",
            "--num_samples=1", "--max_new_tokens=20", "--start=to be",
        ],
        cwd=os.environ["NANOGPT"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Loading meta from" in done.stdout
    assert "to be" in done.stdout


def test_an_optimizer_of_another_order_is_refused_and_can_be_left_out(tmp_path: Path) -> None:
    model = vivid_model(shape_of())
    mixed = torch.optim.AdamW(model.parameters(), lr=1e-3)
    update(model, mixed, random_ids((2, 9), 20), 1e-3)
    torch.save(nanogpts_checkpoint(model, mixed, step=1), tmp_path / "ckpt.pt")
    with pytest.raises(
        CheckpointError, match=r"not one of nanoGPT's AdamW as it is now[\s\S]*--weights-only"
    ):
        read_nanogpt(tmp_path / "ckpt.pt")
    assert read_nanogpt(tmp_path / "ckpt.pt", with_optimizer=False).moments is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_layer": 3}, "transformer.h.2.ln_1.weight is missing"),
        ({"n_embd": 32}, "is [23, 16] and should be [23, 32]"),
        ({"n_head": 3}, "n_embd = 16 and n_head = 3"),
        ({"vocab_size": 10**12}, "vocab_size = 1000000000000"),
        ({"block_size": None}, "block_size = None"),
    ],
)
def test_a_shape_that_is_not_the_weights_is_named(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    model = vivid_model(shape_of())
    content: dict[str, Any] = nanogpts_checkpoint(model, torch.optim.AdamW(model.parameters()), step=0)
    content["model_args"] |= change
    torch.save(content, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError) as caught:
        read_nanogpt(tmp_path / "ckpt.pt")
    assert said in str(caught.value)


def test_without_its_dataset_it_speaks_and_takes_one_later(
    tmp_path: Path, dataset: Path, gptwright: Callable[..., Answer]
) -> None:
    model = vivid_model(shape_of(n_embd=32, vocab_size=40))
    optimizer = nanogpts_model(model)[1]
    update(model, optimizer, random_ids((2, 9), 20), 1e-3)
    torch.save(nanogpts_checkpoint(model, optimizer, step=1), tmp_path / "ckpt.pt")
    answer = gptwright("import", str(tmp_path / "ckpt.pt"), "--out", str(tmp_path / "run"))
    assert "dataset 'nowhere' is not here" in answer.out.replace("\n", " ")
    assert "no tokenizer.json" in gptwright("sample", str(tmp_path / "run")).err
    assert gptwright("resume", str(tmp_path / "run"), "--device=cpu").status == 2
    more = as_arguments({"dataset": str(dataset), "max_iters": "3", "lr_decay_iters": "3", "device": "cpu"})
    assert gptwright("resume", str(tmp_path / "run"), *more).status == 0
    kinds = [record["kind"] for record in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert kinds[:3] == ["import", "start", "resume"]
    assert gptwright("sample", str(tmp_path / "run"), "--device=cpu", "--max_new_tokens=5").status == 0


def test_what_nanogpt_does_not_have_is_refused(tmp_path: Path, make_run: MakeRun) -> None:
    with pytest.raises(RunError, match="nanoGPT always ties"):
        export_run(make_run(tie_weights="False"), "nanogpt", tmp_path / "out")
    assert not (tmp_path / "out").exists()
