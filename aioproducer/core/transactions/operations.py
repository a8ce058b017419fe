"""What an application asks of its transactions, from the call to the outcome.

Owns: which call fits which state, the outcome of one call and who is told of it. Must not know:
requests, futures.

Invariants
- An operation ends once; whoever calls again for the same thing is given the same one.
- Until the outcome of a call has been told, no other call follows: it could contradict it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import IllegalStateError
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError


class OperationKind(Enum):
    """The calls, by the names of the producer's methods."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    SEND_OFFSETS = "send_offsets_to_transaction"


_S = TransactionState
CALLABLE_IN: Mapping[OperationKind, frozenset[TransactionState]] = {
    OperationKind.INIT: frozenset({_S.UNINITIALIZED}),
    # While the epoch is renewed or an abort nobody waits for ends, the call waits for that.
    OperationKind.BEGIN: frozenset({_S.READY, _S.INITIALIZING, _S.ABORTING}),
    OperationKind.PREPARE: frozenset({_S.IN_TRANSACTION}),
    OperationKind.COMMIT: frozenset({_S.IN_TRANSACTION, _S.PREPARED}),
    OperationKind.ABORT: frozenset({_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR}),
    OperationKind.SEND_OFFSETS: frozenset({_S.IN_TRANSACTION}),
}
ADVICE: Mapping[TransactionState, str] = {
    _S.UNINITIALIZED: "await init_transactions() first",
    _S.INITIALIZING: "await init_transactions() first",
    _S.READY: "begin a transaction: `async with producer.transaction():`",
    _S.IN_TRANSACTION: "commit or abort the transaction first",
    _S.PREPARED: "commit or abort the transaction first",
    _S.COMMITTING: "await commit_transaction(), then begin another transaction",
    _S.ABORTING: "await abort_transaction(), then begin another transaction",
}


class Operation:
    """One call that is going on, or its outcome."""

    __slots__ = ("_listeners", "done", "error", "kind")

    def __init__(self, kind: OperationKind) -> None:
        self.kind: OperationKind = kind
        self.done: bool = False
        self.error: KafkaError | None = None
        self._listeners: list[Callable[[], None]] = []

    def add_listener(self, listener: Callable[[], None]) -> None:
        """`listener()` runs once, when the outcome is known; at once if it is."""
        if self.done:
            listener()
        else:
            self._listeners.append(listener)

    def finish(self, error: KafkaError | None = None) -> None:
        """Sets the outcome; the second call only does what an exception has left undone."""
        if not self.done:
            self.done, self.error = True, error
        while self._listeners:
            self._listeners[0]()
            del self._listeners[0]


class OffsetsOperation(Operation):
    """Offsets on their way into the transaction; `left` are those not taken in yet."""

    __slots__ = ("group", "left")

    def __init__(
        self, group: ConsumerGroupMetadata, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        super().__init__(OperationKind.SEND_OFFSETS)
        self.group: ConsumerGroupMetadata = group
        self.left: dict[TopicPartition, OffsetAndMetadata] = offsets


class Operations:
    """The calls that go on, and the one whose outcome nobody has been told yet."""

    def __init__(self) -> None:
        self.untold: Operation | None = None
        self._going_on: dict[OperationKind, Operation] = {}

    def __bool__(self) -> bool:
        """Whether any call goes on."""
        return bool(self._going_on)

    def __contains__(self, kind: OperationKind) -> bool:
        """Whether such a call goes on."""
        return kind in self._going_on

    def repeated(self, kind: OperationKind) -> Operation | None:
        """The call that is being repeated, None for a new one.

        Raises:
            IllegalStateError: the outcome of another one comes first.
        """
        if self.untold is not None and self.untold.kind is not kind:
            call = self.untold.kind.value
            raise IllegalStateError(
                f"the outcome of {call}() has not been seen yet",
                advice=f"repeat {call}(): it goes on where it is",
            )
        return self.untold

    def start(self, kind: OperationKind) -> Operation:
        """A new call."""
        operation = self.untold = self._going_on[kind] = Operation(kind)
        return operation

    def on_told(self, operation: Operation) -> None:
        """A caller knows the outcome, or never will: other calls may follow."""
        if self.untold is operation:
            self.untold = None

    def settle(self, *kinds: OperationKind, error: KafkaError | None = None) -> None:
        """Ends those of these calls that go on."""
        for kind in kinds:
            operation = self._going_on.get(kind)
            if operation is not None:
                if error is not None:
                    # The producer's state says what may be called next.
                    self.on_told(operation)
                operation.finish(error)
                del self._going_on[kind]  # last: after an exception the next call ends it

    @property
    def commit(self) -> Operation | None:
        """The commit that goes on, or whose outcome nobody has been told."""
        going_on = self._going_on.get(OperationKind.COMMIT)
        if going_on is None and self.untold is not None:
            return self.untold if self.untold.kind is OperationKind.COMMIT else None
        return going_on

    def end_of_transaction(self) -> Operation | None:
        """The commit or abort that goes on."""
        going_on = self._going_on
        return going_on.get(OperationKind.COMMIT) or going_on.get(OperationKind.ABORT)
