"""What a worker says about its unit: small files of JSON that make its work count as done.

They are written last and in one step, after what they describe is on the disk, so that a kill leaves a unit
done or not done. Each holds the hash of what it describes; a second run verifies it before it believes it.
"""

import hashlib
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gptwright.data.sources.corpus import Tally
from gptwright.data.stretches import SplitName
from gptwright.files import replace_text

Record = TypeVar("Record", bound="UnitRecord")


class UnitRecord(BaseModel):
    """What every record has: the number of its unit, and what the reading of it counted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int
    tally: Tally


class SurveyRecord(UnitRecord):
    """The first reading of a unit.

    Attributes:
        characters: how many there are.
        alphabet: the different ones, where a character tokenizer will be made; else empty.
        sha256: of the table of pieces.
        sketches_sha256: of the signatures and of the bands, where near-duplicates are looked for.
    """

    characters: int
    alphabet: str
    sha256: str
    sketches_sha256: tuple[str, str] | None = None


class PartSide(BaseModel):
    """What a unit gives to one split; `starts` counts the stretches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int = 0
    starts: int = 0
    text_bytes: int = 0
    max_id: int = 0
    sha256: str = hashlib.sha256().hexdigest()


class PartRecord(UnitRecord):
    """The ids of a unit.

    Attributes:
        sides: of each split; `train` may end early because enough was there.
        goes_on: the side on which it may go on with what the unit before it ended with, else None.
        last: the side of its last stretch, whose separator is not written yet.
        cut: whether the training side ends early, because no more of it is needed.
    """

    sides: Annotated[dict[SplitName, PartSide], Field(min_length=2)]
    goes_on: SplitName | None
    last: SplitName | None
    cut: bool


def write_record(path: Path, record: UnitRecord) -> None:
    """Writes a record in one step."""
    replace_text(path, record.model_dump_json())


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """A record that was written; None where there is none or it cannot be read."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def hash_file(path: Path) -> str:
    """The sha256 of a file; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
