"""The start-up table: every setting and derived value of a run, with where it comes from."""

from collections.abc import Sequence

from gptwright import units
from gptwright.arithmetic.flops import flops_per_token
from gptwright.arithmetic.parameters import ParameterCount
from gptwright.config.load import LoadedConfig
from gptwright.config.schema import TrainConfig
from gptwright.data.dataset import TokenDataset
from gptwright.facts import Fact, Origin
from gptwright.hardware.detect import Device


def startup_facts(
    loaded: LoadedConfig,
    *,
    device: Device,
    choices: Sequence[Fact],
    dataset: TokenDataset,
    parameters: ParameterCount,
    vocabulary: tuple[int, str],
    windows_per_epoch: int,
    peak_flops: float,
) -> list[Fact]:
    """Settings first, then the machine, the data, the model and the plan that follow from them."""
    return [
        *_settings(loaded),
        *_machine(device, choices, peak_flops),
        *_data(dataset, vocabulary),
        *_model(loaded.config, parameters),
        *_plan(loaded.config, parameters, windows_per_epoch),
    ]


def _settings(loaded: LoadedConfig) -> list[Fact]:
    values = loaded.config.model_dump()
    facts = [
        Fact(
            name=name,
            value=value,
            text="–" if value is None else str(value),
            origin=Origin.CONFIGURED,
            reason=loaded.sources.get(name, "default"),
        )
        for name, value in values.items()
    ]
    return facts + [
        Fact(name=name, value=None, text="no effect", origin=Origin.CONFIGURED, reason=reason)
        for name, reason in loaded.without_effect.items()
    ]


def _machine(device: Device, choices: Sequence[Fact], peak_flops: float) -> list[Fact]:
    return [
        Fact(
            name="device used",
            value=str(device.torch_device),
            text=f"{device.torch_device}: {device.name}",
            origin=Origin.MEASURED,
            reason=device.detail,
        ),
        *[
            Fact(name=f"{c.name} used", value=c.value, text=c.text, origin=c.origin, reason=c.reason)
            for c in choices
        ],
        Fact(
            name="peak",
            value=peak_flops,
            text=units.flops_rate(peak_flops),
            origin=Origin.MEASURED,
            reason="fastest square matrix product just now; MFU is relative to it",
        ),
    ]


def _data(dataset: TokenDataset, vocabulary: tuple[int, str]) -> list[Fact]:
    train, val = dataset.splits["train"], dataset.splits["val"]
    return [
        Fact(
            name="train tokens",
            value=train.tokens,
            text=f"{train.tokens:,}",
            origin=Origin.MEASURED,
            reason=str(dataset.folder),
        ),
        Fact(
            name="val tokens",
            value=val.tokens,
            text=f"{val.tokens:,}",
            origin=Origin.MEASURED,
            reason=str(dataset.folder),
        ),
        Fact(
            name="vocabulary",
            value=vocabulary[0],
            text=f"{vocabulary[0]:,}",
            origin=Origin.DERIVED,
            reason=vocabulary[1],
        ),
    ]


def _model(config: TrainConfig, parameters: ParameterCount) -> list[Fact]:
    flops = flops_per_token(
        parameters_in_flops=parameters.in_flops,
        n_layer=config.n_layer,
        n_embd=config.n_embd,
        block_size=config.block_size,
    )
    return [
        Fact(
            name="parameters",
            value=parameters.nanogpt,
            text=f"{units.count(parameters.nanogpt)} ({parameters.total:,} with positions)",
            origin=Origin.DERIVED,
            reason=f"nanoGPT's count; blocks {parameters.blocks:,},"
            f" token embedding {parameters.token_embedding:,}, positions {parameters.position_embedding:,}",
        ),
        Fact(
            name="weight decay",
            value=parameters.decayed,
            text=f"{parameters.decayed:,} decayed, {parameters.not_decayed:,} not",
            origin=Origin.DERIVED,
            reason="matrices decay; layer norms and biases do not",
        ),
        Fact(
            name="FLOPs per token",
            value=flops,
            text=f"{flops / 1e6:,.2f} MFLOP",
            origin=Origin.DERIVED,
            reason="6·N + 12·n_layer·n_embd·block_size (palm convention)",
        ),
    ]


def _plan(config: TrainConfig, parameters: ParameterCount, windows_per_epoch: int) -> list[Fact]:
    tokens_per_step = config.sequences_per_step * config.block_size
    tokens = tokens_per_step * config.max_iters
    epochs = config.sequences_per_step * config.max_iters / windows_per_epoch
    return [
        Fact(
            name="tokens per step",
            value=tokens_per_step,
            text=f"{tokens_per_step:,}",
            origin=Origin.DERIVED,
            reason=f"batch_size {config.batch_size} × accumulation {config.gradient_accumulation_steps}"
            f" × block_size {config.block_size}",
        ),
        Fact(
            name="planned tokens",
            value=tokens,
            text=f"{units.count(tokens)} = {tokens / parameters.nanogpt:.1f} per parameter",
            origin=Origin.DERIVED,
            reason=f"tokens per step × max_iters {config.max_iters:,}",
        ),
        Fact(
            name="epochs",
            value=epochs,
            text=f"{epochs:.2f}",
            origin=Origin.DERIVED,
            reason=f"windows drawn / {windows_per_epoch:,} windows of {config.block_size} tokens in train",
        ),
    ]
