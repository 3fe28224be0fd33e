"""What a run's guards did is read from its record, and a refused update is no dead run."""

import json
from pathlib import Path
from typing import Any

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.findings import Finding, Severity
from gptwright.record.open_run import open_run


def record(folder: Path, *guards: dict[str, Any], bad: int | None = None) -> Path:
    """A short record of a run of ours with these lines of guards."""
    start = {"v": 1, "kind": "start", "time": 1.0, "step": 0, "tokens_per_step": 768, "vocab_size": 65}
    lines = [start | {"parameters_nanogpt": 795904, "device": "AMD EPYC", "dtype": "float32"}]
    for step in range(40):
        lines += [guard for guard in guards if guard["step"] == step]
        loss = "nan" if step == bad else 4.2 - step * 0.03
        lines.append({"v": 1, "kind": "train", "time": 2.0, "step": step, "loss": loss, "seconds": 0.1})
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def guard(step: int, what: str, text: str) -> dict[str, Any]:
    return {"v": 1, "kind": "guard", "time": 2.0, "step": step, "what": what, "text": text}


def found(folder: Path) -> dict[str, Finding]:
    return {finding.id: finding for finding in diagnose(read_run(open_run(str(folder)))).findings}


def test_a_skipped_update_is_the_guard_at_work_and_no_dead_run(tmp_path: Path) -> None:
    skipped = guard(20, "skipped", "skipping update 20: the loss is nan (1 of 10 allowed within 1,000 steps)")
    findings = found(record(tmp_path, skipped, bad=20))
    assert "non-finite-loss" not in findings
    assert findings["guard-acted"].severity is Severity.INFO
    assert "skipped 1 time" in findings["guard-acted"].message
    assert findings["guard-acted"].evidence[0].source == "log:22"


def test_a_loss_that_no_guard_refused_is_still_a_dead_run(tmp_path: Path) -> None:
    skipped = guard(19, "skipped", "skipping update 19: the loss is nan (1 of 10 allowed within 1,000 steps)")
    assert "non-finite-loss" in found(record(tmp_path, skipped, bad=20))


def test_a_rollback_is_worth_a_look(tmp_path: Path) -> None:
    back = guard(16, "rollback", "the loss is nan at step 20; back to step-00000016, past 5 batches")
    findings = found(record(tmp_path, back))
    assert findings["guard-acted"].severity is Severity.WARNING
    assert "back to step-00000016" in findings["guard-acted"].message


def test_a_run_without_deeds_says_nothing(tmp_path: Path) -> None:
    assert "guard-acted" not in found(record(tmp_path))


def test_a_run_that_ended_in_refused_updates_is_a_dead_run(tmp_path: Path) -> None:
    skipped = guard(39, "skipped", "skipping update 39: the loss is nan (1 of 10 allowed within 1,000 steps)")
    assert "non-finite-loss" in found(record(tmp_path, skipped, bad=39))
