"""Making a run of a model from elsewhere, with a checkpoint that `resume` goes on from.

The checkpoint is written by the same code as every other, so there is one format and one reader. Where the
dataset is known, the run belongs to it from the start; where it is not, the first resume decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import gptwright
from gptwright.config.load import LoadedConfig, Setting, check_settings
from gptwright.config.pretrained import GPT2_PADDED_VOCABULARY, GPT2_VOCABULARY
from gptwright.config.schema import TrainConfig
from gptwright.data.dataset import TokenDataset, open_dataset
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.data.tokenizers import Gpt2Tokenizer
from gptwright.errors import CheckpointError, DataError
from gptwright.files import replace_bytes, replace_text
from gptwright.interop.foreign import ForeignModel, Moments, put_weights, shape_settings
from gptwright.model.gpt import GPT
from gptwright.optim.optimizers import Optimizer, build_optimizer
from gptwright.record.log_text import log_text
from gptwright.record.metrics import MetricsFile, read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import (
    Checkpointed,
    CheckpointInfo,
    fixed_settings,
    take_snapshot,
    write_checkpoint,
)
from gptwright.train.description import dataset_facts
from gptwright.train.start import require_same_tokenizer
from gptwright.train.state import TrainState

# The default of the schema is nobody's choice, and a folder of that name may lie here by chance.
NO_DATASET = "nothing says on which data it was trained; the first resume --dataset=NAME decides"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A run that was made of a model from elsewhere.

    Attributes:
        run: its folder.
        foreign: what it was made of.
        config: its settings.
        dataset: what it goes on with; None where that is still open.
        tokenizer: None where nothing tells it.
        notes: what a person should know.
    """

    run: RunFolder
    foreign: ForeignModel
    config: TrainConfig
    dataset: TokenDataset | None
    tokenizer: Tokenizer | None
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """What `import --json` prints."""
        shape = self.foreign.shape
        return {
            "schema": "gptwright.import/1",
            "run": str(self.run.path),
            "origin": self.foreign.origin,
            "parameters": shape.count_parameters().nanogpt,
            "shape": f"{shape.n_layer} layers, {shape.n_head} heads, width {shape.n_embd},"
            f" context {shape.block_size}, vocabulary {shape.vocab_size:,}",
            "step": self.foreign.step,
            "best_val_loss": self.foreign.best_val_loss,
            "optimizer": self.foreign.moments is not None,
            "dataset": str(self.dataset.folder) if self.dataset is not None else None,
            "tokenizer": self.tokenizer.kind if self.tokenizer is not None else None,
            "notes": list(self.notes),
        }


def adopt(foreign: ForeignModel, out: Path, given: Mapping[str, Setting]) -> Adopted:
    """Writes a run folder for a model from elsewhere.

    Args:
        foreign: the model.
        out: the folder, which must be free.
        given: settings that somebody gave; they win over those that came with the model.

    Raises:
        GptwrightError: of the kind of whatever is wrong; nothing was written then.
    """
    run = RunFolder(out)
    run.require_free()
    config = _config(foreign, out, given).config
    named = "dataset" in given or "dataset" in foreign.settings
    dataset, notes = _dataset(config, required="dataset" in given) if named else (None, (NO_DATASET,))
    if dataset is not None:
        require_same_tokenizer(foreign.tokenizer, foreign.origin, dataset)
    _require_room(foreign, dataset)
    tokenizer = _tokenizer(foreign, dataset)
    lock = run.create(config)
    try:
        _write(run, foreign, config, dataset, tokenizer)
    except BaseException:
        run.remove()
        raise
    finally:
        lock.release()
    return Adopted(
        run=run,
        foreign=foreign,
        config=config,
        dataset=dataset,
        tokenizer=tokenizer,
        notes=(*foreign.notes, *notes),
    )


def _config(foreign: ForeignModel, out: Path, given: Mapping[str, Setting]) -> LoadedConfig:
    """The run's settings: those of the model, then those that were given."""
    origin = foreign.origin
    settled = {name: Setting(value, origin) for name, value in shape_settings(foreign.shape).items()}
    contradicted = [name for name in settled if name in given and given[name].value != settled[name].value]
    if contradicted:
        name = contradicted[0]
        raise CheckpointError(
            f"{name} = {given[name].value!r}, and {origin} has {name} = {settled[name].value!r}",
            why="an imported model has the shape of its weights",
            fix=f"leave {name} out",
        )
    theirs = {name: Setting(value, origin) for name, value in foreign.settings.items()}
    place = {"out_dir": Setting(str(out), "option")}
    return check_settings(theirs | dict(given) | settled | place)


