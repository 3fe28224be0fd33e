"""`import`, `export`, `eval` and `init_from` as a person uses them."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gptwright.config.load import load_config
from gptwright.data.dataset import open_dataset
from gptwright.errors import ConfigError
from gptwright.hardware.detect import find_device
from gptwright.interop.foreign import put_weights
from gptwright.interop.gpt2_folder import read_gpt2_folder
from gptwright.model.gpt import GPT
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.load import load_checkpointed, open_trained
from gptwright.train.start import starting_weights
from tests.conftest import Answer, as_arguments
from tests.interop.test_gpt2_folder import openai_like

Command = Callable[..., Answer]

# What a nanoGPT user has in config/finetune_shakespeare.py, in our own words: it imports and calls.
FINETUNE = """\
import time

out_dir = 'out-shakespeare'
eval_interval = 5
eval_iters = 2
wandb_log = False
wandb_project = 'shakespeare'
wandb_run_name = 'ft-' + str(time.time())
dataset = 'shakespeare'
init_from = 'gpt2-xl'
always_save_checkpoint = False
batch_size = 1
gradient_accumulation_steps = 4
max_iters = 6
learning_rate = 3e-5
decay_lr = False
"""


TEXT = "".join(f"To be, or not to be, that is question {number}.\n" for number in range(900))


@pytest.fixture
def run(tmp_path: Path, tiny: dict[str, str], gptwright: Command) -> Path:
    assert gptwright("train", *as_arguments(tiny | {"out_dir": str(tmp_path / "run")})).status == 0
    return tmp_path / "run"


def test_eval_is_the_loss_of_the_whole_validation_split(run: Path, dataset: Path, gptwright: Command) -> None:
    answer = gptwright("eval", str(run), "--json", "--checkpoint=last", "--device=cpu")
    assert answer.status == 0, answer.err
    found = json.loads(answer.out)
    split = open_dataset(str(dataset)).splits["val"]
    ids = np.concatenate([shard.ids for shard in split.shards]).astype(np.int64)
    windows = (len(ids) - 1) // 16
    rows = torch.from_numpy(np.stack([ids[16 * n : 16 * n + 17] for n in range(windows)]))
    model = load_checkpointed(RunFolder(run), "step-00000024", find_device("cpu"))
    with torch.no_grad():
        losses = model(rows[:, :-1], rows[:, 1:], per_window=True).double()
    assert found["loss"] == pytest.approx(losses.mean().item(), abs=1e-6)
    error = losses.std().item() / math.sqrt(windows)
    assert found["loss_standard_error"] == pytest.approx(error, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert (found["windows"], found["tokens"]) == (windows, 16 * windows)
    # One byte a character here, so bits a byte are bits a token.
    assert found["bits_per_byte"] == pytest.approx(found["loss"] / math.log(2))
    record = read_metrics(run / "metrics.jsonl")[-1]
    assert (record["kind"], record["loss"], record["checkpoint"]) == ("score", found["loss"], "step-00000024")
    diagnosed = json.loads(gptwright("diagnose", str(run), "--json").out)
    assert diagnosed["run"]["lines_skipped"] == 0
    last = [r for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "eval"][-1]
    assert diagnosed["run"]["last_val_loss"] == pytest.approx(last["val_loss"])


def test_eval_on_ids_that_mean_other_text_is_refused(
    tmp_path: Path, run: Path, dataset: Path, tiny: dict[str, str], gptwright: Command
) -> None:
    """A loss over them would look like any other."""
    (tmp_path / "other.txt").write_text(TEXT.upper())
    other = tmp_path / "other"
    assert (
        gptwright("prepare", str(tmp_path / "other.txt"), "--tokenizer", "char", "--out", str(other)).status
        == 0
    )
    before = read_metrics(run / "metrics.jsonl")
    answer = gptwright("eval", str(run), "--dataset", str(other), "--device=cpu")
    assert answer.status == 2
    assert f"the weights of {run} belong to another char" in answer.err
    assert read_metrics(run / "metrics.jsonl") == before
    # The same under the name of the run's own dataset: the dataset is what changed, and no setting.
    moved = tmp_path / "moved"
    shutil.copytree(dataset, moved)
    assert (
        gptwright(
            "train", *as_arguments(tiny | {"dataset": str(moved), "out_dir": str(tmp_path / "b")})
        ).status
        == 0
    )
    shutil.rmtree(moved)
    shutil.copytree(other, moved)
    assert "belong to another char" in gptwright("eval", str(tmp_path / "b"), "--device=cpu").err
    answer = gptwright("resume", str(tmp_path / "b"), "--max_iters=30")
    assert "the dataset has changed since" in answer.err
    assert "vocab_size" not in answer.err


def test_eval_says_where_the_dataset_is_no_longer_the_runs(
    tmp_path: Path, dataset: Path, tiny: dict[str, str], gptwright: Command
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    assert (
        gptwright(
            "train", *as_arguments(tiny | {"dataset": str(copy), "out_dir": str(tmp_path / "a")})
        ).status
        == 0
    )
    ids = np.fromfile(copy / "val.bin", dtype="<u2")
    ids[100], ids[101] = ids[101], ids[100] + 1 - ids[100]
    ids.tofile(copy / "val.bin")
    answer = gptwright("eval", str(tmp_path / "a"), "--json", "--device=cpu")
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["text"] == "validation split of copy, which has changed since the run began"


@pytest.mark.parametrize("stride", [None, 4, 16])
def test_eval_of_a_text_scores_every_token_once_with_its_context(
    tmp_path: Path, run: Path, gptwright: Command, stride: int | None
) -> None:
    text = "to be or not\nthat is the question whether nobler"
    (tmp_path / "a.txt").write_text(text)
    more = [] if stride is None else [f"--stride={stride}"]
    answer = gptwright("eval", str(run), "--text", str(tmp_path / "a.txt"), "--json", "--device=cpu", *more)
    assert answer.status == 0, answer.err
    found = json.loads(answer.out)
    trained = open_trained(RunFolder(run), checkpoint=None)
    assert trained.tokenizer is not None
    ids = trained.tokenizer.encode(text).astype(np.int64)
    if trained.tokenizer.separator_id is not None:
        ids = np.concatenate([[trained.tokenizer.separator_id], ids])
    model = load_checkpointed(RunFolder(run), trained.checkpoint, find_device("cpu"))
    losses = []
    for target in range(1, len(ids)):  # the slow reference: each token by itself, from its own context
        step = stride or 16
        end = 16 if target <= 16 else min(len(ids) - 1, 16 + math.ceil((target - 16) / step) * step)
        begin = max(0, end - 16) if end > 16 else 0
        with torch.no_grad():
            logits = model.next_logits(torch.from_numpy(ids[None, begin:target]))
        losses.append(F.cross_entropy(logits, torch.tensor([ids[target]])).item())
    assert found["tokens"] == len(losses)
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), abs=2e-6)
    shown = gptwright("eval", str(run), "--text", str(tmp_path / "a.txt"), "--device=cpu", *more).out
    assert ("a token sees its own window" in " ".join(shown.split())) == (stride != 4)


def test_eval_says_what_it_cannot_do(tmp_path: Path, run: Path, gptwright: Command) -> None:
    (tmp_path / "a.txt").write_text("ZZZ")
    assert "character 'Z'" in gptwright("eval", str(run), "--text", str(tmp_path / "a.txt")).err
    assert "is not from 1 to block_size = 16" in gptwright("eval", str(run), "--stride=17").err
    assert gptwright("eval", str(run), "--text", str(tmp_path / "none.txt")).status == 2
    assert len([r for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "score"]) == 0


def test_finetune_shakespeare_works_end_to_end_from_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gptwright: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    openai_like(tmp_path / "my-gpt2")
    (tmp_path / "finetune_shakespeare.py").write_text(FINETUNE)
    (tmp_path / "text.txt").write_text(TEXT)
    prepared = gptwright("prepare", "text.txt", "--tokenizer", "gpt2", "--out", "data/shakespeare")
    assert prepared.status == 0, prepared.err
    command = ("train", "finetune_shakespeare.py", "--init_from=my-gpt2", "--device=cpu", "--block_size=8")
    answer = gptwright(*command)
    assert answer.status == 0, answer.err
    shown = " ".join(answer.out.split())
    assert "import time no effect" in shown
    assert "Hugging Face folder my-gpt2" in shown
    out = tmp_path / "out-shakespeare"
    config = RunFolder(out).load_config().config
    assert (config.n_layer, config.n_embd, config.bias, config.block_size) == (2, 16, True, 8)
    first = read_metrics(out / "metrics.jsonl")[1]
    # Step 0 is the weights as they came: their loss, measured apart.
    foreign = read_gpt2_folder(tmp_path / "my-gpt2")
    started, start = starting_weights(
        load_config(["finetune_shakespeare.py"], {"init_from": "my-gpt2"}), print
    )
    assert start is not None
    assert started.config.block_size == 32  # nobody asked for another
    model = GPT(foreign.shape)
    put_weights(model, foreign)
    weights = open_trained(RunFolder(out), checkpoint="last").weights
    moved = (weights["transformer.wte.weight"] - foreign.weights["transformer.wte.weight"]).abs().max()
    assert 0 < moved < 1e-3  # six steps at a low rate, from there
    assert first["kind"] == "eval"
    # As nanoGPT's sample.py is called.
    options = (f"--out_dir={out}", "--device=cpu", "--dtype=bfloat16", "--compile=False")
    spoken = gptwright("sample", *options, "--num_samples=1", "--max_new_tokens=5")
    assert spoken.status == 0, spoken.err
    assert "decoding is in float32" in spoken.err
    again = gptwright("resume", str(out), "--max_iters=8", "--device=cpu")
    assert again.status == 0, again.err


def test_weights_and_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, run: Path, tiny: dict[str, str], gptwright: Command
) -> None:
    openai_like(tmp_path / "my-gpt2")
    options = {"dataset": tiny["dataset"], "out_dir": str(tmp_path / "new"), "device": "cpu"}
    start = f"--init_from={tmp_path / 'my-gpt2'}"
    shape = gptwright("train", start, "--n_layer=5", *as_arguments(options))
    assert shape.status == 2
    assert "n_layer = 5, and the weights of" in shape.err
    text = gptwright("train", start, *as_arguments(options))
    assert text.status == 2
    assert "the same ids would mean other text" in text.err
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="n_layer = 3, and the weights of gpt2-xl have n_layer = 48"):
        load_config([], {"init_from": "gpt2-xl", "n_layer": "3"})
    nothing = gptwright("train", "--init_from=gpt3", *as_arguments(options))
    assert "gpt3 is nothing that can be imported" in nothing.err
    warm = gptwright("train", f"--init_from={run}", "--max_iters=2", *as_arguments(options))
    assert warm.status == 0, warm.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.gguf", b"GGUF\x03\0\0\0", "is a GGUF file, which is written here and not read"),
        ("b.safetensors", b"\x02" + bytes(7) + b"{}", "give its folder"),
    ],
)
def test_a_file_of_a_kind_that_is_not_read_is_named(
    tmp_path: Path, gptwright: Command, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    refused = gptwright("import", str(tmp_path / name), "--out", str(tmp_path / "im"))
    assert refused.status == 2
    assert said in refused.err


def test_weights_that_name_no_dataset_are_not_said_to_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gptwright: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    openai_like(tmp_path / "my-gpt2")
    (tmp_path / "text.txt").write_text(TEXT)
    # The schema's default lies here, and is not what these weights were trained on.
    answer = gptwright("prepare", "text.txt", "--tokenizer", "gpt2", "--out", "data/openwebtext")
    assert answer.status == 0, answer.err
    answer = gptwright("import", "my-gpt2", "--out", "im", "--json")
    assert answer.status == 0, answer.err
    document = json.loads(answer.out)
    assert document["dataset"] is None
    assert any("nothing says on which data it was trained" in note for note in document["notes"])


def test_the_plan_of_a_fine_tuning_is_of_the_weights_shape() -> None:
    config = load_config([], {"init_from": "gpt2-xl", "block_size": "256"}).config
    assert (config.n_layer, config.n_head, config.n_embd, config.block_size) == (48, 25, 1600, 256)
    assert (config.vocab_size, config.bias) == (50257, True)


def test_an_export_that_would_overwrite_is_refused(tmp_path: Path, run: Path, gptwright: Command) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    answer = gptwright("export", str(run), "--format", "hf", "--out", str(tmp_path / "there"))
    assert answer.status == 2
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["mine.txt"]
