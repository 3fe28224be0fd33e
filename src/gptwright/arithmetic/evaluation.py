"""How sure a printed evaluation is, from its design alone: for logs that keep no window's loss.

A printed loss is a mean over windows drawn from a split. It differs from the split's own mean, because not
every window was drawn, and the split's mean differs from that of all such text, because the split is a finite
sample of it. The first error makes two evaluations of one run jump; the second moves all of them together, so
it matters against other splits (train against validation) and cancels between runs on the same one.

Windows of running text are alike: an author, a page, a speech. So longer windows gain less than 1/sqrt, and a
split that is one stretch of text is worth fewer windows than it has. Where a run keeps its windows' losses,
`noise.mean_loss` is better than all of this.
"""

import math
from dataclasses import dataclass
from typing import Literal

TextKind = Literal["bpe", "bpe-sequential", "char"]

# nanoGPT's per-step loss over public FineWeb runs scatters by 0.156, 0.094 and 0.068 nats for micro-batches
# of 8, 16 and 32 random crops of 1,024 tokens: 0.44, 0.38 and 0.38 a crop.
BPE_CROP_SD, BPE_CROP_TOKENS = 0.40, 1024
# llm.c reads its shards in order: 0.042 to 0.044 nats for 512 sequences of 1,024 tokens, 1.0 a sequence.
BPE_SEQUENTIAL_SD = 1.0
# Every window of Tiny Shakespeare's validation split, 0.80M parameters after nanoGPT's README run for a CPU,
# seven seeds: 0.217 to 0.226 nats for 64 characters.
CHARACTER_CROP_SD, CHARACTER_CROP_TOKENS = 0.22, 64
# The same windows joined: 0.171 for 128, 0.135 for 256, 0.107 for 512, 0.085 for 1,024 and 0.066 for 2,048
# characters. That is length^-0.35; independent characters would give length^-0.5.
LENGTH_EXPONENT = 0.35
# So for a stretch of S characters the mean is as uncertain as with windows of 2,048, the longest measured:
# 0.066 · sqrt(2048 / S), 1.7 times what windows of 64 promise.
CHARACTER_STRETCH_SD, CHARACTER_STRETCH_TOKENS = 0.066, 2048

# A split of fewer windows than this, or whose own mean is this unsure, misleads every reading of it: recipes
# differ by 0.01 to 0.05 nats.
FEWEST_WINDOWS, UNSURE_SPLIT = 50, 0.03
# A byte has 256 values; the smallest BPE in use has 1,024 tokens.
MOST_CHARACTERS = 256
# See `seed_noise`. 80M to 4e8 tokens is the smallest and shortest of the public groups.
LARGE_SEED_SD, LARGE_PARAMETERS, LARGE_TOKENS = 0.00135, 80e6, 4e8
SMALL_SEED_SD, SMALL_PARAMETERS = 0.0056, 2e6


@dataclass(frozen=True, slots=True)
class SequenceSd:
    """The standard deviation of one window's loss, in nats, and where it comes from."""

    sd: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationError:
    """Standard errors of a printed evaluation, in nats.

    Attributes:
        of_mean: of the printed mean around the split's own mean; between two evaluations of one run it counts
            with sqrt(2).
        of_split: of the split's mean around that of all such text; None if the split's size is not known.
        total: of the printed mean around that of all such text; None likewise.
        windows: windows drawn.
        effective_windows: windows that are different text: at most as many as the split has.
        basis: where the scatter of a window's loss comes from.
    """

    of_mean: float
    of_split: float | None
    total: float | None
    windows: int
    effective_windows: float
    basis: str


@dataclass(frozen=True, slots=True)
class SeedNoise:
    """How far the final losses of runs scatter that differ in the seed alone.

    Attributes:
        standard_deviation: of one run's final loss, nats; the difference of two has sqrt(2) times that.
        basis: where it was measured.
    """

    standard_deviation: float
    basis: str


def text_kind(vocab_size: int) -> TextKind:
    """Characters or bytes for a vocabulary of at most 256, else a BPE's tokens."""
    return "char" if vocab_size <= MOST_CHARACTERS else "bpe"


