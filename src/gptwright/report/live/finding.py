"""Looks for runs below a folder: ours, and logs of other trainers. Never outside it.

A folder is one run if it has our record, or a log beside which a config or facts lie; any other log file is a
run by itself. Symbolic links are not followed: what they lead to is found at its own place, or lies outside.
How deep and how many is bounded, because a person may well point at a home directory.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEEPEST = 5
MOST_ENTRIES = 50_000
MOST_RUNS = 1_000
RECORD = "metrics.jsonl"
LOG_ENDINGS = (".log", ".jsonl")
LOG_NAMES = frozenset(
    {"log.txt", "train.txt", "train_log.txt", "output.txt", "out.txt", "trainer_state.json"}
)
BESIDE = frozenset({"config.py", "config.toml", "facts.toml"})
# Folders in which nothing is a run, and which can be huge.
SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "wandb", "tensorboard", "checkpoints"})


@dataclass(frozen=True, slots=True)
class Found:
    """A run that was found.

    Attributes:
        id: its path below the watched folder, with forward slashes; `.` for the folder itself.
        path: what `diagnose` is given: a folder or a log file.
        ours: whether it has our record.
        log: the file whose growth shows that the run goes on.
    """

    id: str
    path: Path
    ours: bool
    log: Path


def find_runs(root: Path) -> list[Found]:
    """All runs below a folder, at most `MOST_RUNS`, by path."""
    root = root.resolve()
    found: list[Found] = []
    budget = MOST_ENTRIES
    waiting = [(root, 0)]
    while waiting and budget > 0 and len(found) < MOST_RUNS:
        folder, depth = waiting.pop()
        entries = list(_entries(folder, budget))
        budget -= len(entries) + 1
        files = {entry.name: entry for entry in entries if entry.is_file()}
        runs = list(_runs_of(folder, root, files))
        found += runs
        if any(run.path == folder for run in runs) or "pyvenv.cfg" in files or depth == DEEPEST:
            continue
        waiting += [
            (Path(entry.path), depth + 1)
            for entry in entries
            if entry.is_dir() and not entry.name.startswith(".") and entry.name not in SKIPPED
        ]
    return sorted(found[:MOST_RUNS], key=lambda run: run.id)


def inside(path: Path, root: Path) -> bool:
    """Whether a path, with every link in it followed, lies in the folder."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _entries(folder: Path, most: int) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= most:
                    return
                if not entry.is_symlink():
                    yield entry
    except OSError:
        return


def _runs_of(folder: Path, root: Path, files: dict[str, "os.DirEntry[str]"]) -> Iterator[Found]:
    name = folder.relative_to(root).as_posix()
    if RECORD in files:
        yield Found(id=name, path=folder, ours=True, log=folder / RECORD)
        return
    logs = sorted(file for file in files if _is_log(file) and _holds_something(files[file]))
    if len(logs) == 1 and (BESIDE & set(files) or logs[0] in ("log.txt", "trainer_state.json")):
        yield Found(id=name, path=folder, ours=False, log=folder / logs[0])
        return
    for log in logs:
        path = folder / log
        yield Found(id=path.relative_to(root).as_posix(), path=path, ours=False, log=path)


def _holds_something(file: "os.DirEntry[str]") -> bool:
    """Whether a file has content; not one that has gone since it was seen."""
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


def _is_log(name: str) -> bool:
    return not name.startswith(".") and (name in LOG_NAMES or name.endswith(LOG_ENDINGS))


def stays_inside(run: Found, root: Path) -> bool:
    """Whether everything that a diagnosis would read of a run lies below the watched folder.

    Of a run that has gone nothing is read; of a folder that cannot be listed it is not known.
    """
    if not inside(run.path, root):
        return False
    try:
        with os.scandir(run.path) as entries:
            return all(not entry.is_symlink() or inside(Path(entry.path), root) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
