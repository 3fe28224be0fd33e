"""The set of rules as a whole: every id of the contract, each explained, none of them on absent evidence."""

import re
from pathlib import Path

import pytest

from gptwright.diagnose.engine import RULES, diagnose, explain, rule_ids
from gptwright.diagnose.reading import read_run
from gptwright.errors import ConfigError
from gptwright.record.evidence import RunEvidence

CONTRACT_IDS = set(
    re.findall(
        r"[a-z0-9-]+",
        """
        size-label-mismatch stale-comment capacity-limited undertrained embedding-heavy odd-shape long-plan
        mfu-basis near-peak low-mfu impossible-throughput batch-mismatch eval-in-timing data-stall
        non-finite-loss divergence loss-spike stuck-loss small-batch-for-lr init-loss scaled-loss lr-jump
        schedule-mismatch overfitting many-epochs dropout-in-train-loss val-below-train small-val-split
        noisy-eval worse-than-uniform below-reference above-reference periodic-validation still-improving
        plateau-unproven out-of-memory device-mismatch bf16-emulated known-warning incomplete-log
        config-mismatch
        """,
    )
)


def test_every_id_of_the_contract_has_a_rule() -> None:
    assert len(CONTRACT_IDS) == 41
    assert set(rule_ids()) >= CONTRACT_IDS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.judge.__name__)
def test_every_rule_is_explained_with_its_source(rule: object) -> None:
    explanation = rule.explanation  # type: ignore[attr-defined]
    assert len(explanation) > 60
    assert re.match(r"[A-Z0-9]|nanoGPT", explanation)


def test_explaining_an_unknown_id_lists_them() -> None:
    with pytest.raises(ConfigError, match="no finding is called 'nothing'"):
        explain("nothing")
    with pytest.raises(ConfigError, match="--explain val-below-train"):
        explain("val-below")


def test_no_rule_fires_on_the_absence_of_everything(tmp_path: Path) -> None:
    empty = RunEvidence(path=str(tmp_path), log=None, config=None, stated={})
    assert diagnose(read_run(empty)).findings == ()
