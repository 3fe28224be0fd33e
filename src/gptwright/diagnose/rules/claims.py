"""What comments and names claim, against the values beside them.

People copy a config, change its values and leave its comments. One public config kept "~125M parameters"
while its width went from 512 to 384 and its model to 40.56M.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gptwright import units
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.facts import Fact, Origin, derived
from gptwright.findings import Action, Confidence, Severity
from gptwright.record.evidence import Comment

SCALES = {
    "k": 1e3,
    "m": 1e6,
    "b": 1e9,
    "t": 1e12,
    "million": 1e6,
    "billion": 1e9,
    "thousand": 1e3,
    "trillion": 1e12,
}
NUMBER = r"(?P<number>\d{1,3}(?:[,_ ]\d{3})+|\d+(?:\.\d+)?(?:e\d+)?)"
SCALE = r"(?P<scale>[kmbt]|million|billion|thousand|trillion)?"
# "125M", "0.5 million", "524,288", "2.5e9" in front of the word that says what is counted.
QUANTITY = re.compile(rf"(?<![\w.,-]){NUMBER}\s?{SCALE}(?![\w.])", re.IGNORECASE)
# A size in a name: gpt2-124M, run_350m, "out-1.5B".
SIZE_IN_NAME = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([MmBb])(?![A-Za-z0-9])")
SIZE_WORDS = re.compile(
    r"^\W{0,2}(?:\w+\s){0,1}?(?:param\w{0,8}|weights|network|net|model|gpt|transformer|llm|lm)\b",
    re.IGNORECASE,
)
SIZE_BEFORE = re.compile(
    r"\b(?:param(?:eter)?s?|weights|network|net|model)\W{0,3}"
    r"(?:(?:size|count|of|is|has|with|about|around|roughly|be)\W{1,3}){0,3}\W*$",
    re.IGNORECASE,
)
# "GPT-2 small (124M)", "gpt2-medium, 350M".
MODEL_NAME_BEFORE = re.compile(
    r"\b(?:nano)?gpt[- ]?\d?(?:[- ](?:mini|nano|small|medium|large|xl))?[\s,:(~≈]{1,4}$", re.IGNORECASE
)
# A comment that is nothing but a size: "124M", "~ 0.35B".
ONLY_A_SIZE = re.compile(r"^\W*\d+(?:\.\d+)?\s?[MB]\W*$")
SHAPE_FIELDS = ("n_layer", "n_head", "n_embd", "model_type")
# Words that make a number another model's, another time's or nobody's: "smaller than the 124M model".
NOT_OF_THIS_RUN = re.compile(
    r"\b(?:than|unlike|(?<!-)like|not|never|instead|versus|vs|compared|was|were|used to be|formerly"
    r"|previously|old|would|want\w*|recommend\w*|paper|table|published|reference|original|loss of|rate of"
    r"|lr of|settings of|follow\w*|taken from|copied from|borrowed from)\b",
    re.IGNORECASE,
)
# A rule's number in a line of its own; beside a setting it is a claim about that.
OF_A_RULE = re.compile(r"\b(?:chinchilla|optimal|optimum|target)\b", re.IGNORECASE)
TOKEN_WORDS = re.compile(r"^\W{0,2}(?:\w+\s){0,2}?(?:tokens?|toks?|characters|chars)\b", re.IGNORECASE)
TOKENS_BEFORE = re.compile(r"\btokens?\W+(?:(?:be|is|are|about|around|roughly)\W+){0,2}$", re.IGNORECASE)
# "12 batch size * 1024 block size * 5 gradaccum = 491,520": what a product of batch settings comes to.
BATCH_PRODUCT = re.compile(r"\bbatch\b.*[*×x].*=\s*~?$", re.IGNORECASE)
SEQUENCE_WORDS = re.compile(r"^\W{0,2}(?:\w+\s){0,1}?(?:sequences|samples|examples|windows)\b", re.IGNORECASE)
EPOCH_WORDS = re.compile(r"^\W{0,2}(?:full\s)?(?:epochs?|passes)\b", re.IGNORECASE)
PER_STEP = re.compile(
    r"\b(?:per|a|each|every|one|an)\s+(?:\w+\s)?(?:step|update|iter(?:ation)?|batch)\b|\btokens?/(?:step|iter)",
    re.IGNORECASE,
)
HEAD_AFTER = re.compile(
    r"^\W{0,2}(?:channels|dims?|dimensions|wide|numbers)\W+(?:per|a|each|in each)\W+head\b", re.IGNORECASE
)
HEAD_BEFORE = re.compile(
    r"\bhead(?:s of|\W?(?:size|dim(?:ension)?))(?:\W+(?:of|is|about))?\W*$", re.IGNORECASE
)
CONTEXT_AFTER = re.compile(r"^\W{0,2}(?:tokens|characters|chars)\W+(?:of\W+)?context\b", re.IGNORECASE)
CONTEXT_BEFORE = re.compile(r"\bcontext(?:\W?(?:length|size|window))?(?:\W+(?:of|is))?\W*$", re.IGNORECASE)
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
PERCENT = re.compile(r"^\s?(?:%|percent)")

# Words that make a number of tokens the corpus's and not the run's.
DATA_WORDS = re.compile(
    r"\b(?:data(?:set)?|corpus|sample|split|file|shards?|train\.bin|val)\b", re.IGNORECASE
)

# How far a claim may be off: "125M" for 123.59M is a label, "3B" for 10.5B is wrong. Rounding to one digit
# moves a number by up to a third (1.5 → 2 or 1); a label of two or three digits may be a neighbouring
# convention's (124M with positions, 123.6M without); who writes four digits or more means that number.
LOOSE, TIGHT, EXACT = 1.34, 1.12, 1.01


@dataclass(frozen=True, slots=True)
class Claim:
    """A number with its scale in a comment, and the text around it."""

    value: float
    digits: int
    written: str
    before: str
    after: str
    comment: Comment

    def agrees(self, *truths: float) -> bool:
        """Whether the claim is one of the true values within the rounding of its own digits."""
        factor = LOOSE if self.digits == 1 else TIGHT if self.digits < 4 else EXACT
        return any(truth / factor <= self.value <= truth * factor for truth in truths)

    def fact(self) -> Fact:
        """The claim as evidence."""
        field = self.comment.field or f"comment in line {self.comment.line}"
        return Fact(
            name="claim",
            value=self.comment.text.strip(),
            text=self.written,
            origin=Origin.CONFIGURED,
            reason=f"comment in line {self.comment.line} of the config",
            source=f"config:{field}",
        )


def claims_in(comment: Comment) -> Iterator[Claim]:
    """All quantities in a comment."""
    for match in QUANTITY.finditer(comment.text):
        number = re.sub(r"[,_ ]", "", match["number"])
        scale = SCALES.get((match["scale"] or "").lower(), 1.0)
        digits = len(number.split("e")[0].replace(".", "").strip("0")) or 1
        text = comment.text
        yield Claim(
            float(number) * scale,
            digits if scale != 1.0 else len(number),
            match[0].strip(),
            text[: match.start()],
            text[match.end() :],
            comment,
        )


def size_label_mismatch(reading: Reading) -> Iterator[Verdict]:
    """A claimed model size is held against every way of counting: nanoGPT's (without the position table), all
    parameters, those outside the embeddings, and matrices alone. It fires only when none of them is within
    the rounding of the claim, so "124M" and "125M" for GPT-2 small are both right. Claims are read where a
    number with M or B stands beside a word such as parameters, weights or model, after a model's name, alone
    beside the shape, and in run and folder names; not where the words before it say that it is another's.
    Source: a public config that carried "~125M" over 63.5M, 76.8M, 61.9M and 40.6M.
    """
    counted, config = reading.sizes.parameters, reading.evidence.config
    if counted is None or config is None:
        return
    shape = reading.sizes.shape
    truths = [counted.number]
    if shape is not None:
        count = shape.count_parameters()
        truths += [count.total, count.non_embedding, count.matmul]
    wrong = [
        claim
        for comment in config.comments
        for claim in claims_in(comment)
        if _about_size(claim) and not claim.agrees(*truths)
    ]
    facts = [claim.fact() for claim in wrong]
    written = [claim.written for claim in wrong]
    for name in ("out_dir", "wandb_run_name", "wandb_project"):
        label = config.settings.get(name)
        for match in SIZE_IN_NAME.finditer(str(label.value)) if label is not None else ():
            value = float(match[1]) * SCALES[match[2].lower()]
            if not any(truth / TIGHT <= value <= truth * TIGHT for truth in truths):
                facts.append(label)  # type: ignore[arg-type]
                written.append(match[0])
    if facts:
        yield finding(
            "size-label-mismatch",
            Severity.WARNING,
            Confidence.CERTAIN,
            f"The config says {' and '.join(dict.fromkeys(written))}; its values make a model of"
            f" {units.count(counted.number)} parameters.",
            [*facts, counted],
            actions=[
                Action(f"Correct the label to {units.count(counted.number)}, or change n_layer and n_embd.")
            ],
        )


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
    """Every number in a config comment that names what it counts is recomputed from the values beside it:
    tokens in the whole run, tokens or sequences in one step, passes over the data, the head's size, the
    context, the warm-up's share. A claim agrees if any reading of it does (a token count may be meant for a
    step or for the run); only a claim that no reading supports is reported. Comments whose subject is not
    certain are left alone.
    """
    config = reading.evidence.config
    if config is None:
        return
    for comment in config.comments:
        for claim in claims_in(comment):
            truths = [] if _of_another_run(claim) else _truths(reading, claim)
            if truths and not claim.agrees(*(truth.number for truth in truths)):
                nearest = min(truths, key=lambda truth: abs(math.log(truth.number / claim.value)))
                yield finding(
                    "stale-comment",
                    Severity.WARNING,
                    Confidence.CERTAIN,
                    f"A comment says {_in_words(claim)}; the values give {_with_reason(nearest)}.",
                    [claim.fact(), nearest],
                    actions=[Action(f"Correct the comment in line {comment.line} of the config.")],
                )


def _with_reason(truth: Fact) -> str:
    if truth.origin is Origin.CONFIGURED:
        return f"{truth.name} = {truth.text}"
    return f"{truth.text} ({truth.reason})"


def _in_words(claim: Claim) -> str:
    """The claim with the words after it, or, where none follow, those before it."""
    after = re.match(r"\W{0,2}((?:\w+\s?){0,3})", claim.after)
    if after and after[1].strip():
        return f"{claim.written} {after[1].strip()}"
    before = re.search(r"((?:\w+\W{1,3}){0,3})$", claim.before)
    return f"{before[1] if before else ''}{claim.written}"


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
    width, heads = (reading.settings.given.get(name) for name in ("n_embd", "n_head"))
    if (
        width is None
        or heads is None
        or not (HEAD_AFTER.match(claim.after) or HEAD_BEFORE.search(claim.before))
    ):
        return []
    return [derived("head_size", width.number / heads.number, "n_embd / n_head")]


def _context(reading: Reading, claim: Claim) -> list[Fact]:
    context = reading.settings.given.get("block_size")
    about = CONTEXT_AFTER.match(claim.after) or CONTEXT_BEFORE.search(claim.before)
    return [context] if context is not None and about else []


def _warmup(reading: Reading, claim: Claim) -> list[Fact]:
    """Steps of warm-up, or its share of the run in percent."""
    warmup, steps = (reading.settings.given.get(name) for name in ("warmup_iters", "max_iters"))
    if warmup is None or claim.comment.field != "warmup_iters":
        return []
    if STEPS.match(claim.after):
        return [warmup]
    if steps is None or not PERCENT.match(claim.after):
        return []
    return [derived("warmup_percent", 100 * warmup.number / steps.number, "warmup_iters / max_iters")]


def _steps_of_the_run(reading: Reading, claim: Claim) -> list[Fact]:
    """Steps beside max_iters or lr_decay_iters, or in all."""
    steps = reading.settings.given.get("max_iters")
    own = claim.comment.field in ("max_iters", "lr_decay_iters")
    in_all = IN_ALL.search(claim.comment.text)
    if steps is None or not STEPS.match(claim.after) or not (own or in_all):
        return []
    if PART_OF_THE_RUN.search(claim.before):
        return []
    others = (reading.settings.given.get(name) for name in ("lr_decay_iters", "warmup_iters"))
    return [steps, *(fact for fact in others if fact is not None)]


def _is_per_step(claim: Claim) -> bool:
    return bool(PER_STEP.search(claim.after) or PER_STEP.search(claim.before))


def _batch_product(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    return [configured, _sequences(configured, reading)] if BATCH_PRODUCT.search(claim.before) else []


def _effective_batch(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    if not EFFECTIVE_BATCH.search(claim.before):
        return []
    sequences = _sequences(configured, reading)
    per_device = reading.machine.count
    return [configured, sequences, derived("sequences", sequences.number * per_device, "over all devices")]


def _tokens(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    """Tokens of a step where the comment says so, else of the run; a comment on the data is about that."""
    if not (TOKEN_WORDS.match(claim.after) or TOKENS_BEFORE.search(claim.before)):
        return []
    if _is_per_step(claim):
        return [configured]
    planned, comment = reading.settings.given.get("max_iters"), claim.comment
    about_data = comment.field in ("dataset", "block_size", "eval_iters") or DATA_WORDS.search(comment.text)
    if planned is None or about_data or claim.value < max(1e6, configured.number):
        return []
    return [configured, _planned_tokens(configured, planned)]


def _sequences_of_a_step(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    a_product = claim.before.rstrip().endswith("=")
    if SEQUENCE_WORDS.match(claim.after) and _is_per_step(claim) and a_product:
        return [_sequences(configured, reading)]
    return []


def _passes(reading: Reading, claim: Claim, configured: Fact) -> list[Fact]:
    unique, planned = reading.settings.get("train_tokens"), reading.settings.given.get("max_iters")
    if not EPOCH_WORDS.match(claim.after) or unique is None or planned is None:
        return []
    tokens = _planned_tokens(configured, planned)
    formula = f"{tokens.text} tokens / {unique.text} training tokens"
    return [derived("epochs", tokens.number / unique.number, formula)]


def _sequences(configured: Fact, reading: Reading) -> Fact:
    value = int(configured.number) // int(reading.settings.given["block_size"].number)
    return derived("sequences_per_step", value, "batch_size × gradient_accumulation_steps", unit="sequences")


def _planned_tokens(configured: Fact, planned: Fact) -> Fact:
    value = configured.number * planned.number
    formula = f"{planned.number:,.0f} steps × {configured.text} tokens"
    return derived("planned_tokens", int(value), formula, unit="tokens")


RULES = (Rule("size-label-mismatch", size_label_mismatch), Rule("stale-comment", stale_comment))
