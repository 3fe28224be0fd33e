"""TensorBoard event files, written by TensorBoard's own writer; torch is not needed for it."""

import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from gptwright.record.metrics import Record
from gptwright.report.loggers.scalars import scalars

EVENT_FILES = "events.out.tfevents.*"


class TensorBoardView:
    """A run as event files in a folder. Beginning removes those that are there: they are made anew.

    Args:
        folder: where TensorBoard's `--logdir` points to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: EventFileWriter | None = None

    def begin(self) -> None:
        """Starts over."""
        self.close()
        for old in self.folder.glob(EVENT_FILES):
            old.unlink()
        self._writer = EventFileWriter(str(self.folder))

    def add(self, record: Record) -> None:
        """Writes a record's numbers."""
        values = scalars(record)
        if not values or self._writer is None:
            return
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        wall_time = float(record.get("time") or time.time())
        self._writer.add_event(Event(wall_time=wall_time, step=int(record["step"]), summary=summary))

    def flush(self) -> None:
        """Makes what was written visible to TensorBoard."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Writes what is left."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
