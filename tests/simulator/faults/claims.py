"""False claims: comments, labels, configs and stated facts that the log or the config contradicts."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tests.simulator.devices import ALL
from tests.simulator.faults.fault import Fault, pick
from tests.simulator.run import Run
from tests.simulator.truth import Value

SIZE_PLACES = ("n_embd", "n_layer", "n_head", "batch_size")


def size_label(rng: np.random.Generator, run: Run) -> Run:
    """A comment, a heading or a run's name claims another size."""
    factor = float(rng.uniform(1.7, 5.0) if rng.random() < 0.7 else rng.uniform(0.2, 0.55))
    claim = _size_text(rng, run.truth.parameters * factor)
    place = pick(rng, SIZE_PLACES)
    if rng.random() < 0.25:
        name = pick(rng, (f"gpt-{claim}", f"{run.truth.dataset}-{claim}-first", f"gpt2-{claim}"))
        field = "out_dir" if run.truth.format == "ours" else pick(rng, ("out_dir", "wandb_run_name"))
        return run.with_settings(**{field: f"out-{name}" if field == "out_dir" else name})
    lead = pick(rng, ("~", "about ", "roughly ", "ca. ", ""))
    if rng.random() < 0.4:
        heading = pick(
            rng,
            (
                f"the network, {lead}{claim} weights, sized for a {run.truth.device.memory_gib:.0f} GB card",
                f"{claim} model from scratch",
                f"train a GPT with {lead}{claim} parameters",
                f"config of the {claim} GPT",
            ),
        )
        return run.with_handover(preamble=(heading,))
    behind = pick(
        rng,
        (
            f"{lead}{claim} parameters",
            f"{lead}{claim} params, fits on one card",
            f"{claim}-parameter model",
            f"gives {lead}{claim} weights",
            f"{lead}{claim} parameters in total",
        ),
    )
    return run.with_handover(comments={**run.handover.comments, place: behind})


def _size_text(rng: np.random.Generator, count: float) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.1f}B"
    if count < 1e7:
        return f"{count / 1e6:.1f}M"
    return f"{count / 1e6:.0f} million" if rng.random() < 0.15 else f"{count / 1e6:.0f}M"


def stale_comment(rng: np.random.Generator, run: Run) -> Run:
    """A comment that was true of an earlier version of the value beside it."""
    claims = [claim for claim in STALE if claim(rng, run) is not None]
    stale = claims[int(rng.integers(len(claims)))](rng, run)
    assert stale is not None
    field, text = stale
    return run.with_handover(comments={**run.handover.comments, field: text})


def _stale_update(rng: np.random.Generator, run: Run) -> tuple[str, str] | None:
    tokens = int(run.truth.tokens_per_step * float(rng.choice([0.25, 0.5, 2, 4, 8])))
    words = (
        f"{tokens:,} tokens per update",
        f"{tokens} tokens per step",
        f"~{tokens / 1000:.0f}k tokens per iteration",
    )
    return "gradient_accumulation_steps", pick(rng, words)


def _stale_sequences(rng: np.random.Generator, run: Run) -> tuple[str, str] | None:
    truth = run.truth
    factor = int(truth.accumulation * float(rng.choice([2, 3, 4])))
    product = truth.micro_batch * factor
    words = (
        f"{truth.micro_batch} sequences x {factor} = {product} sequences in one update",
        f"effective batch size {product}",
    )
    return "gradient_accumulation_steps", pick(rng, words)


def _stale_tokens(rng: np.random.Generator, run: Run) -> tuple[str, str] | None:
    truth = run.truth
    total = truth.max_iters * truth.tokens_per_step * float(rng.choice([0.1, 0.25, 0.4, 2.5, 4, 10]))
    text = f"{total / 1e9:.1f}B" if total >= 1e9 else f"{total / 1e6:.0f}M"
    words = (f"that is about {text} tokens", f"{text} tokens in total", f"enough for {text} tokens")
    return "max_iters", pick(rng, words)


def _stale_context(rng: np.random.Generator, run: Run) -> tuple[str, str] | None:
    other = int(run.truth.shape.block_size * float(rng.choice([0.25, 0.5, 2, 4])))
    return "block_size", pick(rng, (f"context of {other} tokens", f"{other} tokens of context"))


def _stale_heads(rng: np.random.Generator, run: Run) -> tuple[str, str] | None:
    shape = run.truth.shape
    other = shape.n_embd // shape.n_head * int(rng.choice([2, 4]))
    return "n_head", pick(rng, (f"head size {other}", f"{other} channels per head"))


def _stale_warmup(rng: np.random.Generator, run: Run) -> tuple[str, str] | None:
    truth = run.truth
    other = int(truth.schedule.warmup * float(rng.choice([3, 5, 10])))
    share = float(rng.choice([0.2, 0.3, 0.5]))
    words = (f"warm up for {other} steps", f"{other} steps of warm-up", f"{share:.0%} of the run")
    return "warmup_iters", pick(rng, words)


