"""The rules against runs whose truth is known: healthy ones must stay silent, planted faults must be found.

200 healthy runs over all formats, and a dozen of every kind of fault that a trainer's log can show; in the
long form 1,000 and two dozen. The figures are kept in docs/diagnosis.md.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import read_run
from gptwright.facts import Fact
from gptwright.findings import Finding
from gptwright.record.open_run import open_run
from gptwright.report.documents import run_summary
from tests.conftest import LONG
from tests.simulator import FAULTS, FORMATS, Simulated, simulate

HEALTHY, CHUNK = 1000 if LONG else 200, 100
FAULTY = 24 if LONG else 12


def diagnosed(simulated: Simulated, folder: Path) -> Diagnosis:
    simulated.write(folder)
    return diagnose(read_run(open_run(str(folder))))


def healthy(chunk: int) -> Iterator[Simulated]:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        yield simulate(seed, FORMATS[seed % len(FORMATS)])


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(HEALTHY // CHUNK))
def test_healthy_runs_raise_no_warning_and_their_facts_are_read(chunk: int, tmp_path: Path) -> None:
    accused = []
    for number, simulated in enumerate(healthy(chunk)):
        folder = tmp_path / str(number)
        diagnosis = diagnosed(simulated, folder)
        loud = [f for f in diagnosis.findings if f.severity in ("error", "warning")]
        accused += [(simulated.format, f.id, f.message) for f in loud if f.id not in simulated.allowed]
        summary = run_summary(diagnosis.reading)
        for name, (truth, tolerance) in simulated.recoverable.items():
            assert summary[name] == pytest.approx(truth, rel=tolerance), (simulated.format, number, name)
        check_evidence(diagnosis, folder)
    # At least 99 of 100 stay silent.
    assert len(accused) <= 1, accused


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_planted_faults_are_found(fault: str, tmp_path: Path) -> None:
    formats, missed = FAULTS[fault].formats, []
    for seed in range(FAULTY):
        simulated = simulate(seed, formats[seed % len(formats)], fault)
        diagnosis = diagnosed(simulated, tmp_path / str(seed))
        absent = simulated.expected - {finding.id for finding in diagnosis.findings}
        if absent:
            missed.append((simulated.format, seed, sorted(absent)))
        check_evidence(diagnosis, tmp_path / str(seed))
    # 95 % of the long form's two dozen are 22.8.
    assert len(missed) <= 1, missed


def check_evidence(diagnosis: Diagnosis, folder: Path) -> None:
    """Every fact behind a finding points at a line or a field that is there and says it."""
    for finding in diagnosis.findings:
        assert finding.evidence, finding.id
        for fact in finding.evidence:
            check_fact(fact, finding, diagnosis, folder)


def check_fact(fact: Fact, finding: Finding, diagnosis: Diagnosis, folder: Path) -> None:
    kind, _, place = fact.source.partition(":")
    log, config = diagnosis.reading.log, diagnosis.reading.evidence.config
    if kind == "log":
        assert log is not None
        lines = (folder / Path(log.path).name).read_bytes().decode("utf-8", "replace").splitlines()
        assert 1 <= int(place) <= log.lines_read, (finding.id, fact)
        if len(lines) == log.lines_read and isinstance(fact.value, float):
            near = " ".join(lines[max(0, int(place) - 3) : int(place) + 2])
            assert re.search(r"\d|nan|inf", near, re.IGNORECASE), (finding.id, fact, near)
    elif kind == "config":
        assert config is not None
        comments = {f"comment in line {comment.line}" for comment in config.comments}
        assert place in {*config.settings, *comments}, (finding.id, fact)
    elif kind == "fact":
        assert place in diagnosis.reading.evidence.stated, (finding.id, fact)
    else:
        assert kind in ("table", "derived"), (finding.id, fact)
        assert fact.reason, (finding.id, fact)
