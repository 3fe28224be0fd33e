"""Reads a file of `torch.save` without unpickling it.

Such a file is a zip: `data.pkl` describes the object, `data/KEY` hold the tensors' bytes, uncompressed.
`torch.load(weights_only=True)` reads it with torch's own list of allowed names; here the list is what a state
dict needs, and nothing of it is ever called: names become descriptions of tensors, and bytes are read only
for the tensors that are asked for. Every size is compared with the file before memory is taken for it, so a
small file cannot ask for much.

Source of the layout: torch/serialization.py (`_save`), torch/_utils.py (`_rebuild_tensor_v2`).
"""

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from gptwright.data.pickles import PickleReader
from gptwright.errors import CheckpointError

# The names that torch.save writes for tensors and state dicts. They are looked up here and nowhere else.
_ORDERED_DICT = "collections OrderedDict"
_TENSOR = "torch._utils _rebuild_tensor_v2"
_PARAMETER = "torch._utils _rebuild_parameter"
_STORAGES = MappingProxyType(
    {
        "torch DoubleStorage": torch.float64,
        "torch FloatStorage": torch.float32,
        "torch HalfStorage": torch.float16,
        "torch BFloat16Storage": torch.bfloat16,
        "torch LongStorage": torch.int64,
        "torch IntStorage": torch.int32,
        "torch ShortStorage": torch.int16,
        "torch CharStorage": torch.int8,
        "torch ByteStorage": torch.uint8,
        "torch BoolStorage": torch.bool,
    }
)
# Descriptions of the largest GPT-2 with its optimizer are below 1 MB.
_LARGEST_DESCRIPTION = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as a file describes it; its bytes are still in the file.

    Attributes:
        key: names the storage.
        dtype: of its elements.
        storage_elements: how many the storage has.
        offset: of the first element.
        shape: of the tensor.
        stride: steps between elements, in each dimension.
    """

    key: str
    dtype: torch.dtype
    storage_elements: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class TorchFile:
    """An open file of `torch.save`.

    Args:
        path: the file.

    Attributes:
        content: the object, with a `StoredTensor` in place of each tensor.

    Raises:
        CheckpointError: it is no such file, damaged, or holds more than data. Nothing of it is executed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
        except zipfile.BadZipFile:
            raise CheckpointError(
                f"{path} is not a checkpoint of torch.save: it is not a zip archive",
                why="torch before 1.6 wrote bare pickles, which cannot be read without running them",
                fix="open it with a current torch where it can be trusted, and torch.save it again",
            ) from None
        names = [name for name in self._zip.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise self._damaged(f"it holds {len(names)} descriptions (data.pkl), not one")
        self._root = names[0].removesuffix("data.pkl")
        self.content = _TensorReader(str(path)).read(self._bytes(names[0], _LARGEST_DESCRIPTION))
        order = f"{self._root}byteorder"
        if order in self._zip.namelist() and self._bytes(order, 16).strip() != b"little":
            raise CheckpointError(f"{path} was written on a big-endian machine, which is not read here")

    def tensor(self, stored: StoredTensor) -> Tensor:
        """The tensor itself, contiguous, on the CPU.

        Raises:
            CheckpointError: the file does not hold what it describes.
        """
        expected = stored.storage_elements * stored.dtype.itemsize
        raw = self._bytes(f"{self._root}data/{stored.key}", expected)
        if len(raw) != expected:
            raise self._damaged(f"storage {stored.key} has {len(raw)} bytes, its description says {expected}")
        if 0 in stored.shape:
            return torch.empty(stored.shape, dtype=stored.dtype)
        last = stored.offset + sum(
            (n - 1) * step for n, step in zip(stored.shape, stored.stride, strict=True)
        )
        if last >= stored.storage_elements or math.prod(stored.shape) > stored.storage_elements:
            raise self._damaged(f"a tensor of shape {list(stored.shape)} reaches beyond storage {stored.key}")
        flat = torch.frombuffer(bytearray(raw), dtype=stored.dtype)
        return flat.as_strided(stored.shape, stored.stride, stored.offset).contiguous()

    def close(self) -> None:
        """Closes the file."""
        self._zip.close()

    def __enter__(self) -> "TorchFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bytes(self, name: str, limit: int) -> bytes:
        try:
            entry = self._zip.getinfo(name)
        except KeyError:
            raise self._damaged(f"{name} is missing") from None
        if entry.compress_type != zipfile.ZIP_STORED:
            raise self._damaged(f"{name} is compressed, which torch.save never does")
        if entry.file_size > limit:
            raise self._damaged(f"{name} has {entry.file_size} bytes, more than the {limit} expected")
        try:
            return self._zip.read(entry)
        except (OSError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
            raise self._damaged(f"{name}: {error}") from None

    def _damaged(self, reason: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path} is not a whole checkpoint: {reason}",
            why="nothing of it was executed",
            fix="copy the file again from where it was written",
        )


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that a pickle looks up: a mark here, never the thing itself."""

    text: str


class _Ordered(dict[Any, Any]):
    """An OrderedDict of the file, which may have attributes; they are dropped."""


class _TensorReader(PickleReader):
    """Plain values, tensors and state dicts."""

    error = CheckpointError
    refused_fix = (
        "do not load it with torch.load either; get the weights as safetensors from someone you trust"
    )
    damaged_fix = "copy the file again from where it was written"

    def further(self, name: str, argument: Any) -> bool:
        """The opcodes that torch.save needs beyond the plain ones."""
        match name:
            case "GLOBAL" if argument in (_ORDERED_DICT, _TENSOR, _PARAMETER, *_STORAGES):
                self.stack.append(_Name(argument))
            case "BINPERSID":
                self.stack.append(_storage(self.stack.pop()))
            case "REDUCE":
                arguments, called = self.stack.pop(), self.stack.pop()
                self.stack.append(_described(called, arguments))
            case "BUILD" if isinstance(self.stack[-2], _Ordered):
                self.stack.pop()
            case _:
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: torch.dtype
    elements: int


def _storage(identity: Any) -> _Storage:
    kind, storage, key, _, elements = identity
    if kind != "storage" or not isinstance(key, str) or not _is_size(elements):
        raise ValueError("a storage is described as torch does not")
    return _Storage(key, _STORAGES[storage.text], elements)


def _described(called: Any, arguments: Any) -> Any:
    """What a call would have made."""
    if called == _Name(_ORDERED_DICT) and arguments == ():
        return _Ordered()
    if called == _Name(_PARAMETER) and isinstance(arguments[0], StoredTensor):
        return arguments[0]
    if called != _Name(_TENSOR):
        raise ValueError("something is called that makes no tensor")
    storage, offset, shape, stride = arguments[:4]
    sizes = (offset, *shape, *stride)
    if not isinstance(storage, _Storage) or len(shape) != len(stride) or not all(map(_is_size, sizes)):
        raise ValueError("a tensor is described as torch does not")
    return StoredTensor(storage.key, storage.dtype, storage.elements, offset, tuple(shape), tuple(stride))


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**48
