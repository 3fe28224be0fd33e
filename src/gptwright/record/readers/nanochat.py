"""nanochat: scripts/base_train.py of karpathy/nanochat, older builds and its fine-tuning script included.

The printed loss is a running average (0.9, debiased) of one micro-batch of one process, so it is no value of
its step. `step` lines train, `Step` lines evaluate: bits a byte, no nats. The MFU has no percent sign; it is
against the peak that the start names, 0.00 where that is unknown. Builds before February 2026 name none and
mean an H100.
"""

import re
from dataclasses import replace

from gptwright.facts import derived
from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import WHOLE, Shape
from gptwright.record.readers.tables import Rows, note_unknown_mfu

FORMAT = LogFormat(
    name="nanochat",
    train_loss=TrainLoss.SMOOTHED,
    has_dropout=False,
    evaluates_train=False,
    time_includes_evaluation=False,
    prints_rate_multiple=True,
)
# `promised_flops_per_sec_h100` of the first builds.
OLD_FORMAT = replace(FORMAT, mfu_peak_flops=989e12)

HEAD = (
    r"step {step}(?:/{planned_steps})? \({_}%\) \| loss: {loss} \| lrm: {learning_rate} \| dt: {ms}ms"
    r" \| tok/sec: {tokens_per_second} \| "
)
CURRENT = Shape(
    "train",
    r"step {step}/{planned_steps} \({_}%\) \| loss: {loss} \| lrm: {learning_rate} \| dt: {ms}ms"
    r" \| tok/sec: {tokens_per_second} \| bf16_mfu: {mfu_percent_or_zero} \| epoch: {_} pq: {_} rg: {_}"
    r" \| total time: {_}m \| eta: {_}m",
)
# The first ten steps have no eta.
CURRENT_FIRST = Shape("train", HEAD + r"bf16_mfu: {mfu_percent_or_zero} \|")
OLD = Shape("train", HEAD + r"mfu: {mfu_percent_or_zero} \|")


def _finish(build: Builder, train: Rows, _evals: Rows) -> LogFormat | None:
    note_unknown_mfu(build, train)
    header = build.header
    micro, context = header.get("micro_batch"), header.get("block_size")
    everywhere = header.get("tokens_per_micro_batch")
    if micro and context and everywhere and micro.number * context.number > 0:
        count = everywhere.number / (micro.number * context.number)
        if count == int(count) and count >= 1:
            header["world_size"] = derived(
                "world_size", int(count), "tokens of a micro-batch, all over one process's"
            )
    return OLD_FORMAT if OLD in build.tables and "device" not in header else None


NANOCHAT = Reader(
    format=FORMAT,
    begins=re.compile(r"step \d{5,}(?:/\d+)? ?(?:\(|$)|Step \d{5,} \| Val"),
    shapes=(
        CURRENT,
        CURRENT_FIRST,
        OLD,
        Shape("eval", rf"Step {{step}} \| Validation bpb: {{val_bpb}}(?:{WHOLE[6]}|{WHOLE[4]})"),
    ),
    headers=(
        Header(r"GPU: {device} \| Peak FLOPS \(BF16\): {mfu_peak_flops}", weight=0.1),
        Header(r"COMPUTE_DTYPE: {settings.dtype} \("),
        Header(r"Vocab size: {vocab_size}"),
        Header(r"^ *total +: {parameters_total}"),
        Header(r"Number of parameters: {parameters_total}"),
        Header(r"Estimated FLOPs per token: {flops_per_token}"),
        Header(r"Total number of training tokens: {planned_tokens}"),
        Header(r"number of iterations(?: from [^:]{1,60})?: {planned_steps}"),
        Header(r"Tokens / micro-batch / rank: {micro_batch} x {block_size} =", weight=0.1),
        Header(r"Tokens / micro-batch: {tokens_per_micro_batch}"),
        Header(
            r"Total batch size {tokens_per_step}"
            r" => gradient accumulation steps: {gradient_accumulation_steps}"
        ),
        Header(r"[\"']sequence_len[\"']: {block_size},"),
        Header(r"[\"']vocab_size[\"']: {vocab_size},"),
        Header(r"(?:[\"']n_layer[\"']|num_layers): {n_layer}"),
        Header(r"(?:[\"']n_head[\"']|num_heads): {n_head}"),
        Header(r"(?:[\"']n_embd[\"']|model_dim): {n_embd}"),
        Header(r"Peak memory usage: {peak_memory_bytes@MiB}MiB"),
        Header(r"Total training time: {training_seconds@min}m"),
    ),
    finish=_finish,
)
