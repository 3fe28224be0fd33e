"""How long the quick verbs take to answer: medians over interleaved runs, beside `python -c pass`.

    python benchmarks/startup.py [--runs N] [--out FILE]

Each command is a process of its own, as a person starts it. Run it where torch is not installed to see what a
base install does; with torch installed the figures are the same, because nothing of it is imported. The first
run of each command is not counted: it leaves the compiled modules in a folder of its own, as an installed
package has them, also where the environment forbids Python to write them beside the source.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gptwright.hardware.cpu import cpu_name

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "gptwright --help": ["-m", "gptwright", "--help"],
    "gptwright prepare --help": ["-m", "gptwright", "prepare", "--help"],
    "gptwright train --help": ["-m", "gptwright", "train", "--help"],
    "gptwright plan": ["-m", "gptwright", "plan", "gpt2-124m", "--device", "RTX 4070"],
    "gptwright plan --json": ["-m", "gptwright", "plan", "gpt2-124m", "--device", "RTX 4070", "--json"],
}

# What decides whether and where compiled modules are kept.
CACHING = {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}


def seconds(arguments: list[str], environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=environment)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name not in CACHING}
        environment["PYTHONPYCACHEPREFIX"] = folder
        for arguments in COMMANDS.values():
            seconds(arguments, environment)
        for _ in range(options.runs):
            for name, arguments in COMMANDS.items():
                times[name].append(seconds(arguments, environment))
    medians = {name: statistics.median(values) for name, values in times.items()}
    nothing = medians["python -c pass"]
    result = {
        "runs": options.runs,
        "python": platform.python_version(),
        "processor": cpu_name(),
        "torch_installed": importlib.util.find_spec("torch") is not None,
        "seconds": medians,
        "over_python_c_pass": {name: value / nothing for name, value in medians.items()},
    }
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
