"""Small random damage to an input: what a fuzzer without feedback can do.

Owns: `mutated`. Invariant: the same random source gives the same damage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

_EDGES = [0, 1, -1, 2, 127, 128, -128, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1]


def mutated(data: bytes, others: Sequence[bytes], rng: Random, longest: int) -> bytes:
    """A copy of `data` with one to four changes, at most `longest` bytes."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_CHANGES)(out, others, rng)
    return bytes(out[:longest])


def _flip(out: bytearray, others: Sequence[bytes], rng: Random) -> None:
    if out:
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def _overwrite(out: bytearray, others: Sequence[bytes], rng: Random) -> None:
    if out:
        out[rng.randrange(len(out))] = rng.randrange(256)


def _put_number(out: bytearray, others: Sequence[bytes], rng: Random) -> None:
    """A number that lengths and counts trip over, in the width of one."""
    width = rng.choice((1, 2, 4, 8))
    number = (rng.choice(_EDGES) % 2 ** (8 * width)).to_bytes(width, "big")
    start = rng.randint(0, len(out))
    out[start : start + width] = number


def _insert(out: bytearray, others: Sequence[bytes], rng: Random) -> None:
    start = rng.randint(0, len(out))
    out[start:start] = rng.randbytes(rng.randint(1, 8))


def _remove(out: bytearray, others: Sequence[bytes], rng: Random) -> None:
    start = rng.randint(0, len(out))
    del out[start : start + rng.randint(1, 8)]


def _repeat(out: bytearray, others: Sequence[bytes], rng: Random) -> None:
    start = rng.randint(0, len(out))
    out[start:start] = out[start : start + rng.randint(1, 32)]


def _cut(out: bytearray, others: Sequence[bytes], rng: Random) -> None:
    del out[rng.randint(0, len(out)) :]


def _splice(out: bytearray, others: Sequence[bytes], rng: Random) -> None:
    other = rng.choice(others)
    out[rng.randint(0, len(out)) :] = other[rng.randint(0, len(other)) :]


_CHANGES: list[Callable[[bytearray, Sequence[bytes], Random], None]] = [
    _flip,
    _overwrite,
    _put_number,
    _insert,
    _remove,
    _repeat,
    _cut,
    _splice,
]
