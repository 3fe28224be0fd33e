"""A small server that speaks the hub's few endpoints, for one repository."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """What the server has, what it was asked for, and how often it breaks off.

    Attributes:
        name: OWNER/NAME.
        files: their contents.
        kind: `datasets` or `models`.
        card: metadata of its card.
        lfs: files of which the hub tells the sha256.
        damage: files that arrive with their last byte changed.
    """

    name: str
    files: dict[str, bytes]
    kind: str = "datasets"
    card: dict[str, Any] = field(default_factory=dict)
    lfs: frozenset[str] = frozenset()
    damage: set[str] = field(default_factory=set)
    url: str = ""
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    cut: int = 0

    def described(self) -> dict[str, Any]:
        """What the hub's API says of it."""
        siblings = []
        for name, content in self.files.items():
            sibling: dict[str, Any] = {"rfilename": name, "size": len(content)}
            if name in self.lfs:
                digest = hashlib.sha256(content).hexdigest()
                sibling["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            siblings.append(sibling)
        return {"id": self.name, "sha": COMMIT, "cardData": self.card, "siblings": siblings}

    def sent(self, name: str) -> bytes:
        """A file's bytes as they arrive."""
        content = self.files[name]
        return content[:-1] + bytes([content[-1] ^ 1]) if name in self.damage else content


@contextmanager
def serving(there: Repository) -> Iterator[Repository]:
    """Serves a repository on this machine; its `url` is what HF_ENDPOINT wants."""
    prefix = "" if there.kind == "models" else f"{there.kind}/"

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
            if re.fullmatch(rf"/api/{there.kind}/{there.name}(/revision/\w+)?", path):
                self.send(200, json.dumps(there.described()).encode(), "application/json", body=body)
                return
            match = re.fullmatch(rf"/{prefix}{there.name}/resolve/\w+/(.+)", path)
            if match is None or match[1] not in there.files:
                self.send(404, b"{}", "application/json", error="RepoNotFound", body=body)
                return
            self.send_file(there.sent(match[1]), body=body)

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
    try:
        yield there
    finally:
        server.shutdown()
        server.server_close()


def environment(there: Repository | str, home: object, **more: str) -> dict[str, str]:
    """The settings of huggingface_hub's for a process that shall use this server."""
    url = there if isinstance(there, str) else there.url
    settings = {"HF_ENDPOINT": url, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "HF_HUB_ETAG_TIMEOUT": "5"}
    return settings | more
