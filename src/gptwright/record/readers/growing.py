"""Our own record as evidence while it grows: what is new is added, and nothing is read twice.

The evidence is the one that `read_log` makes of the same file, by the same passage; making the tables of a
million rows takes about half a second, however few of them are new.
"""

from gptwright.record.evidence import LogEvidence
from gptwright.record.readers.ours import METRICS
from gptwright.record.readers.passage import Passage
from gptwright.record.readers.read import evidence_of


class GrowingRecord:
    """A `metrics.jsonl`, line by line.

    Args:
        name: the file, as the evidence names it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._passage = Passage(METRICS, 0)
        self._number = 1

    def add(self, lines: bytes) -> None:
        """Takes the next whole lines."""
        self._number = self._passage.block(lines.decode("utf-8", "replace"), self._number, torn=False)

    def evidence(self) -> LogEvidence | None:
        """What the record says so far; None before its first row."""
        build = self._passage.build
        if not build.has_rows():
            return None
        return evidence_of(self.name, lines_read=self._number - 1, hazards={}, reader=METRICS, build=build)
