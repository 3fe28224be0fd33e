"""What a path or name stands for: a nanoGPT checkpoint, a Hugging Face folder, an llm.c model, a GPT-2."""

from collections.abc import Callable
from pathlib import Path

from gptwright.config.pretrained import GPT2_MODELS
from gptwright.errors import CheckpointError
from gptwright.interop.foreign import ForeignModel
from gptwright.interop.gpt2_folder import CONFIG_NAME, read_gpt2_folder
from gptwright.interop.hub import fetch_gpt2
from gptwright.interop.llmc import is_llmc, read_llmc
from gptwright.interop.nanogpt import FILE_NAME, read_nanogpt


def open_foreign(source: str, *, say: Callable[[str], None], with_optimizer: bool = True) -> ForeignModel:
    """Reads a model from elsewhere.

    Args:
        source: a file, a folder, or the name of one of OpenAI's GPT-2 models.
        say: told what is downloaded and how big it is, before that starts.
        with_optimizer: whether an optimizer's state is wanted.

    Raises:
        CheckpointError: it is none of the kinds that are read, or not whole.
        DataError: a download failed.
    """
    path = Path(source)
    if path.is_file():
        _require_readable_kind(path)
        return read_llmc(path) if is_llmc(path) else read_nanogpt(path, with_optimizer=with_optimizer)
    if (path / FILE_NAME).is_file():
        return read_nanogpt(path / FILE_NAME, with_optimizer=with_optimizer)
    if (path / CONFIG_NAME).is_file():
        return read_gpt2_folder(path)
    if source in GPT2_MODELS:
        return read_gpt2_folder(fetch_gpt2(source, say), name=f"OpenAI's {source}")
    raise CheckpointError(
        f"{source} is nothing that can be imported",
        why=f"read are nanoGPT's {FILE_NAME} or its folder, a folder of Hugging Face's with {CONFIG_NAME},"
        f" a model file of llm.c, and the names {', '.join(GPT2_MODELS)}",
        fix="give one of them",
    )


def _require_readable_kind(path: Path) -> None:
    """Refuses by name what holds weights in a form that is not read: "no zip archive" would not help."""
    with path.open("rb") as file:
        begins = file.read(4)
    if begins == b"GGUF":
        raise CheckpointError(
            f"{path} is a GGUF file, which is written here and not read",
            why="most of them hold rounded weights, and their tokenizer is in llama.cpp's own form",
            fix=f"import what it was made from: nanoGPT's {FILE_NAME} or a folder of Hugging Face's",
        )
    if path.suffix == ".safetensors":
        raise CheckpointError(
            f"{path} is the weights alone",
            why=f"what shape they make stands in the {CONFIG_NAME} beside them",
            fix="give its folder",
        )
