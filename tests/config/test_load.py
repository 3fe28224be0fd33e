"""Sources merge in order, and everything that is wrong is said at once."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.config.load import load_config, preset_names
from gptwright.config.schema import TrainConfig
from gptwright.config.write import to_toml
from gptwright.errors import ConfigError


def error_of(sources: list[str], options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(sources, options)
    return str(caught.value)


def test_later_sources_win_and_each_setting_knows_its_source(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.py"
    first.write_text("n_layer = 3\nn_embd = 96\nn_head = 3\n")
    second.write_text("n_layer = 4  # deeper\n\nn_embd = 2 * 48\n")
    loaded = load_config(["shakespeare-char", str(first), str(second)], {"dropout": "0.0"})
    assert (loaded.config.n_layer, loaded.config.n_head, loaded.config.dropout) == (4, 3, 0.0)
    assert loaded.sources["n_layer"] == f"{second}:1"
    assert loaded.sources["n_embd"] == f"{second}:3"
    assert loaded.sources["n_head"] == str(first)
    assert loaded.sources["dropout"] == "option"
    assert loaded.sources["batch_size"] == "preset shakespeare-char"
    assert "bias" not in loaded.sources


def test_options_are_read_as_nanogpt_reads_them() -> None:
    config = load_config(
        [], {"compile": "False", "learning_rate": "1", "out_dir": "007", "bias": "True", "dtype": "bfloat16"}
    ).config
    assert (config.compile, config.learning_rate, config.out_dir) == (False, 1.0, "007")
    assert (config.bias, config.dtype) == (True, "bfloat16")


def test_all_problems_come_in_one_message(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from os import path\nn_head = 6\n")
    text = error_of(
        [str(bad), "shakespeare-charr"],
        {"n_layr": "4", "n_embd": "100", "n_head": "6", "learning_rate": "abc", "dropout": "1.5"},
    )
    assert text.startswith("6 settings cannot be used:")
    assert f"{bad}:1 is not an assignment of a literal: from os import path" in text
    assert "no config file and no preset is called 'shakespeare-charr'" in text
    assert "use shakespeare-char" in text
    assert "unknown setting --n_layr" in text
    assert "did you mean n_layer?" in text
    assert "learning_rate = 'abc' (option) is not accepted" in text
    assert "dropout = 1.5 (option) is not accepted: it should be a number, at least 0 and below 1" in text
    assert "n_embd = 100 is not divisible by n_head = 6" in text
    assert "--n_embd=96 or --n_embd=102" in text


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0"])
def test_a_learning_rate_is_a_positive_number(value: str) -> None:
    assert "learning_rate" in error_of([], {"learning_rate": value})


def test_tokens_per_step_sets_the_accumulation() -> None:
    given_tokens = load_config([], {"tokens_per_step": "524288", "batch_size": "8"}).config
    assert given_tokens.gradient_accumulation_steps == 64
    assert given_tokens.sequences_per_step * given_tokens.block_size == 524288


def test_tokens_per_step_must_be_whole_micro_batches() -> None:
    text = error_of([], {"tokens_per_step": "500000", "batch_size": "12"})
    assert "tokens_per_step = 500000 is not a multiple of batch_size × block_size = 12288" in text
    assert "--tokens_per_step=491520 or --tokens_per_step=503808" in text


def test_tokens_per_step_and_accumulation_must_agree() -> None:
    options = {"tokens_per_step": "491520", "batch_size": "12", "gradient_accumulation_steps": "8"}
    assert "needs gradient_accumulation_steps = 40, and it is set to 8" in error_of([], options)
    assert load_config([], options | {"gradient_accumulation_steps": "40"}).config.tokens_per_step == 491520


def test_nanogpts_other_settings_are_accepted_and_said_to_do_nothing() -> None:
    loaded = load_config([], {"always_save_checkpoint": "False", "backend": "gloo"})
    assert set(loaded.without_effect) == {"always_save_checkpoint", "backend"}
    assert loaded.config == TrainConfig()


@pytest.mark.parametrize("text", ["n_layer = ", "n_layer = [1", "\xff"])
def test_broken_toml_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(text.encode("latin-1"))
    assert f"{path} is not valid TOML" in error_of([str(path)], {})


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("n_layer: 4")
    assert "is neither a .toml nor a .py file" in error_of([str(path)], {})


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads(name: str) -> None:
    loaded = load_config([name])
    assert loaded.config.sampling == "epoch"
    assert not loaded.without_effect


def test_presets_are_nanogpts_runs() -> None:
    baby = load_config(["shakespeare-char"]).config
    assert (baby.n_layer, baby.n_head, baby.n_embd, baby.block_size) == (6, 6, 384, 256)
    assert (baby.batch_size, baby.dropout, baby.max_iters, baby.beta2) == (64, 0.2, 5000, 0.99)
    gpt2 = load_config(["gpt2-124m"]).config
    assert (gpt2.gradient_accumulation_steps, gpt2.sequences_per_step) == (40, 480)


@given(
    out_dir=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    learning_rate=st.floats(min_value=1e-12, max_value=10),
    compile_model=st.sampled_from([True, False, "auto"]),
    tokens=st.sampled_from([None, 12288, 491520]),
)
def test_a_written_config_reads_back_the_same(
    out_dir: str, learning_rate: float, compile_model: bool | str, tokens: int | None
) -> None:
    values: dict[str, Any] = {
        "out_dir": out_dir,
        "learning_rate": learning_rate,
        "compile": compile_model,
        "tokens_per_step": tokens,
    }
    config = TrainConfig(**values | {"gradient_accumulation_steps": (tokens or 12288) // 12288})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_text(to_toml(config), encoding="utf-8")
        assert load_config([str(path)]).config == config


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"config": "train_gpt2.py"}, "give the config without it: train_gpt2.py"),
        ({"dtype": "bf16"}, "--dtype=bfloat16"),
        ({"dtype": "fp16"}, "--dtype=float16"),
        ({"lr_schedule": "Cosin"}, "--lr_schedule=cosine"),
        ({"optimizer": "sgd"}, "the default is --optimizer=adamw"),
    ],
)
def test_the_remedy_names_what_was_meant(options: dict[str, str], remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([], options)
    assert remedy in str(caught.value)
