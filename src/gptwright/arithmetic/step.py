"""One training step as the memory model sees it: the model, its micro-batch, and how it is trained.

Shapes: B micro-batch, T block_size, C n_embd, H n_head, V vocab_size.
"""

from dataclasses import dataclass, field

from gptwright.arithmetic.parameters import ParameterCount
from gptwright.arithmetic.shape import ModelShape

FLOAT = 4  # bytes of a float32
# Queries whose attention a CPU computes at a time where it drops (`gptwright.model.dropout`).
DROPPED_ROWS = 128


def query_blocks(tokens: int, queries: int) -> list[tuple[int, int]]:
    """The first query of each of those blocks and its end, which is that of the keys that it sees too."""
    return [(begin, min(begin + queries, tokens)) for begin in range(0, tokens, queries)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A model, and everything about how one process trains it that decides memory.

    Attributes:
        shape: the model.
        micro_batch: sequences in one forward pass.
        dtype: `float32`, or `bfloat16` or `float16` for autocast over float32 weights.
        compiled: whether `torch.compile` runs it, loss included.
        accumulation: micro-batches in one optimizer step.
        device_kind: `cuda`, `cpu` or `mps`; for the last two it is the whole process in main memory.
        fused_optimizer: AdamW in one kernel.
        data_parallel: whether `DistributedDataParallel` holds buckets for the gradients.
        divided_over: processes that weights, gradients and moments are divided over, as FSDP does.
        flash: whether attention may run in a kernel that never stores T × T scores; nanoGPT's before torch 2
            could not.
        keeps_logits: whether the loop still holds the logits when it calls backward, as nanoGPT's does; ours
            does not.
        optimizer: `adamw`, or `muon`, which keeps one moment of the blocks' matrices instead of two.
        gpu_libraries: whether the torch of a process on a CPU was built for GPUs, and loads what they need.
        counted: the model's parameters by part.
    """

    shape: ModelShape
    micro_batch: int
    dtype: str
    compiled: bool
    accumulation: int
    device_kind: str = "cuda"
    fused_optimizer: bool = True
    data_parallel: bool = False
    divided_over: int = 1
    flash: bool = True
    keeps_logits: bool = False
    optimizer: str = "adamw"
    gpu_libraries: bool = False
    counted: ParameterCount = field(init=False)

    def __post_init__(self) -> None:
        # Counted once, since the memory model asks for it some twenty times.
        object.__setattr__(self, "counted", self.shape.count_parameters())

    @property
    def muon_parameters(self) -> int:
        """Parameters that Muon updates: those in the blocks' matrices."""
        return 12 * self.shape.n_layer * self.shape.n_embd**2 if self.optimizer == "muon" else 0

    @property
    def tokens(self) -> int:
        """B·T."""
        return self.micro_batch * self.shape.block_size

    @property
    def channels(self) -> int:
        """B·T·C: elements of one copy of the residual stream."""
        return self.tokens * self.shape.n_embd

    @property
    def scores(self) -> int:
        """B·H·T²: elements of one layer's attention scores."""
        return self.tokens * self.shape.n_head * self.shape.block_size

    @property
    def seen_scores(self) -> int:
        """Of the scores those that a CPU makes where it drops by our own functions: block by block, without
        the keys that come after a block's last query.
        """
        seen = sum((end - begin) * end for begin, end in self.query_blocks)
        return self.micro_batch * self.shape.n_head * seen

    @property
    def largest_seen_scores(self) -> int:
        """Scores of the largest of those blocks, the last one or the one before it."""
        largest = max((end - begin) * end for begin, end in self.query_blocks)
        return self.micro_batch * self.shape.n_head * largest

    @property
    def query_blocks(self) -> list[tuple[int, int]]:
        """Blocks of queries whose attention is computed at a time."""
        return query_blocks(self.shape.block_size, DROPPED_ROWS)

    @property
    def logits(self) -> int:
        """B·T·V."""
        return self.tokens * self.shape.vocab_size

    @property
    def chunked(self) -> bool:
        """Whether the loss is made of some tokens at a time (`gptwright.model.loss`)."""
        return self.shape.loss_chunk > 0

    @property
    def chunk_tokens(self) -> int:
        """Tokens whose logits are there at a time."""
        return min(self.shape.loss_chunk, self.tokens) if self.chunked else self.tokens

    @property
    def checkpointing(self) -> bool:
        """Whether each block's activations are dropped and computed again in the backward pass."""
        return self.shape.gradient_checkpointing

    @property
    def autocast(self) -> bool:
        """Whether matrices are multiplied in 16 bits."""
        return self.dtype != "float32"

    @property
    def own_kernels(self) -> bool:
        """Whether each block is one operation with our own kernels inside (`gptwright.model.fused`)."""
        return (
            self.shape.kernels
            and self.device_kind == "cpu"
            and self.dtype in ("bfloat16", "float32")
            and not self.compiled
        )

    @property
    def float32_attention(self) -> bool:
        """Whether a fused kernel is given float32 under autocast; written out, attention always is in it."""
        return self.autocast and self.shape.float32_attention and self.fused_attention

    @property
    def matmul_bytes(self) -> int:
        """Bytes of one element in a matrix multiplication."""
        return 2 if self.autocast else FLOAT

    @property
    def adds_gradients_at_once(self) -> bool:
        """Whether a parameter's gradient is added to an earlier one as soon as it is made.

        Without an earlier one it is kept itself; a compiled graph hands out all of them at its end.
        """
        return self.accumulation > 1 and not self.compiled

    @property
    def fused_attention(self) -> bool:
        """Whether attention runs in a kernel that does not store the scores.

        torch has none for a CPU with dropout, and none trains on Apple's GPUs.
        """
        if self.own_kernels:
            return True
        if self.device_kind == "cpu":
            return self.flash and not self.shape.dropout
        return self.flash and self.device_kind == "cuda"

    @property
    def drops_by_own_functions(self) -> bool:
        """Whether `gptwright.model.dropout` drops, in attention too, and not torch."""
        return bool(self.shape.dropout) and self.device_kind == "cpu" and not (self.compiled or self.autocast)

    def mask_bytes(self, element_bytes: int) -> int:
        """Bytes that dropout keeps of an element: 0 without dropout.

        A GPU, a compiled graph and our own functions keep a byte that says whether it stayed; torch on a CPU
        keeps the factor it was multiplied with, in the element's own dtype. Our own kernels draw again.
        """
        if not self.shape.dropout or self.own_kernels:
            return 0
        torchs = self.device_kind == "cpu" and not (self.compiled or self.drops_by_own_functions)
        return element_bytes if torchs else 1
