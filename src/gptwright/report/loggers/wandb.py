"""A Weights & Biases run. `WANDB_MODE=offline` writes its files into the run folder, for `wandb sync` later.

The id follows from the run's first record, so a resumed run goes on in the same W&B run. W&B keeps what it
was sent, so steps between the last checkpoint and a crash are there twice.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from gptwright.record.metrics import Record
from gptwright.report.loggers.scalars import scalars


class WandbView:
    """A run as a W&B run.

    Args:
        folder: the run folder; W&B's files go into `wandb/` there.
        project: W&B's project.
        name: the run's name there.
        config: the run's settings.
    """

    def __init__(self, folder: Path, *, project: str, name: str, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.project = project
        self.name = name
        self.config = config
        self._run: wandb.Run | None = None

    def begin(self) -> None:
        """Nothing yet: the first record gives the run its id."""
        self.close()

    def add(self, record: Record) -> None:
        """Sends a record's numbers; the first record begins the run."""
        if self._run is None:
            self._run = self._started()
        values = scalars(record)
        if values:
            self._run.log({"iter": record["step"], **values})

    def flush(self) -> None:
        """W&B sends by itself."""

    def close(self) -> None:
        """Ends the run and waits until its files are written or sent."""
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _started(self) -> "wandb.Run":
        with (self.folder / "metrics.jsonl").open("rb") as file:
            first = json.loads(file.readline())
        identity = f"{self.folder.resolve()} {first['time']}"
        run = wandb.init(
            project=self.project,
            name=self.name,
            id=hashlib.sha256(identity.encode()).hexdigest()[:16],
            resume="allow",
            dir=str(self.folder),
            config=dict(self.config),
            # Its own lines would run through the screen, and what it captures of ours is in the log already.
            settings=wandb.Settings(silent=True, console="off"),
        )
        run.define_metric("iter")
        run.define_metric("*", step_metric="iter")
        return run
