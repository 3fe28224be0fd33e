"""What loggers leave behind: a summary of Weights & Biases, a table of TensorBoard, bits a byte alone."""

import json
import math
from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.errors import RunError
from gptwright.record.evidence import IN_EPOCHS, NUMBERED, UNNAMED, LogEvidence
from gptwright.record.open_run import open_run
from gptwright.record.readers import read_log

SUMMARY = """wandb: Waiting for W&B process to finish... (success).
wandb:
wandb: Run history:
wandb:       iter ▁▂▃▄▅▆▇█
wandb:   val/loss █▄▃▂▁▁▁▁
wandb:
wandb: Run summary:
wandb:       iter 5000
wandb:         lr 6e-05
wandb: train/loss 3.48123
wandb:   val/loss 3.51234
wandb:
wandb: Synced fluent-lake-12
"""


def read(text: str) -> LogEvidence:
    return read_log(None, data=text.encode())


def asked(folder: Path) -> dict[str, str]:
    diagnosis = diagnose(read_run(open_run(str(folder))))
    return {unknown.question: unknown.missing for unknown in diagnosis.unknown}


def test_a_summary_alone_is_one_point() -> None:
    log = read(SUMMARY)
    assert (list(log.evals.step), list(log.evals.val_loss), list(log.evals.line)) == ([5000], [3.51234], [11])
    assert log.lines_skipped == 0


def test_a_summary_of_a_loop_of_ones_own_names_its_training_loss() -> None:
    log = read("wandb: Run summary:\nwandb: global_step 800\nwandb: loss/train 2.5\nwandb: eval/loss 2.75\n")
    assert (list(log.train.step), list(log.train.loss), list(log.train.line)) == ([800], [2.5], [3])
    assert (list(log.evals.val_loss), list(log.evals.line)) == ([2.75], [4])


def test_a_summary_gives_a_log_the_validation_that_it_lacks() -> None:
    lines = "".join(f"iter {step}: loss 3.5000, time 200.00ms, mfu 12.00%\n" for step in range(0, 5001, 50))
    log = read(lines + SUMMARY)
    assert len(log.train) == 101
    assert (list(log.evals.step), list(log.evals.val_loss)) == ([5000], [3.51234])


def test_a_summary_repeats_what_a_log_with_evaluations_says() -> None:
    lines = "".join(f"step {step}: train loss 3.5000, val loss 3.6000\n" for step in range(0, 4001, 1000))
    log = read(lines + SUMMARY)
    assert list(log.evals.step) == [0, 1000, 2000, 3000, 4000]


def test_a_summary_without_a_step_has_none() -> None:
    log = read("wandb: Run summary:\nwandb: train/loss 2.5\nwandb: val/loss 2.75\n")
    assert list(log.evals.val_loss) == [2.75]
    assert log.hazards[NUMBERED] == 1


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_summary_file_has_the_trainers_step_and_no_mean_of_the_run(tmp_path: Path, end: str) -> None:
    summary = {
        "_step": 17,
        "_runtime": 1800.5,
        "train_runtime": 1799.0,
        "train_loss": 4.1,
        "train/global_step": 900,
        "train/loss": 2.5,
        "eval/loss": 2.75,
        "_wandb": {"runtime": 1800},
    }
    (tmp_path / "wandb-summary.json").write_text(json.dumps(summary) + end)
    log = open_run(str(tmp_path)).log
    assert log is not None
    assert (list(log.train.step), list(log.train.loss), list(log.evals.val_loss)) == ([900], [2.5], [2.75])


BOARD = "Wall time,Step,Value\n" + "".join(
    f"{1_700_000_000 + 2 * step:.4f},{step},{3 + 300 / (step + 40):.6f}\n" for step in range(0, 2001, 100)
)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("run-1-tag-val_loss.csv", "val_loss"),
        ("loss_validation.csv", "val_loss"),
        ("run-validated-tag-train_loss.csv", "loss"),
        ("train_loss.csv", "loss"),
        ("run-1-tag-learning_rate.csv", "learning_rate"),
    ],
)
def test_the_name_of_a_tensorboard_file_is_that_of_its_values(tmp_path: Path, name: str, column: str) -> None:
    (tmp_path / name).write_text(BOARD)
    log = read_log(tmp_path / name)
    table = log.evals if column == "val_loss" else log.train
    assert getattr(table, column)[-1] == pytest.approx(3 + 300 / 2040, abs=1e-6)
    assert int(table.step[-1]) == 2000
    assert not len(log.train if column == "val_loss" else log.evals)


