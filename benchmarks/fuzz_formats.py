"""Reads damaged and hostile files of every format that is no log: no crash, nothing slow, nothing executed.

    python -m benchmarks.fuzz_formats --files 500000 --out benchmarks/results/fuzz-formats.json

Formats, damages and what is watched are in tests/fuzz. The address space is limited to what the process has
once everything is loaded and 1 GiB, so that a header that is believed before it is checked ends in a crash
here. A warning counts as a crash. The exit status is 1 if anything was found.
"""

import resource
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path

from benchmarks.result import hand_over, parser

import gptwright
from tests.fuzz.fuzz import fuzz

HEADROOM = 2**30


def main() -> int:
    """Fuzzes, reports."""
    arguments = parser(__doc__)
    arguments.add_argument("--files", type=int, default=500_000, help="how many")
    arguments.add_argument("--first-seed", type=int, default=0, help="seed of the first")
    options = arguments.parse_args()
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder:
        # Once unlimited, so that all libraries are loaded.
        fuzz(range(50), Path(folder) / "first")
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
        limit = pages * resource.getpagesize() + HEADROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = fuzz(range(options.first_seed, options.first_seed + options.files), Path(folder) / "files")
    report = {
        "schema": "gptwright.benchmark.fuzz-formats/1",
        "gptwright": gptwright.__version__,
        "first_seed": options.first_seed,
        **asdict(result),
        "memory_grown_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024,
        "cpu_seconds": round(time.process_time() - begin, 1),
    }
    hand_over(report, options.out)
    return 1 if result.crashes or result.executed else 0


if __name__ == "__main__":
    sys.exit(main())
