"""The settings in which two runs differ, and how many changes that makes.

Settings that can only sensibly be changed together count as one change, and settings that leave the loss at
equal tokens as it is count as none.
"""

import math

import numpy as np

from gptwright.arithmetic.reference import dataset_family
from gptwright.diagnose.compare.outcome import Difference
from gptwright.diagnose.compare.points import in_bits_a_byte
from gptwright.diagnose.reading import Reading
from gptwright.facts import Value

# Sizes of one corpus as different people round them.
SAME_TEXT = 0.05

# Sizes of one model as trainers round and count them.
SAME_SIZE = 0.02

# A run's first line is a little below its highest rate where the rate decays from the start.
SAME_PEAK = 0.05

SIZE = "model size"
BATCH = "tokens per step"
# Of losses of a token another vocabulary makes another quantity; bits a byte stay what they are, and it moves
# them.
VOCABULARY = "vocabulary"
# Settings that change together count as one thing; another cut of the same step changes nothing.
THINGS: dict[str, tuple[str, ...]] = {
    "depth": ("n_layer",),
    "width": ("n_embd",),
    "heads": ("n_head",),
    "context": ("block_size",),
    BATCH: ("tokens_per_step",),
    "dropout": ("dropout",),
    "learning rate": ("learning_rate", "min_lr"),
    "decay": ("decay_lr", "lr_schedule", "cooldown_fraction"),
    "schedule": ("warmup_iters", "lr_decay_iters", "max_iters"),
    "optimizer": (
        "optimizer",
        *("weight_decay", "beta1", "beta2", "grad_clip"),
        *("muon_learning_rate", "muon_momentum", "muon_steps", "muon_warmup_iters"),
    ),
    "architecture": (
        *("arch", "bias", "tie_weights", "rope", "rope_base", "rms_norm", "qk_norm", "relu2"),
        *("zero_init", "smear"),
    ),
    "sampling": ("sampling",),
    "start": ("init_from",),
    "training text": ("train_tokens",),
    VOCABULARY: ("vocab_size",),
    "trainer": ("trainer",),
    # Of runs whose logs print their size and not their shape.
    SIZE: ("parameters",),
}
# What tells a model's size, where it is known.
SHAPE = frozenset(("depth", "width", "architecture", "arch"))
# The first field of these brings the others with it; without it each of them is a thing of its own.
LED = ("optimizer", "architecture")
# Listed as differences, but they do not move the loss at equal tokens beyond floating-point noise.
HARMLESS = (
    "batch_size",
    "gradient_accumulation_steps",
    "device",
    "device_count",
    "dtype",
    "compile",
    "eval_iters",
    "seed",
    "torch",
)
IDENTITY = ("dataset", "vocab_size", "train_tokens", "val_tokens")


def setting(reading: Reading, field: str) -> Value:
    """A setting of a run, or what its records say of it; None where nothing does."""
    if field == "trainer":
        return reading.log.format.name if reading.log is not None else None
    if field == "tokens_per_step":
        return reading.speed.tokens_per_step.value if reading.speed.tokens_per_step is not None else None
    if field == "parameters":
        return reading.sizes.parameters.value if reading.sizes.parameters is not None else None
    if field == "device":
        named = reading.machine.name
        return named.value if named is not None else reading.settings.word("device")
    fact = reading.settings.get(field)
    if fact is None and field == "batch_size":
        fact = reading.settings.get("micro_batch")
    if fact is not None:
        return fact.value
    # A trainer that has one model and one optimizer does not say which.
    alone = reading.log is not None and reading.log.format.gpt2_shaped
    return {"arch": "gpt2", "optimizer": "adamw"}.get(field) if alone else None


def differences(a: Reading, b: Reading) -> tuple[Difference, ...]:
    """Settings that both runs know and that differ."""
    things = [fields for thing, fields in THINGS.items() if thing != SIZE or thing in changed_things(a, b)]
    fields = dict.fromkeys([*IDENTITY, *(f for fields in things for f in fields), *HARMLESS])
    return tuple(Difference(f, *_both(a, b, f)) for f in fields if differs(a, b, f))


def idle_changes(a: Reading, b: Reading) -> tuple[str, ...]:
    """Fields that differ and leave the loss at equal tokens as it is."""
    return tuple(field for field in HARMLESS if differs(a, b, field))


