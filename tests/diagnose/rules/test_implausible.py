"""A validation loss that no text has, where nothing names the data."""

import math
from pathlib import Path

import pytest

from gptwright.findings import Finding
from tests.diagnose.rules.nanogpt_run import diagnosed, found


def run(folder: Path, end: float, *, train: float | None = None, config: str = "") -> dict[str, Finding]:
    """A log whose losses fall from ln(50,304) to an end."""
    lines = ["number of parameters: 123.59M"]
    for step in range(0, 2001, 50):
        share = math.exp(-step / 150)
        val, lowest = end + (10.8 - end) * share, end if train is None else train
        loss = lowest + (10.8 - lowest) * share
        if step % 500 == 0:
            lines.append(f"step {step}: train loss {loss:.4f}, val loss {val:.4f}")
        lines.append(f"iter {step}: loss {loss:.4f}, time 200.00ms, mfu 11.00%")
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    if config:
        (folder / "config.py").write_text(config)
    return found(folder)


def test_a_loss_of_nothing_has_causes_and_none_is_claimed(tmp_path: Path) -> None:
    finding = run(tmp_path, 0.001)["implausible-loss"]
    assert "0.0010 at step 2,000" in finding.message
    assert finding.evidence[0].source == "log:46"
    assert all(cause.confidence == "possible" for cause in finding.causes)
    words = " ".join(cause.text for cause in finding.causes)
    for word in ("in the training data", "causal mask", "padding or masked", "made by a rule"):
        assert word in words


def test_before_the_first_pass_is_over_nothing_is_known_by_heart(tmp_path: Path) -> None:
    config = "batch_size = 12\nblock_size = 1024\ngradient_accumulation_steps = 1\n"
    (tmp_path / "facts.toml").write_text("train_tokens = 9000000000\n")
    causes = run(tmp_path, 0.02, config=config)["implausible-loss"].causes
    assert "sees its own target" in causes[0].text
    assert "known by heart" in causes[-1].text


def test_validation_alone_that_low_counts_other_targets(tmp_path: Path) -> None:
    causes = run(tmp_path, 0.02, train=2.5)["implausible-loss"].causes
    assert "padding or masked" in causes[0].text
    assert not any("sees its own target" in cause.text for cause in causes)


@pytest.mark.parametrize(("end", "vocabulary"), [(0.25, 50304), (0.05, 65)])
def test_tokens_leave_more_to_guess_than_characters(tmp_path: Path, end: float, vocabulary: int) -> None:
    assert "implausible-loss" in run(tmp_path, end, config=f"vocab_size = {vocabulary}\n")


@pytest.mark.parametrize(("end", "vocabulary"), [(0.25, 65), (0.55, 50304), (1.1, 32000), (1.47, 65)])
def test_what_text_may_have_is_left_alone(tmp_path: Path, end: float, vocabulary: int) -> None:
    assert "implausible-loss" not in run(tmp_path, end, config=f"vocab_size = {vocabulary}\n")


