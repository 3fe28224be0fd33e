"""Hugging Face's config.json: a GPT-2's is read, others are refused with what comes nearest."""

import json
from pathlib import Path
from typing import Any

import pytest

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.errors import ConfigError

GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "n_ctx": 1024,
    "vocab_size": 50257,
    "resid_pdrop": 0.1,
    "activation_function": "gelu_new",
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}


def written(folder: Path, content: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_a_gpt2s_config_makes_its_shape(tmp_path: Path) -> None:
    loaded = load_config([written(tmp_path, GPT2)], {"dropout": "0"})
    config = loaded.config
    assert (config.n_layer, config.block_size, config.bias, config.dropout) == (12, 1024, True, 0.0)
    assert loaded.sources["n_layer"].endswith("config.json")
    # What transformers counts for openai-community/gpt2.
    assert config.vocab_size == 50257
    assert ModelShape.of(config, 50257).count_parameters().total == 124_439_808


def test_another_architecture_is_refused_with_the_nearest_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is of a llama") as caught:
        load_config([written(tmp_path, LLAMA)])
    options = str(caught.value).split("nearest of ours: ")[1].split()
    nearest = load_config([], dict(option.removeprefix("--").split("=") for option in options)).config
    assert (nearest.n_layer, nearest.n_embd, nearest.vocab_size, nearest.arch) == (22, 2048, 32_000, "modern")


@pytest.mark.parametrize("content", [{}, [], {"model_type": "gpt2"}, {"scheduler": {"type": "x"}}])
def test_other_json_is_no_config(tmp_path: Path, content: Any) -> None:
    with pytest.raises(ConfigError, match=r"is no config of a model of Hugging Face's"):
        load_config([written(tmp_path, content)])


def test_a_folder_and_broken_text_are_named(tmp_path: Path) -> None:
    written(tmp_path, GPT2)
    with pytest.raises(ConfigError, match=r"give .*config\.json"):
        load_config([str(tmp_path)])
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        load_config([str(tmp_path / "config.json")])
