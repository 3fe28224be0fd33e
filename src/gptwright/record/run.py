"""The run folder: where each part of a run's record lies.

    config.toml       the resolved settings
    run.json          machine, versions, dataset fingerprint, and every choice with its reason
    metrics.jsonl     the primary record
    log.txt           a view of it for people
    tokenizer.json    so that the run can speak without its dataset
    checkpoints/      step-00000250/ …, and the pointers `last` and `best`
    evaluations/      the loss of every validation window, one .npy an evaluation
    samples/          text generated from the run
    report.html       a view of all of this, made by `gptwright report`
    run.lock          held by the process that writes the run

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
from gptwright.errors import RunError, typed
from gptwright.files import disk_full_as_error, replace_text, sync_folder, unwritable_as_error
from gptwright.record.lock import LOCK_NAME, RunLock
from gptwright.record.log_text import log_text
from gptwright.record.metrics import read_metrics

CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")
_REPLACED = ".replaced"
# Bytes of a pointer that are read.
_LONGEST_NAME = 100


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
        self.report_path = path / "report.html"

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """A folder that holds a run.

        Raises:
            RunError: it does not.
        """
        run = cls(path)
        if not run.config_path.is_file():
            there = "is a file" if path.is_file() else "does not exist"
            what = "holds no config.toml" if path.is_dir() else there
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
                fix=f"`gptwright resume {typed(self.path)}` goes on with it; for a new run choose another"
                " --out_dir, or remove the folder",
            )
        if self.path.exists() and not self._holds_no_run_yet():
            raise RunError(
                f"{self.path} is already there and is not a run folder",
                why="a run folder starts empty, so that nothing of yours is mixed with it",
                fix="choose another --out_dir",
            )

    def _holds_no_run_yet(self) -> bool:
        """Whether the folder is empty, or holds only what a process killed while taking it had made."""
        begun = {LOCK_NAME, f".{self.config_path.name}.partial", self.checkpoints.name, self.evaluations.name}
        if not self.path.is_dir() or {entry.name for entry in self.path.iterdir()} - begun:
            return False
        return not any(
            folder.is_dir() and any(folder.iterdir()) for folder in (self.checkpoints, self.evaluations)
        )

    def create(self, config: TrainConfig) -> RunLock:
        """Takes the folder for a run with these settings; on a failure nothing of it is left.

        Raises:
            RunError: another process has just taken it.
            OutputError: it cannot be made.
        """
        existed = self.path.exists()
        with unwritable_as_error(self.path), disk_full_as_error(self.path.parent):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = RunLock(self.path)
        try:
            self.require_free()
            with disk_full_as_error(self.path.parent):
                for folder in (self.checkpoints, self.evaluations):
                    folder.mkdir(exist_ok=True)
                replace_text(self.config_path, to_toml(config))
        except BaseException:
            lock.release()
            if not self.config_path.exists():
                self.remove(keep_folder=existed)
            raise
        return lock

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
        except (ValueError, RecursionError) as error:
            raise RunError(f"{self.run_json_path} is damaged: {error}") from None
        if not isinstance(facts, dict):
            raise RunError(f"{self.run_json_path} is damaged: it holds no object")
        return facts

    def dataset_folder(self) -> Path | None:
        """Where the dataset was when the run was described; None if that is not known."""
        dataset = self.read_facts().get("dataset")
        folder = dataset.get("folder") if isinstance(dataset, dict) else None
        return Path(folder) if isinstance(folder, str) else None

    def machine_if(self, device: str) -> dict[str, Any]:
        """What run.json says of the machine and of how the run computed there; empty for another device."""
        machine = self.read_facts().get("machine")
        return machine if isinstance(machine, dict) and machine.get("device") == device else {}

    def threads_on(self, device: str) -> int | None:
        """With how many threads the run has computed, if it was on this device."""
        threads = self.machine_if(device).get("threads")
        return threads if isinstance(threads, int) and threads > 0 else None

    def rebuild_log(self) -> None:
        """Makes log.txt again from the metrics."""
        replace_text(self.log_path, log_text(read_metrics(self.metrics_path)))

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
        with file.open("rb") as opened:
            name = opened.read(_LONGEST_NAME).decode("utf-8", errors="replace").strip()
        return name if CHECKPOINT_NAME.fullmatch(name) and (self.checkpoints / name).is_dir() else None

    def point(self, pointer: str, checkpoint: str) -> None:
        """Makes `last` or `best` name a checkpoint."""
        replace_text(self.checkpoints / pointer, f"{checkpoint}\n")

    def remove_checkpoint(self, name: str) -> None:
        """Removes a checkpoint; its name goes first, so that a half-removed one is never seen."""
        doomed = self.checkpoints / f".{name}.removed"
        (self.checkpoints / name).rename(doomed)
        shutil.rmtree(doomed)

    def put_checkpoint(self, beside: Path, name: str) -> None:
        """Gives a written and flushed folder its name as a checkpoint.

        One of that name steps aside first and goes only when the new one is in its place, so that a crash in
        between leaves one of the two for `restore_replaced`.
        """
        final, aside = self.checkpoints / name, self.checkpoints / f".{name}{_REPLACED}"
        if final.exists():
            final.rename(aside)
        beside.rename(final)
        sync_folder(self.checkpoints)
        shutil.rmtree(aside, ignore_errors=True)

    def restore_replaced(self) -> None:
        """Puts back what a killed process had set aside for a checkpoint that it did not finish."""
        for aside in self.checkpoints.glob(f".*{_REPLACED}"):
            name = aside.name.removeprefix(".").removesuffix(_REPLACED)
            if not (self.checkpoints / name).exists():
                aside.rename(self.checkpoints / name)

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
