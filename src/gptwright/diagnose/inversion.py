"""A model's shape from the parameter counts that nanoGPT prints, where no config is there.

Vectors are (2·n_layer + 1)·n_embd without biases and (13·n_layer + 2)·n_embd with them, so width and depth
are among the divisors of their number. Matrices are 12·n_layer·n_embd² + (vocab_size + block_size)·n_embd,
and the count that is printed leaves out block_size·n_embd: together they leave one shape, or nothing is said.
"""

from gptwright.arithmetic.shape import ModelShape

# Width and context in use; a divisor outside of them is no solution that anybody trains.
WIDTHS, CONTEXTS = range(16, 16_385), range(8, 131_073)


def shape_from_counts(
    *, decayed: int, not_decayed: int, printed: float, rounding: float, vocab_size: int
) -> ModelShape | None:
    """The only shape with these counts; None if there is none, or more than one.

    Args:
        decayed: parameters in matrices, both embedding tables among them.
        not_decayed: parameters in vectors.
        printed: all but the position table.
        rounding: how far the printed count may be off.
        vocab_size: rows of the token embedding.
    """
    found = [
        shape
        for bias, per_layer, fixed in ((False, 2, 1), (True, 13, 2))
        for width in WIDTHS
        if not_decayed % width == 0 and (not_decayed // width - fixed) % per_layer == 0
        if (shape := _solved(decayed, not_decayed // width, width, vocab_size, bias=bias)) is not None
        if abs(shape.count_parameters().nanogpt - printed) <= rounding
    ]
    return found[0] if len(found) == 1 else None


def _solved(decayed: int, vectors: int, width: int, vocab_size: int, *, bias: bool) -> ModelShape | None:
    """The shape of a width, if depth and context come out as whole numbers in range."""
    layers = (vectors - 2) // 13 if bias else (vectors - 1) // 2
    rest = decayed - 12 * layers * width**2 - vocab_size * width
    if layers < 1 or rest <= 0 or rest % width or rest // width not in CONTEXTS:
        return None
    return ModelShape(
        n_layer=layers,
        n_head=1,
        n_embd=width,
        block_size=rest // width,
        vocab_size=vocab_size,
        bias=bias,
        tie_weights=True,
        dropout=0.0,
    )
