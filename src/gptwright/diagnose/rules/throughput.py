"""The MFU: against which peak it is, and how near to what is possible."""

from collections.abc import Iterator

from gptwright import units
from gptwright.diagnose.cuts import cut_of, most_that_fits
from gptwright.diagnose.machine import peak_fact
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding, fires
from gptwright.diagnose.rules.agreement import device_mismatch
from gptwright.diagnose.rules.failures import SLOW_ATTENTION
from gptwright.diagnose.sizes import usual_shape
from gptwright.facts import Fact
from gptwright.findings import Action, Cause, Confidence, Severity, Unknown
from gptwright.hardware.efficiency import reachable_mfu
from gptwright.hardware.step_time import Work
from gptwright.hardware.table import DeviceSpec, find_spec
from gptwright.record.evidence import EventKind

# A basis within 5 % of the device's peak is the same device in another table's rounding.
SAME_PEAK = 0.05
# Pure matrix products reach up to 113 % of the official peak on consumer cards, whose real clocks exceed the
# specified boost; a whole training step stays below that product. Beyond 105 % something else is wrong.
IMPOSSIBLE = 1.05
# From here on a share of the peak is told as a multiple.
MANY_TIMES = 3.0
# What is left of a peak after attention, norms and the optimizer; published GPT training rarely exceeds it.
NEAR_PEAK = 0.6
# Half of what published GPT training on one device reaches when nothing is wrong; above it nobody should look
# for a fault, whatever the model of speed hopes for.
LOW_MFU = 0.3
# The lowest true MFU of 76 published compiled runs of 30M parameters and more, on any device, is 0.245
# (hardware/speeds.toml).
LEAST_PUBLISHED = 0.24
# Tokens of a micro-batch that keep a device busy; more bring a few percent.
WELL_FED = 8192
# What a device is held against: twice that, and so many of them that the optimizer's share is small.
FILLED, FILLED_ACCUMULATION = 2 * WELL_FED, 8
# Models this small are bound by launches and memory by nature: a low MFU there is no fault.
SMALL_MODEL = 30e6


def mfu_basis(reading: Reading) -> Iterator[Verdict]:
    """nanoGPT and llama2.c divide by an A100's 312 TFLOP/s on every device; others know a few devices and
    print 0 or -100 % for the rest. Where the basis of the printed figure is not this device's dense peak in
    the run's dtype, the true share is given. It stays silent where the basis is the device's own, or that of
    the device which the log names in place of the stated one, and leaves the question open where no device is
    named. Sources: nanoGPT's model.py, llama2.c, nanochat's and llm.c's
    tables; nanoGPT issue 182.
    """
    printed, basis, peak = reading.speed.printed_mfu, reading.speed.mfu_basis, reading.machine.peak
    if printed is None or basis is None:
        yield from _unknown_to_the_trainer(reading)
        return
    if reading.log is not None and reading.log.format.measures_peak:
        return
    if reading.machine.is_cpu:
        yield finding(
            "mfu-basis",
            Severity.INFO,
            Confidence.CERTAIN,
            f"The printed MFU of {printed.text} is relative to {basis.text} and this run used a CPU, so it"
            f" says nothing ({basis.reason}). Its own peak has to be measured: gptwright env.",
            [printed, basis, reading.machine.name, *reading.settings.facts("device")],
        )
        return
    if peak is None:
        if reading.machine.name is None:
            yield Unknown(
                "Is the MFU good?",
                f"the device: --device NAME. The printed one is relative to {basis.text}",
            )
        return
    if abs(basis.number / peak.number - 1) <= SAME_PEAK or reading.mfu is None:
        return
    if _is_of_the_logs_device(reading, basis):
        return
    yield finding(
        "mfu-basis",
        Severity.INFO,
        Confidence.CERTAIN,
        f"The printed MFU of {printed.text} is relative to {basis.text}, not to this device."
        f" {_achieved(reading)} are {_share(reading.mfu.number)} its {peak.text}, all of which"
        f" would print as {units.percent(peak.number / basis.number)}.",
        [
            printed,
            basis,
            peak,
            reading.speed.achieved_flops,
            reading.mfu,
            reading.machine.name,
            reading.machine.processes,
        ],
    )


def _is_of_the_logs_device(reading: Reading, basis: Fact) -> bool:
    """Whether the basis is the peak of the device that the log names, where another one is stated."""
    named, dtype = reading.machine.logged_name, reading.machine.dtype
    match = find_spec(str(named.value)) if named is not None else None
    peak = peak_fact(match.spec, dtype) if match is not None and dtype is not None else None
    return peak is not None and abs(basis.number / peak.number - 1) <= SAME_PEAK


