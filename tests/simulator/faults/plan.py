"""What the settings alone decide: sizes, batches, schedules and lengths that do not fit each other."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tests.simulator.datasets import WEB
from tests.simulator.faults.fault import WEB_TEXT, Fault, as_it_is, pick, retold
from tests.simulator.run import Run

NOTES = (
    "the loss has reached a plateau long before max_iters; can the run be stopped here?",
    "training seems to have converged, nothing happens any more",
    "the loss is flat since yesterday",
    "stuck on a plateau; is the model too small?",
)


def small_batch(rng: np.random.Generator, run: Run) -> Run:
    """GPT-2's learning rate with a fraction of its half a million tokens a step."""
    rate = float(rng.choice([6e-4, 6e-4, 1e-3]))
    schedule = run.truth.schedule
    floor = 0.0 if not schedule.floor else rate / 10
    return retold(run.with_truth(schedule=dataclasses.replace(schedule, peak=rate, floor=floor)))


def schedule_mismatch(rng: np.random.Generator, run: Run) -> Run:
    """A decay of another run's length, a warm-up of half the run or more, or a minimum that is no minimum."""
    truth = run.truth
    schedule = truth.schedule
    match int(rng.integers(3)):
        case 0:
            schedule = dataclasses.replace(
                schedule, decay_steps=int(truth.max_iters * float(rng.choice([10, 30, 100])))
            )
        case 1:
            schedule = dataclasses.replace(
                schedule, warmup=int(truth.max_iters * float(rng.uniform(0.5, 2.0)))
            )
        case _:
            schedule = dataclasses.replace(
                schedule, decay_steps=int(truth.max_iters * float(rng.uniform(0.2, 0.5)))
            )
    return retold(run.with_truth(schedule=schedule))


def capacity_limited(rng: np.random.Generator, run: Run) -> Run:
    """A small model on hundreds of tokens of web text per parameter."""
    law = dataclasses.replace(WEB, floor=WEB.floor + float(rng.normal(0.0, 0.02)))
    run = run.with_truth(law=law, dataset="fineweb", train_tokens=10_000_000_000, val_tokens=10_000_000)
    return retold(run)


