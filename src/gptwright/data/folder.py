"""Puts a finished dataset where it was asked for, or leaves everything as it was.

The files are written into a folder beside the target (`work`) and flushed to disk, and a rename puts it in
place. So a dataset is whole or absent, whatever stops the work: an error, Ctrl-C, a full disk, a kill. Files
of other names in the target stay where they are, and a dataset of other settings or of another program is
never replaced.
"""

import os
import secrets
import shutil
from pathlib import Path

from gptwright import units
from gptwright.data.manifest import MANIFEST_NAME, Manifest, SettingsRecord, read_manifest
from gptwright.data.nanogpt_meta import META_NAME
from gptwright.errors import DataError, DiskFullError
from gptwright.files import is_disk_full, sync_folder

TOKENIZER_NAME = "tokenizer.json"


def check_target(out: Path, settings: SettingsRecord) -> None:
    """Refuses a target that holds something which must not be replaced.

    Raises:
        DataError: it is a file, a folder of other things, or a dataset of other settings.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"{out} is a file", why="a dataset is a folder", fix="--out DIR with another name")
    names = {entry.name for entry in out.iterdir()}
    if not names:
        return
    if MANIFEST_NAME in names:
        _check_same_settings(out, read_manifest(out), settings)
    elif taken := {name for name in names if name in (META_NAME, TOKENIZER_NAME) or name.endswith(".bin")}:
        raise DataError(
            f"{out} holds a dataset that gptwright did not write: {_listing(taken)}",
            why="preparing would replace those files",
            fix="train on it as it is, or choose another --out DIR",
        )


def _check_same_settings(out: Path, manifest: Manifest, settings: SettingsRecord) -> None:
    if manifest.settings == settings:
        return
    asked, there = settings.model_dump(), manifest.settings.model_dump()
    differences = ", ".join(
        f"{key} {there[key]} there, {asked[key]} asked" for key in asked if asked[key] != there[key]
    )
    raise DataError(
        f"{out} holds a dataset of other settings: {differences}",
        why="runs that were trained on it could no longer be resumed or compared",
        fix="--out DIR with another name, or delete that folder first",
    )


def write_durably(path: Path, content: bytes) -> None:
    """Writes a small file and flushes it to disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def put(partial: Path, out: Path) -> None:
    """Gives the target the new files; what else lies there, such as nanoGPT's prepare.py, stays."""
    before = {entry.name for entry in out.iterdir()} if out.exists() else set()
    own = _own_names(read_manifest(out)) if MANIFEST_NAME in before else set()
    if before <= own:
        _swap(partial, out)
        return
    # The manifest goes first and comes last, so that a dataset half replaced is never taken for a whole one.
    for name in sorted(before & own, key=lambda name: name != MANIFEST_NAME):
        (out / name).unlink()
    moved = []
    try:
        for file in sorted(partial.iterdir(), key=lambda file: file.name == MANIFEST_NAME):
            moved.append(file.rename(out / file.name))
    except BaseException:
        for file in moved:
            file.unlink()
        raise
    partial.rmdir()
    sync_folder(out)


def _swap(partial: Path, out: Path) -> None:
    if not out.exists():
        partial.rename(out)
    else:
        old = out.with_name(f"{out.name}.old-{secrets.token_hex(4)}")
        try:
            out.rename(old)
            partial.rename(out)
        except BaseException:
            if old.exists() and not out.exists():
                old.rename(out)
            raise
        shutil.rmtree(old, ignore_errors=True)
    sync_folder(out.parent)


def _own_names(manifest: Manifest) -> set[str]:
    shards = {shard.file for split in manifest.splits.values() for shard in split.shards}
    return shards | {MANIFEST_NAME, META_NAME, manifest.tokenizer.file}


def _listing(names: set[str]) -> str:
    shown = sorted(names)[:5]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def not_writable(
    out: Path, error: OSError | DiskFullError, *, needed: float | None, kept: Path | None
) -> DataError | DiskFullError:
    """The error of whatever could not be written.

    Args:
        out: where the dataset was to be.
        error: what the system said.
        needed: an estimate of the dataset's bytes, if there is one yet.
        kept: the folder of finished work that a second run goes on from, if there is one.
    """
    if isinstance(error, OSError) and not is_disk_full(error):
        return DataError(
            f"the dataset cannot be written to {out}: {error.strerror or error}",
            why="nothing was left there" if kept is None else f"what is done is kept in {kept}",
            fix="--out DIR in a folder that you may write to",
        )
    existing = next(parent for parent in out.parents if parent.exists())
    free = units.size(shutil.disk_usage(existing).free)
    need = f"it needs about {units.size(needed)}, " if needed else ""
    if kept is None:
        return DiskFullError(
            f"no room for the dataset in {out.parent}: {need}{free} are free",
            why="the disk or the quota is full; what was half-written has been removed",
            fix="free some space, choose another --out DIR, or write less with --max-tokens N",
        )
    return DiskFullError(
        f"no room for the dataset in {out.parent}: {need}{free} are free",
        why=f"the disk or the quota is full; what is done is kept in {kept}",
        fix="free some space and give the same command again, which goes on; or delete that folder",
    )
