"""What a log tells beside its numbers: checkpoints, warnings, failures, and the memory that these name."""

import pytest

from gptwright.record.evidence import EventKind
from tests.record.readers.test_golden import read

LINE = "iter 10: loss 4.0000, time 100.00ms, mfu 20.00%"
OLD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB (GPU 0; 15.78 GiB total"
    " capacity; 8.71 GiB already allocated; 5.62 GiB free; 8.86 GiB reserved in total by PyTorch)"
)
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total"
    " capacity of 11.69 GiB of which 512.31 MiB is free. Process 4242 has 0 bytes memory in use. Including"
    " non-PyTorch memory, this process has 10.91 GiB memory in use. Of the allocated memory 10.02 GiB is"
    " allocated by PyTorch, and 612.55 MiB is reserved by PyTorch but unallocated. If reserved but"
    " unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation. See documentation for Memory Management"
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("saving checkpoint to out-demo", EventKind.CHECKPOINT),
        ("Saving model checkpoint to out/checkpoint-500", EventKind.CHECKPOINT),
        ("Writing model to log_run/model_00005000.bin", EventKind.CHECKPOINT),
        ("Iter 100: Saved adapter weights to adapters.safetensors", EventKind.CHECKPOINT),
        (
            "2025-01-01 00:00:00 - INFO - Saved model parameters to: /out/model_000500.pt",
            EventKind.CHECKPOINT,
        ),
        ("Resuming training from out-demo", EventKind.RESUME),
        ("Resuming optimization from step 10000", EventKind.RESUME),
        ("  Continuing training from checkpoint, will skip to saved global_step", EventKind.RESUME),
        ("[titan] 2025-05-02 - root - INFO - Loading the checkpoint from out/step-500.", EventKind.RESUME),
        (OLD, EventKind.OUT_OF_MEMORY),
        (NEW, EventKind.OUT_OF_MEMORY),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 5.44 GB)", EventKind.OUT_OF_MEMORY),
        (
            "W0410 08:22:11.123000 42 torch/_inductor/utils.py:1137] [0/0] Not enough SMs to use"
            " max_autotune_gemm mode",
            EventKind.WARNING,
        ),
        ("WARNING: using slow attention. Flash Attention requires PyTorch >= 2.0", EventKind.WARNING),
        (
            "/venv/torch/x.py:12: FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated",
            EventKind.WARNING,
        ),
        ("RuntimeError: CUDA error: device-side assert triggered", EventKind.ERROR),
        ("KeyboardInterrupt", EventKind.ERROR),
        ("skipping update due to grad z-score of 5.123456", EventKind.SKIPPED_UPDATE),
        (
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
            EventKind.SKIPPED_UPDATE,
        ),
    ],
)
def test_each_kind(text: str, kind: EventKind) -> None:
    log = read(f"{LINE}\n{text}\n")
    assert [(event.kind, event.line, event.step, event.text) for event in log.events] == [
        (kind, 2, 10, text.strip())
    ]


@pytest.mark.parametrize(
    "text", ["a note without meaning", "Validating ...", "found 99 shards for split train", ""]
)
def test_other_lines_are_no_events(text: str) -> None:
    assert not read(f"{LINE}\n{text}\n").events


@pytest.mark.parametrize(("message", "total"), [(OLD, 15.78), (NEW, 11.69)])
def test_a_failed_allocation_is_kept_whole_and_names_the_device_memory(message: str, total: float) -> None:
    log = read(f"number of parameters: 123.59M\n{message}\n")
    assert log.events[0].text == message
    assert log.header["device_memory_bytes"].value == round(total * 2**30)
    assert log.header["device_memory_bytes"].source == "log:2"


def test_a_wrapped_allocation_message_is_put_together() -> None:
    lines = [f"iter {step}: loss 4.0000, time 100.00ms, mfu 20.00%" for step in range(100, 130)]
    text = "\n".join(
        piece for line in [*lines, NEW] for piece in (line[i : i + 40] for i in range(0, len(line), 40))
    )
    log = read(text + "\n")
    assert len(log.train) == 30
    assert log.events[0].text == NEW


def test_a_traceback_becomes_its_last_line() -> None:
    log = read(
        f"{LINE}\nTraceback (most recent call last):\n"
        '  File "/src/train.py", line 293, in <module>\n    logits, loss = model(X, Y)\n'
        "AssertionError: Cannot forward sequence of length 2048, block size is only 1024\n"
        "iter 20: loss 4.0000, time 100.00ms, mfu 20.00%\n"
    )
    assert [(event.kind, event.line, event.text) for event in log.events] == [
        (
            EventKind.ERROR,
            5,
            "AssertionError: Cannot forward sequence of length 2048, block size is only 1024",
        )
    ]
    assert list(log.train.step) == [10, 20]


def test_the_traceback_of_a_rank_that_ran_out_of_memory() -> None:
    log = read(
        f"{LINE}\n[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/src/train.py", line 3, in <module>\n'
        f"[rank0]:     main()\n[rank0]: {OLD}\n"
    )
    assert [event.kind for event in log.events] == [EventKind.OUT_OF_MEMORY]
    assert log.events[0].text == OLD


def test_what_eight_ranks_print_is_one_event() -> None:
    log = read(f"{LINE}\n" + "WARNING: using slow attention.\n" * 8)
    assert len(log.events) == 1
    assert log.hazards["repeated lines"] == 7


def test_the_same_line_later_is_another_event() -> None:
    log = read(f"saving checkpoint to out\n{LINE}\nsaving checkpoint to out\n")
    assert [(event.line, event.step) for event in log.events] == [(1, None), (3, 10)]


def test_a_warning_at_every_step_does_not_fill_the_memory() -> None:
    log = read(f"{LINE}\n" + "".join(f"WARNING: value {n} is odd\n" for n in range(1_500)))
    assert len(log.events) == 1_000
    assert log.hazards["further lines of kind warning"] == 500


def test_a_long_warning_is_shortened() -> None:
    log = read(f"{LINE}\nWARNING: {'x' * 2_000}\n")
    assert len(log.events[0].text) == 500
