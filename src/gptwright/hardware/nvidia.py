"""The NVIDIA GPUs of this machine, without torch: their names, in the order in which CUDA numbers them.

CUDA numbers the fastest card first unless CUDA_DEVICE_ORDER is PCI_BUS_ID, which is nvidia-smi's order, and
CUDA_VISIBLE_DEVICES picks among those, by number or by how a UUID begins, up to the first that is not there
(NVIDIA's CUDA programming guide, environment variables).
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator

from gptwright.hardware.table import find_spec

PATIENCE_SECONDS = 5.0


def visible_cards() -> tuple[str, ...]:
    """The names of the cards that a process of this environment sees; a part of a card goes by its UUID."""
    cards = list(_cards())
    if os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        cards.sort(key=lambda card: _rate(card[0]), reverse=True)
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(name for name, _ in cards) if asked is None else tuple(_picked(cards, asked))


def _picked(cards: list[tuple[str, str]], asked: str) -> Iterator[str]:
    for entry in map(str.strip, asked.split(",")):
        if entry.isdecimal() and int(entry) < len(cards):
            yield cards[int(entry)][0]
        elif entry.startswith("MIG-"):
            yield entry
        elif entry.startswith("GPU-") and (found := [name for name, uuid in cards if uuid.startswith(entry)]):
            yield found[0]
        else:
            return


def _rate(name: str) -> float:
    """How fast a card is on paper; one that the table does not have comes last."""
    match = find_spec(name)
    return match.spec.peaks[match.spec.training_dtype] if match is not None else 0.0


@functools.lru_cache
def _cards() -> tuple[tuple[str, str], ...]:
    """Name and UUID of each, as the driver lists them."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    query = [command, "--query-gpu=name,uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [line.rpartition(",") for line in answer.splitlines() if "," in line]
    return tuple((name.strip(), uuid.strip()) for name, _, uuid in rows)
