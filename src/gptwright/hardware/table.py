"""What devices can do on paper: `gpus.toml` as objects, found by name, without torch.

The peaks are the denominators of an MFU, and nearly every MFU in the wild is relative to a wrong one: another
device's, a sparse figure, FP16 accumulation, the rate of ordinary FP32. Here a peak is dense, by dtype, with
FP32 accumulation, and follows from multiprocessors, clock and family; the file says where each figure comes
from. A name must be explained to its last word (`match.py`); an unknown device is None, never another one.

The file is read at the first look-up, once a process, and its lines become objects when they are asked for:
the first look-up takes some 7 ms, the next ones none.
"""

import functools
import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gptwright import units
from gptwright.hardware.match import DeviceName, devices_in, is_apple_name, is_cpu_name, parse_name, words_of

__all__ = [
    "DeviceSpec",
    "Match",
    "all_specs",
    "devices_in",
    "find_spec",
    "is_apple_name",
    "is_cpu_name",
    "near_names",
]

FILE = Path(__file__).with_name("gpus.toml")
GIB = 1024**3
DTYPES = ("float32", "tf32", "float16", "bfloat16")
# A driver reports less memory than is sold: ECC takes 6 %, the driver some more, and a T4 or A10G ends 8 to
# 9 % short. Variants of one name differ by 17 % at least.
MEMORY_TOLERANCE = 0.12
# Error correction in GDDR takes a sixteenth: a driver reports 15,360 MiB of a T4's 16 GiB, 23,034 of an L4's
# 24 and 46,068 of an L40S's 48 (modal-client pull request 2797).
ECC_SHARE = 15 / 16
# What macOS recommends a GPU to take of the machine's memory (recommendedMaxWorkingSetSize, which torch gives
# too): llama.cpp's logs have 10.7 of 16 GiB, 21.3 of 32, 27 of 36 and 48 of 64.
APPLE_SHARES = ((32 * GIB, 2 / 3), (math.inf, 3 / 4))
# What Linux lets an AMD processor's GPU take of it unless it is set up otherwise: 62.2 GiB of 128 (ROCm
# issue 5595).
PROCESSOR_SHARE = 1 / 2
# torch.compile makes kernels with Triton, which refuses compute capabilities below 7.0 (nanoGPT issue 157).
BEFORE_TRITON = ("Kepler", "Maxwell", "Pascal", "Pascal GP100")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceSpec:
    """One device of the table.

    Attributes:
        name: such as `RTX 4070`, `H100 SXM`, `RTX 4070 Laptop`, `M2 Pro`.
        vendor: `nvidia`, `amd`, `intel` or `apple`.
        family: what decides the FLOPs per multiprocessor and clock, such as `Ada GeForce`.
        multiprocessors: SMs, compute units or cores.
        boost_hertz: the clock behind the peaks.
        memory_bytes: as sold; None where it is the machine's own.
        shared: whether that memory is the machine's.
        ecc: whether error correction takes a part of that memory.
        bandwidth: of that memory, in bytes/s.
        power_watts: the board's limit.
        least_clock: the clock at the lowest limit that it is built with as a share of this one; 1 but for
            laptops, whose makers choose the limit.
        peaks: dense FLOP/s with FP32 accumulation by `float32`, `tf32`, `float16`, `bfloat16`; what the
            hardware only emulates or lacks is absent.
        float16_accumulate: FLOP/s with FP16 accumulation where that differs: a wrong denominator often seen.
        source: where the figures come from.
    """

    name: str
    vendor: str
    family: str
    multiprocessors: int | None
    boost_hertz: float | None
    memory_bytes: int | None
    shared: bool
    ecc: bool
    bandwidth: float | None
    power_watts: float | None
    least_clock: float
    peaks: Mapping[str, float]
    float16_accumulate: float | None
    source: str

    @property
    def available_bytes(self) -> int | None:
        """What a driver reports of the memory, or the system lets the GPU have; None where not known."""
        sold = self.memory_bytes
        if sold is None:
            return None
        if self.vendor == "apple":
            return int(sold * next(share for most, share in APPLE_SHARES if sold <= most))
        if self.shared:
            return int(sold * PROCESSOR_SHARE)
        return int(sold * ECC_SHARE) if self.ecc else sold

    @property
    def training_dtype(self) -> str:
        """The dtype that training multiplies in: bfloat16 where it is native, else float16, else float32."""
        return next(dtype for dtype in ("bfloat16", "float16", "float32") if self.native(dtype))

    @property
    def compiles(self) -> bool:
        """Whether torch.compile can make kernels for it."""
        return self.family not in BEFORE_TRITON

    def peak(self, dtype: str) -> float | None:
        """Dense FLOP/s in `dtype` with FP32 accumulation; None if the hardware does not multiply it."""
        return self.peaks.get(dtype)

    def native(self, dtype: str) -> bool:
        """Whether the hardware multiplies `dtype` itself."""
        return dtype in self.peaks


