"""The pictures of README and docs: the same pages and the same eyes as the tests.

`make pictures` trains the demo twice and runs this with GPTWRIGHT_PICTURED (two run folders) and
GPTWRIGHT_PICTURES (where the pictures go); the test suite takes them of its own small runs and looks whether
they are fit to be shown.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer
from tests.report.conftest import Open

LARGEST = 300_000
ROOT = Path(__file__).resolve().parents[2]


def pictured(finished_run: Path, slower_run: Path) -> list[Path]:
    named = os.environ.get("GPTWRIGHT_PICTURED")
    return [Path(name) for name in named.split(":")] if named else [finished_run, slower_run]


def test_pictures_are_fit_to_be_shown(
    finished_run: Path, slower_run: Path, tmp_path: Path, gptwright: Callable[..., Answer], open_page: Open
) -> None:
    folder = Path(os.environ.get("GPTWRIGHT_PICTURES") or tmp_path / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    first, second = pictured(finished_run, slower_run)
    assert gptwright("report", str(first), "--out", str(tmp_path / "run.html")).status == 0
    assert gptwright("report", str(first), str(second), "--out", str(tmp_path / "two.html")).status == 0
    for name, page, scheme, width in (
        ("report", "run.html", "light", 1200),
        ("report-dark", "run.html", "dark", 1200),
        ("report-phone", "run.html", "light", 390),
        ("comparison", "two.html", "light", 1200),
    ):
        view = open_page(tmp_path / page, width=width, scheme=scheme).page
        plot = view.locator("#plot-loss svg.plot")
        view.locator("#curves h2").evaluate("heading => heading.scrollIntoView()")
        box = plot.bounding_box()
        view.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + box["height"] * 0.5)
        assert view.locator("#plot-loss .tip").is_visible()
        picture = folder / f"{name}.png"
        view.screenshot(path=picture)
        assert 10_000 < picture.stat().st_size < LARGEST, name


@pytest.mark.parametrize("page", ["README.md", "docs/report.md"])
def test_the_pictures_that_are_shown_are_there_and_small(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    shown = [part.split(")")[0] for part in text.split("](")[1:] if ".png)" in f"{part.split(')')[0]})"]
    assert shown
    for name in shown:
        assert (ROOT / page).parent.joinpath(name).stat().st_size < LARGEST
