"""How a run is handed over when nobody makes a mistake: a config that is true, true comments, stated facts.

Some of the comments hold numbers, because a reader that takes every number for a claim about the value beside
it would call them wrong.
"""

from collections.abc import Mapping

import numpy as np

from tests.simulator.formats import PROFILES
from tests.simulator.hazards import suited_hazards
from tests.simulator.run import Handover
from tests.simulator.truth import Truth, Value


def true_handover(rng: np.random.Generator, truth: Truth, *, damaged: bool) -> Handover:
    """A true config, true comments and facts; `damaged`: sometimes no config, or a damaged log."""
    config = PROFILES[truth.format].config
    if damaged and truth.format in ("nanogpt", "llama2c", "hf") and rng.random() < 0.1:
        config = ""
    settings = settings_of(truth)
    comments = _true_comments(rng, truth) if config == "config.py" else {}
    hazards: tuple[str, ...] = ()
    suited = suited_hazards(truth)
    if damaged and suited and rng.random() < 0.35:
        hazards = (str(rng.choice(suited)),)
    return Handover(
        config=config,
        settings=settings,
        comments={name: comment for name, comment in comments.items() if name in settings},
        facts=facts_of(truth),
        hazards=hazards,
    )


def facts_of(truth: Truth) -> dict[str, Value]:
    """What a careful person states beside the log."""
    facts: dict[str, Value] = {
        "device": truth.device.name,
        "device_count": truth.device_count,
        "dataset": truth.dataset,
    }
    if truth.format not in ("modded", "modded-current", "nanochat"):
        facts["train_tokens"] = truth.train_tokens
    if truth.val_tokens and truth.eval_interval:
        facts["val_tokens"] = truth.val_tokens
    if truth.format not in ("nanochat", "llmc", "ours"):
        facts["vocab_size"] = truth.shape.vocab_size
    return facts


def settings_of(truth: Truth) -> dict[str, Value]:
    """The settings that the config of such a run holds, by the names that its users write."""
    match truth.format:
        case "nanogpt":
            return _nanogpt_settings(truth)
        case "llama2c":
            return _llama2c_settings(truth)
        case "ours":
            return _our_settings(truth)
    shape, schedule = truth.shape, truth.schedule
    settings: dict[str, Value] = {
        "batch_size": truth.micro_batch,
        "gradient_accumulation_steps": truth.accumulation,
        "block_size": shape.block_size,
        "max_iters": truth.max_iters,
    }
    if truth.format in ("modded", "modded-current"):
        return settings
    settings |= {"learning_rate": schedule.peak, "warmup_iters": schedule.warmup}
    if truth.format == "litgpt":
        return {**settings, "min_lr": schedule.floor, "lr_decay_iters": schedule.decay_steps}
    settings |= {
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_embd": shape.n_embd,
        "bias": shape.bias,
        "dropout": truth.dropout,
    }
    if truth.format == "build-nanogpt":
        settings |= {"min_lr": schedule.floor, "lr_decay_iters": schedule.decay_steps}
    if truth.format in ("hf", "hf-state"):
        settings["vocab_size"] = shape.vocab_size
    return settings


def _nanogpt_settings(truth: Truth) -> dict[str, Value]:
    return {
        "out_dir": f"out-{truth.dataset.replace('_', '-')}",
        "eval_interval": truth.eval_interval,
        "eval_iters": truth.eval_iters,
        "log_interval": truth.log_interval,
        "always_save_checkpoint": False,
        "wandb_log": False,
        "dataset": truth.dataset,
        "gradient_accumulation_steps": truth.accumulation,
        "batch_size": truth.micro_batch,
        "block_size": truth.shape.block_size,
        "n_layer": truth.shape.n_layer,
        "n_head": truth.shape.n_head,
        "n_embd": truth.shape.n_embd,
        "dropout": truth.dropout,
        "bias": truth.shape.bias,
        "learning_rate": truth.schedule.peak,
        "max_iters": truth.max_iters,
        "lr_decay_iters": truth.schedule.decay_steps,
        "min_lr": truth.schedule.floor,
        "warmup_iters": truth.schedule.warmup,
        "dtype": truth.dtype,
        "compile": truth.compiled,
        "device": "cpu" if truth.device.kind == "cpu" else "cuda",
    }


def _llama2c_settings(truth: Truth) -> dict[str, Value]:
    settings: dict[str, Value] = {
        "out_dir": "out-story",
        "eval_interval": truth.eval_interval,
        "eval_iters": truth.eval_iters,
        "log_interval": truth.log_interval,
        "batch_size": truth.micro_batch,
        "max_seq_len": truth.shape.block_size,
        "vocab_source": "llama2" if truth.shape.vocab_size == 32000 else "custom",
        "vocab_size": truth.shape.vocab_size,
        "dim": truth.shape.n_embd,
        "n_layers": truth.shape.n_layer,
        "n_heads": truth.shape.n_head,
        "n_kv_heads": truth.shape.n_head,
        "multiple_of": 32,
        "dropout": truth.dropout,
        "gradient_accumulation_steps": truth.accumulation,
        "learning_rate": truth.schedule.peak,
        "max_iters": truth.max_iters,
        "warmup_iters": truth.schedule.warmup,
        "dtype": truth.dtype,
        "compile": truth.compiled,
    }
    return settings


def _our_settings(truth: Truth) -> dict[str, Value]:
    settings = _nanogpt_settings(truth)
    for foreign in ("always_save_checkpoint", "wandb_log"):
        del settings[foreign]
    return {**settings, "vocab_size": truth.shape.vocab_size, "device": "auto", "compile": "auto"}


def _true_comments(rng: np.random.Generator, truth: Truth) -> Mapping[str, str]:
    """Some true comments; llama2.c's names differ, and those that do not fit are left out by the caller."""
    shape, sequences = truth.shape, truth.micro_batch * truth.accumulation
    planned = truth.max_iters * truth.tokens_per_step
    choices = {
        "gradient_accumulation_steps": (
            f"{truth.micro_batch} sequences x {truth.accumulation} = {sequences} sequences in one update",
            f"{truth.tokens_per_step:,} tokens per update",
        ),
        "batch_size": ("sequences in one forward pass", f"{truth.micro_batch} fit into {truth.device.name}"),
        "block_size": ("context", f"{shape.block_size} tokens of context"),
        "n_layer": ("depth", f"about {_millions(truth.parameters)} parameters in all"),
        "n_head": (f"head size {shape.n_embd // shape.n_head}", "heads"),
        "learning_rate": ("tried twice this, no better", "peak, after the warm-up"),
        "max_iters": (f"about {_tokens(planned)} tokens", "see the notes"),
        "warmup_iters": ("a short warm-up", f"{truth.schedule.warmup / truth.max_iters:.1%} of the run"),
        "dropout": ("off" if not truth.dropout else "on", ""),
        "eval_iters": ("enough to trust the third digit", ""),
    }
    return {name: str(rng.choice(texts)) for name, texts in choices.items() if rng.random() < 0.35}


def _millions(count: float) -> str:
    return f"{count / 1e6:.0f}M" if count >= 1e7 else f"{count / 1e6:.1f}M"


def _tokens(count: float) -> str:
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"