@dataclass(frozen=True, slots=True)
class Match:
    """The device that a name means.

    Attributes:
        spec: its figures.
        assumed: what was taken for granted where the name leaves something open.
        alternatives: other devices that the name fits as well.
    """

    spec: DeviceSpec
    assumed: str | None
    alternatives: tuple[DeviceSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Row:
    """A device, and what a name may say to mean it."""

    spec: DeviceSpec
    brands: frozenset[str]
    laptop: bool
    forms: frozenset[str]
    memory: str | None
    sizes: frozenset[int]
    assumes: str | None

    def fits(self, name: DeviceName, prefix: Sequence[str]) -> bool:
        """Whether all that a name says besides the model is true of this device."""
        return (
            self.brands.issuperset(prefix)
            and len(set(prefix)) == len(prefix)
            and self.laptop == name.laptop
            and (name.form is None or name.form in self.forms)
            and (name.gigabytes is None or not self.sizes or name.gigabytes in self.sizes)
        )

    def has(self, memory_bytes: int) -> bool:
        """Whether a driver may report this much memory for it."""
        sold = self.spec.memory_bytes
        return sold is not None and abs(memory_bytes / sold - 1) < MEMORY_TOLERANCE


def find_spec(name: str, *, memory_bytes: int | None = None) -> Match | None:
    """The device that a name means; None if any word of it is not explained.

    Args:
        name: as a driver, a cloud or a person writes it.
        memory_bytes: what a driver reports, which decides between variants of one name.
    """
    parsed = parse_name(name)
    rows = _fitting(parsed) if parsed else []
    if memory_bytes:
        rows = [row for row in rows if row.has(memory_bytes)] or rows
    if not parsed or not rows:
        return None
    first, *others = rows
    spec = first.spec
    if spec.memory_bytes is None and parsed.gigabytes is not None:
        spec = replace(spec, memory_bytes=parsed.gigabytes * GIB)
    return Match(spec, _assumed(first, others), tuple(row.spec for row in others))


def _fitting(name: DeviceName) -> list[_Row]:
    rows = [
        row
        for cut in range(len(name.words))
        for row in map(_row, _index().get(name.words[cut:], ()))
        if row.fits(name, name.words[:cut])
    ]
    # A kind of memory decides where devices differ by it; elsewhere it is an idle word.
    if name.memory is None or not any(row.memory for row in rows):
        return rows
    return [row for row in rows if row.memory == name.memory]


def _assumed(row: _Row, others: Sequence[_Row]) -> str | None:
    parts = [row.assumes] if row.assumes else []
    if others:
        also = ", ".join(_described(other.spec) for other in others)
        parts.append(f"{_described(row.spec)}; the name fits {also} as well")
    return "; ".join(parts) or None


def _described(spec: DeviceSpec) -> str:
    """A name with what tells variants apart."""
    facts = [units.flops_rate(spec.peaks[spec.training_dtype])]
    if spec.memory_bytes:
        facts.append(f"{spec.memory_bytes // GIB} GB")
    if spec.bandwidth:
        facts.append(f"{spec.bandwidth / 1e9:.0f} GB/s")
    return f"{spec.name} ({', '.join(facts)})"


def all_specs() -> tuple[DeviceSpec, ...]:
    """Every device of the table, in the file's order."""
    return tuple(_row(position).spec for position in range(len(_lines())))


def near_names(name: str) -> list[str]:
    """Up to five names in the table that a mistyped or incomplete one may mean, the nearest first."""
    import difflib  # 5 ms, and only a name that is not found needs it

    wanted = _model_words(name)
    numbers = _numbers(wanted)

    def nearness(candidate: str) -> float:
        words = _model_words(candidate)
        same_number = bool(numbers & _numbers(words))
        return same_number + difflib.SequenceMatcher(None, " ".join(wanted), " ".join(words)).ratio()

    specs = [spec for spec in all_specs() if spec.vendor == "apple" or not is_apple_name(name)]
    ranked = sorted(((nearness(spec.name), spec.name) for spec in specs), key=lambda each: -each[0])
    # Half of the letters in common, or a number of the model: below that it is no relation.
    return [candidate for near, candidate in ranked[:5] if near > 0.5]


def _model_words(name: str) -> Sequence[str]:
    """A name's words without its memory, which cards of every kind share."""
    parsed = parse_name(name)
    return parsed.words if parsed is not None else words_of(name)


def _numbers(words: Sequence[str]) -> set[str]:
    """The numbers in a name by which a model is known: one digit is any maker's."""
    numbers = {word.strip("abcdefghijklmnopqrstuvwxyz") for word in words}
    return {number for number in numbers if len(number) > 1}


@functools.cache
def _lines() -> Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Each line with its table and its family."""
    content = tomllib.loads(FILE.read_text("utf-8"))
    return [
        (line, table, content["families"][table["family"]])
        for table in content["tables"]
        for line in table["rows"].splitlines()
        if line
    ]


@functools.cache
def _index() -> Mapping[tuple[str, ...], Sequence[int]]:
    """The positions of lines by the words that a name must hold."""
    index: dict[tuple[str, ...], list[int]] = {}
    for position, (line, table, _) in enumerate(_lines()):
        for model in _models(line, table):
            index.setdefault(model, []).append(position)
    return index


def _models(line: str, table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The words that must stand in a name, for each of a device's names, without and with the suffix."""
    name = line.rsplit(maxsplit=6)[0]
    for each in (name, *table.get("more", {}).get(name, {}).get("aliases", ())):
        parsed = parse_name(each)
        assert parsed is not None, each
        words = tuple(itertools.dropwhile(table["brands"].__contains__, parsed.words))
        yield words
        if "suffix" in table:
            yield (*words, table["suffix"])


@functools.cache
def _row(position: int) -> _Row:
    line, table, family = _lines()[position]
    name, *columns = line.rsplit(maxsplit=6)
    more = table.get("more", {}).get(name, {})
    own = parse_name(name)
    assert own is not None, line
    spec = _read_spec(name, columns, table, family, more)
    sizes = {spec.memory_bytes // GIB, *more.get("sizes", ())} if spec.memory_bytes else set()
    return _Row(
        spec=spec,
        brands=frozenset(table["brands"]),
        laptop=own.laptop,
        forms=frozenset([own.form] if own.form else more.get("forms", table.get("forms", ()))),
        memory=own.memory or more.get("memory"),
        sizes=frozenset(sizes),
        assumes=more.get("assumes") or _at_the_highest_limit(spec, more),
    )


def _at_the_highest_limit(spec: DeviceSpec, more: Mapping[str, Any]) -> str | None:
    """What is taken for granted of a laptop's GPU, and what the lowest limit would make of it."""
    if "least" not in more:
        return None
    watts, megahertz = more["least"]
    return f"a power limit of {spec.power_watts:.0f} W; at {watts} W the clock is {megahertz} MHz"


def _read_spec(
    name: str,
    columns: Sequence[str],
    table: Mapping[str, Any],
    family: Mapping[str, Any],
    more: Mapping[str, Any],
) -> DeviceSpec:
    multiprocessors, megahertz, gigabytes, bandwidth, watts, _ = (
        None if column == "-" else float(column) for column in columns
    )
    clocks = (multiprocessors or 0) * (megahertz or 0) * 1e6
    least = more["least"][1] if "least" in more else megahertz
    peaks = {dtype: family[dtype] * clocks for dtype in DTYPES if clocks and dtype in family}
    peaks |= {dtype: value * 1e12 for dtype, value in more.get("tflops", {}).items()}
    accumulate = family.get("float16_accumulate")
    return DeviceSpec(
        name=name,
        vendor=family["vendor"],
        family=table["family"],
        multiprocessors=int(multiprocessors) if multiprocessors else None,
        boost_hertz=megahertz * 1e6 if megahertz else None,
        memory_bytes=int(gigabytes) * GIB if gigabytes else None,
        shared=not gigabytes,
        ecc=table.get("ecc", False),
        bandwidth=bandwidth * 1e9 if bandwidth else None,
        power_watts=watts,
        least_clock=least / megahertz if least and megahertz else 1.0,
        peaks=MappingProxyType(peaks),
        float16_accumulate=accumulate * clocks if accumulate else None,
        source="; ".join(filter(None, (table["source"], more.get("note")))),
    )
