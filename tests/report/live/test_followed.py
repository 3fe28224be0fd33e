"""One run under watch: what a page is told of it, whatever its record holds."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.record.metrics import MetricsFile
from gptwright.record.readers.read import read_log
from gptwright.report.live.curves import LiveCurves
from gptwright.report.live.documents import details, summary
from gptwright.report.live.finding import Found
from gptwright.report.live.followed import DIAGNOSIS_SHARE, FollowedRun
from gptwright.report.live.states import State

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = ("step", "time", "loss", "loss_mean", "lr", "seconds", "tokens_per_second", "mfu", "val_loss",
         "val_loss_standard_error", "max_iters", "state", "reason", "grad_norm")  # fmt: skip


def found(folder: Path) -> Found:
    return Found(id="run", path=folder, ours=True, log=folder / "metrics.jsonl")


def record(metrics: MetricsFile, steps: range) -> None:
    for step in steps:
        loss = 4 - step / 100
        if step % 10 == 0:
            metrics.append("eval", {"step": step, "train_loss": loss, "val_loss": loss, "seconds": 1.0})
        fields = {"loss": loss, "loss_mean": loss, "seconds": 0.5, "tokens_per_second": 100.0, "mfu": 0.4}
        metrics.append("train", {"step": step, "lr": 1e-3, "grad_norm": 1.0} | fields)


def test_figures_have_origins_and_energy_is_the_boards_limit_times_the_time(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("max_iters = 100\neval_interval = 10\n")
    (tmp_path / "run.json").write_text(json.dumps({"machine": {"device": "NVIDIA GeForce RTX 4070"}}))
    metrics = MetricsFile(tmp_path / "metrics.jsonl", keep_bytes=0)
    record(metrics, range(50))
    metrics.close()
    run = FollowedRun(found(tmp_path))
    assert not run.look(time.time())
    rows = {row["name"]: row for row in details(run)["figures"]}
    assert all(row["origin"] for row in rows.values())
    assert rows["step"]["value"] == "50 of 100"
    # 50 steps of half a second and the evaluations at 60, 70, 80, 90 and 100.
    assert rows["time left"]["value"] == "30.0 s"
    # 25 s of steps and 5 of evaluations at 200 W.
    assert rows["energy"]["value"] == "0.00167 kWh so far, 0.00333 kWh in all"
    assert "200 W board limit" in rows["energy"]["origin"]
    assert summary(run)["share"] == 0.5
    assert summary(run)["left"] == "30.0 s"


def test_a_run_that_stands_still_has_no_time_left(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("max_iters = 100\n")
    (tmp_path / "run.json").write_text(json.dumps({"machine": {"device": "NVIDIA GeForce RTX 4070"}}))
    metrics = MetricsFile(tmp_path / "metrics.jsonl", keep_bytes=0)
    record(metrics, range(50))
    metrics.close()
    run = FollowedRun(found(tmp_path))
    run.look(1e10)
    rows = {row["name"]: row["value"] for row in details(run)["figures"]}
    assert rows["state"] == "stalled"
    assert "time left" not in rows
    assert rows["energy"] == "0.00167 kWh so far"
    assert summary(run)["left"] is None


def test_a_device_of_no_table_has_no_energy(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"machine": {"device": "Abacus 3"}}))
    metrics = MetricsFile(tmp_path / "metrics.jsonl", keep_bytes=0)
    record(metrics, range(5))
    metrics.close()
    run = FollowedRun(found(tmp_path))
    run.look(1e10)
    rows = {row["name"]: row for row in details(run)["figures"]}
    assert rows["energy"] == {
        "name": "energy", "value": "not known", "origin": "no table has this device's power",
    }  # fmt: skip


def test_charts_follow_a_record_that_grows_and_one_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    curves = LiveCurves(found(tmp_path))
    curves.refresh()
    assert (curves.version, curves.text) == (0, "")
    metrics = MetricsFile(path, keep_bytes=0)
    record(metrics, range(30))
    kept = metrics.length
    record(metrics, range(30, 40))
    curves.refresh()
    assert last_step(curves) == 39
    curves._due = 0.0
    curves.refresh()
    assert curves.version == 1
    metrics.close()
    metrics = MetricsFile(path, keep_bytes=kept)
    record(metrics, range(30, 35))
    metrics.close()
    curves.refresh()
    assert last_step(curves) == 34
    evidence = curves._record.evidence()
    assert evidence is not None
    whole = read_log(path)
    assert evidence.lines_read == whole.lines_read
    assert list(evidence.train.loss) == list(whole.train.loss)
    assert list(evidence.evals.line) == list(whole.evals.line)


def last_step(curves: LiveCurves) -> int:
    figures = json.loads(curves.text)["figures"]
    assert figures[0]["id"] == "loss"
    return max(int(c["x"][-1]) for c in figures[0]["curves"] if c["label"].startswith("train"))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["start", "train", "eval", "end", "resume"]),
            st.dictionaries(st.sampled_from(NAMES), ANYTHING),
        ),
        max_size=8,
    )
)
def test_whatever_the_records_hold_the_page_has_figures_with_origins_and_charts(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, dict[str, object]]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    lines = [json.dumps({"v": 1, "kind": kind} | fields) + "\n" for kind, fields in records]
    (folder / "metrics.jsonl").write_text("".join(lines))
    run = FollowedRun(found(folder))
    run.look(1e10)
    told = json.loads(json.dumps(details(run), allow_nan=False))
    assert {"state", "step", "energy"} <= {row["name"] for row in told["figures"]}
    assert all(row["origin"] for row in told["figures"])
    curves = LiveCurves(found(folder))
    curves.refresh()
    assert curves.version == bool(records)


def test_an_unseen_run_is_diagnosed_once_and_a_viewed_one_now_and_then(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", keep_bytes=0)
    record(metrics, range(5))
    metrics.close()
    run = FollowedRun(found(tmp_path))
    run.look(1e10)
    run.state = State("running", "its record grows")
    now = run.changed + 1
    assert run.wants_diagnosis(now, viewed=False)
    run.diagnosed({"diagnosis": {}}, began=now, with_charts=False)
    assert not run.wants_diagnosis(now + 1e6, viewed=True)
    run.changed = now + 5
    assert not run.wants_diagnosis(now + 1e6, viewed=False)
    assert run.wants_diagnosis(now + 1e10, viewed=True)
    assert DIAGNOSIS_SHARE <= 0.05
