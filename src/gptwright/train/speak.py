"""A run that speaks: prompt in, text out, piece by piece.

Ids become text as soon as they form whole characters, and text is handed on as soon as it cannot be the
beginning of the stop text. A sample ends at `max_new_tokens`, at the stop text, or where the model ends its
document with the separator.
"""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gptwright.data.tokenizers import Tokenizer
from gptwright.hardware.detect import find_device
from gptwright.model.generate import SamplingOptions, generate
from gptwright.model.gpt import GPT
from gptwright.record.run import RunFolder
from gptwright.train.load import load_model


@dataclass(slots=True)
class Speaker:
    """A loaded model with its tokenizer.

    Attributes:
        model: in eval mode.
        tokenizer: the run's.
        checkpoint: the loaded checkpoint's name.
        tokens: how many the last sample took.
    """

    model: GPT
    tokenizer: Tokenizer
    checkpoint: str
    tokens: int = 0

    @classmethod
    def of(cls, folder: Path, *, checkpoint: str | None = None, device: str = "auto") -> "Speaker":
        """Loads a run's best, last or named checkpoint."""
        run = RunFolder.existing(folder)
        return cls(*load_model(run, checkpoint=checkpoint, device=find_device(device)))

    def speak(
        self,
        *,
        start: str | None = None,
        max_new_tokens: int = 500,
        temperature: float = 0.8,
        top_k: int | None = 200,
        top_p: float | None = None,
        seed: int = 1337,
        stop: str | None = None,
        cache: bool = True,
    ) -> Iterator[str]:
        """Yields the sample's text after the prompt.

        Args:
            start: the prompt; None begins a new document.
            max_new_tokens: the longest sample.
            temperature: 0 takes the likeliest token.
            top_k: keep the k likeliest.
            top_p: keep the likeliest that reach p.
            seed: of the draws.
            stop: text that ends the sample and is not part of it.
            cache: False recomputes the whole context for every token.
        """
        options = SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        ids = generate(self.model, self._prompt(start), options=options, cached=cache)
        text = self._text(islice(ids, max_new_tokens))
        return until(text, stop) if stop else text

    def _prompt(self, start: str | None) -> list[int]:
        if start:
            return [int(token) for token in self.tokenizer.encode(start)]
        if self.tokenizer.separator_id is not None:
            return [self.tokenizer.separator_id]
        return [int(token) for token in self.tokenizer.encode("\n")]

    def _text(self, ids: Iterable[int]) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.tokens = 0
        for token in ids:
            self.tokens += 1
            if token == self.tokenizer.separator_id:
                break
            # A padded vocabulary has ids that stand for nothing; an untrained model can draw them.
            if token < self.tokenizer.vocab_size and (
                piece := decoder.decode(self.tokenizer.decode_bytes([token]))
            ):
                yield piece
        if rest := decoder.decode(b"", final=True):
            yield rest


def until(pieces: Iterable[str], stop: str) -> Iterator[str]:
    """Hands pieces on until the stop text appears; holds back what may be its beginning."""
    held = ""
    for piece in pieces:
        held += piece
        position = held.find(stop)
        if position >= 0:
            if position:
                yield held[:position]
            return
        keep = next((n for n in range(min(len(stop) - 1, len(held)), 0, -1) if stop.startswith(held[-n:])), 0)
        if len(held) > keep:
            yield held[: len(held) - keep]
            held = held[len(held) - keep :]
    if held:
        yield held
