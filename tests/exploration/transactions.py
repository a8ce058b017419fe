"""A transactional producer: a script of calls, a coordinator, and answers that get lost."""

from __future__ import annotations

from math import inf
from typing import Any

from aioproducer.core.driver import Turns
from aioproducer.core.sending.actions import Connect, CoordinatorUnreachable, RequestOfCoordinator
from aioproducer.core.sending.idempotence import Sequencer
from aioproducer.core.transactions.coordinators import CoordinatorSession
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.operations import Operation, OperationKind
from aioproducer.core.transactions.requests import TransactionalRequest
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.sequencer import TransactionalSequencer
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    KafkaError,
    NodeDisconnectedError,
    ProducerClosedError,
    TransactionAbortableError,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aioproducer.wire.messages.find_coordinator import FindCoordinatorResponse
from aioproducer.wire.messages.init_producer_id import InitProducerIdResponse
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from exploration.broker import NOT_LEADER
from exploration.coordinator import (
    ABORTABLE,
    CONCURRENT,
    UNKNOWN_PRODUCER,
    WITHOUT_EFFECT,
    Coordinator,
)
from exploration.records import Encoded
from exploration.world import BACKOFF, NO_RNG, TOPIC, Config, Event, ViolationError, World

PRODUCER_ID = 7
LOADING = 14
NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
_V1 = {Rpc.INIT_PRODUCER_ID: 3, Rpc.ADD_PARTITIONS: 3, Rpc.COMMIT_OFFSETS: 4, Rpc.END: 4}
"""With the first InitProducerId that renews an epoch."""
_OLD = _V1 | {Rpc.INIT_PRODUCER_ID: 2}
_V2 = _V1 | {Rpc.COMMIT_OFFSETS: 5, Rpc.END: 5}


