"""Rounds of one workload, the trainers in turns, and what they say.

Machines drift: a figure is the median over the rounds, and a ratio, to another trainer or to the peak, the
median of the ratios within each round.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gptwright.arithmetic.shape import ModelShape
from gptwright.bench.process import Finished
from gptwright.bench.results import Row
from gptwright.bench.trainers import DATASET, Others, Trainer, place_nanogpt, trainers_for
from gptwright.bench.workloads import Workload
from gptwright.config.schema import TrainConfig
from gptwright.data.dataset import open_dataset
from gptwright.data.vocabulary import choose_vocab_size
from gptwright.errors import RunFailedError


def run_rounds(
    workload: Workload,
    *,
    rounds: int,
    peak: Callable[[], float],
    others: Others,
    text: Path | None,
    said: Callable[[str], None],
) -> list[Row]:
    """Does a workload `rounds` times with every trainer, in turns.

    Args:
        workload: what to do.
        rounds: how often each.
        peak: measures the device's, FLOP/s, before each round.
        others: whom to run beside ours.
        text: what to train on; None takes Python's standard library.
        said: is told of every run that ended.

    Raises:
        GptwrightError: a trainer failed, or cannot be run.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        trainers = list(trainers_for(workload, others))
        prepare_data(folder, workload.tokenizer, text)
        if others.nanogpt is not None:
            place_nanogpt(others.nanogpt, folder)
        runs: dict[str, list[Finished]] = {trainer.name: [] for trainer in trainers}
        peaks = []
        for number in range(rounds):
            peaks.append(peak())
            for index, trainer in enumerate(trainers):
                done = trainer.run(workload, folder, f"out-{number}-{index}")
                runs[trainer.name].append(done)
                said(f"{trainer.name}: {done.wall_seconds:.1f} s, {1e3 * done.step_seconds:.1f} ms a step")
        flops = flops_per_step(workload, folder)
    return [row_of(trainer, runs, workload, [flops / rate for rate in peaks]) for trainer in trainers]


def prepare_data(
    folder: Path, tokenizer: str, text: Path | None, *, split: str = "nanogpt", seconds: float | None = None
) -> Path:
    """A dataset that all trainers read.

    Args:
        folder: the trainers'; it goes under `data/` there.
        tokenizer: as `prepare` takes it.
        text: what is in it; None takes Python's standard library.
        split: as `prepare` takes it; nanoGPT's cut unless said otherwise.
        seconds: the longest that it may take.

    Raises:
        RunFailedError: it could not be prepared, or not in time.
    """
    source = str(text.resolve()) if text else "pystdlib"
    out = folder / "data" / DATASET
    options = [f"--tokenizer={tokenizer}", f"--split={split}", "--out", str(out)]
    command = [sys.executable, "-m", "gptwright", "prepare", source, *options]
    problem = "the benchmark's dataset could not be prepared"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RunFailedError(problem, why=f"it took more than {seconds:.0f} s") from None
    if done.returncode:
        raise RunFailedError(problem, why=done.stderr[-1500:].strip())
    return out


def flops_per_step(workload: Workload, folder: Path) -> float:
    """Model FLOPs of one optimizer step of the model that the workload's options give, `palm` convention."""
    config = TrainConfig(**workload.options)
    vocab_size, _, _ = choose_vocab_size(config, open_dataset(str(folder / "data" / DATASET)))
    per_token = ModelShape.of(config, vocab_size).flops_per_token()
    return float(per_token * config.sequences_per_step * config.block_size)


def row_of(
    trainer: Trainer,
    runs: Mapping[str, Sequence[Finished]],
    workload: Workload,
    seconds_at_peak: Sequence[float],
) -> Row:
    """A trainer's medians.

    Args:
        trainer: whose.
        runs: of all trainers, ours first, a round's at the same place in each.
        workload: what was done.
        seconds_at_peak: that a step would take at the peak of each round.
    """
    own, first = runs[trainer.name], next(iter(runs.values()))
    step = statistics.median(run.step_seconds for run in own)
    config = TrainConfig(**workload.options)
    return Row(
        trainer=trainer.name,
        runs=tuple(own),
        tokens_per_second=config.sequences_per_step * config.block_size / step,
        fraction_of_peak=(
            None
            if trainer.preset
            else statistics.median(
                least / run.step_seconds for least, run in zip(seconds_at_peak, own, strict=True)
            )
        ),
        wall_seconds=statistics.median(run.wall_seconds for run in own),
        peak_bytes=statistics.median(run.peak_bytes for run in own),
        val_loss=statistics.median(run.val_loss for run in own),
        times_ours_wall=statistics.median(
            b.wall_seconds / a.wall_seconds for a, b in zip(first, own, strict=True)
        ),
        times_ours_step=statistics.median(
            b.step_seconds / a.step_seconds for a, b in zip(first, own, strict=True)
        ),
    )
