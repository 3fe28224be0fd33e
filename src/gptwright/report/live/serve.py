"""Starts the live page's server: where it listens, under which names it is known, and who gets the token.

By default it listens on this machine alone. Shared, it listens on the address that this machine has in its
network, and only whoever has the address with its token gets in.
"""

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from gptwright.errors import RunError
from gptwright.report.live.app import live_app
from gptwright.report.live.board import Board
from gptwright.report.live.diagnoser import Diagnoser
from gptwright.report.live.guard import Door

LOOPBACK = "127.0.0.1"
# How long a stop waits for answers on their way.
STOP_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Place:
    """A bound socket, the address to open, and who is let in."""

    listening: socket.socket
    url: str
    door: Door


def find_place(*, host: str | None, port: int, share: bool) -> Place:
    """Binds a socket.

    Args:
        host: the address to listen on; None: this machine alone, or its address in the network if shared.
        port: the port; 0 takes a free one.
        share: whether others may come in with the token.

    Raises:
        RunError: the address cannot be had, or would be open to others without having been asked for.
    """
    address = host or (_network_address() if share else LOOPBACK)
    if not share and not _is_loopback(address):
        raise RunError(
            f"{address} can be reached from other machines",
            why="whoever reaches the page sees your runs, so that is asked for explicitly",
            fix="add --share, which gives the address a token; or leave out --host",
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        # From here on a browser that is quicker than the server waits instead of being refused.
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        raise RunError(
            f"cannot listen on {address} port {port}: {error}",
            fix="another --port; --port 0 takes a free one",
        ) from None
    bound = listening.getsockname()[1]
    names = {address, "localhost"} if _is_loopback(address) else {address}
    hosts = frozenset(f"[{name}]:{bound}" if ":" in name else f"{name}:{bound}".lower() for name in names)
    token = secrets.token_urlsafe(24)
    shown = f"[{address}]" if ":" in address else address
    url = f"http://{shown}:{bound}/" + (f"?token={token}" if share else "")
    return Place(listening, url, Door(hosts=hosts, token=token, shared=share))


class _Server(uvicorn.Server):
    """A server that ends the streams of open pages before it waits for answers: no other way do they end."""

    def __init__(self, config: uvicorn.Config, board: Board) -> None:
        super().__init__(config)
        self.board = board

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.board.closing = True
        await super().shutdown(sockets)


def serve(folder: Path, place: Place) -> None:
    """Serves the page until Ctrl-C, which is how it ends."""
    board = Board(folder, Diagnoser())
    config = uvicorn.Config(
        live_app(board, place.door),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    try:
        _Server(config, board).run(sockets=[place.listening])
    except KeyboardInterrupt:
        pass
    finally:
        place.listening.close()


def _is_loopback(address: str) -> bool:
    return address in ("::1", "localhost") or address.startswith("127.")


def _network_address() -> str:
    """This machine's address in its network: the one that it would send from. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # An address of the block that is kept for documentation; only the route to it is looked up.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            raise RunError("this machine is in no network", fix="leave out --share, or give --host") from None
        return str(probe.getsockname()[0])
