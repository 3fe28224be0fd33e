"""Tiny Shakespeare, the corpus of nanoGPT's first example: 1.1 MB, 65 different characters.

It is downloaded once into the cache folder, or taken from a file. Either way its sha256 must be the known
one, so that every number published for it can be compared.
"""

import hashlib
import urllib.request
from pathlib import Path

from gptwright.data.sources.corpus import Corpus
from gptwright.data.sources.text import TextReader
from gptwright.errors import DataError
from gptwright.files import cache_folder, replace_bytes

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
_BYTES = 1_115_394
_TIMEOUT_SECONDS = 10


def shakespeare_corpus(from_file: Path | None) -> Corpus:
    """Tiny Shakespeare, from a file, the cache, or the network.

    Raises:
        DataError: the file is another text, or there is no file and no network.
    """
    path = from_file if from_file is not None else _cached()
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", fix="--from FILE that exists") from None
    _check(content, str(path))
    return Corpus(name="shakespeare", root=path.parent, files=(path,), skip_bad=False, reader=TextReader())


def _cached() -> Path:
    path = cache_folder() / "tinyshakespeare.txt"
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256:
        return path
    content = _download()
    _check(content, URL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, content)
    except OSError as error:
        raise DataError(
            f"the cache folder {path.parent} cannot be written: {error.strerror}",
            why="the download is kept there",
            fix="set GPTWRIGHT_CACHE to a folder that you may write to",
        ) from None
    return path


def _download() -> bytes:
    try:
        with urllib.request.urlopen(URL, timeout=_TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read(_BYTES + 1)
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"Tiny Shakespeare could not be downloaded from {URL}: {reason}",
            why="it is not in the cache, and there is no network or the server refused",
            fix="--from FILE with a copy of it, or `gptwright prepare pystdlib`, which needs no network",
        ) from None
    return content


def _check(content: bytes, where: str) -> None:
    seen = hashlib.sha256(content).hexdigest()
    if len(content) == _BYTES and seen == SHA256:
        return
    size = f"more than {_BYTES:,}" if len(content) > _BYTES else f"{len(content):,}"
    raise DataError(
        f"{where} is not Tiny Shakespeare: {size} bytes with sha256 {seen}",
        why=f"it has {_BYTES:,} bytes and sha256 {SHA256}; numbers from another text cannot be compared",
        fix="get the file again unchanged, or prepare it as your own text: gptwright prepare FILE --out DIR",
    )
