"""Planted faults are there, and as large as they say."""

import re

import numpy as np

from tests.simulator import FAULTS, Simulated, faulty_runs, simulate
from tests.simulator.curves import train_loss, validation_loss
from tests.simulator.devices import BY_NAME
from tests.simulator.line_shapes import SHAPES, matches


def test_every_fault_can_be_planted_everywhere_it_says() -> None:
    for name, fault in FAULTS.items():
        for index, trainer in enumerate(fault.formats):
            simulated = simulate(index, trainer, name)
            assert name in simulated.expected
            assert not simulated.expected & simulated.allowed
            assert simulated.files
        again = simulate(0, fault.formats[0], name)
        assert again.files == simulate(0, fault.formats[0], name).files


def runs(fault: str, number: int = 12) -> list[Simulated]:
    """Some runs with a fault."""
    return list(faulty_runs(number, fault, seed=4))


def test_planted_claims_are_false() -> None:
    for simulated in runs("batch-mismatch"):
        claimed = int(simulated.handover.settings["gradient_accumulation_steps"])
        assert simulated.truth.accumulation / claimed >= 2
        if simulated.format == "nanogpt":
            assert "tokens per iteration" not in simulated.files["log.txt"]
    for simulated in runs("device-mismatch"):
        assert simulated.handover.facts["device"] != simulated.truth.device.name
        everything = "".join(text for name, text in simulated.files.items() if name != "facts.toml")
        assert simulated.truth.device.logged[:28] in everything
    for simulated in runs("size-label-mismatch"):
        assert (
            simulated.handover.comments
            or simulated.handover.preamble
            or re.search(r"\d[MB]", str(simulated.handover.settings))
        )
    for simulated in runs("impossible-throughput"):
        stated = BY_NAME[str(simulated.handover.facts["device"])]
        assert simulated.truth.achieved_flops > 1.4 * stated.peak_flops


def test_planted_losses_are_as_said() -> None:
    for simulated in runs("non-finite-loss"):
        text = "".join(simulated.files.values()).lower()
        assert "nan" in text or "inf" in text
    for simulated in runs("divergence"):
        truth = simulated.truth
        rise = truth.trouble.divergence
        assert rise is not None
        before, after = train_loss(truth, np.array([rise.step - 1.0, float(truth.last_step)]))
        assert after > before + 0.3 * truth.law.scale
    for simulated in runs("loss-spike"):
        truth = simulated.truth
        spike = truth.trouble.spikes[0]
        steps = np.array(
            [spike.step - 1.0, spike.step + spike.half_steps / 4, spike.step + 12 * spike.half_steps]
        )
        before, top, after = train_loss(truth, steps)
        assert top > before + 0.7 * truth.law.scale
        assert after < before + 0.02
    for simulated in runs("scaled-loss", 4):
        truth = simulated.truth
        assert truth.accumulation >= 2
        text = simulated.files.get("log.txt") or simulated.files["trainer_state.json"]
        first = float(re.findall(r"['\"]loss['\"]: '?([\d.]+)", text)[0])
        assert first > 0.6 * truth.accumulation * truth.uniform_loss
    for simulated in runs("init-loss"):
        truth = simulated.truth
        assert abs(train_loss(truth, np.zeros(1))[0] - truth.uniform_loss) > 0.3 * truth.law.scale


def test_planted_overfitting_has_its_best_where_it_says() -> None:
    for simulated in runs("overfitting"):
        truth = simulated.truth
        overfit = truth.trouble.overfit
        assert overfit is not None
        steps = np.arange(truth.eval_interval, truth.last_step + 1, truth.eval_interval, dtype=np.float64)
        values = validation_loss(truth, steps)
        assert abs(steps[values.argmin()] - overfit.best_step) <= truth.eval_interval
        assert values[-1] - values.min() > 6 * truth.eval_error
        assert train_loss(truth, steps)[-1] < train_loss(truth, steps)[values.argmin()]
        assert truth.epochs > 5


def test_planted_learning_rate_jumps_up() -> None:
    for simulated in runs("lr-jump"):
        truth = simulated.truth
        second = truth.trouble.second_schedule
        assert second is not None
        at = np.array([float(truth.segments[0][1])])
        assert second.at(at)[0] > 3 * truth.schedule.at(at)[0]


def test_planted_allocation_is_the_logits() -> None:
    for simulated in runs("out-of-memory", 20):
        truth = simulated.truth
        match = re.search(r"Tried to allocate ([\d.]+) (GiB|MiB)", simulated.files["log.txt"])
        assert match is not None
        size = float(match[1]) * (2**30 if match[2] == "GiB" else 2**20)
        elements = truth.micro_batch * truth.shape.block_size * truth.shape.vocab_size
        assert min(abs(size / elements / width - 1) for width in (2, 4)) < 0.005
        assert not matches(SHAPES["nanogpt"][0], simulated.files["log.txt"])


def test_planted_plans_do_not_fit() -> None:
    for simulated in runs("long-plan"):
        assert simulated.truth.max_iters * simulated.truth.step_seconds > 150 * 86_400
    for simulated in runs("small-batch-for-lr"):
        assert simulated.truth.tokens_per_step < 45_000
        assert simulated.truth.schedule.peak >= 6e-4
    for simulated in runs("embedding-heavy"):
        assert simulated.truth.shape.embedding_share > 0.6
    for simulated in runs("low-mfu"):
        assert simulated.truth.efficiency <= 0.2
        assert simulated.truth.parameters > 0.9e8
    for simulated in runs("incomplete-log"):
        assert "Initializing" not in simulated.files["log.txt"]


def test_planted_paces_and_batches_are_as_said() -> None:
    for simulated in runs("slower-steps"):
        factors = simulated.truth.trouble.stalls
        assert 1.25 <= factors[max(factors)] <= 2.5
        assert min(factors) <= 0.7 * simulated.truth.last_step
    for simulated in runs("batch-change"):
        truth = simulated.truth
        first, last = truth.process(0), truth.process(1)
        assert first.tokens_per_step in (2 * last.tokens_per_step, 4 * last.tokens_per_step)
        for part in (first, last):
            assert f"will be: {part.tokens_per_step:,}" in simulated.files["log.txt"]
        resumed = truth.segments[1][0]
        assert truth.tokens_seen - truth.last_step * last.tokens_per_step == resumed * (
            first.tokens_per_step - last.tokens_per_step
        )


def test_planted_losses_are_ones_that_no_text_has() -> None:
    for simulated in runs("implausible-loss"):
        truth = simulated.truth
        assert 0 < validation_loss(truth, np.array([float(truth.last_step)]))[0] < 0.1
    for simulated in runs("newest-first"):
        lines = simulated.files["log.txt"].splitlines()
        steps = [int(match[1]) for line in lines if (match := re.search(r"(?:iter|step) +(\d+)", line))]
        assert steps == [] or steps[0] >= steps[-1]
