"""The trainers that `bench` can run: ours, and, eager and compiled, an unchanged checkout of nanoGPT and
Hugging Face's Trainer with its GPT-2.
"""

import importlib.util
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gptwright.bench.process import Finished, run_trainer
from gptwright.bench.workloads import Workload
from gptwright.config.schema import TrainConfig
from gptwright.errors import ConfigError
from gptwright.hardware.detect import find_device
from gptwright.plan.plan import make_plan

DATASET = "benchmark"
NANOGPT_FILES = ("train.py", "model.py", "configurator.py")
HF_PACKAGES = ("transformers", "accelerate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """One way to do a workload.

    Attributes:
        name: who, with the mode.
        command: the process, without options.
        options: beside the workload's.
        preset: a recipe of its own, instead of the workload's options.
    """

    name: str
    command: tuple[str, ...]
    options: Mapping[str, object] = field(default_factory=dict)
    preset: str | None = None

    def run(self, workload: Workload, folder: Path, out_dir: str) -> Finished:
        """Does the workload as a process of its own.

        Raises:
            RunFailedError: it did not end well.
        """
        work = {} if self.preset else workload.options
        place = {"device": workload.device, "dataset": DATASET, "out_dir": out_dir}
        recipe = [self.preset] if self.preset else []
        arguments = [*recipe, *as_arguments({**work, **self.options, **place})]
        return run_trainer([*self.command, *arguments], folder=folder, warm_up=workload.warm_up)


def as_arguments(options: Mapping[str, object]) -> list[str]:
    """Options as nanoGPT and ours take them."""
    return [f"--{name}={value}" for name, value in options.items()]


def ours(workload: Workload) -> list[Trainer]:
    """gptwright with its own choices, and with what the workload has for less memory."""
    command = (sys.executable, "-m", "gptwright", "train")
    own = Trainer(name="gptwright", command=command, preset=workload.preset)
    if not workload.less_memory:
        return [own]
    least = min(workload.less_memory, key=lambda options: _planned_bytes(workload, options))
    return [own, Trainer(name="gptwright, less memory", command=command, options=least)]


def _planned_bytes(workload: Workload, options: Mapping[str, object]) -> float:
    """What the plan says that a step of a workload needs here with some options."""
    settings: dict[str, Any] = {**workload.options, **options, "device": workload.device}
    return make_plan(replace(TrainConfig(), **settings), {}, sources={}).memory.total


def nanogpt(workload: Workload, checkout: Path) -> list[Trainer]:
    """nanoGPT in each of its modes.

    Raises:
        ConfigError: the folder is no checkout of it.
    """
    require_nanogpt(checkout)
    return [
        Trainer(
            name=f"nanoGPT {mode}",
            command=(sys.executable, "train.py"),
            options={"compile": mode == "compiled"},
        )
        for mode in modes(workload)
    ]


def require_nanogpt(checkout: Path) -> None:
    """Looks whether a folder is a checkout of nanoGPT.

    Raises:
        ConfigError: it is none.
    """
    missing = [name for name in NANOGPT_FILES if not (checkout / name).is_file()]
    if missing:
        raise ConfigError(
            f"{checkout} is no checkout of nanoGPT: it has no {', '.join(missing)}",
            fix="git clone https://github.com/karpathy/nanoGPT, then --against nanogpt=nanoGPT",
        )


def hf_trainer(workload: Workload) -> list[Trainer]:
    """Hugging Face's Trainer in each of its modes; in bfloat16 where this CPU multiplies it in hardware.

    Raises:
        ConfigError: its packages are missing, or the workload is none for a CPU.
    """
    missing = [name for name in HF_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--against hf-trainer needs {' and '.join(missing)}, which is not installed",
            fix=f"pip install {' '.join(HF_PACKAGES)}",
        )
    if workload.device != "cpu":
        raise ConfigError(
            f"--against hf-trainer is for a CPU, and this workload is for {workload.device}",
            fix="gptwright bench laptop baby gpt2 --against hf-trainer",
        )
    bf16 = "bfloat16" in find_device("cpu").native_dtypes
    return [
        Trainer(
            name=f"HF Trainer {mode}{', bf16' if bf16 else ''}",
            command=(sys.executable, "-m", "gptwright.bench.hf_trainer"),
            options={"compile": mode == "compiled", "bf16": bf16},
        )
        for mode in modes(workload)
    ]


def modes(workload: Workload) -> list[str]:
    """How the others are run."""
    return ["eager", "compiled"] if workload.compiles else ["eager"]


def place_nanogpt(checkout: Path, folder: Path) -> None:
    """Copies nanoGPT's files, unchanged, beside the dataset."""
    for name in NANOGPT_FILES:
        shutil.copy(checkout / name, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Whom to run beside ours.

    Attributes:
        nanogpt: a checkout of nanoGPT.
        hf_trainer: whether Hugging Face's Trainer.
    """

    nanogpt: Path | None = None
    hf_trainer: bool = False


def trainers_for(workload: Workload, others: Others) -> Iterable[Trainer]:
    """Ours first, then the others."""
    yield from ours(workload)
    if others.nanogpt is not None:
        yield from nanogpt(workload, others.nanogpt)
    if others.hf_trainer:
        yield from hf_trainer(workload)
