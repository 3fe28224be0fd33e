"""What a run says of itself before its first step: run.json, the tokenizer, and the first records."""

import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import gptwright
from gptwright.data.dataset import TokenDataset
from gptwright.files import replace_bytes
from gptwright.plan.promise import promise_document
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import LoadedCheckpoint
from gptwright.train.session import Session, tokenizer_of
from gptwright.train.world import launch_name


def describe(run: RunFolder, session: Session) -> None:
    """Writes run.json, and the tokenizer if it is known; what an import left in run.json stays."""
    imported = run.read_facts().get("imported")
    run.write_facts({**_run_facts(session), **({"imported": imported} if imported else {})})
    tokenizer = tokenizer_of(session)
    if tokenizer is not None:
        replace_bytes(run.tokenizer_path, tokenizer.to_bytes())


def opening_records(
    run: RunFolder, session: Session, resumed: LoadedCheckpoint | None
) -> list[tuple[str, dict[str, Any]]]:
    """The records that a process begins with, by kind.

    The first process of an imported run has to start and to resume.

    Args:
        run: its record tells whether it has started.
        session: what it trains.
        resumed: the checkpoint that it goes on from.
    """
    step = resumed.state.step if resumed else 0
    started = any(record["kind"] == "start" for record in read_metrics(run.metrics_path))
    start = [] if started else [("start", _start_fields(session, step))]
    return start + ([("resume", {"step": step})] if resumed else [])


def dataset_facts(dataset: TokenDataset) -> dict[str, Any]:
    """What run.json says of a dataset."""
    return {
        "name": dataset.name,
        "folder": str(dataset.folder.resolve()),
        "fingerprint": dataset.fingerprint,
        "tokens": {name: split.tokens for name, split in dataset.splits.items()},
    }


def _start_fields(session: Session, step: int) -> dict[str, Any]:
    tensors = [parameter.dim() >= 2 for parameter in session.model.parameters()]
    config = session.config
    return {
        "step": step,
        "tokens_per_step": config.sequences_per_step * config.block_size,
        "vocab_size": session.vocab_size,
        "parameters_nanogpt": session.parameters.nanogpt,
        "parameters_total": session.parameters.total,
        "decayed_tensors": sum(tensors),
        "decayed_parameters": session.parameters.decayed,
        "not_decayed_tensors": len(tensors) - sum(tensors),
        "not_decayed_parameters": session.parameters.not_decayed,
        "device": session.precision.device.name,
        "dtype": session.precision.dtype,
        "peak_flops": session.peak_flops,
        "world_size": session.world.size,
        "max_iters": config.max_iters,
    }


def _run_facts(session: Session) -> Mapping[str, Any]:
    device = session.precision.device
    return {
        "schema": "gptwright.run/1",
        "gptwright": gptwright.__version__,
        "commit": _commit(),
        "launch": launch_name(),
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": metadata.version("numpy"),
            "device": device.name,
            "device_memory_bytes": device.memory_bytes,
            "threads": torch.get_num_threads(),
            "dtype": session.precision.dtype,
            "float32_attention": session.model.shape.float32_attention,
            "kernels": session.model.shape.kernels,
            "processes": session.world.size,
            "hosts": session.world.hosts,
        },
        "dataset": dataset_facts(session.dataset),
        "facts": [
            {"name": f.name, "value": f.value, "text": f.text, "origin": str(f.origin), "reason": f.reason}
            for f in session.facts
        ],
        "warnings": session.warnings,
        "promise": promise_document(session.promise),
    }


def _commit() -> str | None:
    """The commit of gptwright's own checkout; None where it was installed without one."""
    package = Path(gptwright.__file__).parent
    checkout = package.parents[1]
    if package.parent.name != "src" or not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
