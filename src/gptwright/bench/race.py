"""As low a validation loss as there is time for: both trainers on the same data for the same wall time.

Each has its own recipe and a schedule that ends when the time does, by the pace that was measured just
before. The clock starts with the process, so that start-up and compilation count, and at its end the process
is killed: what it has shown by then counts. Ours is measured by `gptwright eval` on the whole validation
split, from its last checkpoint; nanoGPT's loss is the last that it printed itself, the mean over a few random
batches of that split.
"""

import json
import subprocess
import sys
from pathlib import Path

from gptwright.bench.cases import TAIL, Bench, arrivals_of
from gptwright.bench.found import NANOGPT, OURS, Measured, Racer
from gptwright.bench.process import EVALUATION
from gptwright.bench.suite import Case, Race
from gptwright.record.metrics import read_metrics

# Of the time, for evaluations, checkpoints and a pace that was a little too good: 0.12 was 3 % too little
# in fifteen minutes on a CPU.
RESERVE = 0.16
EVALUATIONS = 4


def steps_in(seconds: float, pace: Measured) -> int:
    """How many steps fit, a multiple of the evaluations; 0: not even that many.

    Args:
        seconds: of the race.
        pace: the same work, timed before.
    """
    assert pace.step_seconds is not None
    assert pace.start_seconds is not None
    steps = int(((1 - RESERVE) * seconds - pace.start_seconds) / pace.step_seconds)
    return max(0, steps // EVALUATIONS * EVALUATIONS)


def run_racer(
    bench: Bench, race: Race, trainer: str, pace: Measured, *, train_tokens: int, spare_seconds: float
) -> Racer:
    """Lets one trainer run for the race's time, and measures where it got.

    Args:
        bench: where.
        race: the rules.
        trainer: who.
        pace: the same work, timed before.
        train_tokens: in the data.
        spare_seconds: for measuring ours afterwards.
    """
    case = race.ours if trainer == OURS else race.theirs
    steps = steps_in(race.seconds, pace)
    command = bench.command(case, trainer, f"race-{trainer}", **_length(race, trainer, steps))
    done = bench.watch(case, command, trainer, seconds=race.seconds)
    printed = tuple(
        (int(found[1]), seconds, float(found[3]))
        for seconds, line in done.lines
        if (found := EVALUATION.match(line))
    )
    arrivals = arrivals_of(done.lines)
    steps_made = arrivals[-1][0] + 1 if arrivals else 0
    run = bench.folder / f"race-{trainer}"
    loss: tuple[float | None, float | None, str, str | None]
    if trainer == OURS:
        loss = _score(run, bench.suite.device, spare_seconds)
    else:
        loss = (printed[-1][2] if printed else None, None, _their_measure(race, case), None)
    value, error, measured_by, why = loss
    return Racer(
        trainer=trainer,
        recipe=f"preset {case.preset}" if case.preset else "nanoGPT's defaults",
        planned_steps=steps,
        last_step=arrivals[-1][0] if arrivals else None,
        passes=steps_made * case.micro_batch * bench.config(case).block_size / train_tokens,
        finished=not done.out_of_time and done.status == 0,
        wall_seconds=done.wall_seconds,
        evaluations=printed,
        val_loss=value,
        val_loss_standard_error=error,
        measured_by=measured_by,
        device_bytes=done.peak_bytes if done.device_peak_bytes is None else done.device_peak_bytes,
        own_peak_bytes=_own_peak(run) if trainer == OURS else None,
        why=why or (None if value is not None else done.text[-TAIL:].strip()),
    )


def _length(race: Race, trainer: str, steps: int) -> dict[str, object]:
    """The schedule: a twentieth of it warms up, the rest is the recipe's own."""
    length: dict[str, object] = {
        "max_iters": steps,
        "lr_decay_iters": steps,
        "warmup_iters": steps // 20,
        "eval_interval": steps // EVALUATIONS,
        "eval_iters": race.eval_iters,
        "log_interval": 10,
    }
    if trainer == OURS:
        length["muon_warmup_iters"] = min(300, steps // EVALUATIONS)
    return length


def _their_measure(race: Race, case: Case) -> str:
    windows = race.eval_iters * case.micro_batch
    return f"{NANOGPT}'s own last evaluation: {windows} random windows of the validation split"


def _score(run: Path, device: str, seconds: float) -> tuple[float | None, float | None, str, str | None]:
    """Our last checkpoint's loss on the whole split, its error, how, and why there is none."""
    how = "gptwright eval: the last checkpoint on the whole validation split"
    command = [sys.executable, "-m", "gptwright", "eval", str(run), "--checkpoint=last", f"--device={device}"]
    try:
        done = subprocess.run(
            [*command, "--json"],
            cwd=run.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=max(1.0, seconds),
        )
    except subprocess.TimeoutExpired:
        return None, None, how, f"it took more than the {seconds:.0f} s that were left"
    if done.returncode:
        return None, None, how, done.stderr[-TAIL:].strip()
    answer = json.loads(done.stdout)
    return answer["loss"], answer["loss_standard_error"], how, None


def _own_peak(run: Path) -> int | None:
    path = run / "metrics.jsonl"
    ends = [record for record in read_metrics(path) if record["kind"] == "end"] if path.is_file() else []
    return ends[-1].get("peak_memory_bytes") if ends else None
