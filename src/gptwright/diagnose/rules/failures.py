"""What broke or complained: losses that are no numbers, memory that ran out, warnings."""

import math
import re
from collections.abc import Iterator

import numpy as np

from gptwright.arithmetic.allocations import MIB, TRIED, UNITS, allocation_bytes, decode_allocation
from gptwright.diagnose.cuts import cut_of, device_memory, most_that_fits
from gptwright.diagnose.gradients import norm_growth
from gptwright.diagnose.rate import half_the_rate, rate_cause
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.rules.guarded import skipped_steps
from gptwright.facts import Fact, logged
from gptwright.findings import Action, Cause, Confidence, Severity
from gptwright.record.evidence import Event, EventKind, LogEvidence

SLOW_ATTENTION = re.compile(
    r"flash ?attention requires|slow attention|not compiled with flash attention", re.IGNORECASE
)
# Warnings that people ask about, each with what it means. Sources: the frameworks' own code, as named.
WARNINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"[Nn]ot enough SMs to use max_autotune_gemm"),
        (
            "harmless: torch asks for 68 multiprocessors before it offers its own matrix kernels in"
            " max-autotune mode (torch/_inductor/utils.py); in the default mode cuBLAS is used anyway, on any"
            " card"
        ),
    ),
    (
        re.compile(r"lr_scheduler\.step\(\).*before.*optimizer\.step\(\)"),
        (
            "the first learning rate of the schedule is skipped; with a float16 scaler it is harmless, its"
            " first update is often skipped"
        ),
    ),
    (
        SLOW_ATTENTION,
        (
            "attention runs in its plain form, whose memory grows with the square of the context: use PyTorch"
            " 2.0 or newer"
        ),
    ),
    (
        re.compile(r"GradScaler.*(?:disabl|not available)|scaler.*skipp", re.IGNORECASE),
        (
            "float16 updates with an overflowing gradient are skipped; a few are normal, one in every step"
            " is not"
        ),
    ),
    (
        re.compile(r"TensorFloat32 tensor cores.*available but not enabled", re.IGNORECASE),
        "float32 matrix products run at a fraction of the speed: torch.set_float32_matmul_precision('high')",
    ),
)


# What torch's message says that this process itself holds, in its newer and its older form.
HELD = re.compile(r"(\d{1,6}\.\d{1,3}) ([GM]iB) (?:is allocated by PyTorch|already allocated)", re.ASCII)
MOST_OF_IT = 0.5
# llm.c's error has two lines, and its allocation is announced in front of them.
RIGHT_BEFORE = 3
# "WARNING: " belongs to it; times, processes and files do not.
FRONT_OF_A_WARNING = 30
# Training lines behind an evaluation that is no number: so many say that the weights are numbers.
FEWEST_SOUND = 3
FORWARD_PASS = Action(
    "Compute the loss of one batch in float32: near ln(vocabulary) it says that the precision is at fault,"
    " and else the weights or the data are."
)


def non_finite_loss(reading: Reading) -> Iterator[Verdict]:
    """A loss of NaN or infinity never comes back by itself: every update after it is lost. Said is where it
    began, what came before it (the last number, the gradient norm, an evaluation), and what usually causes it
    with the precision that was used: in float16 overflow comes first. Where no update was made before it, no
    learning rate is the cause. z-scores, MFU and step averages that
    are printed as nan are not losses and are not counted, nor is a loss whose update a guard refused. Where
    evaluations alone are no numbers and training goes on, the evaluation is at fault and not the run.
    Source: nanoGPT issues 167, 215 and 383.
    """
    log = reading.log
    if log is None:
        return
    first = _first_bad_loss(reading, log)
    if first is None:
        return
    if (apart := _in_evaluations_alone(reading, log)) is not None:
        yield apart
        return
    line, step = first
    message, evidence = _where_it_began(reading, log, line, step)
    # Step 1 may be the first or the second of a trainer's.
    from_the_start = reading.steps_are_known and step == 0
    if from_the_start:
        message += " No update was made before it, so the learning rate is not the cause."
        causes = [
            Cause("weights that were loaded hold it, or the forward pass overflows", Confidence.POSSIBLE)
        ]
    else:
        text = "a learning rate too high for this batch, or a batch that blew the gradient up"
        causes = [rate_cause(reading, text, Confidence.POSSIBLE)]
    if reading.machine.dtype == "float16":
        evidence += reading.settings.facts("dtype")
        causes.insert(0, Cause("overflow in float16: its largest number is 65,504", Confidence.LIKELY))
    yield finding(
        "non-finite-loss",
        Severity.ERROR,
        Confidence.CERTAIN,
        message,
        evidence,
        causes=causes,
        actions=[FORWARD_PASS] if from_the_start else _ways_on(reading, log, step),
    )


