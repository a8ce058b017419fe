"""Transactions of a load: rows become visible together with the position after them, or not.

    read position --> [ begin --> rows --> position --> commit ] ...

Invariants
- A commit that was begun is waited for even if its caller is cancelled: otherwise it would be
  unknown which position holds.
- Nothing is committed without the position after it, and no position without its rows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aioproducer._util.arguments import utf8_size
from aioproducer._util.bounded_json import decoded_json
from aioproducer.client.producer import Producer
from aioproducer.client.source_position import SourcePosition
from aioproducer.client.transactions import Transaction, reason_after_abort
from aioproducer.errors import CommitOutcomeUnknownError, ConfigError, KafkaError, KafkaTimeoutError
from aioproducer.loader.errors import StateError
from aioproducer.loader.state import LoadState

_RUN_AGAIN = (
    "Run the load again: it reads from Kafka whether this commit has worked, and resumes after it."
)
_LONGEST_POSITION = 1024 * 1024
"""In characters; brokers accept 4,096 by default (`offset.metadata.max.bytes`)."""
_MOST_VALUES = 1_000
_SHARE_OF_TIMEOUT = 0.25
"""Share of the transaction timeout after which to commit; the rest is for the last records."""


class LoadTransactions:
    """The transactions of one load, one after the other.

    The transactional id names the load; a position of another `source`, or of other `inputs`, a
    checksum of their names, is refused. A transaction ends after so many `rows` or `seconds`.
    """

    def __init__(
        self, producer: Producer, topic: str, source: str, inputs: str, *, rows: int, seconds: float
    ) -> None:
        name = producer.config.transactional_id
        if name is None:
            raise ConfigError("to load exactly once, the producer needs a transactional_id")
        self._producer = producer
        self._topic = topic
        self._position = SourcePosition(name, topic)
        self._source = source
        self._inputs = inputs
        self._most_rows = rows
        timeout = producer.config.transaction_timeout_ms / 1000
        self._most_seconds = min(seconds, timeout * _SHARE_OF_TIMEOUT)
        self.committed: LoadState | None = None
        """The state of the last commit, which may be one of an earlier run."""
        self._transaction: Transaction | None = None
        self._rows = 0
        self._since = 0.0
        self._committing: asyncio.Task[None] | None = None
        self.is_usable: bool = True
        """Whether another transaction can be begun."""
        self.is_aborted: bool = False
        """Whether the last transaction is aborted, or the broker will abort it at its timeout."""

    async def read(self) -> LoadState | None:
        """Return the state that an earlier run of this load has committed; None without one."""
        found = await self._position.read(self._producer)
        if found is None:
            return None
        try:
            content = decoded_json(found.metadata or "", _LONGEST_POSITION, _MOST_VALUES)
            committed, source = LoadState.from_dict(content), content["source"]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise StateError(
                f"the offset of group {self._position.group_id!r} is no position of a load",
                advice="choose another transactional_id",
            ) from error
        if source != self._source:
            raise StateError(
                f"the transactional_id {self._position.group_id!r} belongs to a load of {source}",
                advice="choose another one",
            )
        if content.get("inputs", self._inputs) != self._inputs:
            raise StateError(
                f"the transactional_id {self._position.group_id!r} belongs to a load of other "
                "inputs",
                advice="restore their names and order, or choose another transactional_id",
            )
        self.committed = committed
        return committed

    @property
    def is_due(self) -> bool:
        """Whether the transaction should end."""
        due_in_s = self.due_in_s
        return due_in_s is not None and (due_in_s == 0 or self._rows >= self._most_rows)

    @property
    def due_in_s(self) -> float | None:
        """The seconds until the transaction should end; None while none is open."""
        if self._transaction is None:
            return None
        elapsed = asyncio.get_running_loop().time() - self._since
        return max(0.0, self._most_seconds - elapsed)

    async def extend(self, rows: int) -> None:
        """Count rows of the open transaction; begin one if there is none."""
        if self._transaction is None:
            await self._begin()
        self._rows += rows

    async def commit(self, state: LoadState) -> None:
        """Commit all sent records with `state` as their position; call it after a flush."""
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit(state))
        await self.wait_for_commit()

    async def wait_for_commit(self) -> None:
        """Wait for the outcome of a commit that was begun."""
        if self._committing is not None:
            await asyncio.shield(self._committing)
            self._committing = None

    async def abort(self, because: BaseException) -> BaseException:
        """Abort the open transaction; return the error to raise: `because`, or its cause."""
        self._committing = None
        if self._transaction is None:
            return because
        self._transaction, self.is_aborted = None, True
        try:
            await self._producer.abort_transaction()
        except KafkaError as error:
            self.is_usable = False
            return reason_after_abort(error, because)
        return because

    async def _begin(self) -> Transaction:
        self._transaction = await self._producer.transaction().__aenter__()
        self._rows, self.is_aborted = 0, False
        self._since = asyncio.get_running_loop().time()
        return self._transaction

    async def _commit(self, state: LoadState) -> None:
        transaction = self._transaction or await self._begin()
        content = {"source": self._source, "inputs": self._inputs, **state.as_dict()}
        await self._position.write(transaction, state.settled.rows, _text_of(content))
        try:
            await self._producer.commit_transaction()
        except (CommitOutcomeUnknownError, KafkaTimeoutError) as error:
            # It may be committed: nothing is left to abort, and the position is read anew.
            self._transaction, self.is_usable = None, False
            raise error.with_context(advice=_RUN_AGAIN) from error.__cause__
        self._transaction, self.committed = None, state


def _text_of(content: Mapping[str, Any]) -> str:
    """Return a position as compact JSON: brokers limit the size of metadata."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    # The name of a file may have bytes that are no text.
    return text if utf8_size(text) >= 0 else json.dumps(content, separators=(",", ":"))
