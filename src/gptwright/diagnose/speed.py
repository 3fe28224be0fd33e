"""How fast a run went, how many tokens a step holds, and what follows for the device.

Step times and the printed MFU are read in `timing.py`. Tokens per step are said by the log, by the config,
and by the speed itself: the printed rate × time where both are printed, else MFU × its peak × time / FLOPs
per token, which hangs on the trainer's idea of a peak. A printed MFU is turned back into FLOP/s before
anything is said about a device.
"""

from dataclasses import dataclass

from gptwright.diagnose.settings import Settings
from gptwright.diagnose.sizes import Sizes
from gptwright.facts import Fact, Origin, derived
from gptwright.record.evidence import LogEvidence

# Tokens per step by inversion carry the errors of the printed MFU and of the FLOP convention (6 to 7 % at
# GPT-2's shapes). Beyond 12 % the settings and the log contradict each other.
INVERSION_TOLERANCE = 0.12
# nanoGPT prints both by the same formula, so a ratio between them is exact but for rounding and the average.
PROCESS_TOLERANCE, MOST_PROCESSES = 0.04, 64
# Hugging Face's name for a micro-batch.
PER_DEVICE = "per_device_train_batch_size"


@dataclass(frozen=True, slots=True)
class Speed:
    """A run's speed.

    Attributes:
        step_seconds: median over the lines that time a step and nothing else.
        tokens_per_step: what the log says, else the config, else what the speed implies.
        timed_tokens_per_step: what the printed rate and time imply, over all devices; None where the log does
            not print both.
        implied_tokens_per_step: what MFU, time and size imply, on one device; None where they cannot, or
            where rate and time tell.
        configured_tokens_per_step: the product of the config's batch settings.
        tokens_per_second: over all devices.
        printed_mfu: undisturbed, relative to `mfu_basis`.
        mfu_basis: the peak in FLOP/s that the trainer divides by.
        achieved_flops: FLOP/s on one device.
    """

    step_seconds: Fact | None
    tokens_per_step: Fact | None
    timed_tokens_per_step: Fact | None
    implied_tokens_per_step: Fact | None
    configured_tokens_per_step: Fact | None
    tokens_per_second: Fact | None
    printed_mfu: Fact | None
    mfu_basis: Fact | None
    achieved_flops: Fact | None


def speed_of(settings: Settings, sizes: Sizes, log: LogEvidence | None, device_count: int) -> Speed:
    """The speed that a log's lines give, with what follows from it."""
    basis = _basis(settings, log)
    each = device_count if PER_DEVICE in settings.given else 1
    configured = configured_tokens_per_step(settings, devices=each)
    printed_tokens = settings.logged.get("tokens_per_step") or logged_cut(settings, device_count)
    seconds = printed_mfu = rate = timed = None
    if log is not None:
        # numpy, which a plan has no use for, is loaded with it.
        from gptwright.diagnose.timing import printed_mfu_of, printed_rate, step_seconds, timed_tokens

        seconds = step_seconds(log, printed_tokens or configured)
        printed_mfu, rate, timed = printed_mfu_of(log), printed_rate(log), timed_tokens(log)
    implied = _implied(sizes, log, seconds, printed_mfu, basis) if timed is None else None
    told = _tokens_of_a_step(log, timed) or implied
    per_step = printed_tokens or _tokens_per_step(configured, told, device_count if timed is None else 1)
    if seconds is not None and per_step is not None and not contradicts(timed, per_step, device_count):
        formula = f"{per_step.text} tokens a step / {seconds.text}"
        rate = derived("tokens_per_second", per_step.number / seconds.number, formula, unit="tokens/s")
    return Speed(
        step_seconds=seconds,
        tokens_per_step=per_step,
        timed_tokens_per_step=timed,
        implied_tokens_per_step=implied,
        configured_tokens_per_step=configured,
        tokens_per_second=rate,
        printed_mfu=printed_mfu,
        mfu_basis=basis,
        achieved_flops=_achieved(sizes, rate, printed_mfu, basis, device_count),
    )


def _tokens_of_a_step(log: LogEvidence | None, timed: Fact | None) -> Fact | None:
    """Rate × time where both are known to be of a step: a loop of one's own may time micro-batches."""
    return timed if log is not None and not log.format.any_model else None


