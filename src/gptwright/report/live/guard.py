"""Who may ask the live page, and how much. The server trusts nobody who merely can reach its port.

- A request must name the server by a name of its own in `Host`, or another site could point its own name at
  this machine (DNS rebinding) and read the page.
- A request that has an `Origin` must have the server's own; what changes anything (a POST) must have one, and
  the token that only the page itself knows.
- Shared in a network, every request needs the token: once in the address, then in a cookie that neither
  scripts nor other sites can use.
- The page may load nothing from elsewhere, run no script but its own, and be framed by nobody.

Sizes of requests are bounded while they are read, whatever their headers say.
"""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "gptwright"
TOKEN_HEADER = b"x-gptwright-token"
MIB = 1 << 20
# A million lines of nanoGPT are 51 MB; a log is said to be too long before that, with what to do instead.
LARGEST_BODY = 32 * MIB
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True, slots=True)
class Refusal(Exception):  # noqa: N818 - it is an answer
    """A request that is not served: its status and why."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class Door:
    """Who is let in.

    Attributes:
        hosts: what `Host` may say, port included.
        token: what only the page or the one who was given the address knows.
        shared: whether every request needs the token.
    """

    hosts: frozenset[str]
    token: str
    shared: bool


class Guard:
    """The application behind a door."""

    def __init__(self, app: App, door: Door) -> None:
        self.app = app
        self.door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, sends the owner of a shared address in with a cookie, or refuses."""
        if scope["type"] != "http":
            # The lifespan; websockets are not spoken here.
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        try:
            entered = self._checked(scope)
        except Refusal as refusal:
            await _answer(send, refusal.status, refusal.why)
            return
        if entered:
            cookie = f"{COOKIE}={self.door.token}; HttpOnly; SameSite=Strict; Path=/"
            await _answer(send, 303, "", (b"location", b"/"), (b"set-cookie", cookie.encode()))
            return
        await self.app(scope, Bounded(receive), _with_headers(send))

    def _checked(self, scope: Scope) -> bool:
        """Whether the request brings the token in its address.

        Raises:
            Refusal: it is not served.
        """
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        host = _only(headers, b"host")
        if host is None or host.lower() not in self.door.hosts:
            raise Refusal(421, "this server is not known by that name")
        origin = _only(headers, b"origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            raise Refusal(403, "requests from other sites are not served")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise Refusal(405, "only GET and POST are served")
        if self.door.shared and not self._is_token(_cookie(headers)):
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if scope["method"] == "GET" and scope["path"] == "/" and self._is_token(given):
                return True
            raise Refusal(401, "open the address that `gptwright watch --share` printed, with its token")
        if scope["method"] == "POST" and (
            origin is None or not self._is_token(_only(headers, TOKEN_HEADER) or "")
        ):
            raise Refusal(403, "only the page itself may send anything")
        return False

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.door.token.encode())


class Bounded:
    """The receiving side of a request that refuses a body over the limit."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.bytes = 0

    async def __call__(self) -> Message:
        """The next message.

        Raises:
            HTTPException: the body is larger than is taken.
        """
        message = await self.receive()
        self.bytes += len(message.get("body", b""))
        if self.bytes > LARGEST_BODY:
            raise HTTPException(
                413,
                f"over {LARGEST_BODY // MIB} MiB is too long here; `gptwright diagnose FILE` takes it",
            )
        return message


def _only(headers: dict[bytes, list[bytes]], name: bytes) -> str | None:
    """The value of a header that may stand once; two of them are one too many to trust."""
    values = headers.get(name, [])
    if len(values) > 1:
        raise Refusal(400, f"two {name.decode()} headers")
    return values[0].decode("latin-1") if values else None


def _cookie(headers: dict[bytes, list[bytes]]) -> str:
    jar = SimpleCookie()
    try:
        for value in headers.get(b"cookie", []):
            jar.load(value.decode("latin-1"))
    except CookieError:
        return ""
    return jar[COOKIE].value if COOKIE in jar else ""


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = text.encode()
    plain = (b"content-type", b"text/plain; charset=utf-8")
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [plain, length, *headers, *HEADERS]}
    )
    await send({"type": "http.response.body", "body": body})
