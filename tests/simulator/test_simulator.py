"""The simulator itself: healthy runs are healthy, and its numbers agree with its truth."""

import ast
import dataclasses
import math
import time
import tomllib

import numpy as np
import pytest

from gptwright.arithmetic.parameters import count_parameters
from tests.simulator import FORMATS, healthy_runs, random_truth, simulate
from tests.simulator.curves import train_loss, validation_loss
from tests.simulator.datasets import WEB
from tests.simulator.devices import BY_NAME
from tests.simulator.hazards import HAZARDS, damaged
from tests.simulator.line_shapes import SHAPES, matches, plain_run
from tests.simulator.shapes import Shape
from tests.simulator.truth import Schedule


@pytest.mark.parametrize("trainer", FORMATS)
def test_same_seed_same_bytes(trainer: str) -> None:
    assert simulate(5, trainer).files == simulate(5, trainer).files
    assert simulate(5, trainer).files != simulate(6, trainer).files


@pytest.mark.parametrize("trainer", FORMATS)
def test_healthy_runs_are_what_an_expert_calls_healthy(trainer: str) -> None:
    for simulated in healthy_runs(15, seed=3, formats=(trainer,)):
        truth = simulated.truth
        assert simulated.expected == frozenset()
        planned = truth.max_iters * truth.tokens_per_step
        assert 1.5 < planned / truth.parameters < 45
        assert planned / truth.train_tokens < 4
        assert truth.max_iters * truth.step_seconds < 10.1 * 86_400
        assert truth.schedule.warmup < 0.1 * truth.max_iters
        assert truth.schedule.decay_steps == truth.max_iters
        assert truth.schedule.peak <= 1.5e-3
        # build-nanogpt's source fixes 20 batches; they are the same tokens each time.
        assert truth.eval_iters >= 50 or trainer == "build-nanogpt"
        assert truth.eval_error < (0.02 if trainer == "build-nanogpt" else 0.0085)
        assert truth.shape.n_embd / truth.shape.n_head in (32, 64, 128)
        assert 25 < truth.shape.n_embd / truth.shape.n_layer < 135
        assert 1 <= truth.accumulation // truth.device_count <= 64
        assert truth.accumulation % truth.device_count == 0
        if truth.shape.counted >= 1e8 and truth.device.kind != "cpu":
            assert 0.35 <= truth.efficiency <= 0.65
        assert truth.efficiency < 0.95 * truth.device.reachable
        assert 18 * truth.shape.total < truth.device.memory_gib * 2**30


