"""Two runs side by side: what may be credited, what is noise, and what is not the same quantity."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gptwright.diagnose.compare import Comparison, Verdict, compare
from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run
from gptwright.report.comparison import show_comparison
from gptwright.report.documents import comparison_document

SETTINGS: dict[str, Any] = {
    "dataset": "fineweb",
    "gradient_accumulation_steps": 8,
    "batch_size": 16,
    "block_size": 1024,
    "n_layer": 12,
    "n_head": 12,
    "n_embd": 768,
    "dropout": 0.0,
    "learning_rate": 6e-4,
    "max_iters": 6000,
    "eval_iters": 200,
}


def run(
    folder: Path, *, loss: float, steps: range = range(500, 6001, 500), lines: str = "", **settings: Any
) -> Path:
    """A run that ends at `loss`, with nanoGPT's evaluations; `lines` in their place if given."""
    folder.mkdir()
    values = SETTINGS | settings
    facts = 'device = "RTX 4090"\nvocab_size = 50304\nval_tokens = 10000000\n'
    (folder / "facts.toml").write_text(facts)
    (folder / "config.py").write_text("".join(f"{name} = {value!r}\n" for name, value in values.items()))
    evaluations = [f"step {s}: train loss {loss + 900 / s:.4f}, val loss {loss + 900 / s:.4f}" for s in steps]
    (folder / "log.txt").write_text(lines or "\n".join(evaluations) + "\n")
    return folder


def compared(a: Path, b: Path) -> Comparison:
    return compare(read_run(open_run(str(a))), read_run(open_run(str(b))))


def test_a_single_change_is_credited(tmp_path: Path) -> None:
    found = compared(
        run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3, learning_rate=1.8e-3, min_lr=1.8e-4)
    )
    assert found.verdict is Verdict.B_BETTER
    assert "only learning rate was changed" in found.findings[0].message


def test_another_optimizer_or_model_is_a_change_even_if_one_log_does_not_say_its_own(tmp_path: Path) -> None:
    plain = run(tmp_path / "a", loss=3.5)
    found = compared(plain, run(tmp_path / "b", loss=3.3, optimizer="muon"))
    assert "only optimizer was changed" in found.findings[0].message
    found = compared(plain, run(tmp_path / "c", loss=3.3, arch="modern", optimizer="muon"))
    assert found.verdict is Verdict.CONFOUNDED
    assert ("arch", "gpt2", "modern") in {(d.field, d.a, d.b) for d in found.differences}


def test_two_changes_are_confounded(tmp_path: Path) -> None:
    found = compared(
        run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3, learning_rate=1.8e-3, n_layer=16)
    )
    assert found.verdict is Verdict.CONFOUNDED
    assert "depth, learning rate" in found.findings[0].message


def test_another_cut_of_the_same_step_is_no_change(tmp_path: Path) -> None:
    b = run(tmp_path / "b", loss=3.3, batch_size=8, gradient_accumulation_steps=16, n_embd=1024, n_head=16)
    found = compared(run(tmp_path / "a", loss=3.5), b)
    assert found.verdict is Verdict.B_BETTER
    assert "only width was changed" in found.findings[0].message
    assert {d.field for d in found.differences} >= {"batch_size", "gradient_accumulation_steps", "n_embd"}


def test_a_difference_within_the_noise_of_evaluation_and_seed(tmp_path: Path) -> None:
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.497))
    assert found.verdict is Verdict.WITHIN_NOISE


def test_a_larger_batch_reaches_the_same_tokens_in_fewer_steps(tmp_path: Path) -> None:
    b = run(tmp_path / "b", loss=3.5, steps=range(250, 3001, 250), gradient_accumulation_steps=16)
    found = compared(run(tmp_path / "a", loss=3.5), b)
    assert found.at_equal_tokens[-1].at == pytest.approx(6000 * 8 * 16 * 1024)
    assert found.counts == "tokens"
    assert found.at_equal_flops[-1].a == pytest.approx(found.at_equal_tokens[-1].a)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dataset": "openwebtext"}, "different data"),
        ({"steps": range(7000, 9001, 500)}, "no stretch in common"),
    ],
)
def test_what_is_not_the_same_quantity_is_refused(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3, **settings))
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert not found.comparable
    assert reason in found.reasons[0]
    assert found.findings[0].id == "not-comparable"


