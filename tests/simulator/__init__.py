"""Simulated training runs whose truth is known, as folders that a person could hand over.

The physics is each trainer's own: what its loss is the mean of, what its clock holds, whose peak its MFU is
relative to. A fault is planted either in the run (it diverged) or in what is said about it (a false comment).

    simulated = simulate(7, "nanogpt")                      # healthy
    simulated = simulate(7, "nanogpt", "overfitting")       # one fault
    simulated.write(folder)                                 # log.txt, config.py, facts.toml
    simulated.truth.tokens_per_step                         # what is true
    simulated.recoverable                                   # what the folder can tell, with tolerances
    simulated.expected                                      # finding ids that must fire
    simulated.allowed                                       # ids that may fire at any severity besides

    for simulated in healthy_runs(1000, seed=1): ...        # over all formats in turn
    for simulated in faulty_runs(100, "low-mfu", seed=1): ...  # over the formats that can show it

A healthy run must raise no warning or error whose id is not in `allowed`. The same arguments give the same
files, byte for byte. `FORMATS` names the trainers; `FAULTS` maps a fault, named as the finding it is, to the
formats that can show it, what is asked of a run before it is planted, and the planter.
"""

from tests.simulator.draw import random_truth
from tests.simulator.faults import FAULTS, Fault
from tests.simulator.folder import Simulated, faulty_runs, healthy_runs, simulate, write_run
from tests.simulator.formats import FORMATS
from tests.simulator.run import Handover, Run
from tests.simulator.truth import Truth
from tests.simulator.wishes import Wishes

__all__ = [
    "FAULTS",
    "FORMATS",
    "Fault",
    "Handover",
    "Run",
    "Simulated",
    "Truth",
    "Wishes",
    "faulty_runs",
    "healthy_runs",
    "random_truth",
    "simulate",
    "write_run",
]
