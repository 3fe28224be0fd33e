"""Starting and resuming: from settings and a folder to a trainer in the right state.

A new run takes its folder only after everything was checked. A resumed one goes back to its last whole
checkpoint and cuts the record there; killed before its first checkpoint, it begins again from step 0, which
the seed makes the same run.
"""

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import gptwright
from gptwright.config.load import LoadedConfig
from gptwright.config.schema import TrainConfig
from gptwright.config.write import to_toml
from gptwright.errors import CheckpointError, RunError
from gptwright.files import replace_bytes, replace_text
from gptwright.record.log_text import append_log, log_text
from gptwright.record.metrics import MetricsFile, read_metrics, require_length
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import LoadedCheckpoint, TrainState
from gptwright.train.distributed import World, launch_name, was_restarted
from gptwright.train.loop import Listener, Outcome, Trainer
from gptwright.train.promise import promise_document
from gptwright.train.session import Session, build_session, tokenizer_of
from gptwright.train.stop import stop_on_signals
from gptwright.train.together import load_together, require_shared_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run whose input is checked and whose folder is ready, but which has not made a step.

    Attributes:
        run: its folder.
        session: what it trains.
        resumed: the checkpoint it goes on from; None at the beginning.
        discarded: later checkpoints that were removed because an earlier one was asked for.
    """

    run: RunFolder
    session: Session
    resumed: LoadedCheckpoint | None
    discarded: tuple[str, ...] = ()


def prepare_new(loaded: LoadedConfig, *, world: World | None = None) -> Prepared:
    """Checks everything and takes the run folder.

    Args:
        loaded: the settings.
        world: the processes that train it, each of which calls this; this one alone if None.

    Raises:
        GptwrightError: of the kind of whatever is wrong; nothing was written then.
    """
    world = world or World()
    run = RunFolder(Path(loaded.config.out_dir))
    world.from_first(run.require_free)
    session = build_session(loaded, world=world)
    world.from_first(lambda: _take(run, session))
    if session.replica.sharded:
        try:
            require_shared_folder(run, world)
        except CheckpointError:
            if world.is_first:
                run.remove()
            raise
    return Prepared(run=run, session=session, resumed=None)


def _take(run: RunFolder, session: Session) -> None:
    run.create(session.config)
    try:
        _describe(run, session)
    except BaseException:
        run.remove()
        raise


def prepare_resume(
    run: RunFolder, loaded: LoadedConfig, *, checkpoint: str | None = None, world: World | None = None
) -> Prepared:
    """Puts a session into the state of a run's last (or a named) checkpoint.

    Args:
        run: the run.
        loaded: its settings, with what the person changed.
        checkpoint: which one; None takes the newest.
        world: the processes that train it, each of which calls this; this one alone if None.

    Raises:
        GptwrightError: the checkpoint is damaged, or settings or dataset have changed since.
    """
    world = world or World()
    name, dataset_folder = world.from_first(
        lambda: [_chosen_checkpoint(run, checkpoint), run.dataset_folder()]
    )
    session = build_session(
        loaded, dataset_folder=Path(dataset_folder) if dataset_folder else None, world=world
    )
    if session.replica.sharded:
        require_shared_folder(run, world)
    if name is None:
        return Prepared(run=run, session=session, resumed=None)
    resumed = load_together(run, name, session)
    later = world.from_first(lambda: _later_checkpoints(run, resumed))
    return Prepared(run=run, session=session, resumed=resumed, discarded=tuple(later))


def _later_checkpoints(run: RunFolder, resumed: LoadedCheckpoint) -> list[str]:
    require_length(run.metrics_path, resumed.metrics_bytes)
    return [other for other in run.checkpoint_names() if other > resumed.name]


def run_settings(run: RunFolder, overrides: Mapping[str, str], *, world: World) -> LoadedConfig:
    """The settings of an existing run, which the first process alone need see.

    Raises:
        GptwrightError: there is no run, or a setting cannot be used.
    """

    def read() -> dict[str, Any]:
        loaded = RunFolder.existing(run.path).load_config(overrides)
        return {
            "config": asdict(loaded.config),
            "sources": dict(loaded.sources),
            "without_effect": dict(loaded.without_effect),
        }

    told = world.from_first(read)
    return LoadedConfig(TrainConfig(**told["config"]), told["sources"], told["without_effect"])


def goes_on(loaded: LoadedConfig, *, world: World) -> bool:
    """Whether `train` goes on with the run in out_dir: asked for, or because torchrun started it again."""
    run, wish = RunFolder(Path(loaded.config.out_dir)), loaded.config.init_from
    if wish == "resume":
        return True
    return bool(world.from_first(lambda: _is_begun(run) and (wish == "auto" or _was_begun_by_us(run))))


def _is_begun(run: RunFolder) -> bool:
    return run.config_path.is_file()


def _was_begun_by_us(run: RunFolder) -> bool:
    """Whether this launch of torchrun took the folder before a failure.

    Killed between the folder's first two files, it has left no name there.
    """
    if not was_restarted():
        return False
    facts = run.read_facts()
    return not facts or facts.get("launch") == launch_name()


def _chosen_checkpoint(run: RunFolder, asked: str | None) -> str | None:
    names = run.checkpoint_names()
    if asked is None:
        # A crash between a checkpoint's rename and the pointer's leaves a newer whole one.
        return names[-1] if names else None
    if asked in ("last", "best"):
        asked = run.pointed(asked) or asked
    if asked not in names:
        raise CheckpointError(
            f"{run.path} has no checkpoint {asked!r}",
            fix=f"it has {', '.join(names)}" if names else "it has none; resume without --checkpoint",
        )
    return asked


def train_prepared(prepared: Prepared, listener: Listener) -> Outcome:
    """Trains a prepared run to its end, or until Ctrl-C or SIGTERM.

    Raises:
        RunFailedError: the loss is no longer a number.
        DiskFullError: there is no room left.
    """
    run, session = prepared.run, prepared.session
    state = prepared.resumed.state if prepared.resumed else TrainState()
    if not session.world.is_first:
        with stop_on_signals() as stop:
            return Trainer(session, run, state=state, metrics=None, listener=listener).train(stop)
    _rewind(prepared)
    keep_bytes = prepared.resumed.metrics_bytes if prepared.resumed else 0
    metrics = MetricsFile(run.metrics_path, keep_bytes=keep_bytes)
    try:
        replace_text(run.log_path, log_text(read_metrics(run.metrics_path)))
        fields = {"step": state.step} if prepared.resumed else _start_fields(session)
        record = metrics.append("resume" if prepared.resumed else "start", fields)
        append_log(run.log_path, record)
        listener.recorded(record)
        trainer = Trainer(session, run, state=state, metrics=metrics, listener=listener)
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
    run.write_facts(_run_facts(session))
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
            fix=f"for more steps: `gptwright resume {prepared.run.path} --max_iters={2 * step}"
            f" --lr_decay_iters={2 * step}`",
        )


def _start_fields(session: Session) -> dict[str, Any]:
    tensors = [parameter.dim() >= 2 for parameter in session.model.parameters()]
    config = session.config
    return {
        "step": 0,
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
        "world_size": session.world.size,
        "max_iters": config.max_iters,
    }


def _run_facts(session: Session) -> Mapping[str, Any]:
    device = session.precision.device
    return {
        "schema": "gptwright.run/1",
        "gptwright": gptwright.__version__,
        "commit": _commit(),
        "launch": launch_name(),
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": metadata.version("numpy"),
            "device": device.name,
            "device_memory_bytes": device.memory_bytes,
            "threads": torch.get_num_threads(),
            "processes": session.world.size,
            "hosts": session.world.hosts,
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
