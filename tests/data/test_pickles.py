import contextlib
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.data import pickles
from gptwright.data.pickles import read_plain_pickle
from gptwright.errors import DataError

KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
PLAIN = st.recursive(
    KEYS | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner).map(tuple) | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


PLAIN_TYPES = (type(None), bool, int, float, str, bytes, list, tuple, dict)


class Hostile:
    """Touches a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@settings(max_examples=150, deadline=None)
@given(value=PLAIN, protocol=st.integers(3, 5))
def test_plain_values_read_as_pickle_reads_them(
    tmp_path_factory: pytest.TempPathFactory, value: object, protocol: int
) -> None:
    path = tmp_path_factory.mktemp("p") / "meta.pkl"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    assert read_plain_pickle(path) == value


@pytest.mark.parametrize("protocol", range(6))
def test_nanogpts_meta_reads_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    symbols = ["\n", " ", "é", "好", "😀"] + [chr(code) for code in range(400, 1700)]
    meta = {
        "vocab_size": len(symbols),
        "itos": dict(enumerate(symbols)),
        "stoi": {symbol: number for number, symbol in enumerate(symbols)},
    }
    path = tmp_path / "meta.pkl"
    path.write_bytes(pickle.dumps(meta, protocol=protocol))
    assert read_plain_pickle(path) == meta


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_is_refused_and_does_not_run(tmp_path: Path, protocol: int) -> None:
    touched = tmp_path / "touched"
    content = pickle.dumps({"vocab_size": 65, "itos": Hostile(touched)}, protocol=protocol)
    path = tmp_path / "meta.pkl"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_plain_pickle(path)
    assert not touched.exists()
    message = str(caught.value)
    forbidden = next(
        (opcode.name, position)
        for opcode, _, position in pickletools.genops(content)
        if opcode.name in ("GLOBAL", "STACK_GLOBAL", "REDUCE")
    )
    assert f"pickle opcode {forbidden[0]}" in message
    assert f"at byte {forbidden[1]}" in message
    assert "nothing of it was executed" in message
    pickle.loads(content)
    assert touched.exists(), "the pickle was not hostile, so the test proves nothing"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04",
        b"not a pickle",
        b".",
        b"(.",
        b"NN.",
        b"s.",
        b"}Ns.",
        b"](NNu.",
        b"}(Nu.",
        b"}](]Nu.",
        b"h\x05.",
        b"(" * 100_000 + b".",
        b"I" + b"9" * 5000 + b"\n.",
        b"\x8a\x05\x01.",
        b"cbuiltins\nnow\\\x10\n.",
        pickle.dumps({"vocab_size": 65})[:-4],
    ],
)
def test_a_damaged_pickle_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "meta.pkl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="is not a whole pickle file"):
        read_plain_pickle(path)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60))
def test_any_bytes_are_a_plain_value_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("p") / "meta.pkl"
    path.write_bytes(content + b".")
    # Whatever else it raises fails the test.
    with contextlib.suppress(DataError):
        assert isinstance(read_plain_pickle(path), PLAIN_TYPES)


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "_LARGEST_FILE", 100)
    path = tmp_path / "meta.pkl"
    path.write_bytes(pickle.dumps(list(range(200))))
    with pytest.raises(DataError, match="is larger than 32 MiB"):
        read_plain_pickle(path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_plain_pickle(tmp_path / "absent.pkl")
