"""A run in another format: one folder, whole or absent."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptwright.files import disk_full_as_error
from gptwright.interop.gguf_file import write_gguf
from gptwright.interop.gpt2_export import write_gpt2_folder
from gptwright.interop.nanogpt import write_nanogpt
from gptwright.interop.trained import TrainedRun, claim_folder, require_gpt2

WRITERS = {"hf": write_gpt2_folder, "nanogpt": write_nanogpt, "gguf": write_gguf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written.

    Attributes:
        run: what it was made from.
        form: `hf`, `nanogpt` or `gguf`.
        out: the folder.
        files: names and bytes, in order.
        notes: what a person should know.
    """

    run: TrainedRun
    form: str
    out: Path
    files: dict[str, int]
    notes: list[str]

    def document(self) -> dict[str, Any]:
        """What `export --json` prints."""
        return {
            "schema": "gptwright.export/1",
            "run": str(self.run.path),
            "checkpoint": self.run.checkpoint,
            "step": self.run.step,
            "format": self.form,
            "out": str(self.out),
            "files": self.files,
            "notes": self.notes,
        }


def export_run(run: TrainedRun, form: str, out: Path) -> Exported:
    """Writes a run in another format.

    Args:
        run: the checkpoint.
        form: `hf`, `nanogpt` or `gguf`.
        out: the folder, which must be new or empty.

    Raises:
        RunError: the folder is taken, or the format has no such model.
        DiskFullError: there is no room; nothing half-written is left.
    """
    require_gpt2(run.config, run.path)
    claim_folder(out)
    try:
        with disk_full_as_error(out):
            notes = WRITERS[form](run, out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    files = {path.name: path.stat().st_size for path in sorted(out.iterdir())}
    return Exported(run=run, form=form, out=out, files=files, notes=notes)
