"""How big the model of a run is, and how much arithmetic a token costs.

The shape in a config gives the count exactly where the trainer's model is GPT-2's; what the log prints is the
check. Where only the log speaks, its number is taken as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.pretrained import GPT2_MODELS, GPT2_PADDED_VOCABULARY, GPT2_VOCABULARY
from gptwright.diagnose.inversion import shape_from_counts
from gptwright.diagnose.settings import Settings
from gptwright.facts import Fact, Origin, derived
from gptwright.record.evidence import LogEvidence

# A printed count that is off by more than its rounding belongs to another model than the config's.
TWO_DIGITS = 5000
# Vocabularies are padded to a multiple of this many rows.
ROWS = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """A run's model in numbers.

    Attributes:
        shape: width, depth, context and vocabulary; None where one of them is not known.
        parameters: in nanoGPT's count where that can be told, else as the trainer prints it.
        printed_parameters: what the log says, to be held against the config.
        flops_per_token: `palm` convention from the shape, or as the log prints it.
    """

    shape: ModelShape | None
    parameters: Fact | None
    printed_parameters: Fact | None
    flops_per_token: Fact | None


def sizes_of(settings: Settings, log: LogEvidence | None) -> Sizes:
    """The sizes that the settings and the log's header give."""
    gpt2_shaped = log is None or log.format.gpt2_shaped or _from_gpt2(settings)
    shape = settings.shape() if gpt2_shaped else None
    printed = _printed(settings)
    if gpt2_shaped and shape is None:
        shape = _from_counts(settings)
    if shape is None and printed is not None and (gpt2_shaped or (log is not None and log.format.any_model)):
        shape = _of_gpt2(printed)
    if shape is not None and printed is not None:
        shape = next((s for s in _taken_for_granted(shape, settings) if _agree(s, printed, settings)), shape)
    if shape is not None and (printed is None or _agree(shape, printed, settings)):
        parameters: Fact | None = counted(shape)
        flops: Fact | None = _flops(shape)
    else:
        parameters, flops = printed, settings.logged.get("flops_per_token")
        if flops is None and printed is not None and log is not None and log.format.any_model:
            flops = _six_a_parameter(printed)
        if gpt2_shaped and printed is not None and printed is not settings.logged.get("parameters"):
            parameters = _without_positions(printed, settings)
    return Sizes(shape, parameters, printed, flops)


def _taken_for_granted(shape: ModelShape, settings: Settings) -> Iterator[ModelShape]:
    """The shape, and what a trainer may have made of it without saying so: the printed count tells.

    Biases where nothing is said of them; rows of the vocabulary up to a multiple of 64, as nanoGPT makes
    50,304 of GPT-2's 50,257 tokens.
    """
    biases = (shape.bias,) if settings.named("bias") is not None else (shape.bias, True)
    for vocabulary in (shape.vocab_size, _padded(shape.vocab_size)):
        for bias in biases:
            yield replace(shape, vocab_size=vocabulary, bias=bias)


