"""Steps of Hugging Face's dicts, which print none, from the passes that they count: exact, or none at all."""

import re
from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import Reading, read_run
from gptwright.record.open_run import open_run
from tests.simulator import simulate

HEAD = (
    "***** Running training *****\n  Num examples = 9,600\n  Num Epochs = 4\n"
    "  Instantaneous batch size per device = 6\n"
    "  Total train batch size (w. parallel, distributed & accumulation) = 24\n"
    "  Gradient Accumulation steps = 4\n  Total optimization steps = 1,600\n"
)
END = (
    "{{'train_runtime': 2711.8, 'train_samples_per_second': 14.16, 'train_steps_per_second': 0.59,"
    " 'train_loss': 3.1, 'epoch': {}}}\n"
)


def dicts(last: int, *, each: int = 400, every: int = 25, steps: int = 1600, decimals: int = 2) -> list[str]:
    """What the Trainer prints up to a step, with an evaluation after each pass."""
    lines = []
    for step in range(every, last + 1, every):
        epoch = round(step / each, decimals)
        rate = 3e-5 * (1 - step / steps)
        lines.append(f"{{'loss': {4 - step / 2000:.4f}, 'learning_rate': {rate:.3e}, 'epoch': {epoch}}}\n")
        if step % each == 0:
            lines.append(f"{{'eval_loss': {4.1 - step / 2000:.4f}, 'eval_runtime': 9.7, 'epoch': {epoch}}}\n")
    return lines


def reading(folder: Path, text: str, *, config: str = "", facts: str = "") -> Reading:
    (folder / "log.txt").write_text(text)
    if config:
        (folder / "config.toml").write_text(config)
    if facts:
        (folder / "facts.toml").write_text(facts)
    return read_run(open_run(str(folder)))


def steps_of(made: Reading) -> tuple[list[int], list[int]]:
    assert made.log is not None
    return list(made.log.train.step), list(made.log.evals.step)


@pytest.mark.parametrize("last", [1600, 1150])
def test_by_the_steps_and_passes_of_the_head(tmp_path: Path, last: int) -> None:
    made = reading(tmp_path, HEAD + "".join(dicts(last)))
    assert steps_of(made) == (list(range(25, last + 1, 25)), list(range(400, last + 1, 400)))
    assert made.steps_are_known
    assert made.progress.last_step is not None
    assert made.progress.last_step.value == last
    assert made.progress.last_step.source == "derived"
    assert made.progress.last_step.reason.startswith(f"passes of about {400 if last == 1600 else 399} steps")


def test_by_the_last_line_of_a_run_that_came_to_its_end(tmp_path: Path) -> None:
    made = reading(tmp_path, "".join(dicts(1600)) + END.format(4.0))
    assert steps_of(made) == (list(range(25, 1601, 25)), [400, 800, 1200, 1600])


def test_a_run_that_was_stopped_early_has_the_planned_steps_on_its_last_line(tmp_path: Path) -> None:
    made = reading(tmp_path, "".join(dicts(800)) + END.format(2.0))
    assert made.progress.last_step is None


def test_by_the_training_tokens_over_those_of_a_step(tmp_path: Path) -> None:
    config = "batch_size = 6\ngradient_accumulation_steps = 4\nblock_size = 256\n"
    made = reading(
        tmp_path, "".join(dicts(1150)), config=config, facts=f"train_tokens = {400 * 6 * 4 * 256 + 900}\n"
    )
    assert steps_of(made)[0] == list(range(25, 1151, 25))
    assert made.progress.last_step is not None
    assert made.progress.last_step.value == 1150


def test_steps_that_were_asked_for_say_nothing_of_a_pass(tmp_path: Path) -> None:
    # The Trainer rounds their passes up: 60 steps of 400 are "Num Epochs = 1".
    head = HEAD.replace("Epochs = 4", "Epochs = 1").replace("1,600", "60")
    assert reading(tmp_path, head + "".join(dicts(60, every=2, steps=60))).progress.last_step is None


