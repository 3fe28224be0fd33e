"""Whose log it is, what is no log at all, and that nothing takes long."""

import re
import time
from pathlib import Path

import pytest

from gptwright.errors import RunError
from gptwright.record.readers import read_log
from gptwright.record.readers.read import READERS
from tests.record.readers.samples import SAMPLES, Sample, nanogpt
from tests.record.readers.test_golden import read

MADE = [make() for make in SAMPLES]


def test_a_log_without_a_known_line_is_refused_with_the_formats_that_are_known(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n", encoding="utf-8")
    with pytest.raises(RunError) as raised:
        read_log(path)
    assert raised.value.exit_status == 2
    assert raised.value.problem == f"no line of {path} is known from any trainer's log"
    assert raised.value.why is not None
    assert all(reader.format.name in raised.value.why for reader in READERS)
    assert raised.value.fix is not None


def test_an_empty_file_a_missing_one_and_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with pytest.raises(RunError, match=r"empty\.txt is empty"):
        read_log(tmp_path / "empty.txt")
    with pytest.raises(RunError, match=r"gone\.txt cannot be read: No such file"):
        read_log(tmp_path / "gone.txt")
    with pytest.raises(RunError, match="cannot be read: Is a directory"):
        read_log(tmp_path)
    with pytest.raises(RunError, match="- is empty"):
        read(b"")


def test_bytes_of_no_text_are_refused() -> None:
    with pytest.raises(RunError, match="no line of - is known"):
        read(bytes(range(256)) * 4_000)


def test_a_file_and_its_bytes_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(nanogpt().text, encoding="utf-8")
    evidence = read_log(path)
    assert evidence.path == str(path)
    assert list(evidence.train.loss) == list(read(nanogpt().text).train.loss)


# Those that a header or a sign of its own tells from others, and some that their data do.
HIDDEN = (
    "nanoGPT",
    "modded-nanogpt's oldest",
    "trainer_state.json",
    "ng-video-lecture",
    "our log.txt",
    "torchtitan",
)


@pytest.mark.parametrize("sample", [s for s in MADE if s.name in HIDDEN], ids=lambda sample: sample.name)
def test_a_log_is_known_behind_thousands_of_other_lines(sample: Sample) -> None:
    chatter = "Collecting numpy>=1.26 (from -r requirements.txt (line 3))\n" * 5_000
    evidence = read(chatter + sample.text)
    assert evidence.format.name == sample.format
    assert len(evidence.train) == len(sample.train)


@pytest.mark.parametrize("sample", MADE, ids=lambda sample: sample.name)
def test_every_line_of_data_begins_as_its_reader_says(sample: Sample) -> None:
    # Lines that do not are not looked at when it is found out whose log it is.
    names = {"lit-llama": "litgpt"}
    readers = [reader for reader in READERS if reader.format.name == names.get(sample.format, sample.format)]
    for row in sample.train + sample.evals:
        line = re.sub("\x1b\\[[0-9;]*m", "", sample.lines[int(row["line"]) - 1])
        assert any(reader.begins.search(line) for reader in readers) or sample.name == "trainer_state.json"


def test_a_run_that_died_before_its_first_step_is_known_by_its_header() -> None:
    evidence = read("tokens per iteration will be: 163,840\nnumber of parameters: 123.59M\n")
    assert evidence.format.name == "nanoGPT"
    assert len(evidence.train) == len(evidence.evals) == 0
    assert evidence.header["tokens_per_step"].value == 163_840


def test_infinity_and_zero_are_no_facts() -> None:
    evidence = read(
        "GPU: NVIDIA GeForce RTX 4070 | Peak FLOPS (BF16): inf\nVocab size: 0\n"
        "Tokens / micro-batch / rank: 8 x 2048 = 16,384\n"
    )
    assert evidence.header["device"].value == "NVIDIA GeForce RTX 4070"
    assert not evidence.header.keys() & {"mfu_peak_flops", "vocab_size"}


def test_an_mfu_that_the_trainer_does_not_know_is_none() -> None:
    sample = next(sample for sample in MADE if sample.name == "nanochat")
    evidence = read(sample.text.replace("bf16_mfu: 43.32", "bf16_mfu: 0.00"))
    assert not (evidence.train.mfu >= 0).any()
    assert evidence.hazards["MFU unknown to the trainer"] == len(sample.train)


def test_dicts_without_any_bar_are_numbered_and_it_is_said() -> None:
    text = "".join(f"{{'loss': {9 - n}, 'learning_rate': 5e-05, 'epoch': {n / 10}}}\n" for n in range(4))
    evidence = read(text)
    assert list(evidence.train.step) == [1, 2, 3, 4]
    assert evidence.hazards == {"lines without a step, numbered in order": 4}


def test_a_fast_trainer_shows_the_step_behind_its_dict() -> None:
    bar = " 10%|#  | {}/200 [00:07<05:52,  1.39it/s]\r"
    text = bar.format(1)
    for step in (1, 2, 3):
        # The bar is drawn at most ten times a second, but anew behind each dict.
        text += f"{{'loss': {9 - step}, 'learning_rate': 5e-05, 'epoch': 0.1}}\n" + bar.format(step)
    assert list(read(text).train.step) == [1, 2, 3]


def test_a_dict_whose_bar_was_lost_has_no_step() -> None:
    bar = " 10%|#  | {}/200 [00:07<05:52,  1.39it/s]\r"
    entry = "{{'loss': {}, 'learning_rate': 5e-05, 'epoch': 0.{}}}\n"
    evidence = read(
        bar.format(10) + entry.format(9, 1) + entry.format(8, 2) + bar.format(30) + entry.format(7, 3)
    )
    assert list(evidence.train.step) == [10, 30]
    assert list(evidence.train.loss) == [9, 7]
    assert evidence.hazards["rows without a step"] == 1


def test_memory_and_speed_of_torchtitan_are_those_of_all_devices_or_it_is_said() -> None:
    sample = next(sample for sample in MADE if sample.name == "torchtitan")
    evidence = read(sample.text[sample.text.index("\x1b[31mstep:") :])
    assert evidence.train.tokens_per_second[0] == 105001
    assert evidence.hazards["tokens per second of one device"] == len(sample.train)


PARTS = (
    "iter 1: loss ",
    "9",
    "[",
    "12:34:56 ",
    "a.b.c:",
    "1,234",
    "{",
    "\r",
    "| a ",
    "\x1b[",
    "\x1b]",
    ". ",
    "a = '",
    "\n",
)


@pytest.mark.parametrize("part", PARTS)
def test_no_line_however_long_takes_a_second(part: str) -> None:
    for sample in MADE[::4]:
        row = (sample.train or sample.evals)[len(sample.evals) // 2]
        line = sample.lines[int(row["line"]) - 1]
        long = line[: len(line) // 2] + part * (60_000 // len(part)) + line[len(line) // 2 :]
        begin = time.process_time()
        read("\n".join([*sample.lines[:20], long, *sample.lines[20:40]]))
        assert time.process_time() - begin < 1, sample.name


def test_lines_that_only_begin_like_a_trainers_are_no_run(tmp_path: Path) -> None:
    line = "iter 21500: gnorm 0.25 lr 0.000223, the next shard is read\n"
    (tmp_path / "log.txt").write_text(10 * line)
    with pytest.raises(RunError, match="known from any trainer's log"):
        read_log(tmp_path / "log.txt")
