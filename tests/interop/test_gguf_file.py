"""GGUF: gguf's own reader gives our tensors back, under the names that llama.cpp has for GPT-2."""

from pathlib import Path

import gguf
import pytest
import torch

from gptwright.data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer
from gptwright.interop.export import export_run
from gptwright.interop.gguf_file import gguf_name
from gptwright.interop.trained import TrainedRun
from tests.interop.test_gpt2_folder import exported_of
from tests.model.models import shape_of, vivid_model


def written(tmp_path: Path, *, bias: bool, tokenizer: Tokenizer, rows: int = 0) -> TrainedRun:
    model = vivid_model(shape_of(vocab_size=tokenizer.vocab_size + rows, bias=bias), std=0.08)
    run = exported_of(model, tmp_path / "hf", tokenizer)
    export_run(run, "gguf", tmp_path / "gguf")
    return run


@pytest.mark.parametrize("bias", [True, False])
def test_every_tensor_and_size_is_in_the_file(tmp_path: Path, *, bias: bool) -> None:
    run = written(tmp_path, bias=bias, tokenizer=ByteTokenizer(), rows=7)
    reader = gguf.GGUFReader(tmp_path / "gguf" / "model.gguf")
    found = {tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in reader.tensors}
    wanted = {gguf_name(name): tensor for name, tensor in run.weights.items()}
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    assert all(not found[name].any() for name in found.keys() - wanted.keys())
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, 2)
    names = {known.get_name(name, try_suffixes=(".weight", ".bias")) for name in run.weights}
    assert names == wanted.keys()  # llama.cpp's own table of names
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "gpt2"
    assert (fields["gpt2.block_count"], fields["gpt2.attention.head_count"]) == (2, 2)
    assert len(fields["tokenizer.ggml.tokens"]) == run.shape.vocab_size
    assert fields["tokenizer.ggml.tokens"][-1] == "[PAD263]"
    assert fields["tokenizer.ggml.eos_token_id"] == 256


def test_characters_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    run = exported_of(
        vivid_model(shape_of(vocab_size=3)), tmp_path / "hf", CharTokenizer("abc", separator=False)
    )
    exported = export_run(run, "gguf", tmp_path / "gguf")
    assert "llama.cpp cannot have a char vocabulary" in exported.notes[0]
    fields = gguf.GGUFReader(tmp_path / "gguf" / "model.gguf").fields
    assert fields["tokenizer.ggml.model"].contents() == "none"
    assert fields["gpt2.vocab_size"].contents() == 3
