"""A task's rows once more, without those that brokers refused.

A row that a broker refuses fails its transaction. `written_without_refused` then writes the other
rows in another transaction, and the refused ones to the dead letter topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from aioproducer._util import log
from aioproducer.errors import KafkaError
from aioproducer.spark.rows import KEPT_BYTES, RowError

_T = TypeVar("_T")
_Item_co = TypeVar("_Item_co", covariant=True)
_R = TypeVar("_R")

if TYPE_CHECKING:
    from aioproducer.spark.prefetch import PrefetchIterator

_LOG: Final = log.get("spark")
_MOST_PASSES: Final = 20


class Refusal(NamedTuple):
    """The reason why a row is not sent again.

    Attributes:
        error: The reason.
        keeps_value: Whether its dead letter may have its value; not if that was refused as well.
    """

    error: KafkaError
    keeps_value: bool = True


Refused = Mapping[int, Refusal]
"""Rows that are not sent again, by their numbers in the task."""


class Items(Protocol[_Item_co]):
    """The items that a task reads."""

    async def next(self) -> _Item_co | None:
        """Return the next item; None at the end."""
        ...


class RowsRefusedError(Exception):
    """Brokers refused rows, and the transaction can only be aborted.

    Attributes:
        rows: The rows and the reasons.
        failure: The error of a task that does not write the others again.
    """

    def __init__(self, rows: Refused, failure: RowError) -> None:
        super().__init__(str(failure))
        self.rows: Refused = rows
        self.failure: RowError = failure


class Replay(Generic[_T]):
    """Items that can be read again, as long as they take no more memory than allowed."""

    def __init__(
        self, items: PrefetchIterator[_T], size_of: Callable[[_T], int], limit: int = KEPT_BYTES
    ) -> None:
        self._items = items
        self._size_of = size_of
        self._left = limit
        self._kept: list[_T] | None = []
        self._at = 0

    async def next(self) -> _T | None:
        """Return the next item; None at the end."""
        if self._kept is not None and self._at < len(self._kept):
            self._at += 1
            return self._kept[self._at - 1]
        found = await self._items.next()
        if found is not None and self._kept is not None:
            self._left -= self._size_of(found)
            self._kept.append(found)
            self._at += 1
            if self._left < 0:
                self._kept = None
        return found

    def rewind(self) -> bool:
        """Start again with the first item; return False if not all items are kept."""
        self._at = 0
        return self._kept is not None


def written_without_refused(write: Callable[[Refused, int], _R], rewind: Callable[[], bool]) -> _R:
    """Call `write`, and call it again without the rows that brokers refused; return its result.

    Each call of `write` is a new transaction, and gets its number, from 1. `rewind` makes the rows
    readable again, or returns False if that is impossible.
    """
    refused: dict[int, Refusal] = {}
    for number in range(1, _MOST_PASSES + 1):
        try:
            return write(refused, number)
        except RowsRefusedError as error:
            failure, found = error.failure, error.rows
        if not rewind():
            raise failure.with_context(
                advice=f"brokers refused rows of a task of more than {KEPT_BYTES >> 20} MiB, which "
                "cannot be written again without them: write with more partitions "
                "(repartition), or correct the rows"
            )
        if not _has_news(found, refused):
            raise failure
        refused |= found
        _LOG.info("brokers refused %d rows: the others are written again", len(refused))
    raise failure.with_context(
        advice=f"brokers refused rows in each of {_MOST_PASSES} transactions: correct the rows, or "
        "use delivery.guarantee=at-least-once"
    )


def _has_news(found: Refused, known: Refused) -> bool:
    """Return whether another pass would leave out more rows or values than the last one."""
    return any(
        row not in known or (known[row].keeps_value and not each.keeps_value)
        for row, each in found.items()
    )
