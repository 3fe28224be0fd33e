"""Whether the device has the arithmetic that it is asked for."""

from collections.abc import Iterator

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.findings import Action, Confidence, Severity
from gptwright.hardware.table import DeviceSpec


def bf16_emulated(reading: Reading) -> Iterator[Verdict]:
    """PyTorch's torch.cuda.is_bf16_supported() answers yes on cards that only emulate bfloat16, and nanoGPT
    asks it; on a T4, V100 or 20-series card bfloat16 matrix products measured 7 to 9 times slower than
    float16. It fires only where the config or the log names bfloat16 and the table knows the card; not where
    nanoGPT runs on anything but CUDA, where it ignores its dtype and multiplies in float32. What Apple's GPUs
    do with bfloat16 is not published, so of them it is said without a figure. Source:
    torch.cuda.is_bf16_supported, whose including_emulation defaults to True; measured products of public
    benchmarks (RTX 2080: 39.0 against 5.1 TFLOP/s); nanoGPT's train.py (nullcontext without CUDA).
    """
    dtype, spec = reading.settings.get("dtype"), reading.machine.spec
    if dtype is None or dtype.value != "bfloat16" or spec is None or spec.native("bfloat16"):
        return
    if _ignores_dtype(reading, spec):
        return
    known = spec.vendor != "apple"
    better = spec.training_dtype
    yield finding(
        "bf16-emulated",
        Severity.WARNING if known else Severity.INFO,
        Confidence.CERTAIN if known else Confidence.POSSIBLE,
        f"{spec.name} has no bfloat16 arithmetic; it is emulated, several times slower than {better}."
        if known
        else f"{spec.name} is not known to multiply bfloat16 itself; where it is emulated, it is slower than"
        f" {better}.",
        [dtype, reading.machine.name],
        actions=[Action(f"Use {better}; the trainer scales the loss by itself.", {"dtype": better})],
    )


def _ignores_dtype(reading: Reading, spec: DeviceSpec) -> bool:
    """Whether the trainer is nanoGPT without CUDA."""
    config = reading.evidence.config
    place = config.settings.get("device") if config is not None else None
    device = str(place.value) if place is not None else "mps" if spec.vendor == "apple" else "cuda"
    is_nanogpt = reading.log is not None and reading.log.format.name == "nanoGPT"
    return is_nanogpt and not device.startswith("cuda")


RULES = (Rule("bf16-emulated", bf16_emulated),)
