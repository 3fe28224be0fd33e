"""Lines that are no number of a step: checkpoints, resumes, warnings, failures.

They are the same in every trainer's log, because they come from the frameworks below. A traceback becomes
its last line, which says what went wrong. An allocation failure is kept whole: its sizes name the tensor.
"""

import re

from gptwright.arithmetic.allocations import capacity_bytes
from gptwright.record.evidence import EventKind
from gptwright.record.readers.build import Builder

# A line without one of these words is no event; looking for words is ten times as quick as the patterns.
WORDS = (
    "memory",
    "warn",
    "error",
    "resum",
    "checkpoint",
    "saved",
    "saving",
    "writing",
    "skip",
    "overflow",
    "traceback",
    "exception",
    "enough sms",
    "attention",
    "killed",
    "interrupt",
    "continuing",
    "fault",
    "alloc_failed",
    "watchdog",
)
KINDS: tuple[tuple[EventKind, re.Pattern[str]], ...] = (
    (
        EventKind.OUT_OF_MEMORY,
        re.compile(
            r"out of memory|OutOfMemoryError|ALLOC_FAILED|not enough memory|can't allocate memory"
            r"|Cannot allocate memory|cudaErrorMemoryAllocation"
        ),
    ),
    (EventKind.SKIPPED_UPDATE, re.compile(r"[Ss]kipping (?:update|step)|Gradient overflow|OVERFLOW!")),
    (
        EventKind.RESUME,
        re.compile(
            r"[Rr]esum(?:ing|ed) (?:training|optimization|from|at|run|state)|Continuing training from"
            r"|successfully loaded checkpoint|[Ll]oading (?:the )?checkpoint from"
        ),
    ),
    (
        EventKind.CHECKPOINT,
        re.compile(
            r"[Ss]av(?:ing|ed) (?:the |a )?(?:\w+ )?(?:checkpoint|weights|parameters)"
            r"|successfully saved checkpoint|[Ss]aving model"
            r"|Writing (?:model|checkpoint) |[Ss]aved final|Saving (?:the )?full checkpoint"
        ),
    ),
    (
        EventKind.ERROR,
        re.compile(
            r"^(?:\[?rank ?\d+\]?:? ?)?(?:[\w.]{1,80}\.)?\w{0,40}(?:Error|Exception)(?:: |:?$)"
            r"|Watchdog caught collective operation timeout"
            r"|Segmentation fault|^Killed|KeyboardInterrupt|CUDA ERROR|\bERROR\b"
        ),
    ),
    (
        EventKind.WARNING,
        re.compile(
            r"\bWARN(?:ING)?\b|[Ww]arning: |Not enough SMs|[Ff]lash [Aa]ttention requires|slow attention"
        ),
    ),
)
TRACEBACK = re.compile(r"(?P<rank>\[?rank ?\d+\]?:? )?Traceback \(most recent call last\)")
RANK = re.compile(r"^(?:\[rank\d+\]: ?|\d{1,3}: )")


class Events:
    """Finds events, line by line.

    Args:
        build: where they go.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._in_traceback = False
        self._continues = False

    def read(self, text: str, line: int, *, full_width: bool) -> bool:
        """Takes a line if it is an event or part of one.

        Args:
            text: the line.
            line: its number.
            full_width: it fills the width at which this log was wrapped, so it may go on in the next.
        """
        if self._continues:
            self._build.extend_event(text)
            self._note_capacity(self._build.events[-1].text, self._build.events[-1].line)
            self._continues = full_width
            return True
        if self._in_traceback:
            return self._traceback_line(text, line)
        lower = text.lower()
        if not any(word in lower for word in WORDS):
            return False
        if TRACEBACK.search(text):
            self._in_traceback = True
            return True
        for kind, pattern in KINDS:
            if pattern.search(text):
                self._add(kind, text, line)
                self._continues = kind is EventKind.OUT_OF_MEMORY and full_width
                return True
        return False

    def _traceback_line(self, text: str, line: int) -> bool:
        inner = RANK.sub("", text)
        if not inner.strip() or inner.startswith((" ", "\t")) or TRACEBACK.search(inner):
            return True
        self._in_traceback = False
        kind = EventKind.OUT_OF_MEMORY if KINDS[0][1].search(inner) else EventKind.ERROR
        self._add(kind, inner, line)
        return True

    def _add(self, kind: EventKind, text: str, line: int) -> None:
        self._build.event(kind, line, text)
        if kind is EventKind.OUT_OF_MEMORY:
            self._note_capacity(text, line)

    def _note_capacity(self, text: str, line: int) -> None:
        capacity = capacity_bytes(text)
        if capacity is not None:
            self._build.fact("device_memory_bytes", capacity, line)