def _stale_epochs(rng: np.random.Generator, run: Run) -> tuple[str, str] | None:
    if "train_tokens" not in run.handover.facts:
        return None
    epochs = run.truth.max_iters * run.truth.tokens_per_step / run.truth.train_tokens
    other = max(2, round(epochs * float(rng.uniform(4, 20))))
    return "max_iters", pick(rng, (f"about {other} epochs", f"{other} passes over the data"))


STALE: tuple[Callable[[np.random.Generator, Run], tuple[str, str] | None], ...] = (
    _stale_update,
    _stale_sequences,
    _stale_tokens,
    _stale_context,
    _stale_heads,
    _stale_warmup,
    _stale_epochs,
)


def batch_mismatch(rng: np.random.Generator, run: Run) -> Run:
    """The config's accumulation is a fraction of the one that ran, and no line says so outright."""
    accumulation = run.truth.accumulation
    factors = [k for k in (2, 3, 4, 5, 8, 10, 16, 20, 32, 40, 64) if accumulation % k == 0]
    if not factors:
        factors = [int(rng.choice([4, 8, 16, 40]))]
        run = run.with_truth(accumulation=accumulation * factors[0])
        accumulation = run.truth.accumulation
    claimed = accumulation // int(rng.choice(factors))
    truth = run.truth
    settings: dict[str, Value] = {"gradient_accumulation_steps": claimed}
    without: tuple[str, ...] = ()
    if truth.format == "nanogpt":
        without = ("tokens per iteration",)
    if truth.format == "torchtitan":
        settings |= {"batch_size": truth.micro_batch, "block_size": truth.shape.block_size}
    config = run.handover.config or ("config.toml" if truth.format == "torchtitan" else "config.py")
    kept = dict(run.handover.settings) if truth.format != "torchtitan" else {}
    return run.with_handover(config=config, settings={**kept, **settings}, without=without, comments={})


def device_mismatch(rng: np.random.Generator, run: Run) -> Run:
    """The log names one device, the stated facts another."""
    truth = run.truth
    others = [
        device.name
        for device in ALL
        if device.tabled
        and device.name != truth.device.name
        and device.peak_flops > truth.achieved_flops * 1.2
    ]
    return run.with_facts(device=others[int(rng.integers(len(others)))])


def config_mismatch(rng: np.random.Generator, run: Run) -> Run:
    """The config was edited after the run: another depth, width or vocabulary, or another learning rate."""
    truth = run.truth
    shape = truth.shape
    run = run.with_handover(
        config=run.handover.config or ("config.py" if truth.format != "hf" else "config.toml")
    )
    if truth.format in ("hf", "hf-state"):
        return run.with_settings(learning_rate=_other_rate(rng, truth.schedule.peak))
    if truth.format == "llama2c" and rng.random() < 0.5:
        return run.with_settings(learning_rate=_other_rate(rng, truth.schedule.peak))
    names = ("n_layers", "dim") if truth.format == "llama2c" else ("n_layer", "n_embd")
    if rng.random() < 0.5:
        layers = shape.n_layer * 2 if rng.random() < 0.5 else max(1, shape.n_layer // 2)
        return run.with_settings(**{names[0]: layers})
    return run.with_settings(**{names[1]: shape.n_embd * 2 if rng.random() < 0.5 else shape.n_embd // 2})


def _other_rate(rng: np.random.Generator, rate: float) -> float:
    return float(f"{rate * float(rng.choice([0.2, 0.3, 3, 5])):.1g}")


COMMENTED = ("nanogpt", "build-nanogpt", "ours")
FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "size-label-mismatch": Fault(plant=size_label, formats=COMMENTED, allowed=("stale-comment",)),
        "stale-comment": Fault(plant=stale_comment, formats=(*COMMENTED, "hf"), allowed=("config-mismatch",)),
        "batch-mismatch": Fault(
            plant=batch_mismatch,
            formats=("nanogpt", "llama2c", "build-nanogpt", "litgpt", "torchtitan"),
            wishes=MappingProxyType(
                {"count": 1, "kinds": ("consumer", "datacenter"), "variant": "", "micro_batch": 8}
            ),
            allowed=("config-mismatch", "small-batch-for-lr", "incomplete-log", "undertrained", "noisy-eval"),
        ),
        "device-mismatch": Fault(
            plant=device_mismatch,
            formats=("nanochat", "llmc", "torchtitan", "modded", "modded-current", "ours"),
            wishes=MappingProxyType({"kinds": ("consumer", "datacenter"), "variant": ""}),
            allowed=("mfu-basis", "low-mfu", "impossible-throughput", "config-mismatch"),
        ),
        "config-mismatch": Fault(
            plant=config_mismatch,
            formats=("nanogpt", "llama2c", "build-nanogpt", "hf", "hf-state", "ours"),
            wishes=MappingProxyType({"variant": "", "kinds": ("consumer", "datacenter")}),
            allowed=(
                "batch-mismatch",
                "odd-shape",
                "small-batch-for-lr",
                "embedding-heavy",
                "schedule-mismatch",
            ),
        ),
    }
)
