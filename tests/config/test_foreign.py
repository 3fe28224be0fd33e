"""Configs of nanoGPT's forks: what is ours by another name, what changes nothing, and what is not counted."""

from pathlib import Path
from typing import Any

import pytest

from gptwright.config.foreign import changes_nothing, read_foreign, why_not_needed
from gptwright.config.load import LoadedConfig, load_config
from gptwright.config.schema import FIELDS
from gptwright.errors import ConfigError

DEFAULTS = {name: field.default for name, field in FIELDS.items()}


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def config(text: str, *, let_in_foreign: bool = True) -> LoadedConfig:
        path = tmp_path / "config.py"
        path.write_text(text)
        return load_config([str(path)], let_in_foreign=let_in_foreign)

    return config


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("use_rope = True", "rope", True),
        ("rope_theta = 500000", "rope_base", 500_000.0),
        ("use_qk_norm = True", "qk_norm", True),
        ("grad_clip_norm = 0.5", "grad_clip", 0.5),
        ("max_grad_norm = 0.5", "grad_clip", 0.5),
        ("tie_word_embeddings = False", "tie_weights", False),
        ("use_checkpointing = True", "gradient_checkpointing", True),
        ("max_iters = 4000\nwarmup_ratio = 0.05", "warmup_iters", 200),
        ("lr = 3e-4", "learning_rate", 3e-4),
        ("n_layers = 8", "n_layer", 8),
        ("warmup_steps = 715", "warmup_iters", 715),
        ("total_batch_size = 491520", "tokens_per_step", 491_520),
        ("matrix_lr = 0.01", "muon_learning_rate", 0.01),
    ],
)
def test_ours_by_another_name_is_taken_in_a_plan_and_named_in_training(
    config: Any, line: str, field: str, value: object
) -> None:
    loaded = config(line)
    assert getattr(loaded.config, field) == value
    assert [setting.ours for setting in loaded.foreign] == [(field, value)]
    with pytest.raises(ConfigError, match=rf"did you mean {field}\?"):
        config(line, let_in_foreign=False)


def test_a_length_by_another_name_is_the_decays_too(config: Any) -> None:
    """Of a trainer without lr_decay_iters it is no fault that ours has a default."""
    loaded = config("max_steps = 19073").config
    assert (loaded.max_iters, loaded.lr_decay_iters) == (19_073, 19_073)
    loaded = config("max_steps = 19073\nlr_decay_iters = 15000").config
    assert (loaded.max_iters, loaded.lr_decay_iters) == (19_073, 15_000)


def test_a_batch_in_sequences_is_not_taken_for_tokens(config: Any) -> None:
    with pytest.raises(ConfigError, match="unknown setting total_batch_size"):
        config("total_batch_size = 512")


def test_a_name_of_anothers_is_free_where_ours_is_set_too(config: Any) -> None:
    loaded = config("dim = 64\nn_embd = dim * 6\nn_head = 6", let_in_foreign=False)
    assert loaded.config.n_embd == 384
    assert set(loaded.without_effect) == {"dim"}


def test_a_relation_is_explained(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"n_embd = 64 \* d"):
        config("depth = 20")


def test_our_own_name_wins_over_anothers(config: Any) -> None:
    assert config("grad_clip_norm = 0.5\ngrad_clip = 0.25").config.grad_clip == 0.25


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("n_kv_head = 4", "grouped-query attention"),
        ("num_experts = 8", "a mixture of experts"),
        ("mlp_ratio = 3.5", "the width of the feed-forward"),
        ("use_swiglu = True", "another feed-forward"),
        ("label_smoothing = 0.1", "another loss than cross-entropy"),
        ("logit_softcap = 15.0", "no curve here"),
        ("sliding_window = 256", "attention within a window"),
        ("attn_dropout = 0.1", "dropout by its place"),
        ("num_epochs = 3", "max_iters is what is planned"),
        ("n_gpu = 4", "--device-count"),
    ],
)
def test_what_has_no_counterpart_is_let_into_a_plan_alone(config: Any, line: str, meaning: str) -> None:
    loaded = config(line)
    (setting,) = loaded.foreign
    assert setting.ours is None
    assert meaning in setting.meaning
    with pytest.raises(ConfigError, match=f"unknown setting {line.split(maxsplit=1)[0]} "):
        config(line, let_in_foreign=False)


@pytest.mark.parametrize(
    "line",
    [
        "n_kv_head = n_head",
        "label_smoothing = 0.0",
        "mlp_ratio = 4",
        "use_moe = False",
        "attn_dropout = dropout",
        "eps = 1e-8",
        "activation = 'gelu'",
    ],
)
def test_a_value_that_is_what_is_done_here_changes_nothing(config: Any, line: str) -> None:
    loaded = config(f"n_head = 6\nn_embd = 384\ndropout = 0.2\n{line}", let_in_foreign=False)
    assert set(loaded.without_effect) == {line.split(maxsplit=1)[0]}


@pytest.mark.parametrize(
    "name", ["num_workers", "dataloader_num_workers", "pin_memory", "use_flash", "flash_attn", "wandb_tags"]
)
def test_what_needs_no_telling_is_accepted_in_training_too(config: Any, name: str) -> None:
    assert set(config(f"{name} = True", let_in_foreign=False).without_effect) == {name}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("n_layrs = 12", "did you mean n_layer?"),
        ("gradient_acumulation_steps = 4", "did you mean gradient_accumulation_steps?"),
        ("frobnicate = 1", "lists all settings"),
    ],
)
def test_slips_and_what_nobody_has_stay_refused_in_a_plan_too(config: Any, line: str, said: str) -> None:
    with pytest.raises(ConfigError, match="unknown setting") as caught:
        config(line)
    assert said in str(caught.value)


def test_an_option_means_one_of_ours() -> None:
    with pytest.raises(ConfigError, match=r"did you mean rope\?"):
        load_config([], {"use_rope": "True"}, let_in_foreign=True)


def test_names_that_other_lines_are_calculated_from_are_no_settings(config: Any) -> None:
    text = "B = 16\nn_gpu = 2\nbatch_size = B\ngradient_accumulation_steps = 8 * n_gpu"
    loaded = config(text, let_in_foreign=False)
    assert (loaded.config.batch_size, loaded.config.gradient_accumulation_steps) == (16, 16)
    assert set(loaded.without_effect) == {"B", "n_gpu"}
    with pytest.raises(ConfigError, match=r"did you mean max_iters\?"):
        config("max_itres = 5000\nlr_decay_iters = max_itres")


def test_no_setting_of_ours_is_foreign() -> None:
    for name in FIELDS:
        assert why_not_needed(name) is None
        assert not changes_nothing(name, None, DEFAULTS)
        assert read_foreign(name, True, "", DEFAULTS) is None
