"""The page in a real browser, before a real server and a real training process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptwright.report.live.states import SHORTEST_PATIENCE
from tests.conftest import LONG, TINY, as_arguments
from tests.processes import PATIENCE_SECONDS, wait_until
from tests.report.live.conftest import OpenTab, Serve, Server

HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
LAST_STEP = (
    "Math.max(...document.getElementById('run-charts').charts.get('loss').chart.figure.curves"
    ".filter((curve) => curve.label.startsWith('train')).map((curve) => curve.x.at(-1)))"
)


def until(page: Any, script: str, seconds: float = PATIENCE_SECONDS) -> float:
    """Waits for an expression to hold (the page's policy keeps Playwright from it); returns how long."""
    began = time.monotonic()
    while not page.evaluate(script):
        assert time.monotonic() - began < seconds, script
        page.wait_for_timeout(20)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, nanogpt_log: str) -> Path:
    """A folder with a foreign log whose name and lines mean no good."""
    folder = tmp_path_factory.mktemp("runs")
    hostile = folder / f"{HOSTILE.replace('/', '∕')}.log"
    hostile.write_text(nanogpt_log + f"RuntimeError: {HOSTILE}\nstep {HOSTILE}: train loss 1, val loss 2\n")
    return folder


@pytest.fixture(scope="module")
def server(serve: Serve, runs: Path) -> Server:
    return serve(runs)


@pytest.fixture(scope="module")
def training(runs: Path, dataset: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A run that goes on for as long as it is let."""
    options = TINY | {
        "dataset": str(dataset), "out_dir": str(runs / "words"), "max_iters": "1000000",
        "lr_decay_iters": "1000000", "eval_interval": "1000", "eval_iters": "2", "log_interval": "20",
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "gptwright", "train", "--plain", *as_arguments(options)],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        metrics = runs / "words" / "metrics.jsonl"
        wait_until(
            lambda: (
                process.poll() is not None
                or (metrics.exists() and metrics.read_bytes().count(b'"train"') >= 20)
            )
        )
        assert process.poll() is None
        yield process
        process.kill()


def last_step(metrics: Path) -> int:
    lines = metrics.read_bytes().split(b"\n")[:-1]
    return max(int(json.loads(line)["step"]) for line in lines[-3:])


@pytest.mark.slow
def test_the_curve_moves_within_a_second_and_a_killed_run_is_stalled_in_the_stated_time(
    server: Server, training: "subprocess.Popen[bytes]", runs: Path, open_tab: OpenTab
) -> None:
    tab = open_tab(server, "#run=words")
    page = tab.page
    page.wait_for_selector("#run-charts .plot", timeout=1000 * PATIENCE_SECONDS)
    assert page.inner_text("#run-state") == "running"
    delays = []
    for _ in range(7):
        step = last_step(runs / "words" / "metrics.jsonl")
        delays.append(until(page, f"{LAST_STEP} >= {step}"))
        page.wait_for_timeout(150)
    # Beside it a process trains, and others test: a look may have waited for a core.
    assert sorted(delays)[2] < 1.0, delays
    until(page, "document.querySelector('#run-findings').children.length > 0")
    numbers = page.inner_text("#run-numbers")
    assert "of 1,000,000" in numbers
    assert "time left" in numbers
    assert "energy" in numbers
    zoomed = "document.getElementById('run-charts').charts.get('loss').chart"
    page.evaluate(f"{zoomed}.zoom([0, 100])")
    training.send_signal(signal.SIGKILL)
    training.wait()
    # The stated time, and what a machine may add on which others test; tests/report/live/test_states.py holds
    # the states to their times.
    page.wait_for_selector("#run-state.stalled", timeout=1000 * (SHORTEST_PATIENCE + 15))
    assert "stalled" in page.inner_text("#run-reason") or "gone" in page.inner_text("#run-reason")
    assert page.evaluate(f"{zoomed}.window") == [0, 100]
    assert tab.console == []
    assert all(url.startswith((server.url, "data:")) for url in tab.requests)


def test_hostile_names_and_logs_show_as_text(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(server)
    page = tab.page
    page.wait_for_selector("#runs .row")
    name = page.locator("#runs .row .name", has_text="onerror").first
    assert name.inner_text().startswith("<img src=x onerror=")
    name.click()
    page.wait_for_selector("#run-charts .plot", timeout=1000 * PATIENCE_SECONDS)
    page.wait_for_selector(".finding")
    assert page.inner_text("#run-title").startswith("<img src=x")
    assert page.locator("main img").count() == 0
    assert page.locator("main script").count() == 0
    assert "owned" not in page.title()
    assert tab.console == []


def test_a_pasted_log_shows_what_the_command_line_says(
    server: Server, open_tab: OpenTab, nanogpt_log: str, tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_text(nanogpt_log + HOSTILE)
    command = [sys.executable, "-m", "gptwright", "diagnose", str(tmp_path), "--device", "RTX 4070", "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    tab = open_tab(server, "#diagnose")
    page = tab.page
    page.set_input_files("#log-file", tmp_path / "log.txt")
    until(page, "document.getElementById('log').value.length > 100")
    page.fill("#device", "RTX 4070")
    page.click("#send")
    page.wait_for_selector("#pasted .plot", timeout=1000 * PATIENCE_SECONDS)
    shown = page.locator("#pasted .finding > p:first-of-type").all_inner_texts()
    assert shown == [finding["message"] for finding in said["findings"]]
    with page.expect_download() as download:
        page.click("#save-json")
    assert json.loads(Path(download.value.path()).read_text("utf-8")) == said
    page.fill("#log", "nothing that a trainer prints")
    page.click("#send")
    page.wait_for_selector("#pasted .finding.error")
    assert "no line of log.txt is known" in page.inner_text("#pasted-findings")
    assert tab.console == []
    assert "owned" not in page.title()


@pytest.mark.parametrize(
    ("width", "place"),
    [*((360, place) for place in ("", "#diagnose", "run")), (1200, "run")]
    + ([(1200, ""), (1200, "#diagnose")] if LONG else []),
)
def test_it_is_accessible_and_fits_a_phone(server: Server, open_tab: OpenTab, width: int, place: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    tab = open_tab(
        server, place if place != "run" else "", width=width, scheme="dark" if width > 400 else "light"
    )
    page = tab.page
    page.wait_for_selector("#runs .row", state="attached")
    if place == "run":
        page.locator("#runs .row").first.click()
        page.wait_for_selector("#run-charts .plot", timeout=1000 * PATIENCE_SECONDS)
        page.wait_for_selector(".finding")
    page.wait_for_selector("#connection.open")
    results = Axe().run(page)
    serious = [v for v in results.response["violations"] if v["impact"] in ("serious", "critical")]
    assert serious == [], [(v["id"], [node["html"] for node in v["nodes"]]) for v in serious]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_it_says_so_and_nothing_else(server: Server, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(server.url)
    assert page.locator(".unable").is_visible()
    assert "This page needs JavaScript" in page.locator("body").inner_text()
    for untrue in ("connecting", "Looking for runs", "Choose a run"):
        assert not page.get_by_text(untrue).is_visible(), untrue
    context.close()


def test_the_list_is_found_by_keyboard_and_filtered(server: Server, open_tab: OpenTab) -> None:
    page = open_tab(server).page
    page.wait_for_selector("#runs .row")
    page.fill("#find", "no run is called so")
    until(page, "!document.querySelector('#runs li:not([hidden])')")
    page.fill("#find", "onerror")
    page.wait_for_selector("#runs li:not([hidden])")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#run:not([hidden])")
    assert page.locator(".row[aria-current]").count() == 1
