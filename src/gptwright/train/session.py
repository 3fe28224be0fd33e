"""Everything a run needs, checked (`checks`) and built before the first step.

Nothing is written before every check has passed.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gptwright.arithmetic.cut import Cut
from gptwright.arithmetic.parameters import ParameterCount
from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import LoadedConfig
from gptwright.config.pretrained import GPT2_PADDED_VOCABULARY, GPT2_VOCABULARY
from gptwright.config.schema import TrainConfig, warnings_of
from gptwright.data.dataset import TokenDataset
from gptwright.data.sampling import WindowSampler
from gptwright.data.tokenizers import Tokenizer
from gptwright.facts import Fact, Origin
from gptwright.hardware.detect import Device, idle_warnings
from gptwright.hardware.heap import keep_freed_memory
from gptwright.hardware.probe import measure_matmul_peak
from gptwright.interop.foreign import ForeignModel, put_weights
from gptwright.model.gpt import GPT
from gptwright.optim.optimizers import Optimizer, build_optimizer
from gptwright.plan.plan import Plan
from gptwright.record.run import RunFolder
from gptwright.train.checks import Checked, Data, check
from gptwright.train.precision import Precision, orthogonalizing_dtype
from gptwright.train.products import Choice, Way, choose_way
from gptwright.train.promise import promise_of
from gptwright.train.replica import Replica, build_replica, choose_parallel, parallel_facts
from gptwright.train.start import require_same_tokenizer, weights_facts
from gptwright.train.startup import startup_facts
from gptwright.train.threads import OthersLoad, Pass, choose_threads
from gptwright.train.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A run ready to train.

    Attributes:
        config: the settings.
        world: the processes that train it.
        cut: this process's part of a step.
        dataset: its tokens.
        precision: device and dtype.
        model: the model itself, for weights and checkpoints.
        replica: the model as this process runs it.
        optimizer: AdamW over the model, or Muon with it.
        scaler: for float16; it does nothing for the others.
        sampler: this process's share of the batch of any step.
        parameters: counted by part.
        vocab_size: rows of the token embedding.
        id_limit: every id of the data is below it.
        peak_flops: measured matrix-multiply rate of all processes in FLOP/s, the denominator of MFU.
        promise: what the plan says of this run.
        facts: the start-up table.
        warnings: settings that rarely mean what was wanted.
    """

    config: TrainConfig
    world: World
    cut: Cut
    dataset: TokenDataset
    precision: Precision
    model: GPT
    replica: Replica
    optimizer: Optimizer
    scaler: torch.amp.GradScaler
    sampler: WindowSampler
    parameters: ParameterCount
    vocab_size: int
    id_limit: int
    peak_flops: float
    promise: Plan
    facts: list[Fact]
    warnings: list[str]

    @property
    def forward(self) -> Callable[..., Tensor]:
        """The model as it is called: compiled or not, alone or with others."""
        return self.replica.forward

    @property
    def compiled(self) -> bool:
        """Whether the model, or each of its blocks, is compiled."""
        return self.replica.compiled


def build_session(
    loaded: LoadedConfig,
    *,
    dataset_folder: Path | None = None,
    start: ForeignModel | None = None,
    world: World | None = None,
    before: RunFolder | None = None,
) -> Session:
    """Checks a config against this machine and its dataset, and builds model and optimizer.

    Args:
        loaded: the settings with their sources.
        dataset_folder: where a resumed run found its dataset, used if the name no longer leads there.
        start: weights to begin with, of the shape that the settings have; the first process's are taken.
        world: the processes that train it, each of which calls this; this one alone if None.
        before: the run that goes on.

    Raises:
        GptwrightError: of the kind of whatever is wrong.
    """
    config, world, load = loaded.config, world or World(), OthersLoad()
    checked = check(config, dataset_folder, world)
    data, device = checked.data, checked.device
    how = _choose_computation(config, checked, world, before)
    model = _build_model(how.shape, config.seed)
    threads = _choose_threads(config, model, how.precision, load if world.size == 1 else None, before)
    peak_flops = _sum_of_peaks(_peak_of_this_process(how.precision), world)
    promise = _promise(loaded, data, how, world, peak_flops)
    parallel = choose_parallel(config, world, promise)
    if world.from_first(lambda: _put_start(model, start, data.dataset)):
        for parameter in model.parameters():
            world.broadcast(parameter.detach())
    replica = build_replica(model, parallel=parallel[0], compiled=how.compiled, device=device, world=world)
    sampler = _build_sampler(config, data, checked.cut)
    facts = _facts(loaded, data, how, threads, sampler=sampler, peak_flops=peak_flops)
    weights = [] if start is None else weights_facts(start)
    return Session(
        config=config,
        world=world,
        cut=checked.cut,
        dataset=data.dataset,
        precision=how.precision,
        model=model,
        replica=replica,
        optimizer=_build_optimizer(model, config, device),
        scaler=how.precision.scaler(),
        sampler=sampler,
        parameters=how.shape.count_parameters(),
        vocab_size=data.vocab_size,
        id_limit=data.id_limit,
        peak_flops=peak_flops,
        promise=promise,
        facts=[*facts, *weights, *parallel_facts(config, world, parallel, device)],
        warnings=[
            *warnings_of(config),
            *idle_warnings(device, asked=config.device, processes=world.size),
        ],
    )