class TransactionalWorld(World):
    """`config.script` is what the application does; it aborts what has failed."""

    def __init__(self, config: Config) -> None:
        self.coordinator = Coordinator()
        self.v2 = config.v2
        """Whether the cluster has V2, which an upgrade may bring."""
        self.coordinator_at = 0
        """Its node."""
        self.script: tuple[str, ...] = config.script
        self.operation: Operation | None = None
        self.is_fenced = False
        self.is_in_doubt = False
        """Whether a commit was refused that may have worked before: only close() is left then."""
        self.is_end_in_doubt = False
        """Whether a commit without an answer, or with an unclear one, may have been carried out."""
        self.aborted_to_be_sure = -1
        """The last epoch whose producer has aborted before it asks for the next one."""
        self.sent: frozenset[int] = frozenset()
        """Records of the transaction that is open."""
        self.next_number = 0
        self.offsets_sent = 0
        self.commits: list[tuple[str, frozenset[int]]] = []
        """The outcomes of transactions as calls reported them: "yes", "no" or "maybe"."""
        self.tx_request: TransactionalRequest | None = None
        self.tx_reply: Any = None
        self.tx_late: list[tuple[TransactionalRequest, int]] = []
        """Requests that were given up, with their versions."""
        self.tx_woken = True
        self.tx_until = -inf
        super().__init__(config)

    def _make_sequencer(self) -> Sequencer:
        self.manager = TransactionManager("tx", 60_000)
        self.manager.on_work = self.on_work
        return TransactionalSequencer(self.config.in_flight, self.manager)

    def _transactions(self) -> Any:
        return self.manager

    def _make_core(self, config: Config) -> None:
        super()._make_core(config)
        self.coordinator_session = self.driver.transactions = CoordinatorSession(
            self.manager, BACKOFF, NO_RNG, self.metadata, self.accumulator
        )

    # -- tasks -----------------------------------------------------------------------------------

    def on_work(self) -> None:
        self.tx_woken = True

    def on_event(self) -> None:
        super().on_event()
        self._set_timer()

    def after_turn(self) -> None:
        self._set_timer()

    def _set_timer(self) -> None:
        at = self.driver.after_event(self.now, self.net).transactions
        if at <= self.now:
            self.tx_woken = True
        self.tx_until = min(self.tx_until, at)

    def run_metadata(self) -> None:
        super().run_metadata()
        requests = self.driver.transactions
        if requests is None or self.is_dead:
            return
        while self.tx_woken or self.tx_until <= self.now:
            self.tx_woken = False
            if self.manager.state is TransactionState.FATAL_ERROR:
                self._die()
                return
            for action in requests.poll(self.now, self.net):
                match action:
                    case RequestOfCoordinator(_, request):
                        version = self._version(request)
                        self.manager.on_sending(request.rpc)
                        self.coordinator_session.on_sent(request, version)
                        self.tx_request = request
                    case CoordinatorUnreachable(request, error):
                        self.coordinator_session.on_unreachable(request, error, self.now)
                    case Connect(node):
                        self.net.connect(node, self.now)
            self.tx_until = requests.next_deadline(self.now, self.net)
        self._check_call()

    def _die(self) -> None:
        """Only close() is left: for a reason, and without a false word about a commit."""
        self.is_dead = True
        if not (self.is_fenced or self.is_in_doubt):
            raise ViolationError(f"the producer has failed for good: {self.manager.error!r}")
        if self.operation is not None:
            self._on_outcome(self.operation)

    def _version(self, request: TransactionalRequest) -> int:
        versions = _V2 if self.v2 else _V1 if self.config.renews else _OLD
        version = versions.get(request.rpc, 4)
        return version if request.max_version is None else min(version, request.max_version)

    @property
    def timers(self) -> Turns:
        return Turns(self.until, self.metadata_until, self.tx_until)

    @property
    def next_timer(self) -> float:
        return min(super().next_timer, self.tx_until)

    @property
    def is_over(self) -> bool:
        if self.is_dead:
            return True
        links = self.net.links.values()
        under_way = any(link.in_flight or link.preparing for link in links)
        is_done = not self.script and self.operation is None and self.tx_request is None
        return is_done and not under_way and not self.places

    # -- the application -------------------------------------------------------------------------

    def _check_call(self) -> None:
        if self.operation is not None and self.operation.done:
            operation, self.operation = self.operation, None
            self.manager.on_seen(operation)
            self._on_outcome(operation)

    def _on_outcome(self, operation: Operation) -> None:
        """The outcome that a call reports for its transaction holds from now on."""
        kind, error = operation.kind.name, operation.error
        if kind == "COMMIT" and operation.done:
            if error is None:
                self._check_committed()
                self._report("yes")
            elif isinstance(error, CommitOutcomeUnknownError):
                if not self.is_end_in_doubt:
                    raise ViolationError(f"no request can have committed it, and yet: {error}")
                self._report("maybe")
            else:
                self._report("no")
        elif kind == "ABORT" and error is None:
            self._check_aborted()
            self._report("no")
        if isinstance(error, TransactionAbortableError) and not self.is_dead:
            self._abort_instead()

    def _check_aborted(self) -> None:
        manager, coordinator, identity = self.manager, self.coordinator, self.manager.identity
        if manager.state is not TransactionState.READY or identity is None:
            return
        if coordinator.state == "ongoing" and identity.epoch == coordinator.epoch:
            raise ViolationError("an abort is reported, and the coordinator has the transaction")

    def _check_committed(self) -> None:
        if not self.sent <= self.coordinator.committed:
            missing = sorted(self.sent - self.coordinator.committed)
            raise ViolationError(f"a commit is reported, but records {missing} are not committed")
        if self.offsets_sent > self.coordinator.offsets_committed:
            raise ViolationError("a commit is reported, but its offsets are not committed")

    def _report(self, answer: str) -> None:
        self.commits.append((answer, self.sent))
        self.sent, self.is_end_in_doubt = frozenset(), False
        self.offsets_sent = self.coordinator.offsets_committed

    def _abort_instead(self) -> None:
        script = list(self.script)
        while script and script[0] != "begin":
            script.pop(0)
        self.script = ("abort", *script)

    def events(self) -> list[Event]:
        events = [event for event in super().events() if event[0] not in {"send", "tick"}]
        if self.tx_reply is not None:
            events.append(("reply",))
        elif self.tx_request is not None:
            events.append(("coordinate",))
        if self.script and (self.operation is None or self._may_give_up):
            events.append(("act",))
        if self._may_tick:
            events.append(("tick",))
        return events

    @property
    def _may_give_up(self) -> bool:
        """Whether the next call is an abort that ends the wait for offsets."""
        kind = None if self.operation is None else self.operation.kind
        return kind is OperationKind.SEND_OFFSETS and self.script[0] == "abort"

    def on_act(self) -> None:
        """The application makes its next call."""
        call, self.script = self.script[0], self.script[1:]
        try:
            self._call(call)
        except TransactionAbortableError:
            self._abort_instead()
        except KafkaError:
            if not (self.is_fenced or self.is_in_doubt):
                raise
            self.is_dead = True
        self._set_timer()

    def _call(self, call: str) -> None:
        manager = self.manager
        if call.isdigit():
            manager.check_send()
            number, self.next_number = self.next_number, self.next_number + 1
            self.sent |= {number}
            self.to_send.insert(0, (number, int(call)))
            self.on_send()
        elif call == "offsets":
            offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(5)}
            self.operation = manager.send_offsets(offsets, ConsumerGroupMetadata("group"))
            self.offsets_sent += 1
        elif call == "begin":
            self.operation = manager.begin(2 if self.v2 else 1)
        elif call == "upgrade":
            self.v2 = True
        else:
            self.operation = getattr(manager, call)()
        self.wake()

    def on_finish(self) -> None:
        """A transaction that is open is aborted, and one that is about to end is waited for."""
        super().on_finish()
        self.script = ()
        ending = self.manager.end_for_close()
        if self.operation is None and ending is not None and not ending.done:
            self.operation = ending
        self._set_timer()

    def end_transactions(self) -> None:
        """The call that waits learns what is known; its request may be carried out yet."""
        if self.tx_request is not None:
            self._give_up(self.tx_request)
        self.manager.fail(ProducerClosedError("the producer was closed meanwhile"))
        self._check_call()

    # -- the coordinator -------------------------------------------------------------------------

    def side_events(self) -> list[Event]:
        return super().side_events() + ([("late_request",)] if self.tx_late else [])

    def fault_events(self) -> Any:
        yield from super().fault_events()
        kinds = self.config.kinds
        if self.tx_request is not None:
            if "lose" in kinds:
                yield ("lose",)
            if "loading" in kinds and self.tx_reply is None:
                yield ("loading",)
            if "doubt" in kinds and self.tx_reply is None:
                yield ("doubt",)
            is_commit = self._is_commit(self.tx_request)
            for kind in ("abortable", "unknown_producer"):
                if kind in kinds and self.tx_reply is None and is_commit:
                    yield (kind,)
        if "relocate" in kinds and self.coordinator.epoch >= 0:
            yield ("relocate",)
        if "fence" in kinds and not self.is_fenced and self.coordinator.epoch >= 0:
            yield ("fence",)

    def _is_commit(self, request: TransactionalRequest) -> bool:
        return request.rpc is Rpc.END and self.manager.state is TransactionState.COMMITTING

    def on_coordinate(self) -> None:
        request = self.tx_request
        assert request is not None
        if not self._is_at_its_place(request):
            self.tx_reply = self._reply(request, NOT_COORDINATOR)
            return
        self.tx_reply = self._carry_out(request, self._version(request))
        if request.rpc is Rpc.END and self.manager.state is TransactionState.INITIALIZING:
            self.aborted_to_be_sure = self.coordinator.epoch

    def _is_at_its_place(self, request: TransactionalRequest) -> bool:
        return request.rpc is Rpc.FIND_COORDINATOR or request.node_id == self.coordinator_at

    def on_relocate(self) -> None:
        """Another node is the coordinator from now on, and has all of its state."""
        self.faults += 1
        self.coordinator_at = (self.coordinator_at + 1) % self.config.nodes

    def on_loading(self) -> None:
        """The coordinator refuses for now."""
        self.faults += 1
        request = self.tx_request
        assert request is not None
        self.tx_reply = self._reply(request, LOADING)

    def on_abortable(self) -> None:
        """The coordinator refuses the commit: the transaction can only be aborted."""
        self._refuse_commit(ABORTABLE)

    def on_unknown_producer(self) -> None:
        """The coordinator does not have the producer id: the next epoch has to be asked for."""
        self._refuse_commit(UNKNOWN_PRODUCER)

    def _refuse_commit(self, code: int) -> None:
        self.faults += 1
        request = self.tx_request
        assert request is not None
        self.is_in_doubt |= self.manager.contents.end_in_doubt
        self.tx_reply = self._reply(request, code)

    def on_doubt(self) -> None:
        """The coordinator carries the request out, and answers that it could not."""
        self.faults += 1
        request = self.tx_request
        assert request is not None
        self._carry_out(request, self._version(request))
        self.tx_reply = self._reply(request, NOT_AVAILABLE)

    def on_reply(self) -> None:
        request, reply = self.tx_request, self.tx_reply
        self.tx_request = self.tx_reply = None
        assert request is not None
        if self._is_commit(request):
            code = reply.error_code
            self.is_end_in_doubt |= bool(code) and code not in WITHOUT_EFFECT
        self.coordinator_session.on_response(request, reply, self.now)
        if request.rpc is Rpc.ADD_PARTITIONS:
            self.accumulator.replan_all()
        self.on_event()

    def on_lose(self) -> None:
        """The connection is closed: the request may arrive late, or its answer is lost."""
        self.faults += 1
        request = self.tx_request
        assert request is not None
        self._give_up(request)
        self.coordinator_session.on_unreachable(
            request, NodeDisconnectedError("disconnected"), self.now
        )
        self.on_event()

    def _give_up(self, request: TransactionalRequest) -> None:
        if self.tx_reply is None:
            self.tx_late.append((request, self._version(request)))
        self.tx_request = self.tx_reply = None
        self.is_end_in_doubt |= self._is_commit(request)

    def on_late_request(self) -> None:
        """A request that was given up is carried out.

        The producer may be fenced by that in two cases, in which no client can do better: by an
        InitProducerId, and by a transaction that begins between its last abort and its request for
        the next epoch.
        """
        request, version = self.tx_late.pop(0)
        if not self._is_at_its_place(request):
            return
        coordinator = self.coordinator
        before, epoch = coordinator.state, coordinator.epoch
        self._carry_out(request, version)
        if coordinator.epoch != epoch and request.rpc is Rpc.INIT_PRODUCER_ID:
            self.is_fenced = True
        if before != coordinator.state == "ongoing" and self.aborted_to_be_sure == epoch:
            self.is_fenced = True

    def on_fence(self) -> None:
        """Another producer takes over the transactional id."""
        self.faults += 1
        self.is_fenced = True
        code = CONCURRENT
        while code == CONCURRENT:
            code, _ = self.coordinator.init(-1, v2=self.v2)

    def _carry_out(self, request: TransactionalRequest, version: int) -> Any:
        coordinator = self.coordinator
        v2 = self.v2 and version == _V2.get(request.rpc)
        message: Any = request.make(version)
        match request.rpc:
            case Rpc.INIT_PRODUCER_ID:
                code, epoch = coordinator.init(message.producer_epoch, v2=v2)
                return InitProducerIdResponse(
                    error_code=code, producer_id=PRODUCER_ID, producer_epoch=epoch
                )
            case Rpc.ADD_PARTITIONS:
                partitions = frozenset(each.partition for each in request.partitions)
                epoch = message.v3_and_below_producer_epoch
                return self._reply(request, coordinator.add_partitions(epoch, partitions))
            case Rpc.ADD_OFFSETS:
                return self._reply(request, coordinator.add_group(message.producer_epoch))
            case Rpc.COMMIT_OFFSETS:
                code = coordinator.commit_offsets(message.producer_epoch, v2=v2)
                return self._reply(request, code)
            case Rpc.END:
                code, epoch = coordinator.end(
                    message.producer_epoch, commit=message.committed, v2=v2
                )
                producer_id = PRODUCER_ID if epoch >= 0 else -1
                return EndTxnResponse(
                    error_code=code, producer_id=producer_id, producer_epoch=epoch
                )
            case _:
                return self._reply(request, 0)

    def _reply(self, request: TransactionalRequest, code: int) -> Any:
        numbers = [each.partition for each in request.partitions]
        match request.rpc:
            case Rpc.FIND_COORDINATOR:
                at = self.coordinator_at
                return FindCoordinatorResponse(
                    error_code=code, node_id=at, host=f"broker-{at}", port=9092
                )
            case Rpc.INIT_PRODUCER_ID:
                return InitProducerIdResponse(error_code=code)
            case Rpc.ADD_PARTITIONS:
                results = [AddPartitionsToTxnPartitionResult(number, code) for number in numbers]
                topics = [AddPartitionsToTxnTopicResult(TOPIC, results)]
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
            case Rpc.ADD_OFFSETS:
                return AddOffsetsToTxnResponse(error_code=code)
            case Rpc.COMMIT_OFFSETS:
                parts = [TxnOffsetCommitResponsePartition(number, code) for number in numbers]
                return TxnOffsetCommitResponse(
                    topics=[TxnOffsetCommitResponseTopic(name=TOPIC, partitions=parts)]
                )
            case _:
                return EndTxnResponse(error_code=code)

    def _append(self, node: int, partition: int, incarnation: int, batch: Encoded) -> Any:
        if self.logs[partition].leader != node:
            return NOT_LEADER, -1
        log = self.logs[partition]
        known = log.producers.get(batch.producer_id)
        is_again = (
            known is not None
            and known.epoch == batch.epoch
            and any(before[0] == batch.sequence for before in known.batches)
        )
        if not is_again:
            code = self.coordinator.append(batch.epoch, partition, v2=self.v2)
            if code and not self.faults:
                raise ViolationError(f"error code {code} is answered although nothing went wrong")
            if code:
                return code, -1
        code, offset = super()._append(node, partition, incarnation, batch)
        if not code and not is_again:
            self.coordinator.open |= set(batch.ids)
        return code, offset

    def _connect_all(self) -> None:
        super()._connect_all()
        self.routes.clear()


def check_transactions(world: TransactionalWorld) -> None:
    """Reported outcomes of transactions hold in every later state, and none stays open."""
    may_be_open = "lose" in world.config.kinds or world.is_dead
    if world.is_over and not may_be_open and world.coordinator.state == "ongoing":
        raise ViolationError("every call has returned, and a transaction is open")
    for answer, ids in world.commits:
        if answer == "no" and ids & world.coordinator.committed:
            raise ViolationError(
                f"records {sorted(ids)} are committed, but a call reported otherwise"
            )
    broken = world.coordinator.committed & frozenset(
        number for number, outcome in world.outcomes.items() if outcome == "no"
    )
    if broken:
        raise ViolationError(f"records {sorted(broken)} failed and are committed")
