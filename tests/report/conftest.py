"""A real headless Chromium, Debian's, and pages opened in it from files."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gptwright.cli.main import run
from gptwright.record.run import RunFolder
from tests.conftest import TINY, as_arguments
from tests.processes import PATIENCE_SECONDS

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Nothing of the browser's own may reach for the network or wait for a graphics card.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A page and everything that it said and asked for."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def count(self, script: str) -> Any:
        """What a script returns in the page."""
        return self.page.evaluate(script)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; in CI it must be there, elsewhere its tests are skipped without it."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs Chromium: apt-get install chromium")
        pytest.skip("needs Chromium: apt-get install chromium, or its path in CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a file: `open_page(path, width=1200, scheme="light")`, ready and drawn.

    With `within` it opens in place of another page, which is three times as quick as a window of its own.
    """
    contexts = []

    def call(
        path: Path,
        *,
        width: int = 1200,
        scheme: str = "light",
        touch: bool = False,
        within: Opened | None = None,
    ) -> Opened:
        opened = within or window(width, scheme, touch)
        opened.console.clear()
        opened.requests.clear()
        opened.page.goto(path.as_uri())
        opened.page.wait_for_selector("html[data-ready]", timeout=1000 * PATIENCE_SECONDS)
        return opened

    def window(width: int, scheme: str, touch: bool) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=touch
        )
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.console.append(message.text))
        opened.page.on("pageerror", lambda error: opened.console.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        return opened

    yield call
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def finished_run(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real short run of ours that finished, with a sample."""
    folder = tmp_path_factory.mktemp("runs") / "first-words"
    train_longer(dataset, folder)
    RunFolder(folder).save_sample("step-00000120", "to be or not to be")
    return folder


@pytest.fixture(scope="session")
def slower_run(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with one knob turned: a tenth of the learning rate."""
    folder = tmp_path_factory.mktemp("runs") / "slower"
    train_longer(dataset, folder, learning_rate="1e-3")
    return folder


def train_longer(dataset: Path, folder: Path, **settings: str) -> None:
    longer = {
        "max_iters": "120",
        "lr_decay_iters": "120",
        "eval_interval": "10",
        "eval_iters": "4",
        "compile": "False",
        "dataset": str(dataset),
        "out_dir": str(folder),
    }
    assert run(["train", "--plain", *as_arguments(TINY | longer | settings)]) == 0
