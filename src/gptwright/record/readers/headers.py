"""The facts that stand outside a log's tables: templates of header lines, as `shapes` has for data lines.

`{name}` in a template is a fact of that standard name, `{name@unit}` one that is printed in another unit,
`{settings.name}` an echoed setting. A number that a fact is made of is only taken whole: thousands separators
must come out even, and infinity is no fact.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from gptwright.facts import Fact, Value, logged
from gptwright.record.readers.fields import REAL
from gptwright.record.readers.shapes import mark_of

COUNT = r"(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(?!\w|[.,]\d)"
# What is printed as `1.65e+14` is cut where it lacks the exponent.
SCIENTIFIC = r"\d\.\d{1,12}e[-+]\d\d(?!\d)|-?(?:inf|nan)"
WORDS = r"[^|\n]{1,120}?"

# The unit of each fact that has one, as `units.text` knows it.
UNITS: Mapping[str, str] = MappingProxyType(
    {
        "parameters": "parameters",
        "parameters_total": "parameters",
        "parameters_rounding": "parameters",
        "trained_parameters": "parameters",
        "frozen_parameters": "parameters",
        "decayed_parameters": "parameters",
        "not_decayed_parameters": "parameters",
        "tokens_per_step": "tokens",
        "tokens_seen": "tokens",
        "tokens_per_micro_batch": "tokens",
        "planned_tokens": "tokens",
        "train_tokens": "tokens",
        "val_tokens": "tokens",
        "allocation_bytes": "bytes",
        "device_memory_bytes": "bytes",
        "peak_memory_bytes": "bytes",
        "mfu_peak_flops": "FLOP/s",
        "flops_per_token": "FLOP/token",
        "training_seconds": "seconds",
    }
)
COUNTS = frozenset(
    {
        "parameters",
        "parameters_total",
        "trained_parameters",
        "frozen_parameters",
        "decayed_parameters",
        "not_decayed_parameters",
        "tokens_per_step",
        "planned_tokens",
        "planned_steps",
        "planned_epochs",
        "examples",
        "micro_batch",
        "gradient_accumulation_steps",
        "world_size",
        "block_size",
        "vocab_size",
        "padded_vocab_size",
        "tokens_per_micro_batch",
        "global_batch",
        "n_layer",
        "n_head",
        "n_embd",
        "settings.warmup_iters",
        "settings.max_iters",
        "settings.eval_interval",
        "settings.eval_iters",
    }
)
REALS = frozenset(
    {
        "flops_per_token",
        "mfu_peak_flops",
        "training_seconds",
        "peak_memory_bytes",
        "allocation_bytes",
        "device_memory_bytes",
        "settings.learning_rate",
        "settings.min_lr",
        "settings.weight_decay",
        "settings.dropout",
    }
)
FLAGS = frozenset({"fused", "compile"})
SCALES: Mapping[str, float] = MappingProxyType(
    {
        "M": 1e6,
        "TFLOPs": 1e12,
        "GFLOPs": 1e9,
        "GiB": 2.0**30,
        "MiB": 2.0**20,
        "GB": 1e9,
        "MB": 2.0**20,
        "min": 60.0,
    }
)
# What only the end of a run can say; everything else, seen after data, is another process's header.
LATE = frozenset({"peak_memory_bytes", "training_seconds", "steps_per_second", "device_memory_bytes"})

PLACEHOLDER = re.compile(r"\{([a-z_.]+)(?:@([A-Za-z]+))?\}")
DTYPES: Mapping[str, str] = MappingProxyType(
    {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "torch.bfloat16": "bfloat16"}
)


@dataclass(frozen=True, slots=True)
class Said:
    """One value of a header line, before it is a fact."""

    name: str
    value: Value
    rounding: float | None = None


class Header:
    """A kind of header line.

    Args:
        template: its text, a regular expression with `{facts}`.
        weight: how far one such line speaks for its trainer.
        means: facts that the line says without printing their value.
    """

    def __init__(
        self, template: str, *, weight: float = 0.01, means: Mapping[str, Value] = MappingProxyType({})
    ) -> None:
        self.weight = weight
        self._names = PLACEHOLDER.findall(template)
        self._means = [Said(name, value) for name, value in means.items()]
        self._template = template

    @cached_property
    def _mark(self) -> str:
        return mark_of(PLACEHOLDER.sub("{}", self._template))

    @cached_property
    def _search(self) -> Callable[[str], re.Match[str] | None]:
        pattern = PLACEHOLDER.sub(lambda found: f"({_pattern(found[1], found[2])})", self._template)
        return re.compile(pattern, re.ASCII).search

    def may_be_in(self, text: str) -> bool:
        """False only if no part of the text is such a line; costs next to nothing."""
        return self._mark in text

    def search(self, text: str) -> re.Match[str] | None:
        """The first such line in a text."""
        return self._search(text) if self.may_be_in(text) else None

    def said(self, match: re.Match[str]) -> list[Said]:
        """What a match says; values that are no facts are left out."""
        pairs = zip(self._names, match.groups(), strict=True)
        read = [_read(name, unit, text) for (name, unit), text in pairs if text is not None]
        return [said for said in read if said is not None] + self._means


def fact(said: Said, line: int) -> Fact:
    """The fact that a line says."""
    name = said.name.removeprefix("settings.")
    return logged(name, said.value, line, unit=UNITS.get(name, ""))


# The rows of nvidia-smi's table, unless it cut the name short.
NVIDIA_SMI = (
    Header(r"^\|\s+\d+\s+(?![^|]*\.\.\.){device}\s+(?:On|Off|N/A)\s+\|"),
    Header(r"\d{1,7}MiB / +{device_memory_bytes@MiB}MiB \|"),
)


def _pattern(name: str, unit: str | None) -> str:
    if unit is not None:
        return REAL
    if name in COUNTS:
        return COUNT
    if name in ("flops_per_token", "mfu_peak_flops"):
        return SCIENTIFIC
    if name in REALS:
        return rf"{REAL}(?![\w.])|-?(?:inf|nan)"
    return "True|False" if name in FLAGS else WORDS


def _read(name: str, unit: str, text: str) -> Said | None:
    if unit == "M":
        decimals = len(text.partition(".")[2])
        # nanoGPT prints 0.00M for what is smaller than its rounding, which is no count.
        count = round(float(text) * 1e6)
        return Said(name, count, 0.5e6 * 10.0**-decimals) if count > 0 else None
    if name in COUNTS:
        count = int(text.replace(",", ""))
        return Said(name, count) if count else None
    if name in REALS:
        value = float(text) * SCALES.get(unit, 1.0)
        if not math.isfinite(value) or value <= 0:
            return None
        return Said(name, round(value) if name.endswith("_bytes") else value)
    if name in FLAGS:
        return Said(name, text == "True")
    words = text.strip()
    return (
        Said(name, DTYPES.get(words.lower(), words) if name.endswith("dtype") else words) if words else None
    )
