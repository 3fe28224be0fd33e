"""Real servers: `gptwright watch` in a process of its own, asked over HTTP."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.processes import PATIENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, and the folder that it watches."""

    url: str
    folder: Path
    process: subprocess.Popen[str]

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def ask(self, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str) -> Reply:
        """Asks for exactly this path, with exactly these headers; underscores in names are dashes."""
        with closing(http.client.HTTPConnection(self.host, timeout=60)) as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            for name, value in ({"Host": self.host} | given).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Reply(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
            )

    @property
    def token(self) -> str:
        """What the page may send with; read from it as its script does."""
        page = self.ask("/").body
        return page.split('name="gptwright-token" content="')[1].split('"')[0]

    def diagnose(self, document: Any, **headers: str) -> Reply:
        """Sends a log as the page does."""
        given = {"Origin": f"http://{self.host}", "X-Gptwright-Token": self.token} | headers
        return self.ask("/diagnose", method="POST", body=json.dumps(document).encode(), **given)

    def events(
        self, run: str | None = None, *, until: Callable[[str, Any], bool], seconds: float = 60
    ) -> Any:
        """Listens to the stream until an event is the one that is waited for; returns its document."""
        deadline = time.monotonic() + seconds
        with closing(http.client.HTTPConnection(self.host, timeout=seconds)) as connection:
            connection.request("GET", "/events" + (f"?run={run}" if run else ""), headers={"Host": self.host})
            answer = connection.getresponse()
            kind = ""
            while time.monotonic() < deadline:
                line = answer.readline().decode().rstrip("\n")
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    document = json.loads(line.removeprefix("data: "))
                    if until(kind, document):
                        return document
        raise AssertionError("what was waited for did not come")


Serve = Callable[..., Server]


@dataclass
class Tab:
    """A page and what it said and asked for."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


OpenTab = Callable[..., Tab]


@pytest.fixture
def open_tab(browser: Any) -> Iterator[OpenTab]:
    """Opens a server's page: `open_tab(server, "#run=NAME", width=1200)`."""
    contexts = []

    def call(server: Server, place: str = "", *, width: int = 1200, scheme: str = "light") -> Tab:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        tab = Tab(context.new_page())
        tab.page.on("console", lambda message: tab.console.append(message.text))
        tab.page.on("pageerror", lambda error: tab.console.append(str(error)))
        tab.page.on("request", lambda request: tab.requests.append(request.url))
        tab.page.goto(server.url + place)
        return tab

    yield call
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Starts servers: `serve(folder, "--share")`; all of them end with the tests."""
    started: list[subprocess.Popen[str]] = []

    def call(folder: Path, *options: str) -> Server:
        process = subprocess.Popen(
            [sys.executable, "-m", "gptwright", "watch", str(folder), "--port", "0", "--json", *options],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                break
        return Server(json.loads(text)["url"], folder, process)

    yield call
    for process in started:
        process.terminate()
    for process in started:
        process.wait(PATIENCE_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="session")
def nanogpt_log() -> str:
    """Lines as nanoGPT prints them: 40 evaluations, a loss that falls, one step that waited for data."""
    lines = ["tokens per iteration will be: 32,768", "number of parameters: 10.65M"]
    for step in range(0, 2000, 10):
        loss = 1.2 + 3.0 / (1 + step / 100) ** 0.7
        if step % 50 == 0:
            lines.append(f"step {step}: train loss {loss:.4f}, val loss {loss + 0.05:.4f}")
        milliseconds = 4000 if step == 730 else 120 + step % 7
        lines.append(
            f"iter {step}: loss {loss + 0.01 * (step % 3):.4f}, time {milliseconds:.2f}ms, mfu 12.00%"
        )
    return "\n".join(lines) + "\n"