def per_sequence_sd(block_size: int, kind: TextKind) -> SequenceSd:
    """How much the losses of single windows of `block_size` tokens scatter.

    Args:
        block_size: tokens in a window.
        kind: `bpe` for random crops of web text, `bpe-sequential` for its shards read in order, `char` for
            characters.
    """
    if kind == "char":
        sd = CHARACTER_CROP_SD * (CHARACTER_CROP_TOKENS / block_size) ** LENGTH_EXPONENT
        return SequenceSd(sd, "measured on Tiny Shakespeare for 64 to 2,048 characters, length^-0.35 between")
    measured = BPE_CROP_SD if kind == "bpe" else BPE_SEQUENTIAL_SD
    sd = measured * (BPE_CROP_TOKENS / block_size) ** LENGTH_EXPONENT
    basis = "per-step losses of public runs over web text at 1,024 tokens"
    if block_size != BPE_CROP_TOKENS:
        basis += "; that it goes with length^-0.35 is measured on characters and assumed here"
    return SequenceSd(sd, basis)


def stretch_error(split_tokens: float, kind: TextKind) -> float:
    """How far the mean loss of one stretch of `split_tokens` may lie from that of all such text, in nats.

    Neighbouring windows are alike, so this is taken from the longest windows that were measured.
    """
    if kind == "char":
        return CHARACTER_STRETCH_SD * math.sqrt(CHARACTER_STRETCH_TOKENS / split_tokens)
    return BPE_SEQUENTIAL_SD * math.sqrt(BPE_CROP_TOKENS / split_tokens)


def evaluation_error(
    *,
    batches: int,
    batch_size: int,
    block_size: int,
    split_tokens: float | None,
    per_sequence_sd: float | None = None,
    vocab_size: int | None = None,
    fixed: bool = False,
    contiguous: bool = False,
) -> EvaluationError:
    """The standard errors of a mean over `batches` × `batch_size` windows of a split.

    Args:
        batches: nanoGPT's `eval_iters`.
        batch_size: windows in a batch.
        block_size: tokens in a window.
        split_tokens: size of the split, if it is known.
        per_sequence_sd: standard deviation of one window's loss, nats, if it is known.
        vocab_size: says characters or BPE where `per_sequence_sd` is not given; BPE if neither is.
        fixed: the windows are the same at every evaluation and do not overlap; else they are drawn anew, and
            may repeat, as nanoGPT's are.
        contiguous: the split is one stretch of text, so that its windows are alike.
    """
    kind = text_kind(vocab_size) if vocab_size is not None else "bpe"
    known = _window(block_size, kind, per_sequence_sd)
    windows = batches * batch_size
    of_mean = known.sd / math.sqrt(windows)
    if split_tokens is None:
        return EvaluationError(
            of_mean=of_mean,
            of_split=None,
            total=None,
            windows=windows,
            effective_windows=windows,
            basis=known.basis,
        )
    available = max(split_tokens / block_size, 1.0)
    effective = min(float(windows), available)
    if fixed:
        of_mean = known.sd * math.sqrt(max(1 / effective - 1 / available, 0.0))
    of_split = known.sd / math.sqrt(available)
    if contiguous:
        of_split = max(of_split, stretch_error(split_tokens, kind))
    return EvaluationError(
        of_mean=of_mean,
        of_split=of_split,
        total=math.hypot(of_mean, of_split),
        windows=windows,
        effective_windows=effective,
        basis=known.basis,
    )


def seed_noise(parameters: float | None, tokens: float | None = None) -> SeedNoise:
    """How far final losses scatter over seeds, in nats.

    Measured at 124M: 0.00135, the median of 70 groups of at least 8 public speedruns (0.0008 to 0.0041), and
    about 0.005 where the learning rate was doubled for a shorter run. Measured at 0.80M: 0.0056, seven seeds
    of nanoGPT's README run for a CPU on the same windows, which is known to a third. Between the two, and
    where size or length are not known, nothing is measured and the larger value is taken.
    """
    large = parameters is not None and parameters >= LARGE_PARAMETERS
    if large and (tokens is None or tokens >= LARGE_TOKENS):
        return SeedNoise(LARGE_SEED_SD, "public 124M runs that differ in the seed alone")
    if parameters is not None and parameters <= SMALL_PARAMETERS:
        return SeedNoise(SMALL_SEED_SD, "seven seeds of a 0.80M character model")
    return SeedNoise(
        SMALL_SEED_SD,
        "not measured at this size and length; that of a 0.80M character model, which is above that of 124M",
    )


def _window(block_size: int, kind: TextKind, given: float | None) -> SequenceSd:
    if given is not None:
        return SequenceSd(given, "as given")
    return per_sequence_sd(block_size, kind)
