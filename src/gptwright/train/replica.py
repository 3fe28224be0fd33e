"""How a model is spread over processes: a whole copy in each (DDP), or a part of everything (FSDP2).

`ddp`: every process holds all weights, gradients and moments, and gradients are averaged once a step, while
the backward pass of the last micro-batch still runs; the micro-batches before exchange nothing.

`fsdp`: weights, gradients and moments are divided over the processes, so that each holds 16 bytes a parameter
over their number. A block's weights are gathered when its forward and its backward pass need them, and
gradients are reduced into their shards in every micro-batch: kept whole until the last one they would cost
the memory that sharding is there to save.

Weights are drawn in main memory from the seed, in every process the same, and go to the device block by
block, so that a device never holds more than its part and one block.

Sources: Li et al. 2020 (DDP, arXiv 2006.15704); Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054);
torch.distributed.fsdp.fully_shard.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gptwright.arithmetic.cut import shares
from gptwright.config.schema import TrainConfig
from gptwright.errors import ConfigError, DeviceError
from gptwright.facts import Fact, Origin
from gptwright.hardware.detect import Device
from gptwright.model.gpt import GPT
from gptwright.plan.plan import Plan
from gptwright.train.world import World

# Buffers are constants here, the same in every copy. torch 2.13 gave the setting another name.
BUFFERS_SETTING = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)


@dataclass(frozen=True, slots=True)
class Replica:
    """A model as one process runs it.

    Attributes:
        forward: the model as it is called.
        sharded: whether its parameters are parts, which are whole only while they are used.
        averaging: the wrapper that averages gradients, in `ddp`.
        compiled: whether the model, or each of its blocks, is compiled.
    """

    forward: Callable[..., Tensor]
    sharded: bool = False
    averaging: DistributedDataParallel | None = None
    compiled: bool = False

    def average_next(self, average: bool) -> None:
        """Whether the next backward pass averages what has been accumulated over the processes."""
        if self.averaging is not None:
            self.averaging.require_backward_grad_sync = average


def choose_parallel(config: TrainConfig, world: World, promise: Plan) -> tuple[str, str]:
    """`ddp`, `fsdp` or `none` for one process, and why.

    Raises:
        ConfigError: the optimizer needs what `fsdp` divides.
    """
    if world.size == 1:
        return "none", "one process has nothing to share"
    if config.parallel == "fsdp" and config.optimizer == "muon":
        raise ConfigError(
            "parallel = 'fsdp' with optimizer = 'muon'",
            why="Muon orthogonalizes whole matrices, and each process would hold some of their rows",
            fix="--parallel=ddp, or --optimizer=adamw",
        )
    if config.parallel != "auto":
        return config.parallel, "asked for"
    if config.optimizer == "muon":
        return "ddp", "Muon needs whole matrices"
    if promise.largest_micro_batch == 0:
        return "fsdp", "a whole copy does not fit one device, by the plan"
    return "ddp", "a whole copy fits one device, and gradients alone travel"


def build_replica(model: GPT, *, parallel: str, compiled: bool, device: Device, world: World) -> Replica:
    """Puts a model that was built in main memory onto this process's device.

    Args:
        model: its parameters are replaced by their parts for `fsdp`.
        parallel: `none`, `ddp` or `fsdp`.
        compiled: whether it is compiled; under `fsdp` block by block, because gathering is not compiled.
        device: this process's.
        world: the processes.

    Raises:
        DeviceError: not even the weights fit there.
    """
    try:
        return _built(model, parallel=parallel, compiled=compiled, device=device, world=world)
    except RuntimeError as error:
        # CUDA's allocator and Apple's both say so in these words.
        if "out of memory" not in str(error):
            raise
        raise DeviceError(
            f"the weights of this model alone do not fit {device.name}",
            why=str(error).splitlines()[0],
            fix="a smaller model, a device that nobody else fills, or several with --parallel=fsdp",
        ) from None


def _built(model: GPT, *, parallel: str, compiled: bool, device: Device, world: World) -> Replica:
    if parallel == "fsdp":
        _shard(model, compiled=compiled, device=device, world=world)
        return Replica(model, sharded=True, compiled=compiled)
    model.to(device.torch_device)
    forward = model.compiled() if compiled else model
    if parallel == "none":
        return Replica(forward, compiled=compiled)
    devices = [device.torch_device] if device.type == "cuda" else None
    settings: dict[str, Any] = {"device_ids": devices, BUFFERS_SETTING: False}
    averaging = DistributedDataParallel(cast("nn.Module", forward), **settings)
    return Replica(averaging, averaging=averaging, compiled=compiled)


def _shard(model: GPT, *, compiled: bool, device: Device, world: World) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (world.size,))
    for block in model.transformer["h"].children():
        if compiled:
            block.compile(dynamic=False)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def parallel_facts(
    config: TrainConfig, world: World, parallel: tuple[str, str], device: Device
) -> list[Fact]:
    """What the start-up table says about several processes; nothing for one."""
    if world.size == 1:
        return []
    smallest, largest = shares(config.sequences_per_step, world.size)
    share = str(largest) if smallest == largest else f"{smallest} or {largest}"
    # As torchrun's processes are connected in `gptwright.train.distributed`.
    backend = "NCCL" if device.type == "cuda" and dist.is_nccl_available() else "gloo"
    hosts = f"{world.hosts} host{'s' if world.hosts > 1 else ''}"
    return [
        _derived("processes", world.size, f"{world.size} on {hosts}, over {backend}", "torchrun"),
        _derived("parallel used", parallel[0], parallel[0], parallel[1]),
        _derived(
            "sequences a process",
            largest,
            share,
            f"{config.sequences_per_step} of a step over {world.size} processes; tokens per step stay",
        ),
        _derived(
            "out of memory",
            "stop",
            "stops the run",
            "the micro-batch is not shrunk: all processes would have to do it at the same step",
        ),
    ]


def _derived(name: str, value: int | str, text: str, reason: str) -> Fact:
    return Fact(name=name, value=value, text=text, origin=Origin.DERIVED, reason=reason)
