"""What each trainer's runs have in common: models, devices, schedules, how it evaluates."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tests.simulator.devices import ALL

GPT2_VOCABULARIES = (50257, 50304)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One trainer's habits.

    Attributes:
        family: of `shapes.Shape`.
        vocabularies: sizes that its users have; 0 stands for a tokenizer of their own, -1 for characters.
        bias: biases in its models.
        parameters: sizes worth simulating, smallest and largest.
        kinds: kinds of device it runs on.
        devices: names, where only some of those kinds are usual.
        needs_bf16: whether it runs in bfloat16 only.
        counts: device counts that are usual.
        schedule: shape of the learning rate.
        floor: its end, relative to its peak.
        warmup_first: see `truth.Schedule.first`.
        noise: nats of scatter for 1,024 tokens on training lines.
        eval_fixed: whether every evaluation reads the same tokens.
        evaluates: whether it evaluates at all.
        zero_head: whether the head starts at zero, so that the first loss is ln(vocabulary) exactly.
        dropout: whether its models can have dropout.
        config: the config file that comes with a run; empty for none.
        lines: at most so many training lines.
        eval_iters: batches in an evaluation, where the trainer's source fixes them.
        least_micro_batch: smallest usual micro-batch.
        aligned: evaluations fall on logged steps, because their lines name no step of their own.
        shape: fixed (n_layer, n_head, n_embd); None where it is drawn.
    """

    family: str = "gpt2"
    vocabularies: tuple[int, ...] = (50304,)
    bias: bool = False
    parameters: tuple[float, float] = (1e6, 8e8)
    kinds: tuple[str, ...] = ("consumer", "datacenter")
    devices: tuple[str, ...] = ()
    needs_bf16: bool = True
    counts: tuple[int, ...] = (1, 1, 1, 2, 4, 8)
    schedule: str = "cosine"
    floor: float = 0.1
    warmup_first: int = 1
    noise: float = 0.40
    eval_fixed: bool = True
    evaluates: bool = True
    zero_head: bool = False
    dropout: bool = False
    config: str = ""
    lines: int = 400
    eval_iters: int | None = None
    least_micro_batch: int = 1
    aligned: bool = False
    shape: tuple[int, int, int] | None = None


ANY_DEVICE = ("cpu", "consumer", "datacenter")
CUDA_DEVICES = tuple(device.name for device in ALL if device.multiprocessors)
READS_IN_ORDER = 1.0

MODDED = Profile(
    family="pythia",
    parameters=(1.6e8, 1.65e8),
    schedule="trapezoid",
    floor=0.0,
    kinds=("datacenter",),
    devices=("A100", "H100"),
    counts=(8, 8, 4, 2, 1),
    noise=READS_IN_ORDER,
    zero_head=True,
    config="config.toml",
    shape=(12, 6, 768),
)
HUGGING_FACE = Profile(
    vocabularies=(50257, 0),
    bias=True,
    kinds=ANY_DEVICE,
    needs_bf16=False,
    schedule="linear",
    floor=0.0,
    warmup_first=0,
    dropout=True,
    config="config.toml",
    lines=250,
)

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "nanogpt": Profile(
            vocabularies=(50304, 50304, 0, -1),
            kinds=ANY_DEVICE,
            needs_bf16=False,
            eval_fixed=False,
            dropout=True,
            config="config.py",
        ),
        "llama2c": Profile(
            family="llama2c",
            vocabularies=(32000, 0),
            kinds=ANY_DEVICE,
            needs_bf16=False,
            floor=0.0,
            warmup_first=0,
            eval_fixed=False,
            dropout=True,
            config="config.py",
        ),
        "build-nanogpt": Profile(
            bias=True,
            parameters=(1e8, 4e8),
            devices=("A100", "H100", "L40S", "RTX A6000"),
            noise=READS_IN_ORDER,
            config="config.toml",
            eval_iters=20,
            least_micro_batch=32,
            aligned=True,
        ),
        "nanochat": Profile(
            family="nanochat",
            vocabularies=(32768, 32768, 65536),
            parameters=(3e7, 8e8),
            schedule="trapezoid",
            floor=0.05,
            noise=0.6,
            zero_head=True,
        ),
        "modded": MODDED,
        "modded-current": replace(MODDED, floor=0.1),
        "llmc": Profile(
            bias=True,
            parameters=(1e8, 8e8),
            devices=CUDA_DEVICES,
            floor=0.0,
            noise=READS_IN_ORDER,
            aligned=True,
        ),
        "litgpt": Profile(
            family="pythia",
            vocabularies=(50304, 32000, 0),
            warmup_first=0,
            config="config.toml",
        ),
        "hf": HUGGING_FACE,
        "hf-state": HUGGING_FACE,
        "torchtitan": Profile(
            family="llama3",
            vocabularies=(32000, 50304, 0),
            schedule="linear",
            floor=0.0,
            counts=(1, 2, 4, 8, 8),
            evaluates=False,
            lines=300,
        ),
        "ours": Profile(
            vocabularies=(50304, 0, -1),
            kinds=ANY_DEVICE,
            needs_bf16=False,
            counts=(1,),
            dropout=True,
            config="config.toml",
            lines=250,
        ),
    }
)
FORMATS: tuple[str, ...] = tuple(PROFILES)
