"""A history printed at the end: `{'loss': [4.21, 3.87], 'val_loss': [4.02, 3.81]}`, one number an epoch.

Keras keeps it as `model.fit(…).history`, and people print it where the bars are long gone. A list that the
line's end cuts off is left out, for the lists may then no longer be of one length.
"""

import re
from collections.abc import Iterator

from gptwright.record.readers.fields import LOSS
from gptwright.record.readers.printed_fields import Printed

LIST = re.compile(r"[\"'](\w{1,40})[\"']: ?\[([^\[\]]{1,20000})\]", re.ASCII)
# With the type in front, as newer releases of numpy print: `np.float32(4.21)`.
NUMBER = re.compile(rf"(?<![\w.])({LOSS})(?![\w.])", re.ASCII)
LOSSES = frozenset(("loss", "train_loss", "training_loss"))
VALIDATION = frozenset(("val_loss", "valid_loss", "validation_loss", "eval_loss"))
FEWEST = 2


def history(text: str) -> Iterator[Printed]:
    """The epochs of such a line, each with its losses; nothing where it is none."""
    if "[" not in text or "loss" not in text:
        return
    lists = {
        name: [float(number) for number in NUMBER.findall(inside)] for name, inside in LIST.findall(text)
    }
    train = next((values for name, values in lists.items() if name in LOSSES), [])
    val = next((values for name, values in lists.items() if name in VALIDATION), [])
    if len(train) < FEWEST:
        return
    for epoch, loss in enumerate(train, 1):
        said = Printed(epoch=float(epoch), epochs=float(len(train)), loss=loss, has_loss=True)
        if len(val) == len(train):
            said.val_loss, said.has_val_loss = val[epoch - 1], True
        yield said
