"""Transaction calls of the application, from the call to the outcome.

Invariants
- An operation ends once; a repeated call gets the same operation.
- Until a caller has received the outcome, no other call is accepted: it could contradict it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import IllegalStateError
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError


class OperationKind(Enum):
    """Kind of a call; the value is the producer's method."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    SEND_OFFSETS = "send_offsets_to_transaction"


_S = TransactionState
CALLABLE_IN: Mapping[OperationKind, frozenset[TransactionState]] = {
    OperationKind.INIT: frozenset({_S.UNINITIALIZED}),
    # The call waits for a renewal of the epoch, and for an abort that no caller awaits.
    OperationKind.BEGIN: frozenset({_S.READY, _S.INITIALIZING, _S.ABORTING}),
    OperationKind.PREPARE: frozenset({_S.IN_TRANSACTION}),
    OperationKind.COMMIT: frozenset({_S.IN_TRANSACTION, _S.PREPARED}),
    OperationKind.ABORT: frozenset({_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR}),
    OperationKind.SEND_OFFSETS: frozenset({_S.IN_TRANSACTION}),
}
ADVICE: Mapping[TransactionState, str] = {
    _S.UNINITIALIZED: "await init_transactions() first",
    _S.INITIALIZING: "begin a transaction: begin_transaction() waits for that",
    _S.READY: "begin a transaction: `async with producer.transaction():`",
    _S.IN_TRANSACTION: "commit or abort the transaction first",
    _S.PREPARED: "commit or abort the transaction first",
    _S.COMMITTING: "await commit_transaction(), then begin another transaction",
    _S.ABORTING: "begin another transaction: begin_transaction() waits for the end of this one",
}


@dataclass(slots=True, eq=False)
class Operation:
    """One pending call, or its outcome."""

    kind: OperationKind
    done: bool = False
    error: KafkaError | None = None
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener()` once, when the outcome is set; at once if it is."""
        if self.done:
            listener()
        else:
            self._listeners.append(listener)

    def finish(self, error: KafkaError | None = None) -> None:
        """Set the outcome; a second call only finishes what an exception interrupted."""
        if not self.done:
            self.done, self.error = True, error
        while self._listeners:
            self._listeners[0]()
            del self._listeners[0]


class OffsetsOperation(Operation):
    """Offsets to add to the transaction; `left` are those that are not committed yet."""

    __slots__ = ("group", "left")

    def __init__(
        self, group: ConsumerGroupMetadata, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        super().__init__(OperationKind.SEND_OFFSETS)
        self.group: ConsumerGroupMetadata = group
        self.left: dict[TopicPartition, OffsetAndMetadata] = offsets


class Operations:
    """The pending calls, and the call whose outcome no caller has received yet."""

    def __init__(self) -> None:
        self.unreceived: Operation | None = None
        self._going_on: dict[OperationKind, Operation] = {}

    def __bool__(self) -> bool:
        """Return whether any call is pending."""
        return bool(self._going_on)

    def __contains__(self, kind: OperationKind) -> bool:
        """Return whether a call of this kind is pending."""
        return kind in self._going_on

    def repeated(self, kind: OperationKind) -> Operation | None:
        """Return the operation that the call repeats, None for a new call.

        Raise if no caller has received the outcome of another call.
        """
        if self.unreceived is not None and self.unreceived.kind is not kind:
            call = self.unreceived.kind.value
            raise IllegalStateError(
                f"the outcome of {call}() has not been seen yet",
                advice=f"repeat {call}(): it goes on where it is",
            )
        return self.unreceived

    def start(self, kind: OperationKind) -> Operation:
        """Start a new operation."""
        operation = self.unreceived = self._going_on[kind] = Operation(kind)
        return operation

    def on_received(self, operation: Operation) -> None:
        """Mark the outcome as received, or not needed: other calls may follow."""
        if self.unreceived is operation:
            self.unreceived = None

    def finish_all(self, *kinds: OperationKind, error: KafkaError | None = None) -> None:
        """End the pending calls of these kinds."""
        for kind in kinds:
            operation = self._going_on.get(kind)
            if operation is not None:
                if error is not None:
                    # After an error, the producer's state decides which calls may follow.
                    self.on_received(operation)
                operation.finish(error)
                del self._going_on[kind]  # last: after an exception the next call ends it

    @property
    def commit(self) -> Operation | None:
        """The commit that is pending, or whose outcome no caller has received."""
        if self.unreceived is not None and self.unreceived.kind is OperationKind.COMMIT:
            return self.unreceived
        return self._going_on.get(OperationKind.COMMIT)

    def end_of_transaction(self) -> Operation | None:
        """Return the pending commit or abort, if any."""
        going_on = self._going_on
        return going_on.get(OperationKind.COMMIT) or going_on.get(OperationKind.ABORT)
