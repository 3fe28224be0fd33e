"""Everything that a page shows of a run, gathered once: its diagnosis, forecast, run.json and samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.forecast import RunForecast, forecast_run
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import Reading, read_run
from gptwright.record.evidence import RunEvidence
from gptwright.record.run import RunFolder

# A sample is for reading a little, and a page is to be mailed.
LONGEST_SAMPLE = 4_000
MOST_SAMPLES = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """A text that a run said.

    Attributes:
        checkpoint: whose weights said it.
        text: at most 4,000 characters of it.
        cut: whether there was more.
    """

    checkpoint: str
    text: str
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One run, as its page shows it.

    Attributes:
        name: what a person calls it: the folder's or the file's name.
        reading: its numbers.
        diagnosis: what they say.
        forecast: where it is heading; None where its curve carries none.
        recorded: run.json of a run of ours; empty for others.
        samples: texts, by checkpoint.
    """

    name: str
    reading: Reading
    diagnosis: Diagnosis
    forecast: RunForecast | None
    recorded: Mapping[str, Any]
    samples: tuple[Sample, ...]


def gather(evidence: RunEvidence) -> Material:
    """Reads and diagnoses a run, with what lies beside its record."""
    reading = read_run(evidence)
    folder = Path(evidence.path)
    ours = (folder / "metrics.jsonl").is_file()
    return Material(
        name=folder.resolve().name if evidence.path != "-" else "standard input",
        reading=reading,
        diagnosis=diagnose(reading),
        forecast=forecast_run(reading),
        recorded=RunFolder(folder).read_facts() if ours else {},
        samples=_samples(RunFolder(folder).samples) if ours else (),
    )


def _samples(folder: Path) -> tuple[Sample, ...]:
    """The newest samples, in the order of their steps."""
    paths = sorted(folder.glob("*.txt"))[-MOST_SAMPLES:] if folder.is_dir() else []
    texts = [(path.stem, path.read_text("utf-8", errors="replace")) for path in paths]
    return tuple(Sample(name, text[:LONGEST_SAMPLE], len(text) > LONGEST_SAMPLE) for name, text in texts)
