"""The first reading of a corpus: everything is counted and hashed, nothing is kept.

Workers read unit by unit and leave a table of hashes each; from the tables follow the duplicates and the
validation split (`draw`). Cost: 40 bytes of disk a document, and some 3 % of the time that encoding takes.
Where near-duplicates are looked for, a sketch of each document is left too (`sketch`).

Validation is a tenth at most, and a million tokens if possible: the standard error of a mean over N windows
falls with the root of N, and at a million tokens (some thousand windows of 1,024) it is 3 % of the spread
between windows.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np

from gptwright.data.draw import PIECE_ROW, Rows, Table, rows_of
from gptwright.data.pieces import content_hash, cut
from gptwright.data.pool import each_result
from gptwright.data.sketch import Sketches, SketchWriter
from gptwright.data.sources.corpus import Document, Tally, Unit
from gptwright.data.unit_records import SurveyRecord, hash_file, read_record, write_record
from gptwright.data.work import Workspace
from gptwright.files import sync_file

_VALIDATION_TOKENS = 1_000_000
_SMALLEST_FRACTION = 0.0005
_LARGEST_FRACTION = 0.1
# More than any vocabulary reaches: GPT-2's BPE has 4.7 on FineWeb-Edu, one of 200,000 ids about 5. Where it
# is less, validation gets more tokens than asked, never fewer.
_MOST_BYTES_PER_TOKEN = 6
# What is usual, for estimates of size.
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """What a worker needs to survey a unit.

    Attributes:
        index: the number of the unit.
        unit: what is read.
        space: where the tables go.
        piece_size: documents are cut into pieces of this size; None keeps them whole.
        alphabet: whether the different characters are needed.
        near: how alike near-duplicates are at least; None if they are not looked for.
    """

    index: int
    unit: Unit
    space: Workspace
    piece_size: int | None
    alphabet: bool
    near: float | None


@dataclass(slots=True)
class Survey:
    """What the first reading found.

    Attributes:
        tally: of everything, what could not become a unit included.
        characters: how many there are.
        alphabet: the different ones, sorted, if they were asked for.
        records: one a unit.
        tables: one a unit.
        sketches: one a unit, where near-duplicates are looked for; else none.
    """

    tally: Tally = field(default_factory=Tally)
    characters: int = 0
    alphabet: str = ""
    records: list[SurveyRecord] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    sketches: list[Sketches] = field(default_factory=list)

    def estimated_tokens(self, spec: str, *, bytes_per_token: float = _BYTES_PER_TOKEN) -> float:
        """How many tokens the corpus will be; exact for characters and bytes."""
        if spec == "char":
            return max(1, self.characters)
        return max(1, self.tally.bytes / (1 if spec == "byte" else bytes_per_token))

    def validation_fraction(self, spec: str) -> float:
        """The share of the bytes that validation is asked to have."""
        tokens = self.estimated_tokens(spec, bytes_per_token=_MOST_BYTES_PER_TOKEN)
        return min(_LARGEST_FRACTION, max(_VALIDATION_TOKENS / tokens, _SMALLEST_FRACTION))


def survey(
    units: list[Unit],
    space: Workspace,
    *,
    planned: Tally,
    piece_size: int | None,
    alphabet: bool,
    near: float | None,
    workers: int,
    progress: Callable[[int], None],
) -> Survey:
    """Reads every unit that was not surveyed by an earlier run.

    Args:
        units: the corpus.
        space: where the tables go.
        planned: what was left out before there were units.
        piece_size: documents are cut into pieces of this size; None keeps them whole.
        alphabet: whether the different characters are needed.
        near: how alike near-duplicates are at least; None if they are not looked for.
        workers: how many processes.
        progress: told the size of each unit that is done.
    """
    records: dict[int, SurveyRecord] = {}
    tasks = []
    for index, unit in enumerate(units):
        task = SurveyTask(index, unit, space, piece_size, alphabet, near)
        record = _done(task)
        if record is None:
            tasks.append(task)
        else:
            records[index] = record
            progress(unit.size)
    for record in each_result(survey_unit, iter(tasks), workers=min(workers, max(1, len(tasks)))):
        records[record.index] = record
        progress(units[record.index].size)
    return _merged(planned, [records[index] for index in range(len(units))], space)


def _done(task: SurveyTask) -> SurveyRecord | None:
    record = read_record(task.space.unit_path(task.index, "survey.json"), SurveyRecord)
    if record is None or hash_file(_table(task.space, task.index).pieces) != record.sha256:
        return None
    if task.near is not None and _hashes(_sketches(task.space, task.index)) != record.sketches_sha256:
        return None
    return record


def _merged(planned: Tally, records: list[SurveyRecord], space: Workspace) -> Survey:
    tally = replace(planned, skipped=list(planned.skipped), lines=list(planned.lines))
    found = Survey(tally=tally, records=records)
    characters: set[str] = set()
    for record in records:
        tally.merge(record.tally)
        found.characters += record.characters
        characters.update(record.alphabet)
        found.tables.append(_table(space, record.index))
        if record.sketches_sha256 is not None:
            found.sketches.append(_sketches(space, record.index))
    found.alphabet = "".join(sorted(characters))
    return found


def survey_unit(task: SurveyTask) -> SurveyRecord:
    """Surveys one unit and leaves its tables and record on the disk."""
    tally = Tally()
    counted = _Counted(task.piece_size, alphabet=task.alphabet)
    sketches = _sketches(task.space, task.index)
    with nullcontext() if task.near is None else SketchWriter(sketches, task.near) as sketching:
        for document in task.unit.read(tally):
            counted.add(document)
            if sketching is not None:
                sketching.add(document.text)
        if sketching is not None:
            sketching.finish()
    table = _table(task.space, task.index)
    np.save(table.documents, counted.document_rows(), allow_pickle=False)
    np.save(table.pieces, counted.piece_rows(), allow_pickle=False)
    sync_file(table.documents)
    sync_file(table.pieces)
    record = SurveyRecord(
        index=task.index,
        tally=tally,
        characters=counted.characters,
        alphabet="".join(sorted(counted.alphabet)),
        sha256=hash_file(table.pieces),
        sketches_sha256=None if task.near is None else _hashes(sketches),
    )
    write_record(task.space.unit_path(task.index, "survey.json"), record)
    return record


class _Counted:
    """Hashes, sizes and characters of the documents of a unit."""

    def __init__(self, piece_size: int | None, *, alphabet: bool) -> None:
        self.characters = 0
        self.alphabet: set[str] = set()
        self._wants_alphabet = alphabet
        self._piece_size = piece_size
        self._documents: list[bytes] = []
        self._pieces: list[bytes] = []
        self._sizes: list[int] = []
        self._owners: list[int] = []

    def add(self, document: Document) -> None:
        text = document.text
        self.characters += len(text)
        if self._wants_alphabet:
            self.alphabet.update(text)
        pieces = [text] if self._piece_size is None else cut(text, self._piece_size)
        for piece in pieces:
            encoded = piece.encode("utf-8")
            self._pieces.append(content_hash(encoded))
            self._sizes.append(len(encoded))
            self._owners.append(len(self._documents))
        whole = self._pieces[-1] if len(pieces) == 1 else content_hash(text.encode("utf-8"))
        self._documents.append(whole)

    def document_rows(self) -> Rows:
        return rows_of(self._documents)

    def piece_rows(self) -> Rows:
        rows = np.empty(len(self._pieces), dtype=PIECE_ROW)
        keys = rows_of(self._pieces)
        rows["high"], rows["low"] = keys["high"], keys["low"]
        rows["bytes"], rows["document"] = self._sizes, self._owners
        return rows


def _table(space: Workspace, index: int) -> Table:
    return Table(space.unit_path(index, "documents.npy"), space.unit_path(index, "pieces.npy"))


def _sketches(space: Workspace, index: int) -> Sketches:
    return Sketches(space.unit_path(index, "signatures"), space.unit_path(index, "bands.npy"))


def _hashes(sketches: Sketches) -> tuple[str, str]:
    return hash_file(sketches.signatures), hash_file(sketches.bands)
