"""What benchmarks that run as modules share: their options, and where their result goes."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser that shows a module's docstring and knows `--out`."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, help="file for the result; standard output if left out")
    return made


def hand_over(report: Mapping[str, object], out: Path | None) -> None:
    """Writes a result as JSON to where `--out` says."""
    text = json.dumps(report, indent=2) + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
