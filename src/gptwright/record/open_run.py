"""Opens what somebody hands over as a run: a folder of ours, a log of any trainer, a folder with one.

The pieces are found by name and read by `readers` and `configs`; what is stated beside them (`facts.toml`,
options) is checked by `stated`.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gptwright.errors import RunError
from gptwright.facts import Fact, Value
from gptwright.record.configs import read_config_evidence
from gptwright.record.evidence import ConfigEvidence, LogEvidence, RunEvidence
from gptwright.record.readers import read_log
from gptwright.record.run import RunFolder
from gptwright.record.stated import facts_file, stated_facts

LOG_NAMES = ("*.log", "*.txt", "*.jsonl")
# Text files that lie beside logs and are none.
NO_LOGS = frozenset({"requirements.txt", "README.txt", "input.txt", "vocab.txt", "merges.txt"})
# What is the record where it is there, before any other file.
RECORDS = ("metrics.jsonl", "log.txt", "trainer_state.json")
# What loggers export; looked at where nothing else is there, and of JSON files only those with losses count.
EXPORTS = ("*.csv", "*.json")
SUMMARY = "wandb-summary.json"
# How many runs of a folder an error names.
MOST_NAMED = 5
CONFIG_NAMES = ("config.py", "config.toml")
CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")


def open_run(path: str, stated: Mapping[str, Value] | None = None) -> RunEvidence:
    """Reads a run.

    Args:
        path: a run folder of ours, a folder from elsewhere, a log, a config, or `-` for standard input.
        stated: facts from options; they win over those of facts.toml. None as a value is as if not given.

    Raises:
        RunError: there is nothing to read, or a stated fact is unknown or of the wrong type.
        ConfigError: the config cannot be read.
    """
    options = {name: value for name, value in (stated or {}).items() if value is not None}
    given = stated_facts(options, "option")
    if path == "-":
        data = sys.stdin.buffer.read()
        return RunEvidence(path=path, log=read_log(None, data=data), config=None, stated=given)
    place = Path(path)
    if place.is_dir():
        return _folder(place, given)
    if not place.is_file():
        raise RunError(
            f"{path} does not exist",
            fix="give a run folder, a folder with a log.txt, a log file, or - for standard input",
        )
    if place.suffix in (".py", ".toml"):
        return RunEvidence(path=path, log=None, config=read_config_evidence(place), stated=given)
    return RunEvidence(path=path, log=read_log(place), config=None, stated=given)


def _folder(folder: Path, given: Mapping[str, Fact]) -> RunEvidence:
    config, stated = beside(folder)
    facts = {**stated, **given}
    log = _log(folder, needed=config is None)
    return RunEvidence(path=str(folder), log=log, config=config, stated=facts)


def beside(folder: Path) -> tuple[ConfigEvidence | None, dict[str, Fact]]:
    """What lies beside a log: the config, and the facts of run.json and facts.toml.

    Raises:
        RunError: there are two configs, or a stated fact is unknown or of the wrong type.
        ConfigError: the config cannot be read.
    """
    return _config(folder), {**_recorded_facts(folder), **facts_file(folder / "facts.toml")}


def _config(folder: Path) -> ConfigEvidence | None:
    there = [folder / name for name in CONFIG_NAMES if (folder / name).is_file()]
    if len(there) > 1:
        raise RunError(
            f"{folder} holds config.py and config.toml",
            why="they may differ, and nothing says which one the run had",
            fix="keep the one that was used",
        )
    return read_config_evidence(there[0]) if there else None


def _log(folder: Path, *, needed: bool) -> LogEvidence | None:
    """The log of a folder; None where there is none and a config makes up for it.

    Raises:
        RunError: there is none at all, or there are several.
    """
    for name in RECORDS:
        if (folder / name).is_file() and (folder / name).stat().st_size:
            return read_log(folder / name)
    state = _last_trainer_state(folder)
    if state is not None:
        return read_log(state)
    named = sorted(path for name in LOG_NAMES for path in folder.glob(name) if path.name not in NO_LOGS)
    if not named and (folder / SUMMARY).is_file():
        return read_log(folder / SUMMARY)
    exports = [path for name in EXPORTS for path in sorted(folder.glob(name)) if path.name not in RECORDS]
    logs = {path: _readable(path) for path in named or exports}
    if not named:
        logs = {path: log for path, log in logs.items() if _holds_losses(log)}
    if not logs and not needed:
        return None
    below = _runs_below(folder)
    if not logs or (below and not any(map(_holds_losses, logs.values()))):
        raise RunError(
            f"{folder} holds no log",
            why="a log is log.txt, trainer_state.json, metrics.jsonl, or the only .log, .txt, .jsonl, .csv or"
            " .json file with losses",
            fix=f"give one of the runs in it: {', '.join(below)}"
            if below
            else "give the log file itself, or put it into the folder as log.txt",
        )
    return _only_one(folder, logs)


def _runs_below(folder: Path) -> list[str]:
    """Folders in a folder that hold a record, of which it may be the place."""
    found = sorted(path.parent for name in RECORDS for path in folder.glob(f"*/{name}") if path.is_file())
    return [str(path) for path in dict.fromkeys(found)][:MOST_NAMED]


def _readable(path: Path) -> LogEvidence | None:
    """What a file says as a log; None where it is none."""
    try:
        return read_log(path)
    except RunError:
        return None


def _holds_losses(log: LogEvidence | None) -> bool:
    """Whether a file that was read has a step in it."""
    return log is not None and bool(len(log.train) or len(log.evals))


def _last_trainer_state(folder: Path) -> Path | None:
    """The state in the newest checkpoint of a Hugging Face output folder; it holds the whole history."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := CHECKPOINT.fullmatch(path.name))]
    states = [path / "trainer_state.json" for _, path in sorted(found, reverse=True)]
    return next((state for state in states if state.is_file()), None)


def _only_one(folder: Path, logs: Mapping[Path, LogEvidence | None]) -> LogEvidence:
    """The one of these files that is a log.

    Raises:
        RunError: none is, or there are several.
    """
    readable = [log for log in logs.values() if log is not None]
    if len(readable) == 1:
        return readable[0]
    if len(logs) == 1:
        # It says why it is none.
        return read_log(next(iter(logs)))
    names = ", ".join(Path(log.path).name for log in readable) or ", ".join(path.name for path in logs)
    raise RunError(
        f"{folder} holds {len(readable) or 'no'} logs that can be read: {names}",
        why="a run has one log",
        fix=f"give the log file itself, as in {next(iter(logs))}",
    )


def _recorded_facts(folder: Path) -> dict[str, Fact]:
    """What our own run.json says about machine and dataset."""
    if not (folder / "metrics.jsonl").is_file():
        return {}
    recorded = RunFolder(folder).read_facts()
    machine, dataset = recorded.get("machine"), recorded.get("dataset")
    machine = machine if isinstance(machine, dict) else {}
    dataset = dataset if isinstance(dataset, dict) else {}
    tokens = dataset.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    values = {
        "device": machine.get("device"),
        "torch": machine.get("torch"),
        "dataset": dataset.get("name"),
        "train_tokens": tokens.get("train"),
        "val_tokens": tokens.get("val"),
    }
    facts = stated_facts({name: value for name, value in values.items() if value}, "run.json")
    return {name: replace(fact, reason="run.json") for name, fact in facts.items()}