def fields_of(thing: str, a: Reading, b: Reading) -> tuple[str, ...]:
    """The fields by which two runs differ in one thing."""
    found = tuple(field for field in THINGS.get(thing, (thing,)) if differs(a, b, field))
    return found or (("batch_size",) if thing == BATCH else ())


def same_corpus(a: str, b: str) -> bool:
    """Whether two names or paths mean one corpus."""
    families = dataset_family(a), dataset_family(b)
    return a == b or (families[0] is not None and families[0] == families[1])


def changed_things(a: Reading, b: Reading) -> tuple[str, ...]:
    """What was changed that can move the loss, things that belong together counted once."""
    things: list[str] = []
    for thing, fields in THINGS.items():
        differing = [f for f in fields if differs(a, b, f)]
        if thing == "training text" and _as_much_text(a, b):
            differing = []
        if thing == VOCABULARY and not in_bits_a_byte(a, b):
            differing = []
        if thing == SIZE and SHAPE & set(things):
            differing = []
        # What came before a resume is not known, and nothing says that it was another start.
        if thing == "start" and "resume" in [setting(run, "init_from") for run in (a, b)]:
            differing = []
        if thing in LED and fields[0] not in differing:
            things += differing
        elif differing or (thing == BATCH and _other_batches(a, b)):
            things.append(thing)
    # A schedule over as many tokens is the same one, in steps of another size.
    if {BATCH, "schedule"} <= set(things) and _as_long_in_tokens(a, b):
        things.remove("schedule")
    # Heads follow width at a fixed head size.
    if {"width", "heads"} <= set(things):
        sizes = [_head_size(r) for r in (a, b)]
        if None not in sizes and sizes[0] == sizes[1]:
            things.remove("heads")
    return tuple(things)


def _both(a: Reading, b: Reading, field: str) -> tuple[Value, Value]:
    """A setting of both; for a learning rate that neither says, the highest that their lines print."""
    ours, theirs = setting(a, field), setting(b, field)
    if field == "learning_rate" and ours is None and theirs is None:
        peaks = _highest_rate(a), _highest_rate(b)
        if None not in peaks and not math.isclose(*peaks, rel_tol=SAME_PEAK):  # type: ignore[arg-type]
            return peaks
    return ours, theirs


def _highest_rate(reading: Reading) -> float | None:
    if reading.train is None or reading.log is None or reading.log.format.prints_rate_multiple:
        return None
    rates = reading.train.learning_rate
    known = rates[np.isfinite(rates)]
    return float(known.max()) if len(known) else None


def _other_batches(a: Reading, b: Reading) -> bool:
    """Whether micro-batches differ and nothing says that accumulation makes up for it."""
    unknown = all(reading.speed.tokens_per_step is None for reading in (a, b))
    return unknown and differs(a, b, "batch_size")


def differs(a: Reading, b: Reading, field: str) -> bool:
    """Whether both runs know the setting and it is not the same."""
    ours, theirs = _both(a, b, field)
    if ours is None or theirs is None:
        return False
    if field == "dataset":
        return not same_corpus(str(ours), str(theirs))
    if field == "device" and a.machine.spec is not None and a.machine.spec is b.machine.spec:
        return False
    if field == "parameters":
        return not math.isclose(float(ours), float(theirs), rel_tol=SAME_SIZE)
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return not math.isclose(float(ours), float(theirs), rel_tol=1e-9)
    return ours != theirs


def _as_much_text(a: Reading, b: Reading) -> bool:
    """Whether two sizes of the training split are one size, counted or rounded differently."""
    ours, theirs = a.settings.number("train_tokens"), b.settings.number("train_tokens")
    return ours is None or theirs is None or math.isclose(ours, theirs, rel_tol=SAME_TEXT)


def _as_long_in_tokens(a: Reading, b: Reading) -> bool:
    """Whether two schedules are as many tokens long; a warm-up may also be as many steps."""
    each = [reading.speed.tokens_per_step for reading in (a, b)]
    if each[0] is None or each[1] is None:
        return False
    ratio = each[1].number / each[0].number
    for field in THINGS["schedule"]:
        ours, theirs = a.settings.number(field), b.settings.number(field)
        if ours is None or theirs is None or (field == "warmup_iters" and ours == theirs):
            continue
        if not math.isclose(ours, theirs * ratio, rel_tol=SAME_SIZE):
            return False
    return True


def _head_size(reading: Reading) -> float | None:
    width, heads = reading.settings.number("n_embd"), reading.settings.number("n_head")
    return width / heads if width and heads else None
