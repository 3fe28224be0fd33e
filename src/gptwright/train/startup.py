"""The start-up table: every setting and derived value of a run, with where it comes from."""

from collections.abc import Sequence
from dataclasses import asdict

from gptwright import units
from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import LoadedConfig
from gptwright.config.schema import TrainConfig
from gptwright.data.dataset import TokenDataset
from gptwright.data.sampling import WindowSampler
from gptwright.facts import Fact, Origin
from gptwright.hardware.detect import Device


def startup_facts(
    loaded: LoadedConfig,
    *,
    device: Device,
    choices: Sequence[Fact],
    dataset: TokenDataset,
    shape: ModelShape,
    vocabulary: Fact,
    sampler: WindowSampler,
    peak_flops: float,
) -> list[Fact]:
    """Settings first, then the machine, the data, the model and the plan that follow from them."""
    return [
        *_settings(loaded),
        *_machine(device, choices, peak_flops),
        *_data(dataset),
        vocabulary,
        *_model(shape),
        *_plan(loaded.config, shape, sampler),
    ]


def _settings(loaded: LoadedConfig) -> list[Fact]:
    facts = [
        Fact(
            name=name,
            value=value,
            text="–" if value is None else str(value),
            origin=Origin.CONFIGURED,
            reason=loaded.sources.get(name, "default"),
        )
        for name, value in asdict(loaded.config).items()
    ]
    return facts + [
        Fact(name=name, value=None, text="no effect", origin=Origin.CONFIGURED, reason=reason)
        for name, reason in loaded.without_effect.items()
    ]


def _machine(device: Device, choices: Sequence[Fact], peak_flops: float) -> list[Fact]:
    place, threads = str(device.torch_device), " with these threads" if device.type == "cpu" else ""
    return [
        _measured("device used", place, f"{place}: {device.name}", device.detail),
        *[
            Fact(name=f"{c.name} used", value=c.value, text=c.text, origin=c.origin, reason=c.reason)
            for c in choices
        ],
        _measured(
            "peak",
            peak_flops,
            units.flops_rate(peak_flops),
            f"fastest square matrix product just now{threads}; MFU is relative to it",
        ),
    ]


def _data(dataset: TokenDataset) -> list[Fact]:
    return [
        _measured(f"{name} tokens", split.tokens, f"{split.tokens:,}", str(dataset.folder))
        for name, split in dataset.splits.items()
    ]


def _model(shape: ModelShape) -> list[Fact]:
    count, flops = shape.count_parameters(), shape.flops_per_token()
    return [
        _derived(
            "parameters",
            count.nanogpt,
            f"{units.count(count.nanogpt)} ({count.total:,} with positions)",
            f"nanoGPT's count; blocks {count.blocks:,}, token embedding {count.token_embedding:,},"
            f" positions {count.position_embedding:,}",
        ),
        _derived(
            "weight decay",
            count.decayed,
            f"{count.decayed:,} decayed, {count.not_decayed:,} not",
            "matrices decay; layer norms and biases do not",
        ),
        _derived(
            "FLOPs per token",
            flops,
            f"{flops / 1e6:,.2f} MFLOP",
            "6·N + 12·n_layer·n_embd·block_size (palm convention)",
        ),
    ]


def _plan(config: TrainConfig, shape: ModelShape, sampler: WindowSampler) -> list[Fact]:
    tokens_per_step = config.sequences_per_step * config.block_size
    tokens = tokens_per_step * config.max_iters
    epochs = sampler.epochs_at(config.max_iters)
    return [
        _derived(
            "tokens per step",
            tokens_per_step,
            f"{tokens_per_step:,}",
            f"batch_size {config.batch_size} × accumulation {config.gradient_accumulation_steps}"
            f" × block_size {config.block_size}",
        ),
        _derived(
            "planned tokens",
            tokens,
            f"{units.count(tokens)} = {units.ratio(tokens / shape.count_parameters().nanogpt)} per parameter",
            f"tokens per step × max_iters {config.max_iters:,}",
        ),
        _derived(
            "epochs",
            epochs,
            f"{epochs:.2f}",
            f"windows drawn / {sampler.windows_per_epoch:,} windows of {config.block_size} tokens in train",
        ),
    ]


def _measured(name: str, value: float | str, text: str, reason: str) -> Fact:
    return Fact(name=name, value=value, text=text, origin=Origin.MEASURED, reason=reason)


def _derived(name: str, value: float, text: str, reason: str) -> Fact:
    return Fact(name=name, value=value, text=text, origin=Origin.DERIVED, reason=reason)
