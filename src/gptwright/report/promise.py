"""A plan's promise, and what came of it: side by side at the end of a run."""

from collections.abc import Sequence

from rich.console import Console

from gptwright import units
from gptwright.plan.plan import Plan
from gptwright.plan.promise import promise_document
from gptwright.record.metrics import Record
from gptwright.report.outcome import outcomes
from gptwright.report.terminal import titled_table


def show_promise(console: Console, plan: Plan, *, done: int = 0) -> None:
    """One line before a run, or before the rest of one: how long, how much memory, which loss.

    Args:
        console: where it is shown.
        plan: the whole run's.
        done: steps that were made before.
    """
    parts = []
    if plan.seconds is not None and plan.steps:
        left = max(0, plan.steps - done)
        low, likely, high = (units.duration(seconds * left / plan.steps) for seconds in plan.seconds)
        rest = f" for the {left:,} steps that are left" if done else ""
        parts.append(f"about {likely} ({low} to {high}) without evaluations{rest}")
    if plan.steps:
        parts.append(f"{units.size(plan.memory.total)} of memory")
    if plan.loss is not None:
        parts.append(f"validation loss {plan.loss.low:.2f} to {plan.loss.high:.2f}")
    if parts:
        console.print(f"[bold]the plan's promise[/] {'; '.join(parts)}")


def show_outcome(console: Console, plan: Plan, records: Sequence[Record]) -> None:
    """A table of promise against outcome; rows without a promise or an outcome are left out.

    A run that was gone on with made the promise anew, for the steps since: its speed is held against theirs.
    """
    start = max((row for row, record in enumerate(records) if record["kind"] == "resume"), default=0)
    lines = [record for record in records[start:] if record["kind"] == "train"]
    losses = [record["val_loss"] for record in records if record["kind"] == "eval"]
    ends = [record for record in records if record["kind"] == "end"]
    rows = outcomes(
        promise_document(plan),
        tokens_per_second=(
            sorted(line["tokens_per_second"] for line in lines)[len(lines) // 2] if lines else None
        ),
        peak_memory_bytes=ends[-1].get("peak_memory_bytes") if ends else None,
        best_val_loss=min(float(loss) for loss in losses) if losses else None,
    )
    table = titled_table("Promise and outcome")
    for column in ("", "likely", "low to high", "outcome"):
        table.add_column(column)
    for row in rows:
        table.add_row(row.name, row.likely, row.band, row.came)
    if table.row_count:
        console.print(table)
