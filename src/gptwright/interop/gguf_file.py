"""A run as `model.gguf` for llama.cpp, GPT-2 architecture, float32, through llama.cpp's own package `gguf`.

llama.cpp needs biases, so a model without gets zeros. It knows GPT-2's BPE and one trained like it, and
bytes as such a BPE without merges; characters it does not know, and such a file works with ids alone. Its
GELU is the tanh approximation, from a table in float16, so its logits are near ours and not the same.

Source: llama.cpp, conversion of GPT2LMHeadModel; gguf.constants, MODEL_ARCH.GPT2.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gptwright
from gptwright.data.bpe import BpeTokenizer
from gptwright.data.characters import CharTokenizer
from gptwright.data.tokenizer_base import SEPARATOR_TEXT, import_extra
from gptwright.errors import RunError
from gptwright.interop.gpt2_export import with_zero_biases
from gptwright.interop.gpt2_tokenizer import as_tokenizers_file
from gptwright.interop.trained import TrainedRun

FILE_NAME = "model.gguf"
_NAMES = {
    "transformer.wte.weight": "token_embd.weight",
    "transformer.wpe.weight": "position_embd.weight",
    "transformer.ln_f": "output_norm",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def write_gguf(run: TrainedRun, out: Path) -> list[str]:
    """Writes `model.gguf`; returns what to know.

    Raises:
        RunError: the context is shorter than llama.cpp can be given, or the package is missing.
    """
    gguf = import_extra("gguf", "a GGUF file", extra="interop")
    writer = gguf.GGUFWriter(out / FILE_NAME, "gpt2")
    shape = run.shape
    writer.add_name(run.path.resolve().name)
    writer.add_description(f"trained with gptwright {gptwright.__version__}, {run.checkpoint}")
    writer.add_context_length(shape.block_size)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(4 * shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_head_count(shape.n_head)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(shape.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    notes = _add_tokenizer(gguf, writer, run)
    for name, tensor in with_zero_biases(run).items():
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(tensor.to(torch.float32).numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return [*notes, "llama.cpp computes GELU by its tanh approximation: its logits are near ours, not equal"]


def gguf_name(name: str) -> str:
    """A parameter's name in GGUF."""
    if name in _NAMES:
        return _NAMES[name]
    module, _, kind = name.rpartition(".")
    if module in _NAMES:
        return f"{_NAMES[module]}.{kind}"
    layer, _, part = module.removeprefix("transformer.h.").partition(".")
    return f"blk.{layer}.{_PARTS[part]}.{kind}"


def _add_tokenizer(gguf: Any, writer: Any, run: TrainedRun) -> list[str]:
    tokenizer = run.tokenizer
    text = (
        None if tokenizer is None or isinstance(tokenizer, CharTokenizer) else as_tokenizers_file(tokenizer)
    )
    if tokenizer is None or text is None:
        writer.add_tokenizer_model("none")
        kind = "an unknown" if tokenizer is None else f"a {tokenizer.kind}"
        return [f"llama.cpp cannot have {kind} vocabulary: the file holds none, and works with ids alone"]
    document = json.loads(text)
    if isinstance(tokenizer, BpeTokenizer) and not _is_gpt2s(document):
        raise RunError(
            f"the BPE of {run.path} cuts text into words in another way than GPT-2's",
            why="llama.cpp would cut it as GPT-2 does, and ids would mean other text",
            fix="--format hf writes its tokenizer as it is",
        )
    words = document["model"]["vocab"] | {t["content"]: t["id"] for t in document["added_tokens"]}
    by_id = {number: word for word, number in words.items()}
    tokens = [by_id.get(number, f"[PAD{number}]") for number in range(run.shape.vocab_size)]
    types = [_kind(gguf, by_id.get(number)) for number in range(run.shape.vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in document["model"]["merges"]])
    if tokenizer.separator_id is not None:
        writer.add_bos_token_id(tokenizer.separator_id)
        writer.add_eos_token_id(tokenizer.separator_id)
        writer.add_add_bos_token(False)
    return []


def _is_gpt2s(document: dict[str, Any]) -> bool:
    """Whether a byte-level BPE cuts words by GPT-2's pattern and does nothing to the text before."""
    cutter = document.get("pre_tokenizer") or {}
    plain = cutter.get("type") == "ByteLevel" and cutter.get("use_regex", True)
    return bool(plain and not cutter.get("add_prefix_space") and document.get("normalizer") is None)


def _kind(gguf: Any, word: str | None) -> Any:
    if word is None:
        return gguf.TokenType.UNUSED
    return gguf.TokenType.CONTROL if word == SEPARATOR_TEXT else gguf.TokenType.NORMAL
