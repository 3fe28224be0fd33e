"""A program of one's own hears a run: every record and every step, in order."""

from pathlib import Path

from gptwright.config.load import load_config
from gptwright.record.metrics import Record, read_metrics
from gptwright.train.listeners import Listeners
from gptwright.train.run import prepare_new, train_prepared


class Mine:
    """What a person would write."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.steps: list[int] = []

    def recorded(self, record: Record) -> None:
        self.records.append(record)

    def stepped(self, step: int) -> None:
        self.steps.append(step)


def test_every_listener_hears_everything(tmp_path: Path, tiny: dict[str, str]) -> None:
    first, second = Mine(), Mine()
    prepared = prepare_new(load_config([], tiny | {"out_dir": str(tmp_path / "run")}))
    train_prepared(prepared, Listeners(first, second))
    assert first.records == second.records == read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert first.steps == second.steps == list(range(24))
