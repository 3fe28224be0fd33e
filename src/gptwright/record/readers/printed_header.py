"""What somebody's own training loop prints before its first step: the model's size, the device, settings."""

import re

from gptwright.config.foreign import SAME_AS
from gptwright.record.configs import literal
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Said

COUNT = r"(\d{1,3}(?:,\d{3}){1,5}|\d{1,15}(?:\.\d{1,9})?)"
UNIT = r"(?: ?(M|B|K|million|billion)\b)?"
PARAMETERS = re.compile(
    rf"(?<![a-z])param(?:eter)?s\b[^\d\n]{{0,20}}?{COUNT}{UNIT}(?![\w.,]*\d)"
    rf"|(?<![\w.,]){COUNT}{UNIT}\s{{1,8}}(?:total |(?:non-)?trainable |model )?param(?:eter)?s\b",
    re.IGNORECASE,
)
# An adapter's share of the model: `Trainable parameters = 41,943,040/8,030,261,248 (0.52% trained)`.
ADAPTED = re.compile(
    rf"trainable param(?:eter)?s\b[^\d\n]{{0,20}}[\d,]{{1,20}}\s?(?:/|of)\s?{COUNT}{UNIT}(?![\w.,]*\d)",
    re.IGNORECASE,
)
TRAINABLE, FROZEN = re.compile(r"trainable", re.IGNORECASE), re.compile(r"non-?trainable", re.IGNORECASE)
DEVICE = re.compile(
    r"(?:device|gpu|cuda)\b[^:=\n]{0,20}[:=]\s{0,4}"
    r"((?:NVIDIA|GeForce|RTX|GTX|Tesla|Quadro|AMD|Apple)\b[\w .-]{2,40})",
    re.IGNORECASE,
)
# Of a language model.
FEWEST = 1000
UNITS = {"m": 1e6, "million": 1e6, "b": 1e9, "billion": 1e9, "k": 1e3}
SETTING = re.compile(r"\W{0,6}([A-Za-z_][\w ]{1,30}?)[\"']?\s{0,20}[:=]\s{0,20}([^\s,][^,]{0,40}?)\W{0,3}")
# What loops call settings, beyond the names that other trainers have for them (`SAME_AS`).
CALLED: dict[str, str] = {
    **SAME_AS,
    **{
        name: name
        for name in (
            "vocab_size",
            "batch_size",
            "block_size",
            "n_layer",
            "n_head",
            "n_embd",
            "dropout",
            "learning_rate",
            "max_iters",
            "weight_decay",
            "eval_interval",
            "eval_iters",
            "gradient_accumulation_steps",
            "grad_clip",
            "warmup_iters",
            "dtype",
        )
    },
}


def take_header(build: Builder, text: str, line: int) -> bool:
    """Takes the model's size, or a setting that is printed before the first step."""
    if build.has_rows():
        return False
    device = DEVICE.search(text)
    if device is not None:
        build.fact("device", device[1].strip(), line)
        return True
    counted = _model_size(text)
    if counted is not None and "tensors" not in text:
        number, unit = counted
        _parameters(build, number, unit, line)
        if ADAPTED.search(text):
            build.setting("init_from", "pretrained", line)
        return True
    return _assignment(build, text, line)


def _assignment(build: Builder, text: str, line: int) -> bool:
    setting = SETTING.fullmatch(text)
    name = CALLED.get("_".join(setting[1].lower().split())) if setting is not None else None
    if setting is None or name is None:
        return False
    try:
        value = literal(setting[2])
    except ValueError:
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        build.setting(name, value, line)
    return True


def _parameters(build: Builder, number: str, unit: str, line: int) -> None:
    scale = UNITS.get(unit, 1.0)
    count = round(float(number.replace(",", "")) * scale)
    # "Tokens : Params ratio: 20.00" and "params: 4 groups" count no weights.
    if count < FEWEST:
        return
    decimals = len(number.partition(".")[2])
    rounding = 0.5 * scale * 10.0**-decimals if unit else None
    build.said(Said("parameters_total", count, rounding), line)


def _model_size(text: str) -> tuple[str, str] | None:
    """A count of parameters and its unit: of all where a line has that and those that are trained."""
    adapted = ADAPTED.search(text)
    if adapted is not None:
        return adapted[1], (adapted[2] or "").lower()
    before, found = 0, []
    for match in PARAMETERS.finditer(text):
        words = text[before : match.end()]
        before = match.end()
        if not FROZEN.search(words):
            number, unit = (match[1], match[2]) if match[1] else (match[3], match[4])
            found.append((TRAINABLE.search(words) is not None, number, (unit or "").lower()))
    _, number, unit = min(found, key=lambda each: each[0], default=(False, "", ""))
    return (number, unit) if number else None
