"""Hands runs to the worker process, one at a time, and ends it when it is slow or has nothing to do."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptwright.errors import RunError
from gptwright.facts import Value

# A million lines take some ten seconds on a slow core.
LONGEST = 60.0
# An idle worker holds some 120 MB.
IDLE = 20.0
# Answers hold curves; asyncio's own limit for a line is 64 KiB.
LONGEST_ANSWER = 64 << 20

Answer = dict[str, Any]


class Diagnoser:
    """Diagnoses in another process, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._farewell: asyncio.TimerHandle | None = None

    async def ask(
        self, path: Path, facts: Mapping[str, Value] | None = None, *, charts: bool = False
    ) -> Answer:
        """The worker's answer about a run; an error as an answer too.

        Args:
            path: a run folder, a folder from elsewhere, or a log.
            facts: what is stated beside it.
            charts: whether the answer shall hold its charts, which are large.
        """
        async with self._turn:
            if self._farewell is not None:
                self._farewell.cancel()
            try:
                return await asyncio.wait_for(self._ask(path, facts or {}, charts), LONGEST)
            except TimeoutError:
                await self.close()
                return _failed(f"the diagnosis took longer than {LONGEST:.0f} s")
            except (OSError, ValueError, EOFError) as error:
                await self.close()
                return _failed(f"the diagnosis broke off: {error}")
            finally:
                loop = asyncio.get_running_loop()
                self._farewell = loop.call_later(IDLE, self._end)

    async def close(self) -> None:
        """Ends the worker."""
        process = self._process
        self._end()
        if process is not None:
            await process.wait()

    def _end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None

    async def _ask(self, path: Path, facts: Mapping[str, Value], charts: bool) -> Answer:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gptwright.report.live.worker",
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=LONGEST_ANSWER,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        assert process.stdin is not None
        assert process.stdout is not None
        job = {"path": str(path), "facts": dict(facts), "charts": charts}
        process.stdin.write(json.dumps(job).encode() + b"\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the process ended")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


def _failed(problem: str) -> Answer:
    return {"error": RunError(problem, fix="give the log to `gptwright diagnose`").document()}
