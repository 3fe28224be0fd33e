"""What a run will need and cost: parameters, memory, batch, speed, time, tokens and loss, from its config
alone.

Nothing is run and torch is not needed. Exact where arithmetic is exact (parameters, tokens, steps), a model
with a stated error where it is not (memory, speed), a band from public curves where only those speak (loss),
and None where nothing is known, with what is missing.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gptwright.arithmetic.cut import passes_per_process
from gptwright.arithmetic.known_datasets import known_facts, usual_vocabulary
from gptwright.arithmetic.memory import TrainingMemory, largest_micro_batch, training_memory, usable_bytes
from gptwright.arithmetic.reference import LossBand, expected_loss, floor
from gptwright.arithmetic.shape import ModelShape
from gptwright.arithmetic.step import Step
from gptwright.config.pretrained import GPT2_MODELS, GPT2_PADDED_VOCABULARY, NO_WEIGHTS
from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, Origin, assumed, configured, derived
from gptwright.findings import Unknown
from gptwright.hardware.efficiency import Speed, predict_speed, with_first_compiler
from gptwright.hardware.step_time import Work
from gptwright.hardware.table import devices_in
from gptwright.hardware.torch_build import has_gpu_libraries
from gptwright.optim.schedule import learning_rate
from gptwright.plan.device import PlanDevice, plan_device
from gptwright.plan.odd_settings import NO_PROMISE, is_like_known_runs

# What the runs behind the known curves have, by the finding that says that a plan has not.
OF_KNOWN_RUNS = {"high-learning-rate": "a learning rate that trains", "odd-shape": "a usual shape"}
AN_EVALUATION = Unknown(
    "What does the evaluation need?", "a run of it: a plan is of training steps, and it makes none"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run before it is run.

    Attributes:
        config: its settings.
        shape: its model.
        vocabulary: rows of the token embedding, and where that comes from.
        device: what it is planned for.
        memory: bytes at the peak of a training step.
        fits: whether that is within what may be counted on; None where the device's memory is not known, or
            no step is made.
        largest_micro_batch: the largest that fits; None where the device's memory is not known.
        speed: tokens per second over all devices; None where the device is unknown.
        tokens: of the whole run.
        train_tokens: in the training split, where it is known.
        val_tokens: in the validation split, where it is known.
        loss: validation loss to expect; None where no public curve is near.
        unknown: what could not be known.
    """

    config: TrainConfig
    shape: ModelShape
    vocabulary: Fact
    device: PlanDevice
    memory: TrainingMemory
    fits: bool | None
    largest_micro_batch: int | None
    speed: Speed | None
    tokens: int
    train_tokens: Fact | None
    val_tokens: Fact | None
    loss: LossBand | None
    unknown: tuple[Unknown, ...]

    @property
    def steps(self) -> int:
        """Optimizer steps; none of an evaluation alone."""
        return _steps(self.config)

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step over all devices."""
        return self.config.sequences_per_step * self.config.block_size

    @property
    def tokens_per_parameter(self) -> float:
        """Planned tokens over parameters in nanoGPT's count."""
        return self.tokens / self.shape.count_parameters().nanogpt

    @property
    def epochs(self) -> float | None:
        """Passes over the training split."""
        return self.tokens / self.train_tokens.number if self.train_tokens is not None else None

    @property
    def seconds(self) -> tuple[float, float, float] | None:
        """Training time without evaluations: low, likely, high."""
        if self.speed is None:
            return None
        speed = self.speed
        return self.tokens / speed.high, self.tokens / speed.likely, self.tokens / speed.low

    @property
    def mfu(self) -> tuple[float, float, float] | None:
        """Share of the devices' peak: low, likely, high.

        At most 1: a CPU's peak in bfloat16 is only known to be at least so much, and its band may go beyond.
        """
        if self.speed is None or self.device.peak is None:
            return None
        scale = self.shape.flops_per_token() / (self.device.peak.number * self.device.count)
        speed = self.speed
        return min(1.0, speed.low * scale), min(1.0, speed.likely * scale), min(1.0, speed.high * scale)

    @property
    def joules(self) -> float | None:
        """Energy at the boards' power limit, which training comes near."""
        if self.seconds is None or self.device.power_watts is None:
            return None
        return self.seconds[1] * self.device.power_watts * self.device.count

    def seconds_per_step(self) -> Fact | None:
        """The likely time of one optimizer step."""
        if self.speed is None:
            return None
        formula = f"{self.tokens_per_step:,} tokens / {self.speed.likely:,.0f} tokens/s likely"
        return derived("step_seconds", self.tokens_per_step / self.speed.likely, formula, unit="seconds")


# Plans the same run with other settings.
Planner = Callable[[TrainConfig], Plan]


