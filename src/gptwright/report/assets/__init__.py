"""Script and style of the pages, as text: plain files in this package, put inline or served as they are.

The charts are our own SVG: `scales.js`, `chart.js`, `interaction.js`, in this order. Why no library is in
docs/lab-notes.md.
"""

from functools import cache
from importlib import resources

CHART_SCRIPTS = ("scales.js", "chart.js", "interaction.js")
STYLE = "page.css"


@cache
def asset(name: str) -> str:
    """The text of one file."""
    return resources.files(__name__).joinpath(name).read_text("utf-8")


def chart_script() -> str:
    """What draws a chart: defines `Chart` and the functions beside it, and does nothing by itself."""
    return "".join(asset(name) for name in CHART_SCRIPTS)
