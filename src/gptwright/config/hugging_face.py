"""Reads Hugging Face's config.json of a GPT-2: the shape of a model, by our names.

Other architectures are refused: their feed-forward and their heads have other parameters, so that a plan of
ours with their numbers would be one of another model. The refusal says what comes nearest.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptwright.config.foreign import SAME_AS
from gptwright.errors import ConfigError

SHAPE = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size")
# transformers' class of the same default: GPT2Config.
GPT2_DROPOUT = 0.1


def read_hugging_face_config(path: Path) -> dict[str, Any]:
    """The settings that make a model of the config's shape.

    Raises:
        ConfigError: the file cannot be read, or is of another kind or architecture.
    """
    content = _content(path)
    shape = {name: content[name] for name in SHAPE if name in content}
    shape |= {ours: content[name] for name, ours in SAME_AS.items() if name in content and ours in SHAPE}
    kind = content.get("model_type")
    if not isinstance(kind, str) or len(shape) < len(SHAPE):
        raise ConfigError(
            f"{path} is no config of a model of Hugging Face's",
            why="it lacks model_type, or layers, heads, width, context or vocabulary",
            fix="a config is TOML, or a nanoGPT-style Python file of assignments",
        )
    if kind != "gpt2":
        raise ConfigError(
            f"{path} is of a {kind}, and the models here are GPT-2's and its modern kin",
            why="its heads and feed-forward have other parameters, so no number would be its own",
            fix="for the nearest of ours: "
            + " ".join(f"--{name}={shape[name]}" for name in SHAPE)
            + f" --arch=modern --tie_weights={bool(content.get('tie_word_embeddings', True))}",
        )
    return shape | {
        "bias": True,
        "tie_weights": content.get("tie_word_embeddings", True),
        "dropout": content.get("resid_pdrop", GPT2_DROPOUT),
    }


def _content(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    return content if isinstance(content, dict) else {}
