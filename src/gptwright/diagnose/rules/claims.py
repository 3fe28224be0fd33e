"""What comments and names claim, against the values beside them.

People copy a config, change its values and leave its comments. One public config kept "~125M parameters"
while its width went from 512 to 384 and its model to 40.56M.
"""

import math
import re
from collections.abc import Iterator, Sequence

from gptwright import units
from gptwright.diagnose.claims import (
    BATCH_OF,
    BATCH_PRODUCT,
    CONTEXT_AFTER,
    CONTEXT_BEFORE,
    CORPUS_IN_NAME,
    DANGLING,
    DATA_WORDS,
    EFFECTIVE_BATCH,
    EPOCH_IN_STEPS,
    EPOCH_WORDS,
    FACTOR_AFTER,
    FACTOR_BEFORE,
    HEAD_AFTER,
    HEAD_BEFORE,
    IN_ALL,
    LOOSE,
    MICRO,
    MODEL_NAME_BEFORE,
    NOT_OF_THIS_RUN,
    OF_A_PAPER,
    OF_A_PART,
    OF_A_RULE,
    ONLY_A_SIZE,
    PART_OF_THE_RUN,
    PER_STEP,
    PERCENT,
    SCALES,
    SEQUENCE_WORDS,
    SHAPE_FIELDS,
    SIZE_BEFORE,
    SIZE_IN_NAME,
    SIZE_WORDS,
    STEPS,
    STEPS_OF_EPOCH,
    TIGHT,
    TOKEN_WORDS,
    TOKENS_BEFORE,
    TOKENS_IN_NAME,
    Claim,
    claims_in,
)
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.facts import Fact, Origin, derived
from gptwright.findings import Action, Confidence, Severity
from gptwright.record.evidence import Comment

# Settings beside which a number of tokens is the run's, or a step's.
OF_THE_RUN = (
    None,
    "max_iters",
    "lr_decay_iters",
    "batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
)


def size_label_mismatch(reading: Reading) -> Iterator[Verdict]:
    """A claimed model size is held against every way of counting: nanoGPT's (without the position table), all
    parameters, those outside the embeddings, and matrices alone. It fires only when none of them is within
    the rounding of the claim, so "124M" and "125M" for GPT-2 small are both right. Claims are read where a
    number with M or B stands beside a word such as parameters, weights or model, after a model's name, alone
    beside the shape, and in run and folder names; not where the words before it say that it is another's. The
    comments of a config count, and those beside settings that a log echoes or that were pasted with it.
    Source: a public config that carried "~125M" over 63.5M, 76.8M, 61.9M and 40.6M.
    """
    counted, config = reading.sizes.parameters, reading.evidence.config
    if counted is None:
        return
    shape = reading.sizes.shape
    truths = [counted.number]
    if shape is not None:
        count = shape.count_parameters()
        truths += [count.total, count.non_embedding, count.matmul]
    wrong = [
        claim
        for comment in _comments(reading)
        for claim in claims_in(comment)
        if _about_size(claim) and not claim.agrees(*truths)
    ]
    facts = [claim.fact() for claim in wrong]
    written = [claim.written for claim in wrong]
    for name in ("out_dir", "wandb_run_name", "wandb_project"):
        label = config.settings.get(name) if config is not None else None
        if label is None:
            continue
        for size in _wrong_sizes(str(label.value), truths, reading):
            facts.append(label)
            written.append(size)
    place = "log" if all(fact.origin is Origin.LOGGED for fact in facts) else "config"
    if facts:
        yield finding(
            "size-label-mismatch",
            Severity.WARNING,
            Confidence.CERTAIN,
            f"The {place} says {' and '.join(dict.fromkeys(written))}; its values make a model of"
            f" {units.count(counted.number)} parameters.",
            [*facts, counted],
            actions=[
                Action(f"Correct the label to {units.count(counted.number)}, or change n_layer and n_embd.")
            ],
        )


def _comments(reading: Reading) -> tuple[Comment, ...]:
    """Comments of the config, and those of the log that are not an echo of them."""
    config, log = reading.evidence.config, reading.log
    own = config.comments if config else ()
    known = {comment.text.strip() for comment in own}
    return (*own, *(comment for comment in (log.comments if log else ()) if comment.text not in known))


def _set_to(reading: Reading, name: str) -> Fact | None:
    """What a setting was written down as, beside comments: in the config, or in the log."""
    return reading.settings.given.get(name) or reading.settings.logged.get(name)


def _wrong_sizes(name: str, truths: Sequence[float], reading: Reading) -> list[str]:
    """The sizes in a name, if none of them is the model's: the others are tokens, as in 124M-10B."""
    planned, wrong = reading.progress.planned_tokens, []
    for match in SIZE_IN_NAME.finditer(name):
        value = float(match[1]) * SCALES[match[2].lower()]
        if any(truth / TIGHT <= value <= truth * TIGHT for truth in truths):
            return []
        of_run = planned is not None and planned.number / LOOSE <= value <= planned.number * LOOSE
        of_text = CORPUS_IN_NAME.search(name[: match.start()]) or TOKENS_IN_NAME.match(name[match.end() :])
        if not (of_run or of_text):
            wrong.append(match[0])
    return wrong


def _about_size(claim: Claim) -> bool:
    """Whether a claim is about the model's size: a large number beside a word for a model, not of tokens."""
    if claim.value < 1e5 or TOKEN_WORDS.match(claim.after) or _of_another_run(claim):
        return False
    if SIZE_WORDS.match(claim.after) or SIZE_BEFORE.search(claim.before):
        return True
    comment = claim.comment
    if comment.field in SHAPE_FIELDS:
        return bool(ONLY_A_SIZE.match(comment.text) or MODEL_NAME_BEFORE.search(claim.before))
    return comment.field is None and bool(MODEL_NAME_BEFORE.search(claim.before))


def _of_another_run(claim: Claim) -> bool:
    """Whether the words before a number say that it is not this run's."""
    of_a_rule = claim.comment.field is None and OF_A_RULE.search(claim.before)
    return bool(of_a_rule or NOT_OF_THIS_RUN.search(claim.before))


def stale_comment(reading: Reading) -> Iterator[Verdict]:
    """Every number that names what it counts, in a comment of the config or beside settings that a log echoes
    or that were pasted with it, is recomputed from the values beside it: tokens in the whole run, tokens or
    sequences in one step, passes over the data, the head's size, the context, the warm-up's share. A claim
    agrees if any reading of it does (a token count may be meant for a step or for the run); only a claim that
    no reading supports is reported. Comments whose subject is not certain are left alone.
    """
    for comment in _comments(reading):
        for claim in claims_in(comment):
            truths = [] if _of_another_run(claim) or _is_factor(claim) else _truths(reading, claim)
            if truths and not claim.agrees(*(truth.number for truth in truths)):
                nearest = min(truths, key=lambda truth: abs(math.log(truth.number / claim.value)))
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


RULES = (Rule("size-label-mismatch", size_label_mismatch), Rule("stale-comment", stale_comment))
