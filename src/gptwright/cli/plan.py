"""`gptwright plan`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gptwright.cli.amounts import Amount, Hours
from gptwright.cli.facts import fact_option
from gptwright.cli.options import (
    SCHEMA_OPTIONS,
    json_option,
    overrides,
    print_json,
    schema_options,
    split_arguments,
)
from gptwright.config.load import LoadedConfig, load_config, preset_names, read_source
from gptwright.config.schema import FIELDS, TrainConfig
from gptwright.errors import ConfigError
from gptwright.facts import Fact, stated
from gptwright.record.stated import stated_facts

if TYPE_CHECKING:
    from gptwright.findings import Finding, Unknown
    from gptwright.plan.backwards import Solved, Targets
    from gptwright.plan.plan import Plan

# What --fit changes, and why.
CUT = ("batch_size", "gradient_accumulation_steps")
FITTED = "so that it fits, at the same tokens per step"
# What is stated beside a config; the device may be a setting, and the vocabulary is one.
BESIDE = ("device_count", "train_tokens", "val_tokens", "torch")


@click.command(
    context_settings=SCHEMA_OPTIONS,
    epilog=f"Presets: {', '.join(preset_names())}.",
    help="""Say what a run will need and cost before anything is spent. Needs no torch.

    CONFIG is as for train. Without CONFIG, --hours and --params choose the model too. The result of --fit,
    --tokens, --chinchilla, --hours and --params is a config that train takes: --save FILE writes it.
    """,
)
@click.argument("config", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--fit", is_flag=True, help="Cut the batch so that it fits the device, at the same tokens per step."
)
@click.option("--tokens", type=Amount(), help="Plan a run of so many tokens, such as 10B.")
@click.option("--chinchilla", type=Amount(), help="Plan a run of so many tokens per parameter, such as 20.")
@click.option("--hours", type=Hours(), help="Plan a run of so many hours on the device; 90min is one, too.")
@click.option("--params", type=Amount(), help="Choose a model of about so many parameters, such as 350M.")
@click.option("--measure", is_flag=True, help="Measure speed and memory on the device here (needs torch).")
@click.option("--save", type=click.Path(path_type=Path), help="Write the resulting config as TOML.")
@fact_option("device_count")
@fact_option("train_tokens")
@fact_option("val_tokens")
@fact_option("torch")
@fact_option("note")
@json_option
@schema_options
def command(config: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Plans a run and prints it."""
    from gptwright.config.write import to_toml
    from gptwright.files import replace_text, unwritable_as_error
    from gptwright.plan.backwards import relengthen, solve
    from gptwright.plan.batch import fit
    from gptwright.plan.faster import speed_findings
    from gptwright.plan.local_data import local_facts
    from gptwright.plan.options import memory_findings
    from gptwright.plan.plan import make_plan
    from gptwright.report.plan_document import plan_document

    sources, unknown_options = split_arguments(config)
    fields = {name: value for name, value in given.items() if name in FIELDS}
    device, fields = _device_name(fields)
    loaded = load_config(sources, overrides(fields, unknown_options), let_in_foreign=True)
    facts = _facts(given, device, loaded) | local_facts(loaded.config)

    def planner(settings: TrainConfig) -> "Plan":
        return make_plan(settings, facts, sources=loaded.sources)

    targets = _targets(given, loaded)
    choose_context = not sources and "block_size" not in loaded.sources
    solved = solve(loaded.config, planner, targets, choose_model=not sources, choose_context=choose_context)
    plan, chosen = solved.plan, solved.changes
    if given["fit"]:
        # Another cut has another speed, and hours make other steps of it.
        plan = planner(relengthen(fit(plan), planner, targets, choose_model=not sources))
        chosen = _chosen_to_fit(loaded.config, solved, plan.config)
    trials = []
    if given["measure"]:
        from gptwright.train.measure import measure

        measured = measure(plan)
        trials = [trial.document() for trial in measured.trials]
        plan = make_plan(measured.config, facts, sources=loaded.sources, speed=measured.speed)
    plan, findings, unknown = _judged(plan, loaded, sources, facts)
    findings = (
        *memory_findings(plan, planner),
        *findings,
        *_of_settings(plan, loaded, sources, given),
        *(() if trials else speed_findings(plan, planner)),
    )
    # Before anything is printed, which whoever reads it may not do to the end.
    if given["save"] is not None:
        with unwritable_as_error(given["save"]):
            replace_text(given["save"], to_toml(plan.config))
    if as_json:
        print_json(plan_document(plan, findings, unknown) | ({"trials": trials} if trials else {}))
    else:
        from gptwright.report.planned import show_plan, show_trials
        from gptwright.report.terminal import console_for

        console = console_for()
        show_trials(console, trials)
        show_plan(console, plan, findings, unknown, chosen=chosen)


