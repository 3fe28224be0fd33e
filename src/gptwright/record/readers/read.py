"""From a file of unknown origin to evidence: which trainer printed it, then what it says.

Every reader's lines are looked for in the first part of the log; the one with most of them reads it. One
header line that only one trainer prints decides between trainers that share the rest.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gptwright.errors import RunError
from gptwright.facts import derived
from gptwright.record.evidence import FATAL, NEWEST_FIRST, SEVERAL_RUNS, EventKind, LogEvidence
from gptwright.record.readers.autoresearch import AUTORESEARCH
from gptwright.record.readers.build import Builder
from gptwright.record.readers.buildnanogpt import BUILD_NANOGPT
from gptwright.record.readers.from_scratch import FROM_SCRATCH
from gptwright.record.readers.headers import Said, fact
from gptwright.record.readers.huggingface import HUGGING_FACE
from gptwright.record.readers.lecture import LECTURE
from gptwright.record.readers.lines import LONGEST_LINE, Text
from gptwright.record.readers.litgpt import LITGPT
from gptwright.record.readers.llama2c import LLAMA2C
from gptwright.record.readers.llmc import LLMC
from gptwright.record.readers.megatron import MEGATRON
from gptwright.record.readers.mingpt import MINGPT
from gptwright.record.readers.mlx import MLX
from gptwright.record.readers.modded import MODDED
from gptwright.record.readers.nanochat import NANOCHAT
from gptwright.record.readers.nanogpt import NANOGPT
from gptwright.record.readers.ours import LOG, METRICS
from gptwright.record.readers.passage import Passage
from gptwright.record.readers.plain import PLAIN
from gptwright.record.readers.reader import Reader, unstamped
from gptwright.record.readers.tables import (
    Rows,
    Segments,
    dated,
    eval_lines,
    newest_first,
    train_lines,
    unannounced_resumes,
)
from gptwright.record.readers.torchtitan import TORCHTITAN
from gptwright.record.readers.wandb import add_summary, of_wandb

# Of equal ones the first reads the log.
READERS: tuple[Reader, ...] = (
    NANOGPT,
    LOG,
    METRICS,
    NANOCHAT,
    LLMC,
    MODDED,
    BUILD_NANOGPT,
    LLAMA2C,
    LITGPT,
    HUGGING_FACE,
    TORCHTITAN,
    MINGPT,
    LECTURE,
    FROM_SCRATCH,
    AUTORESEARCH,
    MLX,
    MEGATRON,
)
ANY_BEGINNING = re.compile("|".join(f"(?:{reader.begins.pattern})" for reader in READERS))
# Lines of data that settle whose log it is.
ENOUGH = 40.0
# Trainers that share most of their lines; what only one of them prints decides.
RIVAL = 0.7
# A broken line has no whole shape, only a beginning.
WEIGHT_OF_BEGINNING = 0.001
# Beginnings of data lines that are enough to see whose they are and whether a terminal wrapped them.
ENOUGH_BEGINNINGS = 400
# modded-nanogpt's logs begin with 3,000 lines of source, others with what an installer printed.
LINES_LOOKED_AT = 200_000
HEADER_LINES = 20_000
# A reader that gets less than this share of what the words of the lines tell is not the one whose log it is.
TOO_LITTLE, FEWEST_TOLD = 0.5, 3
# Larger shares of a model are trained without an adapter.
MOST_OF_AN_ADAPTER = 0.5
# A wrapped log has no line over its width; a few may come from another window.
LONGER_THAN_WRAPPED = 0.02
NARROWEST = 20


def read_log(path: Path | None, *, data: bytes | None = None) -> LogEvidence:
    """Reads a log of any known trainer.

    Args:
        path: the file; None for bytes from elsewhere, such as standard input.
        data: the bytes, where there is no path.

    Raises:
        RunError: the file cannot be read, is empty, or no reader knows a line of it.
    """
    text = Text(path, data)
    if text.empty:
        raise RunError(f"{text.name} is empty", fix="give the log that the trainer printed")
    sample = _sample(text)
    reader = _plainly(sample, _recognized([line for line in sample if not of_wandb(line)]))
    if reader is None:
        raise _unknown(text.name)
    passage = Passage(reader, _width(reader, sample), file=text.name)
    number, torn = 1, False
    for block, torn in text.blocks():
        number = passage.block(block, number, torn=torn)
    passage.end()
    add_summary(passage.build, passage.summary.entries, evaluates_train=passage.reader.format.evaluates_train)
    evidence = evidence_of(
        text.name, lines_read=number - 1 + torn, hazards=text.hazards, reader=reader, build=passage.build
    )
    if not (len(evidence.train) or len(evidence.evals)) and not (
        evidence.header or evidence.settings or evidence.events
    ):
        # Lines that only begin like somebody's: a run without a number is no run without a fault.
        raise _unknown(text.name)
    return evidence


def _unknown(name: str) -> RunError:
    return RunError(
        f"no line of {name} is known from any trainer's log",
        why="known are the logs of " + ", ".join(dict.fromkeys(reader.format.name for reader in READERS)),
        fix="give what the trainer printed, or its trainer_state.json or metrics.jsonl, unchanged",
    )


def _sample(text: Text) -> list[str]:
    """The first lines, up to where enough of them begin like data."""
    sample: list[str] = []
    beginnings = 0
    for block, _ in text.blocks():
        for line in re.split(r"[\r\n]", block):
            if not line or line.isspace():
                continue
            sample.append(line[:LONGEST_LINE])
            beginnings += ANY_BEGINNING.search(sample[-1]) is not None
            if beginnings >= ENOUGH_BEGINNINGS or len(sample) >= LINES_LOOKED_AT:
                return sample
    return sample


def _recognized(sample: list[str]) -> Reader | None:
    """The reader whose lines these are; None if no line is anybody's."""
    data = _data_scores(sample)
    best = max(data.values(), default=0.0)
    if 0 < best < 1:
        # No line is whole: a terminal wrapped the log, and only putting it together shows whose it is.
        data = {reader: score + _rows_of(reader, sample) for reader, score in data.items()}
        best = max(data.values())
    rivals = [reader for reader in READERS if data.get(reader, 0.0) >= RIVAL * best]
    if len(rivals) == 1 and best > 0:
        return rivals[0]
    lines = [unstamped(line) for line in sample[:HEADER_LINES]]
    scores = {reader: data.get(reader, 0.0) + _other_score(reader, lines) for reader in rivals}
    winner = max(rivals, key=lambda reader: scores[reader])
    return winner if scores[winner] > 0 else None


