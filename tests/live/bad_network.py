"""A simulated network for the members of a live test: real TCP over links that lose, delay, reorder or are cut.

Every member runs in its own network namespace, whose only device is a tunnel (TUN) that ends here. A thread reads the
packets from the tunnels, applies the state of their link, and writes them into the tunnel of their destination. It
needs root and Linux; `is_possible` returns whether both are available.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TUNSETIFF, _IFF_TUN_NO_PI = 0x400454CA, 0x1001
_CLONE_NEWNET = 0x40000000
_PREFIX = (10, 77, 0)
_OVERHEARD = 200
PORT = 7000


@dataclass
class LinkState:
    """What happens to the packets from one member to another."""

    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Each packet waits up to this much longer, whatever the others do: they overtake one another."""
    cut: bool = False


def is_possible() -> bool:
    """Can this machine make namespaces and tunnels?"""
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        return False
    name = f"cubecast-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


class BadNetwork:
    """Namespaces 0 … n−1 and the thread between them."""

    def __init__(self, members: int, *, seed: int = 1) -> None:
        """Make the namespaces; all links are good."""
        self.names = [f"cubecast-{os.getpid()}-{rank}" for rank in range(members)]
        self.links = {(a, b): LinkState() for a in range(members) for b in range(members) if a != b}
        self.passed = self.lost = self.overtaken = 0
        self._chance = random.Random(seed)
        self._tunnels = [self._make(rank, name) for rank, name in enumerate(self.names)]
        self._due: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._last = dict.fromkeys(self.links, 0)
        self._heard: dict[tuple[int, int], dict[int, bytes]] = {pair: {} for pair in self.links}
        self._stopped = False
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    @property
    def addresses(self) -> list[str]:
        """Where each member listens."""
        return [f"{_host(rank)}:{PORT}" for rank in range(len(self.names))]

    def enter(self, rank: int) -> list[str]:
        """The prefix of a command that runs inside a member's namespace."""
        return ["ip", "netns", "exec", self.names[rank]]

    def between(self, ranks: set[int], others: set[int]) -> Iterator[LinkState]:
        """The links between two sets of members, both ways."""
        for (a, b), link in self.links.items():
            if (a in ranks and b in others) or (b in ranks and a in others):
                yield link

    def heard(self, source: int, target: int) -> bytes:
        """What an eavesdropper saw of the first bytes that one member sent on the connection it opened to another."""
        octets = b""
        segments = self._heard[source, target]
        at = next(iter(segments), 0)
        while segments.get(at):
            octets += segments[at]
            at = (at + len(segments[at])) & 0xFFFFFFFF
        return octets

    def close(self) -> None:
        """Take everything down."""
        self._stopped = True
        self._thread.join(5)
        for tunnel in self._tunnels:
            os.close(tunnel)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def _make(self, rank: int, name: str) -> int:
        subprocess.run(["ip", "netns", "add", name], check=True)
        with inside(name):
            tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tunnel, _TUNSETIFF, struct.pack("16sH", b"tunnel", _IFF_TUN_NO_PI))
        for words in (
            ["addr", "add", f"{_host(rank)}/24", "dev", "tunnel"],
            ["link", "set", "lo", "up"],
            ["link", "set", "tunnel", "up"],
        ):
            subprocess.run(["ip", "-n", name, *words], check=True)
        return tunnel

    def _carry(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, tunnel in enumerate(self._tunnels):
                selector.register(tunnel, selectors.EVENT_READ, rank)
            while not self._stopped:
                wait = min(self._due[0][0] - time.monotonic(), 0.1) if self._due else 0.1
                for key, _ in selector.select(max(wait, 0)):
                    self._take(key.data)
                while self._due and self._due[0][0] <= time.monotonic():
                    self._deliver(*heapq.heappop(self._due)[1:])

    def _take(self, source: int) -> None:
        """Read a packet of a member and decide its fate."""
        for _ in range(64):
            try:
                packet = os.read(self._tunnels[source], 1 << 16)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4 or tuple(packet[16:19]) != _PREFIX:
                continue
            link = self.links.get((source, packet[19] - 1))
            if link is None:
                continue
            self._overhear(source, packet)
            if link.cut or self._chance.random() < link.loss:
                self.lost += 1
                continue
            self._count += 1
            due = time.monotonic() + link.delay_s + self._chance.random() * link.jitter_s
            heapq.heappush(self._due, (due, self._count, source, packet))

    def _overhear(self, source: int, packet: bytes) -> None:
        """Keep the first segments towards a member's port, by their sequence numbers."""
        segments = self._heard[source, packet[19] - 1]
        tcp = 4 * (packet[0] & 15)
        _, port, sequence = struct.unpack_from("!HHI", packet, tcp)
        payload = packet[tcp + 4 * (packet[tcp + 12] >> 4) :]
        if port == PORT and payload and len(segments) < _OVERHEARD:
            segments.setdefault(sequence, payload)

    def _deliver(self, number: int, source: int, packet: bytes) -> None:
        target = packet[19] - 1
        self.overtaken += number < self._last[source, target]
        self._last[source, target] = max(number, self._last[source, target])
        try:
            os.write(self._tunnels[target], packet)
            self.passed += 1
        except (BlockingIOError, OSError):
            self.lost += 1


def _host(rank: int) -> str:
    return ".".join(map(str, (*_PREFIX, rank + 1)))


@contextmanager
def inside(name: str) -> Iterator[None]:
    """This thread is in that namespace for a while."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open("rb") as home, Path(f"/run/netns/{name}").open("rb") as other:
        if libc.setns(other.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")
        try:
            yield
        finally:
            libc.setns(home.fileno(), _CLONE_NEWNET)
