"""Whether the device has the arithmetic that it is asked for."""

from collections.abc import Iterator

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.findings import Action, Confidence, Severity


def bf16_emulated(reading: Reading) -> Iterator[Verdict]:
    """PyTorch's torch.cuda.is_bf16_supported() answers yes on cards that only emulate bfloat16, and nanoGPT
    asks it; on a T4, V100 or 20-series card bfloat16 matrix products measured 7 to 9 times slower than
    float16. It fires
    only where the config or the log names bfloat16 and the table knows the card. Source:
    torch.cuda.is_bf16_supported, whose including_emulation defaults to True; measured products of public
    benchmarks (RTX 2080: 39.0 against 5.1 TFLOP/s).
    """
    dtype, spec = reading.settings.get("dtype"), reading.machine.spec
    if dtype is None or dtype.value != "bfloat16" or spec is None or spec.native("bfloat16"):
        return
    better = spec.training_dtype
    yield finding(
        "bf16-emulated",
        Severity.WARNING,
        Confidence.CERTAIN,
        f"{spec.name} has no bfloat16 arithmetic; it is emulated, several times slower than {better}.",
        [dtype, reading.machine.name],
        actions=[Action(f"Use {better}; the trainer scales the loss by itself.", {"dtype": better})],
    )


RULES = (Rule("bf16-emulated", bf16_emulated),)
