"""What the page is told of a run: texts for people and numbers for curves, each figure with its origin."""

from typing import Any

from gptwright import units
from gptwright.record.metrics import Record
from gptwright.record.progress import number, whole
from gptwright.report.live.followed import FollowedRun

SEVERITIES = ("error", "warning", "info", "good")
# More points than a small curve has pixels would only be sent.
SMALL_CURVE = 64


def summary(run: FollowedRun) -> dict[str, Any]:
    """A run in the list."""
    findings = (run.answer or {}).get("diagnosis", {}).get("findings", [])
    counted = {name: sum(finding["severity"] == name for finding in findings) for name in SEVERITIES}
    document = {
        "id": run.found.id,
        "name": run.name,
        "ours": run.found.ours,
        "state": run.state.name,
        "reason": run.state.reason,
        "verdict": (run.answer or {}).get("verdict"),
        "problem": ((run.answer or {}).get("error") or {}).get("problem"),
        "severities": counted,
        **(_ours(run) if run.found.ours else _foreign(run)),
    }
    document["share"] = (
        min(1.0, document["step"] / document["planned"]) if document["planned"] and document["step"] else None
    )
    return document


def details(run: FollowedRun) -> dict[str, Any]:
    """A run by itself: its figures and the diagnosis as it stands."""
    return {
        "summary": summary(run),
        "figures": _figures(run),
        "diagnosis": (run.answer or {}).get("diagnosis"),
        "error": (run.answer or {}).get("error"),
    }


def _ours(run: FollowedRun) -> dict[str, Any]:
    progress, left = run.progress, _seconds_left(run)
    train, best = progress.train or {}, progress.best or {}
    return {
        "step": progress.step,
        "planned": progress.max_iters,
        "loss": _loss(train.get("loss_mean")),
        "best": _loss(best.get("val_loss")),
        "speed": _rate(number(train.get("tokens_per_second"))),
        "left": units.duration(left) if left else None,
        "updated": progress.updated,
        "curve": [round(value, 4) for value in _thin(progress.losses.values)],
    }


def _seconds_left(run: FollowedRun) -> float | None:
    """Until the end of a run that goes on; of one that stands still nobody knows."""
    return run.progress.seconds_left if run.state.name == "running" else None


def _foreign(run: FollowedRun) -> dict[str, Any]:
    said = run.run_numbers
    planned = (run.answer or {}).get("planned_steps")
    seconds, step = said.get("step_seconds"), said.get("last_step")
    left = (planned - step) * seconds if planned and seconds and step is not None else None
    return {
        "step": step,
        "planned": planned,
        "loss": _loss(said.get("last_train_loss")),
        "best": _loss(said.get("best_val_loss")),
        "speed": _rate(said.get("tokens_per_second")),
        "left": units.duration(left) if left and left > 0 and run.state.name == "running" else None,
        "updated": run.changed,
        "curve": [round(value, 4) for value in _thin((run.answer or {}).get("curve", []))],
    }


def _thin(values: list[float]) -> list[float]:
    every = -(-len(values) // SMALL_CURVE) if values else 1
    return [sum(part) / len(part) for i in range(0, len(values), every) if (part := values[i : i + every])]


def _figures(run: FollowedRun) -> list[dict[str, str]]:
    """The run in figures: name, value, and where it comes from."""
    rows = _our_figures(run) if run.found.ours else _foreign_figures(run)
    return [{"name": name, "value": value, "origin": origin} for name, value, origin in rows if value]


def _our_figures(run: FollowedRun) -> list[tuple[str, str | None, str]]:
    progress = run.progress
    train, last, best = progress.train or {}, progress.evaluation or {}, progress.best or {}
    left, mfu = _seconds_left(run), number(train.get("mfu"))
    return [
        ("state", run.state.name, run.state.reason),
        ("step", _of(progress.step, progress.max_iters), "the last record; max_iters of config.toml"),
        (
            "time left",
            units.duration(left) if left else None,
            "steps to come at the median of the last 50, evaluations to come at the last one's time",
        ),
        ("training loss", _loss(train.get("loss_mean")), "mean over the steps since the line before"),
        ("validation loss", _with_error(last), _at(last)),
        ("best validation loss", _with_error(best), _at(best)),
        ("speed", _rate(number(train.get("tokens_per_second"))), "the last line, without evaluations"),
        ("MFU", units.percent(mfu) if mfu is not None else None, "of the peak measured at the start"),
        ("device", run.machine.device, "run.json"),
        ("time so far", units.duration(progress.trained_seconds), "steps and evaluations, as recorded"),
        *_energy(run, left),
    ]


def _energy(run: FollowedRun, left: float | None) -> list[tuple[str, str | None, str]]:
    watts = run.machine.watts
    if watts is None:
        why = "no table has this device's power" if run.machine.device else "nothing says on what it trains"
        return [("energy", "not known", why)]
    spent = watts * run.progress.trained_seconds / 3.6e6
    text = f"{spent:.3g} kWh so far"
    if left:
        text += f", {watts * (run.progress.trained_seconds + left) / 3.6e6:.3g} kWh in all"
    return [("energy", text, f"at most: {watts:.0f} W board limit (table of devices) × time")]


def _foreign_figures(run: FollowedRun) -> list[tuple[str, str | None, str]]:
    said = run.run_numbers
    planned = (run.answer or {}).get("planned_steps")
    mfu, tokens = said.get("mfu"), said.get("tokens_seen")
    return [
        ("state", run.state.name, run.state.reason),
        ("log", said.get("format"), f"{said.get('lines_read') or 0:,} lines"),
        ("step", _of(said.get("last_step"), planned), "the log"),
        ("training loss", _loss(said.get("last_train_loss")), "the last line that has one"),
        ("validation loss", _loss(said.get("last_val_loss")), "the last evaluation"),
        (
            "best validation loss",
            _loss(said.get("best_val_loss")),
            f"step {said.get('best_val_step') or 0:,}",
        ),
        ("tokens seen", units.text(tokens, "tokens") if tokens else None, "steps × tokens per step"),
        ("speed", _rate(said.get("tokens_per_second")), "median, without evaluations"),
        ("MFU", units.percent(mfu) if mfu is not None else None, "of this device's peak"),
    ]


def _of(step: float | None, planned: float | None) -> str | None:
    if step is None:
        return None
    return f"{step:,.0f} of {planned:,.0f}" if planned else f"{step:,.0f}"


def _loss(value: Any) -> str | None:
    """A loss; `nan` and `inf` are stored as their names."""
    if value in ("nan", "inf", "-inf"):
        return str(value)
    loss = number(value)
    return f"{loss:.4f}" if loss is not None else None


def _at(record: Record) -> str:
    return f"evaluation at step {whole(record.get('step')) or 0:,}"


def _with_error(record: dict[str, Any]) -> str | None:
    loss, error = _loss(record.get("val_loss")), number(record.get("val_loss_standard_error"))
    return f"{loss} ± {error:.4f}" if loss and error is not None else loss


def _rate(value: float | None) -> str | None:
    return f"{value:,.0f} tokens/s" if value is not None else None
