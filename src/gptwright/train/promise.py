"""What the plan promises of a run that is about to start, and what the process measures of it at the end."""

import sys
from dataclasses import replace
from typing import cast

import psutil
import torch

from gptwright import units
from gptwright.config.load import LoadedConfig
from gptwright.data.dataset import TokenDataset
from gptwright.facts import Fact, Origin, stated
from gptwright.hardware.detect import Device
from gptwright.plan.plan import Plan, make_plan
from gptwright.train.precision import Precision
from gptwright.train.products import Choice, Dtype
from gptwright.train.world import World


def promise_of(
    loaded: LoadedConfig,
    dataset: TokenDataset,
    vocabulary: Fact,
    *,
    world: World,
    precision: Precision,
    choice: Choice | None,
    peak_flops: float,
) -> Plan:
    """The plan of a run on the devices and data that it really has.

    Processes on one CPU share it, so that they are one device.

    Args:
        loaded: the settings.
        dataset: what it trains on.
        vocabulary: rows of the token embedding.
        world: the processes that train.
        precision: this one's device, and the dtype of the products.
        choice: how a CPU multiplies, where that was chosen; a plan by itself only expects a way.
        peak_flops: measured in that dtype, FLOP/s of all processes together, with the threads that they
            compute with.
    """
    config = loaded.config
    devices = world.hosts if precision.device.type == "cpu" else world.size
    facts = {
        "vocab_size": vocabulary,
        "device_count": stated("device_count", devices),
        "dataset": stated("dataset", dataset.name),
        "train_tokens": stated("train_tokens", dataset.splits["train"].tokens, unit="tokens"),
    }
    # Our own kernels are always somebody's choice; what a plan expects of them is settled here.
    config = replace(config, kernels=False) if choice is None else choice.way.applied(config)
    if precision.device.type == "cpu":
        threads = torch.get_num_threads() * world.size // devices
        config = replace(config, dtype=cast(Dtype, precision.dtype), threads=threads)
        facts["peak_flops"] = _peak(peak_flops / devices, precision.dtype)
    return make_plan(config, facts, sources=loaded.sources)


def _peak(rate: float, dtype: str) -> Fact:
    return Fact(
        name="peak_flops",
        value=rate,
        text=units.flops_rate(rate),
        origin=Origin.MEASURED,
        reason=f"fastest {dtype} matrix product just now",
        source="derived",
    )


def peak_memory_bytes(device: Device) -> int | None:
    """The most memory that this process has used: of the device's own, or of the machine's for a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device.torch_device))
    if device.type == "mps":
        return None
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return int(peak if sys.platform == "darwin" else peak * 1024)
