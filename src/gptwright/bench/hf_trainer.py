"""A workload done by Hugging Face's Trainer, as a process of its own that speaks nanoGPT's line shapes.

    python -m gptwright.bench.hf_trainer --n_layer=4 … --dataset=benchmark --bf16=False --compile=True

Their GPT-2 (`GPT2LMHeadModel`, from random weights) in their loop, with their defaults wherever the workload
says nothing: the optimizer's fused kernel, the attention, the collator. GELU is the exact one that nanoGPT
has, quicker here than their `gelu_new`. Two things are theirs to the end: the model has biases, and predicts
one token less a window, because it shifts the targets itself.

A step's time is that from the end of the step before to its own, as nanoGPT takes it; an evaluation between
them is left out.
"""

import os

# Nothing is asked of the network; transformers reads this when it is imported.
os.environ["HF_HUB_OFFLINE"] = "1"

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.data.dataset import TokenDataset, open_dataset
from gptwright.data.splits import TokenSplit
from gptwright.data.vocabulary import choose_vocab_size


class Windows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Windows at random places of a split.

    Args:
        split: where from.
        count: how many.
        length: tokens of each.
    """

    def __init__(self, split: TokenSplit, count: int, length: int) -> None:
        self._split = split
        self._length = length
        self._starts = np.random.default_rng(0).integers(split.tokens - length + 1, size=count).tolist()

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        ids = torch.from_numpy(self._split.read(self._starts[number], self._length).astype(np.int64))
        return {"input_ids": ids, "labels": ids}


class Lines(TrainerCallback):
    """Prints what nanoGPT prints."""

    def __init__(self) -> None:
        self._before = self._seconds = 0.0
        self._losses: dict[str, float] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """The first step begins when it is begun."""
        self._before = self._before or time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Takes the time of a step."""
        now = time.perf_counter()
        self._seconds, self._before = now - self._before, now

    def on_log(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """A training step's loss comes here."""
        if (loss := others["logs"].get("loss")) is not None:
            took = 1e3 * self._seconds
            print(f"iter {state.global_step}: loss {loss:.4f}, time {took:.2f}ms", flush=True)

    def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """The two splits come one after the other."""
        self._losses |= {name: loss for name, loss in others["metrics"].items() if name.endswith("_loss")}
        if len(self._losses) == 2:
            train, val = self._losses["eval_train_loss"], self._losses["eval_val_loss"]
            print(f"step {state.global_step}: train loss {train:.4f}, val loss {val:.4f}", flush=True)
            self._losses = {}
            self._before = time.perf_counter() if state.global_step else 0.0


def new_model(config: TrainConfig, dataset: TokenDataset) -> GPT2LMHeadModel:
    """Their GPT-2 in the workload's shape."""
    vocab_size, _, _ = choose_vocab_size(config, dataset)
    shape = GPT2Config(
        vocab_size=vocab_size,
        n_positions=config.block_size,
        n_embd=config.n_embd,
        n_layer=config.n_layer,
        n_head=config.n_head,
        activation_function="gelu",
        resid_pdrop=config.dropout,
        embd_pdrop=config.dropout,
        attn_pdrop=config.dropout,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(shape)


def arguments_for(config: TrainConfig, *, bf16: bool) -> TrainingArguments:
    """The workload in Trainer's words."""
    return TrainingArguments(
        output_dir=config.out_dir,
        use_cpu=config.device == "cpu",
        bf16=bf16,
        torch_compile=config.compile is True,
        per_device_train_batch_size=config.batch_size,
        per_device_eval_batch_size=config.batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        max_steps=config.max_iters,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr": config.min_lr},
        warmup_steps=config.warmup_iters,
        weight_decay=config.weight_decay,
        adam_beta1=config.beta1,
        adam_beta2=config.beta2,
        max_grad_norm=config.grad_clip,
        eval_strategy="steps",
        eval_steps=config.eval_interval,
        eval_on_start=True,
        save_strategy="steps",
        save_steps=config.eval_interval,
        logging_steps=config.log_interval,
        dataloader_pin_memory=config.device != "cpu",
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
    )


def main(given: Sequence[str]) -> None:
    """Trains as the options say."""
    options = dict(option.removeprefix("--").split("=", 1) for option in given)
    bf16 = options.pop("bf16") == "True"
    config = load_config([], options).config
    dataset = open_dataset(config.dataset)
    torch.manual_seed(config.seed)
    evaluated = config.eval_iters * config.batch_size
    trainer = Trainer(
        model=new_model(config, dataset),
        args=arguments_for(config, bf16=bf16),
        train_dataset=Windows(
            dataset.splits["train"], config.max_iters * config.sequences_per_step, config.block_size
        ),
        eval_dataset={
            name: Windows(dataset.splits[name], evaluated, config.block_size) for name in ("train", "val")
        },
        callbacks=[Lines()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


if __name__ == "__main__":
    main(sys.argv[1:])
