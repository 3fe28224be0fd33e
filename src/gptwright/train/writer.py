"""Checkpoints written beside the training.

The training waits while weights and moments are copied into main memory; one thread hashes, writes, flushes
and renames. Checkpoints are written one after another in the order of their steps, and a next one waits until
the one before is on the disk, so that copies never pile up. What goes wrong while writing is raised where the
training asks next: at the next step, the next save, or the end.

A copy takes 12 bytes a parameter of main memory. Where that is the training's own memory (a CPU), `auto`
writes in the training's thread.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.checkpoint import Snapshot, write_checkpoint
from gptwright.train.retention import prune_checkpoints
from gptwright.train.state import TrainState


class CheckpointWriter:
    """Writes snapshots in order; a context manager that waits for the last one.

    Args:
        run: where they go.
        newest: how many of the newest are kept.
        beside: whether a thread writes them.
    """

    def __init__(self, run: RunFolder, *, newest: int, beside: bool) -> None:
        self._run = run
        self._newest = newest
        self.beside = beside
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._writing: Future[None] | None = None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)
        if error is None:
            self.wait()

    def save(self, snapshot: Snapshot) -> None:
        """Writes a snapshot, or begins to.

        Raises:
            DiskFullError: there is no room for this one or for the one before.
        """
        self.wait()
        if self.beside:
            self._writing = self._pool.submit(self._write, snapshot)
        else:
            self._write(snapshot)

    def check(self) -> None:
        """Raises what went wrong with a write that has ended; does not wait."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Waits for the write that is under way, and raises what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, snapshot: Snapshot) -> None:
        write_checkpoint(self._run, snapshot)
        self.written(snapshot.state)

    def written(self, state: TrainState) -> None:
        """Points to the checkpoint of a state that is on the disk, if it is the best; removes older ones."""
        if state.best_step == state.step:
            self._run.point("best", checkpoint_name(state.step))
        prune_checkpoints(self._run, state, self._newest)