def make_plan(
    config: TrainConfig, facts: Mapping[str, Fact], *, sources: Mapping[str, str], speed: Speed | None = None
) -> Plan:
    """Plans a run.

    Args:
        config: its settings.
        facts: what is known beside them: `device`, `device_count`, `train_tokens`, `val_tokens`,
            `vocab_size`, `dataset`, `torch`, and `peak_flops` of this CPU in the dtype that a run chose,
            where it was measured.
        sources: where each setting that somebody gave comes from.
        speed: a measured speed, in place of the model's.

    Raises:
        ConfigError: there are more devices than sequences in a step.
    """
    facts = {**known_facts(str(facts["dataset"].value) if "dataset" in facts else config.dataset), **facts}
    vocabulary = _vocabulary(config, facts, sources)
    shape = ModelShape.of(config, int(vocabulary.number))
    name = str(facts["device"].value) if "device" in facts else None
    count = int(facts["device_count"].number) if "device_count" in facts else devices_in(name or "") or 1
    device = plan_device(config, name=name, count=count, peak=facts.get("peak_flops"))
    memory, fits, largest = _memory(config, shape, device)
    tokens = config.sequences_per_step * config.block_size * _steps(config)
    train_tokens = facts.get("train_tokens")
    loss = _expected_loss(config, shape, facts, tokens=tokens)
    speed = speed or _speed(config, shape, device, facts.get("torch"))
    return Plan(
        config=config,
        shape=shape,
        vocabulary=vocabulary,
        device=device,
        memory=memory,
        fits=fits,
        largest_micro_batch=largest,
        speed=speed,
        tokens=tokens,
        train_tokens=train_tokens,
        val_tokens=facts.get("val_tokens"),
        loss=loss,
        unknown=(
            *((AN_EVALUATION,) if config.eval_only else ()),
            *_unknown_vocabulary(config, vocabulary),
            *_unknown_weights(config),
            *_unknown(device, train_tokens, speed),
            *(_unknown_loss(config, shape.vocab_size) if loss is None else ()),
        ),
    )


def _expected_loss(
    config: TrainConfig, shape: ModelShape, facts: Mapping[str, Fact], *, tokens: int
) -> LossBand | None:
    """What the curves of known runs say; None of a run that is like none of them."""
    if config.eval_only or not _from_scratch(config) or not is_like_known_runs(config):
        return None
    train_tokens = facts.get("train_tokens")
    return expected_loss(
        dataset=str(facts["dataset"].value) if "dataset" in facts else config.dataset,
        parameters=shape.count_parameters().nanogpt,
        tokens=tokens,
        vocab_size=shape.vocab_size,
        unique_tokens=train_tokens.number if train_tokens is not None else None,
        tokens_per_step=config.sequences_per_step * config.block_size,
        non_embedding=shape.count_parameters().non_embedding,
        lr_fraction=_last_rate(config),
        recipe=config.recipe,
        block_size=config.block_size,
    )


def without_promise(plan: Plan, found: Collection[str]) -> Plan:
    """The plan without a loss to expect where a finding says that no known run is like it.

    Args:
        plan: the plan.
        found: the ids of its findings.
    """
    missing = [what for finding, what in OF_KNOWN_RUNS.items() if finding in found]
    if not missing or plan.loss is None:
        return plan
    reason = f"a run with {' and '.join(missing)}, as all runs have whose curves are known"
    return replace(plan, loss=None, unknown=(*plan.unknown, Unknown("What loss may be expected?", reason)))


def _steps(config: TrainConfig) -> int:
    return 0 if config.eval_only else config.max_iters


def _from_scratch(config: TrainConfig) -> bool:
    """Whether the curves of fresh weights hold: a run that goes on was fresh once, other weights were not."""
    return config.init_from in NO_WEIGHTS


def _last_rate(config: TrainConfig) -> float:
    """The learning rate at the planned end as a share of its peak."""
    return learning_rate(config, config.max_iters - 1) / config.learning_rate


def _vocabulary(config: TrainConfig, facts: Mapping[str, Fact], sources: Mapping[str, str]) -> Fact:
    if config.vocab_size is not None:
        return configured("vocab_size", config.vocab_size, place=sources.get("vocab_size", ""))
    if "vocab_size" in facts:
        return facts["vocab_size"]
    usual = usual_vocabulary(config.dataset)
    if usual is not None:
        return usual
    reason = "nothing says it; GPT-2's 50,257 padded to a multiple of 64, as nanoGPT does"
    return assumed("vocab_size", GPT2_PADDED_VOCABULARY, reason)


