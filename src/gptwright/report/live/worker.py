"""The process that diagnoses runs for the live page: one JSON job a line in, one JSON answer a line out.

It is a process of its own so that the server stays small (numpy and scipy are loaded here alone) and quick,
and so that a log that takes too long or too much memory takes only this process with it.

    {"path": …, "facts": {…}, "charts": true}  →  {"diagnosis": {…}, "verdict": …, "planned_steps": …,
                                                   "curve": […], "charts": …}  or  {"error": {…}}
"""

import json
import sys
from typing import Any

import numpy as np

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.forecast import forecast_run
from gptwright.diagnose.reading import Reading, read_run
from gptwright.diagnose.series import train_loss, val_loss
from gptwright.errors import GptwrightError
from gptwright.record.open_run import open_run
from gptwright.report.documents import diagnosis_document
from gptwright.report.live.curves import charts_text
from gptwright.report.run_figures import figures_of
from gptwright.report.verdict import verdict_of

# As many points as the small curve of the list has.
SMALL_CURVE = 64


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """What the diagnosis of one run says, as the command line says it."""
    try:
        reading = read_run(open_run(job["path"], job["facts"]))
        diagnosis = diagnose(reading)
    except GptwrightError as error:
        return {"error": error.document()}
    planned = reading.progress.planned_steps
    losses = train_loss(reading) if reading.train is not None else val_loss(reading)
    return {
        "diagnosis": diagnosis_document(diagnosis),
        "verdict": verdict_of(diagnosis.findings, ran=reading.log is not None),
        "planned_steps": planned.number if planned is not None else None,
        "curve": [float(part.mean()) for part in np.array_split(losses.value, SMALL_CURVE) if len(part)],
        "charts": _charts(reading) if job["charts"] else None,
    }


def _charts(reading: Reading) -> str:
    figures = figures_of(reading, forecast_run(reading))
    return charts_text(reading, [figure.document() for figure in figures])


def main() -> None:
    """Answers jobs until the input ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line)), allow_nan=False) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
