"""Starting and resuming: from settings and a folder to a trainer in the right state.

A new run takes its folder only after everything was checked. A resumed one goes back to its last whole
checkpoint and cuts the record there; killed before its first checkpoint, it begins again from step 0, which
the seed makes the same run. Of several processes the first one alone sees the folder (but for sharded
models); it tells the others what they need.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptwright.config.load import LoadedConfig
from gptwright.config.write import to_toml
from gptwright.errors import CheckpointError, GptwrightError, RunError, typed
from gptwright.files import replace_text
from gptwright.record.lock import RunLock
from gptwright.record.log_text import append_log
from gptwright.record.metrics import MetricsFile
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import LoadedCheckpoint, require_space
from gptwright.train.choose import Chosen, choose_checkpoint, require_same_rate
from gptwright.train.description import describe, opening_records
from gptwright.train.failures import outlive_the_launcher
from gptwright.train.hook import Hook
from gptwright.train.loop import Listener, Outcome, Trainer
from gptwright.train.session import Session, build_session
from gptwright.train.settle import shared_start
from gptwright.train.state import TrainState
from gptwright.train.stop import stop_on_signals
from gptwright.train.together import load_together, require_shared_folder
from gptwright.train.world import World, was_restarted

# How long torchrun lets a process end by itself before it kills it.
LAST_GRACE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run whose input is checked and whose folder is ready, but which has not made a step.

    Attributes:
        run: its folder.
        session: what it trains.
        resumed: the checkpoint it goes on from; None at the beginning.
        lock: keeps other processes out of the folder until the training ends; None in a process of several
            that does not write.
        discarded: later checkpoints that are removed because an earlier one was asked for, or is the newest
            that is whole.
        warnings: what a person should know before it goes on.
    """

    run: RunFolder
    session: Session
    resumed: LoadedCheckpoint | None
    lock: RunLock | None
    discarded: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def let_go(self) -> None:
        """Lets other processes have the folder."""
        if self.lock is not None:
            self.lock.release()


def prepare_new(
    loaded: LoadedConfig, *, say: Callable[[str], None] = lambda _: None, world: World | None = None
) -> Prepared:
    """Checks everything and takes the run folder.

    Args:
        loaded: the settings.
        say: told what is downloaded, before that starts.
        world: the processes that train it, each of which calls this; this one alone if None.

    Raises:
        GptwrightError: of the kind of whatever is wrong; nothing was written then.
    """
    world = world or World()
    run = RunFolder(Path(loaded.config.out_dir))
    world.from_first(run.require_free)
    loaded, start = shared_start(loaded, say, world=world)
    session = build_session(loaded, start=start, world=world)
    lock = _held_by_first(world, lambda: _take(run, session))
    if session.replica.sharded:
        try:
            require_shared_folder(run, world)
        except CheckpointError:
            if lock is not None:
                lock.release()
                run.remove()
            raise
    return Prepared(run=run, session=session, resumed=None, lock=lock, warnings=_warnings(lock))


def _take(run: RunFolder, session: Session) -> RunLock:
    lock = run.create(session.config)
    try:
        describe(run, session)
        # Found out now rather than after hours: float32 weights and two moments.
        require_space(run.checkpoints, 12 * session.parameters.total)
    except BaseException:
        lock.release()
        run.remove()
        raise
    return lock


def _held_by_first(world: World, take: Callable[[], RunLock]) -> RunLock | None:
    """A lock that the first process takes; None in the others, which end with it if it is refused."""
    held: list[RunLock] = []
    world.from_first(lambda: held.append(take()))
    return held[0] if held else None


def prepare_resume(
    run: RunFolder,
    loaded: LoadedConfig,
    *,
    checkpoint: str | None = None,
    allow_lr_jump: bool = False,
    world: World | None = None,
) -> Prepared:
    """Puts a session into the state of a run's newest whole (or a named) checkpoint.

    Args:
        run: the run.
        loaded: its settings, with what the person changed.
        checkpoint: which one; None takes the newest that is whole.
        allow_lr_jump: whether the learning rate may jump up.
        world: the processes that train it, each of which calls this; this one alone if None.

    Raises:
        GptwrightError: another process writes the run, no checkpoint is whole, or settings or dataset have
            changed since.
    """
    world = world or World()
    # A process that a launcher is ending lets go of the folder only when it is gone.
    again = was_restarted() or (world.size > 1 and loaded.config.init_from == "auto")
    patience = LAST_GRACE_SECONDS if again else 0.0
    lock = _held_by_first(world, lambda: RunLock(run.path, patience=patience))
    try:
        return _prepared_resume(run, loaded, lock, checkpoint, allow_lr_jump=allow_lr_jump, world=world)
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def _prepared_resume(
    run: RunFolder,
    loaded: LoadedConfig,
    lock: RunLock | None,
    checkpoint: str | None,
    *,
    allow_lr_jump: bool,
    world: World,
) -> Prepared:
    chosen = _chosen_by_first(run, checkpoint, world)
    folder = world.from_first(lambda: str(run.dataset_folder() or ""))
    start = None
    if chosen.name is None:
        loaded, start = shared_start(loaded, lambda _: None, world=world)
    session = build_session(
        loaded, dataset_folder=Path(folder) if folder else None, start=start, world=world, before=run
    )
    if session.replica.sharded:
        require_shared_folder(run, world)
    if chosen.name is None:
        return Prepared(run=run, session=session, resumed=None, lock=lock, warnings=_warnings(lock))
    name, resumed = chosen.name, load_together(run, chosen.name, session, payload=chosen.payload)

    def later() -> list[str]:
        if not allow_lr_jump:
            require_same_rate(run.load_config().config, session.config, step=resumed.state.step, run=run)
        return [other for other in run.checkpoint_names() if other > name]

    return Prepared(
        run=run,
        session=session,
        resumed=resumed,
        lock=lock,
        discarded=tuple(world.from_first(later)),
        warnings=(*_warnings(lock), *chosen.warnings),
    )