def _targets(given: Mapping[str, Any], loaded: LoadedConfig) -> "Targets":
    """What is asked for; a size beside a shape that is given is refused, for one of them would be dropped."""
    from gptwright.plan.backwards import Targets

    shape = [name for name in ("n_layer", "n_head", "n_embd") if loaded.sources.get(name) == "option"]
    if given["params"] is not None and shape:
        options = " and ".join(f"--{name}" for name in shape)
        raise ConfigError(
            f"--params and {options} each say how large the model is",
            why="--params chooses layers, heads and width",
            fix="give one of them",
        )
    return Targets(
        tokens=given["tokens"],
        tokens_per_parameter=given["chinchilla"],
        hours=given["hours"],
        parameters=given["params"],
    )


def _chosen_to_fit(before: TrainConfig, solved: "Solved", fitted: TrainConfig) -> tuple[Fact, ...]:
    """Each setting that is another than before, those of the cut with the reason that it fits."""
    from gptwright.plan.backwards import changed

    cut = [fact for fact in changed(solved.config, fitted, FITTED) if fact.name in CUT]
    return tuple({fact.name: fact for fact in (*changed(before, fitted, solved.reason), *cut)}.values())


def _judged(
    plan: "Plan", loaded: LoadedConfig, sources: Sequence[str], facts: Mapping[str, Fact]
) -> tuple["Plan", Sequence["Finding"], Sequence["Unknown"]]:
    """The plan, what the rules of diagnosis say of its settings, and what cannot be known of it."""
    from gptwright.diagnose.planned import judge_plan, read_plan
    from gptwright.plan.plan import without_promise

    final = LoadedConfig(plan.config, loaded.sources, loaded.without_effect)
    known = {**facts, "vocab_size": plan.vocabulary}
    if plan.train_tokens is not None:
        known["train_tokens"] = plan.train_tokens
    solved = {name for name in FIELDS if getattr(plan.config, name) != getattr(loaded.config, name)}
    reading = read_plan(final, sources, known, seconds_per_step=plan.seconds_per_step())
    diagnosis = judge_plan(reading, overridden=solved | _overridden(loaded, sources))
    plan = without_promise(plan, {finding.id for finding in diagnosis.findings})
    return plan, diagnosis.findings, (*plan.unknown, *diagnosis.unknown)


def _of_settings(
    plan: "Plan", loaded: LoadedConfig, sources: Sequence[str], given: Mapping[str, Any]
) -> "tuple[Finding, ...]":
    """What settings will not do as they were meant, beside what the rules of diagnosis say of them."""
    from gptwright.plan.agreement import agreement_findings
    from gptwright.plan.evaluation import evaluation_findings
    from gptwright.plan.foreign import foreign_findings
    from gptwright.plan.odd_settings import settings_findings

    return (
        *settings_findings(plan.config, epochs=plan.epochs),
        *evaluation_findings(plan),
        *agreement_findings(plan, sources, _stated_beside(given, loaded)),
        *foreign_findings(loaded.foreign),
    )


def _overridden(loaded: LoadedConfig, sources: Sequence[str]) -> set[str]:
    """Settings that an option replaces, or a file those of a preset, whose labels are then not at fault.

    Only what is another than the files' own: a vocabulary beside files that name none is a fact about them.
    """
    over_a_preset = any(source in preset_names() for source in sources)
    own = {name: setting.value for source in sources for name, setting in read_source(source).items()}
    return {
        name
        for name, source in loaded.sources.items()
        if (source == "option" and _replaces(name, getattr(loaded.config, name), own))
        or (over_a_preset and not source.startswith(("preset ", "option")))
    }


def _replaces(name: str, value: Any, own: Mapping[str, Any]) -> bool:
    """Whether an option's value is another than that of the files, or than the default that they leave."""
    if name == "vocab_size" and name not in own:
        return False
    return bool(value != own.get(name, FIELDS[name].default))


def _device_name(fields: Mapping[str, str | None]) -> tuple[str | None, dict[str, str | None]]:
    """Splits `--device`: a kind of device is a setting, a card's name is a fact about where it will run."""
    from gptwright.plan.device import KINDS

    name = fields.get("device")
    if name is None or name.lower() in KINDS or name.lower().startswith("cuda:"):
        return None, {**fields, "device": name.lower() if name is not None else None}
    return name, {**fields, "device": None}


def _stated_beside(given: Mapping[str, Any], loaded: LoadedConfig) -> dict[str, Fact]:
    """The sizes of the data that somebody stated beside the config."""
    counts = stated_facts({name: given[name] for name in BESIDE if given[name] is not None}, "option")
    if loaded.config.vocab_size is not None and loaded.sources.get("vocab_size") == "option":
        counts["vocab_size"] = stated("vocab_size", loaded.config.vocab_size)
    return counts


def _facts(given: Mapping[str, Any], device: str | None, loaded: LoadedConfig) -> dict[str, Fact]:
    """The facts that were given as options, and the dataset's name."""
    counts = {name: given[name] for name in BESIDE if given[name] is not None}
    facts = stated_facts(counts | ({"device": device} if device is not None else {}), "option")
    return {**facts, "dataset": stated("dataset", loaded.config.dataset)}
