"""What a line that somebody's own training loop prints says of rates, speeds and clocks.

As with losses (`printed_fields`), a number counts only with its name directly in front, or for speeds and
times with its unit directly behind; a bare `time` may be anything.
"""

import math
import re

from gptwright.record.readers.fields import POSITIVE
from gptwright.record.readers.printed_fields import BETWEEN, VALUE

RATE = re.compile(
    rf"(?<![a-z])(?:lr|learning[ _]?rate){BETWEEN}((?!\d{{1,12}},\d){POSITIVE})(?![\w.]*[\w%])", re.IGNORECASE
)
NORM = re.compile(
    rf"(?<![a-z])(?:g(?:rad(?:ient)?)?[ _]?norm|norm){BETWEEN}({VALUE})(?![\w.]*[\w%])", re.IGNORECASE
)
SPEED_NAMED = re.compile(
    rf"(?<![a-z/])(?:tok(?:en)?s?)(?:/|[ _]per[ _]|_)s(?:ec(?:ond)?)?{BETWEEN}"
    r"((?:\d{1,3}(?:,\d{3})+|\d{1,12})(?:\.\d{1,12})?) ?([kKM])?(?![\w.])",
    re.IGNORECASE,
)
SPEED_BEHIND = re.compile(
    r"(?<![\w.,+-])((?:\d{1,3}(?:,\d{3})+|\d{1,12})(?:\.\d{1,12})?) ?([kKM])?"
    r" ?tok(?:en)?s?/s(?:ec)?(?![a-z/])(?!\s{0,3}[:=])"
)
# Tokens since the start, by the names that loops give them; a rate has a slash or a "per" behind.
TOKENS_SEEN = re.compile(
    r"(?<![a-z])(?:(?:num_)?(?:input_)?tok(?:en)?s?[ _](?:seen|trained|processed|consumed|so far)"
    r"|(?:trained|seen|total|processed|consumed|cumulative)[ _]tok(?:en)?s?|n_tokens|tokens)"
    rf"{BETWEEN}((?:\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}})(?:\.\d{{1,12}})?) ?([kKMB])?(?![\w.]*[\w/%])",
    re.IGNORECASE,
)
STEP_TIME = re.compile(
    r"(?<![a-z])(?:dt|(?:step|iter)(?=_m?s)|step_avg|(?:step|iter|iteration|batch)s?[ _]time"
    r"|time[ _/](?:per[ _])?(?:step|iter|iteration|batch))"
    rf"(?: ?\((ms|s)\)|_(ms|s|sec|seconds)(?![a-z]))?{BETWEEN}({POSITIVE}) ?(ms|s|sec|seconds)?(?!\.?[\w/])",
    re.IGNORECASE,
)
TIME_OF_A_STEP = re.compile(rf"(?<![\w.])({POSITIVE}) ?(ms|s)/(?:step|it|iter|batch)(?![a-z])")
STEPS_A_SECOND = re.compile(rf"(?<![\w.])({POSITIVE}) ?(?:it|steps|step|iter|batches)/s(?:ec)?(?![a-z])")
MILLISECONDS = re.compile(rf"(?<![a-z_])time{BETWEEN}({POSITIVE}) ?ms(?![\w/])", re.IGNORECASE)
STAMP = re.compile(r"(?<!\d)(\d{1,2}):(\d\d):(\d\d(?:[.,]\d{1,6})?)(?!\d|:\d)")
ELAPSED = re.compile(
    rf"(?<![a-z])elapsed(?:[ _]?time)?{BETWEEN}({POSITIVE})(?: ?s(?:ec(?:onds)?)?)?(?![\w:/.])"
    rf"|\(({POSITIVE}) ?s\)\s*$|^\W{{0,4}}\[\d{{1,12}} \| (\d{{1,12}}\.\d\d)\]",
    re.IGNORECASE,
)
# A time of day stands at the front, behind a date at most.
LONGEST_STAMP = 30
SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}


def learning_rate(text: str) -> float:
    """The learning rate that a line prints; NaN where it prints none."""
    return _number(RATE, text)


def gradient_norm(text: str) -> float:
    """The gradient norm that a line prints; NaN where it prints none."""
    return _number(NORM, text)


def tokens_per_second(text: str) -> float:
    """The speed that a line prints; NaN where it prints none."""
    # `48.3k tok/s 2.71 s/it`: a number on either side of the unit, and no other of a step is as large.
    found = [match for match in (SPEED_NAMED.search(text), SPEED_BEHIND.search(text)) if match is not None]
    return max(
        (float(match[1].replace(",", "")) * SCALE[(match[2] or "").lower()] for match in found),
        default=math.nan,
    )


def tokens_seen(text: str) -> float:
    """Tokens since the start of the run that a line prints; NaN where it prints none."""
    found = TOKENS_SEEN.search(text) if "okens" in text or "OKENS" in text else None
    if found is None:
        return math.nan
    return float(found[1].replace(",", "")) * SCALE[(found[2] or "").lower()]


def step_seconds(text: str) -> float:
    """The time of one step that a line prints with its unit; NaN where it prints none."""
    named = STEP_TIME.search(text)
    unit = named and (named[1] or named[2] or named[4])
    if named is not None and unit:
        return float(named[3]) * _seconds(unit)
    behind = TIME_OF_A_STEP.search(text)
    if behind is not None:
        return float(behind[1]) * _seconds(behind[2])
    rate = STEPS_A_SECOND.search(text)
    if rate is not None:
        return 1 / float(rate[1]) if float(rate[1]) > 0 else math.nan
    plain = MILLISECONDS.search(text)
    return float(plain[1]) * 1e-3 if plain is not None else math.nan


def clock(text: str) -> float:
    """What a clock shows, in seconds: since the start, else the time of day; NaN where there is none."""
    elapsed = ELAPSED.search(text)
    if elapsed is not None:
        return float(elapsed[1] or elapsed[2] or elapsed[3])
    stamp = STAMP.search(text[:LONGEST_STAMP])
    if stamp is None:
        return math.nan
    return 3600 * float(stamp[1]) + 60 * float(stamp[2]) + float(stamp[3].replace(",", "."))


def _number(pattern: re.Pattern[str], text: str) -> float:
    found = pattern.search(text)
    return float(found[1].replace(",", "")) if found is not None else math.nan


def _seconds(unit: str) -> float:
    return 1e-3 if unit.lower() == "ms" else 1.0
