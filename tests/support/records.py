"""Random records that try everything a record may be. Same seed, same records."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from aioproducer.types import HeaderPairs

LARGE_VALUE_BYTES = 900 * 1024
_DAY_MS = 86_400_000
_WORDS = ("one", "two", "kafka", "broker", "epoch", "Ωmega", "東京", "🚀", "naïve")
_HEADER_NAMES = ("trace", "trace", "", "ключ", "content-type", "x" * 200)


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One record to send; `timestamp_ms` None leaves it to the producer."""

    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None
    partition: int | None


def sample_records(
    seed: int, count: int, *, large: int, partitions: int, now_ms: int
) -> Iterator[SampleRecord]:
    """Yield `count` records, `large` of them with values of 900 KiB, evenly spread."""
    rng = random.Random(seed)
    step = count // large if large else count + 1
    for index in range(count):
        big = index % step == step - 1 and index // step < large
        yield SampleRecord(
            key=_key(rng),
            value=rng.randbytes(LARGE_VALUE_BYTES) if big else _value(rng),
            headers=_headers(rng),
            timestamp_ms=_timestamp(rng, now_ms),
            partition=rng.randrange(partitions) if rng.random() < 0.3 else None,
        )


def _key(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < 0.25:
        return None
    if kind < 0.3:
        return b""
    if kind < 0.6:
        return rng.randbytes(rng.randint(1, 40))
    return f"{rng.choice(_WORDS)}-{rng.randrange(1000)}".encode()


def _value(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < 0.05:
        return None
    if kind < 0.1:
        return b""
    if kind < 0.4:
        return rng.randbytes(rng.randint(1, 300))
    return " ".join(rng.choices(_WORDS, k=rng.randint(1, 40))).encode()


def _headers(rng: random.Random) -> HeaderPairs:
    if rng.random() < 0.7:
        return ()
    return tuple(
        (rng.choice(_HEADER_NAMES), rng.choice((None, b"", rng.randbytes(rng.randint(1, 30)))))
        for _ in range(rng.randint(1, 4))
    )


def _timestamp(rng: random.Random, now_ms: int) -> int | None:
    kind = rng.random()
    if kind < 0.5:
        return None
    if kind < 0.75:
        return now_ms - rng.randrange(_DAY_MS)
    return rng.randrange(now_ms)
