"""What `train`, `resume` and `demo` share: show the start, train under a screen, show the end."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from gptwright.config.load import LoadedConfig
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.report.promise import show_outcome, show_promise
from gptwright.report.terminal import show_startup, show_summary
from gptwright.report.training import training_screen
from gptwright.train.distributed import World
from gptwright.train.run import (
    Prepared,
    goes_on,
    prepare_new,
    prepare_resume,
    require_unfinished,
    train_prepared,
)


def train_and_show(
    loaded: LoadedConfig, console: Console, *, plain: bool, world: World | None = None
) -> dict[str, Any]:
    """Trains a new run, or goes on with the one in `out_dir`; returns what `--json` prints."""
    world = world or World()
    if not goes_on(loaded, world=world):
        return _show(prepare_new(loaded, world=world), console, plain=plain)
    run = RunFolder(Path(loaded.config.out_dir))
    if loaded.config.init_from == "resume":
        return resume_and_show(loaded, console, checkpoint=None, plain=plain, world=world)
    # After the last step there is nothing left to do, and that is no mistake of the command.
    return _show(prepare_resume(run, loaded, world=world), console, plain=plain)


def resume_and_show(
    loaded: LoadedConfig, console: Console, *, checkpoint: str | None, plain: bool, world: World
) -> dict[str, Any]:
    """Goes on with the run in `out_dir`; returns what `--json` prints."""
    run = RunFolder(Path(loaded.config.out_dir))
    world.from_first(lambda: str(RunFolder.existing(run.path).path))
    prepared = prepare_resume(run, loaded, checkpoint=checkpoint, world=world)
    require_unfinished(prepared)
    return _show(prepared, console, plain=plain)


def _show(prepared: Prepared, console: Console, *, plain: bool) -> dict[str, Any]:
    session, run = prepared.session, prepared.run
    show_startup(console, session.facts, session.warnings)
    show_promise(console, session.promise)
    if prepared.discarded:
        console.print(f"removing later checkpoints: {', '.join(prepared.discarded)}")
    first_step = prepared.resumed.state.step if prepared.resumed else 0
    screen = training_screen(console, plain=plain, max_iters=session.config.max_iters, first_step=first_step)
    with screen:
        outcome = train_prepared(prepared, screen)
    if not session.world.is_first:
        return {}
    records = read_metrics(run.metrics_path)
    show_summary(console, records, folder=str(run.path))
    show_outcome(console, session.promise, records)
    if outcome.ending == "stopped":
        console.print(
            f"stopped and saved at step {outcome.state.step};"
            f" to go on: gptwright resume {escape(str(run.path))}",
            soft_wrap=True,
        )
    return {
        "schema": "gptwright.train/1",
        "run": str(run.path),
        "ending": outcome.ending,
        "step": outcome.state.step,
        "best_val_loss": outcome.state.best_val_loss,
        "best_step": outcome.state.best_step,
        "evaluations": [record for record in records if record["kind"] == "eval"],
    }
