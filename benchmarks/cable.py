"""A cable between two network namespaces, with a delay, that can be taken out: for tests of several hosts.

Each end is a TUN device; packets pass through this process, which holds each back for the delay and drops
them while the cable is out. The kernel's own `tc netem` does the same and is missing from many small kernels.
Linux and root.
"""

import contextlib
import ctypes
import fcntl
import os
import queue
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEVICE = "cable"

# linux/if_tun.h: TUNSETIFF; IFF_TUN (whole IP packets) and IFF_NO_PI (no header before them).
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
LARGEST_PACKET = 2048


class Cable:
    """Joins two namespaces.

    Args:
        ends: file descriptors of the two TUN devices.
        delay_seconds: in each direction.
    """

    def __init__(self, ends: tuple[int, int], delay_seconds: float) -> None:
        self.delay_seconds = delay_seconds
        self.is_out = False
        for source, target in (ends, ends[::-1]):
            waiting: queue.Queue[tuple[float, bytes]] = queue.Queue()
            threading.Thread(target=self._take, args=(source, waiting), daemon=True).start()
            threading.Thread(target=self._give, args=(target, waiting), daemon=True).start()

    def _take(self, source: int, waiting: "queue.Queue[tuple[float, bytes]]") -> None:
        with contextlib.suppress(OSError):
            while True:
                packet = os.read(source, LARGEST_PACKET)
                waiting.put((time.monotonic() + self.delay_seconds, packet))

    def _give(self, target: int, waiting: "queue.Queue[tuple[float, bytes]]") -> None:
        with contextlib.suppress(OSError):
            while True:
                due, packet = waiting.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not self.is_out:
                    os.write(target, packet)


@contextmanager
def two_hosts(addresses: tuple[str, str], *, delay_seconds: float) -> Iterator[tuple[list[str], Cable]]:
    """Two namespaces with an address each, and the cable between them."""
    hosts = [f"gptwright-{os.getpid()}-{side}" for side in "ab"]
    ends: list[int] = []
    try:
        for host, address in zip(hosts, addresses, strict=True):
            _ip("netns", "add", host)
            ends.append(_tun_in(host))
            _ip("-n", host, "address", "add", f"{address}/24", "dev", DEVICE)
            _ip("-n", host, "link", "set", "lo", "up")
            _ip("-n", host, "link", "set", DEVICE, "up")
        yield hosts, Cable((ends[0], ends[1]), delay_seconds)
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host], check=False)
        for end in ends:
            os.close(end)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _tun_in(namespace: str) -> int:
    """A TUN device inside a namespace: this thread goes there and back (`os.setns` is Python 3.12's)."""
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = (
        os.open(path, os.O_RDONLY) for path in (Path("/proc/self/ns/net"), Path("/run/netns") / namespace)
    )
    try:
        if libc.setns(there, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
        try:
            end = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH14x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
        finally:
            libc.setns(home, 0)
    finally:
        os.close(home)
        os.close(there)
    return end
