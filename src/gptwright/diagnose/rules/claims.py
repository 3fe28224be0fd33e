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
    CHANGED_AFTER,
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
    MORE_THAN_THIS_RUN,
    NAME_WITH_SIZE,
    NOT_OF_THIS_RUN,
    OF_A_FEATURE,
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

# What people put a size into.
NAMES = ("out_dir", "output_dir", "wandb_run_name", "wandb_project", "run_name", "model_name", "model_tag")
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
    place = "log" if all(fact.origin is Origin.LOGGED for fact in facts) else "config"
    if all(fact.source == "fact:note" for fact in facts):
        place = "note"
    size = units.count(counted.number)
    yield finding(
        "size-label-mismatch",
        Severity.WARNING,
        Confidence.CERTAIN,
        f"The {place} says {' and '.join(written)}; {_in_words_of_its_source(counted, place)} {size}"
        " parameters.",
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
        for comment in _comments(reading)
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


def _in_words_of_its_source(counted: Fact, place: str) -> str:
    if counted.origin is Origin.LOGGED:
        return "the log counts"
    whose = "the run's" if place == "note" else "its"
    return f"{whose} values make a model of"


def _note_on_this_run(reading: Reading) -> Fact | None:
    """What was said about the run, where it speaks of no other."""
    note = reading.settings.stated.get("note")
    if note is None or MORE_THAN_THIS_RUN.search(str(note.value)) or NOT_OF_THIS_RUN.search(str(note.value)):
        return None
    return note


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
    return bool(of_a_rule or NOT_OF_THIS_RUN.search(claim.before) or _is_made_of(claim))


def _is_made_of(claim: Claim) -> bool:
    """Whether a size is that of a model of which something was taken, or changed."""
    if claim.value < 1e6:
        return False
    return bool(OF_A_FEATURE.search(claim.before) or CHANGED_AFTER.match(claim.after))


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
