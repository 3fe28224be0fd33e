"""The numbers of a record under the names that nanoGPT logs, so that its dashboards go on working.

`train/loss` and `val/loss` are those of an evaluation and `mfu` is in percent, as there; the loss of training
lines, which nanoGPT does not log, is `train/step_loss`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gptwright.record.metrics import Record

NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "train": {
            "loss_mean": "train/step_loss",
            "lr": "lr",
            "mfu": "mfu",
            "grad_norm": "grad_norm",
            "tokens_per_second": "tokens_per_second",
            "seconds": "step_seconds",
            "tokens": "tokens",
        },
        "eval": {
            "train_loss": "train/loss",
            "val_loss": "val/loss",
            "val_loss_standard_error": "val/loss_standard_error",
        },
    }
)


def scalars(record: Record) -> dict[str, float]:
    """What a record says, by the loggers' names; empty for records without numbers of a step.

    NaN and infinity, which the record stores by their names, are numbers again.
    """
    names = NAMES.get(str(record.get("kind")), {})
    values = {name: float(record[field]) for field, name in names.items() if record.get(field) is not None}
    if "mfu" in values:
        values["mfu"] *= 100
    return values