def test_training_losses_with_another_dropout_are_refused(tmp_path: Path) -> None:
    lines = "".join(
        f"iter {s}: loss {3.4 + 900 / s:.4f}, time 250.00ms, mfu 30.00%\n" for s in range(100, 4000, 50)
    )
    a, b = run(tmp_path / "a", loss=0, lines=lines), run(tmp_path / "b", loss=0, lines=lines, dropout=0.1)
    assert "dropout lifts one of them" in compared(a, b).reasons[0]
    assert compared(a, a).verdict is Verdict.WITHIN_NOISE


def message(found: Comparison) -> str:
    return found.findings[-1].message


def test_each_setting_of_one_optimizer_is_a_change_of_its_own(tmp_path: Path) -> None:
    plain = run(tmp_path / "a", loss=3.5)
    found = compared(plain, run(tmp_path / "b", loss=3.3, weight_decay=0.01, beta2=0.99))
    assert found.verdict is Verdict.CONFOUNDED
    assert "weight_decay, beta2" in message(found)
    found = compared(plain, run(tmp_path / "c", loss=3.3, weight_decay=0.01))
    assert "only weight_decay was changed" in message(found)


def test_less_text_of_the_same_corpus_is_a_change(tmp_path: Path) -> None:
    def with_text(name: str, tokens: int, loss: float) -> Path:
        folder = run(tmp_path / name, loss=loss)
        facts = folder / "facts.toml"
        facts.write_text(facts.read_text() + f"train_tokens = {tokens}\n")
        return folder

    whole = with_text("a", 9_035_582_198, 3.3)
    assert "only training text was changed" in message(compared(whole, with_text("b", 900_000_000, 3.5)))
    assert "training text" not in message(compared(whole, with_text("c", 9_000_000_000, 3.5)))


def test_a_longer_run_is_said_to_end_elsewhere(tmp_path: Path) -> None:
    short = run(tmp_path / "a", loss=3.5)
    long = run(tmp_path / "b", loss=3.5, steps=range(500, 12001, 500), max_iters=12000)
    text = message(compared(short, long))
    assert "Within the noise" in text
    assert "Best of each: a 3.6500 after 786.43M tokens, b 3.5750 after 1.57B tokens" in text
    assert "Best of each" not in message(compared(short, run(tmp_path / "c", loss=3.5)))


def broken(loss: float) -> str:
    """The lines of a run on its way to `loss` whose losses end as no numbers."""
    lines = [
        f"step {s}: train loss {loss + 900 / s:.4f}, val loss {loss + 900 / s:.4f}"
        for s in range(500, 4001, 500)
    ]
    return "\n".join([*lines, *(f"step {s}: train loss nan, val loss nan" for s in range(4500, 6001, 500))])


def test_a_run_that_broke_is_behind(tmp_path: Path) -> None:
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.5, lines=broken(3.5)))
    assert found.verdict is Verdict.A_BETTER
    assert found.findings[0].id == "non-finite-loss"
    assert found.findings[0].message.startswith("Run b: ")
    assert "Before one of them broke" in message(found)


def test_a_run_that_was_ahead_until_it_broke_is_not_said_to_be_ahead(tmp_path: Path) -> None:
    b = run(tmp_path / "b", loss=3.3, lines=broken(3.3), learning_rate=1e-3)
    found = compared(run(tmp_path / "a", loss=3.5), b)
    assert found.verdict is Verdict.A_BETTER
    assert message(found).startswith("Before b broke it was ahead by 0.2000 ±")
    assert "a run that broke counts as behind" in message(found)
    assert "b is ahead of a" not in message(found)


