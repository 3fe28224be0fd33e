"""Other numbers in comments, such as a step's tokens or the head's size, against the values beside them."""

import math
import re
from collections.abc import Iterator

from gptwright.diagnose.claims import (
    SIZE_WORDS,
    TOKEN_WORDS,
    Claim,
    claims_in,
    comments_of,
    of_another_run,
)
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.facts import Fact, Origin, derived
from gptwright.findings import Action, Confidence, Severity

# Settings beside which a number of tokens is the run's, or a step's.
OF_THE_RUN = (
    None,
    "max_iters",
    "lr_decay_iters",
    "batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
)
TOKENS_BEFORE = re.compile(
    r"\btokens?(?:(?:/| per )\w+)?[\s:=(~≈]+(?:(?:be|is|are|about|around|roughly)[\s~≈]+){0,2}$",
    re.IGNORECASE,
)
# "12 batch size * 1024 block size * 5 gradaccum = 491,520": what a product of batch settings comes to.
BATCH_PRODUCT = re.compile(r"\bbatch\b.*[*×x].*=\s*~?$", re.IGNORECASE)
SEQUENCE_WORDS = re.compile(
    r"^\W{0,2}(?:[^\W\d]\w*\s){0,1}?(?:sequences|samples|examples|windows)\b", re.IGNORECASE
)
EPOCH_WORDS = re.compile(r"^\W{0,2}(?:full\s)?(?:epochs?|passes)\b", re.IGNORECASE)
# "1 epoch ~= 9.2 iters" turns one into the other and says nothing of how long the run is.
IS_AS_MUCH = r"\s*(?:[~≈=:]+|is|are|takes)\s*(?:about|around|roughly)?\W{0,2}"
EPOCH_IN_STEPS = re.compile(rf"^\W{{0,2}}(?:full\s)?(?:epoch|pass){IS_AS_MUCH}\d", re.IGNORECASE)
STEPS_OF_EPOCH = re.compile(
    rf"\b(?:1|one|an|a|per|each)\s(?:full\s)?(?:epoch|pass){IS_AS_MUCH}$", re.IGNORECASE
)
# A factor of a product is no claim by itself: "32 grad_accum * 1024 tokens = 32,768".
FACTOR_BEFORE, FACTOR_AFTER = re.compile(r"[*×x]\s*$"), re.compile(r"^\s?(?:[A-Za-z_ ]{0,24}\s)?[*×x]\s*\d")
# What one forward pass holds, where accumulation makes several of them a step.
MICRO = re.compile(r"\bmicro\W?(?:step|batch)|\bforward\b", re.IGNORECASE)
PER_STEP = re.compile(
    r"\b(?:per|a|each|every|one|an)\s+(?:\w+\s)?(?:step|update|iter(?:ation)?|batch)\b|\btokens?/(?:step|iter)",
    re.IGNORECASE,
)
# "batch of 0.5M tokens": a step's, or a micro-batch's.
BATCH_OF = re.compile(r"\bbatch(?:es)?(?:\W?size)?\s+(?:of|is|=|about|:)[\s~≈]*$", re.IGNORECASE)
# Whose batch a rule of thumb quotes.
OF_A_PAPER = re.compile(r"\bGPT-?[34]\b|\bGPT-2's\b", re.IGNORECASE)
HEAD_AFTER = re.compile(
    r"^\W{0,2}(?:(?:channels|dims?|dimensions|wide|numbers)\W+)?(?:per|a|each|in each)\W+head\b",
    re.IGNORECASE,
)
HEAD_BEFORE = re.compile(
    r"\bhead(?:s of|\W?(?:size|dim(?:ension)?))(?:\W+(?:of|is|about))?\W*$", re.IGNORECASE
)
CONTEXT_AFTER = re.compile(r"^\W{0,2}(?:tokens|characters|chars)\W+(?:of\W+)?context\b", re.IGNORECASE)
# nanoGPT's own "context of up to 256 previous characters" is copied with every other block_size.
CONTEXT_BEFORE = re.compile(
    r"\bcontext(?:\W?(?:length|size|window))?(?:\W+(?:of|is))?(?:\W+(?:up to|at most))?\W*$", re.IGNORECASE
)
EFFECTIVE_BATCH = re.compile(
    r"\b(?:effective|global|total|real)\W+batch(?:\W?size)?(?:\W+(?:of|is|about))?\W*$", re.IGNORECASE
)
STEPS = re.compile(r"^\W{0,2}(?:steps|iters|iterations|updates)\b", re.IGNORECASE)
# "50k steps in total", "train for ~50,000 iterations", and nothing else.
IN_ALL = re.compile(
    r"\b(?:total|in all|altogether)\b"
    r"|^\W*(?:(?:train|run)s?\s(?:for\s)?)?(?:about\s|around\s)?\W*\d[\d.,_]*\s?k?\s\w+\W*$",
    re.IGNORECASE,
)
PART_OF_THE_RUN = re.compile(
    r"\b(?:every|each|first|after|per|last|at|by|until|warm\W?up|decay)\W+$", re.IGNORECASE
)
# "2.5 hours per 1B tokens", "every 500 steps = 262M tokens": an amount of a part, or of a rate.
OF_A_PART = re.compile(
    r"(?:\bper|/)\s*~?$|\b(?:every|each|after|first|last|at|by|until|warm\W?up|decay\w*)\b[^.;,]*$",
    re.IGNORECASE,
)
PERCENT = re.compile(r"^\s?(?:%|percent)")
# Words that make a number of tokens the corpus's and not the run's.
DATA_WORDS = re.compile(
    r"\b(?:data(?:set)?|corpus|sample|split|file|shards?|train\.bin|val(?:idation)?|evals?|evaluat\w+)\b",
    re.IGNORECASE,
)
# Words that open what follows: a quotation does not end with them.
DANGLING = re.compile(
    r"(?:\s+(?:in|for|of|to|on|at|by|with|and|or|the|a|an|about|around|is|are|per|over|from))+$",
    re.IGNORECASE,
)


