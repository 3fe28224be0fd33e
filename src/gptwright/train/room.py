"""Whether main memory can hold a run at all, asked before the first tensor is made.

Weights are drawn in main memory whatever the device, and the batch of a step is drawn whole, so no cut makes
either smaller. The kernel kills a process that takes more than it may, without a word, so the sizes are
computed and not tried.
"""

from gptwright import units
from gptwright.arithmetic.cut import shares
from gptwright.arithmetic.shape import ModelShape
from gptwright.arithmetic.step import FLOAT
from gptwright.errors import ConfigError
from gptwright.hardware.limits import memory_limit
from gptwright.train.world import World

# Inputs and targets as 8-byte ids, of this step and of the next one, which is read meanwhile.
BATCH_BYTES = 32


def require_room(shape: ModelShape, sequences_per_step: int, world: World) -> None:
    """Refuses a model or a step that is too large for this machine's main memory.

    Args:
        shape: the model.
        sequences_per_step: over all processes.
        world: the processes; each of this machine draws all weights, and its share of the batch.

    Raises:
        ConfigError: the weights and the batch alone take more than there is.
    """
    limit = memory_limit()
    _, share = shares(sequences_per_step, world.size)
    weights = FLOAT * shape.count_parameters().total * world.local_size
    batch = BATCH_BYTES * share * shape.block_size * world.local_size
    if limit is None or weights + batch <= limit.limit_bytes:
        return
    model, step = "--n_embd, --n_layer or --vocab_size", "--batch_size or --gradient_accumulation_steps"
    raise ConfigError(
        f"the weights of this model take {units.size(weights)}, the batch of a step {units.size(batch)},"
        f" and {units.size(limit.limit_bytes)} are there ({limit.source})",
        why="both are drawn in main memory, whatever the device, before the first step",
        fix=f"a smaller {model if weights > batch else step}; `gptwright plan` with the same options says"
        " what a run needs",
    )
