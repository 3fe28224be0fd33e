"""The tensors of a checkpoint: a model's weights and an optimizer's moments, by name.

A weight has nanoGPT's name, a moment its weight's and its own after a dot: `transformer.wte.weight.exp_avg`.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from gptwright.errors import CheckpointError
from gptwright.optim.optimizers import Optimizer
from gptwright.train.parts import read_whole
from gptwright.train.seal import TENSOR_FILES

# By the kind of a parameter's group.
MOMENTS = {"adamw": ("exp_avg", "exp_avg_sq"), "muon": ("momentum",)}


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Named parameters, in the memory where they are; a tied matrix appears once."""
    return {name: p.detach() for name, p in model.named_parameters()}


def moments_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The moments by parameter, in the memory where they are; none before the first step."""
    return {
        f"{name}.{moment}": value
        for name, p in model.named_parameters()
        for moment, value in optimizer.state.get(p, {}).items()
        if moment != "step"
    }


def empty_moments(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Zeros in place of every moment, each where its parameter is and divided as it is."""
    shapes = moment_shapes(model, optimizer)
    return {name: torch.zeros_like(parameter, requires_grad=False) for name, parameter in shapes.items()}


def moment_shapes(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """What the optimizer keeps of each parameter, by the parameter's name and its own; its shape is the
    parameter's."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}.{moment}": parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        for moment in MOMENTS[group["kind"]]
    }


def optimizer_step(optimizer: Optimizer) -> float:
    """Updates that the optimizer has made; fewer than the run's where a float16 step was skipped."""
    return next((float(state["step"]) for state in optimizer.state.values()), 0.0)


def put_moments(model: nn.Module, optimizer: Optimizer, moments: Mapping[str, Tensor], step: float) -> None:
    """Gives the optimizer its moments and its count of updates; none before its first update."""
    optimizer.state.clear()
    kept: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, value in moments.items():
        name, _, moment = key.rpartition(".")
        kept[name][moment] = value
    parameters = dict(model.named_parameters())
    for name, values in kept.items():
        optimizer.restore(parameters[name], values, step)


def load_weights(model: nn.Module, folder: Path) -> None:
    """Copies a verified checkpoint's weights into a model, wherever that is.

    Raises:
        CheckpointError: they are another model's.
    """
    put_weights(model, saved_tensors(folder, moments=False)[0], folder)


def put_weights(model: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Copies weights into a model, wherever that is.

    Raises:
        CheckpointError: they are another model's than that of `folder`'s checkpoint.
    """
    require_shapes(folder, weights, dict(model.named_parameters()))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def saved_tensors(folder: Path, *, moments: bool = True) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and moments of a verified checkpoint, whole, however many processes wrote it.

    Args:
        folder: the checkpoint.
        moments: whether they are wanted; else there are none in the answer.

    Raises:
        CheckpointError: the files hold no tensors.
    """
    try:
        if (folder / TENSOR_FILES[0]).is_file():
            weights: dict[str, Tensor] = load_file(folder / TENSOR_FILES[0])
            return weights, load_file(folder / TENSOR_FILES[1]) if moments else {}
        return _divided(read_whole(folder, lambda name: moments or not is_moment(name)))
    except (SafetensorError, ValueError, OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{folder} holds no tensors: {error}",
            why="its hash is right, so it was written so",
            fix="take another checkpoint with --checkpoint=NAME",
        ) from None


def is_moment(name: str) -> bool:
    """Whether a saved tensor is a moment, and not a weight."""
    return name.rpartition(".")[2] in {moment for kind in MOMENTS.values() for moment in kind}


def _divided(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and moments apart."""
    weights = {name: tensor for name, tensor in tensors.items() if not is_moment(name)}
    return weights, {name: tensor for name, tensor in tensors.items() if name not in weights}


def require_shapes(path: Path, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Makes sure that tensors have the names and shapes of those wanted.

    Raises:
        CheckpointError: they have not; `path` is where they lie.
    """
    wrong = [
        name
        for name in {*tensors, *wanted}
        if name not in tensors
        or name not in wanted
        or tensors[name].shape != wanted[name].shape
        or not tensors[name].is_floating_point()
    ]
    if wrong:
        raise CheckpointError(
            f"{path} does not fit this model: {', '.join(sorted(wrong)[:3])}"
            + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""),
            why="tensors are missing, of another shape, or of another model",
            fix="take another checkpoint with --checkpoint=NAME, or the run's own settings",
        )
