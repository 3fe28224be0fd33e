"""Settings of nanoGPT's forks and of other trainers, which this one does not have.

Who hands a fork's config to `plan` wants to know what it comes to, and not that a setting is unknown. So a
setting that is known from elsewhere is said for what it is: one of ours under another name, one that changes
nothing at this value, or one that is not counted, with what it would change. Training takes none of them: a
run that left a part of its config out would be another run. What nobody is known to call so stays an unknown
setting.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

# What llama2.c, Hugging Face, litgpt, nanochat and torchtitan call the settings that have a name in nanoGPT.
_SAME: Mapping[str, str] = {
    "n_embd": "dim emb_dim embed_dim n_embed d_model hidden_size",
    "block_size": (
        "context_length context_size sequence_length max_seq_len sequence_len n_positions "
        "max_seq_length max_length seq_len n_ctx max_position_embeddings ctx_len context_len"
    ),
    "dropout": "drop_rate",
    "gradient_accumulation_steps": "grad_accum_steps accumulation_steps gradient_accumulation_iters",
    "n_layer": "n_layers num_layers num_hidden_layers",
    "n_head": "n_heads num_heads num_attention_heads",
    "batch_size": (
        "per_device_train_batch_size micro_batch_size device_batch_size local_batch_size train_batch_size"
    ),
    "max_iters": (
        "max_steps steps num_iterations num_steps total_steps train_steps max_train_steps num_train_steps"
    ),
    "warmup_iters": "warmup_steps lr_warmup_steps num_warmup_steps",
    "learning_rate": "lr max_lr peak_lr",
    "grad_clip": "max_grad_norm",
    "beta1": "adam_beta1",
    "beta2": "adam_beta2",
    "min_lr": "min_learning_rate",
    "lr_decay_iters": "lr_decay_steps",
}
SAME_AS: Mapping[str, str] = MappingProxyType(
    {name: ours for ours, names in _SAME.items() for name in names.split()}
)
# Ours under the names that forks, Hugging Face's Trainer, litgpt and nanochat have for them.
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **SAME_AS,
        **dict.fromkeys(("use_rope", "rotary", "use_rotary", "rotary_emb", "use_rotary_emb"), "rope"),
        "rope_theta": "rope_base",
        **dict.fromkeys(("use_rmsnorm", "use_rms_norm", "rmsnorm"), "rms_norm"),
        **dict.fromkeys(("use_qk_norm", "use_qknorm", "qknorm"), "qk_norm"),
        **dict.fromkeys(("use_relu2", "relu_squared", "squared_relu"), "relu2"),
        "use_bias": "bias",
        **dict.fromkeys(
            ("tie_embeddings", "tied_embeddings", "tie_word_embeddings", "weight_tying"), "tie_weights"
        ),
        **dict.fromkeys(
            (
                *("grad_clip_norm", "max_grad_norm", "clip_grad_norm", "grad_norm_clip", "clip_grad"),
                *("gradient_clip", "gradient_clipping", "gradient_clip_val"),
            ),
            "grad_clip",
        ),
        **dict.fromkeys(
            (
                *("use_checkpoint", "use_checkpointing", "use_gradient_checkpointing"),
                *("grad_checkpointing", "activation_checkpointing", "use_activation_checkpointing"),
            ),
            "gradient_checkpointing",
        ),
        **dict.fromkeys(
            ("save_interval", "save_every", "save_steps", "ckpt_interval", "checkpoint_every"),
            "checkpoint_interval",
        ),
        "use_wandb": "wandb_log",
        "matrix_lr": "muon_learning_rate",
    }
)
# nanochat's and build-nanogpt's, in tokens; a smaller number would be one of sequences.
TOKENS_A_STEP, FEWEST_TOKENS_A_STEP = "total_batch_size", 4096
# Names whose meaning is a relation.
HINTS: Mapping[str, str] = MappingProxyType(
    {
        "depth": "nanochat's depth of d is n_layer = d, n_embd = 64 * d and n_head = d / 2, arch = 'modern'",
        "B": "did you mean batch_size?",
        "T": "did you mean block_size?",
        "resume": "to go on with a run: gptwright resume RUN; nanoGPT's own word is --init_from=resume",
        "resume_from_checkpoint": "to go on with a run: gptwright resume RUN",
    }
)
WARMUP_SHARE = re.compile(r"warmup_(ratio|frac|fraction|proportion|pct)")

# What has no counterpart, what it is and changes, and the values at which it changes nothing; a value may be
# the name of a setting of ours, for "as large as that".
NOTHING = (None, False, 0)
NOT_HERE: tuple[tuple[re.Pattern[str], str, tuple[Any, ...]], ...] = tuple(
    (re.compile(pattern), meaning, harmless)
    for pattern, meaning, harmless in (
        (
            r"n_kv_heads?|num_kv_heads|num_key_value_heads|(n|num)_query_groups|n_kv_groups",
            "grouped-query attention: fewer parameters and less memory",
            (None, "n_head"),
        ),
        (
            r"moe(_\w+)?|use_moe|\w+_moe|((n|num|use|top_k|routed|shared|active)_)?(\w+_)?experts?(_\w+)?",
            "a mixture of experts: other parameters, memory and speed",
            (*NOTHING, 1),
        ),
        (
            r"(mlp|ffn?|feed_?forward)_(ratio|mult\w*|expansion\w*|factor)|expansion_factor",
            "the width of the feed-forward, 4 × n_embd here: other parameters, memory and speed",
            (None, 4),
        ),
        (
            r"intermediate_size|d_ff|(mlp|ffn?|feed_?forward)_(size|dim|hidden\w*)",
            "the width of the feed-forward, 4 × n_embd here: other parameters, memory and speed",
            (None,),
        ),
        (
            r"(use_)?(sw|ge)?i?glu|mlp_(type|class|activation)|activation(_fn|_function)?|act_fn",
            "another feed-forward: other parameters, memory and loss",
            (*NOTHING, "gelu"),
        ),
        (
            r"(use_)?(sliding_|attention_|local_)?window(_size|_pattern)?|sliding_window\w*",
            "attention within a window: faster at long contexts",
            (*NOTHING, -1, "block_size"),
        ),
        (
            r"(use_)?(logits?_?|attn_)?soft_?cap(ping)?\w*|value_(residual|embed)\w*|use_value_\w+",
            "another model: its loss has no curve here",
            NOTHING,
        ),
        (
            r"(use_)?alibi|pos(ition)?(al)?_(emb|enc)\w*",
            "other positions: other parameters and loss",
            (*NOTHING, "learned", "absolute"),
        ),
        (
            r"(attn|attention|resid|residual|embd|emb|mlp|ffn)_(dropout|pdrop)|drop_path\w*",
            "dropout by its place, which is `dropout` for all here",
            (*NOTHING, "dropout"),
        ),
        (
            r"label_smoothing|(use_)?z_loss\w*|aux_loss\w*|mtp\w*|multi_token\w*",
            "another loss than cross-entropy: the planned one is not comparable",
            NOTHING,
        ),
        (
            r"optimizer_(type|name|class)|optim|use_(muon|lion|sophia|shampoo|8bit\w*)|\w*8bit\w*",
            "another optimizer: other memory, and its loss has no curve here",
            (*NOTHING, "adamw", "AdamW"),
        ),
        (r"(adam_?)?eps(ilon)?", "AdamW's epsilon, 1e-8 here", (None, 1e-8)),
        (r"(use_)?ema(_\w+)?|swa\w*", "a mean of the weights: one more copy of them in memory", NOTHING),
        (
            r"(use_)?lora(_\w+)?|peft\w*|(use_)?fp8\w*|load_in_[48]bit|quantiz\w+",
            "other parameters to train, or fewer bits: other memory and speed",
            NOTHING,
        ),
        (
            r"((max|num|n|train)_)*epochs",
            "a length in passes over the data: max_iters is what is planned",
            (None,),
        ),
        (
            r"target_(param_data_ratio|flops|tokens)",
            "a length by another measure: max_iters is planned; --chinchilla and --tokens solve for it",
            (None, -1),
        ),
        (r"(un)?embedding_lr|scalar_lr", "a rate by its place, learning_rate for all here", (None,)),
        (r"early_stop\w*|patience", "an end before max_iters", (*NOTHING, -1)),
        (
            r"(lr_)?(decay|warmdown)_(ratio|frac|fraction|steps)|cooldown_(ratio|frac|steps|iters)|num_cycles",
            "another shape of the learning rate's decay: the loss is planned for lr_schedule",
            (None,),
        ),
        (
            r"(n|num)_(gpus?|devices|nodes)|gpus|nproc\w*|world_size|ddp_world_size",
            "how many devices there are, which --device-count says",
            (None, 0, 1),
        ),
    )
)
# What other trainers must be told and this one need not; accepted by training too, and said to do nothing.
NOT_NEEDED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (
            r"((num|n)_)?((data|dl|data_?loader|train|loader)_)?(num_)?workers"
            r"|pin_memory|persistent_workers|prefetch(_factor)?|drop_last",
            "batches are read from a memory map while the step before computes, without workers",
        ),
        (
            r"(use_)?(flash|sdpa|sdp)(_?attn|_?attention)?(_?[23])?|(attn|attention)_impl\w*",
            "attention is one fused kernel wherever the device has it",
        ),
        (r"(use_)?fused(_adamw?)?", "AdamW is fused wherever the device has it"),
        (r"compile_(mode|backend)", "torch.compile's default is taken"),
        (r"wandb_(entity|tags?|group|notes|id|job_type|dir|mode)", "W&B's own WANDB_… variables say it"),
    )
)


@dataclass(frozen=True, slots=True)
class ForeignSetting:
    """A setting of another trainer in a config.

    Attributes:
        name: as that trainer calls it.
        value: as the config has it.
        source: where it was given.
        meaning: what it is, and what would change with it.
        ours: the setting of ours that is meant, and its value; None where there is none.
    """

    name: str
    value: Any
    source: str
    meaning: str
    ours: tuple[str, Any] | None


def why_not_needed(name: str) -> str | None:
    """Why a setting of other trainers changes nothing here; None for any other."""
    return next((why for pattern, why in NOT_NEEDED if pattern.fullmatch(name)), None)


def name_of_ours(name: str) -> str | None:
    """The setting of ours that other trainers call so; None where there is none."""
    if name == TOKENS_A_STEP:
        return "tokens_per_step"
    return "warmup_iters" if WARMUP_SHARE.fullmatch(name) else OTHER_NAMES.get(name)


def meaning_elsewhere(name: str) -> str | None:
    """What a setting without a counterpart here is; None if no trainer is known to have one of that name."""
    return next((meaning for pattern, meaning, _ in NOT_HERE if pattern.fullmatch(name)), None)


def changes_nothing(name: str, value: Any, settings: Mapping[str, Any]) -> bool:
    """Whether a setting without a counterpart has the value of what is done here.

    Args:
        name: of the setting.
        value: its value.
        settings: those of ours.
    """
    harmless = next((values for pattern, _, values in NOT_HERE if pattern.fullmatch(name)), ())
    return any(value == same or (same in settings and value == settings[same]) for same in harmless)


def read_foreign(name: str, value: Any, source: str, settings: Mapping[str, Any]) -> ForeignSetting | None:
    """A setting of another trainer; None if it is not known to be one.

    Args:
        name: as the config has it.
        value: its value.
        source: where it was given.
        settings: those of ours, with defaults.
    """
    ours = name_of_ours(name)
    if name == TOKENS_A_STEP and not (isinstance(value, int) and value >= FEWEST_TOKENS_A_STEP):
        return None
    if ours is not None and not WARMUP_SHARE.fullmatch(name):
        return ForeignSetting(name, value, source, "", (ours, value))
    if ours is not None:
        share = value if isinstance(value, int | float) and 0 <= value <= 1 else None
        steps = settings["max_iters"]
        if share is None or not isinstance(steps, int | float):
            return None
        return ForeignSetting(name, value, source, "", (ours, round(share * steps)))
    meaning = meaning_elsewhere(name)
    return ForeignSetting(name, value, source, meaning, None) if meaning is not None else None
