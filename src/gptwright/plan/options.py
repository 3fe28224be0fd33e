"""What to do about a step that does not fit the device: other cuts of the same step, each with its numbers.

None of them changes what is trained. A smaller micro-batch with more accumulation costs a little speed; the
loss in chunks keeps the micro-batch where the logits are what is large; blocks computed again keep it where
the activations are, for more time; a compiled model never has the logits' log-softmax beside their gradient.
"""

from dataclasses import replace
from typing import Any

from gptwright import units
from gptwright.facts import derived
from gptwright.findings import Action, Confidence, Finding, Severity
from gptwright.plan.batch import fit, same_step
from gptwright.plan.plan import Plan, Planner

# Tokens of a chunk: large enough for full matrix products, 0.1 GB of GPT-2's logits.
CHUNK = 512
# Below this share of the peak a part is not what does not fit.
LARGE = 0.2
# What saves a part of the memory: the setting, the part, and how to say it.
SAVINGS: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"loss_chunk": CHUNK}, "logits", f"the loss in chunks of {CHUNK} tokens"),
    ({"gradient_checkpointing": True}, "activations", "each block computed again in the backward pass"),
)
NOTHING_FITS = (
    "Not even one sequence fits: take a smaller model, a shorter block_size, or parallel=fsdp over several"
    " devices."
)


def memory_findings(plan: Plan, planner: Planner) -> tuple[Finding, ...]:
    """That a plan does not fit its device, with the options that do.

    Args:
        plan: the plan.
        planner: plans the same run with other settings.
    """
    if plan.fits is not False or plan.device.memory is None:
        return ()
    logits, total = plan.memory.logits, plan.memory.total
    share = f", {units.percent(logits / total)} of it logits" if logits >= LARGE * total else ""
    return (
        Finding(
            id="does-not-fit",
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
            message=f"A step needs about {units.size(total)}{share}; {plan.device.name.text} has"
            f" {plan.device.memory.text}, not all of it for training.",
            evidence=(
                derived(
                    "peak_bytes", total, "sum of its parts at the largest moment of a step", unit="bytes"
                ),
                derived("logits_bytes", logits, "output head, its loss and their gradients", unit="bytes"),
                plan.device.memory,
            ),
            actions=tuple(_options(plan, planner)),
        ),
    )


def _options(plan: Plan, planner: Planner) -> list[Action]:
    options = []
    cut = same_step(plan)
    if cut is not None:
        options.append(_cut(planner(fit(plan)), "", {}))
    if not plan.device.compiled and plan.config.compile is False:
        compiled = planner(replace(plan.config, compile=True))
        if compiled.device.compiled and compiled.fits:
            options.append(_whole(compiled, "Compiled", {"compile": True}))
    for change, part, how in SAVINGS:
        taken = any(getattr(plan.config, setting) for setting in change)
        if taken or getattr(plan.memory, part) < LARGE * plan.memory.total:
            continue
        saving = planner(replace(plan.config, **change))
        slower = _slower(plan, saving)
        if saving.fits:
            options.append(_whole(saving, f"With {how}{slower}", change))
        elif (same_step(saving) or (0, 0)) > (cut or (0, 0)):
            options.append(_cut(planner(fit(saving)), f" with {how}{slower}", change))
    return options or [Action(NOTHING_FITS)]


def _slower(plan: Plan, saving: Plan) -> str:
    """What a saving costs in time, in words; nothing where that is not known or not worth saying."""
    if plan.speed is None or saving.speed is None:
        return ""
    more = plan.speed.likely / saving.speed.likely - 1
    return f" (some {100 * more:.0f} % slower)" if more >= 0.05 else ""


def _cut(plan: Plan, how: str, change: dict[str, int]) -> Action:
    settings = {
        "batch_size": plan.config.batch_size,
        "gradient_accumulation_steps": plan.config.gradient_accumulation_steps,
    }
    text = (
        f"Micro-batches of {plan.config.batch_size} × {plan.config.gradient_accumulation_steps}{how}:"
        f" {units.size(plan.memory.total)}, the same {plan.tokens_per_step:,} tokens per step."
    )
    return Action(text, settings | change)


def _whole(plan: Plan, how: str, change: dict[str, int]) -> Action:
    text = f"{how}, micro-batches of {plan.config.batch_size} need {units.size(plan.memory.total)}."
    return Action(text, change)
