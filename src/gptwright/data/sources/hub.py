"""Repositories of the Hugging Face hub: datasets as `hf:OWNER/NAME[@REVISION][/SUBFOLDER]`, and models.

huggingface_hub does the transport: it goes on with an interrupted download, keeps files in its own cache, and
obeys HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE. SUBFOLDER is a folder or file of the repository, or
the name of a configuration of its dataset card (`sample-10BT` of FineWeb-Edu is the folder sample/10BT).
What is downloaded, and how big it is, is said before it starts, and refused where the disk has no room. Files
of which the hub knows the sha256, which are all large ones, are compared with it.
"""

import fnmatch
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from gptwright import units
from gptwright.data.tokenizer_base import import_extra
from gptwright.errors import DataError, DiskFullError

HUB_PREFIX = "hf:"
_PURPOSE = "a Hugging Face repository"


@dataclass(frozen=True, slots=True)
class FetchedRepository:
    """Files of a repository on this machine.

    Attributes:
        root: the folder of the snapshot.
        files: those that were asked for, in the order of their names.
    """

    root: Path
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Address:
    repository: str
    revision: str | None
    inside: str
    kind: str = "dataset"
    purpose: str = _PURPOSE


# From the names in a repository to those that are wanted; the patterns of its card are asked for if needed.
_Choice = Callable[[_Address, list[str], Callable[[], list[str]]], list[str]]


def fetch_repository(source: str, suffixes: Sequence[str], say: Callable[[str], None]) -> FetchedRepository:
    """Downloads what is not there yet, or finds it in the cache where there is no network.

    Args:
        source: `hf:OWNER/NAME[@REVISION][/SUBFOLDER]`.
        suffixes: the kinds of files that are wanted; the first kind that there is.
        say: told what is downloaded and how big it is, before that starts.

    Raises:
        DataError: there is no such repository or folder, or no network and nothing in the cache.
        DiskFullError: there is no room for the download.
    """
    address = _parsed(source)
    return _fetch(address, lambda place, names, patterns: _chosen(place, names, suffixes, patterns), say)


def fetch_model(
    repository: str, choose: Callable[[list[str]], list[str]], say: Callable[[str], None]
) -> FetchedRepository:
    """Downloads files of a model repository that are not there yet, or finds them in the cache.

    Args:
        repository: `OWNER/NAME`.
        choose: from the names in it to those that are wanted.
        say: told what is downloaded and how big it is, before that starts.

    Raises:
        DataError: there is no such repository, no network and nothing in the cache, or a damaged file.
        DiskFullError: there is no room for the download.
    """
    address = _Address(repository, None, "", kind="model", purpose="a model of the hub")
    return _fetch(address, lambda _, names, __: choose(names), say)


def _fetch(address: _Address, choose: _Choice, say: Callable[[str], None]) -> FetchedRepository:
    hub = import_extra("huggingface_hub", address.purpose, extra="data")
    import_extra("huggingface_hub.constants", address.purpose, extra="data")
    with _explained(address):
        if hub.constants.HF_HUB_OFFLINE:
            return _from_cache(hub, address, choose)
        return _from_network(hub, address, choose, say)


def _parsed(source: str) -> _Address:
    parts = source.removeprefix(HUB_PREFIX).strip("/").split("/")
    if len(parts) < 2 or not all(parts):
        raise DataError(
            f"'{source}' is not a repository",
            fix="write hf:OWNER/NAME or hf:OWNER/NAME/SUBFOLDER, such as"
            " hf:HuggingFaceFW/fineweb-edu/sample-10BT",
        )
    name, _, revision = parts[1].partition("@")
    return _Address(
        f"{parts[0]}/{name}",
        unquote(revision) or None,
        "/".join(parts[2:]),
    )


def _from_network(
    hub: Any, address: _Address, choose: _Choice, say: Callable[[str], None]
) -> FetchedRepository:
    api = hub.HfApi()
    info = api.repo_info(
        address.repository, repo_type=address.kind, revision=address.revision, files_metadata=True
    )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings}
    names = choose(address, list(sizes), lambda: _patterns_of(info.card_data, address.inside))
    known = {file.rfilename: file.lfs.sha256 for file in info.siblings if file.lfs is not None}
    there = {name for name in names if _cached(hub, address, name, info.sha)}
    missing = sum(sizes[name] for name in names if name not in there)
    folder = Path(hub.constants.HF_HUB_CACHE)
    if missing:
        say(
            f"downloading {len(names) - len(there)} of {len(names)} files of {address.repository},"
            f" {units.size(missing)}, into {folder}"
        )
        _require_room(folder, missing)
    # The first is asked for by the name of its revision, which the cache then knows without network.
    revisions = [address.revision, *[info.sha] * (len(names) - 1)]
    paths = [
        hub.hf_hub_download(address.repository, name, repo_type=address.kind, revision=revision)
        for name, revision in zip(names, revisions, strict=True)
    ]
    for name, path in zip(names, paths, strict=True):
        if name not in there:
            _check_sha256(address, Path(path), known.get(name))
    return _fetched(paths, names)


