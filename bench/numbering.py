"""Numbered records, and what is wrong with the numbers that a reader finds.

Owns: the form of a value, the comparison of what is read with 0, 1, 2, ... of each source. Not
here: clients, brokers, processes.

Each source numbers its records and sends each to one partition, so that order means
something. Memory is bounded: only numbers that are missing so far are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SOURCE_DIGITS = 5
_NUMBER_DIGITS = 14
_HEAD = _SOURCE_DIGITS + 1 + _NUMBER_DIGITS
_MOST_MISSING = 1_000_000


def value_of(source: int, number: int, size: int) -> bytes:
    """The record: its source and number, filled up to `size` bytes."""
    return (b"%0*d %0*d" % (_SOURCE_DIGITS, source, _NUMBER_DIGITS, number)).ljust(size, b".")


def number_of(value: bytes | None, size: int) -> tuple[int, int]:
    """Return the source and number of a record; raise ValueError for any other record."""
    if value is None or len(value) != size or value[_HEAD:].strip(b"."):
        raise ValueError(f"not one of our records: {value!r}")
    return int(value[:_SOURCE_DIGITS]), int(value[_SOURCE_DIGITS:_HEAD])


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a reader.

    Attributes:
        read: Records, copies included.
        lost: Neither found nor known to have failed.
        duplicated: Copies beyond the first.
        reordered: Found after a record with a higher number.
        wrongly_denied: Found although the client said they were not written.
    """

    read: int
    lost: int
    duplicated: int
    reordered: int
    wrongly_denied: int


class Numbering:
    """The numbers of every source, as they come in."""

    def __init__(self) -> None:
        self.read = 0
        self.duplicated = 0
        self.reordered = 0
        self._next: dict[int, int] = {}
        self._missing: dict[int, set[int]] = {}

    @property
    def missing(self) -> int:
        """The number of numbers that were skipped and did not come yet."""
        return sum(map(len, self._missing.values()))

    def see(self, source: int, number: int) -> None:
        """Count the next record of a partition; raise ValueError if it leaves too large a gap."""
        self.read += 1
        wanted = self._next.get(source, 0)
        if number == wanted:
            self._next[source] = number + 1
        elif number > wanted:
            self._skip(source, wanted, number)
        elif number in self._missing.get(source, ()):
            self._missing[source].discard(number)
            self.reordered += 1
        else:
            self.duplicated += 1

    def complete(self, sent: Mapping[int, int]) -> bool:
        """Return whether each source came as far as it sent."""
        return all(self._next.get(source, 0) >= count for source, count in sent.items())

    def findings(
        self,
        sent: Mapping[int, int],
        failed: Iterable[tuple[int, int]] = (),
        denied: Iterable[tuple[int, int]] = (),
    ) -> Findings:
        """Return the verdict, given how many numbers each source has used.

        Records in `failed` may be absent. Those in `denied` must be: the client has reported them
        as not persisted.
        """
        absent = {(s, n) for s, numbers in self._missing.items() for n in numbers}
        tail = {s: max(0, count - self._next.get(s, 0)) for s, count in sent.items()}
        excused = {(s, n) for s, n in failed if (s, n) in absent or n >= self._next.get(s, 0)}
        return Findings(
            read=self.read,
            lost=len(absent) + sum(tail.values()) - len(excused),
            duplicated=self.duplicated,
            reordered=self.reordered,
            wrongly_denied=sum(
                n < self._next.get(s, 0) and (s, n) not in absent for s, n in denied
            ),
        )

    def _skip(self, source: int, wanted: int, number: int) -> None:
        if self.missing + number - wanted > _MOST_MISSING:
            raise ValueError(f"source {source} jumps from {wanted} to {number}")
        self._missing.setdefault(source, set()).update(range(wanted, number))
        self._next[source] = number + 1
