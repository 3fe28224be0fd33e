"""The GPT against transformers' GPT-2 on the same weights: two models that share no code."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from gptwright.model.gpt import GPT
from tests.model.models import random_ids, shape_of, vivid_model

# transformers keeps these as `Conv1D`, whose weight is the transpose of a linear layer's.
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
# Of the largest entry. Both sum in their own order, so they differ by some roundings of 6e-8 and 1e-16.
TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-12}


def theirs_with_weights_of(ours: GPT) -> GPT2LMHeadModel:
    shape = ours.shape
    config = GPT2Config(
        vocab_size=shape.vocab_size,
        n_positions=shape.block_size,
        n_embd=shape.n_embd,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        n_inner=4 * shape.n_embd,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        layer_norm_epsilon=1e-5,
        tie_word_embeddings=shape.tie_weights,
        bos_token_id=0,
        eos_token_id=0,
    )
    theirs = GPT2LMHeadModel(config)
    theirs.set_attn_implementation("eager")  # written out in matrices, where ours calls a fused kernel
    nn.Module.to(theirs, ours.lm_head.weight.dtype)
    weights = ours.state_dict()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name not in weights:  # a model without biases is one whose biases are 0
                assert name.endswith("bias")
                assert not shape.bias
                parameter.zero_()
            else:
                parameter.copy_(weights[name].T if name.endswith(TRANSPOSED) else weights[name])
    return theirs


def worst_error(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> float:
    assert ours is not None
    assert theirs is not None
    assert ours.shape == theirs.shape
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n_head", [1, 4])
def test_logits_loss_and_gradients_are_transformers(
    dtype: torch.dtype, n_head: int, *, bias: bool, tied: bool
) -> None:
    shape = shape_of(n_layer=3, n_head=n_head, n_embd=32, block_size=20, bias=bias, tie_weights=tied)
    ours = vivid_model(shape, seed=n_head).to(dtype)
    theirs = theirs_with_weights_of(ours)
    text_BT = random_ids((3, 15), shape.vocab_size)

    logits = theirs(text_BT).logits
    wanted_loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), text_BT[:, 1:].flatten())
    torch.autograd.backward(wanted_loss)
    loss = ours(text_BT[:, :-1], text_BT[:, 1:])
    loss.backward()

    tolerance = TOLERANCE[dtype]
    assert loss.item() == pytest.approx(wanted_loss.item(), rel=tolerance)
    assert worst_error(ours.lm_head(ours.hidden(text_BT)), logits) < tolerance
    for name, parameter in ours.named_parameters():
        wanted = theirs.get_parameter(name).grad
        if wanted is not None and name.endswith(TRANSPOSED):
            wanted = wanted.T
        assert worst_error(parameter.grad, wanted) < tolerance, name


def test_the_loss_that_transformers_reports_is_ours() -> None:
    ours = vivid_model(shape_of())
    text_BT = random_ids((3, 15), 23)
    theirs = theirs_with_weights_of(ours)(text_BT, labels=text_BT)  # it shifts the targets itself
    assert ours(text_BT[:, :-1], text_BT[:, 1:]).item() == pytest.approx(theirs.loss.item(), rel=1e-6)
