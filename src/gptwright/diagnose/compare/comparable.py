"""Whether the losses of two runs are the same quantity, and what to keep in mind if they are."""

from gptwright import units
from gptwright.config.pretrained import GPT2_PADDED_VOCABULARY, GPT2_VOCABULARY
from gptwright.diagnose.compare.changes import differs, same_corpus, setting
from gptwright.diagnose.compare.points import in_bits_a_byte, loss_curves
from gptwright.diagnose.compare.quantity import other_quantity
from gptwright.diagnose.reading import MOST_CHARACTERS, Reading
from gptwright.diagnose.scale import loss_scale
from gptwright.diagnose.series import Series, val_loss
from gptwright.record.evidence import IN_EPOCHS, NUMBERED, OF_CHARACTERS

# How the reasons end for which no two values can be held side by side.
STEP_NOT_KNOWN, NOTHING_IN_COMMON = "holds is not known", "have no stretch in common"
# What the rows of a log count where they do not count steps.
LINES, EPOCHS, TOKENS = "lines", "epochs", "tokens"
NO_STEPS = ", which nothing ties together"


def counter(reading: Reading) -> str:
    """What the numbers of a log's rows count."""
    hazards = reading.log.hazards if reading.log is not None else {}
    return EPOCHS if hazards.get(IN_EPOCHS) else LINES if hazards.get(NUMBERED) else "steps"


def counted_in(a: Reading, b: Reading) -> str:
    """What the losses of two comparable runs are held against."""
    return TOKENS if a.progress.batches or b.progress.batches else counter(a)


def why_not(a: Reading, b: Reading) -> tuple[str, ...]:
    """Why the two losses are not the same quantity; empty where they are."""
    reasons = []
    vocabularies = a.vocab_size, b.vocab_size
    sizes = {fact.value for fact in vocabularies if fact is not None}
    # GPT-2's 50,257 tokens are often padded to 50,304: the same tokenizer.
    padded = sizes == {GPT2_VOCABULARY, GPT2_PADDED_VOCABULARY}
    if len(sizes) == 2 and not padded and not in_bits_a_byte(a, b):
        reasons.append("different vocabulary: a token is another amount of text")
    if not reasons and _of_characters(a) != _of_characters(b) and _tokens_are_characters(a, b) is False:
        reasons.append("one loss is a character's and the other a token's, which has several characters")
    datasets = setting(a, "dataset"), setting(b, "dataset")
    if None not in datasets and not same_corpus(str(datasets[0]), str(datasets[1])):
        reasons.append(f"different data: {datasets[0]} and {datasets[1]}")
    splits = setting(a, "val_tokens"), setting(b, "val_tokens")
    if not reasons and None not in splits and splits[0] != splits[1]:
        reasons.append(f"different validation sets: {splits[0]:,} and {splits[1]:,} tokens")
    if not _both_validate(a, b):
        if loss_scale(a) != loss_scale(b):
            reasons.append("one logs a sum over micro-batches")
        if setting(a, "dropout") != setting(b, "dropout"):
            reasons.append("only training losses are there, and dropout lifts one of them more")
    if not reasons and (why := other_quantity(a, b)):
        reasons.append(why)
    if not reasons and counter(a) != counter(b):
        reasons.append(f"a counts {counter(a)} and b counts {counter(b)}{NO_STEPS}")
    if not reasons and not all(len(curve) for curve in loss_curves(a, b)):
        reasons.append("they have no loss of the same kind in their logs")
    return tuple(reasons)


def why_apart(a: Reading, b: Reading) -> str:
    """Why no two values of the curves can be held side by side."""
    unknown = [name for name, r in (("a", a), ("b", b)) if not r.progress.batches]
    if len(unknown) == 1:
        return f"how many tokens a step of {unknown[0]} {STEP_NOT_KNOWN}"
    ours, theirs = (_range_of(run, curve) for run, curve in zip((a, b), loss_curves(a, b), strict=True))
    if ours is None or theirs is None:
        return f"their evaluations {NOTHING_IN_COMMON}"
    (first, early), (second, late) = sorted((("a", ours), ("b", theirs)), key=lambda each: each[1])
    counted = TOKENS if a.progress.batches else counter(a)
    return (
        f"the evaluations of {first} end at {units.count(early[1])} {counted} and those of {second} begin at"
        f" {units.count(late[0])}: they {NOTHING_IN_COMMON}"
    )


