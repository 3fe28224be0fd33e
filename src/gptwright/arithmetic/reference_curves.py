"""Known loss curves, and which data a name means: the reading side of reference_curves.toml.

The file is package data, read once and only when asked for (about 15 ms), so that importing costs nothing.
"""

import math
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# Words in a dataset's name that do not change what data it is.
NEUTRAL_WORDS = frozenset(
    (
        *("sample", "data", "dataset", "train", "val", "bin", "text", "tokens", "shards"),
        *("the", "my", "local", "cached", "tiny", "karpathy", "gpt2", "bpe", "hf"),
    )
)
CORE_WORDS = {
    "fineweb": "fineweb",
    "finewebedu": "fineweb-edu",
    "openwebtext": "openwebtext",
    "owt": "openwebtext",
    "shakespeare": "shakespeare",
    "tinyshakespeare": "shakespeare",
}
CHARACTER_WORDS = frozenset(("char", "chars", "character", "characters", "level"))
# 10B, 10BT, 100M: a sample's size. A bare 2 is another corpus: fineweb-2, owt2.
SIZE = re.compile(r"\d+(\.\d+)?[kmbt]t?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One public run.

    Attributes:
        name: what it is.
        family: as `dataset_family` names data.
        vocabulary: as `vocabulary_kind` names it.
        parameters: nanoGPT's count.
        non_embedding: parameters without token and position tables.
        recipe: `gpt2` or `modern`.
        schedule: of the learning rate after warm-up: `cosine`, or `linear` from `decay_from` on.
        decay_from: share of the run at which a linear decay starts.
        end_lr: learning rate at the last point, as a share of the peak.
        points: training tokens and validation loss in nats, by tokens.
        source: where the figures were read.
        unique_tokens: size of the training data, where the run repeated it.
        batch: tokens a step.
    """

    name: str
    family: str
    vocabulary: str
    parameters: int
    non_embedding: int
    recipe: str
    schedule: str
    end_lr: float
    points: tuple[tuple[float, float], ...]
    source: str
    decay_from: float = 0.0
    unique_tokens: float | None = None
    batch: int = 524_288

    @property
    def first_tokens(self) -> float:
        """Tokens at the first point."""
        return self.points[0][0]

    @property
    def last_tokens(self) -> float:
        """Tokens at the last point, the run's end."""
        return self.points[-1][0]

    def loss_at(self, tokens: float) -> float:
        """The run's own loss after `tokens`, interpolated in log tokens, held at the ends."""
        if tokens <= self.first_tokens:
            return self.points[0][1]
        for (left, loss), (right, next_loss) in zip(self.points, self.points[1:], strict=False):
            if tokens <= right:
                share = math.log(tokens / left) / math.log(right / left)
                return loss + share * (next_loss - loss)
        return self.points[-1][1]

    def lr_at(self, tokens: float) -> float:
        """The learning rate after `tokens` as a share of its peak; warm-up is not looked at."""
        done = min(tokens / self.last_tokens, 1.0)
        if self.schedule == "cosine":
            return self.end_lr + (1 - self.end_lr) * (1 + math.cos(math.pi * done)) / 2
        left = (1 - done) / (1 - self.decay_from)
        return self.end_lr + (1 - self.end_lr) * min(left, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBand:
    """The validation loss to expect, nats a token.

    Attributes:
        low: a sound run is hardly below this.
        likely: the middle.
        high: a sound run is hardly above this.
        basis: how it was derived, with the assumptions that matter.
        curve: the nearest reference run.
        source: where that was read.
        lowest: after how many tokens it is likely lowest and what it is then, where it rises again.
    """

    low: float
    likely: float
    high: float
    basis: str
    curve: str
    source: str
    lowest: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The lowest loss that is known for some data and vocabulary.

    Attributes:
        loss: nats a token.
        margin: how far below it an honest run could still be.
        basis: which runs say so.
        source: where they were read.
    """

    loss: float
    margin: float
    basis: str
    source: str


@cache
def curves() -> tuple[Curve, ...]:
    """Every known curve."""
    return tuple(
        Curve(**{**entry, "points": tuple((float(t), float(loss)) for t, loss in entry["points"])})
        for entry in _document()["curve"]
    )


def floor(dataset: str, vocab_size: int | None) -> Floor | None:
    """The lowest loss known for this data and vocabulary; None where nothing is known."""
    family = _family_with(dataset, vocab_size)
    for entry in _document()["floor"]:
        if entry["family"] == family:
            return Floor(**{key: value for key, value in entry.items() if key != "family"})
    return None


def dataset_family(name: str) -> str | None:
    """Which known data a dataset's name or path means; None where a word makes it other data.

    `fineweb`, `fineweb-edu`, `openwebtext`, `shakespeare-char`, or `shakespeare` where the name does not say
    how it was cut into tokens.
    """
    parts = [part for part in re.split(r"[/\\]", name.lower()) if part]
    for part in reversed(parts):
        words = re.findall(r"gpt2|[a-z]+|\d+(?:\.\d+)?[a-z]*", part)
        core = {CORE_WORDS[word] for word in words if word in CORE_WORDS}
        if core:
            return _family_of(core, words)
    return None


def _family_of(core: set[str], words: list[str]) -> str | None:
    rest = {word for word in words if word not in CORE_WORDS and not SIZE.match(word)} - NEUTRAL_WORDS
    if core == {"fineweb"} and "edu" in rest:
        core, rest = {"fineweb-edu"}, rest - {"edu"}
    if core == {"shakespeare"} and rest & {"char", "chars", "character", "characters"}:
        core, rest = {"shakespeare-char"}, rest - CHARACTER_WORDS
    return core.pop() if len(core) == 1 and not rest else None


def vocabulary_kind(vocab_size: int) -> str | None:
    """Which known vocabulary has this size: `gpt2`, `char-65` or None.

    GPT-2's BPE has 50,257 tokens and is padded up to multiples of 64 to 512, so at most to 50,688.
    """
    if 50_257 <= vocab_size <= 50_688:
        return "gpt2"
    return "char-65" if vocab_size == 65 else None


def known_data(dataset: str, vocab_size: int | None) -> tuple[str, str] | None:
    """The family and the vocabulary of a run's data, where both are known and fit each other."""
    family = _family_with(dataset, vocab_size)
    if family is None or family == "shakespeare":
        return None
    expected = "char-65" if family == "shakespeare-char" else "gpt2"
    if vocab_size is not None and vocabulary_kind(vocab_size) != expected:
        return None
    return family, expected


def _family_with(dataset: str, vocab_size: int | None) -> str | None:
    family = dataset_family(dataset)
    if family == "shakespeare" and vocab_size is not None and vocabulary_kind(vocab_size) == "char-65":
        return "shakespeare-char"
    if family == "shakespeare-char" and vocab_size is not None and vocabulary_kind(vocab_size) != "char-65":
        return None
    return family


@cache
def _document() -> dict[str, list[dict[str, Any]]]:
    text = Path(__file__).with_name("reference_curves.toml").read_text("utf-8")
    return tomllib.loads(text)