def _dataset(config: TrainConfig, *, required: bool) -> tuple[TokenDataset | None, tuple[str, ...]]:
    """The dataset that the settings name, if it is here; one that was asked for must be."""
    try:
        return open_dataset(config.dataset), ()
    except DataError:
        if required:
            raise
    note = f"its dataset {config.dataset!r} is not here; resume with --dataset=NAME when it is"
    return None, (note,)


def _require_room(foreign: ForeignModel, dataset: TokenDataset | None) -> None:
    if dataset is not None and not dataset.assumed and dataset.vocab_size > foreign.shape.vocab_size:
        raise DataError(
            f"{dataset.folder} has {dataset.vocab_size} ids, and the model of {foreign.origin} has"
            f" {foreign.shape.vocab_size}",
            why="the model was trained on another vocabulary",
            fix="give the dataset that it was trained on",
        )


def _tokenizer(foreign: ForeignModel, dataset: TokenDataset | None) -> Tokenizer | None:
    """The model's own, else its dataset's, else GPT-2's where the vocabulary has that size."""
    gpt2_sized = foreign.shape.vocab_size in (GPT2_VOCABULARY, GPT2_PADDED_VOCABULARY)
    if foreign.tokenizer is not None:
        return foreign.tokenizer
    if dataset is not None and dataset.tokenizer_kind != "unknown" and (gpt2_sized or not dataset.assumed):
        return dataset.tokenizer()
    return Gpt2Tokenizer() if gpt2_sized else None


def _write(
    run: RunFolder,
    foreign: ForeignModel,
    config: TrainConfig,
    dataset: TokenDataset | None,
    tokenizer: Tokenizer | None,
) -> None:
    if tokenizer is not None:
        replace_bytes(run.tokenizer_path, tokenizer.to_bytes())
    run.write_facts(_facts(foreign, dataset))
    metrics = MetricsFile(run.metrics_path, keep_bytes=0)
    try:
        metrics.append(
            "import",
            {"step": foreign.step, "origin": foreign.origin, "best_val_loss": foreign.best_val_loss},
        )
        metrics.sync()
        length = metrics.length
    finally:
        metrics.close()
    replace_text(run.log_path, log_text(read_metrics(run.metrics_path)))
    model = GPT(foreign.shape)
    put_weights(model, foreign)
    optimizer = build_optimizer(model, config, fused=False)
    if foreign.moments is not None and config.optimizer == "adamw":
        _put_moments(model, optimizer, foreign.moments)
    best = foreign.step if foreign.is_best and foreign.best_val_loss is not None else None
    snapshot = take_snapshot(
        TrainState(step=foreign.step, best_val_loss=foreign.best_val_loss, best_step=best),
        Checkpointed(
            model=model,
            optimizer=optimizer,
            scaler=torch.amp.GradScaler("cpu", enabled=False),
            fixed=fixed_settings(config, foreign.shape.vocab_size),
            dataset_fingerprint=dataset.fingerprint if dataset is not None else "",
        ),
        CheckpointInfo(metrics_bytes=length),
        copied=False,
    )
    name = write_checkpoint(run, snapshot)
    if best is not None:
        run.point("best", name)


def _facts(foreign: ForeignModel, dataset: TokenDataset | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "schema": "gptwright.run/1",
        "gptwright": gptwright.__version__,
        "imported": {"origin": foreign.origin, "step": foreign.step, "notes": list(foreign.notes)},
    }
    if dataset is not None:
        facts["dataset"] = dataset_facts(dataset)
    return facts


def _put_moments(model: GPT, optimizer: Optimizer, moments: Moments) -> None:
    for name, parameter in model.named_parameters():
        mine = {"exp_avg": moments.exp_avg[name], "exp_avg_sq": moments.exp_avg_sq[name]}
        optimizer.restore(parameter, mine, moments.step)
