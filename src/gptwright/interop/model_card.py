"""The README.md of an exported model, from what the run recorded: nothing is claimed that was not measured.

Energy is not measured; where the table of devices has the card, its power limit over the training time is an
upper figure for the card alone, and is called that.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import gptwright
from gptwright import units
from gptwright.hardware.table import find_spec
from gptwright.interop.trained import TrainedRun
from gptwright.record.metrics import Record


def model_card(run: TrainedRun, *, loads_text: bool, notes: Sequence[str]) -> str:
    """The card's text, with the front matter of the Hugging Face hub."""
    name = run.path.resolve().name
    rows = "\n".join(f"| {label} | {value} |" for label, value in _rows(run))
    remarks = "".join(f"\n- {note}" for note in (*_imported(run), *notes))
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags:
- gpt2
- gptwright
---

# {name}

A GPT-2-shaped language model, trained with gptwright {gptwright.__version__}.

| | |
|---|---|
{rows}

```python
{_example(loads_text=loads_text)}
```
{remarks}

A model of this size makes up facts, and repeats whatever was in its training text.
"""


def _example(*, loads_text: bool) -> str:
    lines = [
        "from transformers import AutoModelForCausalLM, AutoTokenizer"
        if loads_text
        else "from transformers import AutoModelForCausalLM",
        "",
        'model = AutoModelForCausalLM.from_pretrained(".")',
    ]
    if loads_text:
        lines += [
            'tokenizer = AutoTokenizer.from_pretrained(".")',
            'prompt = tokenizer("\\n", return_tensors="pt")',
            "print(tokenizer.decode(model.generate(**prompt, max_new_tokens=200)[0]))",
        ]
    return "\n".join(lines)


def _rows(run: TrainedRun) -> Iterator[tuple[str, str]]:
    """What is known of a run, in the order in which a reader asks."""
    shape, count = run.shape, run.shape.count_parameters()
    yield "parameters", f"{count.total:,} ({units.count(count.nanogpt)} without positions)"
    yield (
        "shape",
        f"{shape.n_layer} layers, {shape.n_head} heads, width {shape.n_embd}, context {shape.block_size},"
        f" vocabulary {shape.vocab_size:,}, {'with' if shape.bias else 'without'} biases",
    )
    if run.tokenizer is not None:
        yield "tokenizer", f"{run.tokenizer.kind}, {run.tokenizer.vocab_size:,} ids"
    dataset = run.facts.get("dataset", {})
    if dataset:
        tokens = dataset.get("tokens", {})
        yield "data", f"{dataset.get('name')}: " + ", ".join(f"{n:,} tokens {k}" for k, n in tokens.items())
    yield "checkpoint", f"{run.checkpoint}: {run.step:,} steps"
    trained = [r for r in run.records if r["kind"] == "train" and r["step"] < run.step]
    if trained:
        yield "tokens seen", f"{run.step * run.config.sequences_per_step * run.config.block_size:,}"
    yield from _losses(run)
    yield from _cost(run, trained)


def _losses(run: TrainedRun) -> Iterator[tuple[str, str]]:
    here = [r for r in run.records if r["kind"] == "eval" and r["step"] == run.step]
    if here:
        last = here[-1]
        yield (
            "validation loss",
            _with_error(last["val_loss"], last["val_loss_standard_error"], "nats a token"),
        )
        yield (
            "training loss",
            _with_error(last["train_loss"], last["train_loss_standard_error"], "nats a token, in eval mode"),
        )
    for record in run.records:
        if record["kind"] == "score" and record["checkpoint"] == run.checkpoint:
            loss = _with_error(record["loss"], record["loss_standard_error"], "nats a token")
            yield f"loss on {record['text']}", f"{loss}; {record['bits_per_byte']:.4f} bits a byte"


def _with_error(value: Any, error: Any, unit: str) -> str:
    if not isinstance(value, float):
        return f"{value} {unit}"
    return f"{value:.4f}{f' ± {error:.4f} (standard error)' if isinstance(error, float) else ''} {unit}"


def _cost(run: TrainedRun, trained: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Hours, card and energy, of the steps that are in the record."""
    if not trained:
        return
    seconds, before = 0.0, trained[0]["step"] - 1
    for record in trained:
        seconds += record["seconds"] * max(1, record["step"] - before)
        before = record["step"]
    part = "; the steps before the import are not in it" if run.facts.get("imported") else ""
    yield "training time", f"{units.duration(seconds)} without evaluations{part}"
    device = run.facts.get("machine", {}).get("device")
    if device is None:
        return
    yield "device", str(device)
    found = find_spec(str(device))
    if found is not None and found.spec.power_watts is not None:
        kilowatt_hours = found.spec.power_watts * seconds / 3.6e6
        yield (
            "energy",
            f"at most {kilowatt_hours:.3g} kWh for the card: its limit of {found.spec.power_watts:g} W"
            " over that time; not measured",
        )


def _imported(run: TrainedRun) -> list[str]:
    imported = run.facts.get("imported")
    if imported:
        return [f"It began as an import: {imported.get('origin')}, at step {imported.get('step')}."]
    if run.config.init_from not in ("scratch", "resume", "auto"):
        return [f"It was fine-tuned from {run.config.init_from}."]
    return []
