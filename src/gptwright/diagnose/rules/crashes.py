"""Errors that end a run before it trains, by the words of the frameworks that raise them.

They are what people meet first: defaults for one kind of machine on another, data that is not there yet, ids
beyond the vocabulary. Each is explained by what raises it and comes with what to type.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.facts import Value, logged
from gptwright.findings import Action, Confidence, Severity
from gptwright.record.evidence import EventKind


@dataclass(frozen=True, slots=True)
class Known:
    """An error with a known cause.

    Attributes:
        pattern: its words.
        meaning: what raised it, and why.
        action: what to do.
        settings: fields to set for it.
    """

    pattern: re.Pattern[str]
    meaning: str
    action: str
    settings: dict[str, Value] = field(default_factory=dict)


EAGER: dict[str, Value] = {"compile": False}
KNOWN = (
    Known(
        re.compile(r"Torch not compiled with CUDA enabled"),
        "this torch is a build without CUDA, and the device is a CUDA one, which is nanoGPT's default",
        "On a CPU or a Mac name the device and do not compile; for an NVIDIA card install torch with CUDA.",
        {"device": "cpu", "compile": False},
    ),
    Known(
        re.compile(r"Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device"),
        "torch has CUDA, and it is shown no NVIDIA GPU: there is no driver, or this process was given none",
        "Look at nvidia-smi and CUDA_VISIBLE_DEVICES; on Colab choose a GPU runtime; else train on the CPU.",
        {"device": "cpu"},
    ),
    Known(
        re.compile(r"too old to be supported by the triton|CUDA Capability (?:[3-6])\.\d.{0,40}triton", re.I),
        "torch.compile makes kernels with Triton, which needs compute capability 7.0, and this GPU has less",
        "Train without compilation.",
        EAGER,
    ),
    Known(
        re.compile(r"Windows not yet supported for torch\.compile|Dynamo is not supported on Python"),
        "torch.compile does not run on this system or Python with this version of torch",
        "Train without compilation, or with a newer torch.",
        EAGER,
    ),
    Known(
        re.compile(
            r"Cannot find a working triton|No module named ['\"]triton|TritonMissing"
            r"|Failed to find C compiler"
        ),
        "torch.compile needs Triton and a C compiler, and one of them is missing",
        "Install it, or train without compilation.",
        EAGER,
    ),
    Known(
        re.compile(r"Dataset scripts are no longer supported|trust_remote_code.{0,40}no longer supported"),
        "releases of `datasets` from 4.0 on run no loading script, and this corpus has one",
        'Install an older one, "datasets<4", or take a copy of the corpus in parquet files.',
    ),
    Known(
        re.compile(r"No such file or directory: .{0,200}(?:train|val)\.bin"),
        "the tokens of this dataset are not there: prepare.py was not run, or dataset names another folder",
        "Run python data/NAME/prepare.py, and check `dataset`.",
    ),
    Known(
        re.compile(
            r"device-side assert triggered|index out of range in self|Assertion .srcIndex < srcSelectDim"
        ),
        "an index is beyond its table: most often a token id that is not below vocab_size, or more tokens"
        " than block_size",
        "Compare the largest id of train.bin and val.bin with vocab_size; on a CPU the error names the line.",
    ),
    Known(
        re.compile(r"invalid device ordinal"),
        "a process asks for a GPU that is not there: more processes than GPUs",
        "Start as many processes as there are GPUs (torchrun --nproc_per_node).",
    ),
    Known(
        re.compile(r"size mismatch for .{1,200}copying a param"),
        "the checkpoint's weights have other shapes than the model: width, depth, context or vocabulary",
        "Set the checkpoint's own shape, or train from scratch.",
    ),
    Known(
        re.compile(r"Watchdog caught collective operation timeout|NCCL.{0,80}timed? ?out", re.I),
        "one process waited for another that did not come to the same exchange: it had failed, it evaluated"
        " or saved alone, or the network between them is at fault",
        "Look for the first error of any other process; and let all processes evaluate, or raise the timeout"
        " of init_process_group. NCCL_DEBUG=INFO says where it waits.",
    ),
    Known(
        re.compile(r"^Killed"),
        "the system ended the process, which it does when main memory is full",
        "Load less at once: fewer worker processes, memory-mapped data, a smaller model or batch.",
    ),
)


def known_error(reading: Reading) -> Iterator[Verdict]:
    """Errors at which a run ended and whose cause is known: wrong device, no compiler, data that is not
    there, ids beyond the vocabulary. An error that training went on after is left alone, and so is one whose
    words are not known. Sources: torch's own messages; nanoGPT issues 281 and 304 (no CUDA), 157 (an old
    GPU), 633 (dataset scripts), 483 (ids out of range), pull request 243 (Windows).
    """
    log = reading.log
    if log is None:
        return
    ends = [log.moment(int(table.line[-1])) for table in (log.train, log.evals) if len(table)]
    seen: set[str] = set()
    for event in log.events:
        if event.kind is not EventKind.ERROR or log.moment(event.line) < max(ends, default=-math.inf):
            continue
        known = next((each for each in KNOWN if each.pattern.search(event.text)), None)
        if known is None or known.meaning in seen:
            continue
        seen.add(known.meaning)
        yield finding(
            "known-error",
            Severity.ERROR,
            Confidence.LIKELY,
            f"The run ended at line {event.line} with “{event.text[:120]}”: {known.meaning}.",
            [logged("error", event.text[:200], event.line)],
            actions=[Action(known.action, known.settings)],
        )


RULES = (Rule("known-error", known_error),)
