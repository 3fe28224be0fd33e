"""All runs of a folder, followed while somebody looks at a page, and only then.

Without a page nothing is read. With one, the folder is searched every few seconds; runs that go on are looked
at three times a second, ended ones every three, and a look at a file that has not changed is one `stat`.
Diagnoses are made one after another in a process of their own, those of the runs on a page first.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gptwright.errors import RunError
from gptwright.report.live.curves import LiveCurves
from gptwright.report.live.diagnoser import Diagnoser
from gptwright.report.live.finding import find_runs, stays_inside
from gptwright.report.live.followed import FollowedRun

SEARCH_SECONDS = 5.0
TICK_SECONDS = 0.3
# Chunks are read between other work, so that a folder of long records does not make the page wait.
BREATH = 0.0


class Board:
    """The runs below a folder.

    Args:
        root: the folder; nothing outside it is read.
        diagnoser: who diagnoses.

    Attributes:
        runs: by id.
        searched: whether the folder has been searched.
        closing: whether the server ends, and pages are told nothing more.
    """

    def __init__(self, root: Path, diagnoser: Diagnoser) -> None:
        self.root = root.resolve()
        self.diagnoser = diagnoser
        self.runs: dict[str, FollowedRun] = {}
        self.searched, self.closing = False, False
        self._viewed: Counter[str] = Counter()
        self._curves: dict[str, LiveCurves] = {}
        self._pages = 0
        self._pages_came = asyncio.Event()
        self._searched_at = 0.0

    @asynccontextmanager
    async def page(self, viewed: str | None) -> AsyncIterator[None]:
        """While inside, somebody looks at the list, or at one run."""
        self._pages += 1
        self._pages_came.set()
        if viewed is not None:
            self._viewed[viewed] += 1
        try:
            yield
        finally:
            self._pages -= 1
            if viewed is not None:
                self._viewed[viewed] -= 1
                if not self._viewed[viewed]:
                    self._forget(viewed)
            if not self._pages:
                self._pages_came.clear()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Follows and diagnoses in the background while inside."""
        # A bug in one of them ends the server with its traceback; a page that stands still would hide it.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work()) for work in (self._follow, self._draw, self._diagnose)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await self.diagnoser.close()

    def _forget(self, name: str) -> None:
        """Lets go of what only a viewed run needs."""
        del self._viewed[name]
        self._curves.pop(name, None)
        if name in self.runs:
            self.runs[name].charts = None

    def charts(self, name: str) -> tuple[int, str]:
        """The charts of a viewed run as JSON, and a number that changes with them; empty at first."""
        run = self.runs.get(name)
        if run is None:
            return 0, ""
        if not run.found.ours:
            return run.version, run.charts or ""
        curves = self._curves.get(name)
        return (curves.version, curves.text) if curves is not None else (0, "")

    async def _draw(self) -> None:
        while True:
            await self._pages_came.wait()
            for name in list(self._viewed):
                run = self.runs.get(name)
                if run is not None and run.found.ours and stays_inside(run.found, self.root):
                    curves = self._curves.setdefault(name, LiveCurves(run.found))
                    await asyncio.to_thread(self._refresh, curves)
            await asyncio.sleep(TICK_SECONDS)

    @staticmethod
    def _refresh(curves: LiveCurves) -> None:
        try:
            curves.refresh()
        except Exception:
            # A record that nobody thought of must not take the page of all the others with it.
            logging.getLogger(__name__).exception("the charts of %s could not be made", curves.found.id)

    async def _follow(self) -> None:
        while True:
            await self._pages_came.wait()
            await self.look()
            await asyncio.sleep(TICK_SECONDS)

    async def look(self) -> None:
        """Brings everything up to date."""
        now = time.time()
        if now - self._searched_at >= SEARCH_SECONDS or now < self._searched_at:
            await self._search()
            self._searched_at = now
        for run in list(self.runs.values()):
            while run.look(time.time()):
                await asyncio.sleep(BREATH)

    async def _search(self) -> None:
        found = await asyncio.to_thread(find_runs, self.root)
        there = {run.id: run for run in found}
        for gone in self.runs.keys() - there.keys():
            del self.runs[gone]
        for name, run in there.items():
            if name not in self.runs or self.runs[name].found != run:
                self.runs[name] = FollowedRun(run)
        self.searched = True

    async def _diagnose(self) -> None:
        while True:
            await self._pages_came.wait()
            run = self._next_to_diagnose()
            if run is None:
                await asyncio.sleep(TICK_SECONDS)
                continue
            began = time.time()
            charts = not run.found.ours and run.found.id in self._viewed
            if stays_inside(run.found, self.root):
                answer = await self.diagnoser.ask(run.found.path, charts=charts)
            else:
                problem = f"{run.name} has a link that leads out of the watched folder, or cannot be listed"
                answer = {"error": RunError(problem, fix="watch the folder it leads to").document()}
            run.diagnosed(answer, began=began, with_charts=charts)

    def _next_to_diagnose(self) -> FollowedRun | None:
        now = time.time()
        viewed = [self.runs[name] for name, pages in self._viewed.items() if pages and name in self.runs]
        for run in viewed:
            if run.wants_diagnosis(now, viewed=True):
                return run
        return next((run for run in self.runs.values() if run.wants_diagnosis(now, viewed=False)), None)
