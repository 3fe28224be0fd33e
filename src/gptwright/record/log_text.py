"""`log.txt`: the metrics in the line shapes that nanoGPT prints, for people and for existing tools.

The log is a view: it can be made again from `metrics.jsonl` at any time, and is when a run resumes. MFU is
against the peak that the start line names, not against an A100.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gptwright import units
from gptwright.files import disk_full_as_error
from gptwright.record.metrics import Record


def log_lines(record: Record) -> Sequence[str]:
    """The lines that one metrics record becomes."""
    lines: Sequence[str] = []
    match record["kind"]:
        case "start":
            lines = _start_lines(record)
        case "resume" | "import" as kind:
            words = "Resuming training from" if kind == "resume" else f"{record['origin']}, imported at"
            lines = [f"{words} step {record['step']}"]
        case "eval":
            lines = [_eval_line(record)]
        case "train":
            lines = [_train_line(record)]
        case "guard":
            lines = [f"guard, step {record['step']}: {record['text']}"]
        case "end":
            lines = [f"{record['state']} at step {record['step']}"]
    return lines


def log_text(records: Iterable[Record]) -> str:
    """The whole log of these records."""
    return "".join(f"{line}\n" for record in records for line in log_lines(record))


def append_log(path: Path, record: Record) -> None:
    """Adds a record's lines to the log file.

    Raises:
        DiskFullError: there is no room; the log can be made again from the metrics.
    """
    with disk_full_as_error(path.parent), path.open("a", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in log_lines(record))


def _start_lines(record: Record) -> list[str]:
    return [
        f"tokens per iteration will be: {record['tokens_per_step']:,}",
        f"vocab_size = {record['vocab_size']}",
        f"number of parameters: {record['parameters_nanogpt'] / 1e6:.2f}M",
        f"num decayed parameter tensors: {record['decayed_tensors']},"
        f" with {record['decayed_parameters']:,} parameters",
        f"num non-decayed parameter tensors: {record['not_decayed_tensors']},"
        f" with {record['not_decayed_parameters']:,} parameters",
        f"device: {record['device']}, {record['dtype']},"
        f" measured matmul peak {units.flops_rate(record['peak_flops'])} (mfu is relative to it)",
    ]


def _eval_line(record: Record) -> str:
    train, val = _loss(record["train_loss"]), _loss(record["val_loss"])
    line = f"step {record['step']}: train loss {train}, val loss {val}"
    errors = [record["train_loss_standard_error"], record["val_loss_standard_error"]]
    if None in errors:
        return line
    return f"{line} (standard errors {_loss(errors[0])}, {_loss(errors[1])})"


def _train_line(record: Record) -> str:
    return (
        f"iter {record['step']}: loss {_loss(record['loss'])}, time {record['seconds'] * 1000:.2f}ms,"
        f" mfu {record['mfu'] * 100:.2f}%"
    )


def _loss(value: float | str) -> str:
    """A loss with four digits; `nan` and `inf` are stored as their names."""
    return value if isinstance(value, str) else f"{value:.4f}"
