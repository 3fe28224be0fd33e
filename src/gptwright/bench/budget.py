"""The suite within a budget of seconds: what fits is run, and what does not is named.

A run that would pass the end of the budget is killed there. Before a case is begun it is held against what
its like took; before the race, cases leave it its time.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gptwright.bench.attention import time_attention
from gptwright.bench.cases import Bench
from gptwright.bench.found import NANOGPT, OURS, LeftOut, Measured, SuiteResult
from gptwright.bench.machine import measure_peaks
from gptwright.bench.python_text import write_python_text
from gptwright.bench.race import run_racer, steps_in
from gptwright.bench.rounds import prepare_data
from gptwright.bench.suite import Case, Suite
from gptwright.bench.trainers import place_nanogpt, require_nanogpt
from gptwright.data.dataset import open_dataset
from gptwright.hardware.detect import Device, find_device
from gptwright.hardware.table import find_spec

# The race keeps its time only where there is some for what it needs to know.
MOST_OF_A_BUDGET = 0.6


class _Clock:
    def __init__(self, seconds: float) -> None:
        self.begin = time.perf_counter()
        self.seconds = seconds

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begin

    @property
    def left(self) -> float:
        return self.seconds - self.spent


def run_suite(
    suite: Suite,
    *,
    seconds: float,
    nanogpt: Path | None,
    text: Path | None,
    said: Callable[[str], None],
) -> SuiteResult:
    """Runs what fits into a budget.

    Args:
        suite: what there is to run.
        seconds: the budget; it is kept.
        nanogpt: a checkout; None runs ours alone, without a race.
        text: what to train on; None takes the Python source that is installed here.
        said: is told of everything that ended.

    Raises:
        GptwrightError: the device is not here, the checkout is none, or the data could not be prepared.
    """
    clock = _Clock(seconds)
    device = find_device(suite.device)
    if nanogpt is not None:
        require_nanogpt(nanogpt)
    result = _at_first(suite, device, seconds)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        result.data = _prepare(suite, folder, text, clock)
        said(f"data: {result.data['train_tokens']:,} tokens to train on, after {clock.spent:.0f} s")
        if nanogpt is not None:
            place_nanogpt(nanogpt, folder)
        work = _Work(suite, Bench(suite, folder, device), result, clock, said, beside=nanogpt is not None)
        work.do()
    result.spent_seconds = clock.spent
    return result


def _at_first(suite: Suite, device: Device, seconds: float) -> SuiteResult:
    peaks = measure_peaks(device)
    dtype = getattr(torch, peaks.dtype)
    known = find_spec(device.name, memory_bytes=device.memory_bytes)
    result = SuiteResult(
        peaks=peaks,
        tabled_peak=known.spec.peak(peaks.dtype) if known else None,
        tabled_name=known.spec.name if known else None,
        device_bytes=device.memory_bytes,
        budget_seconds=seconds,
    )
    for case in suite.first:
        options = suite.models[case.model]
        heads = options["n_head"]
        shape = (case.micro_batch, heads, options["block_size"], options["n_embd"] // heads)
        if shape not in [each.shape for each in result.attention]:
            result.attention.append(time_attention(device, dtype, shape))
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return result


def _prepare(suite: Suite, folder: Path, text: Path | None, clock: _Clock) -> dict[str, Any]:
    """Makes the dataset; says what is in it."""
    source = text
    if source is None:
        source = folder / "python.jsonl"
        write_python_text(source, most_bytes=suite.text_bytes)
    out = prepare_data(folder, suite.tokenizer, source, split="hash", seconds=clock.left)
    dataset = open_dataset(str(out))
    return {
        "source": "installed Python source" if text is None else text.name,
        "train_tokens": dataset.splits["train"].tokens,
        "val_tokens": dataset.splits["val"].tokens,
        "fingerprint": dataset.fingerprint,
    }


class _Work:
    """Goes through the suite while there is time."""

    def __init__(
        self,
        suite: Suite,
        bench: Bench,
        result: SuiteResult,
        clock: _Clock,
        said: Callable[[str], None],
        *,
        beside: bool,
    ) -> None:
        self.suite = suite
        self.bench = bench
        self.result = result
        self.clock = clock
        self.said = said
        self.trainers = (OURS, NANOGPT) if beside else (OURS,)

    def do(self) -> None:
        """Cases, the race, cases."""
        race = self.suite.race if len(self.trainers) == 2 else None
        kept = race.needed_seconds if race is not None else 0.0
        self._cases(self.suite.first, kept if kept <= MOST_OF_A_BUDGET * self.clock.seconds else 0.0)
        if self.suite.race is not None:
            why = self._why_no_race()
            if why is None:
                self._race()
            else:
                self._leave_out("race", why)
        self._cases(self.suite.later, 0.0)

    def _cases(self, cases: tuple[Case, ...], kept: float) -> None:
        for case in cases:
            for trainer in self.trainers if case.beside_nanogpt else self.trainers[:1]:
                left, guess = self.clock.left - kept, self._guess(case)
                if guess > left:
                    self._leave_out(
                        f"{case.name}: {trainer}",
                        f"it takes about {guess:.0f} s and {max(0.0, left):.0f} s were left"
                        + (" beside the race" if kept else ""),
                    )
                    continue
                done = self.bench.run(case, trainer, seconds=left)
                self.result.cases.append(done)
                rate = f"{done.tokens_per_second:,.0f} tokens/s" if done.tokens_per_second else done.status
                if done.status == "failed" and done.why:
                    rate += f" ({done.why.splitlines()[-1]})"
                self.said(f"{case.name}: {trainer}: {rate}, after {self.clock.spent:.0f} s")

    def _guess(self, case: Case) -> float:
        """The longest that a run of the model took, compiled or not, or what one may take."""
        seen = [
            each.wall_seconds
            for each in self.result.cases
            if (each.model, each.compiled) == (case.model, case.compiled)
        ]
        return max(seen, default=self.suite.guess_seconds[case.compiled])

    def _leave_out(self, what: str, why: str) -> None:
        self.result.left_out.append(LeftOut(what=what, why=why))
        self.said(f"left out: {what}: {why}")

    def _pace(self, trainer: str) -> Measured | None:
        race = self.suite.race
        assert race is not None
        case = race.ours if trainer == OURS else race.theirs
        timed = (
            each
            for each in self.result.cases
            if (each.case, each.trainer) == (case.name, trainer) and each.step_seconds is not None
        )
        return next(timed, None)

    def _why_no_race(self) -> str | None:
        race = self.suite.race
        assert race is not None
        if len(self.trainers) == 1:
            return "it needs --against nanogpt=PATH"
        for trainer in self.trainers:
            pace = self._pace(trainer)
            if pace is None:
                return f"{trainer}'s pace was not measured"
            if not steps_in(race.seconds, pace):
                return f"{trainer} makes no steps in {race.seconds:.0f} s"
        if race.needed_seconds > self.clock.left:
            return f"it takes {race.needed_seconds:.0f} s and {self.clock.left:.0f} s were left"
        return None

    def _race(self) -> None:
        race = self.suite.race
        assert race is not None
        for trainer in reversed(self.trainers):
            pace = self._pace(trainer)
            assert pace is not None
            spare = self.clock.left - race.seconds
            tokens = self.result.data["train_tokens"]
            racer = run_racer(self.bench, race, trainer, pace, train_tokens=tokens, spare_seconds=spare)
            self.result.race.insert(0, racer)
            loss = "no loss" if racer.val_loss is None else f"validation loss {racer.val_loss:.4f}"
            self.said(f"race: {trainer}: {loss}, after {self.clock.spent:.0f} s")
