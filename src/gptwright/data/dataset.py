"""A token dataset on disk, opened for reading: ours, or a data/NAME folder of nanoGPT.

Shards are memory-mapped, so opening costs nothing and a dataset may be larger than memory. nanoGPT's meta.pkl
is read without unpickling; where there is none, nanoGPT assumes GPT-2's BPE, and so does this, saying so.

The fingerprint tells a resumed run whether the dataset is still the same. It hashes all of a shard up to
64 MiB and 64 blocks spread over a larger one, so it takes well under a second; `verify` reads every byte.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gptwright.data.headed import HEADER_BYTES, HeadedShard, headed_shards
from gptwright.data.locate import NANOGPT_TRAIN, locate
from gptwright.data.manifest import MANIFEST_NAME, Manifest, read_manifest
from gptwright.data.nanogpt_meta import META_NAME, meta_fields, tokenizer_of_meta
from gptwright.data.splits import Shard, TokenSplit, check_ids, map_shard, require_windows
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.data.tokenizers import Gpt2Tokenizer, load_tokenizer
from gptwright.errors import DataError, typed

__all__ = [
    "Shard",
    "TokenDataset",
    "TokenSplit",
    "check_ids",
    "open_dataset",
    "reopen_dataset",
    "require_windows",
]

# Meta's tokenizer of Llama 3: 128,000 merges and bytes, 256 special ids.
LLAMA3_VOCAB_SIZE = 128_256

_WHOLE_BYTES = 64 * 1024 * 1024
_SAMPLED_BLOCKS = 64
_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class TokenDataset:
    """An open dataset.

    Attributes:
        name: the folder's name.
        folder: where it is.
        splits: `train` and `val`.
        vocab_size: how many ids its tokenizer has.
        vocab_origin: where that number comes from, in words.
        assumed: whether the tokenizer is a guess, because nothing in the folder names it.
        tokenizer_kind: `char`, `byte`, `gpt2`, `bpe`, or `unknown` where only a size is given.
        tokenizer_sha256: the tokenizer's identity; empty if unknown.
        manifest: the manifest, or None for a folder of nanoGPT.
    """

    name: str
    folder: Path
    splits: dict[str, TokenSplit]
    vocab_size: int
    vocab_origin: str
    assumed: bool
    tokenizer_kind: str
    tokenizer_sha256: str
    manifest: Manifest | None

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids.

        Raises:
            DataError: it is missing, was changed, or the folder does not say which it was.
        """
        if self.manifest is not None:
            made = load_tokenizer(self.folder / self.manifest.tokenizer.file)
            if made.sha256 != self.tokenizer_sha256:
                raise DataError(
                    f"{self.folder / self.manifest.tokenizer.file} is not the tokenizer of this dataset:"
                    f" sha256 {made.sha256[:12]}…, the manifest says {self.tokenizer_sha256[:12]}…",
                    why="ids would be read as other text",
                    fix="copy the whole folder again, or prepare the dataset again",
                )
            return made
        if self.tokenizer_kind == "char":
            return tokenizer_of_meta(self.folder / META_NAME)
        if self.tokenizer_kind == "gpt2":
            return Gpt2Tokenizer()
        if not (self.folder / META_NAME).exists():
            raise DataError(
                f"{self.folder} does not say which tokenizer made its {self.vocab_size:,} ids",
                why="text cannot be encoded or decoded without it; training works",
                fix=f"gptwright prepare {typed(self.folder)} --tokenizer FILE",
            )
        raise DataError(
            f"{self.folder / META_NAME} gives a vocabulary size ({self.vocab_size}) but no vocabulary",
            why="text cannot be encoded or decoded without it; training works",
            fix=f"add 'itos' and 'stoi' to {META_NAME}, as nanoGPT's data/shakespeare_char/prepare.py does",
        )

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the ids and the tokenizer: equal for equal datasets, wherever they lie."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{self.vocab_size} {self.tokenizer_sha256}\n".encode())
        for name, split in sorted(self.splits.items()):
            for shard in split.shards:
                digest.update(f"{name} {shard.path.name} {shard.ids.nbytes}\n".encode())
                for block in _sampled(shard):
                    digest.update(block)
        return digest.hexdigest()

    def verify(self) -> int:
        """Reads every byte: hashes against the manifest where there is one, ids against the vocabulary.

        Returns:
            How many bytes of ids were read.

        Raises:
            DataError: a shard, an id or the tokenizer is not what it should be.
        """
        if self.manifest is not None:
            self.tokenizer()
            for name, record in self.manifest.splits.items():
                for shard, wanted in zip(self.splits[name].shards, record.shards, strict=True):
                    _check_hash(shard, wanted.sha256)
        for split in self.splits.values():
            check_ids(split, self.vocab_size, scan_bytes=None)
        return sum(shard.ids.nbytes for split in self.splits.values() for shard in split.shards)


def open_dataset(dataset: str, *, root: Path = Path()) -> TokenDataset:
    """Opens a dataset by its name under `root/data`, or by its path.

    Raises:
        DataError: it is missing, incomplete or damaged.
    """
    folder = locate(dataset, root)
    if (folder / MANIFEST_NAME).is_file():
        return _open_ours(folder)
    shards = headed_shards(folder)
    return _open_headed(folder, shards) if shards else _open_nanogpt(folder)


