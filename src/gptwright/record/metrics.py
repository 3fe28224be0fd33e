"""`metrics.jsonl`: the primary record of a run, one JSON object a line, only ever appended to.

Each line is written with one call, so a kill leaves whole lines and at most one torn one at the end, which
readers skip. A checkpoint remembers how long the file was; resuming cuts it there, so that no step is lost
or recorded twice. Everything else (the log, plots, reports) is a view of this file.

Kinds of line, each with `"v": 1`, `kind`, and `time` (seconds since 1970):
- `start`, `resume`: facts of the process that goes on from `step`;
- `train`: `step`, `loss`, `loss_mean` since the line before, `lr`, `grad_norm`, `seconds` a step without
  evaluations and checkpoints, `tokens_per_second`, `mfu`, `tokens` so far;
- `eval`: `step`, `seconds`, and for `train` and `val` each `…_loss`, `…_loss_standard_error`, `…_windows`;
- `guard`: `step`, `what` a guard did (`skipped`, `rollback`, `scaler-collapse`, `stuck-loss`, `stalled`,
  `out-of-memory`, `fallback`), the same as a sentence in `text`, and its numbers;
- `import`: `step`, `origin` and `best_val_loss` of a model from elsewhere, before the first start;
- `score`: what `gptwright eval` found: `step`, `checkpoint`, `text`, `loss`, `loss_standard_error`,
  `perplexity`, `bits_per_byte`, `windows`, `tokens`, `bytes`, `context`;
- `end`: `step` and `state`: `finished`, `stopped` (by a signal) or `failed`.
"""

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptwright.errors import RunError
from gptwright.files import disk_full_as_error

VERSION = 1
Record = dict[str, Any]


class MetricsFile:
    """Appends records to a metrics file.

    Args:
        path: the file; made if absent.
        keep_bytes: cut the file to this length first, which `require_length` has found it to have.
    """

    def __init__(self, path: Path, *, keep_bytes: int) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._file.truncate(keep_bytes)

    @property
    def length(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._file.fileno()).st_size

    def append(self, kind: str, fields: Mapping[str, Any]) -> Record:
        """Writes one line and returns it as a record.

        Raises:
            DiskFullError: there is no room; the file is as it was before.
        """
        record: Record = {
            "v": VERSION,
            "kind": kind,
            "time": round(time.time(), 3),
            **with_names_for_infinities(fields),
        }
        before = self.length
        try:
            with disk_full_as_error(self.path.parent):
                line = json.dumps(record, allow_nan=False, ensure_ascii=False).encode("utf-8") + b"\n"
                if self._file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, "only part of a line fitted")
        except BaseException:
            self._file.truncate(before)
            raise
        return record

    def cut(self, keep_bytes: int) -> None:
        """Takes back everything after a length that the file had."""
        self._file.truncate(keep_bytes)

    def sync(self) -> None:
        """Flushes the file to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def require_length(path: Path, keep_bytes: int) -> None:
    """Makes sure that a metrics file still holds what it held when a checkpoint was written.

    Raises:
        RunError: it is shorter.
    """
    length = path.stat().st_size if path.exists() else 0
    if length < keep_bytes:
        raise RunError(
            f"{path} has {length} bytes, and the checkpoint was written when it had {keep_bytes}",
            why="part of the run's record is missing, so going on would leave a hole in it",
            fix="restore the file, or resume from an earlier checkpoint with --checkpoint=NAME",
        )


def read_metrics(path: Path) -> list[Record]:
    """All whole records of a metrics file; a torn last line is skipped.

    Raises:
        RunError: a line in the middle is damaged.
    """
    records = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            raise RunError(
                f"{path}:{number} is not a record: {line[:60]!r}",
                why="only the last line of a metrics file can be torn by a crash; this one was changed",
                fix="restore the file from a copy",
            ) from None
    return records


def with_names_for_infinities(fields: Mapping[str, Any]) -> Record:
    """JSON has no NaN and no infinity: such a value becomes its name, as a string."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in fields.items()
    }
