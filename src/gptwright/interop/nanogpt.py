"""nanoGPT's `ckpt.pt`: model, AdamW, step, best loss and config, in and out.

nanoGPT's train.py writes a dict of `model` (its state dict, with `_orig_mod.` before each name where the
model was compiled), `optimizer`, `model_args`, `iter_num`, `best_val_loss` and `config`. AdamW's state is
numbered: first the parameters that decay, then the others, each in the model's order. A checkpoint of
before that order (early 2023) has its embeddings among those that do not decay, and its optimizer is refused.

Source: nanoGPT, train.py and model.py (`configure_optimizers`), commit 3adf61e.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.nanogpt import WITHOUT_EFFECT
from gptwright.config.schema import FIELDS
from gptwright.data.bpe import Gpt2Tokenizer
from gptwright.data.characters import CharTokenizer
from gptwright.data.nanogpt_meta import META_NAME, meta_fields, meta_of, tokenizer_of_meta
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.errors import CheckpointError, RunError
from gptwright.interop.foreign import (
    ForeignModel,
    Moments,
    checked_shape,
    parameter_shapes,
    require_parameters,
    shape_settings,
    taken,
)
from gptwright.interop.torch_file import StoredTensor, TorchFile
from gptwright.interop.trained import TrainedRun

FILE_NAME = "ckpt.pt"
_COMPILED = "_orig_mod."
_HEAD, _EMBEDDING = "lm_head.weight", "transformer.wte.weight"
# A buffer of nanoGPT on torch before 2.0, and no weight.
_MASK = ".attn.bias"
# nanoGPT starts from 1e9 before its first evaluation.
_NO_LOSS = 1e8
# The machine is chosen anew here, and a run's folder is its own.
_NOT_TAKEN = frozenset({"device", "dtype", "compile", "out_dir", "init_from", "eval_only"})


def read_nanogpt(path: Path, *, with_optimizer: bool = True) -> ForeignModel:
    """A checkpoint of nanoGPT.

    Args:
        path: the file.
        with_optimizer: whether AdamW's moments are wanted.

    Raises:
        CheckpointError: it is none, is damaged, or would run code; nothing of it is executed.
    """
    with TorchFile(path) as file:
        content = file.content
        if not isinstance(content, dict) or not {"model", "model_args"} <= content.keys():
            raise CheckpointError(
                f"{path} is a torch file, but no checkpoint of nanoGPT: it has no `model` and `model_args`",
                fix="a model of Hugging Face's is read from its folder, with its config.json",
            )
        shape = _shape(path, content["model_args"])
        wanted = parameter_shapes(shape)
        stored = _state_dict(path, content["model"])
        require_parameters(str(path), {name: tensor.shape for name, tensor in stored.items()}, wanted)
        weights = taken(wanted, lambda name: file.tensor(stored[name]))
        moments = _read_moments(file, content.get("optimizer"), wanted) if with_optimizer else None
        step = content.get("iter_num", 0)
        if type(step) is not int or not 0 <= step < 2**40:
            raise CheckpointError(f"{path} gives iter_num = {step!r}, which is no step")
        best = _number(file, content.get("best_val_loss"))
        settings, notes = _settings(_config_of(content), shape)
    return ForeignModel(
        origin=f"nanoGPT checkpoint {path}",
        shape=shape,
        weights=weights,
        moments=moments,
        step=step,
        best_val_loss=best if best is not None and best < _NO_LOSS else None,
        is_best=_config_of(content).get("always_save_checkpoint") is False,
        settings=settings,
        tokenizer=_tokenizer_beside(path, shape),
        notes=notes
        if moments or not with_optimizer
        else (*notes, "it has no optimizer state: AdamW starts anew"),
    )


def _shape(path: Path, arguments: Any) -> ModelShape:
    if not isinstance(arguments, dict):
        raise CheckpointError(f"{path}: model_args is no dict")
    bias = arguments.get("bias", True)  # checkpoints of before the option have biases
    if not isinstance(bias, bool):
        raise CheckpointError(f"{path} gives bias = {bias!r}")
    return checked_shape(str(path), arguments, bias=bias)


def _state_dict(path: Path, model: Any) -> dict[str, StoredTensor]:
    """The stored parameters by name; the tied matrix once."""
    if not isinstance(model, dict) or not all(isinstance(value, StoredTensor) for value in model.values()):
        raise CheckpointError(f"{path}: `model` is no state dict")
    stored = {str(name).removeprefix(_COMPILED): tensor for name, tensor in model.items()}
    stored = {name: tensor for name, tensor in stored.items() if not name.endswith(_MASK)}
    head = stored.pop(_HEAD, None)
    if head is not None and stored.setdefault(_EMBEDDING, head).key != head.key:
        raise CheckpointError(
            f"{path} has a head of its own beside the token embedding",
            why="nanoGPT ties the two, so this is a changed model",
        )
    return stored


def _read_moments(file: TorchFile, optimizer: Any, wanted: Mapping[str, tuple[int, ...]]) -> Moments | None:
    """AdamW's moments by name; None where there are none yet."""
    state = optimizer.get("state") if isinstance(optimizer, dict) else None
    if not state:
        return None
    order = optimizer_order(wanted)
    try:
        groups = [len(group["params"]) for group in optimizer["param_groups"]]
    except (KeyError, TypeError):
        raise _other_optimizer(file.path, "it has no groups of parameters") from None
    decayed = sum(len(shape) >= 2 for shape in wanted.values())
    numbered = isinstance(state, dict) and state.keys() == set(range(len(order)))
    if not numbered or groups != [decayed, len(order) - decayed]:
        raise _other_optimizer(file.path, f"its groups hold {groups} parameters")
    moments: dict[str, dict[str, Tensor]] = {"exp_avg": {}, "exp_avg_sq": {}}
    for index, name in enumerate(order):
        for moment, tensors in moments.items():
            stored = state[index].get(moment) if isinstance(state[index], dict) else None
            if not isinstance(stored, StoredTensor) or stored.shape != wanted[name]:
                raise _other_optimizer(file.path, f"number {index} has no {moment} of {name}'s shape")
            tensors[name] = file.tensor(stored).to(torch.float32)
    step = _number(file, state[0].get("step"))
    if step is None:
        raise _other_optimizer(file.path, "it does not say how many updates it made")
    return Moments(exp_avg=moments["exp_avg"], exp_avg_sq=moments["exp_avg_sq"], step=step)