@dataclass(frozen=True, slots=True)
class _Computation:
    """How a step is computed: the precision, whether it is compiled, the shape with the way that was chosen
    for it (None where there was nothing to choose), and all of this as facts.
    """

    precision: Precision
    compiled: bool
    shape: ModelShape
    chosen: Choice | None
    choices: list[Fact]


def _choose_computation(
    config: TrainConfig, checked: Checked, world: World, before: RunFolder | None
) -> _Computation:
    """The first process's way of computing, for all; what was checked where there is none to choose."""
    device, shape, precision, choices = checked.device, checked.shape, checked.precision, checked.choices
    machine = {} if before is None else before.machine_if(device.name)
    chosen = _way_of_first(world, lambda: choose_way(config, shape, device, before=machine))
    if chosen is not None:
        precision = Precision(device, chosen.way.dtype)
        shape = ModelShape.of(chosen.way.applied(config), checked.data.vocab_size)
        choices = [*chosen.facts(), *(choice for choice in choices if choice.name != "dtype")]
        if shape.keeps_freed_memory:
            keep_freed_memory()
    return _Computation(precision, checked.compiled, shape, chosen, choices)


def _way_of_first(world: World, choose: Callable[[], Choice | None]) -> Choice | None:
    """What the first process chose, in all of them."""

    def told() -> list[Any] | None:
        chosen = choose()
        if chosen is None:
            return None
        return [astuple(chosen.way), chosen.origin, chosen.reason]

    heard = world.from_first(told)
    return None if heard is None else Choice(Way(*heard[0]), Origin(heard[1]), heard[2])


def tokenizer_of(session: Session) -> Tokenizer | None:
    """The tokenizer that a run keeps, or None where the dataset does not tell which it was.

    A folder without a vocabulary is taken for GPT-2's, as nanoGPT does, unless the config says otherwise.
    """
    dataset = session.dataset
    another = dataset.assumed and session.vocab_size not in (GPT2_VOCABULARY, GPT2_PADDED_VOCABULARY)
    return None if another or dataset.tokenizer_kind == "unknown" else dataset.tokenizer()


def _build_sampler(config: TrainConfig, data: Data, cut: Cut) -> WindowSampler:
    return WindowSampler(
        data.dataset.splits["train"],
        block_size=config.block_size,
        sequences_per_step=config.sequences_per_step,
        seed=config.seed,
        mode=config.sampling,
        vocab_limit=data.id_limit,
        rows=cut.share,
    )


def _choose_threads(
    config: TrainConfig, model: GPT, precision: Precision, load: OthersLoad | None, before: RunFolder | None
) -> list[Fact]:
    """The number of threads, set and as a fact; nothing where the device is no CPU."""
    threads = choose_threads(
        model,
        precision,
        load,
        Pass(rows=config.batch_size, context=config.block_size, learns=True),
        asked=config.threads,
        before=None if before is None else before.threads_on(precision.device.name),
    )
    return [] if threads is None else [threads]


def _promise(loaded: LoadedConfig, data: Data, how: _Computation, world: World, peak_flops: float) -> Plan:
    """The plan of a run that computes so."""
    return promise_of(
        loaded,
        data.dataset,
        data.vocabulary,
        world=world,
        precision=how.precision,
        choice=how.chosen,
        peak_flops=peak_flops,
    )


def _facts(
    loaded: LoadedConfig,
    data: Data,
    how: _Computation,
    threads: list[Fact],
    *,
    sampler: WindowSampler,
    peak_flops: float,
) -> list[Fact]:
    """The start-up table of one process, without foreign weights."""
    return startup_facts(
        loaded,
        device=how.precision.device,
        choices=[*how.choices, *threads],
        dataset=data.dataset,
        shape=how.shape,
        vocabulary=data.vocabulary,
        sampler=sampler,
        peak_flops=peak_flops,
    )


def _build_model(shape: ModelShape, seed: int) -> GPT:
    """Weights are drawn on the CPU, so that a seed means the same model on every device."""
    torch.manual_seed(seed)
    return GPT(shape)


def _build_optimizer(model: GPT, config: TrainConfig, device: Device) -> Optimizer:
    matmul_dtype = orthogonalizing_dtype(device)
    return build_optimizer(model, config, fused=device.type != "mps", matmul_dtype=matmul_dtype)


def _put_start(model: GPT, start: ForeignModel | None, dataset: TokenDataset) -> bool:
    """Gives a model the weights to begin with, if there are any; whether there are."""
    if start is None:
        return False
    require_same_tokenizer(start.tokenizer, start.origin, dataset)
    put_weights(model, start)
    return True


def _peak_of_this_process(precision: Precision) -> float:
    """FLOP/s of matrix products in the run's dtype, on a CPU with the threads that were chosen."""
    threads = torch.get_num_threads() if precision.device.type == "cpu" else None
    return measure_matmul_peak(precision.device, precision.torch_dtype, threads=threads)


def _sum_of_peaks(own: float, world: World) -> float:
    return float(world.sum(torch.tensor(own, dtype=torch.float64)))