def _range_of(reading: Reading, curve: Series) -> tuple[float, float] | None:
    """The first and the last place at which a curve has a value after its start."""
    rows = curve.after(0)
    if not len(rows):
        return None
    ends = int(rows.step[0]), int(rows.step[-1])
    if not reading.progress.batches:
        return float(ends[0]), float(ends[1])
    first, last = (reading.progress.tokens_at(step) for step in ends)
    return None if first is None or last is None else (first, last)


def remarks(a: Reading, b: Reading) -> tuple[str, ...]:
    """What to keep in mind about two runs that can be compared."""
    found = []
    contexts = setting(a, "block_size"), setting(b, "block_size")
    if None not in contexts and contexts[0] != contexts[1]:
        found.append("different context: a longer one alone lowers the loss")
    if not _both_validate(a, b):
        found.append("training losses are compared, validation is missing")
    if _of_characters(a) != _of_characters(b) and _tokens_are_characters(a, b) is None:
        found.append("one loss is a character's: comparable only if the other's tokens are characters")
    found += [remark for remark in (_same_step(a, b), _other_decay(a, b)) if remark]
    for name, reading in (("a", a), ("b", b)):
        if setting(reading, "init_from") == "resume":
            found.append(f"{name} was resumed: what came before is not in its log")
        if setting(reading, "dataset") is None and setting(reading, "vocab_size") is None:
            found.append(f"the data of {name} is not named: comparable only if it is the other's")
        if counter(reading) == LINES:
            found.append(f"the log of {name} says no steps: compared by the order of its lines")
        elif not reading.progress.batches:
            found.append(f"tokens per step of {name} are not known: compared by {counter(reading)}")
    return tuple(found)


def _same_step(a: Reading, b: Reading) -> str:
    """That another cut of the step is the same step, where micro-batches differ."""
    each = a.speed.tokens_per_step, b.speed.tokens_per_step
    if each[0] is None or each[1] is None or each[0].value != each[1].value:
        return ""
    if not (differs(a, b, "batch_size") and differs(a, b, "gradient_accumulation_steps")):
        return ""
    cuts = [f"{setting(run, 'batch_size')} × {setting(run, 'gradient_accumulation_steps')}" for run in (a, b)]
    return f"both take {each[0].text} tokens a step: {' and '.join(cuts)} are two cuts of one batch"


def _other_decay(a: Reading, b: Reading) -> str:
    """That schedules of as many steps are not as many tokens long, where a step's tokens differ."""
    each = a.speed.tokens_per_step, b.speed.tokens_per_step
    decays = [run.settings.number("lr_decay_iters") for run in (a, b)]
    if each[0] is None or each[1] is None or None in decays or decays[0] != decays[1]:
        return ""
    if each[0].value == each[1].value or False in [run.settings.flag("decay_lr") for run in (a, b)]:
        return ""
    further = "a" if each[0].number < each[1].number else "b"
    return (
        f"both decay over {decays[0]:,.0f} steps, which are fewer tokens in {further}: at equal tokens its"
        " learning rate is lower, which lowers the loss too"
    )


def _of_characters(reading: Reading) -> bool:
    """Whether losses were printed as bits a character."""
    return reading.log is not None and bool(reading.log.hazards.get(OF_CHARACTERS))


def _tokens_are_characters(a: Reading, b: Reading) -> bool | None:
    """Whether the vocabulary behind a token's loss is one of characters; None where none is known."""
    rows = (b if _of_characters(a) else a).settings.number("vocab_size")
    return None if rows is None else rows <= MOST_CHARACTERS


def _both_validate(a: Reading, b: Reading) -> bool:
    return (len(val_loss(a)) > 0 and len(val_loss(b)) > 0) or in_bits_a_byte(a, b)
