"""A small log of every trainer and variant, built line by line together with what it says.

The shapes are those that the trainers' sources print; the values are made up and agree with each other. Each
sample is its own truth: the tables that a reader must make of it are written down while the line is.
"""

from collections.abc import Callable

from tests.record.readers.samples.huggingface import hugging_face, trainer_state
from tests.record.readers.samples.lightning import lit_gpt, lit_llama, litgpt, megatron, mlx
from tests.record.readers.samples.llmc import llmc, llmc_cpu, llmc_file, llmc_older, llmc_reference
from tests.record.readers.samples.modded import modded, modded_evaluations_only, modded_oldest
from tests.record.readers.samples.nanochat import autoresearch, nanochat
from tests.record.readers.samples.nanogpt import (
    build_nanogpt,
    build_nanogpt_file,
    lecture,
    llama2c,
    mingpt,
    nanogpt,
    nanogpt_nan,
)
from tests.record.readers.samples.ours import our_log, our_metrics
from tests.record.readers.samples.sample import Row, Sample, loss_at
from tests.record.readers.samples.torchtitan import torchtitan

SAMPLES: tuple[Callable[[], Sample], ...] = (
    nanogpt,
    lambda: nanogpt(mfu=False),
    lambda: nanogpt(stamp="[2023-03-17 09:12:05] "),
    nanogpt_nan,
    llama2c,
    build_nanogpt,
    build_nanogpt_file,
    nanochat,
    lambda: nanochat(old=True),
    autoresearch,
    modded,
    lambda: modded(seconds=True),
    lambda: modded(train_loss=True),
    modded_evaluations_only,
    modded_oldest,
    llmc,
    llmc_cpu,
    llmc_reference,
    llmc_file,
    llmc_older,
    litgpt,
    lit_gpt,
    lit_llama,
    hugging_face,
    lambda: hugging_face(strings=True),
    trainer_state,
    torchtitan,
    mingpt,
    lecture,
    mlx,
    megatron,
    our_log,
    our_metrics,
)

__all__ = ["SAMPLES", "Row", "Sample", "loss_at", "modded", "nanochat", "nanogpt", "trainer_state"]
