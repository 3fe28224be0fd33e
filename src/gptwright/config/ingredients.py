"""What a model is made of beyond GPT-2, each a switch of its own.

`arch = "gpt2"` has none of them and is nanoGPT's model to the bit; `arch = "modern"` has all, and either can
be asked for one more or one less (`--rope=False`). What each is worth on our own runs: docs/lab-notes.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """The switches, with where each comes from.

    Attributes:
        rope: rotary positions (Su et al. 2021, arXiv 2104.09864) instead of a table of learned ones.
        rms_norm: RMS norms without weights (Zhang and Sennrich 2019, arXiv 1910.07467) instead of layer
            norms, one more after the embedding, which then starts with unit variance.
        qk_norm: queries and keys normalized a head (Henry et al. 2020, arXiv 2010.04245).
        relu2: squared ReLU (So et al. 2021, arXiv 2109.08668) instead of GELU in the MLP.
        zero_init: projections into the residual stream and an untied head start at zero, so that every block
            starts as the identity and the first loss is ln(vocabulary).
        smear: each embedding takes in, by a learned weight a channel, the one of the token before.
    """

    rope: bool = False
    rms_norm: bool = False
    qk_norm: bool = False
    relu2: bool = False
    zero_init: bool = False
    smear: bool = False

    @classmethod
    def of(cls, arch: str, asked: Mapping[str, bool | None]) -> "Ingredients":
        """Those of an `arch`, but for what was asked for by name."""
        modern = arch == "modern"
        return cls(**{f.name: modern if (own := asked.get(f.name)) is None else own for f in fields(cls)})

    def used(self) -> tuple[str, ...]:
        """The names of those that are on."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name))


GPT2 = Ingredients()
MODERN = Ingredients.of("modern", {})


def recipe_of(ingredients: Ingredients, optimizer: str) -> str:
    """`gpt2`: none of the ingredients and AdamW; `modern`: all of them and Muon; `mixed`: anything else."""
    if ingredients == GPT2 and optimizer == "adamw":
        return "gpt2"
    return "modern" if ingredients == MODERN and optimizer == "muon" else "mixed"
