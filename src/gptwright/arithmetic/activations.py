"""Bytes that a forward pass keeps for its backward pass, tensor by tensor.

Every term is a tensor that autograd saves in `gptwright.model.gpt` or, with our own kernels, in
`gptwright.model.fused`, or one that its backward makes; nothing is fitted.
`tests/arithmetic/test_memory_reference.py` holds the sums against torch's own tracker, and docs/memory.md
lists the terms with the ways they were checked.

Under autocast the residual stream, layer norms and the loss stay in 4-byte floats and everything between is
in 2. A residual stream in 16 bits would make Korthikanti et al.'s 34 bytes a channel (arXiv 2205.05198, with
dropout masks); here it is 36 without them, 64 in float32.

Shapes: B micro-batch, T block_size, C n_embd, H n_head, V vocab_size.
"""

from gptwright.arithmetic.step import FLOAT, Step


def input_bytes(step: Step) -> int:
    """What the first block is given: the residual stream, and the mask of its dropout.

    The embedding's norm keeps its input too, and the smear what it weighs.
    """
    made_of = step.shape.ingredients
    copies = 1 + made_of.rms_norm + made_of.smear
    return step.channels * (copies * FLOAT + step.mask_bytes(FLOAT))


def block_bytes(step: Step) -> int:
    """What one block keeps, the residual stream that it hands on included.

    In copies of B·T·C: two residual streams in float32; in the matmul dtype one output of each layer norm,
    three of query, key and value, one of attention, four before and four after GELU. Each layer norm keeps
    a mean and a reciprocal deviation a token. Our RMS norm keeps its output, which in float32 is what the
    next product keeps anyway, and not the stream that it was given.

    With our own kernels what norms and GELU hand on is made again and not kept.
    """
    low = step.matmul_bytes
    if step.own_kernels:
        return (2 * FLOAT + (3 + 1 + 4) * low) * step.channels + _attention_bytes(step)
    streams = 0 if step.shape.ingredients.rms_norm and not step.autocast else 2 * FLOAT
    copies = streams + (2 + 3 + 1 + 8) * low + 2 * step.mask_bytes(low) + _turned_bytes(step)
    if step.float32_attention:
        copies += _float32_attention_bytes(step)
    statistics = 2 * 2 * FLOAT * step.tokens
    return copies * step.channels + statistics + _attention_bytes(step)


def _turned_bytes(step: Step) -> int:
    """What normalized or turned queries and keys are, beside the matrix product that still holds the values.

    Under autocast a norm's result is float32, and a fused kernel takes a 16-bit copy of what it is given; in
    float32 it takes the result itself, which is counted with it. Attention with our own dropout keeps copies
    of what it is given, so that only a norm's result is left beside them.
    """
    made_of = step.shape.ingredients
    if step.drops_by_own_functions:
        return 2 * FLOAT * made_of.qk_norm
    if step.float32_attention:
        return 2 * FLOAT * (made_of.rope and made_of.qk_norm)
    if step.autocast:
        given = 2 * step.matmul_bytes if step.fused_attention and (made_of.rope or made_of.qk_norm) else 0
        return given + (2 * FLOAT if made_of.qk_norm else 0)
    return 2 * FLOAT * (made_of.rope + made_of.qk_norm)


def _float32_attention_bytes(step: Step) -> int:
    """What attention in float32 keeps a channel beyond attention in 16 bits.

    Queries, keys and values in float32 instead of 16 bits, and the output in both.
    """
    return 3 * (FLOAT - step.matmul_bytes) + FLOAT


def _attention_bytes(step: Step) -> int:
    """What attention itself keeps besides its inputs and output.

    A fused kernel keeps the log-sum-exp of each row. Written out (torch's math path), it keeps the
    probabilities in float32, with dropout also their mask and the product, and query, key and value in
    float32 instead of 16 bits. Our own, with dropout on a CPU, keeps the probabilities of the scores that it
    made, and a byte of each.
    """
    if step.fused_attention:
        return FLOAT * step.tokens * step.shape.n_head
    if step.drops_by_own_functions:
        return (FLOAT + 1) * step.seen_scores
    dropped = step.mask_bytes(FLOAT) + FLOAT if step.shape.dropout else 0
    return (FLOAT + dropped) * step.scores + 3 * (FLOAT - step.matmul_bytes) * step.channels


def head_input_bytes(step: Step) -> int:
    """The final norm's output and statistics, which the output head keeps.

    In chunks the head keeps nothing, but while it works there are its input as it came and as it is
    multiplied, and the gradient of that.
    """
    if step.chunked and not step.own_kernels:
        copies = FLOAT + (2 if step.autocast else 1) * step.matmul_bytes
        return copies * step.channels + 2 * FLOAT * step.tokens
    return step.matmul_bytes * step.channels + 2 * FLOAT * step.tokens


