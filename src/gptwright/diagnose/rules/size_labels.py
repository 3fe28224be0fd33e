"""Sizes that comments, names and notes give a model, against the model that the values make.

People copy a config, change its values and leave its comments. One public config kept "~125M parameters"
while its width went from 512 to 384 and its model to 40.56M.
"""

import re
from collections.abc import Iterator, Sequence

from gptwright import units
from gptwright.diagnose.claims import (
    LOOSE,
    NOT_OF_THIS_RUN,
    SCALES,
    SIZE_WORDS,
    TIGHT,
    TOKEN_WORDS,
    Claim,
    claims_in,
    comments_of,
    of_another_run,
)
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.facts import Fact, Origin
from gptwright.findings import Action, Confidence, Severity
from gptwright.record.evidence import Comment

# What people put a size into.
NAMES = ("out_dir", "output_dir", "wandb_run_name", "wandb_project", "run_name", "model_name", "model_tag")
# A size in a name: gpt2-124M, run_350m, "out-1.5B", and "stories15M" of llama2.c.
SIZE_IN_NAME = re.compile(
    r"(?:(?<![A-Za-z0-9.])|(?<=(?i:stories))|(?<=(?i:gpt)))(\d+(?:\.\d+)?)([MmBb])(?![A-Za-z0-9])"
)
# A word of a sentence that is such a name.
NAME_WITH_SIZE = re.compile(r"[A-Za-z][-_]?\d+(?:\.\d+)?[MB]\b")
# What makes it a number of tokens: the corpus in front ("fineweb-10B") or the word behind ("10B-tokens").
CORPUS_IN_NAME = re.compile(
    r"(?:web|edu|owt|pile|pajama|c4|wiki\w*|stories[-_ ]|code|corpus|data|sample|tokens?|chinchilla)[-_ ]?$",
    re.IGNORECASE,
)
TOKENS_IN_NAME = re.compile(r"[-_ ]?(?:tok|token|sample|data)", re.IGNORECASE)
# Not of "20 tokens per parameter = 2.5B".
SIZE_BEFORE = re.compile(
    r"(?<!per )(?<!/)(?<!/ )\b(?:param(?:eter)?s?|weights|network|net|model)[\s:=(~≈]{0,3}"
    r"(?:(?:size|count|of|is|has|with|about|around|roughly|be)[\s:=(~≈]{1,3}){0,3}[\s:=(~≈]*$",
    re.IGNORECASE,
)
# "GPT-2 small (124M)", "gpt2-medium, 350M".
MODEL_NAME_BEFORE = re.compile(
    r"\b(?:nano)?gpt[- ]?\d?(?:[- ](?:mini|nano|small|medium|large|xl))?[\s,:(~≈]{1,4}$", re.IGNORECASE
)
# A comment that is nothing but a size: "124M", "~ 0.35B".
ONLY_A_SIZE = re.compile(r"^\W*\d+(?:\.\d+)?\s?[MB]\W*$")
SHAPE_FIELDS = ("n_layer", "n_head", "n_embd", "model_type")
# What is taken of another model, or made of it: "same depth as GPT-2 124M", "half the width of the 350M".
OF_A_FEATURE = re.compile(
    r"\b(?:(?:depth|width|layers?|heads?|context|vocab\w*|tokenizer|recipe|data|batch|schedule|optimizer)"
    r"\s(?:as|of|from)|half|twice|double|a (?:third|quarter)|\d times)\s[^.;,]*$",
    re.IGNORECASE,
)
CHANGED_AFTER = re.compile(
    r"^\W{0,3}(?:(?:model|param\w*|config|shape|size)\W{1,3})?"
    r"(?:but|except|with (?:half|twice|double|fewer|less|more|only)|halved|cut|scaled|shrunk|minus)\b",
    re.IGNORECASE,
)
# Words by which a note, which may tell of anything, speaks of more than this run's model.
MORE_THAN_THIS_RUN = re.compile(
    r"\b(?:other|another|colleague|friend|his|her|their|previous|last|first|second|next|would|could|should"
    r"|bigger|larger|smaller|instead|against|baseline|both|plan\w*|hope|later|base|teacher|draft)\b",
    re.IGNORECASE,
)


