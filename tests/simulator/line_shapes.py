"""The shapes of each trainer's lines, and undamaged runs to hold against them."""

import re

import numpy as np

from tests.simulator.draw import random_truth
from tests.simulator.folder import files_of
from tests.simulator.handing import true_handover
from tests.simulator.run import Run
from tests.simulator.truth import Truth

NUMBER = r"(-?[\d.]+(?:e[-+]\d+)?|nan|inf)"
# The shapes of each trainer's lines: a training line and an evaluation.
SHAPES = {
    "nanogpt": (
        rf"iter (\d+): loss {NUMBER}, time {NUMBER}ms, mfu {NUMBER}%",
        rf"step (\d+): train loss {NUMBER}, val loss {NUMBER}",
    ),
    "llama2c": (
        rf"(\d+) \| loss {NUMBER} \| lr {NUMBER} \| {NUMBER}ms \| mfu {NUMBER}%",
        rf"step (\d+): train loss {NUMBER}, val loss {NUMBER}",
    ),
    "build-nanogpt": (
        rf"step +(\d+) \| loss: {NUMBER} \| lr {NUMBER} \| norm: {NUMBER} \| dt: {NUMBER}ms"
        rf" \| tok/sec: {NUMBER}",
        rf"validation loss: {NUMBER}",
    ),
    "nanochat": (
        rf"step (\d{{5}})/\d{{5}} \([\d.]+%\) \| loss: {NUMBER} \| lrm: [\d.]+ \| dt: {NUMBER}ms"
        rf" \| tok/sec: [\d,]+ \| bf16_mfu: {NUMBER} \| epoch: 1 pq: \d+ rg: \d+"
        rf" \| total time: [\d.]+m(?: \| eta: [\d.]+m)?",
        rf"Step (\d{{5}}) \| Validation bpb: {NUMBER}",
    ),
    "modded": (
        rf"step:(\d+)/\d+ train_loss:{NUMBER} train_time:{NUMBER}ms step_avg:{NUMBER}ms",
        rf"step:(\d+)/\d+ val_loss:{NUMBER} train_time:{NUMBER}ms step_avg:{NUMBER}ms",
    ),
    "modded-current": (
        rf"step:(\d+)/\d+ train_time:{NUMBER}ms step_avg:{NUMBER}ms",
        rf"step:(\d+)/\d+ val_loss:{NUMBER} train_time:{NUMBER}ms step_avg:{NUMBER}ms",
    ),
    "llmc": (
        rf"step +(\d+)/\d+ \| loss {NUMBER} \([-+][\dna.]+z\)\| norm {NUMBER} \([-+][\dna.]+z\)\| lr {NUMBER}"
        rf" \| {NUMBER} ms \| {NUMBER}% bf16 MFU \| \d+ tok/s",
        rf"val loss {NUMBER}",
    ),
    "litgpt": (
        rf"Epoch \d+ \| iter \d+ step (\d+) \| loss train: {NUMBER}, val: (?:n/a|{NUMBER})"
        rf" \| iter time: {NUMBER} ms \(step\) remaining time: (?:\d+ days?, )?\d+:\d\d:\d\d",
        rf"iter (\d+): val loss {NUMBER}, val time: {NUMBER} ms",
    ),
    "hf": (
        r" +\{'loss': '?[\d.]+'?, 'grad_norm': '?[\d.]+'?, 'learning_rate': '?[\d.e-]+'?,"
        r" 'epoch': '?[\d.e-]+'?\}",
        r" +\{'eval_loss': '?[\d.]+'?, 'eval_runtime': .*\}",
    ),
    "torchtitan": (
        rf"\[titan\] [\d-]+ [\d:,]+ - root - INFO - \x1b\[31mstep: +(\d+)  \x1b\[32mloss: +{NUMBER}  .*"
        rf"tps: [\d,]+  .*tflops: [\d,.]+  .*mfu: {NUMBER}%\x1b\[39m",
        r"(?!)",
    ),
}


def plain_run(trainer: str, seed: int, **wishes: object) -> tuple[Truth, dict[str, str]]:
    """A healthy finished run in its trainer's usual line shape, and its files without damage."""
    rng = np.random.default_rng(seed)
    truth = random_truth(rng, trainer, **{"variant": "", "finished": True, **wishes})
    run = Run(truth=truth, handover=true_handover(rng, truth, damaged=False))
    return truth, files_of(run, rng)


def matches(pattern: str, text: str) -> list[re.Match[str]]:
    """Lines that have a shape from end to end."""
    found = (re.fullmatch(pattern, line) for line in re.split(r"[\r\n]+", text))
    return [match for match in found if match]