def contradicts(timed: Fact | None, said: Fact, device_count: int) -> bool:
    """Whether the printed rate × time is another number of tokens than a step is said to have.

    Whose rate is printed nothing may say: that of one of several devices is no contradiction.
    """
    if timed is None:
        return False
    ratios = (times * timed.number / said.number for times in (1, device_count))
    return all(abs(ratio - 1) > INVERSION_TOLERANCE for ratio in ratios)


def processes_of(speed: Speed, settings: Settings, log: LogEvidence | None) -> Fact | None:
    """How many processes trained together, where nanoGPT's log tells.

    Its header counts the tokens of all processes and its MFU is that of one: the ratio is their number.
    """
    printed, implied = settings.logged.get("tokens_per_step"), speed.implied_tokens_per_step
    if log is None or log.format.name != "nanoGPT" or printed is None or implied is None:
        return None
    ratio = printed.number / implied.number if implied.number else 0.0
    count = round(ratio)
    if not 1 <= count <= MOST_PROCESSES or abs(ratio / count - 1) > PROCESS_TOLERANCE:
        return None
    formula = f"the header's {printed.text} tokens a step / {implied.text} by the MFU of one process"
    return derived("device_count", count, formula, unit="devices")


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


def _implied(
    sizes: Sizes, log: LogEvidence | None, seconds: Fact | None, mfu: Fact | None, basis: Fact | None
) -> Fact | None:
    if log is None or sizes.flops_per_token is None or seconds is None or mfu is None or basis is None:
        return None
    from gptwright.diagnose.timing import mfu_seconds

    tokens = mfu_seconds(log, seconds, mfu) * basis.number / sizes.flops_per_token.number
    if not tokens:
        # An MFU that is printed as 0.00 % on most lines.
        return None
    formula = (
        f"{mfu.text} × {basis.text} × {seconds.text} / {sizes.flops_per_token.text} a token, on one device"
    )
    return derived("implied_tokens_per_step", tokens, formula, unit="tokens")


def configured_tokens_per_step(settings: Settings, *, devices: int = 1) -> Fact | None:
    """batch_size × gradient_accumulation_steps × block_size, as the config has it, or the log's text.

    nanoGPT's accumulation is over all processes, so the product is the whole step on any number of devices;
    Hugging Face's, beside a batch that its name says is a device's, is each device's own.

    Args:
        settings: of the run.
        devices: that each accumulate so often.
    """
    names = "batch_size", "gradient_accumulation_steps", "block_size"
    written = [settings.given.get(name) or settings.logged.get(name) for name in names]
    numbers = [
        fact or (settings.defaults.get(name) if any(written) else None)
        for name, fact in zip(names, written, strict=True)
    ]
    if any(n is None or isinstance(n.value, bool) or not isinstance(n.value, int) for n in numbers):
        return None
    micro, accumulation, context = (int(n.number) for n in numbers if n is not None)
    formula = f"batch_size {micro} × accumulation {accumulation} × block_size {context}"
    formula += f" × {devices} devices" if devices > 1 else ""
    return derived("tokens_per_step", micro * accumulation * context * devices, formula, unit="tokens")


def logged_cut(settings: Settings, device_count: int) -> Fact | None:
    """Tokens a step where the log prints its sequences, or how each device cuts it, as litgpt's numbering
    does.
    """
    whole, length = settings.logged.get("global_batch"), settings.get("block_size")
    if whole is not None and length is not None:
        formula = f"global batch {whole.text} by the log × context {length.text}"
        return derived("tokens_per_step", int(whole.number * length.number), formula, unit="tokens")
    accumulation = settings.logged.get("gradient_accumulation_steps")
    micro = settings.logged.get("micro_batch") or settings.given.get("batch_size")
    if accumulation is None or micro is None or length is None:
        return None
    devices = f" × {device_count} devices" if device_count > 1 else ""
    formula = (
        f"micro-batch {micro.text} × accumulation {accumulation.text} by the log × context {length.text}"
    )
    value = int(micro.number * accumulation.number * length.number) * device_count
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
