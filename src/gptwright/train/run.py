"""Starting and resuming: from settings and a folder to a trainer in the right state.

A new run takes its folder only after everything was checked. A resumed one goes back to its last whole
checkpoint and cuts the record there; killed before its first checkpoint, it begins again from step 0, which
the seed makes the same run.
"""

import platform
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import gptwright
from gptwright.config.load import LoadedConfig
from gptwright.config.write import to_toml
from gptwright.errors import GptwrightError, RunError
from gptwright.files import replace_bytes, replace_text
from gptwright.plan.promise import promise_document
from gptwright.record.lock import RunLock
from gptwright.record.log_text import append_log
from gptwright.record.metrics import MetricsFile, read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import LoadedCheckpoint, fixed_settings, load_checkpoint, require_space
from gptwright.train.choose import choose_checkpoint, require_same_rate
from gptwright.train.hook import Hook
from gptwright.train.loop import Listener, Outcome, Trainer
from gptwright.train.session import Session, build_session, tokenizer_of
from gptwright.train.start import starting_weights
from gptwright.train.state import TrainState
from gptwright.train.stop import stop_on_signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run whose input is checked and whose folder is ready, but which has not made a step.

    Attributes:
        run: its folder.
        session: what it trains.
        resumed: the checkpoint it goes on from; None at the beginning.
        lock: keeps other processes out of the folder until the training ends.
        discarded: later checkpoints that are removed because an earlier one was asked for, or is the newest
            that is whole.
        warnings: what a person should know before it goes on.
    """

    run: RunFolder
    session: Session
    resumed: LoadedCheckpoint | None
    lock: RunLock
    discarded: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def prepare_new(loaded: LoadedConfig, *, say: Callable[[str], None] = lambda _: None) -> Prepared:
    """Checks everything and takes the run folder.

    Args:
        loaded: the settings.
        say: told what is downloaded, before that starts.

    Raises:
        GptwrightError: of the kind of whatever is wrong; nothing was written then.
    """
    run = RunFolder(Path(loaded.config.out_dir))
    run.require_free()
    loaded, start = starting_weights(loaded, say)
    session = build_session(loaded, start=start)
    lock = run.create(session.config)
    try:
        _describe(run, session)
        # Found out now rather than after hours: float32 weights and two moments.
        require_space(run.checkpoints, 12 * session.parameters.total)
    except BaseException:
        lock.release()
        run.remove()
        raise
    return Prepared(run=run, session=session, resumed=None, lock=lock, warnings=_warnings(lock))


def prepare_resume(
    run: RunFolder, loaded: LoadedConfig, *, checkpoint: str | None = None, allow_lr_jump: bool = False
) -> Prepared:
    """Puts a session into the state of a run's newest whole (or a named) checkpoint.

    Args:
        run: the run.
        loaded: its settings, with what the person changed.
        checkpoint: which one; None takes the newest that is whole.
        allow_lr_jump: whether the learning rate may jump up.

    Raises:
        GptwrightError: another process writes the run, no checkpoint is whole, or settings or dataset have
            changed since.
    """
    lock = RunLock(run.path)
    try:
        return _prepared_resume(run, loaded, lock, checkpoint, allow_lr_jump=allow_lr_jump)
    except BaseException:
        lock.release()
        raise


def _prepared_resume(
    run: RunFolder, loaded: LoadedConfig, lock: RunLock, checkpoint: str | None, *, allow_lr_jump: bool
) -> Prepared:
    run.restore_replaced()
    chosen = choose_checkpoint(run, checkpoint)
    dataset_folder = run.dataset_folder()
    start = None
    if chosen.name is None:
        loaded, start = starting_weights(loaded, lambda _: None)
    session = build_session(loaded, dataset_folder=dataset_folder, start=start)
    if chosen.name is None:
        return Prepared(run=run, session=session, resumed=None, lock=lock, warnings=_warnings(lock))
    resumed = load_checkpoint(
        run,
        chosen.name,
        payload=chosen.payload,
        model=session.model,
        optimizer=session.optimizer,
        scaler=session.scaler,
        fixed=fixed_settings(session.config, session.vocab_size),
        dataset_fingerprint=session.dataset.fingerprint,
    )
    if not allow_lr_jump:
        require_same_rate(run.load_config().config, session.config, step=resumed.state.step, run=run)
    later = tuple(other for other in run.checkpoint_names() if other > chosen.name)
    return Prepared(
        run=run,
        session=session,
        resumed=resumed,
        lock=lock,
        discarded=later,
        warnings=(*_warnings(lock), *chosen.warnings),
    )


def _warnings(lock: RunLock) -> tuple[str, ...]:
    return (lock.warning,) if lock.warning else ()


def train_prepared(prepared: Prepared, listener: Listener, *, hook: str | None = None) -> Outcome:
    """Trains a prepared run to its end, or until Ctrl-C or SIGTERM; lets go of its folder then.

    Args:
        prepared: the run.
        listener: is told of every record and step.
        hook: a command of the user's own that is told how it goes; see `gptwright.train.hook`.

    Raises:
        RunFailedError: the loss is no longer a number and no rollback helps, or memory does not suffice.
        DiskFullError: there is no room left.
    """
    try:
        told = Hook(hook, run=prepared.run.path)
        try:
            outcome = _train(prepared, listener, told)
        except GptwrightError as error:
            told.tell("failed", {"problem": error.problem, "why": error.why, "fix": error.fix})
            raise
        except Exception as error:
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
        prepared.lock.release()


def _train(prepared: Prepared, listener: Listener, hook: Hook) -> Outcome:
    run, session = prepared.run, prepared.session
    state = prepared.resumed.state if prepared.resumed else TrainState()
    _rewind(prepared)
    keep_bytes = prepared.resumed.metrics_bytes if prepared.resumed else 0
    metrics = MetricsFile(run.metrics_path, keep_bytes=keep_bytes)
    try:
        run.rebuild_log()
        for kind, fields in _opening(prepared, metrics_path=run.metrics_path):
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
    _describe(run, prepared.session)


def _describe(run: RunFolder, session: Session) -> None:
    """Writes run.json, and the tokenizer if it is known."""
    imported = run.read_facts().get("imported")
    run.write_facts({**_run_facts(session), **({"imported": imported} if imported else {})})
    tokenizer = tokenizer_of(session)
    if tokenizer is not None:
        replace_bytes(run.tokenizer_path, tokenizer.to_bytes())


def require_unfinished(prepared: Prepared) -> None:
    """Refuses to resume what has nothing left to do.

    Raises:
        RunError: the run has made all its steps.
    """
    if prepared.resumed is None or prepared.session.config.eval_only:
        return
    step, max_iters = prepared.resumed.state.step, prepared.session.config.max_iters
    if step >= max_iters:
        raise RunError(
            f"{prepared.run.path} has finished: it is at step {step} of max_iters = {max_iters}",
            fix=f"for more steps at the rate it ended with: `gptwright resume {prepared.run.path}"
            f" --max_iters={2 * step}`; to raise the rate again, add --lr_decay_iters={2 * step}"
            " --allow-lr-jump",
        )


def _opening(prepared: Prepared, *, metrics_path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The records that a process begins with; the first one of an imported run has to start and to resume."""
    step = prepared.resumed.state.step if prepared.resumed else 0
    started = any(record["kind"] == "start" for record in read_metrics(metrics_path))
    start = [] if started else [("start", _start_fields(prepared.session, step))]
    return start + ([("resume", {"step": step})] if prepared.resumed else [])


