"""Training lines of a metrics file, thousands at a time: a million of them in two or three seconds.

Our own record prints every number with all its digits, so its lines have no common form (`runs`), and a JSON
decoder must read them. msgspec decodes a line into the seven fields that a row has and passes over the
others; it is four times as quick as `json` into dictionaries (measured: 2.8 against 12 µs a line on a busy
core). What it does not accept whole, and every line of another kind, is left to the reader of single lines.
"""

from itertools import chain
from operator import attrgetter

import msgspec
import numpy as np

from gptwright.record.arrays import Floats

# No run has as many steps, and no loss, norm or rate is as large.
MOST_STEPS, LARGEST = 1e12, 1e300


class TrainLine(msgspec.Struct, gc=False):
    """The fields of a row; null and absent are None."""

    step: float
    loss: float
    seconds: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    lr: float | None = None
    grad_norm: float | None = None


_DECODER = msgspec.json.Decoder(TrainLine)
_values = attrgetter(*TrainLine.__struct_fields__)


def train_rows(text: str) -> Floats | None:
    """Rows of `TrainLine`'s fields; None if one line is no whole training line of finite numbers."""
    try:
        lines = _DECODER.decode_lines(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    # The decoder takes two records that a crash has glued into one line for two lines.
    if len(lines) != text.count("\n"):
        return None
    # numpy makes NaN of None.
    values = np.array(list(chain.from_iterable(map(_values, lines))), dtype=np.float64)
    rows: Floats = values.reshape(-1, len(TrainLine.__struct_fields__))
    whole = (rows[:, 0] >= 0) & (rows[:, 0] < MOST_STEPS) & np.isfinite(rows[:, 1])
    return rows if whole.all() and not (np.abs(rows) >= LARGEST).any() else None
