"""How fast a run went: the time of a step without what does not belong to it, and what it says about its
size.

A printed step time may hold an evaluation, a checkpoint, or compilation; those lines are left out. A printed
MFU is a running average over all of them, relative to whatever peak its trainer believes in, so it is read
where it is least disturbed, and turned back into FLOP/s before anything is said about a device.
"""

from dataclasses import dataclass

import numpy as np

from gptwright.diagnose.settings import Settings
from gptwright.diagnose.sizes import Sizes
from gptwright.facts import Fact, Origin, derived
from gptwright.record.evidence import Booleans, Floats, LogEvidence

# The first lines of a process hold compilation, autotuning and cold caches.
WARM_UP_LINES = 2
# A running average (nanoGPT keeps 9/10 of the old value) that an evaluation has pulled down is back within
# 2 % of the truth after some 20 lines, so the upper tenth of its values is the undisturbed one.
UNDISTURBED_QUANTILE = 0.9
# Tokens per step by inversion carry the errors of the printed MFU and of the FLOP convention (6 to 7 % at
# GPT-2's shapes). Beyond 12 % the settings and the log contradict each other.
INVERSION_TOLERANCE = 0.12


@dataclass(frozen=True, slots=True)
class Speed:
    """A run's speed.

    Attributes:
        line_seconds: one optimizer step on each training line, as printed or from its printed rate.
        clean: the training lines whose step time holds nothing but the step.
        step_seconds: median over them.
        tokens_per_step: what the log says, else the config, else what the speed implies.
        implied_tokens_per_step: what MFU, time and size imply, on one device; None where they cannot.
        configured_tokens_per_step: the product of the config's batch settings.
        tokens_per_second: over all devices.
        printed_mfu: undisturbed, relative to `mfu_basis`.
        mfu_basis: the peak in FLOP/s that the trainer divides by.
        achieved_flops: FLOP/s on one device.
    """

    line_seconds: Floats
    clean: Booleans
    step_seconds: Fact | None
    tokens_per_step: Fact | None
    implied_tokens_per_step: Fact | None
    configured_tokens_per_step: Fact | None
    tokens_per_second: Fact | None
    printed_mfu: Fact | None
    mfu_basis: Fact | None
    achieved_flops: Fact | None


def speed_of(settings: Settings, sizes: Sizes, log: LogEvidence | None, device_count: int) -> Speed:
    """The speed that a log's lines give, with what follows from it."""
    printed_mfu = _printed_mfu(log) if log else None
    basis = _basis(settings, log)
    configured = configured_tokens_per_step(settings)
    printed_tokens = settings.logged.get("tokens_per_step") or logged_cut(settings, device_count)
    line_seconds = _line_seconds(log, printed_tokens or configured)
    clean = clean_lines(log, line_seconds) if log else np.zeros(0, dtype=np.bool_)
    seconds = _step_seconds(log, line_seconds, clean)
    implied = _implied(sizes, seconds, printed_mfu, basis)
    per_step = printed_tokens or _tokens_per_step(configured, implied, device_count)
    rate = _tokens_per_second(log, clean, seconds, per_step)
    return Speed(
        line_seconds,
        clean,
        seconds,
        per_step,
        implied,
        configured,
        rate,
        printed_mfu,
        basis,
        _achieved(sizes, rate, printed_mfu, basis, device_count),
    )


def _line_seconds(log: LogEvidence | None, per_step: Fact | None) -> Floats:
    """Seconds a step on every training line; a trainer that prints only a rate gives them by it."""
    if log is None:
        return np.zeros(0, dtype=np.float64)
    train = log.train
    if np.isfinite(train.seconds).any() or per_step is None:
        return train.seconds
    with np.errstate(divide="ignore"):
        seconds: Floats = per_step.number / train.tokens_per_second
    return seconds


def clean_lines(log: LogEvidence, seconds: Floats) -> Booleans:
    """Which training lines time a step and nothing else: not the first of a process, none with an
    evaluation."""
    train = log.train
    clean = np.isfinite(seconds) & (seconds > 0)
    starts = np.flatnonzero(np.diff(train.segment, prepend=-1))
    position = np.arange(len(train)) - np.repeat(starts, np.diff(np.append(starts, len(train))))
    # A log of a few lines cannot spare two of them; one is what compilation needs.
    clean &= position >= (WARM_UP_LINES if len(train) > 4 * WARM_UP_LINES else 1)
    if log.format.time_includes_evaluation:
        clean &= ~np.isin(train.step, log.evals.step)
    return clean


def _step_seconds(log: LogEvidence | None, seconds: Floats, clean: Booleans) -> Fact | None:
    if log is None or not clean.any():
        return None
    lines = log.train.line[clean]
    formula = f"median of {len(lines)} lines without evaluations and warm-up, lines {lines[0]} to {lines[-1]}"
    return derived("step_seconds", float(np.median(seconds[clean])), formula, unit="seconds")


def _printed_mfu(log: LogEvidence) -> Fact | None:
    """The printed MFU where no evaluation has pulled it down: before the first one, else its upper tenth."""
    train = log.train
    known = np.isfinite(train.mfu) & (train.mfu > 0)
    if not known.any():
        return None
    if log.format.time_includes_evaluation:
        held = np.flatnonzero(np.isin(train.step, log.evals.step) & (train.step > train.step[0]))
        before = known & (np.arange(len(train)) < (held[0] if len(held) else len(train)))
        known = before if before.any() else known
    mfu = train.mfu
    value = float(np.quantile(mfu[known], UNDISTURBED_QUANTILE, method="lower"))
    line = int(log.train.line[np.flatnonzero(known & (mfu == value))[0]])
    return Fact(
        name="printed_mfu",
        value=value,
        text=f"{value * 100:.2f} %",
        origin=Origin.LOGGED,
        reason=f"the printed MFU where no evaluation pulls it down (line {line})",
        unit="fraction",
        source=f"log:{line}",
    )


