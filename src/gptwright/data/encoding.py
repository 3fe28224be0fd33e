"""Encodes the units that are not done, in several processes, and puts all together in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gptwright.data.assemble import Assembly
from gptwright.data.encode import EncodeTask, encode_unit
from gptwright.data.manifest import Dtype, SplitRecord
from gptwright.data.pool import each_result
from gptwright.data.sources.corpus import Unit
from gptwright.data.stretches import SplitName
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.data.unit_records import PartRecord, SurveyRecord, read_record
from gptwright.data.work import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The second reading of a corpus.

    Attributes:
        corpus: its name, for messages.
        units: what is read.
        records: what the first reading saw of each.
        space: where the ids go.
        tokenizer: makes them.
        dtype: how an id is stored.
        limit: the largest hash of the validation side.
        piece_size: documents are cut into pieces of this size; None keeps them whole.
        max_train_tokens: where the training split ends, or None for no limit.
        workers: how many processes.
        progress: told the size of each unit that is done, and how many tokens there are.
    """

    corpus: str
    units: Sequence[Unit]
    records: Sequence[SurveyRecord]
    space: Workspace
    tokenizer: Tokenizer
    dtype: Dtype
    limit: bytes
    piece_size: int | None
    max_train_tokens: int | None
    workers: int
    progress: Callable[[int, int], None]

    def run(self) -> dict[SplitName, SplitRecord]:
        """Encodes what no earlier run has encoded, and returns what was written in all."""
        assembly = Assembly(
            self.space, self.tokenizer, self.dtype, self.tokenizer.separator_id, self.max_train_tokens
        )
        ready = {record.index: record for record in assembly.usable(self._earlier())}
        for index in ready:
            self.progress(self.units[index].size, 0)
        left = [index for index in range(len(self.units)) if index not in ready]
        # A task is made when it is handed out, so that it knows how much is still needed then.
        tasks = (self._task(index, assembly.train_room) for index in left)
        results = each_result(encode_unit, tasks, workers=min(self.workers, max(1, len(left))))
        try:
            for place in range(len(self.units)):
                while place not in ready:
                    record = next(results)
                    ready[record.index] = record
                    self.progress(self.units[record.index].size, sum(assembly.tokens.values()))
                assembly.add(ready.pop(place))
            return assembly.finish()
        finally:
            results.close()
            assembly.close()

    def _earlier(self) -> list[PartRecord]:
        paths = (self.space.unit_path(index, "part.json") for index in range(len(self.units)))
        return [record for path in paths if (record := read_record(path, PartRecord)) is not None]

    def _task(self, index: int, train_room: int | None) -> EncodeTask:
        return EncodeTask(
            index=index,
            unit=self.units[index],
            corpus=self.corpus,
            space=self.space,
            tokenizer_sha256=self.tokenizer.sha256,
            dtype=self.dtype,
            separator_id=self.tokenizer.separator_id,
            limit=self.limit,
            piece_size=self.piece_size,
            lines=tuple(self.records[index].tally.lines),
            train_room=train_room,
        )