def _per_device(config: TrainConfig, device: PlanDevice) -> int:
    """Accumulation steps on one device, as training cuts the step: nanoGPT's setting is over all of them."""
    return passes_per_process(config.sequences_per_step, batch_size=config.batch_size, size=device.count)


def _is_divided(config: TrainConfig, device: PlanDevice) -> bool:
    """Whether each device holds a part of the model; `auto` plans for whole copies, and says if none fits."""
    return config.parallel == "fsdp" and device.count > 1


def _memory(
    config: TrainConfig, shape: ModelShape, device: PlanDevice
) -> tuple[TrainingMemory, bool | None, int | None]:
    """What a step needs, whether that fits, and the largest micro-batch that does."""
    divided = _is_divided(config, device)
    step = Step(
        shape=replace(shape, kernels=device.kernels),
        micro_batch=config.batch_size,
        dtype=device.dtype,
        compiled=device.compiled,
        accumulation=_per_device(config, device),
        device_kind=device.kind,
        data_parallel=device.count > 1 and not divided,
        divided_over=device.count if divided else 1,
        optimizer=config.optimizer,
        gpu_libraries=device.kind == "cpu" and has_gpu_libraries(),
    )
    memory = training_memory(step)
    if device.available is None or config.eval_only:
        return memory, None, None
    budget = usable_bytes(device.available)
    return memory, memory.total <= budget, largest_micro_batch(step, budget)


def _speed(config: TrainConfig, shape: ModelShape, device: PlanDevice, torch: Fact | None) -> Speed | None:
    if device.peak is None or device.emulated:
        return None
    speed = predict_speed(
        Work(
            shape=shape,
            peak_flops=device.peak.number,
            vector_flops=device.vector_peak,
            bandwidth=device.bandwidth,
            dtype=device.dtype,
            compiled=device.compiled,
            micro_batch=config.batch_size,
            accumulation=_per_device(config, device),
            device_kind=device.kind,
            family=device.family,
            device_count=device.count,
            divided=_is_divided(config, device),
            power_watts=device.power_watts,
            least_clock=device.least_clock,
            muon_steps=config.muon_steps if config.optimizer == "muon" else 0,
            kernels=device.kernels,
        )
    )
    first = torch is not None and re.match(r"v?2\.0(?!\d)", str(torch.value)) is not None
    return with_first_compiler(speed) if first and device.compiled and device.kind == "cuda" else speed


def _unknown_weights(config: TrainConfig) -> tuple[Unknown, ...]:
    """That the model starts from weights whose shape no setting says: a plan opens none."""
    source = config.init_from
    if source in NO_WEIGHTS or source in GPT2_MODELS:
        return ()
    import difflib  # 5 ms, and only other weights need it

    near = difflib.get_close_matches(source, [*GPT2_MODELS, *NO_WEIGHTS], n=1)
    if near and not Path(source).exists():
        missing = f"weights of that name, which are not here: did you mean --init_from={near[0]}?"
    else:
        missing = f"n_layer, n_head, n_embd, block_size and vocab_size of {source}, as settings"
    return (Unknown(f"Is this the shape of {source}, whose weights it starts from?", missing),)


def _unknown_vocabulary(config: TrainConfig, vocabulary: Fact) -> tuple[Unknown, ...]:
    """That the vocabulary is a guess, where nothing says it and no script is known to make the data."""
    if vocabulary.origin is not Origin.ASSUMED:
        return ()
    missing = (
        f"--vocab-size N, or the prepared dataset: {vocabulary.text} is assumed for {config.dataset!r}, and"
        " parameters, memory and speed follow from it"
    )
    return (Unknown("How large is the vocabulary?", missing),)


def _unknown_loss(config: TrainConfig, vocab_size: int) -> tuple[Unknown, ...]:
    if config.eval_only or is_like_known_runs(config):
        missing = "a public curve for this data, size, vocabulary and recipe: none is near"
        least = floor(config.dataset, vocab_size)
        if least is not None:
            missing += f"; no known run over this data got below {least.loss:.2f}, however long"
        return (Unknown("What loss may be expected?", missing),)
    return (NO_PROMISE,)


def _unknown(device: PlanDevice, train_tokens: Fact | None, speed: Speed | None) -> tuple[Unknown, ...]:
    unknown = []
    if speed is None:
        missing = f"gptwright plan --measure on that machine: {device.remark}"
        fits = ", and does it fit" if device.memory is None else ""
        unknown.append(Unknown(f"How fast will it be{fits}?", missing))
    elif device.memory is None:
        missing = f"the machine's memory, behind the name: --device '{device.name.text} 16GB'"
        unknown.append(Unknown("Does it fit?", missing))
    if train_tokens is None:
        unknown.append(Unknown("How many passes over the data?", "the training tokens: --train-tokens N"))
    return tuple(unknown)
