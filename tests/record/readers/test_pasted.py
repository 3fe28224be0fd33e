"""Settings that a person writes around nanoGPT's lines in a message."""

from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.record.evidence import LogEvidence, RunEvidence
from gptwright.record.open_run import open_run
from gptwright.record.readers import read_log

LINES = "".join(f"> iter {step}: loss 3.40, time 9340.20ms, mfu 15.37%\n" for step in range(9000, 9500, 50))
ALONE = """\
batch_size = 8
block_size = 1024  # context
gradient_accumulation_steps: 64
n_layer = 12
n_embd = 768,
"""
SHAPE = {
    "batch_size": 8,
    "block_size": 1024,
    "gradient_accumulation_steps": 64,
    "n_layer": 12,
    "n_embd": 768,
}


def read(text: str) -> LogEvidence:
    return read_log(None, data=text.encode())


@pytest.mark.parametrize(
    "message",
    [
        f"Hi, please help. My config:\n\n{ALONE}\nand this is what I see:\n{LINES}",
        f"{LINES}\nMy config:\n{ALONE}",
        "python train.py config/x.py --batch_size=8 --block_size=1024 --gradient_accumulation_steps=64"
        f" --n_layer=12 --n_embd 768\n{LINES}",
        f"config = dict({', '.join(f'{name}={value}' for name, value in SHAPE.items())})\n{LINES}",
        f"{SHAPE}\n{LINES}",
    ],
)
def test_settings_beside_the_lines_are_read(message: str) -> None:
    log = read(message)
    assert {name: log.header[name].value for name in SHAPE} == SHAPE
    assert len(log.train) == 10
    assert log.last_run_segment == 0
    # No whole config: what it leaves out is not the trainer's default.
    assert not log.settings


@pytest.mark.parametrize(
    "prose",
    [
        "dropout: should I raise it?",
        "dataset: the one that everybody uses",
        "max_iters is 5000 I think",
        "learning_rate = too high?",
        "my_batch_size = 12",
    ],
)
def test_prose_is_no_setting(prose: str) -> None:
    assert not read(f"{prose}\n{LINES}").header


def test_what_follows_from_them(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(f"{ALONE}\n{LINES}")
    (tmp_path / "facts.toml").write_text('device = "RTX 4070"\ndataset = "fineweb"\n')
    reading = read_run(open_run(str(tmp_path)))
    assert reading.speed.tokens_per_step is not None
    assert reading.speed.tokens_per_step.number == 524_288
    assert reading.sizes.parameters is not None
    assert reading.sizes.parameters.number == 123_587_328
    assert reading.mfu is not None
    # 48.0 of 58.3 TFLOP/s.
    assert reading.mfu.number == pytest.approx(0.823, abs=0.002)
    assert reading.progress.planned_steps is None


CONFIG = "n_layer = 12\nn_head = 6\nn_embd = 384  # ~125M parameters, fits 12 GB\nbatch_size = 16\n"
SIZE = "number of parameters: 40.56M\n"


@pytest.mark.parametrize(
    ("message", "counted"),
    [
        (f"My config:\n{CONFIG}{SIZE}{LINES}", "the log itself counts"),
        (
            f"Overriding config with config/train.py:\n# ~125M parameters\n{CONFIG}\n{SIZE}{LINES}",
            "the values make a model of",
        ),
        (f"{SIZE}{LINES}\n# the ~125M model\nn_layer = 12\nn_embd = 384\n", "the log itself counts"),
        (f"{SIZE}{LINES}\nn_layer = 12\n# ~125M parameters\nn_embd = 384\n", "the log itself counts"),
    ],
)
def test_a_comment_beside_settings_is_a_claim(message: str, counted: str) -> None:
    evidence = RunEvidence(path="-", log=read(message), config=None, stated={})
    (found,) = [f for f in diagnose(read_run(evidence)).findings if f.id == "size-label-mismatch"]
    assert found.message == f"A comment in the log says 125M; {counted} 40.56M parameters."
    claim = found.evidence[0]
    assert claim.text == "125M"
    assert "125M" in message.split("\n")[int(claim.source.removeprefix("log:")) - 1]


@pytest.mark.parametrize(
    "advice",
    [
        "Try this:\nn_layer = 12\nn_embd = 768  # ~125M parameters\n",
        "Try this:\n# ~125M parameters\nn_layer = 12\nn_head = 12  # the 125M model\nn_embd = 768\n",
        "# A ~125M model, how?\nThat would be nice.\n",
    ],
)
def test_a_comment_on_other_settings_is_none(advice: str) -> None:
    own = CONFIG.replace("~125M", "~40M")
    log = read(f"{own}{SIZE}{LINES}\n{advice}")
    assert [comment.text for comment in log.comments] == ["~40M parameters, fits 12 GB"]


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("data/shakespeare_char/meta.pkl", "shakespeare_char"),
        ("/home/me/nanoGPT/data/mine/meta.pkl", "mine"),
        ("data\\shakespeare_char\\meta.pkl", "shakespeare_char"),
    ],
)
def test_the_folder_of_the_vocabulary_is_read(place: str, folder: str) -> None:
    log = read(f"found vocab_size = 65 (inside {place})\n{LINES}")
    assert log.header["vocab_size"].value == 65
    assert log.header["data_folder"].value == folder


