"""What is decided before the first step: vocabulary, start-up table, and where the dataset lies."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from gptwright.config.load import load_config
from gptwright.config.schema import FIELDS
from gptwright.errors import CheckpointError, DataError
from gptwright.facts import Fact, Origin
from gptwright.record.run import RunFolder
from gptwright.train.run import prepare_new
from gptwright.train.score import score_run
from gptwright.train.session import build_session
from gptwright.train.speak import Speaker
from tests.train.conftest import Train


def nanogpt_folder(folder: Path, meta: dict[str, object] | None, vocab_size: int) -> Path:
    """A data/NAME folder as nanoGPT's prepare scripts leave it."""
    folder.mkdir(parents=True)
    ids = np.random.default_rng(0).integers(0, vocab_size, 4000).astype(np.uint16)
    ids[:3600].tofile(folder / "train.bin")
    ids[3600:].tofile(folder / "val.bin")
    if meta is not None:
        with (folder / "meta.pkl").open("wb") as file:
            pickle.dump(meta, file)
    return folder


def facts_of(options: dict[str, str]) -> dict[str, Fact]:
    return {fact.name: fact for fact in build_session(load_config([], options)).facts}


def test_nanogpts_data_folders_are_used_as_they_are(
    tmp_path: Path, tiny: dict[str, str], train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    characters = "abcdefg\n"
    meta = {
        "vocab_size": 8,
        "itos": dict(enumerate(characters)),
        "stoi": {character: number for number, character in enumerate(characters)},
    }
    nanogpt_folder(tmp_path / "data" / "letters", meta, 8)
    monkeypatch.chdir(tmp_path)
    train(tiny | {"dataset": "letters"}, tmp_path / "run")
    text = "".join(Speaker.of(tmp_path / "run").speak(start="abc", max_new_tokens=40))
    assert len(text) == 40
    assert set(text) <= set(characters)


def test_a_vocabulary_without_characters_trains_and_says_why_it_cannot_speak(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    folder = nanogpt_folder(tmp_path / "numbers", {"vocab_size": 8}, 8)
    outcome = train(tiny | {"dataset": str(folder)}, tmp_path / "run")
    assert outcome.ending == "finished"
    with pytest.raises(
        CheckpointError, match=r"has no tokenizer\.json[\s\S]*gave a vocabulary's size but no"
    ):
        Speaker.of(tmp_path / "run")


def test_gpt2s_vocabulary_is_padded_as_nanogpt_pads_it(tmp_path: Path, tiny: dict[str, str]) -> None:
    folder = nanogpt_folder(tmp_path / "tokens", None, 50257)
    session = build_session(load_config([], tiny | {"dataset": str(folder)}))
    assert session.vocab_size == 50304
    vocabulary = next(fact for fact in session.facts if fact.name == "vocabulary")
    assert vocabulary.reason.startswith("GPT-2's 50257, padded to a multiple of 64 as nanoGPT does; assumed:")
    assert vocabulary.origin == Origin.ASSUMED
    assert session.model.lm_head.weight.shape == (50304, 32)
    asked = build_session(load_config([], tiny | {"dataset": str(folder), "vocab_size": "50257"}))
    assert asked.vocab_size == 50257


@pytest.mark.parametrize("vocab_size", [60000, 300])
def test_a_guessed_vocabulary_yields_to_the_one_that_is_asked_for(
    tmp_path: Path, tiny: dict[str, str], train: Train, vocab_size: int
) -> None:
    """A nanoGPT folder made with a tokenizer of one's own, which nothing in it names."""
    folder = nanogpt_folder(tmp_path / "tokens", None, vocab_size)
    options = tiny | {"dataset": str(folder), "vocab_size": str(vocab_size), "max_iters": "2"}
    assert train(options, tmp_path / "run").ending == "finished"
    assert not (tmp_path / "run" / "tokenizer.json").exists()
    with pytest.raises(DataError, match=r"(train|val)\.bin"):
        build_session(load_config([], options | {"vocab_size": str(vocab_size // 2)}))


def test_the_startup_table_has_every_setting_and_derived_value_with_its_origin(tiny: dict[str, str]) -> None:
    loaded = load_config(["shakespeare-char-cpu"], tiny | {"backend": "gloo"})
    facts = {fact.name: fact for fact in build_session(loaded).facts}
    assert set(FIELDS) <= set(facts)
    assert all(fact.reason for fact in facts.values())
    assert (facts["n_layer"].value, facts["n_layer"].reason) == (2, "option")
    assert facts["beta2"].reason == "preset shakespeare-char-cpu"
    assert facts["bias"].reason == "default"
    assert (facts["backend"].text, facts["backend"].reason[:12]) == ("no effect", "chosen by th")
    assert facts["tokens per step"].value == 4 * 2 * 16
    assert facts["planned tokens"].value == 24 * 4 * 2 * 16
    assert facts["peak"].origin == Origin.MEASURED
    assert facts["parameters"].origin == Origin.DERIVED
    total = sum(p.numel() for p in build_session(loaded).model.parameters())
    assert f"{total:,} with positions" in facts["parameters"].text


def test_a_seed_is_the_same_model_and_another_seed_is_not(tiny: dict[str, str]) -> None:
    first, same, other = (
        build_session(load_config([], tiny | {"seed": seed})).model.state_dict() for seed in ("1", "1", "2")
    )
    assert all(torch.equal(tensor, same[name]) for name, tensor in first.items())
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_a_run_finds_its_dataset_from_another_folder(
    tmp_path: Path,
    tiny: dict[str, str],
    dataset: Path,
    train: Train,
    resume: Train,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(dataset.parent)
    train(tiny | {"dataset": dataset.name}, tmp_path / "run", 5)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(tmp_path / "run").ending == "finished"


def test_a_dataset_that_was_moved_is_asked_for_by_its_new_place(
    tmp_path: Path, tiny: dict[str, str], dataset: Path, train: Train, resume: Train
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(dataset, before)
    train(tiny | {"dataset": str(before)}, tmp_path / "run", 5)
    before.rename(after)
    said = r"there is no dataset '.*before'[\s\S]*if it was moved or renamed: --dataset=FOLDER"
    with pytest.raises(DataError, match=said):
        resume(tmp_path / "run")
    with pytest.raises(DataError, match=said):
        score_run(RunFolder(tmp_path / "run"))
    assert resume(tmp_path / "run", dataset=str(after)).ending == "finished"
    with pytest.raises(DataError, match="gptwright prepare"):
        score_run(RunFolder(tmp_path / "run"), dataset=str(before))


def test_a_run_that_cannot_begin_takes_its_folder_back(
    tmp_path: Path, tiny: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = nanogpt_folder(tmp_path / "numbers", {"vocab_size": 8, "itos": {0: "a"}, "stoi": {"b": 3}}, 8)
    with pytest.raises(DataError, match="itos"):
        prepare_new(load_config([], tiny | {"dataset": str(folder), "out_dir": str(tmp_path / "run")}))
    assert not RunFolder(tmp_path / "run").path.exists()
