"""Datasets that nanoGPT's own scripts prepare, whose sizes are the same for everybody.

They let a plan for nanoGPT's configs be exact before the data is there, and tell the passes of a run of which
only the tokens of a step are said. Source: the readme.md beside each prepare.py in nanoGPT's data folder,
which print these counts.
"""

import re
from collections.abc import Mapping

from gptwright.arithmetic.reference_curves import dataset_family
from gptwright.config.pretrained import GPT2_PADDED_VOCABULARY
from gptwright.facts import Fact, tabled

SIZES: Mapping[str, Mapping[str, int]] = {
    "shakespeare_char": {"train_tokens": 1_003_854, "val_tokens": 111_540, "vocab_size": 65},
    "shakespeare": {"train_tokens": 301_966, "val_tokens": 36_059, "vocab_size": GPT2_PADDED_VOCABULARY},
    "openwebtext": {
        "train_tokens": 9_035_582_198,
        "val_tokens": 4_434_897,
        "vocab_size": GPT2_PADDED_VOCABULARY,
    },
}


# Web text whose usual scripts make tokens of it with GPT-2's tokenizer.
CUT_BY_GPT2 = ("fineweb", "fineweb-edu", "openwebtext")


def usual_vocabulary(dataset: str) -> Fact | None:
    """The rows that a model has for a dataset which is usually cut by GPT-2's tokenizer; None for others."""
    family = dataset_family(dataset)
    if family is None or family not in CUT_BY_GPT2:
        return None
    reason = f"GPT-2's, which nanoGPT, llm.c and build-nanogpt cut {family} by, padded to 64 rows"
    return tabled("vocab_size", GPT2_PADDED_VOCABULARY, family, reason)


def known_facts(dataset: str) -> dict[str, Fact]:
    """Tokens and vocabulary of a dataset by nanoGPT's name, or of a folder called so; empty for any other."""
    dataset = re.split(r"[/\\]", dataset.rstrip("/\\"))[-1]
    reason = f"what nanoGPT's data/{dataset}/prepare.py makes"
    return {
        name: tabled(name, value, "nanoGPT data", reason, unit="" if name == "vocab_size" else "tokens")
        for name, value in SIZES.get(dataset, {}).items()
    }