def _check_sha256(address: _Address, path: Path, expected: str | None) -> None:
    """Removes a download that is not what the hub has; small files have no sha256 there."""
    if expected is None:
        return
    with path.open("rb") as file:
        seen = hashlib.file_digest(file, "sha256").hexdigest()
    if seen != expected:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise DataError(
            f"{path.name} of {address.repository} arrived damaged: its sha256 is {seen[:12]}…,"
            f" the hub says {expected[:12]}…",
            why="it was removed again",
            fix="give the same command again",
        )


def _from_cache(hub: Any, address: _Address, choose: _Choice) -> FetchedRepository:
    folder = Path(
        hub.snapshot_download(
            address.repository, repo_type=address.kind, revision=address.revision, local_files_only=True
        )
    )
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def patterns() -> list[str]:
        card = folder / "README.md"
        return _patterns_of(hub.DatasetCard.load(card).data if card.is_file() else None, address.inside)

    chosen = choose(address, names, patterns)
    return FetchedRepository(folder, tuple(folder / name for name in chosen))


def _cached(hub: Any, address: _Address, name: str, revision: str) -> bool:
    found = hub.try_to_load_from_cache(address.repository, name, repo_type=address.kind, revision=revision)
    return isinstance(found, str)


def _fetched(paths: list[str], names: list[str]) -> FetchedRepository:
    root = Path(paths[0])
    for _ in Path(names[0]).parts:
        root = root.parent
    return FetchedRepository(root, tuple(Path(path) for path in paths))


def _chosen(
    address: _Address, names: list[str], suffixes: Sequence[str], patterns: Callable[[], list[str]]
) -> list[str]:
    """The files that are meant, sorted by name."""
    inside = address.inside
    under = [name for name in names if not inside or name == inside or name.startswith(f"{inside}/")]
    if not under:
        globs = patterns()
        under = [name for name in names if any(fnmatch.fnmatch(name, glob) for glob in globs)]
    if not under:
        folders = sorted({name.rsplit("/", 1)[0] for name in names if "/" in name})
        raise DataError(
            f"{address.repository} has no folder, file or configuration '{inside}'",
            why=f"its folders are {', '.join(folders[:12]) or 'none'}",
            fix=f"hf:{address.repository}/FOLDER with one of them",
        )
    kinds = ([name for name in under if name.lower().endswith(suffix)] for suffix in suffixes)
    wanted = next((sorted(kind) for kind in kinds if kind), None)
    if wanted is None:
        raise DataError(
            f"{address.repository} has no file of text there: {', '.join(sorted(under)[:6])}",
            why=f"what is read are {', '.join(suffixes)}",
            fix="look for a branch with Parquet files: hf:OWNER/NAME@refs%2Fconvert%2Fparquet",
        )
    return wanted


def _patterns_of(card: Any, name: str) -> list[str]:
    """The file patterns of a configuration in a dataset card."""
    configurations = getattr(card, "configs", None) or (card.get("configs") if card else None) or []
    for configuration in configurations:
        if configuration.get("config_name") != name:
            continue
        data = configuration.get("data_files") or []
        entries = [data] if isinstance(data, (str, dict)) else data
        paths = [entry.get("path", []) if isinstance(entry, dict) else entry for entry in entries]
        return [glob for path in paths for glob in ([path] if isinstance(path, str) else path)]
    return []


def _require_room(folder: Path, needed: int) -> None:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise DiskFullError(
            f"no room for the download in {folder}: it needs {units.size(needed)},"
            f" {units.size(free)} are free",
            why="nothing was downloaded",
            fix="free some space, set HF_HOME to a folder on a larger disk, or name a single file"
            " of the repository",
        )


@contextmanager
def _explained(address: _Address) -> Iterator[None]:
    errors = import_extra("huggingface_hub.errors", address.purpose, extra="data")
    try:
        yield
    except errors.LocalEntryNotFoundError:
        raise DataError(
            f"{address.repository} is not in the cache, and the hub is not to be asked or cannot be reached",
            why="HF_HUB_OFFLINE is set, or there is no network",
            fix="give the same command with a network, or the folder of a copy",
        ) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise DataError(
            f"there is no {address.kind} repository {address.repository}"
            + (f" at revision {address.revision}" if address.revision else ""),
            why="or it is private or gated, and HF_TOKEN does not open it",
            fix="check its name on the hub; for a gated one, accept its terms and set HF_TOKEN",
        ) from None
    except (errors.HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _no_network(address, reason) from None
    except Exception as error:
        # The transport's own family of errors; which library it is has changed between versions of the hub.
        if not type(error).__module__.startswith(("httpx", "httpcore", "requests", "urllib3")):
            raise
        raise _no_network(address, str(error) or type(error).__name__) from None


def _no_network(address: _Address, reason: str) -> DataError:
    return DataError(
        f"{address.repository} cannot be downloaded: {reason}",
        why="what was downloaded so far is kept",
        fix="the same command goes on when the network is there; the folder of a copy is taken too",
    )
