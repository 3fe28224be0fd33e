"""From what a person typed to one checked `TrainConfig`.

Sources are applied in the order given, options last: presets by name, TOML files, nanoGPT-style Python files
and Hugging Face's config.json of a GPT-2. Every setting remembers where it came from, and every problem
(unknown name, wrong type, out of range, contradiction) is reported in one message, so that a config is mended
in one go.
"""

import ast
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptwright.config.foreign import (
    HINTS,
    ForeignSetting,
    changes_nothing,
    meaning_elsewhere,
    name_of_ours,
    read_foreign,
)
from gptwright.config.hugging_face import read_hugging_face_config
from gptwright.config.nanogpt import WITHOUT_EFFECT, read_python_config, why_without_effect
from gptwright.config.pretrained import GPT2_MODELS, settled_by_weights
from gptwright.config.schema import FIELDS, TrainConfig, problems_of, with_accumulation
from gptwright.errors import ConfigError

# Two ways to say how much is accumulated: who gives one means to replace the other of an earlier source.
SAY_THE_SAME = frozenset(("tokens_per_step", "gradient_accumulation_steps"))
# Share of letters in common from which a name may be a slip for another one.
LIKE_ENOUGH = 0.6
# The same from which it is one although other lines are calculated from it: `max_itres`, `n_layers`.
A_SLIP = 0.8
# As other programs have it; here a config is named by itself.
CONFIG_OPTIONS = ("config", "config_file", "cfg", "preset", "model_config")
# What other trainers call our words.
OTHER_WORDS = {
    **dict.fromkeys(("bf16", "bf16-mixed", "bf16-true", "torch.bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp16", "half", "16", "16-mixed", "torch.float16"), "float16"),
    **dict.fromkeys(("fp32", "float", "32", "32-true", "tf32", "torch.float32"), "float32"),
    "gpu": "cuda",
}
PRESETS = Path(__file__).with_name("presets")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value somebody gave, and where: `option`, `FILE:LINE`, `FILE` or `preset NAME`.

    `used` is whether other settings of its file are calculated from it.
    """

    value: Any
    source: str
    used: bool = False


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A config that passed every check.

    Attributes:
        config: the settings.
        sources: for each setting somebody gave, where; the others have their default.
        without_effect: accepted settings of nanoGPT and others that change nothing here, with the reason.
        foreign: settings of other trainers in a file, where they were let in: not all of them are counted.
    """

    config: TrainConfig
    sources: Mapping[str, str]
    without_effect: Mapping[str, str]
    foreign: tuple[ForeignSetting, ...] = ()


def preset_names() -> list[str]:
    """The presets that come with the package, sorted."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_config(
    sources: Sequence[str], options: Mapping[str, str] | None = None, *, let_in_foreign: bool = False
) -> LoadedConfig:
    """Merges sources and options over the defaults and checks the result.

    Args:
        sources: presets' names, TOML files and nanoGPT-style Python files; later ones win.
        options: `--field=value` pairs as typed; they win over the sources.
        let_in_foreign: whether files may have settings that are known from other trainers only.

    Raises:
        ConfigError: with every problem that was found.
    """
    settings: dict[str, Setting] = {}
    problems = []
    for source in sources:
        try:
            settings = _overridden(settings, read_source(source))
        except ConfigError as problem:
            problems.append(problem)
    settings = _overridden(settings, option_settings(options or {}))
    return check_settings(settings, problems, let_in_foreign=let_in_foreign)


def _overridden(settings: Mapping[str, Setting], later: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings with those of a later source over them, which win also where they say it another way."""
    given = SAY_THE_SAME & later.keys()
    said_before = SAY_THE_SAME - given if given else frozenset()
    return {name: setting for name, setting in settings.items() if name not in said_before} | dict(later)


def option_settings(options: Mapping[str, str]) -> dict[str, Setting]:
    """`--field=value` pairs as typed."""
    return {name: Setting(_typed(name, text), "option") for name, text in options.items()}


