"""How many parameters a GPT-2-shaped model has, by part, without building it.

Counts follow nanoGPT's model: token and position tables, two layer norms and two linear pairs a block, a
final layer norm, and an output head that shares the token table unless untied. nanoGPT prints everything
but the position table.
"""

from dataclasses import dataclass

from gptwright.config.ingredients import GPT2, Ingredients


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters by part.

    Attributes:
        token_embedding: vocab_size × n_embd.
        position_embedding: block_size × n_embd.
        blocks: everything inside the blocks.
        final_norm: the last layer norm.
        smear: what mixes the token before into each embedding.
        head: the output head's own weights; 0 where it shares the token embedding.
        decayed: those in tensors of two dimensions, which weight decay applies to.
    """

    token_embedding: int
    position_embedding: int
    blocks: int
    final_norm: int
    smear: int
    head: int
    decayed: int

    @property
    def total(self) -> int:
        """Every parameter once."""
        return self.embedding + self.blocks + self.final_norm + self.smear + self.head

    @property
    def nanogpt(self) -> int:
        """What nanoGPT prints: everything but the position table."""
        return self.total - self.position_embedding

    @property
    def in_flops(self) -> int:
        """Those that count as 6 FLOPs a token: nanoGPT's count, with one vocabulary matrix if untied."""
        return self.nanogpt - (self.token_embedding if self.head else 0)

    @property
    def embedding(self) -> int:
        """Both lookup tables, tokens and positions."""
        return self.token_embedding + self.position_embedding

    @property
    def non_embedding(self) -> int:
        """Everything that is in neither lookup table."""
        return self.total - self.embedding

    @property
    def matmul(self) -> int:
        """Those in matrices that multiply every token: the blocks' and the output head's."""
        return self.decayed - self.position_embedding - (self.token_embedding if self.head else 0)

    @property
    def not_decayed(self) -> int:
        """Those in vectors: layer norms and biases."""
        return self.total - self.decayed


def count_parameters(
    *,
    n_layer: int,
    n_embd: int,
    block_size: int,
    vocab_size: int,
    bias: bool,
    tie_weights: bool,
    ingredients: Ingredients = GPT2,
) -> ParameterCount:
    """Counts the parameters of `gptwright.model.gpt.GPT` with these settings.

    A block holds 12·n_embd² in matrices (3 for query, key and value, 1 for the attention's projection, 4
    and 4 for the MLP), 2·n_embd in layer norms and, with biases, 11·n_embd more. Rotary positions have no
    table, RMS norms no weights; smear has one weight a channel.
    """
    vocabulary = vocab_size * n_embd
    positions = 0 if ingredients.rope else block_size * n_embd
    head = 0 if tie_weights else vocabulary
    matrices = n_layer * 12 * n_embd**2
    norm = 0 if ingredients.rms_norm else n_embd * (2 if bias else 1)
    vectors = n_layer * (2 * norm + (9 * n_embd if bias else 0))
    smear = n_embd if ingredients.smear else 0
    return ParameterCount(
        token_embedding=vocabulary,
        position_embedding=positions,
        blocks=matrices + vectors,
        final_norm=norm,
        smear=smear,
        head=head,
        decayed=vocabulary + positions + head + matrices,
    )
