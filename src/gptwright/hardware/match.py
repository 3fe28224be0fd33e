"""What a device's name says, word by word: the device itself, its memory, its form, whether it is a laptop's.

Programs, clouds and people write one card in many ways ("NVIDIA A100-SXM4-40GB", "a100 40 GB", "8xA100").
Looking for a piece of text in a name has put RTX A4000 on the A40's row, L40S on the L4's and laptops on
desktop cards in other trainers; so here a name is cut into words, and the table asks for all of them.
"""

import re
from dataclasses import dataclass

# Trademark signs say nothing, and how many there are ("8xH100", "RTX 3090 x2", "8 A100s") is not the device's
# name. The x of "MX450" is; a number before a letter counts if no unit of memory follows.
NUMBERS = {"two": 2, "dual": 2, "twin": 2, "three": 3, "four": 4, "quad": 4, "eight": 8}
COUNT = re.compile(
    rf"^\s*(?:([0-9]{{1,3}})\s*[x×*]\s*|({'|'.join(NUMBERS)})\s)(?=\w)"
    r"|^\s*([0-9]{1,2})\s+(?!gi?b?\b)(?=[a-z]|[0-9]{4})"
    r"|(?<=\w)(?<!\bm)\s*\(?\s?[x×*]\s?([0-9]{1,3})\)?\s*$"
)
IDLE = re.compile(rf"\((?:tm|r|c)\)|[™®©]|{COUNT.pattern}|(?<=[0-9]{{4}})s\b|(?<=\b[abh][0-9]00)s\b")
SEPARATORS = re.compile(r"[\s\-_/,()]+")
# "rtx4070tisuper", "4090d" and "m2pro" are written together, but are several words.
GLUED = re.compile(
    r"(rtx|gtx|rx)?((?<=x)[a-z]?[0-9]{3,4}|[0-9]{4}|m[0-9])(ti|xtx|xt|gre|pro|max|ultra|d)?(super)?"
)
# "RTX 3060M" is how people write a laptop's card.
MOBILE = re.compile(r"(rtx)?([2-9]0[5-9]0)(ti)?m")

# Slots of one form differ in generation, not in what the card is; a DGX station's card is such a one too.
FORMS = {
    **dict.fromkeys(("sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "dgxs"), "sxm"),
    "pcie": "pcie",
    "nvl": "nvl",
    "oam": "oam",
}
MEMORIES = frozenset(f"hbm{kind}" for kind in ("2", "2e", "3", "3e")) | frozenset(
    f"gddr{kind}" for kind in ("5", "5x", "6", "6x", "7")
)
SIZES = ("gib", "gb", "g")
LAPTOP = frozenset(("laptop", "mobile", "notebook"))
# Each may stand once beside a device's name; the last are places where it is rented.
EMPTY = frozenset(
    (
        *("gpu", "gpus", "graphics", "card", "desktop", "tensor", "core", "vram"),
        *("colab", "kaggle", "google", "runpod", "lambda", "aws", "gcp", "azure"),
    )
)

CPU_WORD = (
    r"cpus?|processors?|x86|aarch64|graviton[0-9]?|neoverse|"
    r"ryzen|threadripper|epyc|athlon|xeon|pentium|celeron|atom|snapdragon|i[3579]"
)
APPLE_WORDS = ("apple", "mac", "macbook", "imac")
GPU_WORDS = ("gpu", "gpus", "geforce")


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A name taken apart.

    Attributes:
        words: the device and its maker's words, in lower case and in order.
        gigabytes: the memory that the name states.
        form: `sxm`, `pcie`, `nvl` or `oam`.
        memory: its kind, such as `hbm3`.
        laptop: whether the name says that it is a laptop's.
    """

    words: tuple[str, ...]
    gigabytes: int | None
    form: str | None
    memory: str | None
    laptop: bool


def parse_name(name: str) -> DeviceName | None:
    """A device's name taken apart; None if it says one thing twice."""
    words: list[str] = []
    said: dict[str, str] = {}
    for word in words_of(name):
        kind, value = _meaning(word)
        if kind == "word":
            words.append(word)
        elif kind in said:
            return None
        else:
            said[kind] = value
    size = said.get("size")
    return DeviceName(
        tuple(words), int(size) if size else None, said.get("form"), said.get("memory"), "laptop" in said
    )


def _meaning(word: str) -> tuple[str, str]:
    """What a word tells (`word` for one of the device's own name), and the value that it tells."""
    kind, value = "word", word
    if word in FORMS:
        kind, value = "form", FORMS[word]
    elif word in MEMORIES:
        kind = "memory"
    elif word in LAPTOP:
        kind = "laptop"
    elif word in EMPTY:
        kind = word
    else:
        number = _before(word, SIZES)
        if number and len(number) <= 3:
            kind, value = "size", number
    return kind, value


def _before(word: str, endings: tuple[str, ...]) -> str:
    """The number before one of the endings; empty if it is not a number, or there is no such ending."""
    for ending in endings:
        if word.endswith(ending):
            number = word.removesuffix(ending)
            return number if number.isascii() and number.isdigit() else ""
    return ""


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case; "80 GB" is one and "4070Ti" are two, as they are meant."""
    words: list[str] = []
    for word in SEPARATORS.split(IDLE.sub(" ", name.lower())):
        if word in SIZES[:2] and words and words[-1].isascii() and words[-1].isdigit():
            words[-1] += word
        elif laptop := MOBILE.fullmatch(word):
            words += [*filter(None, laptop.groups()), "laptop"]
        elif glued := GLUED.fullmatch(word):
            words += filter(None, glued.groups())
        elif word:
            words.append(word)
    return words


def devices_in(name: str) -> int | None:
    """How many devices a name says there are: 8 for "8xH100"; None where it says nothing."""
    found = COUNT.search(name.lower())
    if found is None:
        return None
    count = NUMBERS[found[2]] if found[2] is not None else int(found[1] or found[3] or found[4])
    return count if count > 0 else None


def is_apple_name(name: str) -> bool:
    """Whether a name means an Apple chip or machine, in the table or not: "M5 Max", "Mac mini"."""
    words = words_of(name)
    return any(word in APPLE_WORDS or re.fullmatch(r"m[0-9]", word) for word in words)


def is_cpu_name(name: str) -> bool:
    """Whether a name means a processor: "laptop CPU", "AMD Ryzen 7 5800X", "Intel(R) Core(TM) i7-9750H"."""
    words = words_of(name)
    if any(word in GPU_WORDS for word in words):
        return False
    intel_core = len({"intel", "core", "ultra"} & {*words}) > 1
    return intel_core or any(re.fullmatch(CPU_WORD, word) for word in words)
