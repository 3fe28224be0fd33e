"""manifest.json: what a token dataset holds, and where it came from.

It is read before anything else and trusted for nothing: names must be plain, so that a dataset cannot point
outside its folder, and sizes are compared with the files before they are mapped.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from gptwright.errors import DataError

DATASET_SCHEMA = "gptwright.dataset/1"
MANIFEST_NAME = "manifest.json"
_LARGEST_FILE = 16 * 1024 * 1024

Dtype = Literal["uint16", "uint32"]
# `given`: the dataset came with its split.
SplitMethod = Literal["hash", "nanogpt", "given"]


def _plain_name(name: str) -> str:
    if not name or name in (".", "..") or set(name) & set("/\\:\0"):
        raise ValueError("must be a plain file name, without a folder")
    return name


PlainName = Annotated[str, AfterValidator(_plain_name)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ShardRecord(_Record):
    """One file of ids; `header_bytes` lie before them, in shards of llm.c and modded-nanogpt."""

    file: PlainName
    tokens: NonNegativeInt
    documents: NonNegativeInt
    sha256: Sha256
    max_id: NonNegativeInt
    header_bytes: NonNegativeInt = 0


class SplitRecord(_Record):
    """One side of the dataset; `text_bytes` is the UTF-8 size of what its ids encode, for bits per byte."""

    tokens: NonNegativeInt
    documents: NonNegativeInt
    text_bytes: NonNegativeInt
    shards: list[ShardRecord]


class TokenizerRecord(_Record):
    """The tokenizer's kind, its file in the folder and that file's hash."""

    kind: Literal["char", "byte", "gpt2", "bpe", "tiktoken"]
    file: PlainName
    sha256: Sha256


class SkippedRecord(_Record):
    """A source file or record that was left out."""

    name: str
    reason: str


class SourceRecord(_Record):
    """Where the text came from; see `Tally.sha256` for what the hash of several files is.

    Attributes:
        name: what was asked for.
        bytes: of text.
        sha256: of what was read.
        documents: that have text and fulfil the conditions, duplicates among them.
        skipped: what was left out because it is broken, the first thousand by name.
        bad: how many those are in all.
        filtered: records that a condition left out.
        empty: records without text.
        duplicates: documents whose text occurred before; they are not in the dataset.
        near_duplicates: documents that are much like one before them; they are not in the dataset either.
        duplicate_bytes: the size of both.
    """

    name: str
    bytes: NonNegativeInt
    sha256: Sha256
    documents: NonNegativeInt
    skipped: list[SkippedRecord]
    bad: NonNegativeInt = 0
    filtered: NonNegativeInt = 0
    empty: NonNegativeInt = 0
    duplicates: NonNegativeInt = 0
    near_duplicates: NonNegativeInt = 0
    duplicate_bytes: NonNegativeInt = 0


class ValidationRecord(_Record):
    """How the validation split was drawn, and how sure an evaluation on it can be.

    `windows` maps a window length in tokens to how many such windows fit without overlap. `drawn` says what
    has a side: whole documents, or pieces of long ones too. `overlap` is how many training documents (or
    pieces) are validation documents as well, counted in what was written; None where that was not counted.
    """

    method: SplitMethod
    fraction_asked: float
    hash: Literal["blake2b-128 of the piece", "blake2b-128 of the document"] | None
    documents: NonNegativeInt
    tokens: NonNegativeInt
    windows: dict[str, int]
    standard_error_note: str
    drawn: Literal["documents", "pieces"] = "pieces"
    overlap: NonNegativeInt | None = None


class SettingsRecord(_Record):
    """What `prepare` was asked; the same settings may replace a dataset, others may not."""

    source: str
    tokenizer: str
    split: SplitMethod
    max_tokens: int | None
    text_column: str | None = None
    where: list[str] = []
    near_duplicates: float | None = None


class Manifest(_Record):
    """The whole file."""

    schema_: Literal["gptwright.dataset/1"] = Field(alias="schema")
    created_by: str
    settings: SettingsRecord
    tokenizer: TokenizerRecord
    vocab_size: Annotated[int, Field(ge=1, le=2**32)]
    dtype: Dtype
    byte_order: Literal["little"]
    separator_id: NonNegativeInt | None
    characters: NonNegativeInt
    splits: dict[Literal["train", "val"], SplitRecord]
    validation: ValidationRecord
    sources: list[SourceRecord]

    def to_json(self) -> str:
        """The file's text."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """Reads and checks a folder's manifest.

    Raises:
        DataError: it cannot be read, is not JSON, or a field is missing, unknown or impossible.
    """
    path = folder / MANIFEST_NAME
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise _unreadable(path, "it is larger than 16 MiB")
        manifest = Manifest.model_validate_json(content)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        shown = f"; seen: {str(first['input'])[:80]!r}" if where else ""
        raise _unreadable(path, f"{where + ': ' if where else ''}{first['msg']}{shown}") from None
    _check_consistent(path, manifest)
    return manifest


def _check_consistent(path: Path, manifest: Manifest) -> None:
    missing = {"train", "val"} - set(manifest.splits)
    if missing:
        raise _unreadable(path, f"it has no split {', '.join(sorted(missing))}")
    for name, split in manifest.splits.items():
        total = sum(shard.tokens for shard in split.shards)
        if total != split.tokens:
            raise _unreadable(path, f"split {name} says {split.tokens} tokens, its shards {total}")
    if manifest.dtype == "uint16" and manifest.vocab_size > 2**16:
        raise _unreadable(path, f"a vocabulary of {manifest.vocab_size} does not fit uint16")


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(
        f"manifest {path} cannot be used: {reason}",
        why="without it the dataset's ids have no meaning",
        fix="prepare the dataset again with `gptwright prepare`",
    )
