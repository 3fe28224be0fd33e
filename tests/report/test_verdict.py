"""The verdict in a sentence, and what a page need not load."""

import subprocess
import sys

from gptwright.report.verdict import verdict_of


def test_no_finding_is_no_praise() -> None:
    assert verdict_of([]) == "Nothing is wrong with this run that its record could show."
    assert verdict_of([], ran=False) == "Nothing is wrong with this config that its settings could show."


def test_a_page_loads_no_library_of_the_terminal() -> None:
    code = (
        "import sys, gptwright.report.page, gptwright.report.material; print('rich.console' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
