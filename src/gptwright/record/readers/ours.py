"""gptwright's own record: `metrics.jsonl`, and `log.txt`, which has nanoGPT's line shapes.

The loss is the mean over the step's batch. Times leave evaluations and checkpoints out, the MFU is against
the peak that was measured at the start, and evaluations have standard errors.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from gptwright.facts import Value
from gptwright.record.arrays import Floats
from gptwright.record.evidence import EventKind, LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header, Said
from gptwright.record.readers.nanogpt import HEADERS, TRAIN
from gptwright.record.readers.reader import Many, Reader
from gptwright.record.readers.shapes import Columns, Shape, same_decimals

FORMAT = LogFormat(
    name="gptwright",
    train_loss=TrainLoss.STEP,
    has_dropout=True,
    evaluates_train=True,
    time_includes_evaluation=False,
    gpt2_shaped=True,
    measures_peak=True,
    mfu_of_line=True,
    evaluates_same_windows=True,
)
TRAIN_FIELDS = ("step", "loss", "seconds", "tokens_per_second", "mfu", "lr", "grad_norm")
TRAIN_ROW = Columns(
    "train", "step", "loss", "seconds", "tokens_per_second", "mfu", "learning_rate", "grad_norm"
)
EVAL_FIELDS = ("step", "train_loss", "val_loss", "train_loss_standard_error", "val_loss_standard_error")
EVAL_ROW = Columns("eval", "step", "train_loss", "val_loss", "train_standard_error", "val_standard_error")
# No machine has an exabyte.
MOST_MEMORY = 2**60
# Names of the start record → names of the header.
START = {
    "tokens_per_step": "tokens_per_step",
    "vocab_size": "vocab_size",
    "parameters_nanogpt": "parameters",
    "parameters_total": "parameters_total",
    "decayed_parameters": "decayed_parameters",
    "not_decayed_parameters": "not_decayed_parameters",
    "device": "device",
    "dtype": "settings.dtype",
    "peak_flops": "mfu_peak_flops",
    "world_size": "world_size",
    "max_iters": "planned_steps",
}


def _records(build: Builder) -> Callable[[str, int], bool]:
    def take(text: str, line: int) -> bool:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return isinstance(record, dict) and _record(build, record, line)

    return take


def _record(build: Builder, record: dict[str, Any], line: int) -> bool:
    match record.get("kind"):
        case "start":
            _start(build, record, line)
        case "train":
            return _row(build, TRAIN_ROW, record, TRAIN_FIELDS, line)
        case "eval":
            return _row(build, EVAL_ROW, record, EVAL_FIELDS, line)
        case "resume":
            build.event(EventKind.RESUME, line, f"resumed at step {record.get('step')}")
        case "guard":
            build.event(EventKind.GUARD, line, f"{record.get('what')}: {record.get('text')}")
        case "import" | "score":
            pass
        case "end":
            _end(build, record, line)
            if record.get("state") == "failed":
                build.event(EventKind.ERROR, line, f"failed: {record.get('reason')}")
        case _:
            return False
    return True


def _start(build: Builder, record: dict[str, Any], line: int) -> None:
    for theirs, name in START.items():
        value: Value = record.get(theirs)
        if not isinstance(value, int | float | str) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            continue
        if name.startswith("settings."):
            build.setting(name.removeprefix("settings."), value, line)
        else:
            build.fact(name, value, line)


def _end(build: Builder, record: dict[str, Any], line: int) -> None:
    peak = record.get("peak_memory_bytes")
    if isinstance(peak, int) and not isinstance(peak, bool) and 0 < peak < MOST_MEMORY:
        build.said(Said("peak_memory_bytes", peak), line)


def _row(
    build: Builder, columns: Columns, record: dict[str, Any], fields: tuple[str, ...], line: int
) -> bool:
    try:
        values = [_number(record.get(field)) for field in fields]
    except ValueError:
        return False
    if not 0 <= values[0] < 1e12 or record.get(fields[1]) is None:
        return False
    build.row(columns, line, values)
    return True


def _number(value: object) -> float:
    """A number of a record, where NaN and infinity are stored by their names; NaN for null.

    Raises:
        ValueError: it is none.
    """
    if value is None:
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        return float(value)
    if value in ("nan", "inf", "-inf"):
        return float(str(value))
    raise ValueError(f"{value!r} is no number")


def _train_runs(text: str) -> Iterator[tuple[int, int, Floats]]:
    # The decoder takes as long to load as a small log to read, and only our own logs need it.
    from gptwright.record.readers.metrics_block import train_runs

    return train_runs(text)


METRICS = Reader(
    format=FORMAT,
    begins=re.compile(r"\{\"v\": \d+, \"kind\": \"(?:train|eval)\""),
    whole=re.compile(r"^\{.*\}$"),
    special=_records,
    many=Many(runs=_train_runs, columns=TRAIN_ROW),
    signs=((re.compile(r"^\{\"v\": \d+, \"kind\": \"(?:start|train|eval|resume|guard)\""), 1.0),),
)
LOG = Reader(
    format=FORMAT,
    begins=re.compile(r"(?:iter|step) \d+(?::|$)"),
    shapes=(
        *TRAIN,
        Shape(
            "eval",
            r"step {step}: train loss {train_loss}, val loss {val_loss}"
            r" \(standard errors {train_standard_error}, {val_standard_error}\)",
        ),
        Shape(
            "eval",
            r"step {step}: train loss {train_loss}, val loss {val_loss}(?! ?\()(?![\d.])",
            weight=0.5,
            check=same_decimals,
        ),
    ),
    signs=((re.compile(r"^device: .{1,80}, (?:float|bfloat)|\(standard err"), 5.0),),
    headers=(
        # Any config that is pasted around a log may say so.
        Header(r"^vocab_size = {vocab_size}$", weight=0.0),
        Header(
            r"^device: {device}, {settings.dtype}, measured matmul peak {mfu_peak_flops@TFLOPs} TFLOP/s",
        ),
        Header(
            r"^device: {device}, {settings.dtype}, measured matmul peak {mfu_peak_flops@GFLOPs} GFLOP/s",
        ),
        *HEADERS,
    ),
)
