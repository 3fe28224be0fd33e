"""GPT-2 from a folder of Hugging Face's: `config.json` and safetensors; `gpt2_export` has the way out.

transformers' `Conv1D` keeps the transpose of a linear layer's matrix, and old files hold the causal mask
among the weights. GPT-2 always has biases there: a model without is written with zeros and
`"gptwright_bias": false` in its config, and read back without them as long as they are all zero. Rows that
pad the vocabulary stay, so ids and logits are the same on both sides.

Activations: `gelu` is ours and nanoGPT's. OpenAI's GPT-2 says `gelu_new`, its tanh approximation; like
nanoGPT we run such weights with the exact one, which moves each activation by less than 5e-4, and say so.

Source: transformers, models/gpt2/modeling_gpt2.py and configuration_gpt2.py.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.pretrained import GPT2_PADDED_VOCABULARY, GPT2_VOCABULARY
from gptwright.data.bpe import Gpt2Tokenizer
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.data.tokenizers import load_tokenizer
from gptwright.errors import CheckpointError, DataError
from gptwright.interop.foreign import (
    ForeignModel,
    checked_shape,
    parameter_shapes,
    require_parameters,
    taken,
)
from gptwright.interop.torch_file import StoredTensor, TorchFile

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
PICKLED_NAME = "pytorch_model.bin"
# Our own tokenizer file beside theirs, so that a folder of ours comes back with the very same one.
OUR_TOKENIZER_NAME = "gptwright_tokenizer.json"

_TRANSPOSED = (".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight")
_BUFFERS = (".attn.bias", ".attn.masked_bias")
_ACTIVATIONS = {
    "gelu": "",
    "gelu_new": "its tanh approximation",
    "gelu_pytorch_tanh": "its tanh approximation",
}
# What a GPT-2 must say, or leave out, to be the model that is built here.
_REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "activation_function": tuple(_ACTIVATIONS),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}
_LARGEST_JSON = 16 * 1024 * 1024


def read_gpt2_config(folder: Path) -> tuple[ModelShape, dict[str, Any]]:
    """The shape that a folder's config.json describes, and the config.

    Raises:
        CheckpointError: it is missing, or describes something else than GPT-2.
    """
    path = folder / CONFIG_NAME
    config = _json(path)
    defaults = {"activation_function": "gelu_new"}
    for name, accepted in _REQUIRED.items():
        value = config.get(name, defaults.get(name, accepted[0] if name != "model_type" else None))
        if value not in accepted:
            raise CheckpointError(
                f"{path} says {name} = {value!r}",
                why=f"the model here is GPT-2's: {name} is {' or '.join(map(repr, accepted))}",
                fix="only GPT-2's architecture is read",
            )
    sizes = {
        "n_layer": config.get("n_layer"),
        "n_head": config.get("n_head"),
        "n_embd": config.get("n_embd"),
        "block_size": config.get("n_positions", config.get("n_ctx")),
        "vocab_size": config.get("vocab_size"),
    }
    inner = config.get("n_inner")
    if inner is not None and inner != 4 * (sizes["n_embd"] or 0):
        raise CheckpointError(
            f"{path} says n_inner = {inner!r}", why="the MLP here is four times as wide as the model"
        )
    tied = bool(config.get("tie_word_embeddings", True))
    return checked_shape(str(path), sizes, bias=True, tied=tied), config


def read_gpt2_folder(folder: Path, *, name: str | None = None) -> ForeignModel:
    """A GPT-2 from a folder of Hugging Face's.

    Args:
        folder: with config.json and model.safetensors, its shards, or pytorch_model.bin.
        name: what it is called; the folder if None.

    Raises:
        CheckpointError: something is missing, damaged, or no GPT-2.
    """
    full_shape, config = read_gpt2_config(folder)
    wanted = parameter_shapes(full_shape)
    weights = _read_weights(folder, wanted, tied=full_shape.tie_weights)
    shape, weights = _without_zero_biases(full_shape, weights, config)
    activation = str(config.get("activation_function", "gelu_new"))
    notes = (
        (f"it was made with {activation}, {_ACTIVATIONS[activation]}; here it runs with the exact GELU,"
         " as in nanoGPT",)
        if _ACTIVATIONS[activation]
        else ()
    )  # fmt: skip
    return ForeignModel(
        origin=name or f"Hugging Face folder {folder}",
        shape=shape,
        weights=weights,
        tokenizer=_tokenizer_of(folder, shape),
        notes=notes,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise CheckpointError(f"{path} is larger than 16 MiB, which none of its kind is")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror}",
            why="a model of Hugging Face's is a folder with config.json and model.safetensors",
        ) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is JSON, but no object")
    return content


def _read_weights(folder: Path, wanted: Mapping[str, tuple[int, ...]], *, tied: bool) -> dict[str, Tensor]:
    """The parameters by nanoGPT's names."""
    if (folder / WEIGHTS_NAME).is_file():
        files = [folder / WEIGHTS_NAME]
    elif (folder / INDEX_NAME).is_file():
        files = _shards(folder)
    elif (folder / PICKLED_NAME).is_file():
        return _read_pickled(folder / PICKLED_NAME, wanted, tied=tied)
    else:
        raise CheckpointError(
            f"{folder} holds no {WEIGHTS_NAME}",
            why="weights are read from safetensors, or from pytorch_model.bin without running it",
            fix="copy the whole folder; a file of TensorFlow or Flax must be converted with transformers",
        )
    place = str(files[0] if len(files) == 1 else folder)
    try:
        opened: list[Any] = [safe_open(file, framework="pt") for file in files]
        where = {key: file for file in opened for key in file.keys()}  # noqa: SIM118 - it is no dict
        names = _by_our_names(where, tied=tied)
        shapes = {name: tuple(where[key].get_slice(key).get_shape()) for name, key in names.items()}
        require_parameters(place, _linear_shapes(shapes), wanted)
        return taken(wanted, lambda name: transposed(name, where[names[name]].get_tensor(names[name])))
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{place} is damaged: {error}", fix="copy or download the file again") from None


