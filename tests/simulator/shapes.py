"""Model shapes with their exact parameter counts and FLOPs, written out again from each trainer's model code.

Counted here by hand and not with gptwright's own functions, so that a mistake there cannot hide. Checked
against published counts: nanoGPT 124M prints 123.59M, litgpt's pythia-shaped 12 × 768 has 162,322,944,
llama2.c's 15M model has 15,191,712, nanochat's d12 has 84,935,112 in its matrices.
"""

import math
from dataclasses import dataclass

NANOCHAT_GATE_CHANNELS = 12
NANOCHAT_SMEAR_CHANNELS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything that decides a model's size.

    Attributes:
        family: `gpt2` (tied head, learned positions), `llama2c` (tied, SwiGLU), `pythia` (untied, as litgpt's
            default), `llama3` (untied, SwiGLU, as torchtitan), `nanochat` (untied, value embeddings).
        bias: biases in linear layers and layer norms; `gpt2` only.
    """

    family: str
    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    vocab_size: int
    bias: bool = False

    @property
    def total(self) -> int:
        """All parameters."""
        return sum((self.vocabulary, self.positions, self.head, self.value_embeddings, self.body))

    @property
    def parameters(self) -> int:
        """What the trainer calls its size: nanoGPT's count for `gpt2`, all for the others."""
        return self.total - self.positions

    @property
    def vocabulary(self) -> int:
        """The token embedding."""
        return self.vocab_size * self.n_embd

    @property
    def positions(self) -> int:
        """The learned position table."""
        return self.block_size * self.n_embd if self.family == "gpt2" else 0

    @property
    def head(self) -> int:
        """The output head's own weights; 0 where it shares the token embedding."""
        return 0 if self.family in ("gpt2", "llama2c") else self.vocabulary

    @property
    def value_embeddings(self) -> int:
        """nanochat adds one vocabulary-sized table to every other layer."""
        return self.n_layer // 2 * self.vocabulary if self.family == "nanochat" else 0

    @property
    def hidden(self) -> int:
        """Width of the SwiGLU's middle: two thirds of 4·n_embd, rounded up as the trainer does."""
        multiple = 32 if self.family == "llama2c" else 256
        return math.ceil(int(8 * self.n_embd / 3) / multiple) * multiple

    @property
    def matrices(self) -> int:
        """Weights of the blocks' linear layers."""
        layers, width = self.n_layer, self.n_embd
        if self.family in ("llama2c", "llama3"):
            return layers * (4 * width**2 + 3 * width * self.hidden)
        gates = 0
        if self.family == "nanochat":
            gates = layers // 2 * NANOCHAT_GATE_CHANNELS * self.n_head + NANOCHAT_SMEAR_CHANNELS
        return layers * 12 * width**2 + gates

    @property
    def vectors(self) -> int:
        """Norms, biases and scalars."""
        layers, width = self.n_layer, self.n_embd
        if self.family == "gpt2":
            return (2 * layers + 1) * width * (2 if self.bias else 1) + (
                9 * layers * width if self.bias else 0
            )
        if self.family == "pythia":
            return 13 * layers * width + 2 * width
        if self.family == "nanochat":
            return 2 * layers + 2
        return (2 * layers + 1) * width

    @property
    def body(self) -> int:
        """Everything but tables and head."""
        return self.matrices + self.vectors

    @property
    def counted(self) -> int:
        """Parameters that cost 6 FLOPs a token in the trainer's own estimate."""
        match self.family:
            case "nanochat":
                return self.matrices + self.head
            case "gpt2" | "llama2c":
                return self.parameters
        return self.total - self.vocabulary

    @property
    def flops_per_token(self) -> float:
        """FLOPs to train on one token: 6·N + 12·n_layer·n_embd·block_size (PaLM, appendix B)."""
        return 6.0 * self.counted + 12.0 * self.n_layer * self.n_embd * self.block_size

    @property
    def llmc_flops_per_token(self) -> float:
        """llm.c's: positions counted, attention as causal."""
        return 6.0 * self.total + 6.0 * self.n_layer * self.n_embd * self.block_size

    @property
    def embedding_share(self) -> float:
        """Share of the parameters that are vocabulary tables."""
        return (self.vocabulary + self.head + self.value_embeddings) / self.total

    @property
    def decayed(self) -> int:
        """Parameters in matrices and tables, which weight decay applies to."""
        return self.total - self.vectors