def test_what_was_changed_is_not_claimed_to_be_known(tmp_path: Path) -> None:
    bare = run(tmp_path / "b", loss=3.3)
    (bare / "config.py").unlink()
    found = compared(run(tmp_path / "a", loss=3.5), bare)
    assert found.reasons == ("how many tokens a step of b holds is not known",)
    (bare / "log.txt").write_text("tokens per iteration will be: 131,072\n" + (bare / "log.txt").read_text())
    found = compared(tmp_path / "a", bare)
    assert "not known, as the settings of b are not" in message(found)
    other = compared(run(tmp_path / "c", loss=3.5), run(tmp_path / "d", loss=3.3))
    assert "something that is not in the records" in message(other)


def test_evidence_is_the_losses_that_are_compared(tmp_path: Path) -> None:
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3, learning_rate=1e-3))
    values = {fact.name: fact.value for fact in found.findings[-1].evidence}
    assert values["loss_a"] == pytest.approx(3.65)
    assert values["loss_b"] == pytest.approx(3.45)


def test_another_trainer_is_a_change_too(tmp_path: Path) -> None:
    """It evaluates other batches, and its defaults are its own: nothing else may be credited beside it."""
    lines = "\n".join(
        f"val loss {3.2 + 900 / s:.6f}\nstep {s:4d}/6000 | loss {3.2 + 900 / s:.6f} (+0.12z)| norm 0.5"
        f" (+0.1z)| lr 6.00e-04 | 251.30 ms | 45.6% bf16 MFU | 521000 tok/s"
        for s in range(500, 6001, 500)
    )
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.2, lines=lines))
    assert ("trainer", "nanoGPT", "llm.c") in {(d.field, d.a, d.b) for d in found.differences}
    assert "only trainer was changed" in found.findings[0].message
    found = compared(run(tmp_path / "c", loss=3.5, dropout=0.1), tmp_path / "b")
    assert found.verdict is Verdict.CONFOUNDED


def test_a_log_beside_itself(tmp_path: Path) -> None:
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.5))
    assert found.verdict is Verdict.WITHIN_NOISE
    assert "one log twice" in found.findings[0].message


@pytest.mark.parametrize(("ahead", "verdict"), [(0.006, Verdict.B_BETTER), (0.002, Verdict.WITHIN_NOISE)])
def test_speedruns_scatter_as_was_measured_on_them(tmp_path: Path, ahead: float, verdict: Verdict) -> None:
    """0.00135 a run: two differ by more than 1.96 × √2 × that, 0.0037, once in twenty times."""
    for name, end in (("a", 3.279), ("b", 3.279 - ahead)):
        (tmp_path / name).mkdir()
        lines = [
            f"step:{s}/1500 val_loss:{end + (1500 - s) / 1500:.4f} train_time:{s * 142}ms step_avg:142.00ms"
            for s in range(125, 1501, 125)
        ]
        (tmp_path / name / "log.txt").write_text("\n".join(lines) + "\n")
    assert compared(tmp_path / "a", tmp_path / "b").verdict is verdict


def test_runs_without_a_stretch_in_common_are_told_to_go_on(tmp_path: Path) -> None:
    found = compared(
        run(tmp_path / "a", loss=3.5, steps=range(500, 2001, 500)),
        run(tmp_path / "b", loss=3.5, steps=range(7000, 9001, 500)),
    )
    assert "go on" in found.findings[0].actions[0].text
    other = compared(run(tmp_path / "c", loss=3.5), run(tmp_path / "d", loss=3.5, dataset="openwebtext"))
    assert "bits per byte" in other.findings[0].actions[0].text


def test_settings_that_only_read_the_loss_are_not_called_nothing(tmp_path: Path) -> None:
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3, eval_iters=20))
    assert found.verdict is Verdict.B_BETTER
    assert "eval_iters cannot move the loss so far" in found.findings[0].message


