"""Comparisons that keep a budget of minutes: models, ways to run them, and a race, what matters most first.

`gpu` has more than ten minutes on an H100 are enough for, so that a larger budget has something to do. What
comes first answers the questions that were asked: as many tokens a second as nanoGPT and more, the share of
the peak, the memory, and who is ahead after the same time. `baby-race` asks the last alone, of a CPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gptwright.bench.workloads import BABY, CHARACTERS, GPT2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to run a model.

    Attributes:
        model: its name in the suite.
        micro_batch: sequences in a forward pass; one micro-batch a step.
        compiled: whether the model is compiled.
        preset: a recipe of ours that replaces the model's options; nanoGPT has nothing to put beside it.
        only_ours: options that nanoGPT does not know; with any, it does not take part.
        environment: variables that ours is given, such as switches of torch that a measurement must decide;
            with any, nanoGPT does not take part.
    """

    model: str
    micro_batch: int
    compiled: bool
    preset: str | None = None
    only_ours: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As tables and messages call it."""
        how = "compiled" if self.compiled else "eager"
        more = [f"preset {self.preset}"] if self.preset else []
        more += [f"{name}={value}" for name, value in (*self.only_ours.items(), *self.environment.items())]
        return ", ".join((self.model, f"micro-batch {self.micro_batch}", how, *more))

    @property
    def beside_nanogpt(self) -> bool:
        """Whether nanoGPT can do the same."""
        return not (self.preset or self.only_ours or self.environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """As low a validation loss as there is time for, each trainer by its own recipe.

    Attributes:
        ours: whose recipe is ours; timed before, which tells how many steps fit.
        theirs: likewise of nanoGPT.
        seconds: of each, from the start of its process.
        eval_iters: batches of an evaluation, of which there are five.
        spare_seconds: kept for measuring our end on the whole validation split.
    """

    ours: Case
    theirs: Case
    seconds: float
    eval_iters: int
    spare_seconds: float

    @property
    def needed_seconds(self) -> float:
        """Of the whole race."""
        return 2 * self.seconds + self.spare_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """All of it.

    Attributes:
        about: a line for people.
        minutes: the budget, unless another is given.
        device: as the option `--device` has it.
        models: options by model, for both trainers.
        first: cases before the race.
        race: None: there is none.
        later: cases after it, while there is time.
        tokenizer: of the data.
        text_bytes: of the default text.
        warm_up: steps that are not timed.
        last_step: after whose line a run that is only timed is ended.
        log_interval: steps between lines: a trainer waits for its device at each.
        guess_seconds: of a run before any was seen, eager and compiled.
    """

    about: str
    minutes: float
    device: str
    models: Mapping[str, Mapping[str, Any]]
    first: tuple[Case, ...]
    race: Race | None
    later: tuple[Case, ...]
    tokenizer: str = "gpt2"
    text_bytes: int = 64_000_000
    warm_up: int = 10
    last_step: int = 60
    log_interval: int = 10
    guess_seconds: tuple[float, float] = (30.0, 75.0)


# Switches of torch 2.13 that may save memory or time on a GPU; ours does not set them until one has said so.
UNDECIDED = {
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    "TORCHINDUCTOR_AUTO_CHUNKER": "1",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING": "1",
}

SMALL, MEDIUM = "GPT-2 124M", "GPT-2 350M"
RECIPE = Case(model=SMALL, micro_batch=32, compiled=True, preset="fineweb-124m")
MAIN = Case(model=SMALL, micro_batch=32, compiled=True)

GPU = Suite(
    about="124M and 350M on one GPU: speed, memory and a race",
    minutes=10.0,
    device="cuda",
    models={
        SMALL: GPT2,
        MEDIUM: GPT2 | {"n_layer": 24, "n_head": 16, "n_embd": 1024},
    },
    # What the race needs to know comes first of all.
    first=(MAIN, RECIPE, Case(model=MEDIUM, micro_batch=16, compiled=True)),
    race=Race(ours=RECIPE, theirs=MAIN, seconds=90.0, eval_iters=8, spare_seconds=30.0),
    later=(
        Case(model=SMALL, micro_batch=32, compiled=False),
        Case(model=MEDIUM, micro_batch=16, compiled=False),
        Case(model=SMALL, micro_batch=64, compiled=True),
        Case(model=SMALL, micro_batch=32, compiled=True, only_ours={"loss_chunk": 8192}),
        Case(model=MEDIUM, micro_batch=32, compiled=True),
        Case(model=SMALL, micro_batch=16, compiled=True),
        Case(model=MEDIUM, micro_batch=8, compiled=True),
        Case(model=MEDIUM, micro_batch=16, compiled=True, only_ours={"loss_chunk": 8192}),
        Case(model=MEDIUM, micro_batch=16, compiled=True, only_ours={"gradient_checkpointing": True}),
        *(
            Case(model=SMALL, micro_batch=32, compiled=True, environment={name: value})
            for name, value in UNDECIDED.items()
        ),
        Case(model=SMALL, micro_batch=64, compiled=False),
        Case(model=SMALL, micro_batch=128, compiled=True),
    ),
)

CHARACTER_MODEL = "nanoGPT's Shakespeare model, 10.65M"
# Neither drops anything: in a quarter of an hour a CPU passes over the text once or twice, too seldom to
# remember it.
BABY_RECIPE = Case(
    model=CHARACTER_MODEL,
    micro_batch=16,
    compiled=False,
    preset="shakespeare-baby",
    only_ours={"dropout": 0.0},
)
BABY_MAIN = Case(model=CHARACTER_MODEL, micro_batch=16, compiled=False)

BABY_RACE = Suite(
    about="nanoGPT's Shakespeare model, 6 × 384, on a CPU: the lower loss after 15 minutes each",
    minutes=36.0,
    device="cpu",
    models={CHARACTER_MODEL: CHARACTERS | BABY},
    first=(BABY_MAIN, BABY_RECIPE),
    race=Race(ours=BABY_RECIPE, theirs=BABY_MAIN, seconds=900.0, eval_iters=20, spare_seconds=120.0),
    later=(),
    tokenizer="char",
    warm_up=3,
    last_step=10,
    log_interval=1,
)

SUITES = {"gpu": GPU, "baby-race": BABY_RACE}