def check_settings(
    settings: Mapping[str, Setting], problems: Iterable[ConfigError] = (), *, let_in_foreign: bool = False
) -> LoadedConfig:
    """Validates settings against the schema and raises all problems together, those so far included.

    Raises:
        ConfigError: with every problem that was found.
    """
    problems = list(problems)
    values = {name: settings[name].value if name in settings else FIELDS[name].default for name in FIELDS}
    without_effect = _without_effect(settings, values)
    given = {name: setting for name, setting in settings.items() if name not in without_effect}
    foreign = _foreign(given, values) if let_in_foreign else ()
    let_in = {setting.name for setting in foreign}
    problems += [_unknown(name, given[name]) for name in given if name not in FIELDS and name not in let_in]
    known = {name: setting for name, setting in given.items() if name in FIELDS}
    theirs = {s.ours[0]: Setting(s.ours[1], f"{s.source}: {s.name}") for s in foreign if s.ours}
    if "max_iters" in theirs:
        # Who has the length by another name has a trainer whose decay ends there.
        theirs.setdefault("lr_decay_iters", theirs["max_iters"])
    known = theirs | known
    known, contradictions = _with_shape_of_weights(known)
    problems += contradictions
    invalid, config = _validated(known)
    problems += invalid
    try:
        config = with_accumulation(config, accumulation_given="gradient_accumulation_steps" in known)
    except ConfigError as problem:
        problems.append(problem)
    problems += problems_of(config)
    if problems:
        raise ConfigError.of(problems)
    origins = {name: setting.source for name, setting in known.items()}
    return LoadedConfig(config, origins, without_effect, foreign)


def _without_effect(settings: Mapping[str, Setting], values: Mapping[str, Any]) -> dict[str, str]:
    """The accepted settings that change nothing, each with the reason."""
    reasons = {}
    for name, setting in settings.items():
        if name in FIELDS:
            continue
        if reason := why_without_effect(name):
            reasons[name] = reason
        elif setting.used and not _is_a_slip(name, settings):
            reasons[name] = "other lines are calculated from it, and it does nothing besides"
        elif changes_nothing(name, setting.value, values):
            reasons[name] = f"{setting.value} is what is done here without it"
    return reasons


def _is_a_slip(name: str, settings: Mapping[str, Setting]) -> bool:
    """Whether one of our settings is meant that is not set itself, misspelt or by another trainer's name."""
    ours = name_of_ours(name)
    if ours is not None:
        return ours not in settings
    return bool(difflib.get_close_matches(name, FIELDS, cutoff=A_SLIP))


def _foreign(given: Mapping[str, Setting], values: Mapping[str, Any]) -> tuple[ForeignSetting, ...]:
    """The settings of other trainers that files have; who types an option means one of ours."""
    read = (
        read_foreign(name, setting.value, setting.source, values)
        for name, setting in given.items()
        if name not in FIELDS and setting.source != "option" and not isinstance(setting.value, dict)
    )
    return tuple(setting for setting in read if setting is not None)


def _with_shape_of_weights(
    known: Mapping[str, Setting],
) -> tuple[dict[str, Setting], list[ConfigError]]:
    """The settings with the shape of OpenAI's GPT-2 where `init_from` names one."""
    start = known.get("init_from")
    if start is None or start.value not in GPT2_MODELS:
        return dict(known), []
    given = {name: setting.value for name, setting in known.items()}
    settled, problems = settled_by_weights(GPT2_MODELS[start.value], given, origin=start.value)
    shape = {name: Setting(value, f"the weights of {start.value}") for name, value in settled.items()}
    return dict(known) | {n: s for n, s in shape.items() if given.get(n) is None}, problems


