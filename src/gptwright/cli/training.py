"""What `train`, `resume` and `demo` share: show the start, train under a screen, show the end."""

from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from gptwright.config.load import LoadedConfig
from gptwright.errors import typed
from gptwright.record.metrics import read_metrics
from gptwright.record.progress import RunProgress
from gptwright.record.run import RunFolder
from gptwright.report.loggers.views import Views
from gptwright.report.promise import show_outcome, show_promise
from gptwright.report.terminal import show_startup, show_summary
from gptwright.report.training_screen import training_screen
from gptwright.train.listeners import Listeners
from gptwright.train.run import Prepared, prepare_new, prepare_resume, require_unfinished, train_prepared
from gptwright.train.settle import goes_on
from gptwright.train.world import World


def train_and_show(
    loaded: LoadedConfig,
    console: Console,
    *,
    plain: bool,
    hook: str | None = None,
    world: World | None = None,
) -> dict[str, Any]:
    """Trains a new run, or goes on with the one in `out_dir`; returns what `--json` prints."""
    world = world or World()
    if not goes_on(loaded, world=world):
        prepared = prepare_new(
            loaded, say=lambda sentence: console.print(escape(sentence), soft_wrap=True), world=world
        )
        return _show(prepared, console, plain=plain, hook=hook)
    if loaded.config.init_from == "resume":
        return resume_and_show(loaded, console, checkpoint=None, plain=plain, hook=hook, world=world)
    # After the last step there is nothing left to do, and that is no mistake of the command.
    prepared = prepare_resume(RunFolder(Path(loaded.config.out_dir)), loaded, world=world)
    return _show(prepared, console, plain=plain, hook=hook)


def resume_and_show(
    loaded: LoadedConfig,
    console: Console,
    *,
    checkpoint: str | None,
    plain: bool,
    hook: str | None = None,
    allow_lr_jump: bool = False,
    world: World | None = None,
) -> dict[str, Any]:
    """Goes on with the run in `out_dir`; returns what `--json` prints."""
    world = world or World()
    run = RunFolder(Path(loaded.config.out_dir))
    world.from_first(lambda: str(RunFolder.existing(run.path).path))
    prepared = prepare_resume(run, loaded, checkpoint=checkpoint, allow_lr_jump=allow_lr_jump, world=world)
    require_unfinished(prepared)
    return _show(prepared, console, plain=plain, hook=hook)


def _show(prepared: Prepared, console: Console, *, plain: bool, hook: str | None) -> dict[str, Any]:
    session, run = prepared.session, prepared.run
    show_startup(console, session.facts, session.warnings)
    done = prepared.resumed.state.step if prepared.resumed else 0
    show_promise(console, session.promise, done=done)
    for warning in prepared.warnings:
        _warn(console, warning)
    if prepared.discarded:
        console.print(f"removing later checkpoints: {', '.join(prepared.discarded)}")
    if not session.world.is_first:
        train_prepared(prepared, Listeners())
        return {}
    progress = RunProgress(
        max_iters=session.config.max_iters,
        eval_interval=session.config.eval_interval,
        step=done,
    )
    views = Views(run.path, session.config, partial(_warn, console))
    with training_screen(console, plain=plain, progress=progress, folder=run.path) as screen:
        try:
            outcome = train_prepared(prepared, Listeners(screen, views), hook=hook)
        finally:
            views.close()
    records = read_metrics(run.metrics_path)
    show_summary(console, records, folder=str(run.path))
    show_outcome(console, session.promise, records)
    if outcome.ending == "stopped":
        saved = (
            f"and saved at step {outcome.state.step}"
            if run.checkpoint_names()
            else "before a first checkpoint"
        )
        console.print(
            f"stopped {saved}; to go on: gptwright resume {escape(typed(run.path))}",
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


def _warn(console: Console, text: str) -> None:
    console.print(f"[yellow]warning:[/] {escape(text)}", soft_wrap=True)