def test_a_card_that_is_named_beside_the_lines_is_the_device() -> None:
    assert read(f"GPU: NVIDIA GeForce RTX 4060 Laptop GPU\n{LINES}").header["device"].value == (
        "NVIDIA GeForce RTX 4060 Laptop GPU"
    )
    assert read(f"Device: Tesla T4, dtype bfloat16\n{LINES}").header["device"].value == "Tesla T4"
    assert "device" not in read(f"device: cuda\nGPU: which one do I need?\n{LINES}").header


def test_a_pasted_vocabulary_makes_no_other_trainer_of_it() -> None:
    assert read(f"my settings:\nvocab_size = 50304\nn_layer = 12\n{LINES}").format.name == "nanoGPT"


TWO_RUNS = """Old run:
batch_size = 16, gradient_accumulation_steps = 32, n_embd = 384, block_size = 1024
step 500: train loss 5.4358, val loss 5.5328
iter 500: loss 5.5210, time 3900.12ms, mfu 12.90%
step 1000: train loss 4.4481, val loss 4.4593
New run:
batch_size = 8, gradient_accumulation_steps = 64, n_embd = 768
step 500: train loss 5.4527, val loss 5.5194
iter 500: loss 5.4011, time 9340.55ms, mfu 15.40%
Next I shall try batch_size = 4, n_embd = 1024
"""


def test_of_two_runs_in_a_message_each_has_the_settings_in_front_of_it() -> None:
    log = read_log(None, data=TWO_RUNS.encode())
    values = {
        name: log.header[name].value for name in ("batch_size", "gradient_accumulation_steps", "n_embd")
    }
    assert values == {"batch_size": 8, "gradient_accumulation_steps": 64, "n_embd": 768}
    assert log.header["block_size"].value == 1024
    assert log.header["n_embd"].source == "log:7"


SMI = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|   0  NVIDIA GeForce RTX 4070        Off |   00000000:01:00.0  On |                  N/A |
| 30%   61C    P2            186W /  200W |   10890MiB /  12282MiB |    100%      Default |
"""
OF_NANOGPT = "number of parameters: 123.59M\niter 10: loss 9.1, time 9340.00ms, mfu 15.40%\n"
OF_A_LOOP = "step 10 | loss 9.1\nstep 20 | loss 8.1\n"


@pytest.mark.parametrize("lines", [OF_NANOGPT, OF_A_LOOP])
def test_a_table_of_nvidia_smi_names_the_device(lines: str) -> None:
    log = read_log(None, data=(SMI + lines).encode())
    assert log.header["device"].value == "NVIDIA GeForce RTX 4070"
    assert log.header["device_memory_bytes"].value == 12_282 * 2**20
    cut = SMI.replace("GeForce RTX 4070   ", "GeForce ...        ")
    assert "device" not in read_log(None, data=(cut + lines).encode()).header


def test_devices_of_two_kinds_leave_open_which_was_used() -> None:
    other = SMI.replace("|   0  NVIDIA GeForce RTX 4070", "|   1  NVIDIA GeForce RTX 3060")
    assert "device" not in read_log(None, data=(SMI + other + OF_NANOGPT).encode()).header
    assert "device" in read_log(None, data=(SMI + SMI + OF_NANOGPT).encode()).header


@pytest.mark.parametrize("overriding", ["", "Overriding: block_size = 128\nOverriding: n_embd = 128\n"])
def test_a_comment_beside_a_value_that_an_option_overrode_claims_nothing(overriding: str) -> None:
    text = (
        "% python train.py config/songs.py --block_size=128 --n_embd=128\n"
        "Overriding config with config/songs.py:\nblock_size = 512 # context of 512 characters\n"
        "n_embd = 384 # some 10M parameters\ndropout = 0.1 # off for CPUs\n"
        f"{overriding}number of parameters: 0.80M\niter 0: loss 4.4512, time 310.22ms, mfu -100.00%\n"
    )
    log = read_log(None, data=text.encode())
    assert [(comment.field, comment.text.strip()) for comment in log.comments] == [
        ("dropout", "off for CPUs")
    ]