def _basis(settings: Settings, log: LogEvidence | None) -> Fact | None:
    """The peak behind the printed MFU: printed itself, or fixed in the trainer's source."""
    printed = settings.logged.get("mfu_peak_flops")
    if printed is not None or log is None or log.format.mfu_peak_flops is None:
        return printed
    peak = log.format.mfu_peak_flops
    return Fact(
        name="mfu_peak_flops",
        value=peak,
        text=f"{peak / 1e12:.0f} TFLOP/s",
        origin=Origin.TABLED,
        reason=f"{log.format.name} divides by {peak / 1e12:.0f} TFLOP/s (an A100) on every device",
        unit="FLOP/s",
        source=f"table:{log.format.name}",
    )


def _implied(sizes: Sizes, seconds: Fact | None, mfu: Fact | None, basis: Fact | None) -> Fact | None:
    if sizes.flops_per_token is None or seconds is None or mfu is None or basis is None:
        return None
    tokens = mfu.number * basis.number * seconds.number / sizes.flops_per_token.number
    formula = (
        f"{mfu.text} × {basis.text} × {seconds.text} / {sizes.flops_per_token.text} a token, on one device"
    )
    return derived("implied_tokens_per_step", tokens, formula, unit="tokens")


def configured_tokens_per_step(settings: Settings) -> Fact | None:
    """batch_size × gradient_accumulation_steps × block_size, as the config has it.

    nanoGPT's accumulation is over all processes, so the product is the whole step on any number of devices.
    """
    numbers = [
        settings.given.get(name) for name in ("batch_size", "gradient_accumulation_steps", "block_size")
    ]
    if numbers[1] is None:
        numbers[1] = settings.defaults.get("gradient_accumulation_steps")
    if any(n is None or isinstance(n.value, bool) or not isinstance(n.value, int) for n in numbers):
        return None
    micro, accumulation, context = (int(n.number) for n in numbers if n is not None)
    formula = f"batch_size {micro} × accumulation {accumulation} × block_size {context}"
    return derived("tokens_per_step", micro * accumulation * context, formula, unit="tokens")


def logged_cut(settings: Settings, device_count: int) -> Fact | None:
    """Tokens a step where the log prints how each device cuts it, such as litgpt's micro-batches and
    updates."""
    accumulation = settings.logged.get("gradient_accumulation_steps")
    micro = settings.logged.get("micro_batch") or settings.given.get("batch_size")
    context = settings.get("block_size")
    if accumulation is None or micro is None or context is None:
        return None
    devices = f" × {device_count} devices" if device_count > 1 else ""
    formula = (
        f"micro-batch {micro.text} × accumulation {accumulation.text} by the log × context {context.text}"
    )
    value = int(micro.number * accumulation.number * context.number) * device_count
    return derived("tokens_per_step", value, formula + devices, unit="tokens")


def _tokens_per_step(configured: Fact | None, implied: Fact | None, device_count: int) -> Fact | None:
    """The config's unless the speed contradicts it, else what the speed implies."""
    if implied is None:
        return configured
    if configured is None:
        value = implied.number * device_count
        return derived("tokens_per_step", value, implied.reason, unit="tokens")
    ratio = implied.number * device_count / configured.number
    if abs(ratio - 1) <= INVERSION_TOLERANCE or round(ratio) < 2:
        return configured
    value = configured.number * round(ratio)
    formula = f"{round(ratio)} × the config's {configured.text}, which is what time and MFU imply"
    return derived("tokens_per_step", int(value), formula, unit="tokens")


def _tokens_per_second(
    log: LogEvidence | None, clean: Booleans, seconds: Fact | None, per_step: Fact | None
) -> Fact | None:
    if seconds is not None and per_step is not None:
        formula = f"{per_step.text} tokens a step / {seconds.text}"
        return derived("tokens_per_second", per_step.number / seconds.number, formula, unit="tokens/s")
    if log is None:
        return None
    rate: Floats = log.train.tokens_per_second
    usable = np.isfinite(rate) & (clean if clean.any() else np.arange(len(rate)) >= 1)
    if not usable.any():
        return None
    lines = log.train.line[usable]
    formula = f"median of {len(lines)} printed rates, lines {lines[0]} to {lines[-1]}"
    return derived("tokens_per_second", float(np.median(rate[usable])), formula, unit="tokens/s")


def _achieved(
    sizes: Sizes, rate: Fact | None, mfu: Fact | None, basis: Fact | None, device_count: int
) -> Fact | None:
    if sizes.flops_per_token is not None and rate is not None:
        value = sizes.flops_per_token.number * rate.number / device_count
        share = "" if device_count == 1 else f" / {device_count} devices"
        formula = f"{sizes.flops_per_token.text} a token × {rate.text}{share}"
    elif mfu is not None and basis is not None:
        value, formula = mfu.number * basis.number, f"printed MFU {mfu.text} × {basis.text}"
    else:
        return None
    return derived("achieved_flops", value, formula, unit="FLOP/s")
