"""What a resume did: the learning rate that went back up, and a loss that is not where it was."""

from collections.abc import Iterator, Sequence

import numpy as np

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.resumed import RateJump, ResumeJump, jump_of_a_resume, rate_jumps
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.series import train_loss, val_loss
from gptwright.facts import Fact, logged
from gptwright.findings import Action, Cause, Confidence, Severity
from gptwright.record.evidence import EventKind, TrainLines

# The effect of a raised rate shows within so many evaluations, or five times as many lines.
AFTER_JUMP = 5


def lr_jump(reading: Reading) -> Iterator[Verdict]:
    """A schedule that is made longer and resumed sends the learning rate back up: the loss rises at once and
    needs thousands of steps to come back, which is no divergence. It is read from the printed rates, after
    they have begun to fall, so a warm-up is none. Rises at a fixed interval in one process are warm restarts,
    which are told once. Source: a public nanochat run that was resumed with a longer schedule; transformers
    issue 33336.
    """
    train = reading.train
    jumps = rate_jumps(reading)
    if train is not None and (apart := _restarts(train, jumps)) is not None:
        yield _warm_restarts(train, jumps, apart)
        return
    for before, after, to_step in jumps:
        assert train is not None
        low, high = float(train.learning_rate[before]), float(train.learning_rate[after])
        resumed = train.segment[before] != train.segment[after] or _resume_between(reading, before, after)
        effect, evidence = _effect_of_jump(reading, int(train.line[after]))
        from_step = int(train.step[before])
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
            actions=[_way_to_extend(reading)],
        )


def _way_to_extend(reading: Reading) -> Action:
    """How a run can be made longer without a jump."""
    if reading.settings.word("lr_schedule") == "wsd":
        return Action("To extend a run of this schedule, go on from a checkpoint before its cool-down.")
    return Action(
        "To be able to extend a run, use a schedule that stays constant and decays at the end.",
        {"lr_schedule": "wsd"},
    )


def _restarts(train: TrainLines, jumps: Sequence[RateJump]) -> float | None:
    """Steps between rises that come at a fixed interval in one process; None where they do not."""
    apart = np.diff([jump.step for jump in jumps])
    if not len(apart) or train.segment[jumps[0].before] != train.segment[jumps[-1].after]:
        return None
    usual, interval = float(np.median(apart)), float(np.median(np.diff(train.step)))
    return usual if usual > 0 and np.abs(apart - usual).max() <= interval else None


def _warm_restarts(train: TrainLines, jumps: Sequence[RateJump], apart: float) -> Verdict:
    return finding(
        "lr-jump",
        Severity.INFO,
        Confidence.CERTAIN,
        f"The learning rate is raised again every {apart:,.0f} steps, {len(jumps)} times: a schedule with"
        " warm restarts. The loss rises with it each time, so a run is compared, and ended, at the end of a"
        " cycle.",
        [
            logged("learning_rate", float(train.learning_rate[row]), int(train.line[row]))
            for jump in jumps[:2]
            for row in (jump.before, jump.after)
        ],
    )


def _resume_between(reading: Reading, before: int, after: int) -> bool:
    log = reading.log
    assert log is not None
    first, last = (log.moment(int(log.train.line[row])) for row in (before, after))
    return any(
        event.kind is EventKind.RESUME and first < log.moment(event.line) < last for event in log.events
    )


def _effect_of_jump(reading: Reading, line: int) -> tuple[str, list[Fact]]:
    """What the loss did around a line of the log: validation where there is some, else medians of lines."""
    log = reading.log
    assert log is not None
    for curve, word, width in ((val_loss(reading), "Validation", 1), (train_loss(reading), "The loss", 5)):
        then, moments = log.moment(line), log.moment(curve.line)
        before, after = curve.part(moments < then), curve.part(moments > then)
        if len(before) < width or len(after) < width:
            continue
        level = float(np.median(before.value[-width:]))
        medians = np.median(np.lib.stride_tricks.sliding_window_view(after.value, width), axis=1)
        top = int(np.argmax(medians[: AFTER_JUMP * width]))
        evidence = [before.fact(len(before) - 1), after.fact(top)]
        if medians[top] <= level:
            return f" {word} did not rise with it.", evidence
        text = f" {word} went from {level:.2f} to {medians[top]:.2f} by {reading.at(int(after.step[top]))}"
        lower = np.flatnonzero(medians[top:] <= level)
        if not len(lower):
            return f"{text} and has not come back.", evidence
        back = top + int(lower[0])
        return f"{text} and was back by {reading.at(int(after.step[back]))}.", [*evidence, after.fact(back)]
    return "", []


def resume_jump(reading: Reading) -> Iterator[Verdict]:
    """A run that goes on exactly has its loss where it was: weights, optimizer, schedule and data position
    all come from the checkpoint. Evaluations at one step on both sides of a resume are of the same weights,
    before any update, so optimizer and schedule have no part in a difference; nanoGPT evaluates first when it
    resumes. Else medians of ten lines are compared, at the same steps where an older checkpoint was taken up,
    or lines with the evaluation of training text before them, where dropout cannot be what lifts them. The
    rise must be beyond the noise of both. A learning rate that was set back is lr-jump. Sources: transformers
    issue 33336, sentence-transformers issue 3756.
    """
    jump = jump_of_a_resume(reading)
    if jump is None:
        return
    later = ""
    if jump.back is not None:
        later = f"; it was back by {reading.at(jump.back)}"
    elif jump.last > jump.step:
        later = f"; it has not come back by {reading.at(jump.last)}"
    yield finding(
        "resume-jump",
        Severity.WARNING,
        Confidence.CERTAIN if jump.same_weights else Confidence.LIKELY,
        f"{jump.quantity} was {jump.level_before:.2f} before the run was resumed at {reading.at(jump.step)}"
        f" (line {jump.event.line}) and {jump.level_after:.2f} behind it,"
        f" {jump.rise:.2f} higher{later}. {_meaning(jump)}",
        [jump.before, jump.after],
        causes=_causes(jump),
        actions=[
            Action(
                "See which checkpoint was loaded, and whether every tensor of it was: strict=False leaves out"
                " those whose names do not match."
            )
            if jump.same_weights
            else Action(
                "Evaluate the checkpoint before the first new step: if its loss is right, the weights are,"
                " and optimizer state, schedule or data are not."
            )
        ],
    )


def _meaning(jump: ResumeJump) -> str:
    if jump.same_weights:
        return (
            "Both are evaluations at the same step, before any new update, so neither the optimizer nor the"
            " schedule explains it."
        )
    if jump.weights_are_right:
        return (
            "The evaluation at the resume is what it was, so the weights are right; what follows is not"
            " how a run goes on."
        )
    return "A run that goes on exactly has no such jump."


def _causes(jump: ResumeJump) -> list[Cause]:
    moments = "the optimizer's moments were not restored, or those of other weights were"
    weights = "the weights are not those of the last step: an older checkpoint, or a part was left out"
    data = "the text is other text now, or the loss is averaged over another batch"
    if jump.same_weights:
        return [
            Cause(weights, Confidence.LIKELY),
            Cause("the evaluation is over other text, or over fewer batches", Confidence.POSSIBLE),
        ]
    causes = [Cause(moments, Confidence.LIKELY)]
    if jump.weights_are_right:
        causes.append(Cause("the schedule or the scaler began anew", Confidence.POSSIBLE))
    else:
        causes.append(Cause(weights, Confidence.POSSIBLE))
    return [*causes, Cause(data, Confidence.POSSIBLE)]


RULES = (Rule("lr-jump", lr_jump), Rule("resume-jump", resume_jump))