def _chosen_by_first(run: RunFolder, asked: str | None, world: World) -> Chosen:
    """The checkpoint that the first process chooses; what it says goes to the others too."""

    def choose() -> list[Any]:
        run.restore_replaced()
        chosen = choose_checkpoint(run, asked)
        return [chosen.name, chosen.payload, chosen.warnings]

    name, payload, warnings = world.from_first(choose)
    return Chosen(name, payload, tuple(warnings))


def _warnings(lock: RunLock | None) -> tuple[str, ...]:
    return (lock.warning,) if lock is not None and lock.warning else ()


def train_prepared(prepared: Prepared, listener: Listener, *, hook: str | None = None) -> Outcome:
    """Trains a prepared run to its end, or until Ctrl-C or SIGTERM; lets go of its folder then.

    Args:
        prepared: the run.
        listener: is told of every record and step.
        hook: a command of the user's own that is told how it goes by the first process; see
            `gptwright.train.hook`.

    Raises:
        RunFailedError: the loss is NaN or infinite and no rollback helps, or memory does not suffice.
        DiskFullError: there is no room left.
    """
    world = prepared.session.world
    try:
        told = Hook(hook if world.is_first else None, run=prepared.run.path)
        try:
            outcome = _train(prepared, listener, told)
        except GptwrightError as error:
            outlive_the_launcher(world)
            told.tell("failed", {"problem": error.problem, "why": error.why, "fix": error.fix})
            raise
        except Exception as error:
            outlive_the_launcher(world)
            told.tell("failed", {"problem": f"{type(error).__name__}: {error}"})
            raise
        else:
            told.tell(
                outcome.ending,
                {"step": outcome.state.step, "best_val_loss": outcome.state.best_val_loss},
            )
            return outcome
        finally:
            told.wait()
    finally:
        prepared.let_go()


def _train(prepared: Prepared, listener: Listener, hook: Hook) -> Outcome:
    run, session = prepared.run, prepared.session
    state = prepared.resumed.state if prepared.resumed else TrainState()
    if not session.world.is_first:
        with stop_on_signals() as stop:
            return Trainer(session, run, state=state, metrics=None, listener=listener, hook=hook).train(stop)
    _rewind(prepared)
    keep_bytes = prepared.resumed.metrics_bytes if prepared.resumed else 0
    metrics = MetricsFile(run.metrics_path, keep_bytes=keep_bytes)
    try:
        run.rebuild_log()
        for kind, fields in opening_records(run, session, prepared.resumed):
            record = metrics.append(kind, fields)
            append_log(run.log_path, record)
            listener.recorded(record)
        trainer = Trainer(session, run, state=state, metrics=metrics, listener=listener, hook=hook)
        for warning in prepared.warnings:
            trainer.reporter.acted("fallback", state.step, warning)
        with stop_on_signals() as stop:
            return trainer.train(stop)
    finally:
        metrics.close()


def _rewind(prepared: Prepared) -> None:
    """Clears what is later than the state the run goes on from, and records the settings it goes on with.

    The newest goes first and the record is cut last, so that a kill in between leaves a run to resume.
    """
    run = prepared.run
    run.remove_unfinished()
    for name in reversed(prepared.discarded):
        run.remove_checkpoint(name)
    if prepared.resumed:
        run.point("last", prepared.resumed.name)
    replace_text(run.config_path, to_toml(prepared.session.config))
    describe(run, prepared.session)


def require_unfinished(prepared: Prepared) -> None:
    """Refuses to resume what has nothing left to do.

    Raises:
        RunError: the run has made all its steps.
    """
    if prepared.resumed is None or prepared.session.config.eval_only:
        return
    state, max_iters = prepared.resumed.state, prepared.session.config.max_iters
    step = state.step
    # Stopped in its last evaluation, a run has that one to make.
    if step > max_iters or (step == max_iters and state.last_eval_step == step):
        raise RunError(
            f"{prepared.run.path} has finished: it is at step {step} of max_iters = {max_iters}",
            fix=f"for more steps at the rate it ended with: `gptwright resume {typed(prepared.run.path)}"
            f" --max_iters={2 * step}`; to raise the rate again, add --lr_decay_iters={2 * step}"
            " --allow-lr-jump",
        )
