"""A trained model out of a run folder, ready to generate or to be measured."""

from gptwright.arithmetic.shape import ModelShape
from gptwright.data.tokenizers import Tokenizer, load_tokenizer
from gptwright.errors import CheckpointError
from gptwright.hardware.detect import Device
from gptwright.model.gpt import GPT
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import load_weights
from gptwright.train.seal import verified_payload


def load_model(run: RunFolder, *, checkpoint: str | None, device: Device) -> tuple[GPT, Tokenizer, str]:
    """The model of a checkpoint in eval mode, the run's tokenizer, and the checkpoint's name.

    Args:
        run: an existing run.
        checkpoint: a name, `last` or `best`; None takes the best, else the last.
        device: where the model goes.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    names = [checkpoint] if checkpoint else ["best", "last"]
    candidates = (run.pointed(name) if name in ("best", "last") else name for name in names)
    name = next((c for c in candidates if c in run.checkpoint_names()), None)
    if name is None:
        raise CheckpointError(
            f"{run.path} has no checkpoint" + (f" {checkpoint!r}" if checkpoint else " yet"),
            fix=f"it has {', '.join(run.checkpoint_names())}"
            if run.checkpoint_names()
            else f"`gptwright resume {run.path}` trains until there is one",
        )
    if not run.tokenizer_path.is_file():
        raise CheckpointError(
            f"{run.path} has no tokenizer.json",
            why="its dataset gave a vocabulary's size but no vocabulary, so ids cannot become text",
            fix="train on a dataset with a vocabulary; `gptwright prepare` makes one",
        )
    payload = verified_payload(run, name)
    config = run.load_config().config
    model = GPT(ModelShape.of(config, payload["fixed"]["vocab_size"]))
    load_weights(model, run.checkpoints / name)
    model.to(device.torch_device).eval()
    return model, load_tokenizer(run.tokenizer_path), name
