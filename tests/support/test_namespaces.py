"""The weather of a cable: what it does to packets."""

from __future__ import annotations

import ipaddress
import random

import pytest

from support.namespaces import Direction, Weather

TO, FROM = Direction.TO_BROKERS, Direction.FROM_BROKERS


def packet(source: str, target: str, size: int = 100) -> bytes:
    ends = ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed
    head = b"\x45".ljust(12, b"\0") if len(ends) == 8 else b"\x60".ljust(8, b"\0")
    return (head + ends).ljust(size, b"\0")


V4, V6 = packet("10.0.0.1", "10.0.0.2"), packet("fd00::1", "fd00::2")


@pytest.mark.parametrize(
    ("weather", "sent", "direction", "lost"),
    [
        (Weather(), V4, TO, False),
        (Weather(delay_s=1, jitter_s=1), V4, TO, False),
        (Weather(blocked=frozenset([TO])), V4, TO, True),
        (Weather(blocked=frozenset([TO])), V4, FROM, False),
        (Weather(largest=100), V4, TO, False),
        (Weather(largest=99), V4, TO, True),
        (Weather(dead=frozenset(["10.0.0.1"])), V4, TO, True),
        (Weather(dead=frozenset(["10.0.0.2"])), V4, TO, True),
        (Weather(dead=frozenset(["10.0.0.3"])), V4, TO, False),
        (Weather(dead=frozenset(["fd00::2"])), V6, FROM, True),
        (Weather(dead=frozenset(["10.0.0.1"])), V6, FROM, False),
    ],
)
def test_a_packet_is_lost_or_not(
    weather: Weather, sent: bytes, direction: Direction, lost: bool
) -> None:
    assert weather.swallows(sent, direction, random.Random(1)) is lost


def test_the_asked_for_part_is_lost() -> None:
    rng, weather = random.Random(1), Weather(loss=0.25)
    assert sum(weather.swallows(V4, TO, rng) for _ in range(1000)) == pytest.approx(250, abs=50)
