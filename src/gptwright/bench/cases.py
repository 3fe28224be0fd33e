"""One case of the suite, run by one trainer as a process of its own, and read from outside.

Speed is that of the lines' arrival, the same clock for both: a trainer prints a step's line when its device
has done it, and between two lines neither waits for it. Memory is what the device has in use beyond what it
had before, the process's context and its allocator's reserve included; on a CPU it is the process's resident
memory.
"""

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from gptwright.arithmetic.shape import ModelShape
from gptwright.bench.found import NANOGPT, OURS, Measured
from gptwright.bench.process import STEP, Watched, watch
from gptwright.bench.suite import Case, Suite
from gptwright.bench.trainers import DATASET, as_arguments
from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.data.dataset import open_dataset
from gptwright.data.vocabulary import choose_vocab_size
from gptwright.hardware.detect import Device

COMMANDS = {OURS: (sys.executable, "-m", "gptwright", "train"), NANOGPT: (sys.executable, "train.py")}
# A driver takes a moment to have back what a killed process held.
SETTLING_SECONDS = 5.0
SETTLED_BYTES = 64 * 2**20
# Of what a failed process printed, this much is kept.
TAIL = 1500


class Bench:
    """The place where cases run: a dataset, nanoGPT's files, a device whose memory is looked at.

    Args:
        suite: what runs.
        folder: holds the dataset and nanoGPT's files.
        device: where.
    """

    def __init__(self, suite: Suite, folder: Path, device: Device) -> None:
        self.suite = suite
        self.folder = folder
        self.device = device
        self._idle = self._in_use() if device.type == "cuda" else 0

    @property
    def device_memory(self) -> Callable[[], int] | None:
        """Looks at the memory in use on the device beyond what was before anything ran; None on a CPU."""
        return (lambda: self._in_use() - self._idle) if self.device.type == "cuda" else None

    def _in_use(self) -> int:
        """By every process on the card: inside a container a driver does not tell whose it is."""
        free, total = torch.cuda.mem_get_info(self.device.torch_device)
        return int(total - free)

    def options(self, case: Case, trainer: str, run: str) -> tuple[list[str], dict[str, Any]]:
        """A case's sources of settings and its options, without a length."""
        place = {"dataset": DATASET, "out_dir": run, "device": self.suite.device, "compile": case.compiled}
        batch = {"batch_size": case.micro_batch, "gradient_accumulation_steps": 1}
        if trainer == NANOGPT:
            return [], {**self.suite.models[case.model], **batch, **place}
        # A micro-batch that does not fit is what we want to know, so it is not made smaller.
        own = {**case.only_ours, "out_of_memory": "stop"}
        if case.preset is None:
            return [], {**self.suite.models[case.model], **batch, **place, **own}
        length = self.suite.models[case.model]["block_size"]
        batch["tokens_per_step"] = case.micro_batch * length
        return [case.preset], {"block_size": length, **batch, **place, **own}

    def command(self, case: Case, trainer: str, run: str, **length: object) -> list[str]:
        """A case as a command line, with the options that say how long it goes on."""
        sources, options = self.options(case, trainer, run)
        return [*COMMANDS[trainer], *sources, *as_arguments({**options, **length})]

    def config(self, case: Case) -> TrainConfig:
        """A case's settings as ours; what nanoGPT is given means the same here."""
        sources, options = self.options(case, OURS, "out")
        return load_config(sources, {name: str(value) for name, value in options.items()}).config

    def flops_per_token(self, case: Case) -> int:
        """Of a case's model, with its vocabulary."""
        config = self.config(case)
        vocab_size, _, _ = choose_vocab_size(config, open_dataset(str(self.folder / "data" / DATASET)))
        return ModelShape.of(config, vocab_size).flops_per_token()

    def run(self, case: Case, trainer: str, *, seconds: float) -> Measured:
        """Times a case.

        Args:
            case: what.
            trainer: who.
            seconds: after which it is killed.
        """
        suite = self.suite
        # Further than it is let run: what comes at the end of a run is not asked for.
        steps = 10 * suite.last_step
        command = self.command(
            case,
            trainer,
            "speed",
            max_iters=steps,
            lr_decay_iters=steps,
            eval_interval=steps,
            eval_iters=1,
            log_interval=suite.log_interval,
        )
        done = self.watch(case, command, trainer, seconds=seconds, last_step=suite.last_step)
        shutil.rmtree(self.folder / "speed", ignore_errors=True)
        return self._read(case, trainer, done)

    def watch(
        self, case: Case, command: list[str], trainer: str, *, seconds: float, last_step: int | None = None
    ) -> Watched:
        """Runs a trainer's command; what it compiles is kept for its own next run, and for nobody else's."""
        kept = {"TORCHINDUCTOR_CACHE_DIR": str(self.folder / f"compiled-{trainer}")}
        self.settle()
        return watch(
            command,
            folder=self.folder,
            seconds=seconds,
            last_step=last_step,
            device_memory=self.device_memory,
            environment={**kept, **case.environment},
        )

    def settle(self) -> None:
        """Waits until the device has back what the process before held."""
        look, begin = self.device_memory, time.perf_counter()
        while look is not None and look() > SETTLED_BYTES and time.perf_counter() - begin < SETTLING_SECONDS:
            time.sleep(0.1)

    def _read(self, case: Case, trainer: str, done: Watched) -> Measured:
        arrivals = arrivals_of(done.lines)
        seconds = step_seconds(arrivals, warm_up=self.suite.warm_up)
        tokens = case.micro_batch * self.config(case).block_size
        status = status_of(done, last_step=self.suite.last_step)
        return Measured(
            case=case.name,
            model=case.model,
            micro_batch=case.micro_batch,
            compiled=case.compiled,
            for_both=case.beside_nanogpt,
            trainer=trainer,
            status=status,
            why=None if status == "done" else done.text[-TAIL:].strip(),
            wall_seconds=done.wall_seconds,
            start_seconds=arrivals[0][1] if arrivals else None,
            step_seconds=seconds,
            tokens_per_second=None if seconds is None else tokens / seconds,
            flops_per_token=self.flops_per_token(case),
            device_bytes=done.peak_bytes if done.device_peak_bytes is None else done.device_peak_bytes,
        )


def arrivals_of(lines: Sequence[tuple[float, str]]) -> list[tuple[int, float]]:
    """The steps whose lines arrived, each with the seconds from the start of the process."""
    return [(int(found[1]), seconds) for seconds, line in lines if (found := STEP.match(line))]


def step_seconds(arrivals: Sequence[tuple[int, float]], *, warm_up: int) -> float | None:
    """Seconds of a step: the median of the intervals between lines from step `warm_up` on."""
    steady = [arrival for arrival in arrivals if arrival[0] >= warm_up]
    paces = [(b - a) / (m - n) for (n, a), (m, b) in pairwise(steady)]
    return statistics.median(paces) if paces else None


def status_of(done: Watched, *, last_step: int) -> str:
    """How a process ended."""
    steps = arrivals_of(done.lines)
    if steps and steps[-1][0] >= last_step:
        return "done"
    if done.out_of_time:
        return "out of time"
    # CUDA's allocator and ours both say so in these words.
    return "out of memory" if "out of memory" in done.text.lower() else "failed"
