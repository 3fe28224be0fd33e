"""Reads 200,000 damaged logs of every format: no crash, nothing over a second, no invented number.

    python -m benchmarks.fuzz_readers --out benchmarks/results/fuzz-readers.json

How logs are damaged is in tests/record/readers/mutate.py, and how each number is looked for in its line in
literal.py beside it. A warning counts as a crash. The exit status is 1 if anything was found.
"""

import subprocess
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path

from benchmarks.result import hand_over, parser

import gptwright
from tests.record.readers.fuzz import fuzz
from tests.record.readers.samples import SAMPLES


def main() -> int:
    """Fuzzes, reports."""
    arguments = parser(__doc__)
    arguments.add_argument("--logs", type=int, default=200_000, help="how many")
    arguments.add_argument("--first-seed", type=int, default=0, help="seed of the first")
    options = arguments.parse_args()
    warnings.simplefilter("error")
    begin = time.process_time()
    result = fuzz(range(options.first_seed, options.first_seed + options.logs))
    report = {
        "schema": "gptwright.benchmark.fuzz-readers/1",
        "gptwright": gptwright.__version__,
        "commit": _commit(),
        "first_seed": options.first_seed,
        "formats": len(SAMPLES),
        **asdict(result),
        "cpu_seconds": round(time.process_time() - begin, 1),
    }
    hand_over(report, options.out)
    return 1 if result.crashes or result.inventions or result.slowest_seconds >= 1 else 0


def _commit() -> str:
    """Which readers were fuzzed: a checkout's commit."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