def test_values_that_nothing_names_are_no_loss(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(BOARD)
    log = open_run(str(tmp_path)).log
    assert log is not None
    assert log.hazards[UNNAMED] == 21
    assert all(math.isnan(loss) for loss in log.train.loss)
    assert not log.train.loss_is_bad.any()
    assert log.train.seconds[-1] == pytest.approx(2.0)
    assert "in the file's name alone" in asked(tmp_path)["What are the values of this file?"]


@pytest.mark.parametrize(
    "line",
    [
        "step {0} | val_bpb: {1:.4f}",
        "step {0}: train bpb 1.0000, val bpb {1:.4f}",
        "Step {0:05d} | Validation bpb: {1:.6f}",
    ],
)
def test_bits_a_byte_are_no_nats(tmp_path: Path, line: str) -> None:
    steps = range(0, 3001, 250)
    (tmp_path / "log.txt").write_text("".join(line.format(s, 1 + 900 / (s + 500)) + "\n" for s in steps))
    log = open_run(str(tmp_path)).log
    assert log is not None
    assert list(log.evals.step) == list(steps)
    assert log.evals.val_bpb[-1] == pytest.approx(1 + 900 / 3500, abs=1e-4)
    assert all(math.isnan(loss) for loss in log.evals.val_loss)
    assert "line 13 of the log" in asked(tmp_path)["What is the validation loss in nats a token?"]


def test_dicts_without_steps_say_so(tmp_path: Path) -> None:
    dicts = [{"loss": round(4 - n / 30, 4), "epoch": round(n / 20, 2)} for n in range(1, 61)]
    (tmp_path / "log.txt").write_text("".join(f"{each}\n" for each in dicts))
    assert "trainer_state.json has them" in asked(tmp_path)["How many steps were made?"]


def test_dicts_whose_epochs_go_down_are_read_from_the_end() -> None:
    dicts = [{"loss": round(4 - n / 30, 4), "epoch": round(n / 20, 2)} for n in range(1, 61)]
    log = read("".join(f"{each}\n" for each in reversed(dicts)))
    assert list(log.train.loss) == [each["loss"] for each in dicts]
    assert list(log.train.line) == list(range(60, 0, -1))
    assert log.header["epochs"].value == 3.0


def test_dicts_that_show_whole_epochs_count_those() -> None:
    dicts = [
        each
        for n in range(1, 6)
        for each in ({"loss": 4 - n / 2, "epoch": float(n)}, {"eval_loss": 4.5, "epoch": float(n)})
    ]
    log = read("".join(f"{each}\n" for each in dicts))
    assert list(log.train.step) == list(log.evals.step) == [1, 2, 3, 4, 5]
    assert log.hazards[IN_EPOCHS] == 10


def test_who_writes_of_a_loss_and_of_a_step_need_not_mean_the_same() -> None:
    text = "The train loss was 3.2 and the val loss was 3.4 at the end. At step 1000 it was 4.0.\n"
    with pytest.raises(RunError):
        read(text)
    log = read("".join(f"Epoch: 1. Step: {n}. Loss: {4 - n / 10:.2f}\n" for n in range(1, 9)))
    assert list(log.train.step) == list(range(1, 9))


TRIPLES = [[1700000000.5 + 2 * step, step, 4.5 - step / 1000] for step in range(100, 1001, 100)]


@pytest.mark.parametrize("rows", [1, 100])
def test_tensorboards_json_is_named_by_its_file(tmp_path: Path, rows: int) -> None:
    """A short file and one whose line is longer than any of a log."""
    triples = [[1700000000.5 + 2 * s, s, 4.5 - s / 100_000] for s in range(100, 100 + 1000 * rows, 100)]
    path = tmp_path / "run1-tag-val_loss.json"
    path.write_text(json.dumps(triples))
    log = read_log(path)
    assert list(log.evals.step) == [step for _, step, _ in triples]
    assert list(log.evals.val_loss) == [value for _, _, value in triples]
    assert set(log.evals.line) == {1}
    assert open_run(str(tmp_path)).log is not None


def test_tensorboards_json_has_the_time_of_a_step(tmp_path: Path) -> None:
    path = tmp_path / "run1-tag-train_loss.json"
    path.write_text(json.dumps(TRIPLES))
    assert read_log(path).train.seconds[1:] == pytest.approx(2.0)


def test_tensorboards_json_without_a_name_says_nothing_of_losses(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(json.dumps(TRIPLES) + "\n")
    questions = asked(tmp_path)
    assert "What are the values of this file?" in questions
    assert "Does it generalize?" not in questions


def test_a_folder_of_lightning(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"n_layer": 6, "loss_type": "ce"}\n')
    (tmp_path / "metrics.csv").write_text(
        "epoch,step,train_loss_step,val_loss\n0,49,3.7,\n0,99,3.5,\n0,99,,3.6\n"
    )
    log = open_run(str(tmp_path)).log
    assert log is not None
    assert (list(log.train.loss), list(log.evals.val_loss)) == ([3.7, 3.5], [3.6])


def test_the_step_of_a_summary_is_cited_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(SUMMARY)
    progress = read_run(open_run(str(tmp_path))).progress
    assert progress.last_step is not None
    assert (progress.last_step.value, progress.last_step.source) == (5000, "log:8")


def test_a_line_of_words_behind_an_export() -> None:
    triples = "[[1700000000.5, 100, 4.5], [1700000010.5, 200, 4.4]]"
    log = read_log(None, data=f"{triples}\nand this is what it looked like\n{triples}\n".encode())
    assert set(log.train.step) == {100, 200}
