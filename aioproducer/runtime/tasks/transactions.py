"""The task that sends the requests of transactions, as `core.transactions` decides.

Start with `TransactionTask`.

Invariants
- An operation goes on when its call is cancelled or times out; the same call waits for it again.
- When this task ends for any reason, every waiting call fails with the cause.
- An exception in the middle of a response (a signal handler's, MemoryError) ends the task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aioproducer.core.sending.actions import Connect, CoordinatorUnreachable, RequestOfCoordinator
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.operations import Operation, OperationKind
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NodeDisconnectedError,
    ProducerClosedError,
    UnsupportedVersionError,
)
from aioproducer.errors.advice import joined
from aioproducer.net.client import NetworkClient, PreparedRequest
from aioproducer.net.connection import outcome_of
from aioproducer.runtime.tasks.turns import TurnTask
from aioproducer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Persistence,
    PreparedTransaction,
    TopicPartition,
)
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.batching.accumulator import RecordAccumulator
    from aioproducer.core.transactions.coordinators import CoordinatorSession
    from aioproducer.core.transactions.requests import TransactionalRequest

_COORDINATOR = "transaction coordinator"
_FAILURES_WORTH_A_WARNING = 5
_OPEN = frozenset(
    {
        TransactionState.IN_TRANSACTION,
        TransactionState.PREPARED,
        TransactionState.ABORTABLE_ERROR,
        TransactionState.FATAL_ERROR,
    }
)


class TransactionTask(TurnTask):
    """Run a `TransactionManager` on the producer's loop.

    `on_event` is called when a call or a response may have caused work for another task,
    `open_gate` with whether records are accepted.
    """

    def __init__(
        self,
        manager: TransactionManager,
        coordinator_session: CoordinatorSession,
        client: NetworkClient,
        accumulator: RecordAccumulator,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        on_event: Callable[[], None],
        open_gate: Callable[[bool], None],
        on_end: Callable[[KafkaError | None], None],
    ) -> None:
        super().__init__("transaction", loop, on_end)
        self.manager: TransactionManager = manager
        self._coordinator_session = coordinator_session
        self._client = client
        self._accumulator = accumulator
        self._timeout_s = config.call_timeout_ms / 1000
        self._bound = config.call_bound
        self._request_timeout = config.request_timeout_ms / 1000
        self._on_event = on_event
        self._open_gate = open_gate
        self.seconds: dict[OperationKind, float] = dict.fromkeys(OperationKind, 0.0)
        """Seconds that calls have waited for their outcomes, by kind."""
        self._beginning = False
        self._asked: tuple[TransactionalRequest, asyncio.Future[Message | None]] | None = None
        manager.on_work = self._on_work

    # -- life ------------------------------------------------------------------------------------

    def _on_work(self) -> None:
        self._open_gate(self.manager.state is TransactionState.IN_TRANSACTION)
        self._wakeup.wake()

    async def stop(self) -> None:
        """End the task; waiting calls fail. Safe to call again."""
        self._stopping = True
        self.manager.fail(ProducerClosedError("the producer was closed meanwhile"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._wakeup.close()

    # -- calls -----------------------------------------------------------------------------------

    async def init(self) -> None:
        """Get a producer id and fence older producers of the same transactional id."""
        await self._outcome(self.manager.init())

    async def begin(self) -> int:
        """Begin a transaction and return its number."""
        if self._beginning:
            # Both callers would use one transaction, and one would end it for the other.
            raise IllegalStateError("another task is about to begin a transaction")
        self._beginning = True
        try:
            await self._outcome(self.manager.begin(self._client.transaction_version()))
        finally:
            self._beginning = False
        return self.manager.number

    async def prepare(self) -> PreparedTransaction:
        """Wait for all records without linger; the transaction stays open."""
        operation = self.manager.prepare()
        self._do_not_linger(operation)
        await self._outcome(operation)
        return self.manager.prepared()

    async def assume(self, transactional_id: str) -> None:
        """Leave the prepared transaction open; initialize again under another id."""
        self.manager.assume(transactional_id)
        await self.init()

    async def commit(self) -> None:
        """Wait for all records without linger, then commit."""
        operation = self.manager.commit()
        self._do_not_linger(operation)
        await self._outcome(operation)

    def reports_commit(self) -> bool:
        """Return True if the last commit has succeeded and no call has reported that yet.

        Only after a fatal error of the producer; otherwise a call reports it. The error of a commit
        that has not succeeded is raised; see `TransactionManager`.
        """
        manager = self.manager
        at_its_end = manager.state is TransactionState.FATAL_ERROR
        if not at_its_end or not manager.has_unreported_commit:
            return False
        manager.on_seen(manager.commit())
        return True

    def _do_not_linger(self, operation: Operation) -> None:
        self._accumulator.begin_flush()
        operation.add_listener(self._accumulator.end_flush)

    async def abort(self) -> None:
        """Give up records that were not sent, then abort."""
        await self._outcome(self.manager.abort())

    async def abort_for_good(self) -> None:
        """Abort for a caller that does not retry: a transaction may begin after it."""
        operation = self.manager.abort()
        try:
            await self._outcome(operation)
        finally:
            self.manager.on_seen(operation)

    def is_open(self, number: int | None) -> bool:
        """Return whether a call can still end this transaction, and no other client may."""
        manager = self.manager
        is_last = number == manager.number != manager.over
        return is_last and manager.state in _OPEN and not manager.is_prepared

    def has_to_commit(self, number: int | None) -> bool:
        """Return whether this transaction is open, or no call has reported its commit's outcome."""
        manager = self.manager
        return self.is_open(number) or (number == manager.number and manager.has_unreported_commit)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Add offsets to the transaction."""
        await self._outcome(self.manager.send_offsets(offsets, group))

    async def end_for_close(self) -> None:
        """Abort an open transaction, or wait for its end in progress, at most `max_block_ms`."""
        operation = self.manager.end_for_close()
        if operation is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._done(operation)

    def check_send(self) -> int:
        """See `TransactionManager.check_send`."""
        return self.manager.check_send()

    def on_send_refused(self, number: int, error: KafkaError) -> None:
        """Handle a refused record of transaction `number`: it cannot be committed any more."""
        self.manager.on_send_refused(number, error)
        self._on_event()

    async def _outcome(self, operation: Operation) -> None:
        began = self._loop.time()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._done(operation)
        except TimeoutError:
            if not operation.done:  # after the loop was blocked, both may come at once
                raise self._timeout_of(operation.kind) from self.manager.coordinator_error
        finally:
            self.seconds[operation.kind] += self._loop.time() - began
        self.manager.on_seen(operation)
        if operation.error is not None:
            raise operation.error.with_context()

    def _timeout_of(self, kind: OperationKind) -> KafkaTimeoutError:
        """Return an error with the cause of the wait; the operation goes on."""
        call, persistence = kind.value, None
        advice = f"it goes on; repeat {call}() to wait for it, or close the producer"
        if kind is OperationKind.COMMIT:
            persistence = Persistence.POSSIBLY_PERSISTED
            advice = f"it goes on and may still commit: repeat {call}() for the result"
        elif kind is OperationKind.SEND_OFFSETS:
            advice = "it goes on, and a commit waits for it; an abort gives it up"
        last = self.manager.coordinator_error
        return KafkaTimeoutError(
            f"{call}() has no outcome within {self._bound}: it waits for {self._obstacle}",
            advice=joined(advice, None if last is None else last.advice),
            persistence=persistence,
        )

    @property
    def waiting_for(self) -> str | None:
        """Cause of the wait of an operation in progress, with the last error; None without one."""
        return self._obstacle if self.manager.is_busy else None

    @property
    def _obstacle(self) -> str:
        session, error = self._coordinator_session, self.manager.coordinator_error
        rpc = None if session.is_searching else session.wanted
        if session.wanted is not None or error is not None:
            what = "the coordinator" if rpc is None else f"the response to {rpc.value}"
            return what if error is None else f"{what}; last error: {error.without_advice()}"
        if self.manager.awaits_batches and not self._accumulator.is_idle:
            count = sum(batch.count for batch in self._accumulator.incomplete())
            if not count:
                return "the responses to requests whose records have failed"
            return f"{count} record{'' if count == 1 else 's'} to be acknowledged"
        return "the coordinator"

    async def _done(self, operation: Operation) -> None:
        if not operation.done:
            self._on_event()
            done = self._loop.create_future()
            operation.add_listener(lambda: None if done.done() else done.set_result(None))
            await done

    # -- the task --------------------------------------------------------------------------------

    async def _turn(self) -> None:
        self._wakeup.begin_turn()
        if self.interrupt is not None:
            raise self.interrupt
        if self._asked is not None and self._asked[1].done():
            self._on_answer(self._asked[1])  # an exception came before the callback began
        manager, now = self.manager, self._loop.time()
        if manager.state is TransactionState.FATAL_ERROR and manager.error is not None:
            raise manager.error
        for action in self._coordinator_session.poll(now, self._client):
            match action:
                case Connect(node_id):
                    self._client.maybe_connect(node_id, now)
                case RequestOfCoordinator(node_id, request):
                    self._send(node_id, request, now)
                case CoordinatorUnreachable(request, error):
                    self._give_up(request, error, now)
        deadline = self._coordinator_session.next_deadline(now, self._client)
        if self._asked is not None:
            deadline = min(deadline, now + self._request_timeout)
        await self._wakeup.sleep(deadline)

    def _send(self, node_id: int, request: TransactionalRequest, now: float) -> None:
        client = self._client
        try:
            version = client.api_version(
                node_id, request.request_type, request.min_version, request.max_version
            )
            prepared = PreparedRequest.of(request.make(version), version)
            self.manager.on_sending(request.rpc)
            future = client.send(node_id, prepared, now=now)
        except UnsupportedVersionError as error:
            self._coordinator_session.on_unsupported(request, error)
            return
        except KafkaError as error:
            self._give_up(request, error, now)
            return
        self._coordinator_session.on_sent(request, version)
        self._asked = request, future
        future.add_done_callback(self._on_answer)

    def _give_up(self, request: TransactionalRequest, error: KafkaError, now: float) -> None:
        """Handle a coordinator that cannot be reached; another broker may be coordinator now."""
        self._coordinator_session.on_unreachable(request, error, now)
        self._warn(request, now)

    def _warn(self, request: TransactionalRequest, now: float) -> None:
        """Log a request that fails repeatedly; single failures are part of the protocol."""
        error = self.manager.coordinator_error
        if error is not None and self._coordinator_session.failures >= _FAILURES_WORTH_A_WARNING:
            self.warnings.warning(
                now,
                _COORDINATOR,
                type(error).__name__,
                "%s of transactional id %r is repeated, %d requests in a row failed: %s",
                request.rpc.value,
                self.manager.transactional_id,
                self._coordinator_session.failures,
                error,
            )

    def _on_answer(self, future: asyncio.Future[Message | None]) -> None:
        try:
            if self._asked is None or self._asked[1] is not future:
                return  # the task was first
            self._handle_answer(*self._asked)
            self._asked = None
        except BaseException as error:
            self.end_by(error)
            raise

    def _handle_answer(
        self, request: TransactionalRequest, future: asyncio.Future[Message | None]
    ) -> None:
        now = self._loop.time()
        failure, answer = outcome_of(future)
        if answer is None:
            self._give_up(request, failure or NodeDisconnectedError("no answer"), now)
        else:
            self._coordinator_session.on_response(request, answer, now)
            self._warn(request, now)
            if not self._coordinator_session.failures:
                self.warnings.recovered(now, _COORDINATOR, "the transaction coordinator answers")
            if request.rpc is Rpc.ADD_PARTITIONS:
                self._accumulator.replan_all()
        self._on_event()
