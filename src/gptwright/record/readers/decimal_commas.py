"""Decimal commas: spreadsheets, localized tools and people who retype a log write `loss 4,21`.

Readers know points only, and the `4` in front of a comma is no loss. A text writes decimal commas if a loss
in it has one. There a comma becomes a point where it cannot part thousands: behind a lone zero, in front of
one, two or more than three digits, and in a loss, which never has thousands. Who writes decimal commas parts
the thousands of a counter with a space.
"""

import re

# A text is known by its beginning; looking through all of a million lines would cost more than reading them.
LOOKED_AT = 20_000
# Digits up to the end of a number that has no further comma or point.
END = r"(?!\d|[.,]\d)"
NO_THOUSANDS = r"(?:\d{1,2}|\d{4,20})"
# `train: 12,500` may be a number of documents.
LOSS = re.compile(
    rf"((?<![a-z])(?:loss[^\w\n]{{1,8}}\d{{1,2}}(?=,\d{{1,20}}{END})"
    rf"|(?:train(?:ing)?|val(?:id(?:ation)?)?)[^\w\n]{{1,8}}\d{{1,2}}(?=,{NO_THOUSANDS}{END}))),",
    re.IGNORECASE,
)
FRACTION = re.compile(rf"(?<![\w.,])(0(?=,\d{{1,20}}{END})|\d{{1,12}}(?=,{NO_THOUSANDS}{END})),")
# A counter whose thousands a space parts: `step 1 000`.
PARTED = re.compile(
    r"(?<![a-z])((?:step|iter(?:ation)?|update)s?[^\w\n]{1,3}\d{1,3})"
    r"((?:[ \u202f\xa0]\d{3})+)(?![\d.,])",
    re.IGNORECASE,
)
# A whole cell of a table.
LOSS_CELL = re.compile(r"(\d{1,2}),(\d{1,20})")


def with_points(text: str) -> tuple[str, int]:
    """A text with points for its decimal commas, and how many there were."""
    if LOSS.search(text, 0, LOOKED_AT) is None:
        return text, 0
    text = PARTED.sub(lambda found: found[1] + re.sub(r"\s", "", found[2]), text)
    text, losses = LOSS.subn(r"\1.", text)
    text, others = FRACTION.subn(r"\1.", text)
    return text, losses + others
