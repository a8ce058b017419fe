"""The rows that were read and have no outcome yet, in input order.

Invariants
- Rows leave in the order in which they were read, so position and dead-letter file cover no row
  after one without an outcome.
- Once a row's outcome blocks the load (`failure`), position and settled counts stay before that
  row; rows after it are still counted for this run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, Protocol

from aioproducer import errors
from aioproducer.errors.advice import joined
from aioproducer.loader.dead_letter_file import DeadLetterFile
from aioproducer.loader.errors import DeadLetterError, RejectedRowError
from aioproducer.loader.mapping import row_checksum, row_text
from aioproducer.loader.refusals import LeftOut
from aioproducer.loader.rows import BadRow, Position, RowBatch
from aioproducer.loader.state import LoadState, Settled

ROW_ERRORS = (
    errors.RecordListTooLargeError,
    errors.RecordTooLargeError,
    errors.SerializationError,
    errors.InvalidPartitionError,
    errors.InvalidRecordError,
    errors.InvalidTimestampError,
)
"""Errors that one record itself causes: the rows after it may succeed."""
CONSEQUENCES = (
    errors.BatchRefusedError,
    errors.TransactionAbortableError,
    errors.TransactionAbortedError,
)
"""Errors of other records of its batch or transaction."""


class DeliveryLike(Protocol):
    """The part of a `Delivery` that the loader needs."""

    def done(self) -> bool:
        """Return whether the record has its outcome."""
        ...

    def exception(self) -> BaseException | None:
        """Return why it failed, None when it was acknowledged."""
        ...

    def __await__(self) -> Generator[Any, Any, Any]: ...


_NAME_A_FILE = "name a dead-letter file to go on past such rows"

Outcome = DeliveryLike | BadRow | LeftOut | errors.KafkaError
"""A row's outcome: open or known to Kafka, or a refusal of it, now or in an earlier attempt."""

_KNOWN = (BadRow, LeftOut, errors.KafkaError)


class Window:
    """Rows without an outcome, and rows after them.

    Without a `dead_letter` file the first rejected row blocks the load. With `all_or_none`, for
    transactions, so does each record that fails; `refused` has the rows that Kafka refused.
    With `has_files`, states have a checksum of the last row.
    """

    def __init__(
        self,
        state: LoadState,
        dead_letter: DeadLetterFile | None,
        *,
        all_or_none: bool = False,
        has_files: bool = False,
    ) -> None:
        self.acknowledged: int = 0
        self.failed: int = 0
        self.failure: BaseException | None = None
        self.refused: dict[Position, errors.KafkaError] = {}
        self.begun_at: LoadState = state
        self._dead_letter = dead_letter
        self._all_or_none = all_or_none
        self._has_files = has_files
        self._rows: deque[tuple[Outcome, RowBatch, int]] = deque()
        self._rejected = 0
        self._last: tuple[RowBatch, int] | None = None
        self._blocked_at: LoadState | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, outcome: Outcome, batch: RowBatch, index: int) -> None:
        """Append the next row of the input."""
        self._rows.append((outcome, batch, index))

    @property
    def head(self) -> DeliveryLike | None:
        """The delivery of the first row; None if it has its outcome, or there is no row."""
        if not self._rows:
            return None
        outcome = self._rows[0][0]
        return None if isinstance(outcome, _KNOWN) else outcome

    def pop_finished(self) -> None:
        """Remove every row at the head that has its outcome."""
        rows = self._rows
        while rows:
            outcome, batch, index = rows[0]
            if isinstance(outcome, _KNOWN):
                error: BadRow | LeftOut | BaseException | None = outcome
            elif outcome.done():
                error = outcome.exception()
            else:
                return
            if error is None:
                self.acknowledged += 1
            else:
                self._refused(error, batch, index)
            rows.popleft()
            self._last = (batch, index)

    def state(self) -> LoadState:
        """Return the position up to which all is settled, by this run and those before it."""
        if self._blocked_at is not None:
            return self._blocked_at
        before = self.begun_at.settled
        position, checksum = self.begun_at.position, self.begun_at.row_checksum
        if self._last is not None:
            position = self._last[0].position(self._last[1])
            checksum = row_checksum(*self._last) if self._has_files else None
        return LoadState(
            topic=self.begun_at.topic,
            position=position,
            settled=Settled(
                acknowledged=before.acknowledged + self.acknowledged,
                rejected=before.rejected + self._rejected,
                failed=before.failed + self.failed,
                dead_letter_bytes=before.dead_letter_bytes
                if self._dead_letter is None
                else self._dead_letter.size,
            ),
            row_checksum=checksum,
        )

    def _refused(
        self, error: BadRow | LeftOut | BaseException, batch: RowBatch, index: int
    ) -> None:
        try:
            self._reject(error, batch, index)
        except DeadLetterError as failure:
            self._block(failure)
        if isinstance(error, BadRow):
            self._rejected += 1
        else:
            self.failed += 1

    def _reject(self, error: BadRow | LeftOut | BaseException, batch: RowBatch, index: int) -> None:
        position = batch.position(index)
        if isinstance(error, LeftOut):
            error = error.error
        elif self._all_or_none and isinstance(error, ROW_ERRORS):
            self.refused[position] = error
            self._block(self._named(error, position))
            if isinstance(self.failure, CONSEQUENCES):  # of a row before this one
                self.failure = self._named(error, position)
            return
        if isinstance(error, BadRow):
            if self._dead_letter is None:
                self._block(RejectedRowError(f"{position}: {error.reason}", advice=_NAME_A_FILE))
            else:
                self._dead_letter.write(position, "row", error.reason, error.raw)
        elif not isinstance(error, ROW_ERRORS):
            self._block(error)
        elif self._dead_letter is None:
            self._block(self._named(error, position))
        else:
            self._dead_letter.write(position, "delivery", str(error), row_text(batch, index))

    def _block(self, failure: BaseException) -> None:
        if self._blocked_at is None:
            self._blocked_at = self.state()
            self.failure = failure

    def _named(self, error: errors.KafkaError, position: Position) -> errors.KafkaError:
        """Return a copy of a row's error that names the row."""
        advice = None if self._dead_letter is not None else _NAME_A_FILE
        named = error.with_context(advice=joined(error.advice, advice))
        named.args = (f"{position}: {error.message}", *error.args[1:])
        return named
