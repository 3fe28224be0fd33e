"""Ways to damage a file: blindly by its bytes, or knowingly by its JSON structure."""

import json
import random
from typing import Any

# What a hostile or unlucky writer puts where something else is meant.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 255, 65536, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, -(2**63), 10**30, 0.5,
    -0.0, 1e-320, 1e308, float("nan"), float("inf"), "", " ", "a", "nan", "../../../etc/passwd",
    "/etc/passwd", "..", "C:\\x", "a\0b", "\ud800", "\u202e", "x" * 5000, "__import__('os').system('id')",
    [], {}, [[]], {"": {}}, [None] * 300, {"$ref": "#"}, "step-00000008", "uint8", "gpt2", "char", 1e18,
)  # fmt: skip
PIECES = (
    b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"{", b"}", b"[", b"]", b'"', b"'",
    b"\\", b"\n", b"\r\n", b"\t", b"#", b"=", b",", b":", b"9" * 40, b"-", b"1e999", b"0x", b"nan", b"inf",
    b"None", b"**", b"(", b")", b"import os", b"cos\nsystem\n", b"R.", b"\xef\xbb\xbf", b"\xed\xa0\x80",
)  # fmt: skip
DEEP = 3000


def damaged(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """A file with one to four damages, in half the cases by its JSON structure where it has one."""
    if rng.random() < 0.5 and content[:1] == b"{":
        try:
            return _restructured(content, rng)
        except (ValueError, RecursionError):
            pass
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = rng.choice(BLIND)(content, other, rng)
    return content


def _flip(content: bytes, _: bytes, rng: random.Random) -> bytes:
    if not content:
        return content
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, _: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _drop(content: bytes, _: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    return content[:begin] + content[begin + rng.randrange(1, 60) :]


def _repeat(content: bytes, _: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    piece = content[begin : begin + rng.randrange(1, 60)]
    return content[:begin] + piece * rng.choice((2, 3, 50)) + content[begin:]


def _insert(content: bytes, _: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice(PIECES) * rng.choice((1, 1, 1, 8)) + content[place:]


def _nest(content: bytes, _: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice((b"[", b"(", b'{"a":', b"-")) * DEEP + content[place:]


def _cross(content: bytes, other: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other) + 1) :]


def _number(content: bytes, _: bytes, rng: random.Random) -> bytes:
    """Another number where digits stand."""
    digits = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if not digits:
        return content
    place = rng.choice(digits)
    number = str(rng.choice([v for v in VALUES if isinstance(v, int | float)])).encode()
    return content[:place] + number + content[place + 1 :]


BLIND = (_flip, _flip, _cut, _drop, _repeat, _insert, _insert, _nest, _cross, _number)


def _restructured(content: bytes, rng: random.Random) -> bytes:
    document = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change(document, rng)
    text = json.dumps(document)
    if rng.random() < 0.02:
        text = '{"a":' * DEEP + text + "}" * DEEP
    return text.encode()


def _change(document: Any, rng: random.Random) -> None:
    """Changes one place of a JSON document: another value, one less, one more, one under another key."""
    places = list(_places(document))
    if not places:
        return
    parent, key = rng.choice(places)
    match rng.randrange(5):
        case 0 | 1 | 2:
            parent[key] = rng.choice(VALUES)
        case 3:
            del parent[key]
        case _ if isinstance(parent, dict):
            parent[str(rng.choice(VALUES))[:50]] = parent[key]
        case _:
            parent.insert(key, parent[key])


def _places(document: Any) -> Any:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)