def test_a_cross_entropy_is_never_below_nothing(tmp_path: Path) -> None:
    lines = [
        f"step {step} train loss {3 - step / 100:.4f} val loss {3 - step / 100:.4f}"
        for step in range(0, 501, 20)
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    finding = found(tmp_path)["implausible-loss"]
    assert (finding.severity, finding.confidence) == ("error", "certain")


def test_a_first_loss_that_is_divided_by_the_accumulation(tmp_path: Path) -> None:
    lines = [
        f"iter {step}: loss {(3 + 7.83 / (1 + step / 90)) / 40:.4f}, time 9000.00ms"
        for step in range(0, 901, 10)
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "config.py").write_text("gradient_accumulation_steps = 40\nvocab_size = 50304\n")
    finding = found(tmp_path)["init-loss"]
    assert finding.causes[0].text == "it is printed divided by the accumulation of 40"


def tuned(folder: Path, first: float) -> Path:
    """A log of Hugging Face's Trainer whose validation ends at 0.08."""
    lines = []
    for step in range(10, 601, 10):
        loss = 0.07 + (first - 0.07) * math.exp(-(step - 10) / 60)
        lines.append(f"{{'loss': {loss:.4f}, 'learning_rate': 0.0002, 'epoch': {step / 200:.2f}}}")
        if step % 100 == 0:
            lines.append(
                f"{{'eval_loss': {loss + 0.01:.4f}, 'eval_runtime': 3.2, 'epoch': {step / 200:.2f}}}"
            )
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_masked_targets_of_fine_tuning_may_be_that_predictable(tmp_path: Path) -> None:
    """Instruction tuning: the loss is over the answers alone, and nothing in the log says so."""
    diagnosis = diagnosed(tuned(tmp_path, 1.2))
    assert not [finding for finding in diagnosis.findings if finding.severity in ("error", "warning")]
    missing = {unknown.question: unknown.missing for unknown in diagnosis.unknown}
    answer = missing["Is a validation loss of 0.0801 one over text that the model had not seen?"]
    assert "answers alone" in answer
    assert "also among those trained on" in answer


def test_fresh_weights_do_not_begin_so_low(tmp_path: Path) -> None:
    assert "implausible-loss" in found(tuned(tmp_path, 10.4))


def test_a_loss_above_any_guess_is_none(tmp_path: Path) -> None:
    lines = [f"step {step} | loss {20 + 900 / (1 + step / 90):.3f}\n" for step in range(10, 1001, 10)]
    (tmp_path / "log.txt").write_text("".join(lines))
    findings = found(tmp_path)
    message = findings["implausible-loss"].message
    assert "never below 94.3120" in message
    assert "12.48 = ln(262,144)" in message
    assert "still-improving" not in findings


def test_the_accumulation_tells_a_sum_where_the_vocabulary_is_not_known(tmp_path: Path) -> None:
    """transformers issue 35204: 8 micro-batches, each 10.9 at the start."""
    lines = ["  Gradient Accumulation steps = 8"]
    for step in range(10, 1001, 10):
        loss = 8 * (4 + 6.9 * math.exp(-(step - 10) / 200))
        lines.append(f"{{'loss': {loss:.4f}, 'learning_rate': 0.0002, 'epoch': {step / 4000:.3f}}}")
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    findings = found(tmp_path)
    assert "8 × 10.90" in findings["scaled-loss"].message
    assert findings["scaled-loss"].confidence == "likely"
    assert not {"implausible-loss", "still-improving"} & findings.keys()


@pytest.mark.parametrize("steps", [1, 5])
def test_a_training_loss_that_is_nothing_after_an_update_was_not_learned(tmp_path: Path, steps: int) -> None:
    """Source of the kind: OLMo issue 692, 12.18 and then 0.0000018."""
    lines = [
        f"step {n} loss: {11.73 if n == 1 else 3e-06}\n" for n in (1, *range(1 + steps, 40 * steps, steps))
    ]
    (tmp_path / "log.txt").write_text("".join(lines))
    finding = found(tmp_path)["implausible-loss"]
    assert f"falls from 11.7300 at step 1 to 0.0000 at step {1 + steps}" in finding.message
    assert [fact.source for fact in finding.evidence][:2] == ["log:1", "log:2"]
    assert all(cause.confidence == "possible" for cause in finding.causes)


def test_a_training_loss_of_nothing_from_the_first_line_on(tmp_path: Path) -> None:
    lines = [
        f"{{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 2e-05, 'epoch': 0.{n}}}\n" for n in range(1, 9)
    ]
    (tmp_path / "log.txt").write_text("".join(lines))
    assert "is 0 in all 8 lines" in found(tmp_path)["implausible-loss"].message


def test_one_batch_that_is_learned_by_heart_comes_to_nothing_in_its_time(tmp_path: Path) -> None:
    lines = [f"step {n} loss: {4.2 * 0.7**n:.6f}\n" for n in range(60)]
    (tmp_path / "log.txt").write_text("".join(lines))
    assert "implausible-loss" not in found(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "{{'loss': 0.0, 'grad_norm': 0.21, 'learning_rate': 1e-06, 'reward': 0.4{0}, 'epoch': 0.{0}}}",
        "step {0}/90 | loss: -0.0{0} | average reward: 0.4{0}",
    ],
)
def test_a_loss_beside_rewards_is_none_of_text(tmp_path: Path, line: str) -> None:
    """That of reinforcement begins at 0 and may be below; neither is a fault."""
    (tmp_path / "log.txt").write_text("".join(f"{line.format(n)}\n" for n in range(10, 60)))
    diagnosis = diagnosed(tmp_path)
    assert {finding.id for finding in diagnosis.findings} <= {"incomplete-log"}
    assert any("losses beside rewards" in unknown.question for unknown in diagnosis.unknown)
