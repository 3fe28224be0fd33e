"""OpenAI's four GPT-2 models: their names, sizes, and what `init_from` with one of them settles.

nanoGPT takes the shape from the weights and crops the context where the config asks for a shorter one; so
does this. A shape that somebody asks for and that the weights do not have is a contradiction, and is said.

Source: Radford et al. 2019, table 2; openai-community/gpt2* on the Hugging Face hub.
"""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from gptwright.config.ingredients import GPT2
from gptwright.errors import ConfigError

GPT2_VOCABULARY = 50257
# To a multiple of 64, as nanoGPT does, because matrices of such sizes multiply faster.
GPT2_PADDED_VOCABULARY = 50304

_COMMON = {
    "block_size": 1024,
    "vocab_size": GPT2_VOCABULARY,
    "bias": True,
    "tie_weights": True,
    "arch": "gpt2",
    **asdict(GPT2),
}

# What `init_from` may say besides where weights are.
NO_WEIGHTS = ("scratch", "resume", "auto")

GPT2_MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, **_COMMON},
        "gpt2-medium": {"n_layer": 24, "n_head": 16, "n_embd": 1024, **_COMMON},
        "gpt2-large": {"n_layer": 36, "n_head": 20, "n_embd": 1280, **_COMMON},
        "gpt2-xl": {"n_layer": 48, "n_head": 25, "n_embd": 1600, **_COMMON},
    }
)


def settled_by_weights(
    weights: Mapping[str, Any], given: Mapping[str, Any], *, origin: str
) -> tuple[dict[str, Any], list[ConfigError]]:
    """The settings that weights decide, and what was asked for against them.

    Args:
        weights: the settings that make a model of their shape.
        given: settings that somebody gave.
        origin: whose weights they are.
    """
    settled, problems = dict(weights), []
    for name, value in weights.items():
        asked = given.get(name, value)
        if name == "block_size" and type(asked) is int and 1 <= asked <= value:
            settled[name] = asked
        elif asked is not None and asked != value:
            problems.append(
                ConfigError(
                    f"{name} = {asked!r}, and the weights of {origin} have {name} = {value!r}",
                    why="a model that starts from weights has their shape; only block_size may be smaller",
                    fix=f"leave {name} out, or --init_from=scratch",
                )
            )
    return settled, problems