def stale_comment(reading: Reading) -> Iterator[Verdict]:
    """Every number that names what it counts, in a comment of the config or beside settings that a log echoes
    or that were pasted with it, is recomputed from the values beside it: tokens in the whole run, tokens or
    sequences in one step, passes over the data, the head's size, the context, the warm-up's share. A claim
    agrees if any reading of it does (a token count may be meant for a step or for the run); only a claim that
    no reading supports is reported. Comments whose subject is not certain are left alone.
    """
    for comment in comments_of(reading):
        for claim in claims_in(comment):
            truths = [] if of_another_run(claim) or _is_factor(claim) else _truths(reading, claim)
            if truths and not claim.agrees(*(truth.number for truth in truths)):
                nearest = min(truths, key=lambda truth: _times_apart(truth.number, claim.value))
                yield finding(
                    "stale-comment",
                    Severity.WARNING,
                    Confidence.CERTAIN,
                    f"A comment says {_in_words(claim)}; the values give {_with_reason(nearest)}.",
                    [claim.fact(), nearest],
                    actions=[
                        Action(
                            f"Correct the comment in line {comment.line} of the"
                            f" {'log' if comment.in_log else 'config'}."
                        )
                    ],
                )


def _times_apart(truth: float, claimed: float) -> float:
    """How many times the larger of two numbers is the smaller; a claim may be of 0."""
    low, high = sorted((truth, claimed))
    return high / low if low > 0 else math.inf


def _set_to(reading: Reading, name: str) -> Fact | None:
    """What a setting was written down as, beside comments: in the config, or in the log."""
    return reading.settings.given.get(name) or reading.settings.logged.get(name)


def _is_factor(claim: Claim) -> bool:
    return bool(FACTOR_BEFORE.search(claim.before) or FACTOR_AFTER.match(claim.after))


def _with_reason(truth: Fact) -> str:
    if truth.origin in (Origin.CONFIGURED, Origin.LOGGED):
        return f"{truth.name} = {truth.text}"
    return f"{truth.text} ({truth.reason})"


def _in_words(claim: Claim) -> str:
    """The claim with the words after it, or, where none follow, those before it."""
    written = f"{claim.written} %" if PERCENT.match(claim.after) else claim.written
    after = re.match(r"\W{0,2}((?:\w+\s?){0,3})", claim.after)
    words = DANGLING.sub("", after[1].strip()) if after else ""
    if words:
        return f"{written} {words}"
    before = re.search(r"((?:\w+\W{1,3}){0,3})$", claim.before)
    return f"{before[1] if before else ''}{written}"


def _truths(reading: Reading, claim: Claim) -> list[Fact]:
    """What a claim may be about, computed from the values; empty where its subject is not certain."""
    subjects = (_head_size, _context, _warmup, _steps_of_the_run)
    found = next((truths for subject in subjects if (truths := subject(reading, claim))), [])
    configured = reading.speed.configured_tokens_per_step
    if found or configured is None:
        return found
    of_batch = (_batch_product, _effective_batch, _tokens, _sequences_of_a_step, _passes)
    return next((truths for subject in of_batch if (truths := subject(reading, claim, configured))), [])


def _head_size(reading: Reading, claim: Claim) -> list[Fact]:
    width, heads = (_set_to(reading, name) for name in ("n_embd", "n_head"))
    if (
        width is None
        or heads is None
        or not (HEAD_AFTER.match(claim.after) or HEAD_BEFORE.search(claim.before))
    ):
        return []
    return [derived("head_size", width.number / heads.number, "n_embd / n_head")]


