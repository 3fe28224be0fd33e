"""What the processes of a run agree on before they build anything: its settings, and whether it goes on.

The first process reads the run folder and the weights to begin with, and tells the others; none of them needs
either on its own machine. All take its settings, so whoever was asked for others is refused.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gptwright.config.load import LoadedConfig
from gptwright.config.schema import TrainConfig
from gptwright.errors import ConfigError
from gptwright.interop.foreign import ForeignModel
from gptwright.record.run import RunFolder
from gptwright.train.start import starting_weights
from gptwright.train.world import World, launch_name, was_restarted


def run_settings(run: RunFolder, overrides: Mapping[str, str], *, world: World) -> LoadedConfig:
    """The settings of an existing run.

    Raises:
        GptwrightError: there is no run, a setting cannot be used, or the processes differ in them.
    """
    require_same_command(overrides, world=world)
    return _heard(world.from_first(lambda: _told(RunFolder.existing(run.path).load_config(overrides))))


def shared_start(
    loaded: LoadedConfig, say: Callable[[str], None], *, world: World
) -> tuple[LoadedConfig, ForeignModel | None]:
    """The settings with the shape of the weights to begin with, and those weights in the first process.

    Args:
        loaded: the settings as they were asked for.
        say: told what is downloaded, before that starts.
        world: the processes.

    Raises:
        GptwrightError: the weights cannot be had, settings contradict them, or the processes differ in them.
    """
    if world.size == 1:
        return starting_weights(loaded, say)
    require_same_command(asdict(loaded.config), world=world)
    found: list[ForeignModel | None] = []

    def begin() -> dict[str, Any]:
        settled, start = starting_weights(loaded, say)
        found.append(start)
        return _told(settled)

    settled = _heard(world.from_first(begin))
    return settled, found[0] if found else None


def require_same_command(asked: Mapping[str, Any], *, world: World) -> None:
    """Refuses processes that were asked for different settings; the run folder is the first one's alone.

    Raises:
        ConfigError: one was.
    """
    wish = {name: value for name, value in asked.items() if name != "out_dir"}
    found = world.all_gather([wish, socket.gethostname()])
    first, first_host = found[0]
    for rank, (other, host) in enumerate(found):
        names = [name for name in first | other if first.get(name) != other.get(name)]
        if names:
            theirs, ours = (
                ", ".join(f"{name} = {it[name]}" if name in it else f"no {name}" for name in names)
                for it in (other, first)
            )
            raise ConfigError(
                f"rank {rank} on {host} was asked for {theirs}; rank 0 on {first_host} for {ours}",
                why="all processes train one run, with the settings of rank 0",
                fix="give every machine the same command",
            )


def _told(loaded: LoadedConfig) -> dict[str, Any]:
    return {
        "config": asdict(loaded.config),
        "sources": dict(loaded.sources),
        "without_effect": dict(loaded.without_effect),
    }


def _heard(told: Mapping[str, Any]) -> LoadedConfig:
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
