"""The data of simulated runs: names, sizes, and the loss law that holds on them.

Web text with GPT-2's tokenizer follows a public law (see `curves`); nanochat's and modded-nanogpt's recipes
lie below it, fitted to their published points (nanochat's isoFLOP optima 0.897, 0.862, 0.829, 0.800 bits a
byte; modded-nanogpt's 2.4B-token record 4.21, 3.80, 3.28 at 0.13, 0.33, 2.4 billion tokens). Text of a
person's own has no reference; its law is made up so that models of a few million parameters learn something.
"""

from dataclasses import dataclass, replace

import numpy as np

from tests.simulator.formats import GPT2_VOCABULARIES
from tests.simulator.shapes import Shape
from tests.simulator.truth import Law

WEB = Law(
    floor=1.8169 + 0.145,
    a=482.01,
    alpha=0.3478,
    b=2085.43,
    beta=0.3658,
    recipe_bonus=0.12,
    late=0.1,
)
NANOCHAT = Law(floor=1.918, a=337.0, alpha=0.3478, b=834.0, beta=0.3658, recipe_bonus=0.1)
OWN = Law(floor=2.0, a=150.0, alpha=0.3, b=300.0, beta=0.3)
MODDED = Law(floor=1.817, a=482.01, alpha=0.3478, b=450.0, beta=0.3, scale=0.5, recipe_bonus=0.1)

# Name → unique training tokens, validation tokens, nats against FineWeb at equal tokens.
PUBLIC = {
    "fineweb": (10_000_000_000, 10_000_000, 0.0),
    "fineweb-edu": (9_900_000_000, 100_000_000, -0.2),
    "openwebtext": (9_035_582_198, 4_434_897, -0.1),
}
OWN_NAMES = ("wiki_own", "novels", "code_own", "papers", "mails", "forum_posts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A dataset: `noise` is relative to web text in GPT-2's tokens."""

    name: str
    train_tokens: int
    val_tokens: int | None
    law: Law
    noise: float = 1.0


def draw_data(
    rng: np.random.Generator,
    format: str,  # noqa: A002
    shape: Shape,
    tokens: float,
    *,
    dataset: str | None = None,
    epochs: tuple[float, float] | None = None,
) -> Data:
    """Data that a run of `tokens` tokens may have been trained on."""
    wobble = float(rng.normal(0.0, 0.02))
    if format in ("modded", "modded-current"):
        return _public("fineweb", MODDED, wobble)
    if format == "nanochat":
        law = replace(NANOCHAT, floor=NANOCHAT.floor + wobble)
        return Data(name="fineweb-edu", train_tokens=20_000_000_000, val_tokens=None, law=law)
    public = shape.vocab_size in GPT2_VOCABULARIES and shape.parameters > 6e7
    name = dataset or (str(rng.choice([*PUBLIC, "own"])) if public and epochs is None else "own")
    if name in PUBLIC and public and tokens < 3.5 * PUBLIC[name][0]:
        return _public(name, WEB, wobble)
    unique = int(tokens / _epochs(rng, epochs))
    law, noise = _own_law(shape, wobble)
    name = name if name != "own" and name not in PUBLIC else str(rng.choice(OWN_NAMES))
    # A split of a hundredth, but at least a million tokens where the corpus can spare them.
    val = max(unique // 100, min(unique // 9, 1_200_000))
    return Data(name=name, train_tokens=unique, val_tokens=val, law=law, noise=noise)


def _epochs(rng: np.random.Generator, epochs: tuple[float, float] | None) -> float:
    if epochs:
        return float(rng.uniform(*epochs))
    return float(rng.uniform(0.2, 1.0) if rng.random() < 0.8 else rng.uniform(1.0, 3.5))


def _public(name: str, law: Law, wobble: float) -> Data:
    train, val, easier = PUBLIC[name]
    return Data(
        name=name, train_tokens=train, val_tokens=val, law=replace(law, floor=law.floor + easier + wobble)
    )


def _own_law(shape: Shape, wobble: float) -> tuple[Law, float]:
    """A law in nats of another tokenizer: a shorter vocabulary carries less a token."""
    scale = 0.25 if shape.vocab_size < 300 else float(np.log(shape.vocab_size) / np.log(50304))
    law = replace(OWN, floor=scale * (OWN.floor + wobble), a=scale * OWN.a, b=scale * OWN.b, scale=scale)
    return law, 0.2 if shape.vocab_size < 300 else 1.0