def odd_shape(rng: np.random.Generator, run: Run) -> Run:
    """Heads of 8 channels, a tower of 48 thin layers, or two very wide ones."""
    shape = run.truth.shape
    match int(rng.integers(3)):
        case 0:
            shape = dataclasses.replace(shape, n_head=shape.n_embd // 8)
        case 1:
            width = 64 * max(1, round(shape.n_embd / 4 / 64))
            layers = max(48, shape.n_layer * 6)
            shape = dataclasses.replace(shape, n_layer=layers, n_embd=width, n_head=max(1, width // 64))
        case _:
            width = shape.n_embd * 2
            shape = dataclasses.replace(shape, n_layer=1, n_embd=width, n_head=max(1, width // 64))
    return retold(run.with_truth(shape=shape))


def long_plan(rng: np.random.Generator, run: Run) -> Run:
    """max_iters that would take months to years here; only the first few hundred steps were made."""
    truth = run.truth
    seconds = float(rng.uniform(200, 2000)) * 86_400
    planned = max(600_000, round(seconds / truth.step_seconds / 1000) * 1000)
    schedule = dataclasses.replace(
        truth.schedule, decay_steps=planned, warmup=min(2000, truth.last_step // 4)
    )
    return retold(run.with_truth(max_iters=planned, schedule=schedule))


def plateau(rng: np.random.Generator, run: Run) -> Run:
    """A stretch of noisy lines in the middle of a long schedule, and somebody who calls it a plateau."""
    truth = run.truth
    planned = 600_000
    first = int(rng.uniform(0.2, 0.6) * planned / 1000) * 1000
    lines = int(rng.integers(50, 120))
    schedule = dataclasses.replace(truth.schedule, decay_steps=planned, warmup=2000)
    run = run.with_truth(
        max_iters=planned,
        schedule=schedule,
        log_interval=10,
        eval_interval=2000,
        segments=((first, first + 10 * lines),),
        compile_seconds=0.0,
        transient_steps=2000.0,
    )
    run = run.with_truth(segments=((first + 10, first + 10 * lines),)) if first % 2000 == 0 else run
    note = pick(rng, NOTES)
    return retold(run).with_handover(header=False).with_facts(note=note)


def _web(**changes: object) -> Mapping[str, object]:
    return MappingProxyType({**WEB_TEXT, "variant": "", **changes})


CARDS = ("consumer", "datacenter")
FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "small-batch-for-lr": Fault(
            plant=small_batch,
            formats=("nanogpt", "litgpt", "build-nanogpt", "llmc", "hf", "hf-state"),
            wishes=_web(
                parameters=(1e8, 2e8),
                tokens_per_step=(4096.0, 40_000.0),
                tokens_per_parameter=(2.0, 8.0),
                micro_batch=16,
                steps=(500, 400_000),
                days=20.0,
            ),
            allowed=("undertrained", "above-reference", "noisy-eval"),
        ),
        "schedule-mismatch": Fault(
            plant=schedule_mismatch,
            formats=("nanogpt", "litgpt", "build-nanogpt", "ours"),
            wishes=MappingProxyType({"finished": True, "variant": ""}),
            allowed=("undertrained", "above-reference", "config-mismatch"),
        ),
        "capacity-limited": Fault(
            plant=capacity_limited,
            formats=("nanogpt", "litgpt", "llmc", "ours"),
            wishes=MappingProxyType(
                {
                    "vocabulary": 50304,
                    "parameters": (1.2e7, 4e7),
                    "embedding_share": (0.0, 0.95),
                    "tokens_per_parameter": (150.0, 350.0),
                    "kinds": CARDS,
                    "finished": True,
                    "variant": "",
                    "block_size": 1024,
                    "steps": (3000, 60_000),
                }
            ),
            allowed=("embedding-heavy", "plateau-unproven", "many-epochs", "above-reference"),
        ),
        "undertrained": Fault(
            plant=as_it_is,
            formats=("nanogpt", "llmc", "litgpt", "build-nanogpt", "torchtitan", "ours"),
            wishes=_web(tokens_per_parameter=(0.8, 3.2), steps=(300, 40_000)),
            allowed=("above-reference", "schedule-mismatch"),
        ),
        "embedding-heavy": Fault(
            plant=as_it_is,
            formats=("nanogpt", "llmc", "ours"),
            wishes=MappingProxyType(
                {
                    "vocabulary": 50304,
                    "parameters": (3e6, 2.5e7),
                    "embedding_share": (0.62, 0.98),
                    "variant": "",
                    "block_size": 512,
                }
            ),
        ),
        "odd-shape": Fault(
            plant=odd_shape,
            formats=("nanogpt", "hf", "hf-state", "ours", "build-nanogpt", "llmc"),
            wishes=MappingProxyType({"parameters": (1e7, 2e8), "variant": ""}),
            allowed=(
                "embedding-heavy",
                "low-mfu",
                "undertrained",
                "capacity-limited",
                "above-reference",
                "small-batch-for-lr",
                "long-plan",
            ),
        ),
        "long-plan": Fault(
            plant=long_plan,
            formats=("nanogpt", "llama2c", "ours"),
            wishes=MappingProxyType({"steps": (300, 3000), "kinds": CARDS, "variant": ""}),
            allowed=("undertrained", "many-epochs", "schedule-mismatch"),
        ),
        "still-improving": Fault(
            plant=as_it_is,
            formats=("nanogpt", "llmc", "litgpt", "build-nanogpt", "hf", "hf-state", "ours"),
            wishes=_web(tokens_per_parameter=(1.5, 4.0), steps=(300, 40_000)),
            allowed=("undertrained", "above-reference", "noisy-eval"),
        ),
        "plateau-unproven": Fault(
            plant=plateau,
            formats=("nanogpt", "llama2c"),
            wishes=MappingProxyType(
                {
                    "tokens_per_step": (8192.0, 30_000.0),
                    "micro_batch": 12,
                    "kinds": CARDS,
                    "steps": (500, 400_000),
                    "tokens_per_parameter": (10.0, 30.0),
                    "parameters": (3e7, 2e8),
                    "variant": "",
                    "block_size": 1024,
                }
            ),
            allowed=(
                "small-batch-for-lr",
                "incomplete-log",
                "long-plan",
                "many-epochs",
                "capacity-limited",
                "undertrained",
            ),
        ),
    }
)
