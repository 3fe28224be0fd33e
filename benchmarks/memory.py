"""What a training needs at its largest moment, predicted and measured, on a GPU or a CPU.

    python benchmarks/memory.py --out benchmarks/results/memory-DEVICE.json

Every row is a process of its own that runs `gptwright train` for a few steps on random tokens. On a GPU
torch's count of allocated bytes is held against the predicted tensors, and what the process holds beside
torch's own against the predicted overhead (another process on the card would be counted too). On a CPU the
kernel's peak of the whole process (VmHWM, Linux) is held against the total.
"""

import argparse
import contextlib
import io
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import gptwright
from gptwright.arithmetic.memory import TrainingMemory, training_memory
from gptwright.arithmetic.shape import ModelShape
from gptwright.arithmetic.step import Step
from gptwright.cli.main import run

# Long enough for any context here, and nothing beside a training.
TOKENS = 50_000
# The optimizer's moments appear in the first step, and a heap settles after it.
FEW_STEPS = {"max_iters": 3, "lr_decay_iters": 3, "warmup_iters": 0, "eval_interval": 100, "eval_iters": 1}
GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "vocab_size": 50304}
CHARACTERS = {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "vocab_size": 65}
# model, micro-batch, accumulation, dropout
ON_A_GPU: list[tuple[Mapping[str, int], int, int, float]] = [
    (GPT2, 4, 2, 0.0),
    (GPT2, 12, 2, 0.0),
    (CHARACTERS, 64, 1, 0.2),
]
ON_A_CPU: list[tuple[Mapping[str, int], int, int, float]] = [
    (CHARACTERS | {"n_embd": 192, "block_size": 128}, 64, 1, 0.0),
    (CHARACTERS, 8, 1, 0.0),
    (CHARACTERS, 8, 4, 0.0),
    (CHARACTERS | {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64}, 64, 4, 0.0),
    (CHARACTERS | {"n_layer": 4, "n_head": 4, "n_embd": 256, "vocab_size": 8000}, 16, 1, 0.0),
    (CHARACTERS | {"n_layer": 4, "n_head": 4, "n_embd": 256, "vocab_size": 8000}, 16, 3, 0.0),
    (CHARACTERS | {"n_layer": 2, "n_head": 4, "n_embd": 256, "vocab_size": 50304}, 4, 2, 0.0),
    (CHARACTERS | {"n_layer": 4, "n_head": 4, "n_embd": 256}, 16, 1, 0.1),
]
# In bfloat16 with our own kernels, which drop nothing.
WITH_KERNELS: list[tuple[Mapping[str, int], int, int, float]] = [
    (CHARACTERS | {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64}, 12, 1, 0.0),
    *ON_A_CPU[:-1],
    (CHARACTERS, 16, 1, 0.0),
    (GPT2, 1, 1, 0.0),
]


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if options.one is not None:
        sys.stdout.write(json.dumps(measured_here(json.loads(options.one))) + "\n")
        return
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = options.dtype or ("float32" if device == "cpu" else "bfloat16")
    rows = []
    kernels = device == "cpu" and dtype == "bfloat16"
    trainings = WITH_KERNELS if kernels else ON_A_CPU if device == "cpu" else ON_A_GPU
    for model, micro_batch, accumulation, dropout in trainings:
        for compiled in (False, True) if device != "cpu" else (False,):
            settings: dict[str, Any] = {
                **model,
                "dropout": dropout,
                "batch_size": micro_batch,
                "gradient_accumulation_steps": accumulation,
                "dtype": dtype,
                "kernels": kernels,
                "compile": compiled,
                "device": device,
            }
            rows.append(row(settings))
            print(line(rows[-1]), flush=True)
    deviations = [entry["deviation"] for entry in rows]
    print(f"median {median(map(abs, deviations)):.1%}, worst {max(deviations, key=abs):+.1%}")
    if options.out is not None:
        document = {"schema": "gptwright.benchmark.memory/1", "machine": machine(device), "rows": rows}
        options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument(
        "--device", choices=["cuda", "cpu"], help="where to measure; default: a GPU if there is one"
    )
    made.add_argument("--dtype", help="default: bfloat16 on a GPU, float32 on a CPU")
    made.add_argument("--out", type=Path, metavar="FILE", help="write the figures and the machine as JSON")
    made.add_argument("--one", metavar="JSON", help="train with these settings here and print the peaks")
    return made


def row(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One training, predicted and measured in bytes; `deviation` is of the prediction, relative."""
    predicted = prediction(settings)
    done = subprocess.run(
        [sys.executable, __file__, "--one", json.dumps(settings)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    measured: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    of_tensors = "allocated" in measured
    wanted = measured["allocated"] if of_tensors else measured["process"]
    stated = predicted.total - (predicted.overhead if of_tensors else 0)
    return {
        "settings": dict(settings),
        "predicted": asdict(predicted) | {"total": predicted.total},
        "measured": measured,
        "deviation": stated / wanted - 1,
    }


def prediction(settings: Mapping[str, Any]) -> TrainingMemory:
    shape = ModelShape(
        n_layer=settings["n_layer"],
        n_head=settings["n_head"],
        n_embd=settings["n_embd"],
        block_size=settings["block_size"],
        vocab_size=settings["vocab_size"],
        bias=False,
        tie_weights=True,
        dropout=settings["dropout"],
        kernels=settings["kernels"],
    )
    step = Step(
        shape=shape,
        micro_batch=settings["batch_size"],
        dtype=settings["dtype"],
        compiled=settings["compile"],
        accumulation=settings["gradient_accumulation_steps"],
        device_kind=settings["device"],
    )
    return training_memory(step)


def measured_here(settings: Mapping[str, Any]) -> dict[str, int]:
    """Trains in this process; the peaks in bytes."""
    vocab_size = settings["vocab_size"]
    with tempfile.TemporaryDirectory() as folder:
        tokens = np.random.default_rng(0).integers(vocab_size, size=TOKENS).astype(np.uint16)
        for split in ("train", "val"):
            tokens.tofile(Path(folder) / f"{split}.bin")
        whole = {**FEW_STEPS, **settings, "dataset": folder, "out_dir": f"{folder}/out"}
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = run(["train", *(f"--{name}={value}" for name, value in whole.items())])
    if status:
        sys.exit(said.getvalue())
    return process_peaks() if settings["device"] == "cpu" else gpu_peaks()


def process_peaks() -> dict[str, int]:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return {"process": int(peak.split()[1]) * 1024}


def gpu_peaks() -> dict[str, int]:
    import torch

    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "beside": total - free - torch.cuda.memory_reserved(),
    }


def line(entry: Mapping[str, Any]) -> str:
    settings, measured = entry["settings"], entry["measured"]
    name = f"{settings['n_layer']} × {settings['n_embd']}, V {settings['vocab_size']}"
    batch = f"{settings['batch_size']} × {settings['block_size']} × {settings['gradient_accumulation_steps']}"
    peaks = ", ".join(f"{kind} {size / 2**20:,.0f}" for kind, size in measured.items())
    return (
        f"{name:<22} {batch:<14} {'compiled' if settings['compile'] else 'eager':<9}"
        f" predicted {entry['predicted']['total'] / 2**20:>8,.0f} MiB, measured {peaks}:"
        f" {entry['deviation']:+.1%}"
    )


def machine(device: str) -> dict[str, Any]:
    import torch

    from gptwright.hardware.detect import find_device

    return {
        "device": find_device(device).name,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gptwright": gptwright.__version__,
    }


if __name__ == "__main__":
    main()
