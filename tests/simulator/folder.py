"""From a seed to the files of a run folder, healthy or with one fault planted."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from gptwright.config.schema import TrainConfig
from gptwright.config.write import to_toml
from tests.simulator.config_text import config_text, facts_text
from tests.simulator.draw import random_truth
from tests.simulator.faults import FAULTS
from tests.simulator.formats import FORMATS
from tests.simulator.handing import true_handover
from tests.simulator.hazards import damaged
from tests.simulator.known import always_allowed, recoverable
from tests.simulator.run import Handover, Run
from tests.simulator.truth import Truth
from tests.simulator.writers import WRITERS
from tests.simulator.writers.lines import HEADER, Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A run folder in memory, with what is true of it.

    Attributes:
        files: name → text; line ends are part of it.
        truth: the run as it happened.
        handover: what was given away of it.
        format: the trainer.
        fault: what was planted; None for a healthy run.
        expected: finding ids that must fire.
        allowed: finding ids that may fire at any severity besides.
        recoverable: key of `diagnose --json`'s `run` → (true value, relative tolerance), for what the
            folder suffices to tell.
    """

    files: Mapping[str, str]
    truth: Truth
    handover: Handover
    format: str
    fault: str | None
    expected: frozenset[str]
    allowed: frozenset[str]
    recoverable: Mapping[str, tuple[float, float]]

    def write(self, folder: Path) -> Path:
        """Writes the files into a folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_bytes(text.encode())
        return folder


def simulate(seed: int, format: str, fault: str | None = None) -> Simulated:  # noqa: A002
    """A simulated run.

    Args:
        seed: the same seed gives the same bytes.
        format: one of `FORMATS`.
        fault: one of `FAULTS` that this format can show; None for a healthy run.
    """
    rng = np.random.default_rng([seed, zlib.crc32(format.encode()), zlib.crc32((fault or "").encode())])
    if fault is None:
        run = _drawn(rng, format, {}, damaged=True)
    else:
        planted = FAULTS[fault]
        assert format in planted.formats, f"{format} cannot show {fault}"
        run = planted.plant(rng, _drawn(rng, format, planted.wishes, damaged=False))
        run = run.expecting(fault).allowing(*planted.allowed)
    run = run.allowing(*always_allowed(run))
    return Simulated(
        files=files_of(run, rng),
        truth=run.truth,
        handover=run.handover,
        format=format,
        fault=fault,
        expected=run.expected,
        allowed=run.allowed - run.expected,
        recoverable=recoverable(run),
    )


def healthy_runs(number: int, seed: int, formats: tuple[str, ...] = FORMATS) -> Iterator[Simulated]:
    """Healthy runs over the formats in turn."""
    for index in range(number):
        yield simulate(1_000_000 * seed + index, formats[index % len(formats)])


def faulty_runs(number: int, fault: str, seed: int) -> Iterator[Simulated]:
    """Runs with one fault, over the formats that can show it in turn."""
    formats = FAULTS[fault].formats
    for index in range(number):
        yield simulate(1_000_000 * seed + index, formats[index % len(formats)], fault)


def write_run(folder: Path, truth: Truth, handover: Handover, *, seed: int = 0) -> Path:
    """Writes a truth that was made by hand, handed over as said."""
    files = files_of(Run(truth=truth, handover=handover), np.random.default_rng(seed))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    return folder


def _drawn(rng: np.random.Generator, format: str, wishes: Mapping[str, object], *, damaged: bool) -> Run:  # noqa: A002
    truth = random_truth(rng, format, **wishes)
    if damaged:
        truth = _perhaps_resumed(rng, truth)
    return Run(truth=truth, handover=true_handover(rng, truth, damaged=damaged))


def _perhaps_resumed(rng: np.random.Generator, truth: Truth) -> Truth:
    """Sometimes a run was killed and went on cleanly from the checkpoint before."""
    if truth.format not in ("nanogpt", "llama2c") or rng.random() > 0.15:
        return truth
    checkpoint = int(rng.uniform(0.3, 0.7) * truth.last_step / truth.eval_interval) * truth.eval_interval
    if not checkpoint:
        return truth
    killed = checkpoint + int(rng.uniform(0.1, 0.9) * truth.eval_interval)
    return truth.but(segments=((0, killed), (checkpoint, truth.last_step)))


def files_of(run: Run, rng: np.random.Generator) -> dict[str, str]:
    """The files of a run, by name."""
    truth, handover = run.truth, run.handover
    written = WRITERS[truth.format](truth, handover, rng)
    files = dict(written.files)
    if written.lines or handover.insertions:
        files["log.txt"] = damaged(_visible(list(written.lines), handover), handover.hazards, rng)
    if handover.config:
        files[handover.config] = _config(truth, handover)
    if handover.facts:
        files["facts.toml"] = facts_text(handover.facts)
    return files


def _config(truth: Truth, handover: Handover) -> str:
    if truth.format == "ours" and not (handover.comments or handover.preamble):
        return to_toml(TrainConfig(**cast(dict[str, Any], handover.settings)))
    return config_text(handover)


def _visible(lines: list[Line], handover: Handover) -> list[str]:
    for insertion in handover.insertions:
        after = [index for index, (step, _) in enumerate(lines) if step <= insertion.step]
        lines.insert(after[-1] + 1 if after else 0, (insertion.step, insertion.text))
    first, until = handover.visible_from, handover.visible_until
    kept = [
        text
        for step, text in lines
        if (handover.header if step == HEADER else step >= first) and (until is None or step <= until)
    ]
    if not handover.without:
        return kept
    return [text for text in kept if not any(word in text for word in handover.without)]
