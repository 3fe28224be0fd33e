"""The corpus as `prepare` sees it: counted once, split, and read again as often as needed.

Validation is a tenth at most, and a million tokens if possible: the standard error of a mean over N windows
falls with the root of N, and at a million tokens (some thousand windows of 1,024) it is 3 % of the spread
between windows. Nothing of the text is kept, except for nanoGPT's split, which is defined on the whole.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from gptwright.data.manifest import SplitMethod
from gptwright.data.pieces import ContentDraw, cut, piece_size
from gptwright.data.sources.corpus import Corpus, Document, Tally
from gptwright.data.stretches import Stretch, hash_stretches, in_blocks, nanogpt_stretches
from gptwright.errors import DataError

_VALIDATION_TOKENS = 1_000_000
_SMALLEST_FRACTION = 0.0005
_LARGEST_FRACTION = 0.1
# GPT-2's BPE on English; where it is less, validation gets more tokens than asked, never fewer.
_BYTES_PER_BPE_TOKEN = 4
_BPE_SAMPLE_BYTES = 100_000_000

# Told the stage (`reading`, `tokenizer`, `encoding`) and how much of it is done, from 0 to 1.
Progress = Callable[[str, float], None]


class Survey:
    """One corpus and its split.

    Args:
        corpus: what is read.
        split: how validation is drawn.
        progress: told how far each reading is.

    Attributes:
        tally: documents, bytes and hash, after `read`.
        characters: how many there are, after `read`.
        fraction: the share of the bytes that validation was asked to have.
    """

    def __init__(self, corpus: Corpus, split: SplitMethod, progress: Progress) -> None:
        self.corpus = corpus
        self.split: SplitMethod = split
        self.tally = Tally()
        self.characters = 0
        self.fraction = _LARGEST_FRACTION
        self._progress = progress
        self._written = 0
        self._draw = ContentDraw()
        self._piece_size = piece_size(corpus.total_bytes)
        self._texts: list[str] = []

    def read(self, spec: str) -> None:
        """Counts everything and draws the validation split."""
        total = max(1, self.corpus.total_bytes)
        for document in self.corpus.documents(self.tally):
            self.characters += len(document.text)
            if self.split == "nanogpt":
                self._texts.append(document.text)
            else:
                for piece in cut(document.text, self._piece_size):
                    self._draw.add(piece)
            self._progress("reading", min(1.0, self.characters / total))
        if self.split == "hash":
            wanted = _VALIDATION_TOKENS / self.estimated_tokens(spec)
            self.fraction = min(_LARGEST_FRACTION, max(wanted, _SMALLEST_FRACTION))
            self._draw.draw(self.fraction)
        elif self.characters < 2:
            raise DataError(
                f"the corpus has {self.characters} character(s), too few to be split in two",
                fix="give more text",
            )

    def estimated_tokens(self, spec: str) -> float:
        """How many tokens the corpus will be; exact for characters and bytes."""
        if spec == "char":
            return max(1, self.characters)
        return max(1, self.tally.bytes / (1 if spec == "byte" else _BYTES_PER_BPE_TOKEN))

    def stretches(self, stage: str) -> Iterator[Stretch]:
        """The corpus, split."""
        self._stage = stage
        self._written = 0
        if self.split == "nanogpt":
            return nanogpt_stretches("".join(self._texts), self.corpus.name)
        return hash_stretches(self._again(), self._draw, self._piece_size)

    def texts(self) -> Iterator[str]:
        """All texts, for a tokenizer that must see each character."""
        for stretch in self.stretches("tokenizer"):
            yield stretch.text
            self.advance(len(stretch.text))

    def training_sample(self) -> Iterator[str]:
        """Training text alone, evenly thinned to some 100 MB, for a tokenizer that learns from it."""
        every = -(-self.tally.bytes // _BPE_SAMPLE_BYTES)
        training = (s.text for s in in_blocks(self.stretches("tokenizer")) if s.split == "train")
        for text in islice(training, 0, None, every):
            yield text
            self.advance(len(text) * every)

    def advance(self, characters: int) -> None:
        """Reports progress of the reading that is under way."""
        self._written += characters
        self._progress(self._stage, min(1.0, self._written / self.characters))

    def _again(self) -> Iterator[Document]:
        tally = Tally()
        yield from self.corpus.documents(tally)
        if tally.sha256 != self.tally.sha256:
            raise DataError(
                f"the corpus {self.corpus.name} changed while it was read",
                why="the validation split was drawn from what it held before",
                fix="wait until nothing writes to it, then run the command again",
            )
