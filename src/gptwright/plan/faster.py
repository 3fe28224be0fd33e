"""What would make the same training quicker at no cost: a compiler, 16 bits, padding, a coarser cut.

None of them changes the tokens that are seen, or a rate. Said of GPUs only, where they are known from
published runs, and not where it cannot be otherwise: for an old card nothing is compiled.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gptwright import units
from gptwright.facts import Fact, configured, derived
from gptwright.findings import Action, Confidence, Finding, Severity
from gptwright.plan.batch import cuts_that_fit
from gptwright.plan.plan import Plan, Planner

# A setting that slows a GPU down where it need not, its value, what replaces it, and that in words.
SLOW: tuple[tuple[str, Any, dict[str, Any], str], ...] = (
    ("compile", False, {"compile": True}, "compiled by torch.compile, which needs Triton"),
    ("dtype", "float32", {"dtype": "auto"}, "with products in 16 bits, and weights in float32 as before"),
)

# What is less is within what a day's clocks do.
WORTH_SAYING = 0.1
# Of the quickest cut's speed; a smaller micro-batch that comes so near leaves memory for what no plan knows.
NEAR_THE_BEST = 0.97
# nanoGPT pads to a multiple of this many rows; tensor cores want 8.
PADDED_TO, ALIGNED = 64, 8
# GPT-2 small's steps with 50,304 rows in place of 50,257: 1 and 3 % shorter on an A100 (build-nanogpt's notes
# and lecture), 11 % on an A30, 12 % on another A100 (picogpt's fork of it, LLMs-from-scratch).
PADDING_GAINS = "published steps of GPT-2 small were 1 to 12 % shorter"
# Its head is a third of what is multiplied; where it is less than a tenth, no such gain is left.
LARGE_HEAD = 0.1


def speed_findings(plan: Plan, planner: Planner) -> tuple[Finding, ...]:
    """What would make a plan quicker without changing what is trained.

    Args:
        plan: the plan.
        planner: plans the same run with other settings.
    """
    if plan.speed is None or plan.device.kind != "cuda":
        return ()
    found = (*_slow_settings(plan, planner), _padding(plan), _filling(plan, planner) if plan.fits else None)
    return tuple(finding for finding in found if finding is not None)


def _gain(plan: Plan, other: Plan) -> float:
    """By how much another plan is quicker."""
    if plan.speed is None or other.speed is None:
        return 0.0
    return other.speed.likely / plan.speed.likely - 1


def _slow_settings(plan: Plan, planner: Planner) -> Iterator[Finding]:
    for name, slow, quick, how in SLOW:
        if getattr(plan.config, name) != slow:
            continue
        other = planner(replace(plan.config, **quick))
        gain = _gain(plan, other)
        if gain < WORTH_SAYING:
            continue
        yield Finding(
            id="slow-setting",
            severity=Severity.INFO,
            confidence=Confidence.LIKELY,
            message=f"{name} = {slow}: training is likely {1 + gain:.1f} times as fast {how}.",
            evidence=(configured(name, str(slow)), *_speeds(plan, other)),
            actions=(Action(f"Set {name} to {quick[name]}.", quick),),
        )


def _padding(plan: Plan) -> Finding | None:
    rows, width = plan.shape.vocab_size, plan.shape.n_embd
    head = rows * width / plan.shape.count_parameters().matmul
    fresh = plan.config.init_from in ("scratch", "auto")
    if rows % ALIGNED == 0 or head < LARGE_HEAD or not fresh or plan.device.dtype == "float32":
        return None
    padded = -(-rows // PADDED_TO) * PADDED_TO
    return Finding(
        id="unpadded-vocabulary",
        severity=Severity.INFO,
        confidence=Confidence.LIKELY,
        message=f"A vocabulary of {rows:,} rows is no multiple of {ALIGNED}, which tensor cores need for the"
        f" output head: padded to {padded:,}, {PADDING_GAINS}. It costs {(padded - rows) * width:,}"
        " parameters that no token uses.",
        evidence=(
            plan.vocabulary,
            derived("head_share", head, "vocab_size × n_embd / multiplied parameters", unit="fraction"),
        ),
        actions=(Action("Pad the vocabulary, as nanoGPT does.", {"vocab_size": padded}),),
    )


def _filling(plan: Plan, planner: Planner) -> Finding | None:
    def recut(cut: tuple[int, int]) -> Plan:
        return planner(replace(plan.config, batch_size=cut[0], gradient_accumulation_steps=cut[1]))

    larger = [cut for cut in cuts_that_fit(plan) if cut[0] > plan.config.batch_size]
    most = _gain(plan, recut(larger[-1])) if larger else 0.0
    if most < WORTH_SAYING:
        return None
    other = next(each for each in map(recut, larger) if 1 + _gain(plan, each) >= NEAR_THE_BEST * (1 + most))
    micro, steps = other.config.batch_size, other.config.gradient_accumulation_steps
    return Finding(
        id="small-micro-batch",
        severity=Severity.INFO,
        confidence=Confidence.LIKELY,
        message=f"Micro-batches of {plan.config.batch_size} do not fill the device: {micro} × {steps} are the"
        f" same {plan.tokens_per_step:,} tokens per step, need {units.size(other.memory.total)} and are"
        f" likely {_gain(plan, other) + 1:.1f} times as fast.",
        evidence=(configured("batch_size", plan.config.batch_size), *_speeds(plan, other)),
        actions=(
            Action("Cut the step coarser.", {"batch_size": micro, "gradient_accumulation_steps": steps}),
        ),
    )


def _speeds(plan: Plan, other: Plan) -> tuple[Fact, ...]:
    """The likely speeds that are compared."""
    return tuple(
        derived(name, each.speed.likely, "the model of a step's parts", unit="tokens/s")
        for name, each in (("tokens_per_second", plan), ("tokens_per_second_then", other))
        if each.speed is not None
    )
