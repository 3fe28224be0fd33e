"""Finds the folder that a config's `dataset` means, or says what is there instead."""

import difflib
from pathlib import Path

from gptwright.data.headed import read_header
from gptwright.data.manifest import MANIFEST_NAME
from gptwright.errors import DataError, typed

NANOGPT_TRAIN = "train.bin"

# How nanoGPT's own dataset names are prepared here, with its numbers.
_NANOGPT_COMMANDS = {
    "shakespeare_char": "gptwright prepare shakespeare --tokenizer char --split nanogpt --out {out}",
    "shakespeare": "gptwright prepare shakespeare --tokenizer gpt2 --split nanogpt --out {out}",
}


def locate(dataset: str, root: Path) -> Path:
    """The folder of a dataset: a name under `root/data`, as nanoGPT has it, or a path.

    Raises:
        DataError: there is none; what is there and the command that makes it are named.
    """
    folder = root / "data" / dataset
    if not is_dataset(folder) and Path(dataset).is_dir():
        folder = Path(dataset)
    if is_dataset(folder):
        return folder
    if folder.is_dir():
        names = sorted(entry.name for entry in folder.iterdir())
        raise DataError(
            f"{folder} is not a token dataset: it has neither {MANIFEST_NAME} nor {NANOGPT_TRAIN}"
            f" (it holds {', '.join(names[:6]) or 'nothing'})",
            why="a trainer reads prepared token ids, not text",
            fix=_of_folder(dataset, folder, names),
        )
    if Path(dataset).is_file():
        text = Path(dataset)
        raise DataError(
            f"{text} is a file and not a token dataset",
            why="a trainer reads prepared token ids, not text",
            fix=f"gptwright prepare {typed(text)} --out {typed(root / 'data' / text.stem)},"
            f" then --dataset={text.stem}",
        )
    there = _datasets_under(root / "data")
    nearest = difflib.get_close_matches(Path(dataset).name, there, n=1)
    listing = (
        f"under {root / 'data'} are: {', '.join(there)}" if there else f"there are none under {root / 'data'}"
    )
    raise DataError(
        f"there is no dataset '{dataset}'; {listing}",
        fix=(f"did you mean '{nearest[0]}'? Or make it: " if nearest else "")
        + _command(dataset, folder if Path(dataset).parts == (dataset,) else Path(dataset)),
    )


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds token ids: ours, nanoGPT's, or llm.c's."""
    if (folder / MANIFEST_NAME).is_file() or (folder / NANOGPT_TRAIN).is_file():
        return True
    return any(read_header(path) is not None for path in sorted(folder.glob("*train*.bin"))[:1])


def _datasets_under(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if is_dataset(entry))


def _command(dataset: str, out: Path) -> str:
    command = _NANOGPT_COMMANDS.get(dataset, "gptwright prepare YOUR_TEXT.txt --out {out}")
    return command.format(out=typed(out.as_posix()))


def _of_folder(dataset: str, folder: Path, names: list[str]) -> str:
    """What makes a dataset of a folder that is there: nanoGPT's script in it, or a command of ours."""
    if "prepare.py" in names:
        return f"run its own script, python {typed(folder / 'prepare.py')}, or {_command(dataset, folder)}"
    # Ids beside text would be a corpus and a dataset in one.
    return _command(dataset, folder.with_name(f"{folder.name}-tokens") if names else folder)
