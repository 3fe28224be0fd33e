"""What a resume did: the learning rate that went back up, and a loss that is not where it was."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gptwright.arithmetic.trend import noise_of
from gptwright.diagnose.reading import Reading, once
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.series import train_loss, val_loss
from gptwright.facts import Fact, logged
from gptwright.findings import Action, Cause, Confidence, Severity
from gptwright.record.evidence import Event, EventKind

# Learning rates of a schedule change by a few percent a line; half as much again is another schedule.
RATE_JUMP = 1.5
# The effect of a raised rate shows within so many evaluations, or five times as many lines.
AFTER_JUMP = 5
# Lines on either side of a resume whose medians are compared, and how many there have to be.
BESIDE, LEAST_BESIDE = 10, 5
# Lines that tell what one scatters by.
SCATTER_FROM = 40
# A loss that was carried on lies within the noise of two medians; half of that noise may be a matter of the
# data.
BEYOND, LEAST_JUMP = 6.0, 0.1


@dataclass(frozen=True, slots=True)
class ResumeJump:
    """A loss that was higher behind a resume than before it.

    Attributes:
        event: the line that says so, or where the step goes back.
        before: median of the lines before, nats.
        after: of those behind.
        rows: of the training table: the last before, the first behind.
    """

    event: Event
    before: float
    after: float
    rows: tuple[int, int]


def rate_jumps(reading: Reading) -> list[tuple[int, int, int]]:
    """Where the printed learning rate rose sharply after it had fallen: (row before, step, row after)."""
    train = reading.train
    if train is None:
        return []
    known = np.flatnonzero(np.isfinite(train.learning_rate))
    rates = train.learning_rate[known]
    jumps = []
    begin, highest, falling = 0, 0.0, False
    # Only a rise by the factor can be a jump, and a schedule has few of them.
    for i in np.flatnonzero(rates[1:] > RATE_JUMP * rates[:-1]) + 1:
        peaks = np.maximum.accumulate(np.append(highest, rates[begin:i]))
        falling = falling or bool((rates[begin:i] < 0.98 * peaks[1:]).any())
        begin, highest = int(i), float(peaks[-1])
        # 2 % of the highest rate: below it, a rise of any factor does nothing.
        if falling and rates[i] > RATE_JUMP * rates[i - 1] + 0.02 * highest:
            jumps.append((int(known[i - 1]), int(train.step[known[i]]), int(known[i])))
            highest, falling = 0.0, False
    return jumps


def lr_jump(reading: Reading) -> Iterator[Verdict]:
    """A schedule that is made longer and resumed sends the learning rate back up: the loss rises at once and
    needs thousands of steps to come back, which is no divergence. It is read from the printed rates, after
    they have begun to fall, so a warm-up is none. Source: a public nanochat run that was resumed with a
    longer schedule; transformers issue 33336.
    """
    train = reading.train
    for before, step, after in rate_jumps(reading):
        assert train is not None
        low, high = float(train.learning_rate[before]), float(train.learning_rate[after])
        resumed = train.segment[before] != train.segment[after] or _resume_between(reading, before, after)
        effect, evidence = _effect_of_jump(reading, int(train.line[after]))
        from_step, to_step = int(train.step[before]), step
        rise = f"from {low:.2g} at {reading.at(from_step)} to {high:.2g} at {reading.at(to_step)}"
        if from_step == to_step:
            rise = f"from {low:.2g} to {high:.2g} at {reading.at(to_step)}"
        yield finding(
            "lr-jump",
            Severity.WARNING,
            Confidence.CERTAIN,
            f"The learning rate rose {rise}{', where the run was resumed' if resumed else ''}.{effect}",
            [
                logged("learning_rate", low, int(train.line[before])),
                logged("learning_rate", high, int(train.line[after])),
                *evidence,
            ],
            causes=(
                [Cause("the run was resumed with a longer lr_decay_iters", Confidence.LIKELY)]
                if resumed
                else []
            ),
            actions=[
                Action(
                    "To be able to extend a run, use a schedule that stays constant and decays at the end.",
                    {"lr_schedule": "wsd"},
                )
            ],
        )


def _resume_between(reading: Reading, before: int, after: int) -> bool:
    log = reading.log
    assert log is not None
    first, last = log.train.line[before], log.train.line[after]
    return any(event.kind == "resume" and first < event.line < last for event in log.events)


def _effect_of_jump(reading: Reading, line: int) -> tuple[str, list[Fact]]:
    """What the loss did around a line of the log: validation where there is some, else medians of lines."""
    for curve, word, width in ((val_loss(reading), "Validation", 1), (train_loss(reading), "The loss", 5)):
        before, after = curve.part(curve.line < line), curve.part(curve.line > line)
        if len(before) < width or len(after) < width:
            continue
        level = float(np.median(before.value[-width:]))
        rows = range(len(after) - width + 1)
        medians = [float(np.median(after.value[row : row + width])) for row in rows]
        top = int(np.argmax(medians[: AFTER_JUMP * width]))
        evidence = [before.fact(len(before) - 1), after.fact(top)]
        if medians[top] <= level:
            return f" {word} did not rise with it.", evidence
        back = next((row for row in rows if row > top and medians[row] <= level), None)
        text = f" {word} went from {level:.2f} to {medians[top]:.2f} by {reading.at(int(after.step[top]))}"
        if back is None:
            return f"{text} and has not come back.", evidence
        return f"{text} and was back by {reading.at(int(after.step[back]))}.", [*evidence, after.fact(back)]
    return "", []


@once
def jump_of_a_resume(reading: Reading) -> ResumeJump | None:
    """The largest rise of the training loss over a resume, beyond the noise; None if there is none."""
    log, train = reading.log, reading.train
    if log is None or train is None:
        return None
    jumps = [
        jump
        for event in log.events
        if event.kind is EventKind.RESUME and (jump := _jump_at(reading, event)) is not None
    ]
    raised = {int(train.line[after]) for _, _, after in rate_jumps(reading)}
    # A schedule that was set back explains what follows it.
    jumps = [
        jump for jump in jumps if not raised & {int(line) for line in train.line[jump.rows[1] :][:AFTER_JUMP]}
    ]
    return max(jumps, key=lambda jump: jump.after - jump.before, default=None)


def _jump_at(reading: Reading, event: Event) -> ResumeJump | None:
    train = reading.train
    assert train is not None
    finite = np.flatnonzero(np.isfinite(train.loss))
    before, after = finite[train.line[finite] < event.line], finite[train.line[finite] >= event.line]
    if len(before) < LEAST_BESIDE or len(after) < LEAST_BESIDE:
        return None
    # A run that goes on from an older checkpoint is compared with what it was there.
    near = before[train.step[before] <= train.step[after[:BESIDE][-1]]]
    near = near[-BESIDE:] if len(near) >= LEAST_BESIDE else before[-BESIDE:]
    scatters = [
        noise.sd
        for rows in (before[-SCATTER_FROM:], after[:SCATTER_FROM])
        if (noise := noise_of(train.loss[rows])) is not None
    ]
    if not scatters:
        return None
    old, new = float(np.median(train.loss[near])), float(np.median(train.loss[after[:BESIDE]]))
    width = min(len(near), len(after[:BESIDE]))
    if new - old <= max(LEAST_JUMP, BEYOND * max(scatters) / np.sqrt(width / 2)):
        return None
    return ResumeJump(event, old, new, (int(near[-1]), int(after[0])))


def resume_jump(reading: Reading) -> Iterator[Verdict]:
    """A run that goes on exactly has its loss where it was: weights, optimizer, schedule and data position
    all come from the checkpoint. Behind a resume that the log shows, the medians of ten lines are compared
    with those before it, at the same steps where an older checkpoint was taken up, and the rise must be
    beyond the noise of both. A learning rate that was set back is lr-jump. Sources: transformers issue 33336,
    sentence-transformers issue 3756.
    """
    jump, train = jump_of_a_resume(reading), reading.train
    if jump is None or train is None:
        return
    before, after = jump.rows
    behind = np.flatnonzero(np.isfinite(train.loss) & (np.arange(len(train)) >= after))
    windows = np.lib.stride_tricks.sliding_window_view(train.loss[behind], LEAST_BESIDE)
    back = np.flatnonzero(np.median(windows, axis=1) <= jump.before)
    later = (
        f"was back by {reading.at(int(train.step[behind[back[0]]]))}"
        if len(back)
        else f"has not come back by {reading.at(int(train.step[behind[-1]]))}"
    )
    yield finding(
        "resume-jump",
        Severity.WARNING,
        Confidence.LIKELY,
        f"The loss was {jump.before:.2f} before the run was resumed at {reading.at(int(train.step[after]))}"
        f" (line {jump.event.line}) and {jump.after:.2f} behind it, {jump.after - jump.before:.2f} higher; it"
        f" {later}. A run that goes on exactly has no such jump.",
        [
            logged("loss", float(train.loss[before]), int(train.line[before]), unit="nats"),
            logged("loss", float(train.loss[after]), int(train.line[after]), unit="nats"),
        ],
        causes=[
            Cause(
                "the optimizer's moments were not restored, or those of other weights were", Confidence.LIKELY
            ),
            Cause(
                "the weights are not those of the last step: an older checkpoint, or a part was left out",
                Confidence.POSSIBLE,
            ),
            Cause(
                "the text is other text now, or the loss is averaged over another batch", Confidence.POSSIBLE
            ),
        ],
        actions=[
            Action(
                "Evaluate the checkpoint before the first new step: if its loss is right, the weights are,"
                " and optimizer state, schedule or data are not."
            )
        ],
    )


RULES = (Rule("lr-jump", lr_jump), Rule("resume-jump", resume_jump))
