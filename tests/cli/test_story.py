"""The verbs as a person uses them, one after another, on real text."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LONG, Answer, as_arguments
from tests.processes import PATIENCE_SECONDS, wait_until

Command = Callable[..., Answer]

# What a nanoGPT user has in config/train_shakespeare_char.py, in our own words.
CONFIG = """\
# a small character model
out_dir = 'out-shakespeare-char'
eval_interval = 250  # often, because it will overfit
eval_iters = 200
log_interval = 10
always_save_checkpoint = False
wandb_log = False
wandb_project = 'shakespeare-char'
wandb_run_name = 'mini-gpt'
dataset = 'shakespeare_char'
gradient_accumulation_steps = 1
batch_size = 64
block_size = 256
n_layer = 6
n_head = 6
n_embd = 384
dropout = 0.2
learning_rate = 1e-3
max_iters = 5000
lr_decay_iters = 5000
min_lr = 1e-4
beta2 = 0.99
warmup_iters = 100
"""
NANOGPT_COMMAND = [
    "config/train_shakespeare_char.py",
    "--device=cpu",
    "--compile=False",
    "--eval_iters=20",
    "--log_interval=1",
    "--block_size=64",
    "--batch_size=12",
    "--n_layer=4",
    "--n_head=4",
    "--n_embd=128",
    f"--max_iters={2000 if LONG else 250}",
    "--lr_decay_iters=2000",
    "--dropout=0.0",
]


@dataclass(frozen=True, slots=True)
class Reached:
    """What nanoGPT (3adf61e) printed at a step of its README's command for a CPU.

    `per_step` is the mean of the 100 lines before.
    """

    step: int
    train_loss: float
    val_loss: float
    per_step: float


EIGHTH = Reached(250, 2.4293, 2.4447, 2.4901)
FULL = Reached(2000, 1.7648, 1.8857, 1.70)


@pytest.mark.slow
def test_nanogpts_readme_run_reaches_nanogpts_loss(
    tmp_path: Path, tinyshakespeare: Path, gptwright: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first eighth of it; whole in the long form. The figures are nanoGPT's own at these steps."""
    reached = FULL if LONG else EIGHTH
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "train_shakespeare_char.py").write_text(CONFIG)
    prepared = gptwright(
        "prepare", "shakespeare", "--from", str(tinyshakespeare), "--tokenizer", "char",
        "--split", "nanogpt", "--out", "data/shakespeare_char", "--json",
    )  # fmt: skip
    assert json.loads(prepared.out)["tokens"] == {"train": 1_003_854, "val": 111_540}
    answer = gptwright("train", *NANOGPT_COMMAND)
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert "number of parameters: 0.80M" in lines
    assert "num decayed parameter tensors: 18, with 802,944 parameters" in lines
    assert "num non-decayed parameter tensors: 9, with 1,152 parameters" in lines
    last = next(line for line in lines if line.startswith(f"step {reached.step}: "))
    train_loss, val_loss = map(float, re.findall(r"loss ([\d.]+)", last))
    assert val_loss == pytest.approx(reached.val_loss, abs=0.045)
    assert train_loss == pytest.approx(reached.train_loss, abs=0.06)
    losses = {
        int(step): float(loss) for step, loss in re.findall(r"^iter (\d+): loss ([\d.]+)", answer.out, re.M)
    }
    last_hundred = [losses[step] for step in range(reached.step - 100, reached.step)]
    assert sum(last_hundred) / 100 == pytest.approx(reached.per_step, abs=0.09)
    sample = gptwright("sample", "out-shakespeare-char", "--start", "ROMEO:", "--max_new_tokens=300")
    assert sample.status == 0
    assert sample.out.startswith("ROMEO:")
    # English-like: mostly lower-case words of ordinary length.
    assert 3 < sum(map(len, sample.out.split())) / len(sample.out.split()) < 7


