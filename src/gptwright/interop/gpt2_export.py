"""A run as a folder that transformers loads as `GPT2LMHeadModel`: config, safetensors, tokenizer, model card.

What is written, and how it comes back, is told in `gpt2_folder`, which reads it. The activation is the exact
`gelu`, which transformers has under that name.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from gptwright.interop.foreign import parameter_shapes
from gptwright.interop.gpt2_folder import CONFIG_NAME, OUR_TOKENIZER_NAME, WEIGHTS_NAME, transposed
from gptwright.interop.gpt2_tokenizer import as_tokenizers_file, tokenizer_config
from gptwright.interop.model_card import model_card
from gptwright.interop.trained import TrainedRun


def write_gpt2_folder(run: TrainedRun, out: Path) -> list[str]:
    """Writes a folder that transformers loads as `GPT2LMHeadModel`; returns what to know."""
    _write_weights(run, out)
    generation = {
        "bos_token_id": _separator(run),
        "eos_token_id": _separator(run),
        "do_sample": True,
        "temperature": 0.8,
        "top_k": min(200, run.shape.vocab_size),
    }
    _write_json(out / "generation_config.json", generation)
    notes = _write_tokenizer(run, out)
    card = model_card(run, loads_text=(out / "tokenizer.json").is_file(), notes=notes)
    (out / "README.md").write_text(card, encoding="utf-8")
    return notes


def _write_tokenizer(run: TrainedRun, out: Path) -> list[str]:
    if run.tokenizer is None:
        return ["the run does not know its tokenizer, so none is written: ids go in and come out"]
    run.tokenizer.save(out / OUR_TOKENIZER_NAME)
    text = as_tokenizers_file(run.tokenizer)
    if text is None:
        return [
            f"no tokenizer.json is written: the tokenizers library cannot do exactly what a"
            f" {run.tokenizer.kind} file does; {OUR_TOKENIZER_NAME} is gptwright's own"
        ]
    (out / "tokenizer.json").write_text(text, encoding="utf-8")
    (out / "tokenizer_config.json").write_text(
        tokenizer_config(run.tokenizer, run.shape.block_size), encoding="utf-8"
    )
    rows = run.shape.vocab_size - run.tokenizer.vocab_size
    if rows:
        return [
            f"the last {rows} of {run.shape.vocab_size} rows pad the vocabulary: ids that stand for nothing"
        ]
    return []


def _write_json(path: Path, fields: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def _separator(run: TrainedRun) -> int | None:
    return run.tokenizer.separator_id if run.tokenizer is not None else None


def _write_weights(run: TrainedRun, out: Path) -> None:
    tensors = {name: transposed(name, tensor).contiguous() for name, tensor in with_zero_biases(run).items()}
    save_file(tensors, out / WEIGHTS_NAME, metadata={"format": "pt"})
    _write_json(out / CONFIG_NAME, _config_for_transformers(run))


def with_zero_biases(run: TrainedRun) -> dict[str, Tensor]:
    """A run's weights with the biases that others need, zero where the model has none."""
    if run.shape.bias:
        return dict(run.weights)
    every = parameter_shapes(replace(run.shape, bias=True))
    zeros = {name: torch.zeros(size) for name, size in every.items() if name.endswith(".bias")}
    return dict(run.weights) | zeros


def _config_for_transformers(run: TrainedRun) -> dict[str, Any]:
    shape = run.shape
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": shape.vocab_size,
        "n_positions": shape.block_size,
        "n_embd": shape.n_embd,
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_inner": None,
        "activation_function": "gelu",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": shape.dropout,
        "embd_pdrop": shape.dropout,
        "attn_pdrop": shape.dropout,
        "tie_word_embeddings": shape.tie_weights,
        "bos_token_id": _separator(run),
        "eos_token_id": _separator(run),
        "dtype": "float32",
        "gptwright_bias": shape.bias,
    }