def _plainly(sample: list[str], reader: Reader | None) -> Reader | None:
    """The reader of plain prints, where it gets far more out of a log than one that knows no step of it."""
    beginning = sample[:HEADER_LINES]
    known = _read(reader, beginning).build if reader is not None else Builder()
    lines = _lines_of(known)
    if lines and any(columns.kind == "train" for columns in known.tables):
        return reader
    plainly = _read(PLAIN, beginning)
    plain = plainly.build
    told = _lines_of(plain)
    if told and (not lines or (told >= FEWEST_TOLD and lines < TOO_LITTLE * told)):
        return PLAIN
    # A failure before the first step is all that some logs hold.
    return PLAIN if reader is None and (plain.events or plainly.summary.entries) else reader


def _data_scores(sample: list[str]) -> Mapping[Reader, float]:
    """How far the data lines speak for each reader; up to what settles it."""
    scores: defaultdict[Reader, float] = defaultdict(float)
    for line in sample:
        if not ANY_BEGINNING.search(line):
            continue
        for reader in READERS:
            if reader.begins.search(line):
                scores[reader] += reader.weight_of(line) or WEIGHT_OF_BEGINNING
        if max(scores.values(), default=0.0) >= ENOUGH:
            break
    return scores


def _rows_of(reader: Reader, sample: list[str]) -> int:
    """How many numbers a reader gets out of a sample."""
    return sum(len(rows) for rows in _read(reader, sample).build.tables.values())


def _lines_of(build: Builder) -> int:
    """From how many lines numbers were got."""
    tables = build.tables.items()
    return len({line for columns, rows in tables for line in rows[:: 1 + len(columns.fields)]})


def _read(reader: Reader, sample: list[str]) -> Passage:
    passage = Passage(reader, _width(reader, sample))
    for number, line in enumerate(sample, 1):
        passage.line(line, number)
    passage.end()
    return passage


def _other_score(reader: Reader, lines: list[str]) -> float:
    """How far header lines and other signs speak for a reader."""
    together = "\n".join(lines)
    # Most readers' headers are nowhere in a log: those are not looked for line by line.
    headers = [header for header in reader.headers if header.may_be_in(together)]
    score = 0.0
    for line in lines if headers or reader.signs else ():
        score += sum(weight for sign, weight in reader.signs if sign.search(line))
        score += sum(header.weight for header in headers if header.search(line))
    return score


