"""Repositories, from a small server that speaks the hub's few endpoints, and from the cache without one."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from gptwright.data.sources import hub
from gptwright.errors import DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CARD = """---
configs:
- config_name: sample-1
  data_files:
  - split: train
    path: sample/1/*
---
A data set.
"""


@dataclass
class Repository:
    """What the server has, what it was asked for, and how often it breaks off."""

    files: dict[str, bytes]
    url: str = ""
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    cut: int = 0


@pytest.fixture
def repository(fineweb: Path) -> Iterator[Repository]:
    there = Repository({"README.md": CARD.encode()})
    for path in sorted(fineweb.iterdir()):
        there.files[f"sample/1/{path.name}"] = path.read_bytes()
    there.files["other/notes.txt"] = b"text\n" * 400

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            return

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            there.asked.append((self.command, path, self.headers.get("Range")))
            if re.fullmatch(r"/api/datasets/acme/tiny(/revision/\w+)?", path):
                self.send(200, json.dumps(described(there)).encode(), "application/json", body=body)
                return
            match = re.fullmatch(r"/datasets/acme/tiny/resolve/\w+/(.+)", path)
            if match is None or match[1] not in there.files:
                self.send(404, b"{}", "application/json", error="RepoNotFound", body=body)
                return
            self.send_file(there.files[match[1]], body=body)

        def send(self, status: int, content: bytes, kind: str, *, body: bool, error: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if error:
                self.send_header("X-Error-Code", error)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def send_file(self, content: bytes, *, body: bool) -> None:
            match = re.fullmatch(r"bytes=(\d+)-.*", self.headers.get("Range") or "")
            start = int(match[1]) if match else 0
            self.send_response(206 if match else 200)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(content) - start))
            if match:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if body and there.cut and start == 0 and len(content) > 10_000:
                there.cut -= 1
                self.wfile.write(content[: len(content) // 2])
                self.wfile.flush()
                self.connection.close()
            elif body:
                self.wfile.write(content[start:])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    there.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield there
    server.shutdown()
    server.server_close()


def described(there: Repository) -> dict[str, object]:
    return {
        "id": "acme/tiny",
        "sha": COMMIT,
        "cardData": {
            "configs": [{"config_name": "sample-1", "data_files": [{"split": "train", "path": "sample/1/*"}]}]
        },
        "siblings": [{"rfilename": name, "size": len(content)} for name, content in there.files.items()],
    }


def prepare(
    source: str, out: Path, url: str, home: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the hub's library reads its settings when it is imported."""
    settings = {"HF_ENDPOINT": url, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "HF_HUB_ETAG_TIMEOUT": "5"}
    return subprocess.run(
        [
            sys.executable, "-m", "gptwright", "prepare", source, "--tokenizer", "byte",
            "--workers", "1", "--out", str(out), "--json",
        ],
        capture_output=True, text=True, check=False, env=os.environ | settings | environment,
    )  # fmt: skip


@pytest.mark.slow
def test_a_configuration_is_downloaded_once_and_read_without_network_after(
    tmp_path: Path, repository: Repository
) -> None:
    repository.cut = 1
    done = prepare("hf:acme/tiny/sample-1", tmp_path / "d", repository.url, tmp_path / "home")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["documents"], report["duplicates"]) == (1200, 20)
    size = sum(len(content) for name, content in repository.files.items() if "parquet" in name)
    assert f"downloading 2 of 2 files of acme/tiny, {size / 1024:.1f} KiB, into" in done.stderr
    # The download that broke off was taken up; below 10 MB the hub's library does so from the start.
    first = [path for command, path, _ in repository.asked if command == "GET" and "000_0" in path]
    assert len(first) == 2
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    assert manifest["settings"]["source"] == "hf:acme/tiny/sample-1"

    before = len(repository.asked)
    again = prepare("hf:acme/tiny/sample-1", tmp_path / "e", repository.url, tmp_path / "home")
    assert again.returncode == 0, again.stderr
    assert "downloading" not in again.stderr
    assert not any(command == "GET" and "resolve" in path for command, path, _ in repository.asked[before:])

    offline = prepare(
        "hf:acme/tiny/sample/1", tmp_path / "f", "http://127.0.0.1:9", tmp_path / "home", HF_HUB_OFFLINE="1"
    )
    assert offline.returncode == 0, offline.stderr
    assert (tmp_path / "f" / "train.bin").read_bytes() == (tmp_path / "d" / "train.bin").read_bytes()


@pytest.mark.slow
def test_what_cannot_be_had_is_one_clear_message(tmp_path: Path, repository: Repository) -> None:
    home = tmp_path / "home"
    missing = prepare("hf:acme/nothing", tmp_path / "d", repository.url, home)
    assert missing.returncode == 2
    assert "there is no dataset repository acme/nothing" in missing.stderr
    folder = prepare("hf:acme/tiny/sample-2", tmp_path / "d", repository.url, home)
    assert "acme/tiny has no folder, file or configuration 'sample-2'" in folder.stderr
    assert "its folders are other, sample/1" in folder.stderr
    network = prepare("hf:acme/tiny", tmp_path / "d", "http://127.0.0.1:9", home)
    assert network.returncode == 2
    assert "acme/tiny cannot be downloaded: " in network.stderr
    offline = prepare("hf:acme/tiny", tmp_path / "d", repository.url, home, HF_HUB_OFFLINE="1")
    assert "acme/tiny is not in the cache, and the hub is not to be asked" in offline.stderr
    for answer in (missing, folder, network, offline):
        assert "Traceback" not in answer.stderr
        assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("source", ["hf:", "hf:acme", "hf:acme//x"])
def test_an_address_that_is_none_is_explained(source: str) -> None:
    with pytest.raises(DataError, match="is not a repository"):
        hub.fetch_repository(source, (".parquet",), lambda _: None)
