"""The likely time of one optimizer step, part by part, from the model's shape and the device's peak.

A step is the sum of what it cannot do at once: matrix products, attention, moving memory, starting kernels,
the optimizer, talking to other devices. Each part is a count from the shape (FLOPs, bytes, kernels) over a
rate of the device, and a few constants are fitted to speeds that other people published (`speeds.toml`);
docs/throughput.md says how well that predicts those that were kept back, and what it does not cover.
`benchmarks/fit_efficiency.py` refits the constants.

Simple on purpose: no card by its measured speed, no special case of a trainer. What a published run says
about software is mostly its age: with PyTorch 2.0's compiler a step took half as long again as today.

Cost: microseconds, no numpy. Source of the counts: arithmetic/flops.py for products; fused causal attention
does 7·C·T FLOPs a token and layer (2 products forward, 5 backward, half of each masked), an unfused one
12·C·T.
"""

from dataclasses import dataclass, replace

from gptwright.arithmetic.flops import muon_flops
from gptwright.arithmetic.shape import ModelShape
from gptwright.hardware.families import FAMILIES, OTHER, Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What is fitted. A rate is a share of the FLOP/s that large products reach on the device.

    Attributes:
        product: the share that training's products reach when they are wide and long.
        width: channels at which half of a product is its start and end, on a GeForce; it grows with the rate
            of a multiprocessor.
        fused_attention: the share that fused attention reaches.
        unfused_attention: the share that attention in separate products reaches.
        layer_bytes: moved per channel, token and layer, compiled and eager, in 16-bit training.
        vocabulary_bytes: moved per vocabulary entry and token for logits and loss, compiled and eager.
        score_bytes: moved per head, token and position by unfused attention, compiled and eager.
        kernel_seconds: the idle end of a kernel, on the device.
        power: exponent with which clocks fall where a card has less power than its products want.
        early_compiler: how much longer a step took with PyTorch 2.0's compiler.
    """

    product: float = 0.942
    width: float = 79.6
    fused_attention: float = 0.892
    unfused_attention: float = 0.333
    layer_bytes: tuple[float, float] = (90.1, 534.0)
    vocabulary_bytes: tuple[float, float] = (12.5, 33.4)
    score_bytes: tuple[float, float] = (14.8, 102.0)
    kernel_seconds: float = 1.19e-6
    power: float = 0.685
    early_compiler: float = 1.48


FITTED = Constants()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be done, on what.

    Attributes:
        shape: the model.
        peak_flops: the device's dense peak in `dtype`, FP32 accumulation; for a CPU as measured.
        bandwidth: of its memory in bytes/s; None: as much as cards of that peak have.
        dtype: of the products.
        compiled: the graph is compiled, or fused by hand.
        micro_batch: sequences a device takes at once.
        accumulation: micro-batches a device takes for one step.
        device_kind: `cuda`, `mps` or `cpu`.
        family: as the table calls it.
        power_watts: the board's limit, if known.
        least_clock: what a lower limit, as laptops have, may leave of the clock behind the peak.
        device_count: devices that train together, data parallel.
        divided: whether weights are divided among them (FSDP), and not a copy in each.
        flash: attention is one fused kernel.
        muon_steps: Newton-Schulz steps of Muon; 0 with AdamW alone.
        kernels: our own make the step, on a CPU.
        vector_flops: what its vectors reach in `dtype`, where a CPU makes products by matrix registers (AMX);
            None where they make them too.
    """

    shape: ModelShape
    peak_flops: float
    bandwidth: float | None
    dtype: str
    compiled: bool
    micro_batch: int
    accumulation: int
    device_kind: str = "cuda"
    family: str | None = None
    power_watts: float | None = None
    least_clock: float = 1.0
    device_count: int = 1
    divided: bool = False
    flash: bool = True
    muon_steps: int = 0
    kernels: bool = False
    vector_flops: float | None = None

    @property
    def micro_tokens(self) -> int:
        """Tokens in a micro-batch."""
        return self.micro_batch * self.shape.block_size

    @property
    def step_tokens(self) -> int:
        """Tokens in a step, over all devices."""
        return self.micro_tokens * self.accumulation * self.device_count

    @property
    def kin(self) -> Family:
        """What its family is known to do."""
        family = "Apple" if self.device_kind == "mps" else self.family
        return FAMILIES.get(family or "", OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step, by what they are spent on.

    Attributes:
        products: matrix products of the blocks and the output head.
        attention: attention itself.
        memory: activations, logits and weights to and from memory.
        kernels: the ends of kernels that leave the device idle.
        host: waiting for the host to start kernels, where that takes longer than the work.
        optimizer: clipping and the update.
        communication: gradients between devices, as far as it does not hide behind the backward pass.
    """

    products: float
    attention: float
    memory: float
    kernels: float
    host: float
    optimizer: float
    communication: float

    @property
    def total(self) -> float:
        """All of it."""
        device = self.products + self.attention + self.memory + self.kernels
        return device + self.host + self.optimizer + self.communication


# Kernels a layer and outside the layers, forward and backward, compiled and eager. Counted from our model: 39
# operations a layer under autocast, some of which are several kernels; compiled, 12 products, 3 of attention
# and about 9 fused ones remain.
KERNELS = ((24, 15), (45, 24))
# The host starts an operation in about this time: a layer of 39 took 0.5 to 1.2 ms on a slow server core.
HOST_SECONDS = 10e-6
# Bytes a parameter. Clipping reads the gradient twice and writes it once, fused AdamW reads four numbers and
# writes three; each micro-batch writes gradients, reads the old ones if it adds to them, and casts weights.
OPTIMIZER_BYTES = 40
GRADIENT_BYTES, ADDED_GRADIENT_BYTES, CAST_BYTES = 4, 12, 6
# Activations in float32 over those under autocast: 64 over 37.6 bytes a channel, token and layer are saved,
# says torch's memory tracker.
FLOAT32_LAYERS = 1.7
# An output head whose rows are no multiple of 8 takes so much longer. With GPT-2's 50,257 for 50,304 a
# step of 8,192 tokens takes 12 and 14 % longer on an A30 and an A100 (sources `build-nanogpt-picogpt` and
# `llms-from-scratch`), one of 16,384 on an A100 1 and 3 % (`build-nanogpt-a100-notes`, the lecture): 7.5 % in
# the middle, for a third of the products. Notes of older software have 30 % (zzhhjjj/LLaMA); torch.compile
# pads such products itself by now (`shape_padding` of torch._inductor.config).
UNALIGNED_HEAD = 1.35
# A product is cut into tiles of 128 × 128; the last wave of tiles leaves multiprocessors idle for about one.
TILE, GEFORCE_RATE, USUAL_HERTZ = 128, 512, 1.8e9
# FLOP for every byte that a card moves, the table's median: for a card whose bandwidth nobody says.
USUAL_BALANCE = 110.0
# More devices than this are several machines, and what is between those is not known: 200 Gb/s is taken.
IN_A_MACHINE, NETWORK = 8, 25e9
# FLOPs of attention: of a step, and those of its forward pass among them.
FUSED_FLOPS, UNFUSED_FLOPS = (7, 2), (12, 4)
# With checkpointing, of a block's 12·C² the 8 before its last product are multiplied again.
RECOMPUTED = 8
# What a block's forward pass is of its work where only the whole is counted: one pass of three.
FORWARD_SHARE = 1 / 3


def step_time(work: Work, constants: Constants = FITTED) -> StepTime:
    """The likely time of one optimizer step, part by part."""
    if work.device_kind == "cpu":
        return _cpu_step_time(work)
    parameters = work.shape.count_parameters()
    bandwidth = work.bandwidth or work.peak_flops / USUAL_BALANCE
    reached = work.peak_flops * _reach(work, constants)
    products = _product_flops(work) / (reached * constants.product * _filling(work, constants))
    attention = _attention_flops(work) / reached
    attention /= constants.fused_attention if work.flash else constants.unfused_attention
    memory = _moved_bytes(work, constants) / bandwidth
    per_layer, outside = KERNELS[not work.compiled]
    count = per_layer * work.shape.n_layer * _passes(work) + outside
    micro = products + attention + memory + count * constants.kernel_seconds
    return StepTime(
        products=work.accumulation * products,
        attention=work.accumulation * attention,
        memory=work.accumulation * memory,
        kernels=work.accumulation * count * constants.kernel_seconds,
        host=work.accumulation * max(0.0, count * HOST_SECONDS - micro),
        optimizer=parameters.total * OPTIMIZER_BYTES / bandwidth
        + _muon_flops(work) / (reached * constants.product * _filling(work, constants)),
        communication=_communication(work, parameters.total, micro=micro),
    )


def _reach(work: Work, constants: Constants) -> float:
    """The share of the peak that large products reach on this card."""
    kin = work.kin
    if not kin.watts or not work.power_watts or work.dtype == "float32":
        return kin.reach
    given = work.power_watts / (work.peak_flops / 1e12)
    return float(kin.reach * min(1.0, given / kin.watts) ** constants.power)


def _filling(work: Work, constants: Constants) -> float:
    """The share of that which products of this width and length reach."""
    rate = work.kin.float32_rate if work.dtype == "float32" else work.kin.rate
    multiprocessors = work.peak_flops / (rate * GEFORCE_RATE * USUAL_HERTZ)
    channels = work.shape.n_embd
    waves = (work.micro_tokens / TILE) * (2 * channels / TILE) / multiprocessors
    return channels / (channels + constants.width * rate) * waves / (waves + 1)


def _product_flops(work: Work) -> float:
    """Of the matrix products in a micro-batch, an unaligned head counted at what it costs."""
    shape = work.shape
    unaligned = work.device_kind == "cuda" and work.dtype != "float32" and shape.vocab_size % 8 != 0
    extra = (UNALIGNED_HEAD - 1) * shape.vocab_size * shape.n_embd if unaligned else 0.0
    again = RECOMPUTED * shape.n_layer * shape.n_embd**2 if shape.gradient_checkpointing else 0
    return work.micro_tokens * (6 * (shape.count_parameters().matmul + extra) + 2 * again)


def _muon_flops(work: Work) -> float:
    """Of Muon's update; its products are small, and taken to be as fast as the model's."""
    return muon_flops(n_layer=work.shape.n_layer, n_embd=work.shape.n_embd, steps=work.muon_steps)


def _attention_flops(work: Work) -> float:
    """Of attention in a micro-batch."""
    shape = work.shape
    step, forward = FUSED_FLOPS if work.flash else UNFUSED_FLOPS
    per_position = step + forward * shape.gradient_checkpointing
    return per_position * shape.n_layer * shape.n_embd * shape.block_size * work.micro_tokens


def _moved_bytes(work: Work, constants: Constants) -> float:
    """Activations, logits, attention scores and weights, to and from memory in a micro-batch."""
    shape, eager, half = work.shape, not work.compiled, work.dtype != "float32"
    parameters = shape.count_parameters()
    layers = shape.n_layer * shape.n_embd * constants.layer_bytes[eager]
    if not work.flash:
        layers += shape.n_layer * shape.n_head * shape.block_size * constants.score_bytes[eager]
    layers *= _passes(work)
    logits = shape.vocab_size * constants.vocabulary_bytes[eager]
    weights = parameters.total * (ADDED_GRADIENT_BYTES if work.accumulation > 1 else GRADIENT_BYTES)
    weights += parameters.matmul * CAST_BYTES if half else 0
    return work.micro_tokens * (layers * (1 if half else FLOAT32_LAYERS) + logits) + weights


def _passes(work: Work) -> float:
    """A block's work over that of a forward and a backward pass: more where the forward is made again."""
    return 1 + FORWARD_SHARE * work.shape.gradient_checkpointing


def _communication(work: Work, parameters: int, *, micro: float) -> float:
    """What devices say to each other, less what it hides behind.

    A copy in each: the ring's all-reduce of float32 gradients once a step, behind half a backward pass.
    Divided among them: in every micro-batch float32 weights are gathered for the forward and for the backward
    pass, and gradients scattered, block by block behind half of its work.
    """
    link = work.kin.link if work.device_count <= IN_A_MACHINE else min(work.kin.link, NETWORK)
    once = (work.device_count - 1) / work.device_count * 4 * parameters / link
    if work.divided:
        return work.accumulation * max(0.0, 3 * once - micro / 2)
    return max(0.0, 2 * once - micro / 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuConstants:
    """What a CPU's dtype decides.

    Attributes:
        width: channels at which half of a product is its start and end.
        vocabulary_bytes: moved per vocabulary entry and token for logits and loss.
        operations: as many starts as a layer takes, and as everything outside the layers.
        attention: its rate over the vectors' peak.
        layer_bytes: moved per channel, token and layer.
        score_bytes: moved per head, token and position where dropout keeps attention from being fused, or has
            our own kernels make the fate of each score; random numbers included.
    """

    width: float
    vocabulary_bytes: float
    operations: tuple[int, int]
    attention: float = 0.58
    layer_bytes: float = 374.0
    score_bytes: float = 70.0


# On a CPU everything is relative to the peak of its vectors in the dtype of the products; these, where matrix
# registers make them, to the peak of those. Fitted to our own trainer on one
# core of an AMD EPYC each (`speeds.toml`, under `cpus`). Products reach the peak as they get wide; what an
# eager step moves and computes between them counts as bytes; attention reaches part of the peak.
# In float32, within 12 % at six shapes and 22 % at two with dropout; 0.5 ms a layer was measured at least.
CPU_FLOAT32 = CpuConstants(width=88.0, vocabulary_bytes=45.0, operations=(25, 40))
# The same with our own kernels: fitted to how much quicker steps are than torch's, timed in turns at eight
# shapes, 1.00 to 1.22 times, within 11 %.
CPU_FLOAT32_KERNELS = CpuConstants(
    width=84.0,
    vocabulary_bytes=20.0,
    operations=(25, 40),
    attention=0.65,
    layer_bytes=260.0,
    score_bytes=20.0,
)
# In bfloat16 with our own kernels, within 18 % at eight shapes when torch still multiplied; steps are up to a
# fifth shorter since, and this was not fitted again. The width alone is fitted. Logits of 16 bits are written
# once, read and overwritten by the loss, and read by two products. A layer of almost no channels took 0.8 ms,
# everything outside the layers 1.2.
CPU_KERNELS = CpuConstants(width=50.0, vocabulary_bytes=10.0, operations=(70, 100))
# In bfloat16 without them, within 20 % at five shapes: many casts, and a slow loss.
CPU_AUTOCAST = CpuConstants(width=130.0, vocabulary_bytes=300.0, operations=(100, 300))
# With matrix registers too, within 32 % at eight shapes, on a machine whose rate of them changed twofold
# within minutes: products so quick wait for their operands.
CPU_MATRIX = CpuConstants(
    width=400.0,
    vocabulary_bytes=20.0,
    operations=(70, 100),
    attention=0.5,
    layer_bytes=500.0,
    score_bytes=110.0,
)
# An operation takes this long to start.
CPU_OPERATION = 12e-6
# Memory that keeps up with 9 FLOP a byte: 10 GB/s for a core, at most what two channels of memory give.
CPU_BALANCE, CPU_MOST_BANDWIDTH = 9.0, 40e9


def _cpu_step_time(work: Work) -> StepTime:
    shape, constants = work.shape, _cpu_constants(work)
    vectors = work.vector_flops or work.peak_flops
    bandwidth = work.bandwidth or min(vectors / CPU_BALANCE, CPU_MOST_BANDWIDTH)
    fused = work.flash and not shape.dropout
    slower = 1 + constants.width / shape.n_embd
    products = _product_flops(work) * slower / work.peak_flops
    attention = _attention_flops(replace(work, flash=fused)) / (vectors * constants.attention)
    moved = shape.n_layer * shape.n_embd * constants.layer_bytes
    if not fused:
        moved += shape.n_layer * shape.n_head * shape.block_size * constants.score_bytes
    moved = moved * _passes(work) + shape.vocab_size * constants.vocabulary_bytes
    per_layer, outside = constants.operations
    return StepTime(
        products=work.accumulation * products,
        attention=work.accumulation * attention,
        memory=work.accumulation * work.micro_tokens * moved / bandwidth,
        kernels=0.0,
        host=work.accumulation * (per_layer * shape.n_layer * _passes(work) + outside) * CPU_OPERATION,
        optimizer=shape.count_parameters().total * OPTIMIZER_BYTES / bandwidth
        + _muon_flops(work) * slower / work.peak_flops,
        communication=0.0,
    )


def _cpu_constants(work: Work) -> CpuConstants:
    if work.kernels and work.dtype == "float32":
        return CPU_FLOAT32_KERNELS
    if work.kernels:
        return CPU_KERNELS if work.vector_flops is None else CPU_MATRIX
    return CPU_FLOAT32 if work.dtype == "float32" else CPU_AUTOCAST