def _unknown_to_the_trainer(reading: Reading) -> Iterator[Verdict]:
    """A trainer that prints an MFU of nothing, because it does not know the device."""
    log = reading.log
    if (
        log is None
        or not log.hazards.get("MFU unknown to the trainer")
        or reading.speed.achieved_flops is None
    ):
        return
    if reading.mfu is None or reading.machine.peak is None:
        yield Unknown("What is the true MFU?", "the device: --device NAME. The trainer did not know its peak")
        return
    yield finding(
        "mfu-basis",
        Severity.INFO,
        Confidence.CERTAIN,
        "The trainer knew no peak for this device, so the MFU that it prints means nothing."
        f" {_achieved(reading)} are {_share(reading.mfu.number)} its {reading.machine.peak.text}.",
        [reading.speed.achieved_flops, reading.machine.peak, reading.mfu, reading.machine.name],
    )


def _achieved(reading: Reading) -> str:
    achieved = reading.speed.achieved_flops
    assert achieved is not None
    each = " a device" if reading.machine.count > 1 else ""
    return f"The {achieved.text}{each} that it did"


def impossible_throughput(reading: Reading) -> Iterator[Verdict]:
    """More FLOP/s than the stated device has: the device is another, there are several, or a step holds fewer
    tokens than thought. Consumer cards exceed their official peak in pure matrix products by up to 13 %, a
    training step does not. Of attention an MFU counts twice what is done, and at long contexts that is much:
    what is done is held against the peak. Source: measured against specified peaks (hardware/gpus.toml).
    """
    if reading.mfu is None or reading.machine.peak is None:
        return
    shape = reading.sizes.shape
    if reading.mfu.number * (shape.causal_share if shape is not None else 1) <= IMPOSSIBLE:
        return
    spec, dtype = reading.machine.spec, reading.machine.dtype
    if spec is not None and dtype == "float16" and not spec.native(dtype) and spec.float16_accumulate:
        # Vectors of 16 bits are faster than the float32 that this peak is of.
        return
    causes = [Cause("the run was made on another device than the one stated", Confidence.LIKELY)]
    own = _of_its_own_peak(reading)
    if own is not None:
        causes.insert(0, own)
    if not reading.machine.count_known:
        causes.append(Cause("several devices trained together", Confidence.POSSIBLE))
    if "tokens_per_step" not in reading.settings.logged:
        causes.append(Cause("a step holds fewer tokens than the config says", Confidence.POSSIBLE))
    yield finding(
        "impossible-throughput",
        Severity.ERROR if own is None else Severity.WARNING,
        Confidence.CERTAIN if own is None else Confidence.LIKELY,
        f"{_achieved(reading)} are {_share(reading.mfu.number)} the {reading.machine.peak.text} that the"
        " stated device can do.",
        [
            reading.speed.achieved_flops,
            reading.machine.peak,
            reading.mfu,
            reading.machine.name,
            reading.speed.step_seconds,
            reading.speed.tokens_per_step,
        ],
        causes=causes,
        actions=[Action("Check which device the run used (nvidia-smi) and pass it as --device.")],
    )


def _share(fraction: float) -> str:
    """A share of more than all: in percent, or, where that is no number to picture, as a multiple."""
    return f"{fraction:,.0f} times" if fraction >= MANY_TIMES else f"{units.percent(fraction)} of"


def _of_its_own_peak(reading: Reading) -> Cause | None:
    """Whether the printed MFU may be relative to the stated device, where nothing else tells the FLOP/s."""
    printed, basis, peak = reading.speed.printed_mfu, reading.speed.mfu_basis, reading.machine.peak
    if printed is None or basis is None or peak is None or reading.sizes.flops_per_token is not None:
        return None
    if (
        printed.number > IMPOSSIBLE
        or "mfu_peak_flops" in reading.settings.logged
        or basis.number <= peak.number
    ):
        return None
    return Cause(
        f"this version of the trainer divides by the device's own peak and not by {basis.text}: the printed"
        f" {printed.text} is then the true one",
        Confidence.LIKELY,
    )


def near_peak(reading: Reading) -> Iterator[Verdict]:
    """At 60 % of the dense peak and more, what is left is attention, norms, the optimizer and memory traffic;
    no setting will bring much. It is good news, said so that nobody spends a week on it. Source:
    docs/throughput.md (published training speeds).
    """
    mfu, peak = reading.mfu, reading.machine.peak
    if mfu is None or peak is None or not NEAR_PEAK <= mfu.number <= IMPOSSIBLE:
        return
    yield finding(
        "near-peak",
        Severity.GOOD,
        Confidence.LIKELY,
        f"{units.percent(mfu.number)} of this device's {peak.text}: near what it reaches in training. There"
        " is little to tune in speed.",
        [mfu, peak, reading.speed.achieved_flops, reading.speed.tokens_per_second],
    )


