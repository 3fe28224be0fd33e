"""Plots as files: every figure, twice the same, with the data of the page."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gptwright.record.arrays import Floats
from gptwright.report.figures import Curve, Figure, Mark, Shape
from gptwright.report.pictures import write_pictures
from tests.conftest import Answer
from tests.simulator import simulate


def floats(values: object) -> Floats:
    return np.asarray(values, dtype=np.float64)


STEP = np.arange(100)
FIGURE = Figure(
    id="loss",
    title="Loss & <more>",
    unit="nats",
    axis_label="nats",
    curves=(
        Curve(label="train", shape=Shape.LINE, step=STEP, value=floats(9 / (STEP + 1)), origin="here"),
        Curve(
            label="noise",
            shape=Shape.BAND,
            step=STEP,
            value=floats(STEP * 0),
            low=floats(STEP - 1),
            high=floats(STEP + 1),
            origin="here",
            color=1,
        ),
        Curve(
            label="validation",
            shape=Shape.DOTS,
            step=STEP[::10],
            value=np.ones(10),
            low=np.zeros(10),
            high=np.full(10, np.nan),
            origin="here",
            color=2,
            style="dashed",
        ),
    ),
    marks=(Mark(step=50.0, text="resumed"), Mark(step=90.0, text="best", value=1.0)),
    summary="",
)


def test_a_figure_is_svg_with_text_and_png_and_the_same_each_time(tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in write_pictures([FIGURE], tmp_path / "a")}
    second = {path.name: path.read_bytes() for path in write_pictures([FIGURE], tmp_path / "b")}
    assert first == second
    assert sorted(first) == ["loss.png", "loss.svg"]
    svg = first["loss.svg"].decode()
    assert all(f">{text}<" in svg for text in ("Loss &amp; &lt;more&gt;", "validation", "resumed", "best"))
    assert first["loss.png"].startswith(b"\x89PNG")


def test_every_plot_of_a_report_is_written(tmp_path: Path, gptwright: Callable[..., Answer]) -> None:
    simulate(3, "nanogpt").write(tmp_path / "run")
    answer = gptwright("report", str(tmp_path / "run"), "--plots", str(tmp_path / "plots"))
    assert answer.status == 0
    assert {path.name for path in (tmp_path / "plots").iterdir()} >= {"loss.svg", "loss.png"}
    assert (tmp_path / "run" / "report.html").is_file()


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Exception, match=r"pip install 'gptwright\[plots\]'"):
        write_pictures([FIGURE], tmp_path)