def timed(seconds: float) -> str:
    """A whole log, one line of which says how long a step takes."""
    lines = ["tokens per iteration will be: 131,072", "number of parameters: 123.59M"]
    for step in range(0, 6001, 500):
        loss = 3.5 + 900 / (step + 125)
        lines += [f"step {step}: train loss {loss:.4f}, val loss {loss:.4f}"]
        lines += [
            f"iter {step + i}: loss {loss:.4f}, time {1000 * seconds:.2f}ms, mfu 20.00%" for i in (10, 20)
        ]
    return "\n".join(lines) + "\n"


def test_who_is_ahead_at_equal_time_is_said_where_equal_tokens_say_nothing(tmp_path: Path) -> None:
    slow = run(tmp_path / "a", loss=3.5, lines=timed(2.0))
    found = compared(slow, run(tmp_path / "b", loss=3.5, lines=timed(1.0), device_count=2))
    assert found.verdict is Verdict.WITHIN_NOISE
    assert "At equal time b is ahead by" in found.findings[0].message


def test_the_noise_and_the_flops_of_runs_whose_vocabulary_only_the_printed_size_tells(tmp_path: Path) -> None:
    def folder(name: str, loss: float) -> Path:
        path = run(tmp_path / name, loss=loss)
        (path / "facts.toml").unlink()
        text = (path / "log.txt").read_text()
        (path / "log.txt").write_text(f"number of parameters: 123.59M\n{text}")
        return path

    found = compared(folder("a", 3.500), folder("b", 3.502))
    # 200 × 16 windows of 1,024 tokens: 0.40 / sqrt(3200) = 0.0071 in each, and what another seed gives.
    assert found.at_equal_tokens[-1].standard_error == pytest.approx(0.0102, rel=0.05)
    assert found.verdict is Verdict.WITHIN_NOISE
    # 6 · 123.59M + 12 · 12 · 768 · 1024 a token, 6,000 steps of 131,072.
    assert found.at_equal_flops[-1].at == pytest.approx(854.77e6 * 131_072 * 6000, rel=1e-4)


def trainer_state(folder: Path, *, rate: float, batch: int, end: float) -> Path:
    folder.mkdir()
    history: list[dict[str, float]] = []
    for step in range(50, 3001, 50):
        loss = end + 4 * math.exp(-step / 500)
        history.append(
            {"step": step, "loss": loss, "learning_rate": rate * (1 - step / 3000), "epoch": step / 1000}
        )
        if step % 500 == 0:
            history.append({"step": step, "eval_loss": loss + 0.1, "epoch": step / 1000})
    state = {
        "global_step": 3000,
        "log_history": history,
        "max_steps": 3000,
        "train_batch_size": batch,
        "x": 0,
    }
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=2))
    return folder


def test_what_trainers_state_tells_of_rate_and_batch_is_compared(tmp_path: Path) -> None:
    plain = trainer_state(tmp_path / "a", rate=5e-5, batch=8, end=2.5)
    other_rate = compared(plain, trainer_state(tmp_path / "b", rate=1e-4, batch=8, end=2.4))
    assert [d.field for d in other_rate.differences] == ["learning_rate"]
    assert other_rate.verdict is Verdict.B_BETTER
    assert "only learning rate was changed" in other_rate.findings[0].message
    # Of as many steps, twice the batch has seen twice the text.
    other_batch = compared(plain, trainer_state(tmp_path / "c", rate=5e-5, batch=16, end=2.4))
    assert [d.field for d in other_batch.differences] == ["batch_size"]
    assert "only tokens per step was changed (batch_size)" in other_batch.findings[0].message
    both = compared(plain, trainer_state(tmp_path / "d", rate=1e-4, batch=16, end=2.4))
    assert both.verdict is Verdict.CONFOUNDED


def test_a_path_to_the_same_corpus_is_no_difference(tmp_path: Path) -> None:
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3, dataset="/data/fineweb"))
    assert not found.differences
    assert "nothing that is known was changed" in found.findings[0].message


