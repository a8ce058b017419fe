"""Checks of the client's side of the transaction protocol, on the bytes of its connections.

Not here: the brokers' state, which may be ahead of the responses that the process has received.

Rules
- A transactional batch has the newest producer id and epoch that the process has received.
- Nothing is produced between the request to end a transaction and its success, a new epoch, or the
  answer INVALID_TXN_STATE to an abort (nothing was open). The end is requested when no Produce
  request is in flight.
- Before Produce v12, a partition is written to only after the coordinator has added it to the
  transaction.
- A process that a coordinator has called fenced makes no request of a transaction any more.
- After a retriable error, or a response that leaves partitions out, the next request to a
  coordinator comes after a pause.
- After the error that a coordinator has moved, the next request to it comes after a lookup.
- A commit that is refused by INVALID_TXN_STATE, and is the only EndTxn of its transaction, fails
  only that: see `has_refused_commit`.
- No commit follows an addition that was refused by a code that is not retriable.
- In V1 the transaction after one in which a request got no response has a new epoch (KAFKA-17754).
- Produce v12 does not use an epoch that earlier versions have used, nor these one that the end of a
  V2 transaction has given: the first transaction after an upgrade or downgrade has a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.core.transactions.rules import OPERATION_NOT_ATTEMPTED
from aioproducer.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotCoordinatorError,
    ProducerFencedError,
    ProtocolError,
    error_for_code,
)
from aioproducer.records.batch import parse_header
from aioproducer.testing.broker.transactions.shards import CoordinatorKind
from aioproducer.testing.broker.transactions.states import ProducerIdentity
from aioproducer.testing.framing import REQUEST_TYPES, RequestHeader, decode_request_header
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import decode_response, peek_correlation_id
from aioproducer.wire.messages.find_coordinator import FindCoordinatorRequest
from aioproducer.wire.messages.init_producer_id import InitProducerIdResponse
from aioproducer.wire.messages.produce import ProduceRequest
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from aioproducer.testing.world.cluster import SimCluster
    from aioproducer.wire.schema import Message

_FIRST_PRODUCE_THAT_ADDS = 12
_SIZE_BYTES = 4
_SHORTEST = 0.79
"""Of a pause, with its jitter."""
_CONCURRENT_S = 0.02
"""The first pause while the transaction before is being ended (KIP-890), at most."""
_OF_COORDINATORS = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    }
)
_ADDITIONS = (AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, TxnOffsetCommitResponse)
_LAST_OF_V1 = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
}
"""The last version of each request that a V1 transaction uses and that may be carried out late."""
_WATCHED = _OF_COORDINATORS | {ApiKey.PRODUCE, ApiKey.FIND_COORDINATOR}
_COORDINATOR_MOVED = frozenset({CoordinatorNotAvailableError.code, NotCoordinatorError.code})
_Coordinator = tuple[CoordinatorKind, str]
"""Of transactions, or of a group with this name."""
_FENCED = frozenset({InvalidProducerEpochError.code, ProducerFencedError.code})


class ClientProtocolChecks:
    """The checks of one process.

    Args:
        name: The name of the process.
        cluster: Has the names of topics, and the time.
        complain: Called for each broken rule.
        backoff_s: The first pause (`retry_backoff_ms`).
        decides_about: The producer whose prepared transaction it ends, more than once maybe; None
            for a process with a producer.
    """

    def __init__(
        self,
        name: str,
        cluster: SimCluster,
        complain: Callable[[str], None],
        backoff_s: float,
        decides_about: ProducerIdentity | None = None,
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._complain = complain
        self._identity: ProducerIdentity | None = decides_about
        self._has_producer = decides_about is None
        self._added: set[TopicPartition] = set()
        self._ending = False
        self._aborting = False
        self._ends = 0
        self.has_refused_commit: bool = False
        """Whether the last EndTxn, the first of its transaction, was a commit that was refused."""
        self._is_fenced = False
        self._backoff_s = backoff_s
        self._pauses_until = -inf
        self.calls: int = 0
        """Number of calls from outside of a producer."""
        self._moved: set[_Coordinator] = set()
        self._used_before_v2: set[ProducerIdentity] = set()
        self._given_by_v2: ProducerIdentity | None = None
        self._refused: int = 0
        """The code that a request for an addition was refused with; 0 for none."""
        self._in_doubt: set[ProducerIdentity] = set()
        """Those under which a V1 request got no response."""
        self._spent: set[ProducerIdentity] = set()
        """Those of them whose transaction has ended."""
        self.producing: int = 0
        """Number of Produce requests in flight."""

    def watch(self) -> ConnectionWatch:
        """Return the listener of another connection."""
        return ConnectionWatch(self)

    def on_begin(self) -> None:
        """Handle the beginning of a transaction; the one before may have needed no EndTxn."""
        self._refused = self._ends = 0

    def on_call(self) -> None:
        """Handle a call from outside of a producer: one that was cancelled leaves no pause.

        Nor does a response to one of its requests that arrives later.
        """
        self._pauses_until = -inf
        self.calls += 1

    def on_request(self, header: RequestHeader) -> None:
        """Check a request that the process has sent completely."""
        if self._is_fenced and header.api_key in _OF_COORDINATORS:
            self._complain(
                f"{self._name} sends {ApiKey(header.api_key).name} and was fenced before"
            )
        early_s = self._pauses_until - self._cluster.loop.time()
        if header.api_key in _OF_COORDINATORS and early_s > 0:
            api = ApiKey(header.api_key).name
            self._complain(f"{self._name} sends {api} {early_s:.3f} s before its pause ends")
        if header.api_key in _OF_COORDINATORS and _coordinator_of(header) in self._moved:
            api = ApiKey(header.api_key).name
            self._complain(f"{self._name} sends {api} to a coordinator that has moved")
        if header.api_key == ApiKey.FIND_COORDINATOR:
            self._moved.discard(_coordinator_of(header))
        elif header.api_key == ApiKey.ADD_PARTITIONS_TO_TXN and self._identity in self._spent:
            self._complain(f"{self._name} goes on under {self._identity} after a lost response")
        elif header.api_key == ApiKey.PRODUCE:
            self._check_produce(header)
        elif header.api_key == ApiKey.END_TXN:
            request = EndTxnRequest.decode(header.body, header.api_version)
            if self.producing:
                self._complain(
                    f"{self._name} ends a transaction with {self.producing} Produce in flight"
                )
            if (request.producer_id, request.producer_epoch) != self._identity:
                self._complain(f"{self._name} ends a transaction of another producer id")
            if self._refused and request.committed:
                self._complain(f"{self._name} commits although an addition got {self._refused}")
            self._ending = True
            self._aborting = not request.committed
            self._ends += 1
            self.has_refused_commit = False

    def on_answer(self, answer: Message, asked: _Asked) -> None:
        """Handle a response that the process has received completely."""
        self._note_pause(list(_codes(answer)), asked)
        self._is_fenced |= self._has_producer and not _FENCED.isdisjoint(_codes(answer))
        if isinstance(answer, _ADDITIONS):
            codes = {*_codes(answer)} - {0, OPERATION_NOT_ATTEMPTED}
            final = (code for code in sorted(codes) if not error_for_code(code).retriable)
            self._refused = next(final, self._refused)
        if isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self._begin_anew()
        elif isinstance(answer, EndTxnResponse):
            is_wrong_state = answer.error_code == InvalidTxnStateError.code
            nothing_was_open = self._aborting and is_wrong_state
            self.has_refused_commit = is_wrong_state and not self._aborting and self._ends == 1
            if answer.error_code and not nothing_was_open:
                return
            if answer.producer_id >= 0 and self._has_producer:
                self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
                self._given_by_v2 = self._identity
            self._begin_anew()
        elif isinstance(answer, AddPartitionsToTxnResponse):
            self._added.update(
                TopicPartition(topic.name, each.partition_index)
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
                if not each.partition_error_code
            )

    def _note_pause(self, codes: Sequence[int], asked: _Asked) -> None:
        refused = {*codes} - {0, OPERATION_NOT_ATTEMPTED}
        if not all(error_for_code(code).retriable for code in refused):
            return
        if refused and refused <= _COORDINATOR_MOVED:
            self._moved.add(asked.coordinator)
        if asked.calls == self.calls and (refused or len(codes) < asked.partitions):
            is_concurrent = ConcurrentTransactionsError.code in refused
            pause_s = min(_CONCURRENT_S, self._backoff_s) if is_concurrent else self._backoff_s
            self._pauses_until = self._cluster.loop.time() + _SHORTEST * pause_s

    def on_no_answer(self) -> None:
        """Handle a V1 request without a response, which may be carried out later."""
        if self._identity is not None:
            self._in_doubt.add(self._identity)

    def _begin_anew(self) -> None:
        self._added.clear()
        self._ending = False
        self._refused = self._ends = 0
        self._spent |= self._in_doubt

    def _check_produce(self, header: RequestHeader) -> None:
        request = ProduceRequest.decode(header.body, header.api_version)
        for topic in request.topic_data:
            name = topic.name or self._name_of(topic.topic_id)
            for data in topic.partition_data:
                batch = parse_header(data.records or b"")
                identity = ProducerIdentity(batch.producer_id, batch.producer_epoch)
                where = TopicPartition(name, data.index)
                if header.api_version < _FIRST_PRODUCE_THAT_ADDS:
                    self._used_before_v2.add(identity)
                    if identity == self._given_by_v2:
                        self._complain(f"{self._name} goes on under {identity} after a downgrade")
                elif identity in self._used_before_v2:
                    self._complain(f"{self._name} goes on under {identity} after an upgrade")
                if not batch.is_transactional:
                    self._complain(f"{self._name} writes to {where} outside of any transaction")
                elif identity != self._identity:
                    self._complain(f"{self._name} writes as {identity}, being {self._identity}")
                elif self._ending:
                    self._complain(f"{self._name} writes to {where} after its transaction's end")
                elif header.api_version < _FIRST_PRODUCE_THAT_ADDS and where not in self._added:
                    self._complain(f"{self._name} writes to {where}, which was not added")

    def _name_of(self, topic_id: object) -> str:
        topics = (*self._cluster.topics.values(), *self._cluster.deleted)
        return next((topic.name for topic in topics if topic.topic_id == topic_id), "")


class _Asked(NamedTuple):
    api: ApiKey
    version: int
    partitions: int
    coordinator: _Coordinator
    calls: int


class ConnectionWatch:
    """Both directions of one connection; a `ByteListener`."""

    def __init__(self, checks: ClientProtocolChecks) -> None:
        self._checks = checks
        self._sent = bytearray()
        self._received = bytearray()
        self._asked: dict[int, _Asked] = {}

    def sent(self, data: bytes) -> None:
        """Handle bytes that the process has sent."""
        self._sent += data
        while (frame := _take_frame(self._sent)) is not None:
            header = decode_request_header(frame)
            api = ApiKey(header.api_key)
            if api in _WATCHED:
                self._asked[header.correlation_id] = _Asked(
                    api,
                    header.api_version,
                    _partitions(header),
                    _coordinator_of(header),
                    self._checks.calls,
                )
                self._checks.on_request(header)
                self._checks.producing += api is ApiKey.PRODUCE

    def received(self, data: bytes) -> None:
        """Handle bytes that the process has received."""
        self._received += data
        while (frame := _take_frame(self._received)) is not None:
            number = peek_correlation_id(frame)
            if number != next(iter(self._asked), number):
                continue  # another API, or out of order: the process closes the connection then
            asked = self._asked.pop(number, None)
            if asked is None:
                continue
            if asked.api is ApiKey.PRODUCE:
                self._checks.producing -= 1
                continue
            try:
                _, answer = decode_response(REQUEST_TYPES[asked.api], asked.version, frame)
            except ProtocolError:  # corrupted by a fault; the process discards it too
                continue
            self._checks.on_answer(answer, asked)

    def ended(self) -> None:
        """Handle the end of the connection."""
        self._checks.producing -= sum(each.api is ApiKey.PRODUCE for each in self._asked.values())
        if any(each.version <= _LAST_OF_V1.get(each.api, -1) for each in self._asked.values()):
            self._checks.on_no_answer()
        self._asked.clear()


def _coordinator_of(header: RequestHeader) -> _Coordinator:
    """Return the coordinator that a request goes to or looks up."""
    if header.api_key == ApiKey.TXN_OFFSET_COMMIT:
        committing = TxnOffsetCommitRequest.decode(header.body, header.api_version)
        return CoordinatorKind.GROUP, committing.group_id
    if header.api_key == ApiKey.FIND_COORDINATOR:
        lookup = FindCoordinatorRequest.decode(header.body, header.api_version)
        if lookup.key_type == CoordinatorKind.GROUP:
            return CoordinatorKind.GROUP, lookup.key or lookup.coordinator_keys[0]
    return CoordinatorKind.TRANSACTION, ""  # a process has one transactional id


def _partitions(header: RequestHeader) -> int:
    """Return how many partitions a request names whose response should have all of them."""
    if header.api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        adding = AddPartitionsToTxnRequest.decode(header.body, header.api_version)
        return sum(len(topic.partitions) for topic in adding.v3_and_below_topics)
    if header.api_key == ApiKey.TXN_OFFSET_COMMIT:
        committing = TxnOffsetCommitRequest.decode(header.body, header.api_version)
        return sum(len(topic.partitions) for topic in committing.topics)
    return 0


def _codes(answer: Message) -> Iterator[int]:
    if isinstance(answer, InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse):
        yield answer.error_code
    elif isinstance(answer, AddPartitionsToTxnResponse):
        for added in answer.results_by_topic_v3_and_below:
            yield from (each.partition_error_code for each in added.results_by_partition)
    elif isinstance(answer, TxnOffsetCommitResponse):
        for topic in answer.topics:
            yield from (each.error_code for each in topic.partitions)


def _take_frame(buffer: bytearray) -> bytes | None:
    if len(buffer) < _SIZE_BYTES:
        return None
    end = _SIZE_BYTES + int.from_bytes(buffer[:_SIZE_BYTES], "big")
    if len(buffer) < end:
        return None
    frame = bytes(buffer[_SIZE_BYTES:end])
    del buffer[:end]
    return frame
