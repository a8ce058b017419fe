"""A cable between two TUN devices, carried by a thread.

Owns: the devices' file descriptors, the packets on their way, the weather. Not here:
namespaces, whose the addresses are, what the packets are for.
"""

from __future__ import annotations

import fcntl
import heapq
import ipaddress
import itertools
import os
import random
import select
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

TUN_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_PACKET = 65536
_names = itertools.count(1)


class Direction(Enum):
    """The direction of a packet."""

    TO_BROKERS = "to the brokers"
    FROM_BROKERS = "from the brokers"


@dataclass(frozen=True, slots=True)
class Weather:
    """The treatment of packets.

    Attributes:
        delay_s: How long each is under way.
        jitter_s: How much longer at most, so that some overtake others.
        loss: Which part is lost.
        largest: Longer packets are dropped without an ICMP message.
        blocked: The directions in which nothing arrives.
        dead: Addresses to and from which nothing arrives.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    largest: int = _PACKET
    blocked: frozenset[Direction] = frozenset()
    dead: frozenset[str] = frozenset()

    def swallows(self, packet: bytes, direction: Direction, rng: random.Random) -> bool:
        """Return whether the packet gets lost."""
        return (
            direction in self.blocked
            or len(packet) > self.largest
            or (self.loss > 0 and rng.random() < self.loss)
            or (bool(self.dead) and not self.dead.isdisjoint(_ends(packet)))
        )


class Cable:
    """Carries packets from `start` to `close`.

    Attributes:
        weather: May be changed at any time.
        carried, swallowed: How many packets, by direction.
    """

    def __init__(self, seed: int = 1) -> None:
        self.weather = Weather()
        self.carried: Counter[Direction] = Counter()
        self.swallowed: Counter[Direction] = Counter()
        self._rng = random.Random(seed)
        self._fds: dict[Direction, int] = {}
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._order = itertools.count()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="cable", daemon=True)

    def plug(self, leaves: Direction) -> str:
        """Makes the device from which packets leave in this direction; gives its name."""
        name = f"cable{os.getpid()}x{next(_names)}"[-15:]
        fd = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._fds[leaves] = fd
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
        return name

    def start(self) -> None:
        """From now on packets arrive, as soon as both ends are plugged in."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and both devices."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        for fd in self._fds.values():
            os.close(fd)

    def _carry(self) -> None:
        there, back = Direction.TO_BROKERS, Direction.FROM_BROKERS
        ways = {
            self._fds[there]: (there, self._fds[back]),
            self._fds[back]: (back, self._fds[there]),
        }
        with suppress(OSError):  # a host is gone, and its end of the cable with it
            while not self._over.is_set():
                readable, _, _ = select.select(list(ways), [], [], self._timeout())
                for fd in readable:
                    self._take(fd, *ways[fd])
                self._hand_over()

    def _timeout(self) -> float:
        due = self._under_way[0][0] if self._under_way else float("inf")
        return min(0.02, max(0.0, due - time.monotonic()))

    def _take(self, fd: int, direction: Direction, out: int) -> None:
        with suppress(BlockingIOError):
            while packet := os.read(fd, _PACKET):
                weather = self.weather
                if weather.swallows(packet, direction, self._rng):
                    self.swallowed[direction] += 1
                    continue
                self.carried[direction] += 1
                due = time.monotonic() + weather.delay_s + weather.jitter_s * self._rng.random()
                heapq.heappush(self._under_way, (due, next(self._order), out, packet))

    def _hand_over(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, _, out, packet = heapq.heappop(self._under_way)
            with suppress(OSError):  # the device is down, or its queue full: the packet is lost
                os.write(out, packet)


def _ends(packet: bytes) -> tuple[str, str]:
    """Source and destination of an IP packet."""
    size, start = (4, 12) if packet[0] >> 4 == 4 else (16, 8)
    source = packet[start : start + size]
    target = packet[start + size : start + 2 * size]
    return str(ipaddress.ip_address(source)), str(ipaddress.ip_address(target))
