"""`gptwright plan`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gptwright.cli.options import (
    SCHEMA_OPTIONS,
    json_option,
    overrides,
    print_json,
    schema_options,
    split_arguments,
)
from gptwright.config.load import LoadedConfig, load_config, preset_names
from gptwright.config.schema import FIELDS, TrainConfig
from gptwright.facts import Fact, stated

COUNTS = ("device_count", "train_tokens", "val_tokens")


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
@click.option("--tokens", type=float, help="Plan a run of so many tokens.")
@click.option("--chinchilla", type=float, help="Plan a run of so many tokens per parameter, such as 20.")
@click.option("--hours", type=float, help="Plan a run of so many hours on the device.")
@click.option("--params", type=float, help="Choose a model of about so many parameters.")
@click.option("--measure", is_flag=True, help="Measure speed and memory on the device here (needs torch).")
@click.option("--save", type=click.Path(path_type=Path), help="Write the resulting config as TOML.")
@click.option("--device-count", "device_count", type=int, help="Fact: devices that train together.")
@click.option("--train-tokens", "train_tokens", type=int, help="Fact: tokens in the training split.")
@click.option("--val-tokens", "val_tokens", type=int, help="Fact: tokens in the validation split.")
@json_option
@schema_options
def command(config: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Plans a run and prints it."""
    from gptwright.config.write import to_toml
    from gptwright.diagnose.planned import judge_plan, read_plan
    from gptwright.files import replace_text
    from gptwright.plan.backwards import Targets, solve
    from gptwright.plan.batch import fit
    from gptwright.plan.local_data import local_facts
    from gptwright.plan.options import memory_findings
    from gptwright.plan.plan import make_plan
    from gptwright.report.plan_document import plan_document

    sources, unknown_options = split_arguments(config)
    fields = {name: value for name, value in given.items() if name in FIELDS}
    device, fields = _device_name(fields)
    loaded = load_config(sources, overrides(fields, unknown_options))
    facts = _facts(given, device, loaded) | local_facts(loaded.config)

    def planner(settings: TrainConfig) -> Any:
        return make_plan(settings, facts, sources=loaded.sources)

    targets = Targets(
        tokens=given["tokens"],
        tokens_per_parameter=given["chinchilla"],
        hours=given["hours"],
        parameters=given["params"],
    )
    solved = solve(loaded.config, planner, targets, choose_model=not sources)
    plan = planner(fit(solved.plan)) if given["fit"] else solved.plan
    trials = []
    if given["measure"]:
        from gptwright.train.measure import measure

        measured = measure(plan)
        trials = [trial.document() for trial in measured.trials]
        plan = make_plan(measured.config, facts, sources=loaded.sources, speed=measured.speed)
    final = LoadedConfig(plan.config, loaded.sources, loaded.without_effect)
    known = facts | {"vocab_size": plan.vocabulary}
    if plan.train_tokens is not None:
        known["train_tokens"] = plan.train_tokens
    reading = read_plan(final, sources, known, seconds_per_step=plan.seconds_per_step())
    diagnosis = judge_plan(reading)
    findings = (*memory_findings(plan, planner), *diagnosis.findings)
    unknown = (*plan.unknown, *diagnosis.unknown)
    if as_json:
        print_json(plan_document(plan, findings, unknown) | ({"trials": trials} if trials else {}))
    else:
        from gptwright.report.planned import show_plan, show_trials
        from gptwright.report.terminal import console_for

        console = console_for()
        show_trials(console, trials)
        show_plan(console, plan, findings, unknown)
    if given["save"] is not None:
        replace_text(given["save"], to_toml(plan.config))


def _device_name(fields: Mapping[str, str | None]) -> tuple[str | None, dict[str, str | None]]:
    """Splits `--device`: a kind of device is a setting, a card's name is a fact about where it will run."""
    from gptwright.plan.device import KINDS

    name = fields.get("device")
    if name is None or name.lower() in KINDS or name.lower().startswith("cuda:"):
        return None, {**fields, "device": name.lower() if name is not None else None}
    return name, {**fields, "device": None}


def _facts(given: Mapping[str, Any], device: str | None, loaded: LoadedConfig) -> dict[str, Fact]:
    facts = {
        name: stated(name, given[name], unit="tokens" if "tokens" in name else "")
        for name in COUNTS
        if given[name]
    }
    if device is not None:
        facts["device"] = stated("device", device)
    facts["dataset"] = stated("dataset", loaded.config.dataset)
    return facts