def _start_fields(session: Session, step: int) -> dict[str, Any]:
    tensors = [parameter.dim() >= 2 for parameter in session.model.parameters()]
    config = session.config
    return {
        "step": step,
        "tokens_per_step": config.sequences_per_step * config.block_size,
        "vocab_size": session.vocab_size,
        "parameters_nanogpt": session.parameters.nanogpt,
        "parameters_total": session.parameters.total,
        "decayed_tensors": sum(tensors),
        "decayed_parameters": session.parameters.decayed,
        "not_decayed_tensors": len(tensors) - sum(tensors),
        "not_decayed_parameters": session.parameters.not_decayed,
        "device": session.precision.device.name,
        "dtype": session.precision.dtype,
        "peak_flops": session.peak_flops,
        "max_iters": config.max_iters,
    }


def _run_facts(session: Session) -> Mapping[str, Any]:
    device = session.precision.device
    return {
        "schema": "gptwright.run/1",
        "gptwright": gptwright.__version__,
        "commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": metadata.version("numpy"),
            "device": device.name,
            "device_memory_bytes": device.memory_bytes,
            "threads": torch.get_num_threads(),
        },
        "dataset": {
            "name": session.dataset.name,
            "folder": str(session.dataset.folder.resolve()),
            "fingerprint": session.dataset.fingerprint,
            "tokens": {name: split.tokens for name, split in session.dataset.splits.items()},
        },
        "facts": [
            {"name": f.name, "value": f.value, "text": f.text, "origin": str(f.origin), "reason": f.reason}
            for f in session.facts
        ],
        "warnings": session.warnings,
        "promise": promise_document(session.promise),
    }


def _commit() -> str | None:
    """The commit of gptwright's own checkout; None where it was installed without one."""
    package = Path(gptwright.__file__).parent
    checkout = package.parents[1]
    if package.parent.name != "src" or not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
