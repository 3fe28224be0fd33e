"""Gives a folder of token ids that came from elsewhere a manifest, in place: nothing is copied or changed.

nanoGPT's train.bin and val.bin, and the shards of llm.c and modded-nanogpt, are read once: hashed, checked
against the vocabulary, counted. The split stays as it was given.
"""

import hashlib
from pathlib import Path

import numpy as np

import gptwright
from gptwright.data.dataset import TokenDataset, open_dataset
from gptwright.data.folder import TOKENIZER_NAME, write_durably
from gptwright.data.manifest import (
    DATASET_SCHEMA,
    MANIFEST_NAME,
    Dtype,
    Manifest,
    SettingsRecord,
    ShardRecord,
    SourceRecord,
    SplitRecord,
    TokenizerRecord,
    ValidationRecord,
    read_manifest,
)
from gptwright.data.prepared import WINDOW_LENGTHS, PrepareReport, certainty, report_of
from gptwright.data.splits import Shard, check_ids
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.data.tokenizers import Gpt2Tokenizer, load_tokenizer
from gptwright.data.unit_records import hash_file
from gptwright.errors import DataError
from gptwright.facts import Fact, Origin

_CHUNK_TOKENS = 4 * 1024 * 1024


def describe_in_place(folder: Path, *, tokenizer: str | None = None) -> PrepareReport:
    """Writes the manifest and the tokenizer of a folder of ids, or reads the manifest that it has.

    Args:
        folder: what `open_dataset` opens.
        tokenizer: `gpt2` or a tokenizer file, where the folder does not say which it was.

    Raises:
        DataError: the ids are damaged, or no tokenizer is known for them.
    """
    dataset = open_dataset(str(folder.resolve()))
    if dataset.manifest is not None:
        kept = dataset.manifest.settings.tokenizer
        return report_of(folder, _choice(kept, Origin.CONFIGURED, "as it was prepared"), dataset.manifest)
    made, choice = _tokenizer(dataset, tokenizer)
    _check_fits(dataset, made)
    for split in dataset.splits.values():
        check_ids(split, made.vocab_size, scan_bytes=None)
    manifest = _manifest(dataset, made)
    write_durably(folder / TOKENIZER_NAME, made.to_bytes())
    write_durably(folder / MANIFEST_NAME, manifest.to_json().encode("utf-8"))
    return report_of(folder, choice, read_manifest(folder))


def _tokenizer(dataset: TokenDataset, asked: str | None) -> tuple[Tokenizer, Fact]:
    if asked is None:
        origin = Origin.ASSUMED if dataset.assumed else Origin.DERIVED
        return dataset.tokenizer(), _choice(dataset.tokenizer_kind, origin, dataset.vocab_origin)
    made = Gpt2Tokenizer() if asked == "gpt2" else load_tokenizer(Path(asked))
    return made, _choice(asked, Origin.CONFIGURED, "as asked")


def _choice(value: str, origin: Origin, reason: str) -> Fact:
    return Fact(name="tokenizer", value=value, text=value, origin=origin, reason=reason)


def _check_fits(dataset: TokenDataset, made: Tokenizer) -> None:
    dtype = dataset.splits["train"].shards[0].ids.dtype
    if made.vocab_size > 2 ** (8 * dtype.itemsize):
        raise DataError(
            f"a vocabulary of {made.vocab_size:,} ids does not fit the {dtype.name} of {dataset.folder}",
            why="ids above 65,535 cannot be in these files, so another tokenizer made them",
            fix="--tokenizer with the one that made them",
        )


def _manifest(dataset: TokenDataset, made: Tokenizer) -> Manifest:
    splits = {name: _split(dataset, name, made) for name in ("train", "val")}
    val = splits["val"]
    windows = {str(length): max(0, val.tokens - 1) // length for length in WINDOW_LENGTHS}
    lines = [f"{shard.sha256}  {shard.file}\n" for split in splits.values() for shard in split.shards]
    source = SourceRecord(
        name=dataset.name,
        bytes=sum(split.text_bytes for split in splits.values()),
        sha256=hashlib.sha256("".join(lines).encode()).hexdigest(),
        documents=sum(split.documents for split in splits.values()),
        skipped=[],
    )
    dtype: Dtype = "uint16" if dataset.splits["train"].shards[0].ids.itemsize == 2 else "uint32"
    return Manifest(
        schema=DATASET_SCHEMA,
        created_by=f"gptwright {gptwright.__version__}",
        settings=SettingsRecord(source=dataset.name, tokenizer=made.kind, split="given", max_tokens=None),
        tokenizer=TokenizerRecord(kind=made.kind, file=TOKENIZER_NAME, sha256=made.sha256),
        vocab_size=made.vocab_size,
        dtype=dtype,
        byte_order="little",
        separator_id=made.separator_id,
        characters=0,
        splits={"train": splits["train"], "val": val},
        validation=ValidationRecord(
            method="given",
            fraction_asked=val.tokens / max(1, sum(split.tokens for split in splits.values())),
            hash=None,
            documents=val.documents,
            tokens=val.tokens,
            windows=windows,
            standard_error_note=certainty(windows, "given"),
            drawn="documents",
        ),
        sources=[source],
    )


def _split(dataset: TokenDataset, name: str, made: Tokenizer) -> SplitRecord:
    sizes = np.array([len(made.decode_bytes([token])) for token in range(made.vocab_size)], dtype=np.int64)
    if made.separator_id is not None:
        sizes[made.separator_id] = 0
    records, text_bytes = [], 0
    for shard in dataset.splits[name].shards:
        record, size = _shard(shard, made.separator_id, sizes)
        records.append(record)
        text_bytes += size
    return SplitRecord(
        tokens=sum(record.tokens for record in records),
        documents=sum(record.documents for record in records),
        text_bytes=text_bytes,
        shards=records,
    )


def _shard(shard: Shard, separator_id: int | None, sizes: np.ndarray) -> tuple[ShardRecord, int]:
    separators = largest = text_bytes = 0
    for start in range(0, len(shard.ids), _CHUNK_TOKENS):
        chunk = shard.ids[start : start + _CHUNK_TOKENS]
        largest = max(largest, int(chunk.max()))
        text_bytes += int(sizes[chunk].sum())
        if separator_id is not None:
            separators += int(np.count_nonzero(chunk == separator_id))
        shard.release()
    record = ShardRecord(
        file=shard.path.name,
        tokens=len(shard.ids),
        documents=max(separators, int(len(shard.ids) > 0)),
        sha256=hash_file(shard.path),
        max_id=largest,
        header_bytes=shard.header_bytes,
    )
    return record, text_bytes