def size_label_mismatch(reading: Reading) -> Iterator[Verdict]:
    """A claimed model size is held against every way of counting: nanoGPT's (without the position table), all
    parameters, those outside the embeddings, and matrices alone. It fires only when none of them is within
    the rounding of the claim, so "124M" and "125M" for GPT-2 small are both right. Claims are read where a
    number with M or B stands beside a word such as parameters, weights or model, after a model's name, alone
    beside the shape, and in names of runs, models and folders; not where the words beside it say that it is
    another's. The comments of a config count, those beside settings that a log echoes or that were pasted
    with it, and a note on the run that speaks of no other. Source: a public config that carried "~125M" over
    63.5M, 76.8M, 61.9M and 40.6M.
    """
    counted, shape = reading.sizes.parameters, reading.sizes.shape
    if counted is None:
        return
    truths = [counted.number]
    if shape is not None:
        count = shape.count_parameters()
        truths += [count.total, count.non_embedding, count.matmul]
    wrong = _wrong_claims(reading, truths)
    if not wrong:
        return
    facts, written = [fact for fact, _ in wrong], dict.fromkeys(size for _, size in wrong)
    place = "A comment in the log" if all(fact.origin is Origin.LOGGED for fact in facts) else "The config"
    if all(fact.source == "fact:note" for fact in facts):
        place = "The note"
    size = units.count(counted.number)
    yield finding(
        "size-label-mismatch",
        Severity.WARNING,
        Confidence.CERTAIN,
        f"{place} says {' and '.join(written)}; {_who_counts(counted)} {size} parameters.",
        [*facts, counted],
        actions=[
            Action(
                f"Correct the label to {size}{', or change n_layer and n_embd' if shape is not None else ''}."
            )
        ],
    )


def _wrong_claims(reading: Reading, truths: Sequence[float]) -> list[tuple[Fact, str]]:
    """Every claimed size that is none of the model's: where it stands, and as it is written."""
    config, note = reading.evidence.config, _note_on_this_run(reading)
    wrong = [
        (claim.fact(), claim.written)
        for comment in comments_of(reading)
        for claim in claims_in(comment)
        if _about_size(claim) and not claim.agrees(*truths)
    ]
    labels = [config.settings.get(name) for name in NAMES] if config is not None else []
    for label in labels:
        if label is not None:
            wrong += [(label, size) for size in _wrong_sizes(str(label.value), truths, reading)]
    if note is not None:
        wrong += [(note, size) for size in _wrong_sizes_of_a_note(str(note.value), truths, reading)]
    return wrong


def _who_counts(counted: Fact) -> str:
    return "the log itself counts" if counted.origin is Origin.LOGGED else "the values make a model of"


def _note_on_this_run(reading: Reading) -> Fact | None:
    """What was said about the run, where it speaks of no other."""
    note = reading.settings.stated.get("note")
    if note is None or MORE_THAN_THIS_RUN.search(str(note.value)) or NOT_OF_THIS_RUN.search(str(note.value)):
        return None
    return note


def _wrong_sizes(name: str, truths: Sequence[float], reading: Reading) -> list[str]:
    """The sizes in a name, if none of them is the model's: the others are tokens, as in 124M-10B."""
    planned, wrong = reading.progress.planned_tokens, []
    for match in SIZE_IN_NAME.finditer(name):
        value = float(match[1]) * SCALES[match[2].lower()]
        factor = LOOSE if len(match[1]) == 1 else TIGHT
        if any(truth / factor <= value <= truth * factor for truth in truths):
            return []
        of_run = planned is not None and planned.number / LOOSE <= value <= planned.number * LOOSE
        of_text = CORPUS_IN_NAME.search(name[: match.start()]) or TOKENS_IN_NAME.match(name[match.end() :])
        if not (of_run or of_text):
            wrong.append(match[0])
    return wrong


def _wrong_sizes_of_a_note(note: str, truths: Sequence[float], reading: Reading) -> list[str]:
    """The sizes that a sentence gives the model, in words or in a name, if none of them is the model's."""
    said = [claim for claim in claims_in(Comment(note, 0, None)) if _about_size(claim)]
    if any(claim.agrees(*truths) for claim in said):
        return []
    names = [word for word in note.split() if NAME_WITH_SIZE.search(word)]
    return [
        *(claim.written for claim in said),
        *(size for name in names for size in _wrong_sizes(name, truths, reading)),
    ]


def _about_size(claim: Claim) -> bool:
    """Whether a claim is about the model's size: a large number beside a word for a model, not of tokens."""
    if claim.value < 1e5 or TOKEN_WORDS.match(claim.after) or of_another_run(claim):
        return False
    if OF_A_FEATURE.search(claim.before) or CHANGED_AFTER.match(claim.after):
        return False
    if SIZE_WORDS.match(claim.after) or SIZE_BEFORE.search(claim.before):
        return True
    comment = claim.comment
    if comment.field in SHAPE_FIELDS:
        return bool(ONLY_A_SIZE.match(comment.text) or MODEL_NAME_BEFORE.search(claim.before))
    return comment.field is None and bool(MODEL_NAME_BEFORE.search(claim.before))


RULES = (Rule("size-label-mismatch", size_label_mismatch),)
