"""Text generation with a key-value cache, for one sequence or a batch of them.

A step reads every weight once, so on a CPU its time is the model's bytes over the memory bandwidth; without
the cache it would also redo the whole context. For a batch the weights are read once as well, so it costs
little more than one sequence until the machine is busy with products. Sequences join and leave between steps;
each has its own length, window, settings and generator of random numbers, so its tokens do not depend on its
neighbours beyond floating-point noise in the logits.

Learned positions make a cache worthless once the window slides, because every token's position changes.
So the window moves in jumps of half a block: when the block is full, its older half is dropped, the younger
half is read in again, and half a block of cheap steps follows. The uncached path uses the same windows, and
both give the same tokens under the same seed.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from gptwright.model.cache import Beginnings, NextTokens
from gptwright.model.drawing import SamplingOptions, next_token
from gptwright.model.gpt import GPT


def window_start(length: int, block_size: int) -> int:
    """Where the context of the next token begins, for a text of `length` tokens.

    0 while the text fits the block; after that it moves in jumps of half a block.
    """
    if length <= block_size:
        return 0
    jump = max(1, block_size // 2)
    return -(-(length - block_size) // jump) * jump


class Stream:
    """One sequence in a batch.

    Args:
        prompt: at least one id.
        options: how its tokens are drawn.

    Attributes:
        tokens: the prompt and what was drawn.
    """

    def __init__(self, prompt: Iterable[int], options: SamplingOptions) -> None:
        self.tokens = list(prompt)
        self.window = -1
        self._options = options
        self._generator = torch.Generator().manual_seed(options.seed)

    def draw(self, logits_V: Tensor) -> int:
        """Draws the next token and appends it."""
        token = next_token(logits_V, self._options, self._generator)
        self.tokens.append(token)
        return token


class Batch:
    """Streams that get one token each with every step.

    Args:
        model: in eval mode.
        rows: most streams at a time.
        capacity: most tokens of a stream that the cache can hold; None: the block. Less is enough where all
            texts stay shorter.
        cached: False recomputes each context for every token: the slow reference.
    """

    def __init__(self, model: GPT, rows: int, *, capacity: int | None = None, cached: bool = True) -> None:
        self._model = model
        self._cache = model.new_cache(rows, capacity=capacity) if cached else None
        self.streams: list[Stream] = []

    def join(self, stream: Stream) -> None:
        """Takes a stream in, from the next step on."""
        self.streams.append(stream)

    def leave(self, stream: Stream) -> None:
        """Lets a stream go; the last one takes its row."""
        row, last = self.streams.index(stream), len(self.streams) - 1
        if self._cache is not None and row != last:
            self._cache.move(last, row)
        self.streams[row] = self.streams[last]
        self.streams.pop()

    def step(self) -> list[tuple[Stream, int]]:
        """The next token of every stream, in no promised order."""
        with torch.inference_mode():
            logits_BV = self._logits().cpu()
            return [(s, s.draw(logits_V)) for s, logits_V in zip(self.streams, logits_BV, strict=True)]

    def _logits(self) -> Tensor:
        """Logits `[B, V]` of the streams' next tokens."""
        cache, block_size = self._cache, self._model.shape.block_size
        moved = []
        for row, stream in enumerate(self.streams):
            window = window_start(len(stream.tokens), block_size)
            if window != stream.window:
                stream.window = window
                moved.append(row)
        if cache is None:
            contexts = [stream.tokens[stream.window :] for stream in self.streams]
            return torch.cat([self._model.next_logits(self._ids([context])) for context in contexts])
        self._read(moved)
        last = self._ids([stream.tokens[-1:] for stream in self.streams])
        return self._model.next_logits(last, NextTokens(cache, len(self.streams)))

    def _read(self, rows: Sequence[int]) -> None:
        """Fills rows with all but the last token of their windows.

        Those of about the same length are read together, so that at most half of what is read is padding.
        """
        assert self._cache is not None
        alike: dict[int, list[tuple[int, list[int]]]] = {}
        for row in rows:
            stream = self.streams[row]
            self._cache.clear(row)
            if context := stream.tokens[stream.window : -1]:
                alike.setdefault(len(context).bit_length(), []).append((row, context))
        for group in alike.values():
            lengths = [len(context) for _, context in group]
            longest = max(lengths)
            padded = [context + [0] * (longest - len(context)) for _, context in group]
            self._model.hidden(self._ids(padded), Beginnings(self._cache, [row for row, _ in group], lengths))

    def _ids(self, rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=self._model.device)


def generate(
    model: GPT, prompt: Sequence[int], *, options: SamplingOptions, cached: bool = True
) -> Iterator[int]:
    """Yields token ids after the prompt, without end; the caller stops when it has enough.

    Args:
        model: in eval mode.
        prompt: at least one id.
        options: how tokens are drawn.
        cached: False recomputes the context for every token: the slow reference.
    """
    batch = Batch(model, rows=1, cached=cached)
    batch.join(Stream(prompt, options))
    while True:
        for _, token in batch.step():
            yield token