def low_mfu(reading: Reading) -> Iterator[Verdict]:
    """The true MFU is held against what this device reaches with this shape when compiled (where a compiler
    supports it), in its best dtype and with a well filled micro-batch. Below the lower edge of that, which
    holds every published run that it was checked on, causes are listed by the evidence for them: bfloat16
    that is only emulated, not compiled, micro-batches too small, float32, a vocabulary that is not a multiple
    of 64. Models under 30M parameters are left alone: launches and memory bound them by nature; so is a run
    whose log names another device than the stated one. Source: docs/throughput.md (the model and the runs
    that it was fitted on).
    """
    mfu, peak, spec, parameters = (
        reading.mfu,
        reading.machine.peak,
        reading.machine.spec,
        reading.sizes.parameters,
    )
    if mfu is None or peak is None or spec is None or parameters is None or reading.machine.dtype is None:
        return
    if parameters.number < SMALL_MODEL or fires(device_mismatch, reading):
        return
    shape = reading.settings.shape() or usual_shape(parameters.number, reading.settings)
    work = Work(
        shape=shape,
        peak_flops=peak.number,
        bandwidth=spec.bandwidth,
        dtype=reading.machine.dtype if spec.native(reading.machine.dtype) else spec.training_dtype,
        compiled=spec.compiles,
        micro_batch=max(1, FILLED // shape.block_size),
        accumulation=FILLED_ACCUMULATION,
        family=spec.family,
        power_watts=spec.power_watts,
        least_clock=spec.least_clock,
        device_count=reading.machine.count,
    )
    low, likely, _ = reachable_mfu(work)
    if mfu.number >= min(max(low, LEAST_PUBLISHED), LOW_MFU):
        return
    causes, actions = _slow_causes(reading, spec, shape.vocab_size)
    best = "when compiled and well fed" if spec.compiles else "when well fed"
    yield finding(
        "low-mfu",
        Severity.WARNING,
        Confidence.LIKELY,
        f"{units.percent(mfu.number)} of this device's {peak.text}; a model of this shape reaches about"
        f" {units.percent(likely)} there {best}.",
        [mfu, peak, reading.speed.achieved_flops, *reading.settings.facts("compile", "batch_size", "dtype")],
        causes=causes,
        actions=actions,
    )


def _slow_causes(reading: Reading, spec: DeviceSpec, vocab_size: int) -> tuple[list[Cause], list[Action]]:
    settings = reading.settings
    causes, actions = [], []
    dtype, better = reading.machine.dtype, spec.training_dtype
    if dtype == "bfloat16" and not spec.native(dtype):
        causes.append(Cause(f"{spec.name} only emulates bfloat16", Confidence.LIKELY))
        actions.append(Action(f"Multiply in {better}.", {"dtype": better}))
    if settings.flag("compile") is False and spec.compiles:
        causes.append(
            Cause("the model is not compiled (compile = False): 1.5 to 2 times slower", Confidence.LIKELY)
        )
        actions.append(Action("Compile the model.", {"compile": True}))
    micro, context = settings.integer("batch_size"), settings.integer("block_size")
    if micro is not None and context is not None and micro * context < WELL_FED:
        causes.append(Cause(f"a micro-batch holds only {micro} × {context} tokens", Confidence.LIKELY))
        actions += _larger_micro_batch(reading, micro, context)
    for event in reading.log.events if reading.log is not None else ():
        if event.kind is EventKind.WARNING and SLOW_ATTENTION.search(event.text):
            text = f"attention runs in its plain form, as line {event.line} warns"
            causes.append(Cause(text, Confidence.LIKELY))
            actions.append(Action("Use a PyTorch with scaled_dot_product_attention, 2.0 or newer."))
            break
    if settings.word("dtype") == "float32" and better != "float32":
        causes.append(Cause("matrices are multiplied in float32", Confidence.LIKELY))
        actions.append(Action("Multiply in 16 bits.", {"dtype": "auto"}))
    if vocab_size % 64 and vocab_size > 1024 and reading.starts_from_scratch:
        padded = -(-vocab_size // 64) * 64
        causes.append(Cause(f"the vocabulary of {vocab_size} is no multiple of 64", Confidence.POSSIBLE))
        actions.append(Action("Pad the vocabulary.", {"vocab_size": padded}))
    if not causes:
        causes.append(
            Cause("data loading, power or heat limits, or another process on the device", Confidence.POSSIBLE)
        )
    return causes, actions


def _larger_micro_batch(reading: Reading, micro: int, context: int) -> list[Action]:
    """Twice the micro-batch or more, as far as memory allows: of the same step, or of a larger one where a
    step is one micro-batch.
    """
    accumulation = reading.settings.integer("gradient_accumulation_steps") or 1
    wanted = max(2 * micro, WELL_FED // context)
    fitting = most_that_fits(reading, compiled=reading.settings.flag("compile") is not False)
    wanted = min(wanted, fitting) if fitting is not None else wanted
    if accumulation == 1 and wanted > micro:
        text = f"Take micro-batches of {wanted}; a step then holds {wanted / micro:.2g} times the tokens."
        return [Action(text, {"batch_size": wanted})]
    larger = cut_of(micro * accumulation, at_most=wanted)
    if larger <= micro:
        return []
    return [
        Action(
            "Take larger micro-batches and accumulate less, at the same tokens per step.",
            {"batch_size": larger, "gradient_accumulation_steps": accumulation * micro // larger},
        )
    ]


RULES = (
    Rule("mfu-basis", mfu_basis),
    Rule("impossible-throughput", impossible_throughput),
    Rule("near-peak", near_peak),
    Rule("low-mfu", low_mfu),
)
