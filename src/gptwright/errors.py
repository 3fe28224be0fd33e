"""One family of errors that a person can act on.

Each says what is wrong with the value seen, why it matters, and what to type instead; the command line
prints it and ends with its exit status. Whatever is not of this family is a bug of ours and keeps its
traceback. `assert` is for invariants only.
"""

import os
import shlex
from collections.abc import Callable, Sequence


def typed(path: object) -> str:
    """A path as it is typed in a command: quoted where a shell would take it for several words or a sign."""
    text = str(path)
    if os.name == "nt":
        return f'"{text}"' if " " in text else text
    return shlex.quote(text)


class GptwrightError(Exception):
    """Something a person can mend.

    Args:
        problem: what is wrong, with the value that was seen.
        why: why it matters, or what follows from it.
        fix: what to do or type instead.
    """

    exit_status = 2

    def __init__(self, problem: str, *, why: str | None = None, fix: str | None = None) -> None:
        self.problem = problem
        self.why = why
        self.fix = fix
        lines = [problem]
        if why:
            lines.append(f"  why: {why}")
        if fix:
            lines.append(f"  fix: {fix}")
        super().__init__("\n".join(lines))

    def document(self) -> dict[str, str | None]:
        """The error as the live page's JSON has it."""
        return {"problem": self.problem, "why": self.why, "fix": self.fix}

    def __reduce__(self) -> tuple[Callable[..., "GptwrightError"], tuple[object, ...]]:
        """An error that crosses a process keeps its parts."""
        return _made_again, (type(self), self.problem, self.why, self.fix)


def _made_again(kind: type[GptwrightError], problem: str, why: str | None, fix: str | None) -> GptwrightError:
    return kind(problem, why=why, fix=fix)


class ConfigError(GptwrightError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another.

    Attributes:
        parts: the single problems of an error that reports several.
    """

    parts: tuple["ConfigError", ...] = ()

    @classmethod
    def of(cls, problems: Sequence["ConfigError"]) -> "ConfigError":
        """One error that reports every problem at once, so that a config is mended in one go."""
        parts = [part for problem in problems for part in (problem.parts or (problem,))]
        if len(parts) == 1:
            return parts[0]
        error = cls(f"{len(parts)} settings cannot be used:\n" + "\n".join(f"- {part}" for part in parts))
        error.parts = tuple(parts)
        return error


class DataError(GptwrightError):
    """A corpus or token dataset is missing, damaged, or does not fit what is asked of it."""


class DeviceError(GptwrightError):
    """The device asked for is not there, or cannot do what is asked of it."""


class RunError(GptwrightError):
    """A run folder is missing, damaged, in use, or already taken."""


class CheckpointError(GptwrightError):
    """A checkpoint is missing, damaged, or belongs to another config or dataset."""


class OutputError(GptwrightError):
    """What was to be written cannot be put where it was asked for."""


class DiskFullError(GptwrightError):
    """There is no room left where something had to be written."""


class RunFailedError(GptwrightError):
    """The input was good and the run went wrong: the answer is bad, not the question."""

    exit_status = 1


class PeerLostError(RunFailedError):
    """Another process of the run is gone, or cannot be reached any more."""


class PeerFailedError(RunFailedError):
    """Another process of the run failed and says why; this one ends without a word."""