def _in_evaluations_alone(reading: Reading, log: LogEvidence) -> Verdict | None:
    """The finding of evaluations that are no numbers while what stands behind them goes on as numbers."""
    bad, train, evals = np.flatnonzero(log.evals.loss_is_bad), log.train, log.evals
    if train.loss_is_bad.any() or not len(bad):
        return None
    line, step = int(evals.line[bad[0]]), int(evals.step[bad[0]])
    word, losses, lines, steps = "training lines go", train.loss, train.line, train.step
    if not len(train):
        word, losses, lines, steps = "evaluations behind go", evals.val_loss, evals.line, evals.step
    later = np.flatnonzero((log.moment(lines) > log.moment(line)) & np.isfinite(losses))
    if len(later) < FEWEST_SOUND:
        return None
    last = int(later[-1])
    return finding(
        "non-finite-loss",
        Severity.WARNING,
        Confidence.CERTAIN,
        f"{len(bad)} of {len(evals)} evaluations are no numbers, the first at {reading.at(step)} (line"
        f" {line}), while the {word} on as numbers, to {losses[last]:.4f} at"
        f" {reading.at(int(steps[last]))}: the weights are sound, and the evaluation is not.",
        [
            logged("loss", "nan", line),
            logged("loss", float(losses[last]), int(lines[last]), unit="nats"),
        ],
        causes=[
            Cause(
                "a mean over nothing: an empty split, no batches, or targets that are all masked",
                Confidence.POSSIBLE,
            ),
            Cause("the forward pass overflows in the precision in which it evaluates", Confidence.POSSIBLE),
        ],
        actions=[
            Action("Evaluate one training batch with the same code: it has to be what training prints.")
        ],
    )


def _first_bad_loss(reading: Reading, log: LogEvidence) -> tuple[int, int] | None:
    """Line and step of the first loss that is no number and did harm; None where there is none."""
    refused, finite = sorted(skipped_steps(reading)), log.train.line[np.isfinite(log.train.loss)]
    # A refused update harms nothing, as long as numbers come after it.
    last = log.moment(int(finite[-1])) if len(finite) else -math.inf
    firsts = []
    for table in (log.train, log.evals):
        harmless = np.isin(table.step, refused) & (log.moment(table.line) <= last)
        rows = np.flatnonzero(table.loss_is_bad & ~harmless)
        firsts += [(int(table.line[row]), int(table.step[row])) for row in rows[:1]]
    return min(firsts, key=lambda row: log.moment(row[0]), default=None)


def _where_it_began(reading: Reading, log: LogEvidence, line: int, step: int) -> tuple[str, list[Fact]]:
    """What to say of the first bad loss and of the last number before it, with both as evidence."""
    evidence = [logged("loss", "nan", line)]
    if reading.steps_are_known:
        evidence.append(logged("step", step, line, unit="steps"))
    message = f"The loss is no longer a number from {reading.at(step)} on (line {line})."
    earlier = log.moment(log.train.line) < log.moment(line)
    before = np.flatnonzero(earlier & np.isfinite(log.train.loss))
    if len(before):
        last = int(before[-1])
        evidence.append(logged("loss", float(log.train.loss[last]), int(log.train.line[last]), unit="nats"))
        message += (
            f" The last number is {log.train.loss[last]:.4f} at {reading.at(int(log.train.step[last]))}."
        )
    grown = norm_growth(reading, step)
    if grown is not None:
        message += grown[0]
        evidence += grown[1]
    return message, evidence


