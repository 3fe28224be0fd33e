"""Where what is stated beside a config is not what the config, or its dataset's own script, says.

Either may be meant: an option replaces a setting, and a corpus may be cut. But the numbers follow what is
stated, and what the file's comments say is of the other, so it is said once.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gptwright.arithmetic.known_datasets import known_facts
from gptwright.config.load import read_source
from gptwright.facts import Fact, Origin, configured
from gptwright.findings import Action, Confidence, Finding, Severity
from gptwright.plan.plan import Plan

# Another tokenizer or a newer crawl changes a corpus by less.
ANOTHER_SIZE = 1.5
ANOTHER_TOKENIZER = " Another tokenizer would make another number of tokens of it, too."
COUNTED = {"train_tokens": "training tokens", "vocab_size": "rows of vocabulary"}


def agreement_findings(plan: Plan, sources: Sequence[str], stated: Mapping[str, Fact]) -> tuple[Finding, ...]:
    """That a dataset, or its size, is another than the config, the dataset or its script says.

    Args:
        plan: the plan.
        sources: the config files and presets.
        stated: what was stated of the data's size, by name.
    """
    return (*_another_dataset(plan.config.dataset, sources), *_another_size(plan, stated))


def _name(dataset: str) -> str:
    return re.split(r"[/\\]", dataset.rstrip("/\\"))[-1]


def _another_dataset(dataset: str, sources: Sequence[str]) -> Iterator[Finding]:
    own = ((source, read_source(source).get("dataset")) for source in reversed(sources))
    source, named = next(((source, named) for source, named in own if named is not None), ("", None))
    if named is not None and isinstance(named.value, str) and _name(named.value) != _name(dataset):
        yield _mismatch(
            f"{Path(source).name} names the dataset {named.value}, and the plan is for {dataset}, as is"
            " stated beside it: passes, vocabulary and loss are of that, and the file's words on its data are"
            " not.",
            configured("dataset", named.value, place=named.source),
            configured("dataset", dataset, place="option"),
        )


def _another_size(plan: Plan, stated: Mapping[str, Fact]) -> Iterator[Finding]:
    dataset = plan.config.dataset
    for name, counted in COUNTED.items():
        given, planned = stated.get(name), {"train_tokens": plan.train_tokens}.get(name, plan.vocabulary)
        here = planned is not None and planned.origin is Origin.MEASURED
        other = planned if here else known_facts(dataset).get(name)
        if given is None or other is None:
            continue
        if abs(math.log(given.number / other.number)) > math.log(ANOTHER_SIZE):
            maker, meant = (
                ("the dataset here has", "the dataset")
                if here
                else ("nanoGPT's own script makes of it", "what is stated")
            )
            yield _mismatch(
                f"{given.text} {counted} are stated for {dataset}, and {maker} {other.text}: the plan is for"
                f" {meant}.{ANOTHER_TOKENIZER if name == 'vocab_size' else ''}",
                given,
                other,
            )


def _mismatch(message: str, *evidence: Fact) -> Finding:
    return Finding(
        id="config-mismatch",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        message=message,
        evidence=evidence,
        actions=(Action("State what the run will read."),),
    )
