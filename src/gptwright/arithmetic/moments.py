"""The moments of a training step at which memory can be largest, and what is alive at each.

Weights and AdamW's moments always are; these sums are what comes and goes. A moment's name is the phase of
the step that it belongs to. Which tensors wait for which was read off torch's tracker (2.13), operation by
operation; docs/memory.md shows how far the sums are from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gptwright.arithmetic.activations import (
    attention_backward_bytes,
    head_input_bytes,
    input_bytes,
    kept_bytes,
    loss_bytes,
    loss_forward_bytes,
    mlp_backward_bytes,
    own_attention_backward_bytes,
    own_loss_bytes,
    own_mlp_backward_bytes,
    recomputed_bytes,
)
from gptwright.arithmetic.step import FLOAT, Step

# Directions, those made orthogonal, and the stack that goes in.
MUON_COPIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Bytes that are alive at one moment beside weights and optimizer moments.

    Attributes:
        phase: a key of `gptwright.arithmetic.memory.PHASES`.
        gradients: of parameters: kept, under way, and data-parallel buckets.
        weight_copies: 16-bit copies of matrices.
        activations: kept, made again, and gradients passing through.
        logits: the head's output, its loss and their gradients.
        update: what an optimizer step makes and drops.
    """

    phase: str
    gradients: int
    weight_copies: int = 0
    activations: int = 0
    logits: int = 0
    update: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.gradients + self.weight_copies + self.activations + self.logits + self.update


def moments(step: Step) -> Iterator[Moment]:
    """Every moment that can be the largest."""
    if step.own_kernels:
        yield _own_loss(step)
        yield from _own_block_backward(step)
        yield _end_of_backward(step)
        yield _update(step)
        return
    yield _loss(step)
    if step.checkpointing and step.autocast:
        yield _end_of_forward(step)
    yield _head_backward(step)
    yield _entering_backward(step)
    if not step.fused_attention:
        yield _attention_backward(step)
    if not step.adds_gradients_at_once:
        yield _first_block_backward(step)
    yield _end_of_backward(step)
    yield _update(step)


def _loss(step: Step) -> Moment:
    """The loss's backward pass. Under checkpointing the blocks' weight copies are gone by then.

    In chunks it is done in the forward pass, and the head's gradient is there already.
    """
    head = step.shape.vocab_size * step.shape.n_embd
    made = FLOAT * head if step.chunked else 0
    return Moment(
        phase="loss",
        gradients=standing_gradients(step) + made,
        weight_copies=_copies(step, head if step.checkpointing else step.counted.matmul),
        activations=kept_bytes(step, step.shape.n_layer) + head_input_bytes(step),
        logits=loss_bytes(step),
    )


def _end_of_forward(step: Step) -> Moment:
    """The loss's forward pass, when autocast's cache still holds every copy."""
    return Moment(
        phase="loss",
        gradients=standing_gradients(step),
        weight_copies=_copies(step, step.counted.matmul),
        activations=kept_bytes(step, step.shape.n_layer) + head_input_bytes(step),
        logits=loss_forward_bytes(step),
    )


def _head_backward(step: Step) -> Moment:
    """The output head's weight gradient; under autocast it is made in 16 bits and then copied."""
    shape = step.shape
    if step.chunked:
        # The gradient of the head's input, and the same in float32 times the loss's.
        copies = 2 * FLOAT + (step.matmul_bytes if step.autocast else 0)
        return Moment(
            phase="backward",
            gradients=standing_gradients(step) + FLOAT * shape.vocab_size * shape.n_embd,
            weight_copies=_copies(step, _kept_blocks(step) * _block_matrices(step)),
            activations=kept_bytes(step, shape.n_layer) + copies * step.channels,
        )
    made = FLOAT + (step.matmul_bytes if step.autocast else 0)
    activations = kept_bytes(step, shape.n_layer) + FLOAT * step.channels
    return Moment(
        phase="backward",
        gradients=standing_gradients(step) + made * shape.vocab_size * shape.n_embd,
        weight_copies=_copies(step, _kept_blocks(step) * _block_matrices(step)),
        activations=activations if step.autocast else activations + head_input_bytes(step),
        logits=0 if step.autocast else FLOAT * step.logits,
    )


def _entering_backward(step: Step) -> Moment:
    """The last block's MLP, with everything before it still kept."""
    shape = step.shape
    under_way = step.matmul_bytes * 4 * shape.n_embd**2
    return Moment(
        phase="backward",
        gradients=standing_gradients(step) + _head_gradient(step) + under_way,
        weight_copies=_copies(step, _kept_blocks(step) * _block_matrices(step)),
        activations=kept_bytes(step, shape.n_layer) + recomputed_bytes(step) + mlp_backward_bytes(step),
    )


def _attention_backward(step: Step) -> Moment:
    """The last block's written-out attention, after its other three matrices."""
    shape = step.shape
    done = 9 * shape.n_embd**2
    waiting = 0 if step.adds_gradients_at_once else FLOAT * done
    activations = kept_bytes(step, shape.n_layer) + recomputed_bytes(step)
    return Moment(
        phase="backward",
        gradients=standing_gradients(step) + _head_gradient(step) + waiting,
        weight_copies=_copies(step, _kept_blocks(step) * _block_matrices(step) - done),
        activations=activations + attention_backward_bytes(step),
    )