def _ways_on(reading: Reading, log: LogEvidence, step: int) -> list[Action]:
    """How to go on from a loss that is no number since a step."""
    good = [
        int(at)
        for at, loss in zip(log.evals.step, log.evals.val_loss, strict=True)
        if np.isfinite(loss) and at <= step
    ]
    again = "Start again with a lower learning rate"
    if good and reading.steps_are_known:
        again = f"Go back to the checkpoint of step {good[-1]} and continue with a lower learning rate"
    actions = [Action(again, half_the_rate(reading))]
    machine = reading.machine
    if machine.dtype == "float16" and machine.spec is not None and machine.spec.native("bfloat16"):
        actions.insert(0, Action("Use bfloat16, which has float32's range.", {"dtype": "bfloat16"}))
    return actions


def out_of_memory(reading: Reading) -> Iterator[Verdict]:
    """The size of the allocation that failed often names the tensor: five public messages are exactly
    B·T·V·bytes, the logits. The sizes of all large tensors of a step are computed from the config and
    compared to the two digits that are printed; where none fits, none is named. llm.c says beforehand what it
    is about to allocate. The remedy is the largest micro-batch that fits by the memory model, at the same
    tokens per step. Source: nanoGPT issues 61 and 88 among others; docs/memory.md.
    """
    log = reading.log
    events = [event for event in log.events if event.kind is EventKind.OUT_OF_MEMORY] if log else []
    if not events:
        return
    event = events[0]
    tried = TRIED.search(event.text)
    evidence = [logged("out_of_memory", event.text[:200], event.line)]
    message = f"An allocation failed (line {event.line})"
    # The logits are B·T·V and the attention scores B·H·T·T whatever else the model is.
    shape, micro = (
        reading.sizes.shape or reading.settings.shape(),
        reading.settings.integer("batch_size") or reading.settings.integer("micro_batch"),
    )
    causes = []
    size = allocation_bytes(event.text)
    if tried and size is not None:
        evidence.append(logged("allocation", int(size), event.line, unit="bytes"))
        message += f": {tried[1]} {tried[2]}"
        dtype = reading.machine.dtype
        tensors = decode_allocation(size, shape, micro_batch=micro, dtype=dtype) if shape and micro else ()
        if tensors:
            message += f", which is the size of {tensors[0].name}: {tensors[0].formula} bytes"
            causes.append(Cause(f"{tensors[0].name} did not fit", Confidence.LIKELY))
    elif (announced := _announced(reading, event)) is not None:
        bytes_asked, of_what = announced
        evidence.append(bytes_asked)
        message += f": {bytes_asked.number / MIB:,.0f} MiB for {of_what.value}"
        causes.append(Cause(f"the {of_what.value} did not fit", Confidence.LIKELY))
    yield finding(
        "out-of-memory",
        Severity.ERROR,
        Confidence.CERTAIN,
        message + ".",
        [
            *evidence,
            *reading.settings.facts("batch_size", "micro_batch", "block_size", "vocab_size", "compile"),
        ],
        causes=causes,
        actions=_fitting(reading, micro, event),
    )


def _announced(reading: Reading, event: Event) -> tuple[Fact, Fact] | None:
    """The bytes that llm.c said it would take right before it had no memory, and for what."""
    size, what = (reading.settings.logged.get(name) for name in ("allocation_bytes", "allocation_of"))
    if size is None or what is None or not 0 < event.line - size.line <= RIGHT_BEFORE:
        return None
    return size, what