def read_source(source: str) -> dict[str, Setting]:
    """The settings of one preset, TOML file or nanoGPT-style Python file."""
    path = Path(source)
    if source in preset_names():
        text = (PRESETS / f"{source}.toml").read_text("utf-8")
        return {name: Setting(value, f"preset {source}") for name, value in tomllib.loads(text).items()}
    names = ("config.toml", "config.py", "config.json")
    inside = next((path / name for name in names if (path / name).is_file()), None)
    if inside is not None:
        raise ConfigError(f"{source} is a folder", why="a config is a file", fix=f"give {inside}")
    if not path.is_file():
        raise ConfigError(
            f"no config file and no preset is called {source!r}",
            why=f"presets are {', '.join(preset_names())}",
            fix=_nearest(source, _configs_near(path), "use {}")
            or "give the path of a .toml or .py config file",
        )
    if path.suffix == ".toml":
        return {name: Setting(value, str(path)) for name, value in _read_toml(path).items()}
    if path.suffix == ".py":
        read = read_python_config(path)
        return {item.name: Setting(item.value, f"{path}:{item.line}", item.used) for item in read}
    if path.suffix == ".json":
        return {name: Setting(value, str(path)) for name, value in read_hugging_face_config(path).items()}
    raise ConfigError(
        f"{source} is neither a .toml nor a .py file, nor a GPT-2's config.json",
        why="a config is TOML, or a nanoGPT-style Python file of assignments",
        fix="write its values down by our names, in a file or as options such as --n_layer=12 --n_embd=768"
        f" --batch_size=8, or use a preset: {', '.join(preset_names())}",
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _typed(name: str, text: str) -> Any:
    """A literal as nanoGPT reads options: `0.1`, `True`, `1e-3`; anything else is a string."""
    if name in FIELDS and str in FIELDS[name].kinds:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _unknown(name: str, setting: Setting) -> ConfigError:
    if isinstance(setting.value, dict):
        return ConfigError(
            f"{name} ({setting.source}) is a table, and settings stand outside of tables",
            fix=f"write them without the line [{name}], as in `n_layer = 12`",
        )
    label = f"--{name}" if setting.source == "option" else f"{name} ({setting.source})"
    if setting.source == "option" and name in CONFIG_OPTIONS:
        file = setting.value or "config.py"
        return ConfigError(f"unknown setting {label}", fix=f"give the config without it: {file}")
    ours, elsewhere = name_of_ours(name), meaning_elsewhere(name)
    if ours is not None:
        fix = f"did you mean {ours}?"
    elif name in HINTS:
        fix = HINTS[name]
    elif elsewhere is not None:
        fix = "leave it out to train without it"
    else:
        known = [*FIELDS, *WITHOUT_EFFECT]
        fix = _nearest(name, known, "did you mean {}?") or "`gptwright train --help` lists all settings"
    return ConfigError(
        f"unknown setting {label}", why=f"other trainers have it: {elsewhere}" if elsewhere else None, fix=fix
    )


def _configs_near(path: Path) -> list[str]:
    """What may be meant by a path that is not there: a preset, or a file in its folder."""
    beside = [path.with_name(entry.name) for entry in path.parent.glob("*.*")] if path.parent.is_dir() else []
    return [*preset_names(), *(str(file) for file in beside if file.suffix in (".toml", ".py", ".json"))]


def _nearest(name: str, known: Iterable[str], sentence: str) -> str | None:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=LIKE_ENOUGH)
    return sentence.format(near[0]) if near else None


def _word_meant(name: str, value: object) -> str | None:
    """The word that another trainer's, or a misspelt one, means; None where none is near."""
    words, text = FIELDS[name].words, str(value).lower()
    if OTHER_WORDS.get(text) in words:
        return OTHER_WORDS[text]
    return next(iter(difflib.get_close_matches(text, words, n=1, cutoff=LIKE_ENOUGH)), None)


def _validated(settings: Mapping[str, Setting]) -> tuple[list[ConfigError], TrainConfig]:
    """What is wrong with each value by itself, and the config without those that are."""
    problems, values = [], {}
    for name, setting in settings.items():
        try:
            values[name] = FIELDS[name].accept(setting.value)
        except ValueError as error:
            meant = _word_meant(name, setting.value)
            problem = ConfigError(
                f"{name} = {setting.value!r} ({setting.source}) is not accepted: {error}",
                why=f"{name} is: {FIELDS[name].description}",
                fix=f"--{name}={meant}" if meant else f"the default is --{name}={FIELDS[name].default}",
            )
            problems.append(problem)
    return problems, TrainConfig(**values)
