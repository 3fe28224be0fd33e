"""The run folder: where each part of a run's record lies.

    config.toml       the resolved settings
    run.json          machine, versions, dataset fingerprint, and every choice with its reason
    metrics.jsonl     the primary record
    log.txt           a view of it for people
    tokenizer.json    so that the run can speak without its dataset
    checkpoints/      step-00000250/ …, and the pointers `last` and `best`
    evaluations/      the loss of every validation window, one .npy an evaluation
    samples/          text generated from the run

A folder is taken by writing `config.toml` into it; everything before that moment is not a run.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptwright.config.load import LoadedConfig, load_config
from gptwright.config.schema import TrainConfig
from gptwright.config.write import to_toml
from gptwright.errors import RunError
from gptwright.files import disk_full_as_error, replace_text, sync_folder

CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")


class RunFolder:
    """Paths and small files of one run.

    Args:
        path: the folder; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.toml"
        self.metrics_path = path / "metrics.jsonl"
        self.log_path = path / "log.txt"
        self.run_json_path = path / "run.json"
        self.tokenizer_path = path / "tokenizer.json"
        self.checkpoints = path / "checkpoints"
        self.evaluations = path / "evaluations"
        self.samples = path / "samples"

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """A folder that holds a run.

        Raises:
            RunError: it does not.
        """
        run = cls(path)
        if not run.config_path.is_file():
            what = "holds no config.toml" if path.is_dir() else "does not exist"
            raise RunError(
                f"{path} is not a run folder: it {what}",
                fix="give the folder that `gptwright train` named (its --out_dir)",
            )
        return run

    def require_free(self) -> None:
        """Refuses to write over what is there already.

        Raises:
            RunError: a run is in the folder, or something else is.
        """
        if self.config_path.exists():
            raise RunError(
                f"{self.path} already holds a run",
                why="training into it would destroy that run's record and checkpoints",
                fix=f"`gptwright resume {self.path}` goes on with it; for a new run choose another"
                " --out_dir, or remove the folder",
            )
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise RunError(
                f"{self.path} is already there and is not a run folder",
                why="a run folder starts empty, so that nothing of yours is mixed with it",
                fix="choose another --out_dir",
            )

    def create(self, config: TrainConfig) -> None:
        """Takes the folder for a run with these settings; on a failure nothing of it is left."""
        existed = self.path.exists()
        try:
            with disk_full_as_error(self.path.parent):
                for folder in (self.path, self.checkpoints, self.evaluations):
                    folder.mkdir(parents=True, exist_ok=True)
                replace_text(self.config_path, to_toml(config))
        except BaseException:
            self.remove(keep_folder=existed)
            raise

    def remove(self, *, keep_folder: bool = False) -> None:
        """Takes back a `create` whose run never began."""
        for folder in (self.checkpoints, self.evaluations):
            shutil.rmtree(folder, ignore_errors=True)
        for file in self.path.glob("*"):
            file.unlink()
        if self.path.is_dir() and not keep_folder:
            self.path.rmdir()

    def load_config(self, overrides: Mapping[str, str] | None = None) -> LoadedConfig:
        """The run's settings, with `--field=value` overrides."""
        return load_config([str(self.config_path)], overrides)

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        """Writes run.json."""
        replace_text(self.run_json_path, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")

    def read_facts(self) -> dict[str, Any]:
        """What run.json says; empty if the run was stopped before it was written."""
        if not self.run_json_path.is_file():
            return {}
        try:
            facts = json.loads(self.run_json_path.read_text("utf-8"))
        except ValueError as error:
            raise RunError(f"{self.run_json_path} is damaged: {error}") from None
        return dict(facts)

    def dataset_folder(self) -> str | None:
        """Where the run found its dataset, if run.json says it."""
        folder = self.read_facts().get("dataset", {}).get("folder")
        return str(folder) if folder else None

    def save_sample(self, checkpoint: str, text: str) -> None:
        """Keeps a text that was generated from the weights of a checkpoint."""
        self.samples.mkdir(exist_ok=True)
        replace_text(self.samples / f"{checkpoint}.txt", text)

    def checkpoint_names(self) -> list[str]:
        """Names of all finished checkpoints, oldest first."""
        if not self.checkpoints.is_dir():
            return []
        return sorted(
            entry.name
            for entry in self.checkpoints.iterdir()
            if entry.is_dir() and CHECKPOINT_NAME.fullmatch(entry.name)
        )

    def pointed(self, pointer: str) -> str | None:
        """The checkpoint that `last` or `best` names, if there is one."""
        file = self.checkpoints / pointer
        if not file.is_file():
            return None
        name = file.read_text("utf-8").strip()
        return name if CHECKPOINT_NAME.fullmatch(name) and (self.checkpoints / name).is_dir() else None

    def point(self, pointer: str, checkpoint: str) -> None:
        """Makes `last` or `best` name a checkpoint."""
        replace_text(self.checkpoints / pointer, f"{checkpoint}\n")

    def remove_checkpoint(self, name: str) -> None:
        """Removes a checkpoint; its name goes first, so that a half-removed one is never seen."""
        doomed = self.checkpoints / f".{name}.removed"
        (self.checkpoints / name).rename(doomed)
        shutil.rmtree(doomed)

    def remove_unfinished(self) -> None:
        """Clears what a killed process left: half-written and half-removed checkpoints."""
        for leftover in self.checkpoints.glob(".*"):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        sync_folder(self.checkpoints)


def checkpoint_name(step: int) -> str:
    """The folder's name of the checkpoint before update `step`."""
    return f"step-{step:08d}"
