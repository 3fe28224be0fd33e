"""A trained model out of a run folder: ready to generate, or as bare tensors for an export."""

from collections.abc import Mapping

from torch import Tensor

from gptwright.arithmetic.shape import ModelShape
from gptwright.data.tokenizers import Tokenizer, load_tokenizer
from gptwright.errors import CheckpointError, typed
from gptwright.hardware.detect import Device
from gptwright.interop.foreign import Moments
from gptwright.interop.trained import TrainedRun
from gptwright.model.gpt import GPT
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.seal import verified_payload
from gptwright.train.tensors import load_weights, saved_tensors


def load_model(run: RunFolder, *, checkpoint: str | None, device: Device) -> tuple[GPT, Tokenizer, str]:
    """The model of a checkpoint in eval mode, the run's tokenizer, and the checkpoint's name.

    Args:
        run: an existing run.
        checkpoint: a name, `last` or `best`; None takes the best, else the last.
        device: where the model goes.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    name = chosen_checkpoint(run, checkpoint)
    tokenizer = tokenizer_of_run(run)
    if tokenizer is None:
        raise CheckpointError(
            f"{run.path} has no tokenizer.json",
            why="its dataset gave a vocabulary's size but no vocabulary, so ids cannot become text",
            fix="train on a dataset with a vocabulary; `gptwright prepare` makes one",
        )
    return load_checkpointed(run, name, device), tokenizer, name


def load_checkpointed(run: RunFolder, name: str, device: Device) -> GPT:
    """The model of a named checkpoint in eval mode.

    Raises:
        CheckpointError: it is damaged.
    """
    payload = verified_payload(run, name)
    config = run.load_config().config
    model = GPT(ModelShape.of(config, payload["fixed"]["vocab_size"]))
    load_weights(model, run.checkpoints / name)
    model.to(device.torch_device).eval()
    return model


def open_trained(run: RunFolder, *, checkpoint: str | None) -> TrainedRun:
    """A run's best, last or named checkpoint, verified, with the run's record.

    Args:
        run: an existing run.
        checkpoint: a name, `last` or `best`; None takes the best, else the last.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    name = chosen_checkpoint(run, checkpoint)
    payload = verified_payload(run, name)
    folder = run.checkpoints / name
    config = run.load_config().config
    weights, moments = saved_tensors(folder, moments=config.optimizer == "adamw")
    return TrainedRun(
        path=run.path,
        checkpoint=name,
        config=config,
        shape=ModelShape.of(config, payload["fixed"]["vocab_size"]),
        weights=weights,
        moments=_moments(moments, payload),
        step=payload["state"]["step"],
        best_val_loss=payload["state"]["best_val_loss"],
        tokenizer=tokenizer_of_run(run),
        facts=run.read_facts(),
        records=read_metrics(run.metrics_path) if run.metrics_path.is_file() else [],
    )


def chosen_checkpoint(run: RunFolder, asked: str | None) -> str:
    """The name of the checkpoint that is meant.

    Raises:
        CheckpointError: there is none of that name, or none at all.
    """
    names = [asked] if asked else ["best", "last"]
    candidates = (run.pointed(name) if name in ("best", "last") else name for name in names)
    name = next((c for c in candidates if c in run.checkpoint_names()), None)
    if name is None:
        raise CheckpointError(
            f"{run.path} has no checkpoint" + (f" {asked!r}" if asked else " yet"),
            fix=f"it has {', '.join(run.checkpoint_names())}"
            if run.checkpoint_names()
            else f"`gptwright resume {typed(run.path)}` trains until there is one",
        )
    return name


def tokenizer_of_run(run: RunFolder) -> Tokenizer | None:
    """The tokenizer that a run keeps; None where its dataset did not tell it."""
    return load_tokenizer(run.tokenizer_path) if run.tokenizer_path.is_file() else None


def _moments(tensors: Mapping[str, Tensor], payload: Mapping[str, object]) -> Moments | None:
    if not tensors:
        return None
    mean, square = (
        {
            name.removesuffix(f".{moment}"): tensor
            for name, tensor in tensors.items()
            if name.endswith(f".{moment}")
        }
        for moment in ("exp_avg", "exp_avg_sq")
    )
    return Moments(exp_avg=mean, exp_avg_sq=square, step=float(str(payload["optimizer_step"])))
