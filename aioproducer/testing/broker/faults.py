"""Scripted misbehaviour of the simulated brokers.

Two kinds of fault:
- an `ErrorAnswer` concerns one topic or partition inside a request, before or after the work;
- a `ConnectionFault` concerns a whole request: its connection drops, its answer comes late, never,
  throttled, or is not an answer at all.

Invariants: faults strike in the order they were scripted, one per request and kind; each counts
in `struck`, so a test can insist that its fault happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from aioproducer.errors import BrokerError
from aioproducer.wire.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """Answer an error for a topic or partition.

    With `apply` the work is done first (the batch is in the log, the topic exists), as when a
    broker fails after the write.
    """

    code: int
    apply: bool = False
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionFault:
    """A fault's effect on a whole request.

    Attributes:
        apply: Whether the request is carried out at all.
        answer: Whether an answer is sent.
        close: Whether the connection ends then.
        delay_ms: How long the answer is held back.
        throttle_ms: The throttle time sent to the client, for which the broker also stops reading
            from the connection (KIP-219).
        frame: Bytes to send instead of the answer, size prefix included.
        cut_at: Send only so many bytes of the answer.
    """

    apply: bool = True
    answer: bool = True
    close: bool = False
    delay_ms: int = 0
    throttle_ms: int = 0
    frame: bytes | None = None
    cut_at: int | None = None


@dataclass(slots=True, eq=False)
class Fault:
    """One scripted fault: where it strikes, after how many skips, how often (None: for ever)."""

    action: ErrorAnswer | ConnectionFault
    api: ApiKey | None = None
    node_id: int | None = None
    topic: str | None = None
    partition: int | None = None
    times: int | None = 1
    skip: int = 0
    struck: int = field(default=0, init=False)

    @property
    def is_spent(self) -> bool:
        """Whether it has struck as often as it may."""
        return self.times is not None and self.struck >= self.times

    def strikes(self, api: ApiKey, node_id: int, topic: str | None, partition: int | None) -> bool:
        """Decide about one opportunity, counting it."""
        fits = (
            self.api in {None, api}
            and self.node_id in {None, node_id}
            and self.topic in {None, topic}
            and self.partition in {None, partition}
        )
        if not fits or self.is_spent:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.struck += 1
        return True


_PER_PARTITION = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_COMMIT,
    }
)
_PER_NAME = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.OFFSET_FETCH,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
    }
)
_WHOLE = frozenset(
    {ApiKey.LIST_TRANSACTIONS, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
)


class Where(TypedDict, total=False):
    """The broker of a fault, and how often it strikes.

    Attributes:
        node_id: Only at this broker.
        times: How often, once by default; None until removed.
        skip: How many opportunities pass first.
    """

    node_id: int | None
    times: int | None
    skip: int


class Faults:
    """The faults of one cluster."""

    def __init__(self) -> None:
        self._errors: list[Fault] = []
        self._connections: list[Fault] = []

    def error(
        self,
        api: ApiKey,
        error: int | type[BrokerError],
        *,
        topic: str | None = None,
        partition: int | None = None,
        apply: bool = False,
        message: str | None = None,
        **where: Unpack[Where],
    ) -> Fault:
        """Answer `error` for a topic or partition in a request of `api`.

        Args:
            api: PRODUCE, FETCH, LIST_OFFSETS, ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT,
                OFFSET_COMMIT (per partition), METADATA, CREATE_TOPICS, DELETE_TOPICS,
                CREATE_PARTITIONS (per topic), FIND_COORDINATOR, DESCRIBE_TRANSACTIONS,
                OFFSET_FETCH, INIT_PRODUCER_ID, ADD_OFFSETS_TO_TXN, END_TXN (per key, given as
                `topic`: a transactional id or a group) or LIST_TRANSACTIONS.
            error: A broker error code or its class. Where a broker answers an error for a whole
                request, all its partitions get it.
            topic: Only this topic.
            partition: Only this partition.
            apply: Whether the work is done before the error is answered.
            message: The text beside the code, where the response has room for one.
            **where: See `Where`.

        Raises:
            ValueError: No error is answered to `api`, or none for single topics or partitions.
        """
        if api not in _PER_PARTITION | _PER_NAME | _WHOLE:
            raise ValueError(f"no errors can be scripted for {api.name}: drop or delay it")
        if (partition is not None and api not in _PER_PARTITION) or (
            topic is not None and api in _WHOLE
        ):
            what = "topic" if partition is None else "partition"
            raise ValueError(f"{api.name} is not answered by {what}: leave that out")
        code = error if isinstance(error, int) else error.code
        action = ErrorAnswer(code, apply, message)
        return self.add(Fault(action, api, topic=topic, partition=partition, **where))

    def drop(
        self, api: ApiKey | None = None, *, apply: bool = False, **where: Unpack[Where]
    ) -> Fault:
        """Close the connection instead of answering, after the work with `apply`, else before."""
        action = ConnectionFault(apply=apply, answer=False, close=True)
        return self.add(Fault(action, api, **where))

    def swallow(
        self, api: ApiKey | None = None, *, apply: bool = False, **where: Unpack[Where]
    ) -> Fault:
        """Never answer; the connection stays open."""
        return self.add(Fault(ConnectionFault(apply=apply, answer=False), api, **where))

    def delay(self, delay_ms: int, api: ApiKey | None = None, **where: Unpack[Where]) -> Fault:
        """Do the work, and delay this response and those after it by `delay_ms`."""
        return self.add(Fault(ConnectionFault(delay_ms=delay_ms), api, **where))

    def throttle(
        self, throttle_ms: int, api: ApiKey | None = None, **where: Unpack[Where]
    ) -> Fault:
        """Throttle the client for `throttle_ms`."""
        return self.add(Fault(ConnectionFault(throttle_ms=throttle_ms), api, **where))

    def garble(
        self,
        frame: bytes,
        api: ApiKey | None = None,
        *,
        close: bool = False,
        **where: Unpack[Where],
    ) -> Fault:
        """Send `frame` (size prefix included) in place of the answer."""
        action = ConnectionFault(apply=False, frame=frame, close=close)
        return self.add(Fault(action, api, **where))

    def cut(self, size: int, api: ApiKey | None = None, **where: Unpack[Where]) -> Fault:
        """Do the work, send the first `size` bytes of the answer and close."""
        return self.add(Fault(ConnectionFault(cut_at=size, close=True), api, **where))

    def add(self, fault: Fault) -> Fault:
        """Script a fault; returned for its `struck` and for `remove`."""
        (self._errors if isinstance(fault.action, ErrorAnswer) else self._connections).append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """End a fault early."""
        for faults in (self._errors, self._connections):
            if fault in faults:
                faults.remove(fault)

    def clear(self) -> None:
        """End all faults."""
        self._errors.clear()
        self._connections.clear()

    def take_error(
        self, api: ApiKey, node_id: int, topic: str | None = None, partition: int | None = None
    ) -> ErrorAnswer | None:
        """Return the error to answer for this topic or partition now, if any."""
        action = _take(self._errors, api, node_id, topic, partition)
        return action if isinstance(action, ErrorAnswer) else None

    def take_connection_fault(self, api: ApiKey, node_id: int) -> ConnectionFault | None:
        """Return the fault of this request, if any."""
        action = _take(self._connections, api, node_id, None, None)
        return action if isinstance(action, ConnectionFault) else None


def _take(
    faults: list[Fault], api: ApiKey, node_id: int, topic: str | None, partition: int | None
) -> ErrorAnswer | ConnectionFault | None:
    for fault in faults:
        if fault.strikes(api, node_id, topic, partition):
            if fault.is_spent:
                faults.remove(fault)
            return fault.action
    return None
