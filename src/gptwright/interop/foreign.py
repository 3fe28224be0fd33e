"""A model from elsewhere, or one that goes there: weights by nanoGPT's names, and what is known beside them.

Every reader ends in a `ForeignModel`, and whoever makes a run of it needs to know no format. Names and shapes
are checked against the model that they are meant for before a byte of weights is read; that model is built on
torch's `meta` device, where it takes no memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.ingredients import GPT2
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.errors import CheckpointError
from gptwright.model.gpt import GPT

# Far above any GPT that is trained on one machine; sizes beyond are a damaged or hostile file.
_LARGEST = {"n_layer": 1024, "n_head": 1024, "n_embd": 65536, "block_size": 2**20, "vocab_size": 2**24}
# Fields of a shape that are no property of its weights.
_OF_A_STEP = ("dropout", "loss_chunk", "gradient_checkpointing", "float32_attention", "kernels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """AdamW's state.

    Attributes:
        exp_avg: mean gradients by parameter name, float32.
        exp_avg_sq: mean squared gradients.
        step: updates made.
    """

    exp_avg: Mapping[str, Tensor]
    exp_avg_sq: Mapping[str, Tensor]
    step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignModel:
    """What a file from elsewhere holds.

    Attributes:
        origin: the format and the place.
        shape: of the model.
        weights: float32 by nanoGPT's names; the tied matrix once, as `transformer.wte.weight`.
        moments: AdamW's; None where the file has none.
        step: updates made.
        best_val_loss: as it says; None where it does not.
        is_best: whether that loss is known to be of these weights.
        settings: those of its training that have a field here.
        tokenizer: None where it does not come with the weights.
        notes: what a person should know.
    """

    origin: str
    shape: ModelShape
    weights: Mapping[str, Tensor]
    moments: Moments | None = None
    step: int = 0
    best_val_loss: float | None = None
    is_best: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    notes: tuple[str, ...] = ()


def checked_shape(place: str, sizes: Mapping[str, Any], *, bias: bool, tied: bool = True) -> ModelShape:
    """A shape from the numbers of a file.

    Raises:
        CheckpointError: one is missing, no whole number, or absurd.
    """
    for name, largest in _LARGEST.items():
        value = sizes.get(name)
        if type(value) is not int or not 1 <= value <= largest:
            raise CheckpointError(
                f"{place} gives {name} = {value!r}",
                why=f"a model has a whole number from 1 to {largest:,} there",
                fix="copy the file again from where it was written",
            )
    if sizes["n_embd"] % sizes["n_head"]:
        raise CheckpointError(
            f"{place} gives n_embd = {sizes['n_embd']} and n_head = {sizes['n_head']}",
            why="every attention head takes n_embd / n_head channels",
        )
    return ModelShape(
        n_layer=sizes["n_layer"],
        n_head=sizes["n_head"],
        n_embd=sizes["n_embd"],
        block_size=sizes["block_size"],
        vocab_size=sizes["vocab_size"],
        bias=bias,
        tie_weights=tied,
        dropout=float(sizes.get("dropout") or 0.0),
    )


def parameter_shapes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """The model's parameters in its own order, which is nanoGPT's; a tied matrix once."""
    with torch.device("meta"):
        model = GPT(shape)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def require_parameters(
    place: str, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]
) -> None:
    """Makes sure that a file holds every parameter in its size, and no other.

    Raises:
        CheckpointError: the first few that differ.
    """
    missing = [name for name in wanted if name not in found]
    foreign = [name for name in found if name not in wanted]
    sizes = [
        f"{name} is {list(found[name])} and should be {list(wanted[name])}"
        for name in wanted
        if name in found and found[name] != wanted[name]
    ]
    problems = (
        sizes + [f"{name} is missing" for name in missing] + [f"{name} is not a part" for name in foreign]
    )
    if problems:
        more = f" and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise CheckpointError(
            f"{place} does not hold the GPT-2 that it describes: {'; '.join(problems[:4])}{more}",
            why="weights in the wrong place would make a model that speaks nonsense",
            fix="only GPT-2's architecture is read; nothing was written",
        )


def taken(wanted: Mapping[str, tuple[int, ...]], read: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """Every wanted parameter as float32, read one after another."""
    return {name: read(name).to(torch.float32).contiguous() for name in wanted}


def shape_settings(shape: ModelShape) -> dict[str, Any]:
    """The settings that make a model of a shape, without those that say how a step computes with it."""
    settings = {name: value for name, value in asdict(shape).items() if name not in _OF_A_STEP}
    parts: dict[str, Any] = settings.pop("ingredients")
    return settings | ({"arch": "gpt2"} if shape.ingredients == GPT2 else {}) | parts


def put_weights(model: GPT, foreign: ForeignModel) -> None:
    """Copies weights into a model, whose positions may be the first of theirs."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            tensor = foreign.weights[name]
            parameter.copy_(tensor[: len(parameter)] if name.endswith("wpe.weight") else tensor)
