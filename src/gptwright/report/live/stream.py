"""What one open page has been told, and what is new for it: server-sent events of three kinds.

    list      the runs of the list that changed, and which are gone
    run       the run that is looked at: its figures and the diagnosis
    charts    its charts

Each is made only when what it shows has changed.
"""

import json
from typing import Any

from gptwright.report.live.board import Board
from gptwright.report.live.documents import details, summary
from gptwright.report.live.followed import FollowedRun

Version = tuple[int, str]


class Stream:
    """The events of one page.

    Args:
        board: the runs.
        viewed: the id of the run that the page shows by itself, if it shows one.
    """

    def __init__(self, board: Board, viewed: str | None) -> None:
        self.board = board
        self.viewed = viewed
        self._listed: dict[str, Version] | None = None
        self._run: Version | None = None
        self._charts = 0

    def news(self) -> list[str]:
        """The events that are due."""
        return [*self._list_news(), *self._run_news(), *self._charts_news()]

    def _list_news(self) -> list[str]:
        if not self.board.searched:
            return []
        known = self._listed or {}
        now = {name: _version(run) for name, run in self.board.runs.items()}
        changed = [name for name in now if known.get(name) != now[name]]
        gone = [name for name in known if name not in now]
        # An empty folder is news too, once.
        if not changed and not gone and self._listed is not None:
            return []
        self._listed = now
        return [_event("list", {"runs": [summary(self.board.runs[name]) for name in changed], "gone": gone})]

    def _run_news(self) -> list[str]:
        run = self.board.runs.get(self.viewed) if self.viewed is not None else None
        if run is None or self._run == _version(run):
            return []
        self._run = _version(run)
        return [_event("run", details(run))]

    def _charts_news(self) -> list[str]:
        if self.viewed is None:
            return []
        version, text = self.board.charts(self.viewed)
        if not text or version == self._charts:
            return []
        self._charts = version
        return [f"event: charts\ndata: {text}\n\n"]


def _version(run: FollowedRun) -> Version:
    return run.version, run.state.reason


def _event(kind: str, document: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(document, allow_nan=False)}\n\n"