def _width(reader: Reader, sample: list[str]) -> int:
    """The width at which a terminal wrapped the log: that of data lines which break off; 0 if none do."""
    broken = [
        len(line)
        for line in dict.fromkeys(sample)
        if len(line) >= NARROWEST and reader.begins.search(line) and not reader.weight_of(line)
    ]
    widths = [length for length, count in Counter(broken).items() if count > 1]
    if not widths:
        return 0
    longer = sum(len(line) > max(widths) for line in sample)
    return max(widths) if longer <= LONGER_THAN_WRAPPED * len(sample) else 0


def evidence_of(
    name: str, *, lines_read: int, hazards: Mapping[str, int], reader: Reader, build: Builder
) -> LogEvidence:
    """The evidence of what a reader has put together.

    Args:
        name: the file, or `-`.
        lines_read: its lines.
        hazards: what was taken out of its text, with its count.
        reader: whose log it is.
        build: the rows, facts and events.
    """
    train, evals = Rows("train", build), Rows("eval", build)
    build.hazards["repeated lines"] += train.drop_repeats() + evals.drop_repeats()
    log_format = (reader.finish(build, train, evals) if reader.finish else None) or reader.format
    build.hazards["rows without a step"] += train.drop_stepless() + evals.drop_stepless()
    _plan(build, (train, evals))
    _count_all(build)
    sign, events = 1, build.events
    if newest_first(train, evals):
        train.turn()
        evals.turn()
        sign, events = -1, [replace(event, line=-event.line) for event in events]
        build.hazards[NEWEST_FIRST] = len(train) + len(evals)
        build.take_first_batch()
    segments = Segments(
        train,
        evals,
        starts=[sign * line for line in build.process_starts],
        resumes=[event.line for event in events if event.kind is EventKind.RESUME],
        failures=[event.line for event in events if event.kind in FATAL],
        other_models=[sign * line for line in build.other_models],
    )
    if segments.last_run_between is not None:
        build.hazards[SEVERAL_RUNS] = segments.runs
        build.take_between(*segments.last_run_between)
    events = [*events, *unannounced_resumes(build, segments)]
    return LogEvidence(
        format=log_format,
        path=name,
        lines_read=lines_read,
        lines_skipped=build.lines_skipped,
        hazards={name: count for name, count in (Counter(hazards) + build.hazards).items() if count},
        header=build.header,
        settings=build.settings,
        train=train_lines(train, segments.train),
        evals=eval_lines(evals, segments.evals),
        events=dated(events, train, evals),
        last_run_segment=segments.last_run,
        comments=tuple(build.comments),
        batches=tuple(build.batches),
    )


def _count_all(build: Builder) -> None:
    """Takes all parameters of a model whose trained and frozen ones are printed apart, as with an adapter.

    Such weights are no fresh ones.
    """
    trained, frozen = (build.header.pop(f"{kind}_parameters", None) for kind in ("trained", "frozen"))
    build.header.pop("trained_parameters_rounding", None)
    if trained is None:
        return
    known = build.header.get("parameters_total")
    if frozen is not None or (known is not None and trained.number < MOST_OF_AN_ADAPTER * known.number):
        of = f" of {known.text}" if known is not None else ""
        # Nobody freezes fresh weights.
        formula = f"an adapter of {trained.text}{of} parameters is trained, line {trained.line}"
        build.settings.setdefault("init_from", derived("init_from", "pretrained", formula))
    if known is not None:
        return
    total = replace(trained, name="parameters_total")
    if frozen is not None:
        lines = f"lines {trained.line} and {frozen.line}"
        formula = f"{trained.text} trained + {frozen.text} frozen parameters, {lines}"
        total = derived("parameters_total", int(trained.number + frozen.number), formula, unit="parameters")
    build.header["parameters_total"] = total


def _plan(build: Builder, tables: Sequence[Rows]) -> None:
    """Takes the planned steps that data lines print, from the last of them."""
    for rows in tables:
        planned = np.flatnonzero(rows["planned_steps"] > 0)
        if "planned_steps" not in build.header and len(planned):
            last = planned[-1]
            said = Said("planned_steps", int(rows["planned_steps"][last]))
            build.header["planned_steps"] = fact(said, int(rows.line[last]))
