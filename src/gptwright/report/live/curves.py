"""The charts of a run of ours while it trains: those of the report, drawn anew as the record grows.

Only the run that somebody looks at is followed so. Making its figures takes some milliseconds for an ordinary
run and about a second for one of a million lines; a run's figures take at most a fifth of one core.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from gptwright.diagnose.reading import Reading, read_run
from gptwright.errors import GptwrightError
from gptwright.record.evidence import RunEvidence
from gptwright.record.follow import Follower
from gptwright.record.open_run import beside
from gptwright.record.readers.growing import GrowingRecord
from gptwright.report.live.finding import Found
from gptwright.report.run_figures import axes_of, figures_of

SHARE = 0.2


class LiveCurves:
    """The figures of one run, kept up to date.

    Attributes:
        text: the charts as JSON; empty before the first.
        version: rises with every change.
    """

    def __init__(self, found: Found) -> None:
        self.found = found
        self.text = ""
        self.version = 0
        self._follower = Follower(found.log)
        self._record = GrowingRecord(str(found.log))
        self._stale = False
        self._due = 0.0

    def refresh(self) -> None:
        """Takes what is new; makes the figures again if it is their time."""
        more = True
        while more:
            news = self._follower.look()
            if news.restarted:
                self._record = GrowingRecord(str(self.found.log))
            self._record.add(news.lines)
            self._stale |= bool(news.lines) or news.restarted
            more = news.more
        began = time.monotonic()
        if not self._stale or began < self._due:
            return
        self._stale = False
        self.text = self._made()
        self.version += 1
        self._due = began + (time.monotonic() - began) / SHARE

    def _made(self) -> str:
        log = self._record.evidence()
        if log is None:
            return ""
        try:
            config, stated = beside(self.found.path)
            reading = read_run(RunEvidence(path=str(self.found.path), log=log, config=config, stated=stated))
        except GptwrightError:
            # A config that cannot be read is the diagnosis's to say.
            return ""
        return charts_text(reading, [figure.document() for figure in figures_of(reading, None)])


def charts_text(reading: Reading, figures: Sequence[dict[str, Any]]) -> str:
    """Figures with the axes of their run, as the page's script draws them."""
    run = {"axes": [axis.document() for axis in axes_of(reading)]}
    return json.dumps({"runs": [run], "figures": figures}, allow_nan=False, separators=(",", ":"))
