"""Loggers are views of the record: what they hold is what it says, and none of them can hurt a run."""

import json
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.record.metrics import MetricsFile, Record, read_metrics
from gptwright.report.loggers import views
from gptwright.report.loggers.scalars import scalars
from gptwright.report.loggers.views import Views, ViewThread
from tests.conftest import Answer, as_arguments

Command = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B writes files and reaches for nothing; what reaches out all the same finds no network."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def expected(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What a logger of this run has to hold: by tag, step and value."""
    tags: dict[str, list[tuple[int, float]]] = {}
    for record in read_metrics(run / "metrics.jsonl"):
        for name, value in scalars(record).items():
            tags.setdefault(name, []).append((record["step"], value))
    return tags


def in_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]
    }


def in_wandb(folder: Path) -> Iterator[Any]:
    """The records of an offline run: LevelDB's log format behind a header of seven bytes."""
    # The module's stub is written for another version of protobuf than is installed.
    from wandb.proto.wandb_internal_pb2 import Record as WandbRecord  # type: ignore[attr-defined]

    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, place, held = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        held += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield WandbRecord.FromString(held)
            held = b""


def same(seen: dict[str, list[tuple[int, float]]], wanted: dict[str, list[tuple[int, float]]]) -> None:
    assert seen.keys() == wanted.keys()
    for tag, values in wanted.items():
        assert [step for step, _ in seen[tag]] == [step for step, _ in values], tag
        # Event files hold single precision.
        assert [value for _, value in seen[tag]] == pytest.approx([value for _, value in values], rel=1e-6)


def test_tensorboard_and_wandb_hold_what_the_record_says(
    tmp_path: Path, tiny: dict[str, str], gptwright: Command
) -> None:
    run = tmp_path / "my run"
    options = as_arguments(tiny | {"out_dir": str(run), "wandb_project": "letters"})
    answer = gptwright("train", *options, "--wandb_log=True", "--tensorboard")
    assert answer.status == 0, answer.err
    assert "warning" not in answer.out
    wanted = expected(run)
    assert {"train/loss", "val/loss", "train/step_loss", "lr", "mfu"} <= wanted.keys()
    same(in_tensorboard(run / "tensorboard"), wanted)
    logged: dict[str, list[tuple[int, float]]] = {}
    for record in in_wandb(run):
        if record.WhichOneof("record_type") == "run":
            assert (record.run.project, record.run.display_name) == ("letters", "my run")
        if record.WhichOneof("record_type") == "history":
            items = {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in record.history.item}
            for name, value in items.items():
                if name != "iter" and not name.startswith("_"):
                    logged.setdefault(name, []).append((int(items["iter"]), value))
    same(logged, wanted)


def test_a_resumed_run_has_every_step_once(tmp_path: Path, tiny: dict[str, str], gptwright: Command) -> None:
    run = tmp_path / "run"
    assert gptwright("train", *as_arguments(tiny | {"out_dir": str(run)}), "--tensorboard=True").status == 0
    answer = gptwright("resume", str(run), "--max_iters=32", "--lr_decay_iters=32", "--allow-lr-jump")
    assert answer.status == 0, answer.err
    wanted = expected(run)
    assert wanted["lr"][-1][0] == 31
    same(in_tensorboard(run / "tensorboard"), wanted)
    # Taken away and made again from the record, it is the same.
    for file in (run / "tensorboard").iterdir():
        file.unlink()
    from gptwright.report.loggers.tensorboard import TensorBoardView

    thread = ViewThread(
        "TensorBoard",
        lambda: TensorBoardView(run / "tensorboard"),
        metrics=run / "metrics.jsonl",
        from_end=False,
        warn=pytest.fail,
    )
    thread.start()
    thread.ended.set()
    thread.news.set()
    thread.join(30)
    same(in_tensorboard(run / "tensorboard"), wanted)


def test_what_is_no_number_reaches_the_loggers_as_one() -> None:
    values = scalars({"kind": "train", "step": 3, "loss_mean": "nan", "grad_norm": None, "mfu": 0.5})
    assert values["mfu"] == 50.0
    assert str(values["train/step_loss"]) == "nan"
    assert "grad_norm" not in values
    assert scalars({"kind": "end", "step": 3}) == {}


class Broken:
    """A logger that fails at its third record."""

    def __init__(self) -> None:
        self.taken: list[Record] = []

    def begin(self) -> None:
        self.taken.clear()

    def add(self, record: Record) -> None:
        self.taken.append(record)
        if len(self.taken) == 3:
            raise RuntimeError("the other side hung up")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_logger_that_fails_is_given_up_with_one_warning(
    tmp_path: Path, tiny: dict[str, str], gptwright: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_tensorboard", lambda run: Broken())
    run = tmp_path / "run"
    answer = gptwright("train", *as_arguments(tiny | {"out_dir": str(run)}), "--tensorboard")
    assert answer.status == 0
    assert answer.out.count("TensorBoard stopped: the other side hung up. The run goes on") == 1
    assert read_metrics(run / "metrics.jsonl")[-1]["state"] == "finished"


def test_a_logger_that_hangs_does_not_hold_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()
    waited: list[bool] = []

    def hangs(run: Path) -> Broken:
        waited.append(let_go.wait(60))
        return Broken()

    monkeypatch.setattr(views, "_tensorboard", hangs)
    monkeypatch.setattr(views, "LAST_SECONDS", 0.2)
    warnings: list[str] = []
    listener = Views(tmp_path, TrainConfig(tensorboard=True), warnings.append)
    metrics = MetricsFile(tmp_path / "metrics.jsonl", keep_bytes=0)
    for step in range(1000):
        listener.recorded(metrics.append("train", {"step": step}))
    listener.close()
    metrics.close()
    assert waited == []
    assert warnings == ["TensorBoard did not end within 0 s; metrics.jsonl has everything"]
    let_go.set()
    for thread in listener.threads:
        thread.join(10)


def test_without_the_package_the_run_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    warnings: list[str] = []
    listener = Views(tmp_path, TrainConfig(wandb_log=True, tensorboard=True), warnings.append)
    assert listener.wanted == {}
    assert [("pip install 'gptwright[log]'" in text, text.split(" ")[0]) for text in warnings] == [
        (True, "tensorboard"),
        (True, "wandb_log"),
    ]


def test_without_an_account_wandb_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    warnings: list[str] = []
    assert Views(tmp_path, TrainConfig(wandb_log=True), warnings.append).wanted == {}
    assert warnings == [
        "wandb_log = True needs an account: `wandb login`, or WANDB_MODE=offline for files alone."
    ]


def test_nothing_is_imported_or_started_unless_asked_for(tmp_path: Path) -> None:
    listener = Views(tmp_path, TrainConfig(), pytest.fail)
    listener.recorded({"kind": "start", "step": 0})
    assert listener.threads == []
    listener.close()
