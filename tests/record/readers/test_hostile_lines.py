"""Lines that nobody prints, as long as a file may hold: no pattern of any reader takes more than its share.

A pattern whose time grows with the square of a line hangs on one of them; a terminal's blank line did.
"""

import time

import pytest

from gptwright.record.readers.passage import Passage
from gptwright.record.readers.plain import PLAIN
from gptwright.record.readers.read import READERS
from gptwright.record.readers.reader import Reader

LENGTH = 100_000
# What patterns repeat: blanks, words, digits, separators, and beginnings of what they look for.
REPEATED = (
    *(
        " ",
        "\t",
        "a",
        "1",
        "_",
        "-",
        "=",
        "[",
        "{",
        "'",
        "\\",
        "#",
        "a ",
        "a_",
        "1 ",
        "1,",
        "1.",
        "1,111",
        ": ",
    ),
    *("loss ", "train ", "val loss: ", "step 1 ", "epoch 1/", "1/", "iter 1: ", "params 1 ", "a=1, ", "| a "),
    *("{'loss': 1, ", "1:11:11 ", "after 1 ", "time ", "Error", "memory ", "a = 1 # "),
)


@pytest.mark.parametrize("reader", [*READERS, PLAIN], ids=lambda reader: reader.format.name)
def test_lines_that_nobody_prints(reader: Reader) -> None:
    passage = Passage(reader, 0)
    for number, text in enumerate(REPEATED, 1):
        begin = time.process_time()
        passage.line((text * LENGTH)[:LENGTH] + "!", number)
        # The slowest is some 0.02 s; one that grows with the square takes seconds.
        assert time.process_time() - begin < 1, text