def _context(reading: Reading, claim: Claim) -> list[Fact]:
    context = _set_to(reading, "block_size")
    about = CONTEXT_AFTER.match(claim.after) or CONTEXT_BEFORE.search(claim.before)
    return [context] if context is not None and about else []


def _warmup(reading: Reading, claim: Claim) -> list[Fact]:
    """Steps of warm-up, or its share of the run in percent."""
    warmup, steps = (_set_to(reading, name) for name in ("warmup_iters", "max_iters"))
    if warmup is None or claim.comment.field != "warmup_iters":
        return []
    if STEPS.match(claim.after):
        return [warmup]
    if steps is None or not PERCENT.match(claim.after):
        return []
    return [
        derived("warmup_percent", 100 * warmup.number / steps.number, "percent: warmup_iters / max_iters")
    ]


def _steps_of_the_run(reading: Reading, claim: Claim) -> list[Fact]:
    """Steps beside max_iters or lr_decay_iters, or in all."""
    steps = _set_to(reading, "max_iters")
    own = claim.comment.field in ("max_iters", "lr_decay_iters")
    in_all = IN_ALL.search(claim.comment.text)
    if steps is None or not STEPS.match(claim.after) or not (own or in_all):
        return []
    if PART_OF_THE_RUN.search(claim.before):
        return []
    others = (_set_to(reading, name) for name in ("lr_decay_iters", "warmup_iters"))
    return [steps, *(fact for fact in others if fact is not None)]


def _is_per_step(claim: Claim) -> bool:
    return bool(PER_STEP.search(claim.after) or PER_STEP.search(claim.before))


def _batch_product(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    if not BATCH_PRODUCT.search(claim.before):
        return []
    return [configured, _sequences(configured, reading), *_micro_batch(reading)]


def _effective_batch(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    if not EFFECTIVE_BATCH.search(claim.before):
        return []
    sequences = _sequences(configured, reading)
    per_device = reading.machine.count
    return [configured, sequences, derived("sequences", sequences.number * per_device, "over all devices")]


def _tokens(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    """Tokens of a step where the comment says so, else of the run; a comment on the data is about that."""
    named = TOKEN_WORDS.match(claim.after) or TOKENS_BEFORE.search(claim.before)
    if not named or SIZE_WORDS.match(claim.after) or OF_A_PAPER.search(claim.before):
        return []
    if BATCH_OF.search(claim.before):
        return [configured, *_micro_batch(reading)]
    if _is_per_step(claim):
        return [configured, *(_micro_batch(reading) if MICRO.search(claim.comment.text) else ())]
    planned, comment = _set_to(reading, "max_iters"), claim.comment
    # Beside a setting that is not about the length of the run, an amount of tokens is not the run's.
    of_the_run = comment.field in OF_THE_RUN and not OF_A_PART.search(claim.before)
    about_data = DATA_WORDS.search(comment.text)
    if planned is None or about_data or not of_the_run or claim.value < max(1e6, configured.number):
        return []
    return [configured, _planned_tokens(configured, planned)]


def _micro_batch(reading: Reading) -> list[Fact]:
    """Tokens of one forward pass."""
    batch, context = (_set_to(reading, name) for name in ("batch_size", "block_size"))
    if batch is None or context is None:
        return []
    return [derived("micro_batch_tokens", int(batch.number * context.number), "batch_size × block_size")]


def _sequences_of_a_step(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    a_product = claim.before.rstrip().endswith("=")
    if SEQUENCE_WORDS.match(claim.after) and _is_per_step(claim) and a_product:
        return [_sequences(configured, reading)]
    return []


def _passes(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    unique, planned = reading.settings.get("train_tokens"), _set_to(reading, "max_iters")
    if unique is not None and STEPS.match(claim.after) and STEPS_OF_EPOCH.search(claim.before):
        formula = f"{unique.text} training tokens / {configured.text} a step"
        return [derived("steps_per_epoch", unique.number / configured.number, formula)]
    if not EPOCH_WORDS.match(claim.after) or unique is None or planned is None:
        return []
    if EPOCH_IN_STEPS.match(claim.after):
        return []
    tokens = _planned_tokens(configured, planned)
    formula = f"{tokens.text} tokens / {unique.text} training tokens"
    return [derived("epochs", tokens.number / unique.number, formula)]


def _sequences(configured: Fact, reading: Reading) -> Fact:
    context = _set_to(reading, "block_size")
    value = int(configured.number) // int(context.number if context is not None else 1)
    return derived("sequences_per_step", value, "batch_size × gradient_accumulation_steps", unit="sequences")


def _planned_tokens(configured: Fact, planned: Fact) -> Fact:
    value = configured.number * planned.number
    formula = f"{planned.number:,.0f} steps × {configured.text} tokens"
    return derived("planned_tokens", int(value), formula, unit="tokens")


RULES = (Rule("stale-comment", stale_comment),)