def _first_block_backward(step: Step) -> Moment:
    """The first block's MLP, when the gradients of all others have come."""
    counted = step.counted
    to_come = counted.position_embedding + _block_matrices(step)
    if not step.shape.tie_weights:
        to_come += counted.token_embedding
    return Moment(
        phase="end of backward",
        gradients=standing_gradients(step) + FLOAT * (counted.total - to_come),
        weight_copies=_copies(step, _block_matrices(step)),
        activations=kept_bytes(step, 1) + recomputed_bytes(step) + mlp_backward_bytes(step),
    )


def _own_loss(step: Step) -> Moment:
    """The loss with our own kernels, which makes the gradients of the head and of its input on the way."""
    shape = step.shape
    made = step.matmul_bytes * (step.channels + step.chunk_tokens * shape.n_embd)
    return Moment(
        phase="loss",
        gradients=standing_gradients(step) + FLOAT * shape.vocab_size * shape.n_embd,
        activations=kept_bytes(step, shape.n_layer) + head_input_bytes(step) + made,
        logits=own_loss_bytes(step),
    )


def _own_block_backward(step: Step) -> Iterator[Moment]:
    """MLP and attention of the last block, and of the first one where gradients wait.

    A block is one operation, so its matrices' gradients stay until it ends: that of the MLP's second product
    is the first, a third of them.
    """
    shape, matrices = step.shape, _block_matrices(step)
    last = (shape.n_layer, _head_gradient(step), "backward")
    counted = step.counted
    to_come = counted.position_embedding + matrices + (0 if shape.tie_weights else counted.token_embedding)
    first = (1, FLOAT * (counted.total - to_come), "end of backward")
    for blocks, waiting, phase in (last,) if step.adds_gradients_at_once else (last, first):
        for made, activations in (
            (FLOAT * matrices // 3, own_mlp_backward_bytes(step)),
            (FLOAT * matrices, own_attention_backward_bytes(step)),
        ):
            yield Moment(
                phase=phase,
                gradients=standing_gradients(step) + waiting + made,
                activations=kept_bytes(step, blocks) + recomputed_bytes(step) + activations,
            )


def _end_of_backward(step: Step) -> Moment:
    """The token embedding's gradient.

    A tied table has a second one waiting, from the output head. Torch adds the two into a third, unless
    nobody else holds the first, as with the loss in chunks; a compiled graph adds into one of them. With the
    loss in chunks, and with our own kernels, a CPU has one gradient for both uses (`gptwright.model.tied`).
    """
    table = step.counted.token_embedding
    made = FLOAT * table
    at_once = (step.chunked or step.own_kernels) and step.device_kind == "cpu" and not step.compiled
    if step.shape.tie_weights and not at_once:
        copies = 1 if step.compiled or step.chunked else 2
        made += copies * (step.matmul_bytes if step.compiled else FLOAT) * table
    others = step.counted.total if step.adds_gradients_at_once else step.counted.total - table
    earlier = standing_gradients(step) if step.compiled else _buckets(step)
    return Moment(
        phase="end of backward",
        gradients=earlier + FLOAT * others + made,
        activations=input_bytes(step),
    )


def _update(step: Step) -> Moment:
    """The optimizer's step.

    Not fused, AdamW makes the root of every second moment: of all parameters at once on a GPU, where torch
    picks its foreach form; elsewhere, one after another, up to three tensors as large as the largest one.
    Muon holds all directions and those made orthogonal, and of the shape at hand the stack that goes in.
    """
    counted = step.counted
    beside = MUON_COPIES * FLOAT * step.muon_parameters
    if not step.fused_optimizer:
        largest = max(counted.token_embedding, counted.position_embedding, 4 * step.shape.n_embd**2)
        beside += FLOAT * (counted.total if step.device_kind == "cuda" else 3 * largest)
    return Moment(phase="optimizer", gradients=FLOAT * counted.total + _buckets(step), update=beside)


def standing_gradients(step: Step) -> int:
    """Bytes of gradients that are there before a backward pass: of earlier micro-batches, and buckets."""
    earlier = FLOAT * step.counted.total if step.accumulation > 1 else 0
    return earlier + _buckets(step)


def _buckets(step: Step) -> int:
    """DistributedDataParallel's buckets, together as large as the gradients.

    Making gradients views of the buckets (`gradient_as_bucket_view`, off by default) saves this much: 8250 to
    7183 MB with 1 GB of parameters where it was introduced (pytorch#41954).
    """
    return FLOAT * step.counted.total if step.data_parallel else 0


def _head_gradient(step: Step) -> int:
    """The output head's gradient while blocks are still to come; a tied one waits for the embedding's."""
    shape = step.shape
    waits = shape.tie_weights or not step.adds_gradients_at_once
    return FLOAT * shape.vocab_size * shape.n_embd if waits else 0


def _block_matrices(step: Step) -> int:
    """Parameters in the matrices of one block."""
    return 12 * step.shape.n_embd**2


def _kept_blocks(step: Step) -> int:
    """Blocks whose 16-bit weights are kept while the last one's backward pass runs."""
    return 1 if step.checkpointing else step.shape.n_layer


def _copies(step: Step, parameters: int) -> int:
    return step.matmul_bytes * parameters if step.autocast else 0
