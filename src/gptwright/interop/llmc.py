"""llm.c's model files, `gpt2_124M.bin` and `model_00019560.bin`: weights in, without optimizer.

A header of 256 int32 (magic, version, then the sizes), and the parameters one after another, each kind for
all layers at once: float32 in version 3, bfloat16 in version 5. The token embedding is padded to a multiple
of 128 rows; those beyond the vocabulary are never used and are left out. Its GELU is the tanh approximation.

Source: llm.c, train_gpt2.cu (`gpt2_write_to_checkpoint`) and train_gpt2.py (`write_model`).
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.pretrained import GPT2_VOCABULARY
from gptwright.data.bpe import Gpt2Tokenizer
from gptwright.errors import CheckpointError
from gptwright.interop.foreign import ForeignModel, checked_shape, parameter_shapes

MAGIC = 20240326
HEADER_BYTES = 1024
_DTYPES = {3: torch.float32, 5: torch.bfloat16}
# llm.c's order; `h` stands for all layers.
_ORDER = (
    "wte.weight",
    "wpe.weight",
    *("h.ln_1.weight", "h.ln_1.bias", "h.attn.c_attn.weight", "h.attn.c_attn.bias"),
    *("h.attn.c_proj.weight", "h.attn.c_proj.bias", "h.ln_2.weight", "h.ln_2.bias"),
    *("h.mlp.c_fc.weight", "h.mlp.c_fc.bias", "h.mlp.c_proj.weight", "h.mlp.c_proj.bias"),
    *("ln_f.weight", "ln_f.bias"),
)


def is_llmc(path: Path) -> bool:
    """Whether a file begins as llm.c's models do."""
    with path.open("rb") as file:
        return file.read(4) == MAGIC.to_bytes(4, "little")


def read_llmc(path: Path) -> ForeignModel:
    """A model of llm.c.

    Raises:
        CheckpointError: it is none, of another version, or not whole.
    """
    with path.open("rb") as file:
        header = np.frombuffer(file.read(HEADER_BYTES), dtype="<i4")
    if len(header) < 256 or header[0] != MAGIC or int(header[1]) not in _DTYPES:
        raise CheckpointError(
            f"{path} is not a model of llm.c that can be read: magic and version are {header[:2].tolist()}",
            why=f"read are magic {MAGIC} with version 3 (float32) or 5 (bfloat16)",
        )
    dtype = _DTYPES[int(header[1])]
    names = ("block_size", "vocab_size", "n_layer", "n_head", "n_embd")
    shape = checked_shape(str(path), dict(zip(names, header[2:7].tolist(), strict=True)), bias=True)
    padded = int(header[7])
    sizes = parameter_shapes(shape)
    elements = sum(math.prod(size) for size in sizes.values()) + (padded - shape.vocab_size) * shape.n_embd
    expected = HEADER_BYTES + elements * dtype.itemsize
    if padded < shape.vocab_size or path.stat().st_size != expected:
        raise CheckpointError(
            f"{path} has {path.stat().st_size:,} bytes, its header makes {expected:,}",
            why="the file is cut, or its header is not of its content",
            fix="copy the file again",
        )
    return ForeignModel(
        origin=f"llm.c model {path}",
        shape=shape,
        weights=_weights(path, dtype, shape, sizes, padded),
        tokenizer=Gpt2Tokenizer() if shape.vocab_size == GPT2_VOCABULARY else None,
        notes=(
            "it was made with the tanh approximation of GELU; here it runs with the exact one, as in nanoGPT",
            "llm.c keeps AdamW's state in another file, which is not read: AdamW starts anew",
        ),
    )


def _weights(
    path: Path, dtype: torch.dtype, shape: ModelShape, sizes: dict[str, tuple[int, ...]], padded: int
) -> dict[str, Tensor]:
    kind = "<f4" if dtype == torch.float32 else "<i2"
    weights: dict[str, Tensor] = {}
    with path.open("rb") as file:
        file.seek(HEADER_BYTES)
        for pattern in _ORDER:
            layers = range(shape.n_layer) if pattern.startswith("h.") else (None,)
            for layer in layers:
                name = f"transformer.{pattern if layer is None else pattern.replace('h.', f'h.{layer}.', 1)}"
                size = sizes[name]
                rows = padded if pattern == "wte.weight" else size[0]
                raw = np.fromfile(file, dtype=kind, count=rows * math.prod(size[1:]))
                tensor = torch.from_numpy(raw).view(dtype).view(rows, *size[1:])[: size[0]]
                weights[name] = tensor.to(torch.float32).contiguous()
    return {name: weights[name] for name in sizes}