def test_train_stop_resume_sample_as_commands(
    tmp_path: Path, tiny: dict[str, str], gptwright: Command
) -> None:
    out = tmp_path / "run"
    options = tiny | {"out_dir": str(out)}
    answer = gptwright("train", "--json", *as_arguments(options))
    document = json.loads(answer.out)
    assert answer.status == 0
    assert (document["ending"], document["step"]) == ("finished", 24)
    assert [e["step"] for e in document["evaluations"]] == [0, 8, 16, 24]
    assert "This run" in answer.err
    again = gptwright("train", *as_arguments(options))
    assert again.status == 2
    assert f"{out} already holds a run" in again.err
    more = gptwright("resume", str(out), "--max_iters=32", "--lr_decay_iters=32", "--allow-lr-jump")
    assert more.status == 0
    assert "Resuming training from step 24" in more.out
    as_nanogpt = gptwright("train", *as_arguments(options | {"init_from": "resume", "max_iters": "40"}))
    assert as_nanogpt.status == 0
    assert "Resuming training from step 32" in as_nanogpt.out
    assert "finished at step 40" in as_nanogpt.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(
    tmp_path: Path, tiny: dict[str, str], number: signal.Signals
) -> None:
    out = tmp_path / "run"
    options = tiny | {"out_dir": str(out), "max_iters": "1000000", "lr_decay_iters": "1000000"}
    process = subprocess.Popen(
        [sys.executable, "-m", "gptwright", "train", *as_arguments(options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("iter 20:"):
            break
    process.send_signal(number)
    rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    saved = re.search(r"stopped and saved at step (\d+);\s+to go on: gptwright resume (\S+)", rest)
    assert saved is not None, rest
    assert (out / "checkpoints" / f"step-{int(saved[1]):08d}" / "state.json").is_file()
    assert Path(saved[2]) == out


def test_samples_stream_and_obey_their_options(
    tmp_path: Path, tiny: dict[str, str], gptwright: Command
) -> None:
    out = tmp_path / "run"
    gptwright(
        "train", *as_arguments(tiny | {"out_dir": str(out), "max_iters": "200", "eval_interval": "200"})
    )
    common = ("sample", str(out), "--device=cpu", "--max_new_tokens=60")

    def texts(*arguments: str) -> list[str]:
        answer = gptwright(*common, "--json", *arguments)
        assert answer.status == 0, answer.err
        return [sample["text"] for sample in json.loads(answer.out)["samples"]]

    first = texts("--start=to be", "--num_samples=2")
    assert [len(text) for text in first] == [60, 60]
    assert first[0] != first[1]
    assert texts("--start=to be", "--num_samples=2") == first
    assert texts("--start=to be", "--num_samples=2", "--no_cache") == first
    assert texts("--start=to be", "--seed=1338")[0] == first[1]
    greedy = texts("--temperature=0")[0]
    assert texts("--top_k=1", "--seed=5")[0] == greedy
    assert texts("--top_p=1e-9", "--seed=6")[0] == greedy
    word = greedy.split()[1]
    assert texts("--temperature=0", f"--stop={word}")[0] == greedy[: greedy.index(word)]
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("to be")
    assert texts(f"--start=FILE:{prompt}", "--num_samples=2") == first
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("or not\n\nto be\n")
    several = ("--start=be", f"--start=LINES:{prompts}", "--num_samples=2")
    said = texts(*several)
    assert said[4:] == first
    assert said[:2] == texts("--start=be", "--num_samples=2")
    assert texts(*several, "--batch_size=2") == texts(*several, "--no_cache") == said
    streamed = gptwright(*common, "--start=to be")
    assert streamed.out == "to be" + first[0] + "\n"
    assert "60 tokens in" in streamed.err
    assert "together" not in streamed.err
    starts = ["be", "be", "or not", "or not", "to be", "to be"]
    printed = gptwright(*common, *several)
    assert printed.out == "".join(start + text + "\n" for start, text in zip(starts, said, strict=True))
    assert printed.err.count("--- 60 tokens in") == 6
    assert "--- together 360 tokens in" in printed.err
    assert gptwright("sample", f"--out_dir={out}", "--max_new_tokens=3").status == 0
    unknown = gptwright(*common, "--start=Ω")
    assert unknown.status == 2
    assert "Ω" in unknown.err


def test_env_measures_this_machine(gptwright: Command) -> None:
    document = json.loads(gptwright("env", "--json").out)
    facts = {fact["name"]: fact for fact in document["facts"]}
    assert document["schema"] == "gptwright.env/1"
    assert facts["cpu float32 peak"]["origin"] == "measured"
    assert facts["cpu float32 peak"]["value"] > 1e9
    assert all(fact["reason"] for fact in document["facts"])
    shown = gptwright("env")
    assert shown.status == 0
    assert "cpu float32 peak" in shown.out


def test_prepare_shows_what_it_made(tmp_path: Path, gptwright: Command) -> None:
    (tmp_path / "नमस्ते.txt").write_text("नमस्ते दुनिया। 你好世界。\r\n😀\n" * 500, encoding="utf-8", newline="")
    answer = gptwright(
        "prepare", str(tmp_path / "नमस्ते.txt"), "--tokenizer=char", "--out", str(tmp_path / "d")
    )
    assert answer.status == 0, answer.err
    assert "training and" in answer.out
    assert str(tmp_path / "d") in answer.out.replace("\n", "")


OFFLINE = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}


def demo_until_step(step: int, folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """The real demo in a process of its own, without network, stopped by a signal at a step."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gptwright", "demo", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | OFFLINE | {"GPTWRIGHT_CACHE": str(folder / "cache")},
    )
    metrics = folder / "gptwright-demo" / "run-1" / "metrics.jsonl"
    wait_until(
        lambda: (
            process.poll() is not None
            or (metrics.exists() and f'"step": {step}' in metrics.read_text("utf-8"))
        )
    )
    process.send_signal(signal.SIGTERM)
    out, shown = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, shown
    document = json.loads(out)
    assert document["ending"] == "stopped"
    assert document["step"] >= step
    assert "to go on: gptwright resume" in shown
    return document, shown


def test_the_demo_trains_on_tiny_shakespeare_from_a_file(tmp_path: Path, tinyshakespeare: Path) -> None:
    document, shown = demo_until_step(10, tmp_path, "--from", str(tinyshakespeare))
    assert "1,115,394 characters" in shown
    first = document["evaluations"][0]
    assert first["val_loss"] == pytest.approx(math.log(65), abs=0.1)
    assert "the plan's promise" in shown
    assert document["diagnosis"]["run"]["parameters"] == 795_904
    assert "gptwright log" in shown
    assert document["report"] == "gptwright-demo/run-1/report.html"
    assert f"for your browser: {document['report']}" in shown
    assert (tmp_path / document["report"]).read_text("utf-8").startswith("<!doctype html>")


def test_the_demo_needs_no_network_and_says_what_it_trains_on_instead(tmp_path: Path) -> None:
    _, shown = demo_until_step(10, tmp_path)
    assert "Tiny Shakespeare cannot be had" in shown
    assert "trains on the source of this Python's standard library instead" in shown
    assert (tmp_path / "gptwright-demo" / "pystdlib_char" / "manifest.json").is_file()


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m gptwright train --help | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Usage: gptwright train")
    assert done.stderr == ""
