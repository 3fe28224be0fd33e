"""Small models for the tests, with weights far from their initial values.

At initialization every logit is near 0 and attention near uniform, so that most faults would hide in the
noise. Here the weights are wide enough that each token's logits depend on all that came before, and on
where it stood.
"""

import torch

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.ingredients import GPT2, Ingredients
from gptwright.model.gpt import GPT


def shape_of(
    *,
    n_layer: int = 2,
    n_head: int = 2,
    n_embd: int = 16,
    block_size: int = 16,
    vocab_size: int = 23,
    bias: bool = True,
    tie_weights: bool = True,
    dropout: float = 0.0,
    ingredients: Ingredients = GPT2,
    loss_chunk: int = 0,
    gradient_checkpointing: bool = False,
    float32_attention: bool = False,
    kernels: bool = False,
) -> ModelShape:
    """A small shape; say only what matters to the test."""
    return ModelShape(
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        block_size=block_size,
        vocab_size=vocab_size,
        bias=bias,
        tie_weights=tie_weights,
        dropout=dropout,
        ingredients=ingredients,
        loss_chunk=loss_chunk,
        gradient_checkpointing=gradient_checkpointing,
        float32_attention=float32_attention,
        kernels=kernels,
    )


def vivid_model(shape: ModelShape, *, seed: int = 0, std: float = 0.25) -> GPT:
    """A float32 model whose matrices and biases are normal with `std`; its norms' weights are 1 ± `std`."""
    model = GPT(shape)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, std, generator=generator)
            if ".ln_" in name and name.endswith("weight"):
                parameter.add_(1.0)
            if name.endswith("wpe.weight"):
                parameter.mul_(3.0)
    return model


def random_ids(shape: tuple[int, ...], vocab_size: int, *, seed: int = 0) -> torch.Tensor:
    """Uniform token ids."""
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))
