"""What an export is made from: one verified checkpoint of a run, with the run's record."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.schema import TrainConfig
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.errors import RunError
from gptwright.files import unwritable_as_error
from gptwright.interop.foreign import Moments
from gptwright.record.metrics import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRun:
    """A checkpoint, ready to be written in another format.

    Attributes:
        path: the run's folder.
        checkpoint: the checkpoint's name.
        config: the run's settings.
        shape: of the model.
        weights: float32 by nanoGPT's names; a tied matrix once, as `transformer.wte.weight`.
        moments: AdamW's; None before the first update, and with another optimizer.
        step: updates made.
        best_val_loss: lowest validation loss so far.
        tokenizer: None where the run does not know it.
        facts: run.json.
        records: metrics.jsonl up to the checkpoint and after.
    """

    path: Path
    checkpoint: str
    config: TrainConfig
    shape: ModelShape
    weights: Mapping[str, Tensor]
    moments: Moments | None
    step: int
    best_val_loss: float | None
    tokenizer: Tokenizer | None
    facts: Mapping[str, Any]
    records: list[Record]


def require_gpt2(config: TrainConfig, place: Path) -> None:
    """Refuses what no other program has an architecture for.

    Raises:
        RunError: the run's model is not GPT-2's.
    """
    # How weights began is no part of the model.
    changed = [name for name in config.ingredients.used() if name != "zero_init"]
    if changed:
        raise RunError(
            f"{place} holds a model with {', '.join(changed)}, which cannot be exported",
            why="these formats describe GPT-2's layers, and no architecture that other programs know has the"
            " layers of this one: read as any of them, the weights would speak nonsense",
            fix="gptwright sample, eval and resume work with it; to export, train with --arch=gpt2",
        )


def claim_folder(out: Path) -> None:
    """Makes an export's folder, which must be new or empty.

    Raises:
        RunError: something is there.
        OutputError: it cannot be made.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(
            f"{out} is already there",
            why="an export starts empty, so that nothing of yours is replaced or mixed with it",
            fix="choose another --out, or remove the folder",
        )
    with unwritable_as_error(out):
        out.mkdir(parents=True, exist_ok=True)
