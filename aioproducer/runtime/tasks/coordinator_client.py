"""Client for requests to coordinators and brokers outside of any producer: `CoordinatorClient`.

Invariants
- Every call ends within `max_block_ms`; a `KafkaTimeoutError` names the last failure. The callers
  of `ask_broker` set its bound.
- A request without a response may have had its effect, so only requests that may be repeated are
  sent.
- No call waits for a broker that the last list of brokers lacks. If it was a coordinator, the
  coordinator is searched again, as after any lost connection.
- After `close()` no task or callback of the client is left on the loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from aioproducer._checks.event_loop import running_loop
from aioproducer._util.tasks import together
from aioproducer.config import ProducerConfig
from aioproducer.core.sending.actions import RECHECK_S
from aioproducer.core.sending.failures import as_lost_connection
from aioproducer.core.transactions import coordinator_queries
from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorKind
from aioproducer.errors import (
    AuthorizationError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeDisconnectedError,
    NotCoordinatorError,
    ProtocolError,
    UnknownTopicOrPartitionError,
    WrongLoopError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.errors.authorization import request_name, with_access
from aioproducer.net.client import NetworkClient, PreparedRequest
from aioproducer.net.context import NodeState
from aioproducer.net.dial.dialer import Dialer
from aioproducer.net.responses import UndecodedAnswer
from aioproducer.runtime import settings
from aioproducer.runtime.security_settings import principal_of
from aioproducer.types import Node
from aioproducer.wire.schema import Message

_T = TypeVar("_T")

_MAY_BE_ELSEWHERE = (
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotCoordinatorError,
)
"""Failures after which the coordinator is searched again."""


class CoordinatorClient:
    """Client of all coordinators of a cluster, bound to the loop in which it is made.

    Args:
        config: connection, time limits and backoff; options of records are ignored.
        dialer: opens connections; made from the options when left out.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        dialer: Dialer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._loop = running_loop()
        self._timeout_s = config.call_timeout_ms / 1000
        self._bound = config.call_bound
        self._principal = principal_of(config)
        self._rng = rng or random.Random()
        self._backoff = settings.retry_backoff(config)
        self._changed = asyncio.Event()
        self._nodes: dict[int, Node] = {}
        self._coordinators: dict[CoordinatorKey, int] = {}
        self._client = NetworkClient(
            settings.net_settings(config),
            dialer=dialer or settings.make_dialer(config),
            loop_time=self._loop.time,
            rng=self._rng,
            on_event=self._changed.set,
        )
        self._client.set_bootstrap(config.bootstrap)

    def check_loop(self) -> None:
        """Raise in another event loop, such as that of a forked child."""
        if running_loop() is not self._loop:
            raise WrongLoopError(
                "the TransactionAdmin was opened in another event loop than the one running here",
                advice="use one per loop, and per process",
            )

    async def close(self) -> None:
        """Close all connections; calls that wait fail."""
        self._changed.set()
        await self._client.close(0)

    async def ask(self, query: CoordinatorQuery[_T]) -> _T:
        """Return the answer; retriable failures are retried until the timeout.

        Raises:
            KafkaTimeoutError: no answer within `max_block_ms`.
            KafkaError: the response has an error that is not retriable.
        """
        return await self._repeated(lambda: self._ask(query))

    def drop_coordinators(self) -> None:
        """Make the next request search its coordinator again; the connections stay open."""
        self._coordinators.clear()

    async def find_coordinators(self, kind: CoordinatorKind, names: Iterable[str]) -> None:
        """Find coordinators in advance (KIP-699); raises what `ask` raises."""
        wanted = list(names)
        await self._repeated(lambda: self._find(kind, wanted))

    async def ask_coordinators(
        self,
        kind: CoordinatorKind,
        names: Iterable[str],
        query: Callable[[Sequence[str]], CoordinatorQuery[dict[str, _T]]],
    ) -> dict[str, _T]:
        """Return the answers of all coordinators of these names; raises what `ask` raises."""
        wanted = list(names)

        async def of_all() -> dict[str, _T]:
            by_node: dict[int, list[str]] = {}
            for name, node_id in (await self._find(kind, wanted)).items():
                by_node.setdefault(node_id, []).append(name)
            try:
                answers: list[dict[str, _T]] = await together(
                    *(self._exchange(node, query(some)) for node, some in by_node.items())
                )
            except _MAY_BE_ELSEWHERE:
                for name in wanted:
                    self._coordinators.pop(CoordinatorKey(kind, name), None)
                raise
            return {name: each for answer in answers for name, each in answer.items()}

        return await self._repeated(of_all)

    async def ask_each(self, query: CoordinatorQuery[_T]) -> list[_T]:
        """Return the answers of all brokers of the cluster; raises what `ask` raises."""

        async def of_all() -> list[_T]:
            self._learn(await self._ask(coordinator_queries.brokers()))
            return await together(*(self._exchange(each, query) for each in sorted(self._nodes)))

        return await self._repeated(of_all)

    async def ask_broker(self, node_id: int, query: CoordinatorQuery[_T]) -> _T:
        """Return the answer of one broker of the cluster, in one attempt; raises its error."""
        if node_id not in self._nodes:
            self._learn(await self._ask(coordinator_queries.brokers()))
        return await self._exchange(node_id, query)

    async def relay(
        self, node_id: int, encoded: Callable[[Mapping[int, tuple[int, int]]], PreparedRequest]
    ) -> bytes:
        """Send a request that is encoded elsewhere; one attempt.

        Args:
            encoded: Makes the request, for an `UndecodedAnswer`, from the versions that the broker
                supports of each API.

        Returns:
            The frame of the response.

        Raises:
            KafkaTimeoutError: No response within `max_block_ms`.
            KafkaConnectionError: The broker cannot be reached.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                if node_id not in self._nodes:
                    self._learn(await self._ask(coordinator_queries.brokers()))
                await self._ready(node_id)
                request = encoded(self._client.version_ranges(node_id))
                answer = await self._send(node_id, request)
        except TimeoutError:
            raise KafkaTimeoutError(f"no response within {self._bound}", node_id=node_id) from None
        if not isinstance(answer, UndecodedAnswer):
            raise NodeDisconnectedError("no answer", node_id=node_id)
        return answer.frame

    async def transaction_version(self) -> int:
        """Return the cluster's transaction.version (KIP-890); 0 if none is finalized (KIP-584)."""

        async def connected() -> int:
            await self._any_node()
            return self._client.transaction_version() or 0

        return await self._repeated(connected)

    # -- steps -----------------------------------------------------------------------------------

    async def _repeated(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        failures = 0
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        if not error.retriable or self._client.closed:
                            raise
                        last = error
                    await asyncio.sleep(self._backoff.delay(failures, self._rng))
                    failures += 1
        except TimeoutError:
            raise self._timeout(last) from None

    def _timeout(self, last: KafkaError | None) -> KafkaTimeoutError:
        reason = "" if last is None else f": {last.without_advice()}"
        advice = "it may have had its effect; it is safe to repeat"
        if isinstance(last, UnknownTopicOrPartitionError):
            # A retry has the same result until the topic is created.
            advice = ADVICE["topic-missing"]
        elif last is not None and last.advice:
            advice = f"{last.advice.rstrip('.')}; {advice}"
        topic = None if last is None else last.topic
        message = f"no outcome within {self._bound}{reason}"
        return KafkaTimeoutError(message, topic=topic, advice=advice)

    async def _ask(self, query: CoordinatorQuery[_T]) -> _T:
        key = query.coordinator
        if key is None:
            return await self._exchange(await self._any_node(), query)
        try:
            return await self._exchange(await self._coordinator(key), query)
        except _MAY_BE_ELSEWHERE:
            self._coordinators.pop(key, None)
            raise

    async def _find(self, kind: CoordinatorKind, names: Sequence[str]) -> dict[str, int]:
        """Return the coordinators by name; another call may drop one during the search."""
        known, keys = self._coordinators, {name: CoordinatorKey(kind, name) for name in names}
        nodes = {name: known[key] for name, key in keys.items() if key in known}
        unknown = [name for name in keys if name not in nodes]
        if unknown:
            found = await self._ask(coordinator_queries.find_coordinators(kind, unknown))
            self._learn(self._nodes | {node.id: node for node in found.values()})
            nodes |= {name: found[name].id for name in unknown}
            self._coordinators |= {keys[name]: nodes[name] for name in unknown}
        return nodes

    async def _coordinator(self, key: CoordinatorKey) -> int:
        if key not in self._coordinators:
            node = await self._ask(coordinator_queries.find_coordinator(key))
            self._learn(self._nodes | {node.id: node})
            self._coordinators[key] = node.id
        return self._coordinators[key]

    async def _exchange(self, node_id: int, query: CoordinatorQuery[_T]) -> _T:
        await self._ready(node_id)
        version = self._client.api_version(
            node_id, query.request_type, query.min_version, query.max_version
        )
        answer = await self._send(node_id, PreparedRequest.of(query.make(version), version))
        try:
            return query.read(answer)
        except AuthorizationError as error:
            key = query.coordinator
            name = None if key is None else key.name
            is_group = key is not None and key.kind is CoordinatorKind.GROUP
            raise with_access(
                error,
                request_name(query.request_type),
                self._principal,
                group=name if is_group else None,
                transactional_id=None if is_group else name,
            ) from error.__cause__

    async def _send(self, node_id: int, request: PreparedRequest) -> Message:
        try:
            answer = await self._client.send(node_id, request, now=self._loop.time())
        except ProtocolError as error:
            raise as_lost_connection(error) from error
        if answer is None:
            raise NodeDisconnectedError("no answer", node_id=node_id)
        return answer

    async def _any_node(self) -> int:
        """Return a connected node, for a request that every node answers.

        One that refuses the client ends no call while another is left to try.
        """
        client = self._client
        before = client.failures()
        while not self._client.closed:
            now = self._loop.time()
            node_id = client.least_loaded_node(now)
            if node_id is not None and client.can_ask(node_id, now):
                return node_id
            failures = client.failures()
            errors = [error for error in failures.values() if error is not None]
            are_new = all(error is not before.get(node) for node, error in failures.items())
            if errors and len(errors) == len(failures) and (node_id is None or are_new):
                raise min(map(as_lost_connection, errors), key=lambda error: error.retriable)
            if node_id is not None:
                client.maybe_connect(node_id, now)
            await self._event(min(client.next_chance_at(now) - now, RECHECK_S))
        raise NodeDisconnectedError("the client was closed")

    async def _ready(self, node_id: int) -> None:
        client = self._client
        while not client.can_ask(node_id, now := self._loop.time()):
            if node_id >= 0 and node_id not in self._nodes:
                raise NodeDisconnectedError("the broker has left the cluster", node_id=node_id)
            if self._client.closed:
                raise NodeDisconnectedError("the client was closed", node_id=node_id)
            client.maybe_connect(node_id, now)
            failure = client.connection_failures(node_id)
            if failure is not None and client.state(node_id) is NodeState.BACKING_OFF:
                raise as_lost_connection(failure)
            await self._event(min(client.ready_at(node_id, now) - now, RECHECK_S))

    async def _event(self, at_most_s: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _learn(self, nodes: dict[int, Node]) -> None:
        if nodes != self._nodes:
            self._nodes = nodes
            self._client.set_nodes(nodes)