def _shards(folder: Path) -> list[Path]:
    names = _json(folder / INDEX_NAME).get("weight_map")
    files = sorted(set(names.values())) if isinstance(names, dict) else []
    if not files or not all(isinstance(name, str) and Path(name).name == name for name in files):
        raise CheckpointError(f"{folder / INDEX_NAME} does not name the files of weights beside it")
    return [folder / name for name in files]


def _read_pickled(path: Path, wanted: Mapping[str, tuple[int, ...]], *, tied: bool) -> dict[str, Tensor]:
    with TorchFile(path) as file:
        stored = file.content
        if not isinstance(stored, dict) or not all(isinstance(t, StoredTensor) for t in stored.values()):
            raise CheckpointError(f"{path} is no state dict")
        names = _by_our_names(stored, tied=tied)
        shapes = {name: stored[key].shape for name, key in names.items()}
        require_parameters(str(path), _linear_shapes(shapes), wanted)
        return taken(wanted, lambda name: transposed(name, file.tensor(stored[names[name]])))


def _by_our_names(keys: Mapping[str, Any], *, tied: bool) -> dict[str, str]:
    """Our name → the file's key; masks and the second name of a tied matrix are left out."""
    names = {}
    for key in keys:
        name = key if key.startswith(("transformer.", "lm_head.")) else f"transformer.{key}"
        if not name.endswith(_BUFFERS) and not (tied and name == "lm_head.weight"):
            names[name] = key
    return names


def _linear_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: size[::-1] if name.endswith(_TRANSPOSED) else size for name, size in shapes.items()}


def transposed(name: str, tensor: Tensor) -> Tensor:
    """A `Conv1D`'s matrix as a linear layer's, and the way back: a transposition either way."""
    return tensor.T if name.endswith(_TRANSPOSED) else tensor


def _without_zero_biases(
    shape: ModelShape, weights: dict[str, Tensor], config: Mapping[str, Any]
) -> tuple[ModelShape, dict[str, Tensor]]:
    """A model that was trained without biases, as such, unless somebody has trained them since."""
    biases = [name for name in weights if name.endswith(".bias")]
    if config.get("gptwright_bias") is not False or any(weights[name].any() for name in biases):
        return shape, weights
    kept = {name: tensor for name, tensor in weights.items() if name not in biases}
    return replace(shape, bias=False), kept


def _tokenizer_of(folder: Path, shape: ModelShape) -> Tokenizer | None:
    """Our own file if the folder is an export of ours; GPT-2's for its vocabulary; a byte-level BPE."""
    ours, theirs = folder / OUR_TOKENIZER_NAME, folder / "tokenizer.json"
    if ours.is_file():
        return load_tokenizer(ours)
    if shape.vocab_size in (GPT2_VOCABULARY, GPT2_PADDED_VOCABULARY):
        return Gpt2Tokenizer()
    if not theirs.is_file():
        return None
    try:
        tokenizer = load_tokenizer(theirs)
    except DataError:
        return None
    return tokenizer if tokenizer.vocab_size <= shape.vocab_size else None