def _padded(vocab_size: int) -> int:
    return -(-vocab_size // ROWS) * ROWS


def counted(shape: ModelShape) -> Fact:
    """nanoGPT's count of a shape, as a fact."""
    return derived(
        "parameters",
        shape.count_parameters().nanogpt,
        f"12·n_layer·n_embd² + vocab_size·n_embd + norms{' and biases' if shape.bias else ''}, with"
        f" n_layer = {shape.n_layer}, n_embd = {shape.n_embd}, vocab_size = {shape.vocab_size}",
        unit="parameters",
    )


def _from_counts(settings: Settings) -> ModelShape | None:
    """The shape that the header's parameter counts leave possible, where the config does not give it."""
    header = settings.logged
    if (
        not {"parameters", "parameters_rounding", "decayed_parameters", "not_decayed_parameters"}
        <= header.keys()
    ):
        return None
    vocabulary = settings.integer("padded_vocab_size") or settings.integer("vocab_size")
    if vocabulary is None:
        return None
    shapes = (
        shape_from_counts(
            decayed=int(header["decayed_parameters"].number),
            not_decayed=int(header["not_decayed_parameters"].number),
            printed=header["parameters"].number,
            rounding=header["parameters_rounding"].number,
            vocab_size=rows,
        )
        for rows in dict.fromkeys((vocabulary, _padded(vocabulary)))
    )
    return next((shape for shape in shapes if shape is not None), None)


def _of_gpt2(printed: Fact) -> ModelShape | None:
    """The one of GPT-2's four sizes that has exactly as many parameters, position table included."""
    for model in GPT2_MODELS.values():
        for vocabulary in (GPT2_VOCABULARY, GPT2_PADDED_VOCABULARY):
            for bias in (True, False):
                shape = ModelShape(
                    n_layer=model["n_layer"],
                    n_head=model["n_head"],
                    n_embd=model["n_embd"],
                    block_size=model["block_size"],
                    vocab_size=vocabulary,
                    bias=bias,
                    tie_weights=True,
                    dropout=0.0,
                )
                if shape.count_parameters().total == printed.number:
                    return shape
    return None


def _six_a_parameter(printed: Fact) -> Fact:
    formula = (
        f"6 × {printed.text} parameters; attention is not counted, for neither width nor context is known"
    )
    return derived("flops_per_token", 6 * printed.number, formula, unit="FLOP/token")


def usual_shape(parameters: float, settings: Settings) -> ModelShape:
    """A shape of so many parameters where the real one is not known: width 64 times the depth, as GPT-2's.

    How fast a device trains depends on the shape far less than on the size.
    """
    vocabulary = settings.integer("vocab_size") or GPT2_PADDED_VOCABULARY
    width = 64
    while 12 * (width / 64) * width**2 + vocabulary * width < parameters:
        width += 64
    return ModelShape(
        n_layer=max(1, width // 64),
        n_head=max(1, width // 64),
        n_embd=width,
        block_size=settings.integer("block_size") or 1024,
        vocab_size=vocabulary,
        bias=False,
        tie_weights=True,
        dropout=0.0,
    )


def _flops(shape: ModelShape) -> Fact:
    return derived(
        "flops_per_token",
        shape.flops_per_token(),
        "6·N + 12·n_layer·n_embd·block_size (palm convention)",
        unit="FLOP/token",
    )


def _from_gpt2(settings: Settings) -> bool:
    return (settings.word("init_from") or "").startswith("gpt2")


def _printed(settings: Settings) -> Fact | None:
    """The log's own count: nanoGPT's, else a total less the position table where that is known."""
    header = settings.logged
    if "parameters" in header:
        return header["parameters"]
    total = header.get("parameters_total")
    if total is None and {"decayed_parameters", "not_decayed_parameters"} <= header.keys():
        parts = header["decayed_parameters"], header["not_decayed_parameters"]
        total = Fact(
            name="parameters",
            value=int(parts[0].number + parts[1].number),
            text=f"{parts[0].number + parts[1].number:,.0f}",
            origin=Origin.DERIVED,
            reason="decayed + non-decayed parameters of the log",
            unit="parameters",
            source=parts[0].source,
        )
    return total


def _without_positions(total: Fact, settings: Settings) -> Fact:
    """nanoGPT's count of a GPT-2-shaped model whose trainer prints the position table too."""
    context, width = settings.integer("block_size"), settings.integer("n_embd")
    if context is None or width is None:
        return total
    formula = f"{total.number:,.0f} less the position table of {context} × {width}"
    return derived("parameters", int(total.number) - context * width, formula, unit="parameters")


def _agree(shape: ModelShape, printed: Fact, settings: Settings) -> bool:
    """Whether a printed count is this shape's, in nanoGPT's count or with the position table."""
    count = shape.count_parameters()
    rounding = settings.logged.get("parameters_rounding")
    slack = rounding.number if rounding else (TWO_DIGITS if printed.number % 10_000 == 0 else 0)
    return any(abs(printed.number - own) <= slack for own in (count.nanogpt, count.total))
