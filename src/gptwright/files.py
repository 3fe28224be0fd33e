"""Writing files that are whole or absent, and where files that can be made again are kept.

A file is written beside its place, flushed to the disk and then renamed, so that a crash at any moment
leaves the old one or the new one. A full disk becomes one clear error.
"""

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gptwright import units
from gptwright.errors import DiskFullError, OutputError


def replace_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file in one step."""
    replace_bytes(path, text.encode("utf-8"))


def replace_bytes(path: Path, content: bytes) -> None:
    """Writes a file in one step."""
    beside = path.with_name(f".{path.name}.partial")
    with disk_full_as_error(path.parent):
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Flushes a written file to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes renames inside a folder durable; a no-op where folders cannot be opened (Windows)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def unwritable_as_error(path: Path) -> Iterator[None]:
    """Turns the system's refusal to write where a person asked for it into an error that names the place.

    Raises:
        OutputError: the folder is missing or closed, or something else is there.
    """
    try:
        yield
    except OSError as error:
        links = (part for part in (path, *path.parents) if part.is_symlink())
        broken = next((link for link in links if not link.exists()), None)
        why = f"{broken} is a link to nothing" if broken else error.strerror or error
        raise OutputError(
            f"{path} cannot be written: {why}",
            fix="name another place, in a folder that is there and that you may write to",
        ) from None


def is_disk_full(error: Exception) -> bool:
    """Whether the system refused to write because the disk, or what this person may use of it, is full."""
    return _refused_with(error) in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def _refused_with(error: Exception) -> int | None:
    """The system's number of an error; libraries in Rust raise no OSError and write it into their message."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


@contextmanager
def disk_full_as_error(folder: Path) -> Iterator[None]:
    """Turns "no space left" and "file too large", from whatever writes inside, into a `DiskFullError`.

    Libraries written in other languages do not raise OSError, so their message is looked at too.
    """
    try:
        yield
    except Exception as error:
        if _refused_with(error) == errno.EFBIG:
            raise DiskFullError(
                f"a file of {folder} would be larger than is allowed there",
                why="its file system (FAT32: 4 GiB) or `ulimit -f` limits it; nothing half-written is left",
                fix="raise the limit, or move the folder to another disk, and give the same command again",
            ) from error
        if is_disk_full(error) or "No space left on device" in str(error):
            raise DiskFullError(
                f"the disk of {folder} is full: {units.size(shutil.disk_usage(folder).free)} free",
                why="nothing half-written was left there; what was written before is whole",
                fix="free some space there and give the same command again",
            ) from error
        raise


def cache_folder() -> Path:
    """Where downloads and compiled code are kept: `GPTWRIGHT_CACHE`, else the platform's folder for caches.

    It need not exist yet.
    """
    chosen = os.environ.get("GPTWRIGHT_CACHE")
    if chosen:
        return Path(chosen)
    home = Path.home()
    bases = {
        "win32": Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local"),
        "darwin": home / "Library" / "Caches",
    }
    linux = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return bases.get(sys.platform, linux) / "gptwright"
