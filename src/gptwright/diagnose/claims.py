"""Numbers in comments and names, and the words around them that say what they count.

A number is a claim only where the words beside it name its subject; words for another model, another time or
a rule of thumb take it back. What the claims are held against is in `rules/claims.py`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gptwright.facts import Fact, Origin
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
# A power is none: `2^19`, `2**19`.
QUANTITY = re.compile(rf"(?<![\w.,^-])(?<!\*\*){NUMBER}\s?{SCALE}(?![\w.^]|\*\*)", re.IGNORECASE)
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
SIZE_WORDS = re.compile(
    r"^[\s(~-]{0,2}(?:[^\W\d]\w*\s){0,1}?(?:param\w{0,8}|weights|network|net|model|gpt|transformer|llm|lm)\b",
    re.IGNORECASE,
)
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
# Words that make a number another model's, another time's or nobody's: "smaller than the 124M model".
NOT_OF_THIS_RUN = re.compile(
    r"\b(?:than|unlike|(?<!-)like|not|never|instead|versus|vs|compared|was|were|had|used to be"
    r"|formerly|earlier"
    r"|previously|old|would|want\w*|recommend\w*|paper|table|published|reference|original|loss of|rate of"
    r"|lr of|settings of|follow\w*|taken from|copied from|borrowed from)\b",
    re.IGNORECASE,
)
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
# A rule's number in a line of its own; beside a setting it is a claim about that.
OF_A_RULE = re.compile(r"\b(?:chinchilla|optimal|optimum|target)\b", re.IGNORECASE)
TOKEN_WORDS = re.compile(
    r"^[\s(~-]{0,2}(?:[^\W\d]\w*\s){0,2}?(?:tokens?|toks?|characters|chars)\b", re.IGNORECASE
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
        comment = self.comment
        field = comment.field or f"comment in line {comment.line}"
        return Fact(
            name="claim",
            value=comment.text.strip(),
            text=self.written,
            origin=Origin.LOGGED if comment.in_log else Origin.CONFIGURED,
            reason=f"comment in line {comment.line} of the {'log' if comment.in_log else 'config'}",
            source=f"log:{comment.line}" if comment.in_log else f"config:{field}",
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
