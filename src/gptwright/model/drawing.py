"""How the next token is drawn from the logits, by a generator of random numbers."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gptwright.errors import ConfigError, RunFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How the next token is drawn.

    Attributes:
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: keep only the k likeliest tokens; None keeps all.
        top_p: keep the fewest likeliest tokens whose probabilities reach p; None keeps all.
        seed: of the draws.
    """

    temperature: float = 0.8
    top_k: int | None = 200
    top_p: float | None = None
    seed: int = 1337

    def __post_init__(self) -> None:
        if not math.isfinite(self.temperature) or self.temperature < 0:
            raise ConfigError(
                f"temperature = {self.temperature} is not a number from 0 up",
                why="logits are divided by it; 0 takes the likeliest token",
                fix="--temperature=0.8",
            )
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(
                f"top_k = {self.top_k} is not a number from 1 up",
                why="so many of the likeliest tokens are kept to draw from; None keeps all",
                fix="--top_k=200",
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(
                f"top_p = {self.top_p} is not above 0 and at most 1",
                why="it is the probability that the kept tokens reach together",
                fix="--top_p=0.95",
            )


def next_token(logits_V: Tensor, options: SamplingOptions, generator: torch.Generator) -> int:
    """Draws one id from logits `[V]` on the CPU: temperature first, then top-k, then top-p.

    Raises:
        RunFailedError: the largest logit is NaN or infinite.
    """
    largest = logits_V.max()
    if not math.isfinite(largest):
        raise RunFailedError(
            f"the largest logit of the model is {float(largest)}, so no token can be drawn",
            why="its weights are those of a run that ended in NaN or infinity",
            fix="another checkpoint, such as --checkpoint=best, or a run with a lower --learning_rate",
        )
    if options.temperature == 0:
        return int(logits_V.argmax())
    # The likeliest stays at 0 however small the temperature is; dividing first would overflow.
    logits_V = ((logits_V - largest).double() / options.temperature).float()
    if options.top_k is not None and options.top_k < logits_V.numel():
        kth = logits_V.topk(options.top_k).values[-1]
        logits_V = logits_V.masked_fill(logits_V < kth, -torch.inf)
    probabilities_V = logits_V.softmax(dim=0)
    if options.top_p is not None:
        sorted_V, order_V = probabilities_V.sort(descending=True)
        # A token stays if those before it have not yet reached p. The first does even where p is so small
        # that it is 0 in float32.
        beyond_V = sorted_V.cumsum(dim=0) - sorted_V >= options.top_p
        beyond_V[0] = False
        probabilities_V[order_V[beyond_V]] = 0
    return int(torch.multinomial(probabilities_V, 1, generator=generator))
