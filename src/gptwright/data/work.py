"""The folder of unfinished work beside a dataset, `OUT.partial`, which a second run takes up.

It holds what each unit gave (`units`), the dataset as far as it is put together (`dataset`), and `plan.json`:
the settings and the state of the source files for which all that is true. Another command does not touch
it, and only one process works in it at a time. When the dataset has been renamed into its place, the folder
goes.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gptwright.data.folder import not_writable, put
from gptwright.data.manifest import MANIFEST_NAME
from gptwright.errors import DataError, DiskFullError
from gptwright.files import replace_text, sync_folder

_PLAN = "plan.json"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The paths of unfinished work.

    Attributes:
        folder: `OUT.partial`.
        out: where the dataset will be.
    """

    folder: Path
    out: Path

    @property
    def dataset(self) -> Path:
        """The dataset that is being made."""
        return self.folder / "dataset"

    @property
    def units(self) -> Path:
        """What the units gave."""
        return self.folder / "units"

    @property
    def finished(self) -> bool:
        """Whether the dataset is in its place already and only this folder was left behind."""
        return not self.dataset.exists() and (self.out / MANIFEST_NAME).is_file()

    @property
    def worth_keeping(self) -> bool:
        """Whether several units are encoded, which is nearly all of the work."""
        return sum(1 for _ in self.units.glob("*.part.json")) > 1

    @property
    def begun(self) -> bool:
        """Whether several units are at least surveyed."""
        return sum(1 for _ in self.units.glob("*.survey.json")) > 1

    def unit_path(self, index: int, suffix: str) -> Path:
        """The file of a unit, such as `000012.train.ids`."""
        return self.units / f"{index:06d}.{suffix}"

    def put_in_place(self) -> None:
        """Renames the finished dataset to where it was asked for."""
        sync_folder(self.dataset)
        put(self.dataset, self.out)


@contextmanager
def workspace(
    out: Path, plan: dict[str, Any], *, bytes_needed: Callable[[], float | None]
) -> Iterator[Workspace]:
    """Begins, or takes up what an earlier run of the same plan left.

    On an error or Ctrl-C finished units stay, if there are several; else nothing is left.

    Args:
        out: where the dataset is to be; `check_target` has let it pass.
        plan: what the work depends on.
        bytes_needed: an estimate of the dataset's size, for the message of a full disk.

    Raises:
        DataError: unfinished work of another plan lies there, another process works there, or the place
            cannot be written.
        DiskFullError: there is no room.
    """
    out = out.resolve()
    space = Workspace(out.with_name(f"{out.name}.partial"), out)
    made = [parent for parent in out.parents if not parent.exists()]
    try:
        lock = _begin(space, plan)
    except OSError as error:
        _remove_empty(made)
        raise not_writable(out, error, needed=None, kept=None) from None
    try:
        yield space
    except BaseException as error:
        # What is wrong with the input is mended by another command, and the survey would be in its way.
        keep = space.worth_keeping or (space.begun and not isinstance(error, DataError))
        kept = space.folder if keep else None
        if kept is None:
            lock.close()
            shutil.rmtree(space.folder, ignore_errors=True)
            _remove_empty(made)
        if isinstance(error, OSError | DiskFullError):
            raise not_writable(out, error, needed=bytes_needed(), kept=kept) from None
        raise
    else:
        lock.close()
        shutil.rmtree(space.folder, ignore_errors=True)
    finally:
        lock.close()


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _begin(space: Workspace, plan: dict[str, Any]) -> BinaryIO:
    space.folder.mkdir(parents=True, exist_ok=True)
    lock = (space.folder / _LOCK).open("wb")
    _take(lock, space)
    try:
        there = _read_plan(space)
        if there is not None and there != plan and space.worth_keeping:
            raise _other_plan(space, there, plan)
        if there != plan:
            for path in space.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
            (space.folder / _PLAN).unlink(missing_ok=True)
            space.dataset.mkdir()
            space.units.mkdir()
            replace_text(space.folder / _PLAN, json.dumps(plan))
    except BaseException:
        lock.close()
        raise
    return lock


def _read_plan(space: Workspace) -> dict[str, Any] | None:
    try:
        plan: dict[str, Any] = json.loads((space.folder / _PLAN).read_bytes())
    except (OSError, ValueError):
        return None
    return plan


def _other_plan(space: Workspace, there: dict[str, Any], plan: dict[str, Any]) -> DataError:
    names = {"files": "the source files", "version": "the version of gptwright"}
    differences = [
        names.get(key, f"{key} {there.get(key)} there, {plan[key]} asked")
        for key in plan
        if there.get(key) != plan[key]
    ]
    return DataError(
        f"{space.folder} holds unfinished work that was begun otherwise: {', '.join(differences)}",
        why="what is done there does not fit this command, and may be hours of work",
        fix="give the command that began it, which goes on; or delete that folder, or choose another --out",
    )


def _take(lock: BinaryIO, space: Workspace) -> None:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise DataError(
            f"another process is preparing {space.out}",
            why="both would write the same files",
            fix="wait for it, or choose another --out DIR",
        ) from None
