"""Hugging Face folders: transformers gives our logits, and our runs come back bit for bit."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from gptwright.config.schema import TrainConfig
from gptwright.data.prepare import prepare
from gptwright.data.tokenizers import ByteTokenizer, CharTokenizer, Gpt2Tokenizer, Tokenizer
from gptwright.errors import CheckpointError, RunError
from gptwright.interop.export import export_run
from gptwright.interop.foreign import put_weights
from gptwright.interop.gpt2_folder import read_gpt2_folder
from gptwright.interop.gpt2_tokenizer import as_tokenizers_file, merges_of
from gptwright.interop.llmc import read_llmc
from gptwright.interop.trained import TrainedRun, require_gpt2
from gptwright.model.gpt import GPT
from gptwright.record.run import RunFolder
from gptwright.train.load import open_trained
from tests.conftest import Answer
from tests.interop.conftest import MakeRun, assert_same_run
from tests.model.models import random_ids, shape_of, vivid_model

TEXTS = [
    "to be or not",
    "",
    "\n\n  tabs\tand  spaces ",
    "Ünïcödé 漢字 🙂 don't I'll 123,456",
    "a\r\nb\x00\x7f",
]


def exported_of(model: GPT, out: Path, tokenizer: Tokenizer | None = None) -> TrainedRun:
    """A model as an export of a run that never was."""
    run = TrainedRun(
        path=Path("bare"), checkpoint="step-00000000", config=TrainConfig(), shape=model.shape,
        weights={name: p.detach() for name, p in model.named_parameters()}, moments=None, step=0,
        best_val_loss=None, tokenizer=tokenizer, facts={}, records=[],
    )  # fmt: skip
    export_run(run, "hf", out)
    return run


@pytest.mark.parametrize(
    ("n_layer", "n_head", "n_embd", "vocab_size"),
    [(1, 1, 8, 11), (2, 4, 32, 65), (4, 4, 64, 257), (3, 6, 96, 1000)],
)
@pytest.mark.parametrize("bias", [True, False])
def test_logits_are_transformers_at_four_sizes(
    tmp_path: Path, n_layer: int, n_head: int, n_embd: int, vocab_size: int, *, bias: bool
) -> None:
    shape = shape_of(n_layer=n_layer, n_head=n_head, n_embd=n_embd, vocab_size=vocab_size, bias=bias)
    model = vivid_model(shape, std=0.08)
    run = exported_of(model, tmp_path / "hf")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert type(theirs).__name__ == "GPT2LMHeadModel"
    ids = random_ids((3, 16), vocab_size)
    with torch.no_grad():
        assert (model.logits(ids) - theirs(ids).logits).abs().max().item() < 1e-5
    back = read_gpt2_folder(tmp_path / "hf")
    assert back.shape == run.shape
    assert all(torch.equal(tensor, back.weights[name]) for name, tensor in run.weights.items())


def test_untied_heads_survive(tmp_path: Path) -> None:
    model = vivid_model(shape_of(tie_weights=False), std=0.08)
    exported_of(model, tmp_path / "hf")
    ids = random_ids((2, 9), 23)
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")(ids).logits
        assert (model.logits(ids) - theirs).abs().max().item() < 1e-5
    assert read_gpt2_folder(tmp_path / "hf").shape.tie_weights is False


@pytest.mark.parametrize("bias", ["True", "False"])
def test_ours_to_hugging_face_to_ours_is_exact(
    tmp_path: Path, dataset: Path, make_run: MakeRun, bias: str, gptwright: Callable[..., Answer]
) -> None:
    run = make_run(bias=bias)
    answer = gptwright(
        "export", str(run.path), "--format", "hf", "--out", str(tmp_path / "hf"), "--checkpoint=last"
    )
    assert answer.status == 0, answer.err
    given = ("--out", str(tmp_path / "back"), "--dataset", str(dataset))
    assert gptwright("import", str(tmp_path / "hf"), *given).status == 0
    back = open_trained(RunFolder(tmp_path / "back"), checkpoint="last")
    assert_same_run(run, back, moments=False)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer("to be or").input_ids == run.tokenizer.encode("to be or").tolist()  # type: ignore[union-attr]
    assert tokenizer.decode(tokenizer("to be or").input_ids) == "to be or"
    card = (tmp_path / "hf" / "README.md").read_text("utf-8")
    for said in (
        "validation loss",
        "(standard error)",
        "tokens seen | 768",
        "training time",
        "words:",
    ):
        assert said in card
    assert (
        json.loads((tmp_path / "hf" / "generation_config.json").read_text())["top_k"] <= run.shape.vocab_size
    )


def test_biases_that_somebody_trained_are_kept(tmp_path: Path) -> None:
    exported_of(vivid_model(shape_of(bias=False)), tmp_path / "hf")
    theirs = GPT2LMHeadModel.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        theirs.transformer.ln_f.bias[3] = 0.5
    theirs.save_pretrained(tmp_path / "tuned")
    assert theirs.config.gptwright_bias is False
    assert read_gpt2_folder(tmp_path / "tuned").shape.bias is True
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    assert read_gpt2_folder(tmp_path / "shards").weights["transformer.ln_f.bias"][3] == 0.5


def openai_like(folder: Path) -> Any:
    """A folder in the layout of openai-community/gpt2: no prefix, masks among the weights, gelu_new."""
    torch.manual_seed(3)
    theirs: Any = GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=32, vocab_size=50257, initializer_range=0.1)
    )
    theirs.eval()
    folder.mkdir()
    tensors = {
        name.removeprefix("transformer."): tensor.contiguous()
        for name, tensor in theirs.state_dict().items()
        if name != "lm_head.weight"
    }
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32)
    save_file(tensors, folder / "model.safetensors")
    theirs.config.save_pretrained(folder)
    return theirs


def test_openais_layout_is_read_and_its_activation_is_said(tmp_path: Path) -> None:
    theirs = openai_like(tmp_path / "gpt2")
    foreign = read_gpt2_folder(tmp_path / "gpt2")
    assert foreign.shape.bias
    assert isinstance(foreign.tokenizer, Gpt2Tokenizer)
    assert "made with gelu_new" in foreign.notes[0]
    model = GPT(foreign.shape)
    put_weights(model, foreign)
    ids = random_ids((2, 20), 50257)
    with torch.no_grad():
        as_it_is = (model.logits(ids) - theirs(ids).logits).abs().max().item()
        for block in theirs.transformer.h:
            block.mlp.act = torch.nn.GELU()
        assert (model.logits(ids) - theirs(ids).logits).abs().max().item() < 1e-5
    assert 1e-6 < as_it_is < 1e-2  # the two activations differ a little
    torch.save(theirs.state_dict(), tmp_path / "gpt2" / "pytorch_model.bin")
    (tmp_path / "gpt2" / "model.safetensors").unlink()
    pickled = read_gpt2_folder(tmp_path / "gpt2")
    assert all(torch.equal(tensor, pickled.weights[name]) for name, tensor in foreign.weights.items())


@pytest.mark.parametrize(
    ("field", "value"),
    [("model_type", "llama"), ("activation_function", "relu"), ("n_inner", 17), ("layer_norm_epsilon", 1e-6)],
)
def test_what_is_no_gpt2_is_refused_by_its_field(tmp_path: Path, field: str, value: object) -> None:
    exported_of(vivid_model(shape_of()), tmp_path / "hf")
    path = tmp_path / "hf" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(CheckpointError, match=f"says {field} = "):
        read_gpt2_folder(tmp_path / "hf")


def test_another_architecture_is_not_exported(
    tmp_path: Path, make_run: MakeRun, gptwright: Callable[..., Answer]
) -> None:
    run = make_run(arch="modern")
    for form in ("hf", "nanogpt", "gguf"):
        answer = gptwright("export", str(run.path), f"--format={form}", "--out", str(tmp_path / form))
        assert answer.status == 2
        assert "holds a model with rope, rms_norm, qk_norm, relu2, smear, which cannot" in answer.err
        assert not (tmp_path / form).exists()
    with pytest.raises(RunError, match="holds a model with rope, which cannot be exported"):
        require_gpt2(TrainConfig(rope=True), tmp_path)
    require_gpt2(TrainConfig(zero_init=True), tmp_path)


@pytest.mark.parametrize(
    "tokenizer",
    [
        Gpt2Tokenizer(),
        ByteTokenizer(),
        CharTokenizer("".join(sorted(set("".join(TEXTS)))), separator=True),
        CharTokenizer("".join(sorted(set("".join(TEXTS)))), separator=False),
    ],
    ids=["gpt2", "byte", "char", "char-alone"],
)
def test_the_tokenizer_of_a_folder_gives_our_ids(tmp_path: Path, tokenizer: Tokenizer) -> None:
    shape = shape_of(vocab_size=tokenizer.vocab_size)
    exported_of(vivid_model(shape), tmp_path / "hf", tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "hf")
    for text in TEXTS:
        ids = theirs(text).input_ids
        assert ids == tokenizer.encode(text).tolist()
        assert theirs.decode(ids) == text
    assert theirs.eos_token_id == tokenizer.separator_id
    back = read_gpt2_folder(tmp_path / "hf").tokenizer
    assert back is not None
    assert back.sha256 == tokenizer.sha256


def test_a_character_that_ours_refuses_is_refused_there(tmp_path: Path) -> None:
    exported_of(vivid_model(shape_of(vocab_size=3)), tmp_path / "hf", CharTokenizer("abc", separator=False))
    theirs = AutoTokenizer.from_pretrained(tmp_path / "hf")
    with pytest.raises(Exception, match="vocabulary"):
        theirs("abx")


def test_a_trained_bpe_is_written_as_it_is(tmp_path: Path, dataset: Path) -> None:
    prepare(str(dataset.parent / "corpus.txt"), out=tmp_path / "d", tokenizer="bpe:300")
    from gptwright.data.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(tmp_path / "d" / "tokenizer.json")
    text = as_tokenizers_file(tokenizer)
    assert text is not None
    assert json.loads(text)["model"]["merges"] == json.loads(tokenizer.to_bytes())["model"]["merges"]


def test_merges_follow_from_ranks() -> None:
    ranks = {bytes([n]): n for n in range(256)} | {b"ab": 256, b"cd": 257, b"abcd": 258, b"abab": 259}
    assert merges_of(ranks) == [(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd"), (b"ab", b"ab")]


@pytest.mark.parametrize("version", [3, 5])
def test_llmcs_models_are_read(tmp_path: Path, version: int) -> None:
    model = vivid_model(shape_of(vocab_size=23))
    parameters = dict(model.named_parameters())
    dtype = torch.float32 if version == 3 else torch.bfloat16
    kinds = [
        f"{part}.{kind}"
        for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
        for kind in ("weight", "bias")
    ]
    padded = torch.cat([parameters["transformer.wte.weight"], torch.zeros(128 - 23, 16)])
    order = [padded, parameters["transformer.wpe.weight"]]
    order += [parameters[f"transformer.h.{layer}.{kind}"] for kind in kinds for layer in range(2)]
    order += [parameters["transformer.ln_f.weight"], parameters["transformer.ln_f.bias"]]
    header = np.zeros(256, dtype="<i4")
    header[:8] = 20240326, version, 16, 23, 2, 2, 16, 128
    raw = b"".join(t.detach().to(dtype).contiguous().view(torch.uint8).numpy().tobytes() for t in order)
    (tmp_path / "model.bin").write_bytes(header.tobytes() + raw)
    foreign = read_llmc(tmp_path / "model.bin")
    for name, parameter in parameters.items():
        assert torch.equal(foreign.weights[name], parameter.detach().to(dtype).float()), name
    (tmp_path / "model.bin").write_bytes(header.tobytes() + raw[:-2])
    with pytest.raises(CheckpointError, match="its header makes"):
        read_llmc(tmp_path / "model.bin")
    (tmp_path / "model.bin").write_bytes(struct.pack("<2i", 20240326, 1) + bytes(1016))
    with pytest.raises(CheckpointError, match=r"magic and version are \[20240326, 1\]"):
        read_llmc(tmp_path / "model.bin")