def kept_bytes(step: Step, blocks: int) -> int:
    """What the first `blocks` blocks have kept together, at the end of the last one's forward pass."""
    block = FLOAT * step.channels if step.checkpointing else block_bytes(step)
    return input_bytes(step) + blocks * block


def recomputed_bytes(step: Step) -> int:
    """What a block under checkpointing makes again, short of its output, before its backward pass."""
    return block_bytes(step) - FLOAT * step.channels if step.checkpointing else 0


def mlp_backward_bytes(step: Step) -> int:
    """What the MLP's backward pass has made when it is largest, beyond what was kept.

    The gradient of GELU's output, four copies of B·T·C wide, while everything that was kept is still there
    but the mask of the last dropout. The incoming gradient is the residual stream's own, unless autocast
    or dropout makes another of it.
    """
    low = step.matmul_bytes
    incoming = low if step.autocast or step.shape.dropout else 0
    return (4 * low + incoming - step.mask_bytes(low)) * step.channels


def attention_backward_bytes(step: Step) -> int:
    """The same for written-out attention, beyond what the whole block kept; it can be negative.

    Made: the gradients of the probabilities and of the scores in float32, that of the values, and the
    residual stream's. Let go: the MLP's ten copies and attention's output, a residual stream, and of query,
    key and value the last. With dropout the largest moment is one gradient earlier, when the value and the
    output's gradient are still there and the other masks are not.

    Our own, with dropout on a CPU, makes the gradients of queries, keys and values, and for its largest block
    that of the scores; the output's gradient and that of the residual stream are there.
    """
    low = step.matmul_bytes
    if step.drops_by_own_functions:
        copies = (5 - 1) * FLOAT - 10 * low - 2 * step.mask_bytes(low)
        return FLOAT * step.largest_seen_scores + copies * step.channels
    if step.shape.dropout:
        copies = 2 * FLOAT - 10 * low - 2 * step.mask_bytes(low)
        return FLOAT * step.scores + copies * step.channels
    return 2 * FLOAT * step.scores - (FLOAT + 10 * low) * step.channels


def own_mlp_backward_bytes(step: Step) -> int:
    """What a block with our own kernels has made when its MLP's backward pass is largest.

    A copy of the gradient that came, unless it can be multiplied as it is, and the gradient of the
    activation beside the activation made again.
    """
    copies = 1 if step.autocast or step.shape.dropout else 0
    return (copies + 4 + 4) * step.matmul_bytes * step.channels


def own_attention_backward_bytes(step: Step) -> int:
    """The same at its last product, when it has made every gradient of its matrices.

    Gradients of the stream in float32 and of the branch in the matmul dtype, of queries, keys and values, and
    of what they were made of, beside that itself and its norm's statistics.
    """
    return (FLOAT + (1 + 3 + 1 + 1) * step.matmul_bytes) * step.channels + 2 * FLOAT * step.tokens


def own_loss_bytes(step: Step) -> int:
    """The logits that our own kernels make at a time, overwritten by their gradient; 16-bit rows are even."""
    vocabulary = step.shape.vocab_size + (step.shape.vocab_size % 2 if step.autocast else 0)
    return step.matmul_bytes * step.chunk_tokens * vocabulary


def loss_bytes(step: Step) -> int:
    """Logits and cross-entropy at their largest, which is in the loss's backward pass.

    Without compilation: the log-softmax that was kept and two gradients, all float32, and the logits
    themselves if the loop still holds them. Compiled: the logits and their gradient in the matmul dtype;
    the softmax is computed again inside the kernel that makes the gradient. On a CPU that kernel was seen
    to write the gradient over logits that nobody holds; a GPU's may too, which was not measured.
    In chunks: those of one chunk, overwritten by their gradient; under autocast also in 16 bits, with which
    a gradient of the head is made in 16 bits; to add that to the sum, a CPU makes a float32 copy of it.
    """
    low = step.matmul_bytes
    if step.chunked:
        of_chunk = step.chunk_tokens * step.shape.vocab_size
        if not step.autocast:
            return FLOAT * of_chunk
        made = (low + (FLOAT if step.device_kind == "cpu" else 0)) * step.shape.vocab_size * step.shape.n_embd
        return max((FLOAT + low) * of_chunk, low * of_chunk + made)
    if step.compiled:
        overwritten = step.device_kind == "cpu" and not step.keeps_logits
        return (1 if overwritten else 2) * low * step.logits
    return (3 * FLOAT + (low if step.keeps_logits else 0)) * step.logits


def loss_forward_bytes(step: Step) -> int:
    """The same at the end of the forward pass, when under autocast every weight's copy is still cached."""
    if step.chunked:
        return loss_bytes(step)
    if step.compiled:
        return step.matmul_bytes * step.logits
    return ((2 if step.autocast else 0) + 2 * FLOAT) * step.logits
