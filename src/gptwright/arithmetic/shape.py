"""The shape of a GPT-2-like model: all that decides its parameters and its arithmetic, before it is built."""

from dataclasses import dataclass

from gptwright.arithmetic.flops import causal_flops_per_token, flops_per_token
from gptwright.arithmetic.parameters import ParameterCount, count_parameters
from gptwright.config.ingredients import GPT2, Ingredients
from gptwright.config.schema import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """All that decides the model's parameters, its dropout, and what a step keeps of it in memory."""

    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    vocab_size: int
    bias: bool
    tie_weights: bool
    dropout: float
    ingredients: Ingredients = GPT2
    rope_base: float = 10_000.0
    loss_chunk: int = 0
    gradient_checkpointing: bool = False
    float32_attention: bool = False
    kernels: bool = False

    @classmethod
    def of(cls, config: TrainConfig, vocab_size: int) -> "ModelShape":
        """The shape that a config asks for, over a vocabulary of `vocab_size`."""
        return cls(
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_embd=config.n_embd,
            block_size=config.block_size,
            vocab_size=vocab_size,
            bias=config.bias,
            tie_weights=config.tie_weights,
            dropout=config.dropout,
            ingredients=config.ingredients,
            rope_base=config.rope_base,
            loss_chunk=config.loss_chunk,
            gradient_checkpointing=config.gradient_checkpointing,
            float32_attention=config.attention_dtype == "float32",
            kernels=config.kernels is True,
        )

    @property
    def saves_memory(self) -> bool:
        """Whether a step is asked to be smaller than it would be."""
        return self.loss_chunk > 0 or self.gradient_checkpointing

    @property
    def keeps_freed_memory(self) -> bool:
        """Whether a process that trains it keeps what it frees (`gptwright.hardware.heap`)."""
        return self.kernels and not self.saves_memory

    def count_parameters(self) -> ParameterCount:
        """How many parameters the model has, without building it."""
        return count_parameters(
            n_layer=self.n_layer,
            n_embd=self.n_embd,
            block_size=self.block_size,
            vocab_size=self.vocab_size,
            bias=self.bias,
            tie_weights=self.tie_weights,
            ingredients=self.ingredients,
        )

    def flops_per_token(self) -> int:
        """FLOPs to train on one token, `palm` convention."""
        return flops_per_token(
            parameters_in_flops=self.count_parameters().in_flops,
            n_layer=self.n_layer,
            n_embd=self.n_embd,
            block_size=self.block_size,
        )

    @property
    def causal_share(self) -> float:
        """Of the FLOPs that the `palm` convention counts, those that causal attention needs."""
        return self.causal_flops_per_token() / self.flops_per_token()

    def causal_flops_per_token(self) -> int:
        """FLOPs to train on one token, attention counted only where a token may look."""
        return causal_flops_per_token(
            parameters_in_flops=self.count_parameters().in_flops,
            n_layer=self.n_layer,
            n_embd=self.n_embd,
            block_size=self.block_size,
        )
