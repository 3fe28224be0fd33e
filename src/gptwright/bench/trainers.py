"""The trainers that `bench` can run: ours, and an unchanged checkout of nanoGPT, eager and compiled."""

import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gptwright.bench.process import Finished, run_trainer
from gptwright.bench.workloads import Workload
from gptwright.errors import ConfigError

DATASET = "benchmark"
NANOGPT_FILES = ("train.py", "model.py", "configurator.py")


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
        arguments = [*recipe, *_as_arguments({**work, **self.options, **place})]
        return run_trainer([*self.command, *arguments], folder=folder, warm_up=workload.warm_up)


def _as_arguments(options: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def ours(workload: Workload) -> Trainer:
    """gptwright with its own choices."""
    command = (sys.executable, "-m", "gptwright", "train")
    return Trainer(name="gptwright", command=command, preset=workload.preset)


def nanogpt(workload: Workload, checkout: Path) -> list[Trainer]:
    """nanoGPT in each of its modes.

    Raises:
        ConfigError: the folder is no checkout of it.
    """
    missing = [name for name in NANOGPT_FILES if not (checkout / name).is_file()]
    if missing:
        raise ConfigError(
            f"{checkout} is no checkout of nanoGPT: it has no {', '.join(missing)}",
            fix="git clone https://github.com/karpathy/nanoGPT, then --against nanogpt=nanoGPT",
        )
    modes = [False, True] if workload.compiles else [False]
    return [
        Trainer(
            name=f"nanoGPT {'compiled' if compiled else 'eager'}",
            command=(sys.executable, "train.py"),
            options={"compile": compiled},
        )
        for compiled in modes
    ]


def place_nanogpt(checkout: Path, folder: Path) -> None:
    """Copies nanoGPT's files, unchanged, beside the dataset."""
    for name in NANOGPT_FILES:
        shutil.copy(checkout / name, folder)


def trainers_for(workload: Workload, nanogpt_checkout: Path | None) -> Iterable[Trainer]:
    """Ours first, then the others."""
    yield ours(workload)
    if nanogpt_checkout is not None:
        yield from nanogpt(workload, nanogpt_checkout)