def test_an_interval_that_is_not_certain_gives_no_step(tmp_path: Path) -> None:
    # Two decimals of a pass of 20,000 steps are a hundred steps: two lines could be 95 or 105 apart.
    text = "".join(dicts(200, each=20_000, every=100, steps=80_000))
    config = "batch_size = 1\ngradient_accumulation_steps = 1\nblock_size = 10\n"
    made = reading(tmp_path, text, config=config, facts="train_tokens = 200000\n")
    assert made.progress.last_step is None


def test_dicts_that_a_file_kept_back_are_placed_by_their_passes(tmp_path: Path) -> None:
    # Standard output into a file is written 8 KiB at a time, and the bars on standard error are not.
    text, kept = "", dicts(1600)
    for step in range(1, 1601):
        text += f" {step // 16:3d}%|##   | {step}/1600 [{step // 60:02d}:{step % 60:02d}<09:00,  1.10it/s]\r"
        if step in (900, 1600):
            text += "\n" + "".join(kept[:30] if step == 900 else kept[30:])
    assert steps_of(reading(tmp_path, text))[0] == list(range(25, 1601, 25))


def test_dicts_of_each_pass_alone(tmp_path: Path) -> None:
    made = reading(tmp_path, HEAD + "".join(dicts(1200, every=400)))
    assert steps_of(made) == ([400, 800, 1200], [400, 800, 1200])


def test_passes_that_begin_anew_are_another_run(tmp_path: Path) -> None:
    """Two outputs in one file: the rate that is high again was not raised in a resume."""
    made = reading(tmp_path, HEAD + "".join(dicts(700)) + HEAD + "".join(dicts(1150)))
    assert steps_of(made)[0] == list(range(25, 1151, 25))
    assert {finding.id for finding in diagnose(made).findings} >= {"several-runs"}
    assert "lr-jump" not in {finding.id for finding in diagnose(made).findings}


def test_unsloth_prints_a_head_of_its_own(tmp_path: Path) -> None:
    head = (
        "   \\\\   /|    NVIDIA GeForce RTX 4060 Ti. Num GPUs = 1. Max memory: 15.6 GB. Platform: Linux.\n"
        "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1\n"
        "   \\\\   /|    Num examples = 9,600 | Num Epochs = 4 | Total steps = 1,600\n"
        "O^O/ \\_/ \\    Batch size per device = 6 | Gradient accumulation steps = 4\n"
        "\\        /    Data Parallel GPUs = 1 | Total batch size (6 x 4 x 1) = 24\n"
        ' "-____-"     Trainable parameters = 11,272,192/1,247,086,592 (0.90% trained)\n'
    )
    made = reading(tmp_path, head + "".join(dicts(1150)), facts="")
    assert steps_of(made)[0] == list(range(25, 1151, 25))
    said = {name: made.settings.logged[name].value for name in ("device", "global_batch", "planned_steps")}
    assert said == {"device": "NVIDIA GeForce RTX 4060 Ti", "global_batch": 24, "planned_steps": 1600}
    assert made.sizes.parameters is not None
    assert made.sizes.parameters.value == 1_247_086_592


def test_simulated_runs_without_their_bars_have_their_steps_or_none(tmp_path: Path) -> None:
    placed = 0
    for seed in range(10):
        simulated = simulate(seed, "hf")
        folder = simulated.write(tmp_path / str(seed))
        (folder / "log.txt").write_text(
            "\n".join(re.findall(r"\{[^{}]*\}", simulated.files["log.txt"])) + "\n"
        )
        made, truth = read_run(open_run(str(folder))), simulated.truth
        if made.progress.last_step is None:
            continue
        placed += 1
        train, evals = steps_of(made)
        assert train == list(range(truth.log_interval, max(train) + 1, truth.log_interval))
        assert evals == list(range(truth.eval_interval, max(evals) + 1, truth.eval_interval))
        assert truth.last_step - made.progress.last_step.number < max(truth.log_interval, truth.eval_interval)
    assert placed >= 8
