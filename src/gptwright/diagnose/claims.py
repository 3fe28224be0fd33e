"""Numbers in comments and names, and the words around them that say whose they are.

A number is a claim only where the words beside it name its subject; words for another model, another time or
a rule of thumb take it back. What claims are held against is in `rules/size_labels.py` and
`rules/stale_comments.py`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gptwright.diagnose.reading import Reading
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
SIZE_WORDS = re.compile(
    r"^[\s(~-]{0,2}(?:[^\W\d]\w*\s){0,1}?(?:param\w{0,8}|weights|network|net|model|gpt|transformer|llm|lm)\b",
    re.IGNORECASE,
)
TOKEN_WORDS = re.compile(
    r"^[\s(~-]{0,2}(?:[^\W\d]\w*\s){0,2}?(?:tokens?|toks?|characters|chars)\b", re.IGNORECASE
)
# Words that make a number another model's, another time's or nobody's: "smaller than the 124M model".
NOT_OF_THIS_RUN = re.compile(
    r"\b(?:than|unlike|(?<!-)like|not|never|instead|versus|vs|compared|was|were|had|used to be"
    r"|formerly|earlier"
    r"|previously|old|would|want\w*|recommend\w*|paper|table|published|reference|original|loss of|rate of"
    r"|lr of|settings of|follow\w*|taken from|copied from|borrowed from)\b",
    re.IGNORECASE,
)
# A rule's number in a line of its own; beside a setting it is a claim about that.
OF_A_RULE = re.compile(r"\b(?:chinchilla|optimal|optimum|target)\b", re.IGNORECASE)
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


def comments_of(reading: Reading) -> tuple[Comment, ...]:
    """Comments of the config, and those of the log that are not an echo of them."""
    config, log = reading.evidence.config, reading.log
    own = config.comments if config else ()
    known = {comment.text.strip() for comment in own}
    return (*own, *(comment for comment in (log.comments if log else ()) if comment.text not in known))


def of_another_run(claim: Claim) -> bool:
    """Whether the words before a number say that it is not this run's."""
    of_a_rule = claim.comment.field is None and OF_A_RULE.search(claim.before)
    return bool(of_a_rule or NOT_OF_THIS_RUN.search(claim.before))
