"""Everything a run needs, checked and built before the first step.

All that can be wrong with the input is found here, in the order in which a person would mend it: device,
dataset, vocabulary, run folder. Nothing is written before every check has passed.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from gptwright.arithmetic.parameters import ParameterCount
from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import LoadedConfig
from gptwright.config.schema import TrainConfig, warnings_of
from gptwright.data.dataset import TokenDataset, check_ids, open_dataset, require_windows
from gptwright.data.sampling import WindowSampler
from gptwright.data.tokenizers import Tokenizer
from gptwright.data.vocabulary import (
    GPT2_PADDED_VOCABULARY,
    GPT2_VOCABULARY,
    choose_vocab_size,
    largest_vocabulary,
)
from gptwright.errors import ConfigError
from gptwright.facts import Fact
from gptwright.hardware.detect import find_device
from gptwright.hardware.probe import measure_matmul_peak
from gptwright.interop.foreign import ForeignModel, put_weights
from gptwright.model.gpt import GPT
from gptwright.optim.optimizers import Optimizer, build_optimizer
from gptwright.plan.plan import Plan
from gptwright.train.precision import Precision, allow_tf32, choose_precision, orthogonalizing_dtype
from gptwright.train.promise import promise_of
from gptwright.train.start import require_same_tokenizer, weights_facts
from gptwright.train.startup import startup_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A run ready to train.

    Attributes:
        config: the settings.
        dataset: its tokens.
        precision: device and dtype.
        model: the model itself, for weights and checkpoints.
        forward: the model as it is called, compiled or not.
        optimizer: AdamW over the model, or Muon with it.
        scaler: for float16; it does nothing for the others.
        sampler: the batch of any step.
        parameters: counted by part.
        vocab_size: rows of the token embedding.
        id_limit: every id of the data is below it.
        peak_flops: measured matrix-multiply rate in FLOP/s, the denominator of MFU.
        promise: what the plan says of this run.
        facts: the start-up table.
        warnings: settings that rarely mean what was wanted.
    """

    config: TrainConfig
    dataset: TokenDataset
    precision: Precision
    model: GPT
    forward: Callable[..., Tensor]
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
    def compiled(self) -> bool:
        """Whether `forward` is a compiled model."""
        return self.forward is not self.model


def build_session(
    loaded: LoadedConfig, *, dataset_folder: Path | None = None, start: ForeignModel | None = None
) -> Session:
    """Checks a config against this machine and its dataset, and builds model and optimizer.

    Args:
        loaded: the settings with their sources.
        dataset_folder: where a resumed run found its dataset, used if the name no longer leads there.
        start: weights to begin with, of the shape that the settings have.

    Raises:
        GptwrightError: of the kind of whatever is wrong.
    """
    config = loaded.config
    _require_one_process()
    device = find_device(config.device)
    precision, compiled, choices = choose_precision(
        dtype=config.dtype, compile_model=config.compile, device=device
    )
    allow_tf32(device)
    dataset = _open(config, dataset_folder)
    vocab_size, origin, reason = choose_vocab_size(config, dataset)
    vocabulary = Fact(
        name="vocabulary", value=vocab_size, text=f"{vocab_size:,}", origin=origin, reason=reason
    )
    id_limit = min(vocab_size, largest_vocabulary(config, dataset))
    for split in dataset.splits.values():
        require_windows(split, config.block_size)
        check_ids(split, id_limit)
    shape = ModelShape.of(config, vocab_size)
    model = _build_model(shape, config.seed, precision)
    if start is not None:
        require_same_tokenizer(start, dataset)
        put_weights(model, start)
    forward = cast("Callable[..., Tensor]", torch.compile(model) if compiled else model)
    sampler = _build_sampler(config, dataset, id_limit)
    peak_flops = measure_matmul_peak(device, precision.torch_dtype)
    return Session(
        config=config,
        dataset=dataset,
        precision=precision,
        model=model,
        forward=forward,
        optimizer=build_optimizer(
            model, config, fused=device.type != "mps", matmul_dtype=orthogonalizing_dtype(device)
        ),
        scaler=precision.scaler(),
        sampler=sampler,
        parameters=shape.count_parameters(),
        vocab_size=vocab_size,
        id_limit=id_limit,
        peak_flops=peak_flops,
        promise=promise_of(loaded, dataset, vocabulary),
        facts=[
            *startup_facts(
                loaded,
                device=device,
                choices=choices,
                dataset=dataset,
                shape=shape,
                vocabulary=vocabulary,
                sampler=sampler,
                peak_flops=peak_flops,
            ),
            *([] if start is None else weights_facts(start)),
        ],
        warnings=warnings_of(config),
    )


def tokenizer_of(session: Session) -> Tokenizer | None:
    """The tokenizer that a run keeps, or None where the dataset does not tell which it was.

    A folder without a vocabulary is taken for GPT-2's, as nanoGPT does, unless the config says otherwise.
    """
    dataset = session.dataset
    another = dataset.assumed and session.vocab_size not in (GPT2_VOCABULARY, GPT2_PADDED_VOCABULARY)
    return None if another or dataset.tokenizer_kind == "unknown" else dataset.tokenizer()


def _require_one_process() -> None:
    world_size = os.environ.get("WORLD_SIZE", "1")
    if world_size != "1":
        raise ConfigError(
            f"torchrun started {world_size} processes, and gptwright trains in one",
            why="each would train the same model into the same folder",
            fix="start it without torchrun, or with --nproc_per_node=1",
        )


def _open(config: TrainConfig, dataset_folder: Path | None) -> TokenDataset:
    name = config.dataset
    if dataset_folder is not None and not (Path(name).exists() or (Path("data") / name).exists()):
        name = str(dataset_folder)
    return open_dataset(name)


def _build_sampler(config: TrainConfig, dataset: TokenDataset, id_limit: int) -> WindowSampler:
    return WindowSampler(
        dataset.splits["train"],
        block_size=config.block_size,
        sequences_per_step=config.sequences_per_step,
        seed=config.seed,
        mode=config.sampling,
        vocab_limit=id_limit,
    )


def _build_model(shape: ModelShape, seed: int, precision: Precision) -> GPT:
    """Weights are drawn on the CPU, so that a seed means the same model on every device."""
    torch.manual_seed(seed)
    model = GPT(shape)
    model.to(precision.device.torch_device)
    return model
