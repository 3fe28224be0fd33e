"""A file of torch.save is read as data: what torch itself reads, and nothing that would run."""

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptwright.errors import CheckpointError
from gptwright.interop.nanogpt import read_nanogpt
from gptwright.interop.torch_file import StoredTensor, TorchFile
from tests.conftest import Answer


class Hostile:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def rewritten(path: Path, change: Callable[[str, bytes], bytes], *, compression: int = 0) -> None:
    """The same zip with other contents."""
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in parts.items():
            file.writestr(name, change(name, content))


def test_what_torch_saves_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    content = {
        "dict": OrderedDict(a=base, b=base.T, c=base[1:3, 2:]),
        "kinds": [
            torch.tensor([1.5, -2.0]).to(dtype)
            for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8)
        ],
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "plain": (1, "x", None, True, 2.5),
    }
    torch.save(content, tmp_path / "a.pt")
    theirs = torch.load(tmp_path / "a.pt", weights_only=True)
    with TorchFile(tmp_path / "a.pt") as file:

        def compare(ours: Any, wanted: Any) -> None:
            if isinstance(wanted, torch.Tensor):
                tensor = file.tensor(ours)
                assert tensor.dtype == wanted.dtype
                assert torch.equal(tensor, wanted)
            elif isinstance(wanted, dict):
                assert ours.keys() == wanted.keys()
                for name in wanted:
                    compare(ours[name], wanted[name])
            elif isinstance(wanted, list):
                for a, b in zip(ours, wanted, strict=True):
                    compare(a, b)
            else:
                assert ours == wanted

        compare(file.content, theirs)


def test_a_hostile_checkpoint_is_refused_and_does_not_run(
    tmp_path: Path, gptwright: Callable[..., Answer]
) -> None:
    ran = tmp_path / "ran"
    torch.save({"model": Hostile(ran), "model_args": {}}, tmp_path / "ckpt.pt")
    torch.load(tmp_path / "ckpt.pt", weights_only=False)
    assert ran.exists()  # so it is hostile indeed
    ran.unlink()
    with pytest.raises(CheckpointError, match="holds more than plain values: pickle opcode"):
        read_nanogpt(tmp_path / "ckpt.pt")
    answer = gptwright("import", str(tmp_path / "ckpt.pt"), "--out", str(tmp_path / "run"))
    assert answer.status == 2
    assert "nothing of it was executed" in answer.err
    as_start = gptwright("train", f"--init_from={tmp_path / 'ckpt.pt'}", f"--out_dir={tmp_path / 'run'}")
    assert as_start.status == 2
    assert not ran.exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_bare_hostile_pickle_is_refused_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    ran = tmp_path / "ran"
    torch.save({"model": {}}, tmp_path / "ckpt.pt")
    hostile = pickle.dumps({"model": Hostile(ran)}, protocol=protocol)
    rewritten(tmp_path / "ckpt.pt", lambda name, content: hostile if name.endswith("data.pkl") else content)
    with pytest.raises(CheckpointError):
        TorchFile(tmp_path / "ckpt.pt")
    (tmp_path / "old.pt").write_bytes(hostile)
    with pytest.raises(CheckpointError, match="not a zip archive"):
        TorchFile(tmp_path / "old.pt")
    assert not ran.exists()


def test_an_allowed_name_is_never_called(tmp_path: Path) -> None:
    """The names that torch.save needs, in a program that torch.save would not write."""
    torch.save({}, tmp_path / "a.pt")
    programs = [
        b"\x80\x02ccollections\nOrderedDict\n(X\x01\x00\x00\x00ai\x85R.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"\x80\x02ctorch\nFloatStorage\n)R.",
        b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ\xff\xff\xff\xfftQ.",
    ]
    for program in programs:
        rewritten(
            tmp_path / "a.pt",
            lambda name, content, program=program: program if name.endswith("data.pkl") else content,  # type: ignore[misc]
        )
        with pytest.raises(CheckpointError):
            TorchFile(tmp_path / "a.pt")


def test_sizes_are_compared_before_memory_is_taken(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(8)}, tmp_path / "a.pt")
    with TorchFile(tmp_path / "a.pt") as file:
        stored = file.content["x"]
        for claimed in (
            StoredTensor(stored.key, stored.dtype, 2**40, 0, (2**40,), (1,)),
            StoredTensor(stored.key, stored.dtype, 8, 0, (2**40,), (0,)),
            StoredTensor(stored.key, stored.dtype, 8, 4, (8,), (1,)),
            StoredTensor("missing", stored.dtype, 8, 0, (8,), (1,)),
        ):
            with pytest.raises(CheckpointError, match="is not a whole checkpoint"):
                file.tensor(claimed)


def test_a_compressed_or_flipped_archive_is_refused(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(4096)}, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    rewritten(tmp_path / "a.pt", lambda _, content: content, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match=r"is compressed, which torch\.save never does"):
        TorchFile(tmp_path / "a.pt")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    (tmp_path / "a.pt").write_bytes(damaged)
    with TorchFile(tmp_path / "a.pt") as file, pytest.raises(CheckpointError, match="Bad CRC-32"):
        file.tensor(file.content["x"])


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_of_the_description_does_more_than_be_refused(position: int, change: int) -> None:
    content = bytearray(_DESCRIPTION)
    content[position % len(content)] ^= change
    from gptwright.interop.torch_file import _TensorReader

    try:
        _TensorReader("a.pt").read(bytes(content))
    except CheckpointError as error:
        assert "a.pt" in str(error)  # noqa: PT017 - both outcomes are sound, a crash is not


def _description() -> bytes:
    import io

    buffer = io.BytesIO()
    model = torch.nn.Linear(3, 2)
    torch.save({"model": model.state_dict(), "iter_num": 3, "x": [1.5, None]}, buffer)
    with zipfile.ZipFile(buffer) as file:
        return file.read(next(name for name in file.namelist() if name.endswith("data.pkl")))


_DESCRIPTION = _description()
