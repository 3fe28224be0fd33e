"""What a plan says of settings that its config has from another trainer: taken for ours, or not counted."""

from collections.abc import Sequence

from gptwright.config.foreign import ForeignSetting
from gptwright.facts import configured
from gptwright.findings import Action, Confidence, Finding, Severity, Unknown


def foreign_unknown(foreign: Sequence[ForeignSetting]) -> tuple[Unknown, ...]:
    """What a plan leaves open where settings are not counted."""
    left = [f"{each.name} = {each.value} ({each.meaning})" for each in foreign if not each.ours]
    question = "What would the settings of another trainer change?"
    return (Unknown(question, f"that trainer: not counted are {'; '.join(left)}"),) if left else ()


def foreign_findings(foreign: Sequence[ForeignSetting]) -> tuple[Finding, ...]:
    """That settings are another trainer's, each with what became of it; nothing where there is none."""
    if not foreign:
        return ()
    taken = [
        f"{each.name} = {each.value} as {each.ours[0]} = {each.ours[1]}" for each in foreign if each.ours
    ]
    left = [f"{each.name} = {each.value} ({each.meaning})" for each in foreign if not each.ours]
    sentences = []
    if left:
        sentences.append(f"Not counted, as no such thing is done here: {'; '.join(left)}.")
    if taken:
        sentences.append(f"Another trainer's names, taken for ours: {', '.join(taken)}.")
    return (
        Finding(
            id="foreign-settings",
            severity=Severity.WARNING if left else Severity.INFO,
            confidence=Confidence.CERTAIN,
            message=" ".join(sentences),
            evidence=tuple(configured(each.name, each.value, place=each.source) for each in foreign),
            actions=(
                Action(
                    "Read every number as that of a model and a run without what is not counted; train"
                    " refuses such settings, and takes what plan --save FILE writes."
                    if left
                    else "Write them by our names: train takes only those, and so does plan --save FILE."
                ),
            ),
        ),
    )
