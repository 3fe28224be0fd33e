"""What `bench` measured, in the terminal."""

import statistics
from collections.abc import Sequence

from rich.console import Console

from gptwright import units
from gptwright.bench.found import NANOGPT, OURS, Racer, SuiteResult
from gptwright.bench.results import Peaks, Row
from gptwright.report.terminal import titled_table


def show_peaks(console: Console, peaks: Peaks) -> None:
    """Prints this machine's peaks in a line."""
    console.print(
        f"[bold]{peaks.machine['device']}[/], {peaks.machine['threads']} threads: {peaks.dtype} matrices"
        f" {units.flops_rate(peaks.matmul_flops)}, memory {units.size(peaks.bandwidth)}/s, measured now",
        soft_wrap=True,
    )


def show_rows(console: Console, name: str, about: str, rows: Sequence[Row]) -> None:
    """Prints a workload's trainers as a table; ratios are theirs over ours."""
    table = titled_table(f"{name}: {about}")
    heads = ("trainer", "a step", "tokens/s", "of the peak", "wall time", "memory", "val loss")
    for head in (*heads, "× our step", "× our wall"):
        table.add_column(head, justify="left" if head == "trainer" else "right")
    for row in rows:
        step = statistics.median(run.step_seconds for run in row.runs)
        table.add_row(
            row.trainer,
            f"{1e3 * step:,.1f} ms",
            f"{row.tokens_per_second:,.0f}",
            "–" if row.fraction_of_peak is None else f"{row.fraction_of_peak:.0%}",
            f"{row.wall_seconds:,.1f} s",
            units.size(row.peak_bytes),
            f"{row.val_loss:.4f}",
            f"{row.times_ours_step:.2f}",
            f"{row.times_ours_wall:.2f}",
        )
    console.print(table)
    console.print()


def show_suite(console: Console, result: SuiteResult) -> None:
    """Prints what the suite found: the machine, attention, every case, the race, and what was left out."""
    show_peaks(console, result.peaks)
    if result.tabled_peak is not None:
        console.print(
            f"{result.tabled_name} on paper: {units.flops_rate(result.tabled_peak)} of dense"
            f" {result.peaks.dtype}"
        )
    console.print()
    _show_attention(console, result)
    _show_cases(console, result)
    _show_best(console, result)
    _show_race(console, result.race)
    for each in result.left_out:
        console.print(f"left out: {each.what}: {each.why}", soft_wrap=True, markup=False)
    console.print(f"{result.spent_seconds:.0f} s of {result.budget_seconds:.0f} s")


def _show_attention(console: Console, result: SuiteResult) -> None:
    table = titled_table("attention of one layer, forward and backward, ms")
    table.add_column("sequences × heads × tokens × channels")
    names = list(result.attention[0].seconds) if result.attention else []
    for name in names:
        table.add_column(name, justify="right")
    for each in result.attention:
        times = (each.seconds[name] for name in names)
        table.add_row(
            " × ".join(map(str, each.shape)), *("–" if s is None else f"{1e3 * s:.3f}" for s in times)
        )
    console.print(table)
    console.print()


def _show_cases(console: Console, result: SuiteResult) -> None:
    table = titled_table("speed: MFU of the measured peak and of the one on paper")
    for head in (
        "case",
        "trainer",
        "tokens/s",
        "× nanoGPT",
        "MFU",
        "on paper",
        "memory",
        "of nanoGPT",
        "start",
    ):
        table.add_column(head, justify="left" if head in ("case", "trainer") else "right", overflow="fold")
    theirs = {ours.case: other for ours, other in result.pairs()}
    for each in result.cases:
        other = theirs.get(each.case) if each.trainer == OURS else None
        rate, shares = each.tokens_per_second, each.document(result.by_peak)
        table.add_row(
            each.case,
            each.trainer,
            each.status if rate is None else f"{rate:,.0f}",
            f"{rate / other.tokens_per_second:.2f}" if rate and other and other.tokens_per_second else "",
            _percent(shares["mfu_of_measured_peak"]),
            _percent(shares["mfu_of_tabled_peak"]),
            units.size(each.device_bytes),
            f"{each.device_bytes / other.device_bytes:.2f}" if other and other.device_bytes else "",
            "" if each.start_seconds is None else f"{each.start_seconds:.0f} s",
        )
    console.print(table)
    console.print()


def _show_best(console: Console, result: SuiteResult) -> None:
    """Each trainer's fastest case of a model against the other's."""
    for model in dict.fromkeys(each.model for each in result.cases):
        ours, theirs = (result.fastest(model, trainer) for trainer in (OURS, NANOGPT))
        if ours and theirs and ours.tokens_per_second and theirs.tokens_per_second:
            ratio = ours.tokens_per_second / theirs.tokens_per_second
            console.print(
                f"{model}: the fastest of ours, {ours.case}, makes {ratio:.2f} × the tokens/s of"
                f" nanoGPT's fastest, {theirs.case}",
                soft_wrap=True,
            )
    console.print()


def _show_race(console: Console, race: Sequence[Racer]) -> None:
    if not race:
        return
    table = titled_table("race: the same data and wall time")
    for head in ("trainer", "recipe", "steps", "passes", "wall time", "val loss", "measured by"):
        words = ("trainer", "recipe", "measured by")
        table.add_column(head, justify="left" if head in words else "right")
    for each in race:
        error = each.val_loss_standard_error
        loss = "–" if each.val_loss is None else f"{each.val_loss:.4f}" + (f" ± {error:.4f}" if error else "")
        steps = f"{each.last_step if each.last_step is not None else 0:,} of {each.planned_steps:,}"
        table.add_row(
            each.trainer,
            each.recipe,
            steps,
            f"{each.passes:.1f}",
            f"{each.wall_seconds:.1f} s",
            loss,
            each.measured_by,
        )
    console.print(table)
    console.print()


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
