"""Sentences about a run: "after 1k steps train was 4.25 and val 4.27", "val is 2.95 at 400k".

Who asks about a run often gives no log but its numbers. A sentence is read where it names a step in the words
of prose, and a loss of training or validation is told by its name; two numbers with a stroke between, as
"3.78 / 3.79", have none and are left out. A sentence that names two steps is read clause by clause, so that
no loss is given the step of another.
"""

import re

from gptwright.record.readers.printed_fields import Printed, counter

COUNT = r"(\d{1,3}(?:,\d{3})+|\d{1,9}(?:\.\d{1,3})?k|\d{1,12})"
# "at 400k" counts steps also without the word; "at 400" may be anything.
PLACE = re.compile(
    r"\b(?:at|after|by|around|until)\s(?:about\s|around\s|step\s|iteration\s|iter\s)?"
    rf"(?:{COUNT}\s(?:steps|iterations|iters|updates)\b|(\d{{1,9}}(?:\.\d{{1,3}})?k)(?![\w.]*\w))",
    re.IGNORECASE,
)
IS = r"\s?(?:loss\s?)?(?:[:=]|is|was|were|of|at|went to|reached|down to)?\s?(?:about\s|around\s|~)?"
NUMBER = r"(\d{1,2}\.\d{1,6})(?![\w.]*[\w%])"
TRAIN = re.compile(rf"\btrain(?:ing)?{IS}{NUMBER}", re.IGNORECASE)
VAL = re.compile(rf"\bval(?:idation)?{IS}{NUMBER}", re.IGNORECASE)
# Where a clause says it is, in prose alone: the line of a trainer has no such word in front.
PLACED = re.compile(
    rf"\b(?:at|after|by|around|until)\s(?:about\s|around\s)?"
    rf"(?:(?:step|iteration|iter)\s{COUNT}|{COUNT}\s(?:steps|iterations|iters|updates)\b|\d{{1,9}}k\b)",
    re.IGNORECASE,
)
CLAUSES = re.compile(r"[,;] |,? (?:and|but|while|then) ", re.IGNORECASE)
FULL_STOP = re.compile(r"(?<=\w)\. ")


def clauses(text: str) -> list[str]:
    """A sentence; where it names several steps in the words of prose, each with what is said of it."""
    if len(PLACED.findall(text)) < 2:
        return [text]
    told: list[str] = []
    for sentence in FULL_STOP.split(text):
        told.append("")
        for clause in CLAUSES.split(sentence):
            if PLACED.search(clause) and PLACED.search(told[-1]):
                told.append("")
            told[-1] += f"{clause}, "
    return told


def add_sentence(text: str, said: Printed) -> None:
    """Adds to what a line says its step and losses in the words of prose, where it has no step otherwise."""
    place = None if said.counts else PLACE.search(text)
    if place is None:
        return
    train, val = TRAIN.search(text), VAL.search(text)
    if train is None and val is None:
        return
    said.step = counter(place[1] or place[2])
    if train is not None:
        said.loss, said.has_loss = float(train[1]), True
    if val is not None:
        said.val_loss, said.has_val_loss = float(val[1]), True
