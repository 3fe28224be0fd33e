"""The named work that `bench` gives to every trainer: options by nanoGPT's names, and the data's tokenizer.

The model, the batch and the number of steps are fixed, so that a second means the same for all. Steps are few
where only speed is asked for; the first ones, evaluations and compilation are left out of a step's time and
kept in the wall time. On a GPU every step has its line: nanoGPT takes a step's time before it waits for the
device, so without a line at the step before it is only that of starting the work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# nanoGPT's README command for a laptop's CPU, and its two config files.
CHARACTERS = {"beta2": 0.99, "warmup_iters": 100, "learning_rate": 1e-3, "min_lr": 1e-4}
SMALL = {"block_size": 64, "batch_size": 12, "n_layer": 4, "n_head": 4, "n_embd": 128, "dropout": 0.0}
BABY = {"block_size": 256, "batch_size": 16, "n_layer": 6, "n_head": 6, "n_embd": 384, "dropout": 0.0}
README = CHARACTERS | SMALL | {"max_iters": 2000, "lr_decay_iters": 2000, "eval_iters": 20}
GPT2 = {"block_size": 1024, "n_layer": 12, "n_head": 12, "n_embd": 768, "dropout": 0.0, "warmup_iters": 10}
ONE = {"gradient_accumulation_steps": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One piece of work.

    Attributes:
        about: a line for people.
        tokenizer: of the data, as `prepare` takes it.
        options: what every trainer is given.
        device: `cpu` or `cuda`.
        less_memory: ways to a smaller step that gptwright has; with any, it also runs with the one for which
            its plan says the least.
        preset: what gptwright is given instead: its own recipe for the same goal.
        warm_up: first steps whose time does not count.
        compiles: whether the others are tried compiled as well.
    """

    about: str
    tokenizer: str
    options: Mapping[str, Any]
    device: str = "cpu"
    less_memory: Sequence[Mapping[str, Any]] = ()
    preset: str | None = None
    warm_up: int = 10
    compiles: bool = True


def steps(number: int, **others: object) -> dict[str, object]:
    """Options of a run that is only timed: so many steps, and one short evaluation at either end."""
    return {
        "max_iters": number,
        "lr_decay_iters": number,
        "eval_interval": number,
        "eval_iters": 2,
        "log_interval": 1,
        **others,
    }


WORKLOADS = {
    "laptop": Workload(
        about="0.80M, 4 × 128, batch 12 × 64: nanoGPT's README run for a CPU, 300 steps of it",
        tokenizer="char",
        options=CHARACTERS | SMALL | ONE | steps(300),
    ),
    "baby": Workload(
        about="10.65M, 6 × 384, batch 16 × 256: nanoGPT's Shakespeare model with a laptop's batch, 12 steps",
        tokenizer="char",
        options=CHARACTERS | BABY | ONE | steps(12),
        warm_up=3,
    ),
    "baby-dropout": Workload(
        about="10.65M, 6 × 384, batch 16 × 256, dropout 0.2 as nanoGPT's Shakespeare config has it, 12 steps",
        tokenizer="char",
        options=CHARACTERS | BABY | ONE | {"dropout": 0.2} | steps(12),
        warm_up=3,
    ),
    "gpt2": Workload(
        about="124M, 12 × 768, batch 1 × 1024: GPT-2 on a CPU, 6 steps",
        tokenizer="gpt2",
        options=GPT2 | ONE | {"batch_size": 1} | steps(6, eval_iters=1),
        less_memory=({"loss_chunk": 128}, {"loss_chunk": 128, "gradient_checkpointing": True}),
        warm_up=2,
    ),
    "race": Workload(
        about="Tiny Shakespeare to the validation loss of nanoGPT's README run for a CPU, by our own recipe",
        tokenizer="char",
        options=README | ONE | {"eval_interval": 250, "log_interval": 10},
        preset="shakespeare",
        compiles=False,
    ),
    "baby-cuda": Workload(
        about="10.65M, 6 × 384, batch 64 × 256, on a GPU, 500 steps",
        tokenizer="char",
        options=CHARACTERS | BABY | ONE | {"batch_size": 64} | steps(500),
        device="cuda",
        warm_up=50,
    ),
    "gpt2-cuda": Workload(
        about="124M, 12 × 768, batch 16 × 1024 with 4 micro-batches a step, on a GPU, 40 steps",
        tokenizer="gpt2",
        options=GPT2 | {"batch_size": 16, "gradient_accumulation_steps": 4} | steps(40),
        device="cuda",
    ),
    "gpt2-medium-cuda": Workload(
        about="350M, 24 × 1024, batch 8 × 1024 with 4 micro-batches a step, on a GPU, 20 steps",
        tokenizer="gpt2",
        options=GPT2
        | {"n_layer": 24, "n_head": 16, "n_embd": 1024, "batch_size": 8, "gradient_accumulation_steps": 4}
        | steps(20),
        device="cuda",
        warm_up=5,
    ),
}