def test_which_part_of_a_thing_was_changed(tmp_path: Path) -> None:
    found = compared(run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3, min_lr=0.0))
    assert "only learning rate was changed (min_lr)" in found.findings[0].message


def log_of(path: Path, parameters: str, tokens: str, losses: dict[int, float]) -> Path:
    lines = [f"step {step}: train loss {loss:.4f}, val loss {loss:.4f}\n" for step, loss in losses.items()]
    head = f"tokens per iteration will be: {tokens}\nnumber of parameters: {parameters}M\n"
    path.write_text(head + "".join(lines))
    return path


FALLING = {0: 4.28, 250: 2.08, 500: 1.72, 1000: 1.52, 2000: 1.48}


def test_a_printed_size_that_differs_is_a_change(tmp_path: Path) -> None:
    a = log_of(tmp_path / "a.txt", "10.65", "16,384", FALLING)
    b = log_of(tmp_path / "b.txt", "0.80", "16,384", {step: loss + 0.4 for step, loss in FALLING.items()})
    found = compared(a, b)
    assert [(each.field, each.a, each.b) for each in found.differences] == [
        ("parameters", 10_650_000, 800_000)
    ]
    assert found.verdict is Verdict.A_BETTER
    # What else was changed, two logs without settings do not say.
    assert "only model size was changed (parameters), as far as the records of a and b tell" in message(found)
    other = compared(a, log_of(tmp_path / "b.txt", "0.80", "8,192", dict.fromkeys(FALLING, 1.9)))
    assert other.verdict is Verdict.CONFOUNDED
    # 10.65M and 10.7M are one size, rounded.
    rounded = compared(a, log_of(tmp_path / "b.txt", "10.7", "16,384", FALLING))
    assert not rounded.differences


def test_no_loss_is_made_up_between_the_start_and_the_first_evaluation(tmp_path: Path) -> None:
    a = log_of(tmp_path / "a.txt", "10.65", "768", {0: 4.17, 1000: 2.03, 2000: 1.89})
    b = log_of(tmp_path / "b.txt", "10.65", "16,384", FALLING)
    # a ends at 1.5M tokens, and the first evaluation of b is at 4.1M.
    found = compared(a, b)
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert not found.at_equal_tokens
    longer = log_of(tmp_path / "a.txt", "10.65", "768", {0: 4.17, 1000: 2.03, 8000: 1.8})
    points = compared(longer, b).at_equal_tokens
    assert [point.at for point in points] == [250 * 16_384, 8000 * 768]


def dicts(path: Path, *losses: float) -> Path:
    """What Hugging Face's Trainer prints: epochs, and no steps."""
    lines = [
        f"{{'loss': {loss}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.{n}}}\n"
        f"{{'eval_loss': {loss}, 'eval_runtime': 3.2, 'epoch': 0.{n}}}\n"
        for n, loss in enumerate(losses, 1)
    ]
    path.write_text("".join(lines))
    return path


def test_the_order_of_lines_is_not_called_a_step(tmp_path: Path) -> None:
    a = dicts(tmp_path / "a.txt", 2.95, 2.9, 2.85)
    found = compared(a, dicts(tmp_path / "b.txt", 2.6, 2.5, 2.45))
    assert found.verdict is Verdict.B_BETTER
    assert "nats after training line 3 of the log;" in message(found)
    assert "the log of a says no steps: compared by the order of its lines" in found.reasons
    console = Console(width=100, record=True, file=io.StringIO())
    show_comparison(console, found, ("a.txt", "b.txt"))
    assert "At equal lines" in console.export_text()
    assert comparison_document(found)["counts"] == "lines"
    stepped = log_of(tmp_path / "c.txt", "10.65", "768", FALLING)
    other = compared(a, stepped)
    assert other.verdict is Verdict.NOT_COMPARABLE
    assert other.reasons == ("a counts lines and b counts steps, which nothing ties together",)
    assert "trainer_state.json" in other.findings[0].actions[0].text
