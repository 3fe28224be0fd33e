"""Reads a metrics file while it grows: only what is new, and from the start again where it was cut.

A resumed run cuts its record back to the checkpoint and goes on, so a file may have been cut and have grown
past the old length between two looks. What was read last is therefore compared again before reading on.
A look at a file that has not changed is one `stat`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gptwright.record.metrics import Record

# A record begins with its time, so its last line is told from any other by its bytes.
MARK_BYTES = 256
# Memory that one look may take; a longer backlog comes in several.
CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class News:
    """What one look found.

    Attributes:
        lines: the new whole lines.
        restarted: the file is another one, or was cut: what was read before counts no more.
        more: there is more to read at once.
    """

    lines: bytes = b""
    restarted: bool = False
    more: bool = False

    def records(self) -> Iterator[Record]:
        """The new records; a line that is none is passed over."""
        for line in self.lines.splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


class Follower:
    """Follows one metrics file.

    Args:
        path: the file; it need not exist yet.

    Attributes:
        changed: time of the file's last change, in seconds since 1970; 0 before the first look.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed = 0.0
        self._offset = 0
        self._mark = b""
        self._seen: tuple[int, int, int] | None = None

    def look(self) -> News:
        """What was added since the last look; nothing where the file is not there."""
        try:
            status = self.path.stat()
        except OSError:
            return self._gone()
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen == self._seen:
            return News()
        self.changed = status.st_mtime
        try:
            with self.path.open("rb") as file:
                restarted = self._restarted(file, seen)
                file.seek(self._offset)
                chunk = file.read(CHUNK_BYTES)
        except OSError:
            return self._gone()
        whole = chunk.rfind(b"\n") + 1
        if not whole and len(chunk) == CHUNK_BYTES:
            # No record is as long: whatever this is, it is not read again.
            whole = len(chunk)
        more = len(chunk) == CHUNK_BYTES
        self._seen = None if more else seen
        self._offset += whole
        self._mark = (self._mark + chunk[:whole])[-MARK_BYTES:]
        return News(chunk[:whole], restarted, more)

    def skip_to_end(self) -> None:
        """Passes over what is there already."""
        while self.look().more:
            pass

    def _gone(self) -> News:
        restarted = self._offset > 0
        self._offset, self._mark, self._seen = 0, b"", None
        return News(restarted=restarted)

    def _restarted(self, file: BinaryIO, seen: tuple[int, int, int]) -> bool:
        """Goes back to the start if what was read last is no longer what stands before the offset."""
        file.seek(self._offset - len(self._mark))
        before = file.read(len(self._mark))
        another = self._seen is not None and self._seen[0] != seen[0]
        if before == self._mark and not another:
            return False
        self._offset, self._mark = 0, b""
        return True