def reopen_dataset(dataset: str) -> TokenDataset:
    """Opens what a run was trained on, by the name or path that the run has for it.

    Raises:
        DataError: it is incomplete or damaged; or it is gone, and no other one made of some text replaces it.
    """
    try:
        return open_dataset(dataset)
    except DataError as error:
        if Path(dataset).exists() or (Path("data") / dataset).exists():
            raise
        raise DataError(
            error.problem,
            why="the run was trained on it, and another one is not what it knows",
            fix="if it was moved or renamed: --dataset=FOLDER with its new place",
        ) from None


def _open_ours(folder: Path) -> TokenDataset:
    manifest = read_manifest(folder)
    splits = {
        str(name): TokenSplit(
            name=name,
            shards=tuple(
                map_shard(
                    folder / shard.file,
                    manifest.dtype,
                    expected_tokens=shard.tokens,
                    header_bytes=shard.header_bytes,
                )
                for shard in record.shards
            ),
            vocab_size=manifest.vocab_size,
            text_bytes=record.text_bytes,
        )
        for name, record in manifest.splits.items()
    }
    return TokenDataset(
        name=folder.resolve().name,
        folder=folder,
        splits=splits,
        vocab_size=manifest.vocab_size,
        vocab_origin=f"{MANIFEST_NAME} of {folder.as_posix()}: {manifest.tokenizer.kind} tokenizer",
        assumed=False,
        tokenizer_kind=manifest.tokenizer.kind,
        tokenizer_sha256=manifest.tokenizer.sha256,
        manifest=manifest,
    )


def _open_headed(folder: Path, shards: dict[str, list[HeadedShard]]) -> TokenDataset:
    gpt2 = shards["train"][0].dtype == "uint16"
    made = Gpt2Tokenizer()
    vocab_size = made.vocab_size if gpt2 else LLAMA3_VOCAB_SIZE
    splits = {
        name: TokenSplit(
            name=name,
            shards=tuple(
                map_shard(part.path, part.dtype, expected_tokens=part.tokens, header_bytes=HEADER_BYTES)
                for part in parts
            ),
            vocab_size=vocab_size,
            text_bytes=None,
        )
        for name, parts in shards.items()
    }
    return TokenDataset(
        name=folder.resolve().name,
        folder=folder,
        splits=splits,
        vocab_size=vocab_size,
        vocab_origin=f"headers of {folder.as_posix()}: llm.c's format for {'GPT-2' if gpt2 else 'Llama 3'}",
        assumed=False,
        tokenizer_kind="gpt2" if gpt2 else "unknown",
        tokenizer_sha256=made.sha256 if gpt2 else "",
        manifest=None,
    )


def _open_nanogpt(folder: Path) -> TokenDataset:
    meta = folder / META_NAME
    if not meta.is_file():
        kind, made = "gpt2", Gpt2Tokenizer()
        vocab_size, identity = made.vocab_size, made.sha256
        origin = f"assumed: {folder.as_posix()} has no {META_NAME}, for which nanoGPT means GPT-2's BPE"
    elif "itos" in (fields := meta_fields(meta)):
        kind, characters = "char", tokenizer_of_meta(meta)
        vocab_size, identity = characters.vocab_size, characters.sha256
        origin = f"{META_NAME} of {folder.as_posix()}"
    else:
        kind, vocab_size, identity = "unknown", fields["vocab_size"], ""
        origin = f"{META_NAME} of {folder.as_posix()}, which has no vocabulary"
    splits = {
        name: TokenSplit(
            name=name,
            shards=(map_shard(folder / file, "uint16", expected_tokens=None),),
            vocab_size=vocab_size,
            text_bytes=None,
        )
        for name, file in (("train", NANOGPT_TRAIN), ("val", "val.bin"))
    }
    return TokenDataset(
        name=folder.resolve().name,
        folder=folder,
        splits=splits,
        vocab_size=vocab_size,
        vocab_origin=origin,
        assumed=not meta.is_file(),
        tokenizer_kind=kind,
        tokenizer_sha256=identity,
        manifest=None,
    )


def _sampled(shard: Shard) -> Iterator[bytes]:
    raw = shard.ids.view("u1")
    if len(raw) <= _WHOLE_BYTES:
        yield raw.tobytes()
        return
    last = len(raw) - _BLOCK_BYTES
    for index in range(_SAMPLED_BLOCKS):
        start = last * index // (_SAMPLED_BLOCKS - 1)
        yield raw[start : start + _BLOCK_BYTES].tobytes()


def _check_hash(shard: Shard, wanted: str) -> None:
    with shard.path.open("rb") as file:
        seen = hashlib.file_digest(file, "sha256").hexdigest()
    if seen != wanted:
        raise DataError(
            f"shard {shard.path} has changed: sha256 {seen[:12]}…, the manifest says {wanted[:12]}…",
            why="training would silently read other data than was prepared",
            fix="copy the file again, or prepare the dataset again with `gptwright prepare`",
        )
