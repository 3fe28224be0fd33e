"""One file a trainer: from a truth to the lines that it prints."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tests.simulator.run import Handover
from tests.simulator.truth import Truth
from tests.simulator.writers import (
    build_nanogpt,
    hf,
    litgpt,
    llama2c,
    llmc,
    modded,
    nanochat,
    nanogpt,
    ours,
    torchtitan,
)
from tests.simulator.writers.lines import Written

Writer = Callable[[Truth, Handover, np.random.Generator], Written]

WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        "nanogpt": nanogpt.write,
        "llama2c": llama2c.write,
        "build-nanogpt": build_nanogpt.write,
        "nanochat": nanochat.write,
        "modded": modded.write_older,
        "modded-current": modded.write_current,
        "llmc": llmc.write,
        "litgpt": litgpt.write,
        "hf": hf.write,
        "hf-state": hf.write_state,
        "torchtitan": torchtitan.write,
        "ours": ours.write,
    }
)
