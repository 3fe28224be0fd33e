"""What evaluations show: memorization, splits that are no sample, noise, and losses that data cannot give."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tests.simulator.curves import train_loss
from tests.simulator.faults.fault import WEB_TEXT, Fault, as_it_is, retold
from tests.simulator.run import Run
from tests.simulator.truth import Overfit


def overfitting(rng: np.random.Generator, run: Run) -> Run:
    """Validation is best early and rises while train falls."""
    truth = run.truth
    best = (
        max(2, round(truth.last_step * float(rng.uniform(0.2, 0.5)) / truth.eval_interval))
        * truth.eval_interval
    )
    reached = _loss_at(run, best)
    overfit = Overfit(
        best_step=best,
        rise=max(float(rng.uniform(0.2, 0.6)) * truth.law.scale, 12 * truth.eval_error),
        train_end=reached - float(rng.uniform(0.3, 0.8)) * truth.law.scale,
    )
    return run.with_trouble(overfit=overfit)


def many_epochs(rng: np.random.Generator, run: Run) -> Run:
    """Dozens of passes: training loss is memorization, and validation has just stopped falling."""
    truth = run.truth
    reached = _loss_at(run, truth.last_step)
    overfit = Overfit(
        best_step=truth.last_step,
        rise=0.0,
        train_end=reached - float(rng.uniform(0.2, 0.6)) * truth.law.scale,
    )
    return run.with_trouble(overfit=overfit)


def _loss_at(run: Run, step: int) -> float:
    return float(train_loss(run.truth, np.array([float(step)]))[0])


def dropout_on(rng: np.random.Generator, run: Run) -> Run:
    """Dropout of 0.1 to 0.2: +0.09 nats at 0.1 on lines of a 40M model of web text."""
    dropout = float(rng.choice([0.1, 0.15, 0.2]))
    return retold(run.with_truth(dropout=dropout, dropout_offset=0.9 * dropout * run.truth.law.scale))


def easy_split(rng: np.random.Generator, run: Run) -> Run:
    """A validation split that happens to be easier than the training data."""
    run = run.with_truth(split_offset=-float(rng.uniform(0.035, 0.09)) * run.truth.law.scale)
    if rng.random() < 0.5:
        run = run.with_truth(val_tokens=int(rng.uniform(4_000, 30_000)))
    else:
        run = run.with_truth(val_tokens=None)
    return retold(run)


def hard_split(rng: np.random.Generator, run: Run) -> Run:
    """A validation split that is harder than the training data, as the last tenth of a file may be."""
    run = run.with_truth(split_offset=float(rng.uniform(0.08, 0.2)) * run.truth.law.scale)
    return retold(run).with_facts(train_tokens=run.truth.train_tokens)


def small_split(rng: np.random.Generator, run: Run) -> Run:
    """A validation split of a few dozen windows."""
    offset = float(rng.uniform(-0.06, 0.06)) * run.truth.law.scale
    tokens = int(rng.uniform(3, 40) * run.truth.shape.block_size)
    return retold(run.with_truth(split_offset=offset, val_tokens=tokens))


def worse_than_uniform(rng: np.random.Generator, run: Run) -> Run:
    """Validation above ln(vocabulary): targets shifted, another tokenizer, or a perplexity in its place."""
    return run.with_trouble(val_level=float(rng.uniform(0.1, 0.8)) * run.truth.uniform_loss)


def below_reference(rng: np.random.Generator, run: Run) -> Run:
    """Better than this data allows: the splits overlap, or it is other data."""
    return _shifted_law(run, -float(rng.uniform(0.6, 1.0)))


def implausible(rng: np.random.Generator, run: Run) -> Run:
    """Targets that the model sees: the loss goes to nearly nothing, on both splits."""
    truth, level, steepness = run.truth, float(rng.uniform(0.002, 0.06)), 1.3
    begins = truth.initial_loss * (0.01 * truth.tokens_seen) ** steepness
    law = dataclasses.replace(
        truth.law, floor=level, a=0.0, b=begins, beta=steepness, recipe_bonus=0.0, late=0.0
    )
    return run.with_truth(
        law=law, noise=0.1 * level, eval_noise=0.1 * level, dropout_offset=0.0, split_offset=0.0
    )


def above_reference(rng: np.random.Generator, run: Run) -> Run:
    """Clearly worse than the public curve."""
    return _shifted_law(run, float(rng.uniform(0.5, 0.9)))


def _shifted_law(run: Run, nats: float) -> Run:
    law = run.truth.law
    return run.with_truth(law=dataclasses.replace(law, floor=law.floor + nats))


def periodic(rng: np.random.Generator, run: Run) -> Run:
    """Validation oscillates with the shards."""
    truth = run.truth
    height = max(float(rng.uniform(0.05, 0.1)), 5 * truth.eval_error)
    period = truth.eval_interval * float(rng.uniform(4.5, 7.5))
    return run.with_trouble(ripple_height=height, ripple_period=period)


EVALUATES_BOTH = ("nanogpt", "llama2c", "ours")
AFTER_EPOCHS = (
    "overfitting",
    "many-epochs",
    "undertrained",
    "capacity-limited",
    "plateau-unproven",
    "small-val-split",
    "long-plan",
)
FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "overfitting": Fault(
            plant=overfitting,
            formats=("nanogpt", "llama2c", "hf", "hf-state", "litgpt", "ours"),
            wishes=MappingProxyType(
                {
                    "epochs": (8.0, 40.0),
                    "finished": True,
                    "evaluations": (12, 25),
                    "vocabulary": 4096,
                    "variant": "",
                }
            ),
            allowed=(*AFTER_EPOCHS, "divergence"),
        ),
        "many-epochs": Fault(
            plant=many_epochs,
            formats=("nanogpt", "llama2c", "hf", "hf-state", "litgpt", "torchtitan", "ours"),
            wishes=MappingProxyType(
                {"epochs": (25.0, 150.0), "finished": True, "vocabulary": 4096, "variant": ""}
            ),
            allowed=AFTER_EPOCHS,
        ),
        "dropout-in-train-loss": Fault(
            plant=dropout_on,
            formats=EVALUATES_BOTH,
            wishes=MappingProxyType(
                {"vocabulary": 8192, "finished": True, "evaluations": (12, 25), "variant": ""}
            ),
        ),
        "val-below-train": Fault(
            plant=easy_split,
            formats=EVALUATES_BOTH,
            wishes=MappingProxyType(
                {"vocabulary": 8192, "finished": True, "evaluations": (12, 25), "variant": ""}
            ),
            allowed=("small-val-split",),
        ),
        "val-above-train": Fault(
            plant=hard_split,
            formats=EVALUATES_BOTH,
            wishes=MappingProxyType(
                {
                    "vocabulary": 8192,
                    "finished": True,
                    "evaluations": (12, 25),
                    "epochs": (0.3, 1.9),
                    "variant": "",
                }
            ),
        ),
        "small-val-split": Fault(
            plant=small_split,
            formats=("nanogpt", "llama2c", "hf", "hf-state", "litgpt", "ours"),
            wishes=MappingProxyType({"vocabulary": 8192, "variant": ""}),
            allowed=("val-below-train", "noisy-eval"),
        ),
        "noisy-eval": Fault(
            plant=as_it_is,
            formats=("nanogpt", "llama2c"),
            wishes=MappingProxyType(
                {
                    "eval_iters": 2,
                    "micro_batch": 8,
                    "vocabulary": 8192,
                    "evaluations": (15, 30),
                    "variant": "",
                    "finished": True,
                }
            ),
            allowed=("plateau-unproven", "small-val-split", "val-below-train"),
        ),
        "worse-than-uniform": Fault(
            plant=worse_than_uniform,
            formats=("nanogpt", "llama2c", "hf", "hf-state", "litgpt", "ours", "build-nanogpt", "llmc"),
            wishes=MappingProxyType({"variant": ""}),
            allowed=("overfitting", "divergence", "above-reference", "val-below-train", "scaled-loss"),
        ),
        "below-reference": Fault(
            plant=below_reference,
            formats=("nanogpt", "build-nanogpt", "llmc", "litgpt"),
            wishes=WEB_TEXT,
            allowed=("many-epochs",),
        ),
        "at-reference": Fault(
            plant=as_it_is,
            # litgpt's size counts two embeddings, for which the curve's band is a little too low.
            formats=("nanogpt", "build-nanogpt", "llmc"),
            # Near the size of the public curve: simulated floors scatter as much as the band is wide.
            wishes=MappingProxyType({**WEB_TEXT, "parameters": (1e8, 1.5e8), "variant": ""}),
        ),
        "above-reference": Fault(
            plant=above_reference,
            formats=("nanogpt", "build-nanogpt", "llmc", "litgpt"),
            wishes=WEB_TEXT,
            allowed=("capacity-limited", "plateau-unproven"),
        ),
        "implausible-loss": Fault(
            plant=implausible,
            formats=("nanogpt", "llama2c", "build-nanogpt", "llmc", "litgpt", "ours"),
            wishes=MappingProxyType(
                {"vocabulary": 8192, "finished": True, "variant": "", "parameters": (1e7, 3e8)}
            ),
            allowed=("loss-spike", "stuck-loss", "init-loss"),
        ),
        "periodic-validation": Fault(
            plant=periodic,
            formats=("nanogpt", "build-nanogpt", "llmc", "litgpt", "modded", "modded-current", "nanochat"),
            wishes=MappingProxyType(
                {
                    "evaluations": (40, 60),
                    "finished": True,
                    "variant": "",
                    "vocabulary": 50304,
                    "parameters": (6e7, 4e8),
                }
            ),
            allowed=("overfitting", "val-below-train", "noisy-eval"),
        ),
    }
)
