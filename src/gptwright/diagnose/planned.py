"""A run that has not begun, as the rules see it: its settings, what is stated, and the speed to expect.

Only the families that can speak without a log are here: a plan does not wait for what it has no use for.
"""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from gptwright.config.load import LoadedConfig
from gptwright.config.schema import FIELDS
from gptwright.diagnose.judging import Diagnosis, judged
from gptwright.diagnose.reading import Reading, read_run
from gptwright.diagnose.rule import Rule
from gptwright.diagnose.rules import precision, schedule, size, size_labels, stale_comments
from gptwright.facts import Fact, configured
from gptwright.record.configs import read_config_evidence
from gptwright.record.evidence import Comment, ConfigEvidence, RunEvidence

# The families that judge settings; the others need lines of a log.
PLAN_RULES: tuple[Rule, ...] = (
    *size_labels.RULES,
    *stale_comments.RULES,
    *size.RULES,
    *schedule.RULES,
    *precision.RULES,
)


# What an evaluation alone has no use for.
OF_TRAINING = ("max_iters", "lr_decay_iters", "warmup_iters", "learning_rate")
# What a comment's claim is computed from: where one of these was overridden, the comment is not at fault.
CLAIMS_REST_ON: Mapping[str, Set[str]] = {
    "size-label-mismatch": frozenset(("n_layer", "n_embd", "vocab_size", "dataset", "block_size", "arch")),
    "stale-comment": frozenset(
        (
            *("n_head", "n_embd", "block_size", "batch_size", "gradient_accumulation_steps"),
            *("tokens_per_step", "max_iters", "lr_decay_iters", "warmup_iters"),
        )
    ),
}


def judge_plan(reading: Reading, *, overridden: Set[str] = frozenset()) -> Diagnosis:
    """What the rules say of a plan.

    Args:
        reading: of the plan.
        overridden: settings that options, or what the plan was solved for, set in place of the config file.
    """
    rules = (rule for rule in PLAN_RULES if not overridden & CLAIMS_REST_ON.get(rule.id, frozenset()))
    return judged(reading, rules)


def read_plan(
    loaded: LoadedConfig, sources: Sequence[str], facts: Mapping[str, Fact], *, seconds_per_step: Fact | None
) -> Reading:
    """The reading of a plan.

    Args:
        loaded: the checked settings.
        sources: the config files and presets that they came from; comments are read from the files.
        facts: what is stated or known beside them.
        seconds_per_step: the likely time of a step.
    """
    settings = {
        name: configured(name, getattr(loaded.config, name), place=loaded.sources.get(name, "default"))
        for name in FIELDS
        if getattr(loaded.config, name) is not None
    }
    # "auto" is no value yet, and a device here is a place ("cuda:0"), not a card's name.
    for name in ("dtype", "compile", "device"):
        if getattr(loaded.config, name) == "auto":
            del settings[name]
    if loaded.config.eval_only:
        for name in OF_TRAINING:
            settings.pop(name, None)
    comments: list[Comment] = []
    files = [Path(source) for source in sources if Path(source).is_file()]
    for file in files:
        if file.suffix == ".json":
            continue  # it has no comments, and settings are in `loaded`
        evidence = read_config_evidence(file)
        comments += evidence.comments
        settings |= {n: f for n, f in evidence.settings.items() if n not in FIELDS}
    config = ConfigEvidence(
        path=files[-1] if files else Path(sources[-1] if sources else "defaults"),
        settings=settings,
        comments=tuple(comments),
        skipped=0,
        complete=True,
    )
    evidence_of_run = RunEvidence(path=str(config.path), log=None, config=config, stated=facts)
    return read_run(evidence_of_run, seconds_per_step=seconds_per_step)