def test_shapes_have_the_published_counts() -> None:
    gpt2 = Shape(family="gpt2", n_layer=12, n_head=12, n_embd=768, block_size=1024, vocab_size=50304)
    assert f"{gpt2.parameters / 1e6:.2f}M" == "123.59M"
    assert gpt2.flops_per_token == pytest.approx(854.8e6, rel=1e-3)
    with_bias = dataclasses.replace(gpt2, bias=True)
    assert with_bias.total == 124_475_904
    llama = Shape(family="llama2c", n_layer=6, n_head=6, n_embd=288, block_size=256, vocab_size=32000)
    assert (llama.decayed, llama.vectors) == (15_187_968, 3_744)
    pythia = dataclasses.replace(gpt2, family="pythia")
    assert pythia.total == 162_322_944
    chat = Shape(family="nanochat", n_layer=12, n_head=6, n_embd=768, block_size=2048, vocab_size=32768)
    assert (chat.value_embeddings, chat.matrices, chat.total) == (150_994_944, 84_935_112, 286_261_730)
    assert chat.flops_per_token == pytest.approx(8.870961e8, rel=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_counts_agree_with_the_package(bias: bool) -> None:
    shape = Shape(family="gpt2", n_layer=7, n_head=5, n_embd=320, block_size=512, vocab_size=4096, bias=bias)
    own = count_parameters(
        n_layer=7, n_embd=320, block_size=512, vocab_size=4096, bias=bias, tie_weights=True
    )
    assert (shape.total, shape.parameters, shape.decayed) == (own.total, own.nanogpt, own.decayed)


@pytest.mark.parametrize("trainer", ["nanogpt", "llama2c", "build-nanogpt", "llmc", "ours"])
def test_first_loss_is_that_of_guessing(trainer: str) -> None:
    for seed in range(5):
        truth, _ = plain_run(trainer, seed)
        assert train_loss(truth, np.zeros(1))[0] == pytest.approx(
            truth.uniform_loss + truth.shape.n_embd * 2e-4, abs=0.03
        )


def test_web_law_is_the_public_curve() -> None:
    """llm.c's main.log of 124M and 350M on FineWeb, in modded-nanogpt's records."""
    truth = random_truth(np.random.default_rng(1), "llmc", vocabulary=50304, dataset="fineweb")
    public = {
        (12, 768, 19_560): {2000: 3.8585, 4500: 3.5797, 10_500: 3.3809, 16_500: 3.2841, 19_560: 3.2722},
        (24, 1024, 60_000): {3000: 3.6014, 9000: 3.2689, 21_000: 3.1037, 45_000: 2.9581, 60_000: 2.9282},
    }
    for (layers, width, steps), points in public.items():
        shape = dataclasses.replace(truth.shape, n_layer=layers, n_embd=width, block_size=1024)
        schedule = Schedule(shape="cosine", peak=6e-4, floor=0.0, warmup=700, decay_steps=steps)
        run = truth.but(shape=shape, law=WEB, schedule=schedule, micro_batch=64, accumulation=8)
        run = run.but(initial_loss=11.0, transient_steps=630.0, max_iters=steps, segments=((0, steps),))
        losses = train_loss(run, np.array([float(step) for step in points]))
        assert np.abs(losses - np.array(list(points.values()))).max() < 0.1


@pytest.mark.parametrize(
    ("trainer", "sequences"), [("nanogpt", "micro"), ("litgpt", "step"), ("llmc", "step")]
)
def test_noise_is_that_of_the_tokens_behind_a_line(trainer: str, sequences: str) -> None:
    spreads = []
    for seed in range(8):
        truth, files = plain_run(trainer, seed, vocabulary=50304, parameters=(1e8, 3e8))
        lines = matches(SHAPES[trainer][0], files["log.txt"])
        steps = np.array([float(match[1]) for match in lines]) - (1 if trainer == "llmc" else 0)
        losses = np.array([float(match[2]) for match in lines])
        tokens = (
            truth.micro_batch * truth.shape.block_size * (1 if sequences == "micro" else truth.accumulation)
        )
        late = steps > 0.3 * truth.last_step
        residual = (losses - train_loss(truth, steps) - truth.dropout_offset)[late]
        spreads.append(float(residual.std() * np.sqrt(tokens / 1024)))
    expected = 0.4 if trainer != "llmc" else 1.0
    assert np.mean(spreads) == pytest.approx(expected, rel=0.1)


def test_evaluations_scatter_as_their_tokens_say() -> None:
    truth, files = plain_run(
        "nanogpt", 31, eval_iters=2, micro_batch=8, evaluations=(40, 41), vocabulary=8192
    )
    lines = matches(SHAPES["nanogpt"][1], files["log.txt"])[1:]
    steps = np.array([float(match[1]) for match in lines])
    residual = np.array([float(match[3]) for match in lines]) - validation_loss(truth, steps)
    assert residual.std() == pytest.approx(truth.eval_error, rel=0.35)
    tokens = 2 * truth.micro_batch * truth.shape.block_size
    assert truth.eval_error == pytest.approx(0.4 * math.sqrt(1024 / tokens))


@pytest.mark.parametrize("trainer", FORMATS)
def test_configs_and_facts_are_data(trainer: str) -> None:
    for seed in range(4):
        simulated = simulate(seed, trainer)
        assert tomllib.loads(simulated.files["facts.toml"]) == dict(simulated.handover.facts)
        if simulated.handover.config == "config.py":
            tree = ast.parse(simulated.files["config.py"])
            values = {
                ast.unparse(s.targets[0]): ast.literal_eval(s.value)
                for s in tree.body
                if isinstance(s, ast.Assign)
            }
            assert values == dict(simulated.handover.settings)
        elif simulated.handover.config:
            values = tomllib.loads(simulated.files["config.toml"])
            assert {name: values[name] for name in simulated.handover.settings} == dict(
                simulated.handover.settings
            )


@pytest.mark.parametrize("hazard", HAZARDS)
def test_hazards_leave_the_numbers_readable(hazard: str) -> None:
    lines = [f"iter {step}: loss {step / 7:.4f}, time 12.34ms, mfu 1.23%" for step in range(40)]
    text = damaged(lines, (hazard,), np.random.default_rng(1))
    if hazard == "wrapped":
        text = damaged([line * 3 for line in lines], (hazard,), np.random.default_rng(1))
        assert max(len(line) for line in text.splitlines()) == 100
        assert text.replace("\n", "") == "".join(line * 3 for line in lines)
        return
    kept = sum(line in text for line in lines)
    assert kept == (39 if hazard == "truncated" else 40)


def test_device_peaks_agree_with_the_packages_table() -> None:
    table = pytest.importorskip("gptwright.hardware.table")
    for device in BY_NAME.values():
        match = table.find_spec(device.name) if device.tabled else None
        if match is None:
            continue
        peak = match.spec.peak("bfloat16" if device.bf16 else "float16")
        assert peak == pytest.approx(device.peak_flops, rel=0.01), device.name


def test_a_simulated_run_is_cheap() -> None:
    next(healthy_runs(1, seed=50))
    begin = time.process_time()
    runs = list(healthy_runs(60, seed=51))
    # Some 3 ms on a quiet core; the bound leaves room for a slow or busy one.
    assert (time.process_time() - begin) / len(runs) < 0.02


def test_recoverable_facts_follow_by_hand() -> None:
    truth, files = plain_run("nanogpt", 61)
    lines = matches(SHAPES["nanogpt"][0], files["log.txt"])
    milliseconds = np.median([float(match[3]) for match in lines[2:]])
    simulated = simulate(7, "nanogpt")
    assert milliseconds / 1000 == pytest.approx(truth.step_seconds, rel=0.02)
    for seed in range(30):
        simulated = simulate(seed, FORMATS[seed % len(FORMATS)])
        known = simulated.recoverable
        if "achieved_tflops" in known and "peak_tflops" in known:
            assert known["achieved_tflops"][0] / known["peak_tflops"][0] == pytest.approx(
                known["mfu"][0], rel=1e-6
            )
        if "tokens_per_second" in known:
            tokens = known["tokens_per_second"][0] * known["step_seconds"][0]
            assert tokens == pytest.approx(simulated.truth.tokens_per_step, rel=1e-6)