def _other_optimizer(path: Path, seen: str) -> CheckpointError:
    return CheckpointError(
        f"the optimizer state in {path} is not one of nanoGPT's AdamW as it is now: {seen}",
        why="moments given to the wrong weights would spoil them at the first step",
        fix="--weights-only takes the model without it; AdamW then starts anew",
    )


def optimizer_order(parameters: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Names in the order in which nanoGPT numbers AdamW's state: decayed first."""
    return [name for name, shape in parameters.items() if len(shape) >= 2] + [
        name for name, shape in parameters.items() if len(shape) < 2
    ]


def _number(file: TorchFile, value: Any) -> float | None:
    """A finite number, which nanoGPT may keep as a tensor of one element."""
    if isinstance(value, StoredTensor) and math.prod(value.shape) == 1:
        value = float(file.tensor(value).reshape(()))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _config_of(content: dict[Any, Any]) -> dict[Any, Any]:
    config = content.get("config")
    return config if isinstance(config, dict) else {}


def _settings(given: dict[Any, Any], shape: ModelShape) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Settings that have a field here, and a note about those that have none."""
    known = {
        name: value
        for name, value in given.items()
        if name in FIELDS and name not in _NOT_TAKEN and value is not None
    }
    others = [name for name in given if name not in FIELDS and name not in WITHOUT_EFFECT]
    notes = () if given else ("it has no config: the settings of training are the defaults",)
    if others:
        notes = (f"settings of its config without a meaning here: {', '.join(map(str, others[:12]))}",)
    return known | shape_settings(shape), notes


def _tokenizer_beside(path: Path, shape: ModelShape) -> Tokenizer | None:
    """The characters of a meta.pkl beside the checkpoint, which our export puts there."""
    meta = path.parent / META_NAME
    if not meta.is_file() or "itos" not in meta_fields(meta):
        return None
    tokenizer = tokenizer_of_meta(meta)
    return tokenizer if tokenizer.vocab_size <= shape.vocab_size else None


def write_nanogpt(run: TrainedRun, out: Path) -> list[str]:
    """Writes `ckpt.pt` as nanoGPT's train.py does, and `meta.pkl` for characters; returns what to know.

    Raises:
        RunError: the model is one that nanoGPT does not have.
    """
    if not run.shape.tie_weights:
        raise RunError(
            f"{run.path} has tie_weights = False, and nanoGPT always ties its head to the token embedding",
            why="nanoGPT would load one of the two and lose the other",
            fix="--format hf writes both",
        )
    order = parameter_shapes(run.shape)
    state_dict = {name: run.weights[name] for name in order} | {_HEAD: run.weights[_EMBEDDING]}
    content = {
        "model": state_dict,
        "optimizer": _optimizer_state(run, list(order)),
        "model_args": {
            "n_layer": run.shape.n_layer,
            "n_head": run.shape.n_head,
            "n_embd": run.shape.n_embd,
            "block_size": run.shape.block_size,
            "bias": run.shape.bias,
            "vocab_size": run.shape.vocab_size,
            "dropout": run.shape.dropout,
        },
        "iter_num": run.step,
        "best_val_loss": 1e9 if run.best_val_loss is None else run.best_val_loss,
        "config": _config_for_nanogpt(run, out),
    }
    torch.save(content, out / FILE_NAME)
    notes = [] if run.moments is not None else ["the run has no moments of AdamW: nanoGPT's starts anew"]
    if isinstance(run.tokenizer, CharTokenizer):
        (out / META_NAME).write_bytes(meta_of(run.tokenizer))
        return [*notes, "meta.pkl holds the characters; the checkpoint's config points to this folder for it"]
    if isinstance(run.tokenizer, Gpt2Tokenizer):
        return notes
    return [
        *notes,
        "nanoGPT's sample.py takes any vocabulary but characters for GPT-2's: decode the ids elsewhere",
    ]


def _config_for_nanogpt(run: TrainedRun, out: Path) -> dict[str, Any]:
    config = {name: value for name, value in asdict(run.config).items() if value is not None}
    if isinstance(run.tokenizer, CharTokenizer):
        # sample.py looks for data/DATASET/meta.pkl, and an absolute path stands for itself there.
        config["dataset"] = str(out.resolve())
    return config | {"device": "cpu", "dtype": "float32", "compile": False}


def _optimizer_state(run: TrainedRun, names: list[str]) -> dict[str, Any]:
    """The state dict of nanoGPT's AdamW over this model, without making one.

    torch's class would import its compiler first, which takes seconds.
    """
    config = run.config
    decayed = [name for name in names if run.weights[name].dim() >= 2]
    others = [name for name in names if run.weights[name].dim() < 2]
    shared = {
        "lr": config.learning_rate, "betas": (config.beta1, config.beta2), "eps": 1e-8, "amsgrad": False,
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False, "fused": None,
        "decoupled_weight_decay": True,
    }  # fmt: skip
    groups = [
        shared | {"weight_decay": config.weight_decay, "params": list(range(len(decayed)))},
        shared | {"weight_decay": 0.0, "params": list(range(len(decayed), len(names)))},
    ]
    moments = run.moments
    if moments is None:
        return {"state": {}, "param_groups": groups}
    state = {
        index: {
            "step": torch.tensor(moments.step),
            "exp_avg": moments.exp_avg[name],
            "exp_avg_sq": moments.exp_avg_sq[name],
        }
        for index, name in enumerate(decayed + others)
    }
    return {"state": state, "param_groups": groups}
