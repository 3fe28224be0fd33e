"""A run that speaks: prompts in, texts out, piece by piece.

Ids become text as soon as they form whole characters, and text is handed on as soon as it cannot be the
beginning of the stop text. A sample ends at `max_new_tokens`, at the stop text, or where the model ends its
document with the separator. Several are decoded as one batch; when one ends, the next takes its place.
"""

import codecs
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptwright.data.tokenizers import Tokenizer
from gptwright.errors import ConfigError
from gptwright.hardware.detect import find_device, use_device
from gptwright.model.drawing import SamplingOptions
from gptwright.model.generate import Batch, Stream
from gptwright.model.gpt import GPT
from gptwright.record.run import RunFolder
from gptwright.train.load import load_model
from gptwright.train.precision import Precision
from gptwright.train.threads import OthersLoad, Pass, choose_threads

# A batch of this many takes little longer a step than half of it, and a cache of GPT-2's size 1.2 GB.
BATCH_SIZE = 16


@dataclass(slots=True, kw_only=True)
class Sample:
    """One text, while it is generated and after.

    Attributes:
        start: the prompt; None began a new document.
        seed: of the draws.
        text: what came after the prompt, as far as it was handed on.
        tokens: that it took.
        seconds: from its first step to its last.
        ended: whether nothing more comes.
    """

    start: str | None
    seed: int = 1337
    text: str = ""
    tokens: int = 0
    seconds: float = 0.0
    ended: bool = False


@dataclass(slots=True)
class Speaker:
    """A loaded model with its tokenizer.

    Attributes:
        model: in eval mode.
        tokenizer: the run's.
        checkpoint: the loaded checkpoint's name.
    """

    model: GPT
    tokenizer: Tokenizer
    checkpoint: str

    @classmethod
    def of(cls, folder: Path, *, checkpoint: str | None = None, device: str = "auto") -> "Speaker":
        """Loads a run's best, last or named checkpoint."""
        run, place, load = RunFolder.existing(folder), find_device(device), OthersLoad()
        use_device(place)
        speaker = cls(*load_model(run, checkpoint=checkpoint, device=place))
        choose_threads(
            speaker.model, Precision(place, "float32"), load, Pass(rows=1, context=1, learns=False)
        )
        return speaker

    def speak(self, *, start: str | None = None, seed: int = 1337, **options: Any) -> Iterator[str]:
        """Yields one sample's text after the prompt.

        Args:
            start: the prompt; None begins a new document.
            seed: of the draws.
            options: those of `speak_all`.
        """
        for _, piece in self.speak_all([Sample(start=start, seed=seed)], **options):
            yield piece

    def speak_all(
        self,
        samples: Sequence[Sample],
        *,
        max_new_tokens: int = 500,
        temperature: float = 0.8,
        top_k: int | None = 200,
        top_p: float | None = None,
        stop: str | None = None,
        cache: bool = True,
        batch_size: int = BATCH_SIZE,
    ) -> Iterator[tuple[Sample, str]]:
        """Generates samples side by side; yields each piece of text with its sample, as they come.

        What one says does not depend on the others. The samples are filled in meanwhile; the last piece of
        each comes with `ended` set and may be empty.

        Args:
            samples: new ones, with their prompts and seeds.
            max_new_tokens: the longest sample.
            temperature: 0 takes the likeliest token.
            top_k: keep the k likeliest.
            top_p: keep the likeliest that reach p.
            stop: text that ends a sample and is not part of it.
            cache: False recomputes the whole context for every token.
            batch_size: most samples at a time.

        Raises:
            ConfigError: an option means nothing.
            DataError: a prompt has characters that the tokenizer does not know.
        """
        for name, value in (("max_new_tokens", max_new_tokens), ("batch_size", batch_size)):
            if value < 1:
                raise ConfigError(f"{name} = {value} is not a number from 1 up")
        prompts = [self._prompt(sample.start) for sample in samples]
        speeches = []
        for sample, prompt in zip(samples, prompts, strict=True):
            drawn = SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p, seed=sample.seed)
            speeches.append(_Speech(sample, Stream(prompt, drawn), _Text(self.tokenizer, stop)))
        if not speeches:
            return
        longest = max(map(len, prompts)) + max_new_tokens
        capacity = min(self.model.shape.block_size, longest)
        rows = min(batch_size, len(speeches))
        batch = Batch(self.model, rows, capacity=capacity, cached=cache)
        yield from _spoken(speeches, batch, rows=rows, max_new_tokens=max_new_tokens)

    def _prompt(self, start: str | None) -> list[int]:
        if start:
            return [int(token) for token in self.tokenizer.encode(start)]
        if self.tokenizer.separator_id is not None:
            return [self.tokenizer.separator_id]
        return [int(token) for token in self.tokenizer.encode("\n")]


def _spoken(
    speeches: "Iterable[_Speech]", batch: Batch, *, rows: int, max_new_tokens: int
) -> Iterator[tuple[Sample, str]]:
    """Pieces of text as they come; when a sample ends, the next one takes its row of the batch."""
    waiting = deque(speeches)
    speaking: dict[Stream, _Speech] = {}
    while waiting or speaking:
        while waiting and len(speaking) < rows:
            speech = waiting.popleft()
            speech.begun = time.perf_counter()
            speaking[speech.stream] = speech
            batch.join(speech.stream)
        for stream, token in batch.step():
            speech = speaking[stream]
            piece = speech.take(token, max_new_tokens)
            if speech.sample.ended:
                batch.leave(stream)
                del speaking[stream]
            if piece or speech.sample.ended:
                yield speech.sample, piece


@dataclass(slots=True)
class _Speech:
    """A sample, the ids that it comes from, and their way to text."""

    sample: Sample
    stream: Stream
    made: "_Text"
    begun: float = 0.0

    def take(self, token: int, max_new_tokens: int) -> str:
        """The text that a new id makes sure of."""
        sample = self.sample
        sample.tokens += 1
        piece = self.made.add(token)
        if sample.tokens >= max_new_tokens or self.made.ended:
            piece += self.made.rest()
            sample.ended = True
        sample.seconds = time.perf_counter() - self.begun
        sample.text += piece
        return piece


class _Text:
    """Ids in, text out, as soon as it is sure.

    Args:
        tokenizer: of the ids.
        stop: text at which it ends; what may be its beginning is held back.

    Attributes:
        ended: whether the separator or the stop text was seen.
    """

    def __init__(self, tokenizer: Tokenizer, stop: str | None) -> None:
        self.ended = False
        self._tokenizer = tokenizer
        self._stop = stop or ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""

    def add(self, token: int) -> str:
        """What is sure once this id is there."""
        if token == self._tokenizer.separator_id:
            self.ended = True
            return ""
        # A padded vocabulary has ids that stand for nothing; an untrained model can draw them.
        known = token < self._tokenizer.vocab_size
        return self._sure(self._decoder.decode(self._tokenizer.decode_bytes([token])) if known else "")

    def rest(self) -> str:
        """What was held back, once no more ids come."""
        piece = self._sure(self._decoder.decode(b"", final=True)) + self._held
        self._held = ""
        return piece

    def _sure(self, piece: str) -> str:
        held, stop = self._held + piece, self._stop
        if stop and (position := held.find(stop)) >= 0:
            self.ended, self._held = True, ""
            return held[:position]
        possible = range(min(len(stop) - 1, len(held)), 0, -1)
        keep = next((n for n in possible if stop.startswith(held[-n:])), 0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]