def _fitting(reading: Reading, micro: int | None, event: Event) -> list[Action]:
    """The largest micro-batch that fits the device, at the same tokens per step."""
    accumulation = reading.settings.integer("gradient_accumulation_steps") or _cuts_of_a_step(reading, micro)
    spec, total = reading.machine.spec, device_memory(reading)
    known = reading.sizes.shape is not None and spec is not None and reading.machine.dtype is not None
    if not known or micro is None or total is None:
        if micro == 1:
            return [Action(f"As things are, {_halved(micro)}")]
        return [
            Action("Halve batch_size and double gradient_accumulation_steps: the same run in less memory.")
        ]
    actions = []
    compiles = spec is not None and spec.compiles
    # llm.c's kernels are written by hand: there is nothing to compile, and no eager form.
    in_cuda = reading.log is not None and reading.log.format.name == "llm.c"
    ways = (reading.settings.flag("compile") is not False and compiles, compiles)
    for compiled in dict.fromkeys(ways):
        fitting = most_that_fits(reading, compiled=compiled) or 0
        most = cut_of(micro * accumulation, at_most=min(fitting, micro))
        if 0 < most < micro:
            settings = {"batch_size": most, "gradient_accumulation_steps": micro * accumulation // most}
            how = ""
            if not in_cuda:
                settings["compile"] = compiled
                how = " compiled" if compiled else " not compiled"
            actions.append(
                Action(
                    f"Micro-batches of {most} fit {total.text}{how}, at the same tokens per step.", settings
                )
            )
    return actions or [_beside_the_model(reading, micro, total, event)]


def _cuts_of_a_step(reading: Reading, micro: int | None) -> int:
    """The micro-batches of a step on one device, by its tokens; 1 where those are not known."""
    tokens, context = reading.speed.tokens_per_step, reading.settings.integer("block_size")
    if tokens is None or micro is None or context is None:
        return 1
    return max(1, round(tokens.number / (micro * context * reading.machine.count)))


def _halved(micro: int) -> str:
    """What is left to do where the model of memory names no micro-batch."""
    if micro > 1:
        return "halve batch_size and double gradient_accumulation_steps."
    return (
        "batch_size is 1 already, so take a shorter block_size, a smaller model, or compute the blocks"
        " again in the backward pass (gradient checkpointing)."
    )


def _beside_the_model(reading: Reading, micro: int, total: Fact, event: Event) -> Action:
    """What to do where no smaller micro-batch is the answer: this one should fit, or none does."""
    compiled = reading.settings.flag("compile") is not False and reading.machine.spec is not None
    fitting = most_that_fits(reading, compiled=compiled)
    if fitting is not None and fitting >= micro:
        held = HELD.search(event.text)
        if held is not None and float(held[1]) * UNITS[held[2]] > MOST_OF_IT * total.number:
            return Action(
                f"{held[1]} {held[2]} of {total.text} were this run's own, so no other process is to"
                f" blame: {_halved(micro)}"
            )
        return Action(
            f"Micro-batches of {micro} should fit {total.text}: look for another process on the device"
            f" (nvidia-smi); then: {_halved(micro)}"
        )
    return Action(f"Not even one sequence fits {total.text}: take a smaller model or a shorter block_size.")


def known_warning(reading: Reading) -> Iterator[Verdict]:
    """Warnings of the frameworks that people take for the cause of something, each with what it means in the
    framework's own source. One that is printed again and again is told once, and one that is not known is
    left alone.
    """
    log, told = reading.log, set[str]()
    for event in log.events if log else ():
        if event.kind is not EventKind.WARNING:
            continue
        matches = ((pattern.search(event.text), meaning) for pattern, meaning in WARNINGS)
        said, meaning = next((match for match in matches if match[0] is not None), (None, ""))
        if said is None or meaning in told:
            continue
        told.add(meaning)
        # Without what the framework puts in front of its warnings.
        begin = said.start() if said.start() > FRONT_OF_A_WARNING else 0
        text = f"Line {event.line} warns “{event.text[begin : begin + 90]}”: {meaning}."
        evidence = [logged("warning", event.text[:200], event.line)]
        yield finding("known-warning", Severity.INFO, Confidence.CERTAIN, text, evidence)


RULES = (
    Rule("non-finite-loss", non_finite_loss),
    Rule("out-of-memory", out_of_memory),
    Rule("known-warning", known_warning),
)
