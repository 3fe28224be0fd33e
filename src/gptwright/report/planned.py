"""A plan in the terminal: the answer in a few lines, then every number with where it comes from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from gptwright import units
from gptwright.arithmetic.evaluation import text_kind
from gptwright.arithmetic.memory import PHASES
from gptwright.arithmetic.reference import LossBand
from gptwright.facts import Fact, Origin, derived
from gptwright.findings import Finding, Unknown
from gptwright.plan.batch import same_step
from gptwright.plan.evaluation import evaluations
from gptwright.plan.plan import Plan
from gptwright.report.findings import show_findings
from gptwright.report.terminal import facts_table, titled_table

# A share of the training's time from which evaluations belong into the answer.
WORTH_SAYING = 0.05
# Of compiled steps whose logits stand at the peak (docs/memory.md).
HELD_BESIDES = "nvidia-smi shows what the allocator holds besides: 5 to 35 % more in public readings"


def show_plan(
    console: Console,
    plan: Plan,
    findings: Sequence[Finding],
    unknown: Sequence[Unknown],
    *,
    chosen: Sequence[Fact] = (),
) -> None:
    """Prints a plan.

    Args:
        console: where.
        plan: the plan.
        findings: about it.
        unknown: what could not be known.
        chosen: the settings that it was solved for, each with why.
    """
    console.print(f"[bold]{escape(_verdict(plan))}[/]\n")
    if chosen:
        console.print(facts_table(chosen, title="Chosen"))
        console.print()
    console.print(facts_table(plan_facts(plan), title="Plan"))
    console.print()
    show_findings(console, findings, unknown)


def show_trials(console: Console, trials: Sequence[Mapping[str, Any]]) -> None:
    """The cuts of the step that were run, if any."""
    if not trials:
        return
    table = titled_table("Measured")
    for column in ("micro-batch", "accumulation", "compiled", "a step", "memory"):
        table.add_column(column)
    for trial in trials:
        seconds, peak = trial["step_seconds"], trial["peak_bytes"]
        table.add_row(
            str(trial["micro_batch"]),
            str(trial["accumulation"]),
            str(trial["compiled"]),
            units.duration(seconds[1]) if seconds is not None else trial["problem"],
            units.size(peak) if peak is not None else "–",
        )
    console.print(table)
    console.print()


def _verdict(plan: Plan) -> str:
    count = plan.shape.count_parameters()
    parts = [f"{units.count(count.nanogpt)} parameters, {units.count(plan.tokens)} tokens"]
    if plan.fits is not None:
        parts.append(f"{'fits' if plan.fits else 'does not fit'} {plan.device.name.text}")
    evaluated = evaluations(plan).seconds
    if not plan.steps:
        parts[0] = f"{units.count(count.nanogpt)} parameters, evaluated only"
        if evaluated is not None:
            parts.append(f"about {units.duration(evaluated[1])}")
    elif plan.seconds is not None and evaluated is not None:
        beside = evaluated[1] >= WORTH_SAYING * plan.seconds[1]
        and_evaluated = f", and {units.duration(evaluated[1])} of evaluations" if beside else ""
        if_it_did = " if it did" if plan.fits is False else ""
        parts.append(f"about {units.duration(plan.seconds[1])}{and_evaluated}{if_it_did}")
    if plan.loss is not None:
        parts.append(f"loss about {plan.loss.likely:.2f}{_best_before(plan.loss)}")
    return "; ".join(parts) + "."


def _best_before(loss: LossBand) -> str:
    """What the loss is before it rises, where it does."""
    return f", best {loss.lowest[1]:.2f}" if loss.lowest is not None else ""


def plan_facts(plan: Plan) -> list[Fact]:
    """Every number of a plan with its origin."""
    if not plan.steps:
        return [*_model(plan), *_device(plan), *_evaluations(plan)]
    return [
        *_model(plan),
        *_batch(plan),
        *_memory(plan),
        *_device(plan),
        *_speed(plan),
        *_schedule(plan),
        *_loss(plan),
    ]


def _model(plan: Plan) -> list[Fact]:
    count, shape = plan.shape.count_parameters(), plan.shape
    return [
        plan.vocabulary,
        derived(
            "parameters",
            count.nanogpt,
            f"nanoGPT's count: blocks {count.blocks:,} + token embedding {count.token_embedding:,}"
            f" + norm {count.final_norm:,}; with positions {count.total:,}",
            unit="parameters",
        ),
        derived(
            "FLOPs per token",
            shape.flops_per_token(),
            f"palm convention; {shape.causal_flops_per_token() / 1e6:,.1f} MFLOP with causal attention",
            unit="FLOP/token",
        ),
    ]


def _batch(plan: Plan) -> list[Fact]:
    config = plan.config
    formula = (
        f"batch_size {config.batch_size} × gradient_accumulation_steps {config.gradient_accumulation_steps}"
        f" × block_size {config.block_size}"
    )
    per_step = Fact(
        name="tokens per step",
        value=plan.tokens_per_step,
        text=f"{plan.tokens_per_step:,}",
        origin=Origin.DERIVED,
        reason=formula,
    )
    facts = [per_step]
    if plan.largest_micro_batch is not None:
        cut = same_step(plan)
        same = (
            f"{cut[0]} × {cut[1]} keeps {plan.tokens_per_step:,} tokens per step"
            if cut is not None
            else "none fits"
        )
        facts.append(derived("largest micro-batch", plan.largest_micro_batch, f"that fits; {same}"))
    return facts


def _memory(plan: Plan) -> list[Fact]:
    memory = plan.memory
    parts = ", ".join(
        f"{name} {units.size(size)}"
        for name, size in (
            ("weights", memory.weights),
            ("gradients", memory.gradients),
            ("optimizer", memory.optimizer),
            ("copies", memory.weight_copies),
            ("activations", memory.activations),
            ("logits", memory.logits),
            ("overhead", memory.overhead),
        )
        if size
    )
    formula = f"{parts}; {PHASES[memory.peak_phase]}"
    whole_logits = memory.logits and not plan.config.loss_chunk
    if plan.device.kind == "cuda" and plan.device.compiled and whole_logits:
        formula += f"; {HELD_BESIDES}"
    facts = [derived("peak memory", memory.total, formula, unit="bytes")]
    if plan.device.memory is not None:
        facts.append(replace(plan.device.memory, name="device memory"))
    return facts


def _device(plan: Plan) -> list[Fact]:
    facts = [plan.device.name, plan.device.products]
    return facts if plan.device.peak is None else [*facts, replace(plan.device.peak, name="peak")]


def _speed(plan: Plan) -> list[Fact]:
    facts = []
    if plan.speed is not None:
        low, high = f"{plan.speed.low:,.0f}", f"{plan.speed.high:,.0f}"
        facts.append(
            derived(
                "tokens per second",
                plan.speed.likely,
                f"{low} to {high}; {plan.speed.basis}",
                unit="tokens/s",
            )
        )
    if plan.mfu is not None:
        reason = f"{units.percent(plan.mfu[0])} to {units.percent(plan.mfu[2])} of the peak"
        facts.append(derived("MFU", plan.mfu[1], reason, unit="fraction"))
    return facts


def _schedule(plan: Plan) -> list[Fact]:
    ratio = f"{plan.steps:,} steps; {units.ratio(plan.tokens_per_parameter)} per parameter"
    facts = [derived("tokens", plan.tokens, ratio, unit="tokens")]
    if plan.epochs is not None and plan.train_tokens is not None:
        facts.append(derived("epochs", plan.epochs, f"over {plan.train_tokens.number:,.0f} training tokens"))
    if plan.seconds is not None:
        low, likely, high = plan.seconds
        reason = f"{units.duration(low)} to {units.duration(high)}, without evaluations"
        facts.append(derived("time", likely, reason, unit="seconds"))
    facts += _evaluations(plan)
    if plan.joules is not None and plan.device.power_watts is not None:
        reason = f"at the board's limit of {plan.device.power_watts:g} W"
        facts.append(derived("energy", plan.joules / 3.6e6, reason, unit="kWh"))
    return facts


def _evaluations(plan: Plan) -> list[Fact]:
    cost = evaluations(plan)
    what = f"{cost.count:,} times {cost.windows:,} windows of both splits"
    if cost.seconds is None:
        return [derived("evaluations", cost.count, what)]
    low, likely, high = cost.seconds
    reason = f"{units.duration(low)} to {units.duration(high)}; {what}, a forward pass of three"
    return [derived("evaluations", likely, reason, unit="seconds")]


def _loss(plan: Plan) -> list[Fact]:
    if plan.loss is None:
        return []
    reason = f"{plan.loss.low:.2f} to {plan.loss.high:.2f}"
    if text_kind(int(plan.vocabulary.number)) == "bpe":
        low, likely, high = (math.exp(loss) for loss in (plan.loss.low, plan.loss.likely, plan.loss.high))
        reason += f", a perplexity of {likely:.1f} ({low:.1f} to {high:.1f})"
    if plan.loss.lowest is not None:
        tokens, loss = plan.loss.lowest
        at = f"step {tokens / plan.tokens_per_step:,.0f}, {units.count(tokens)} tokens"
        reason += f", after about {loss:.2f} near {at}, whose checkpoint is the best"
    reason += f"; {plan.loss.curve}, {plan.loss.basis}"
    return [derived("validation loss", plan.loss.likely, reason, unit="nats")]
