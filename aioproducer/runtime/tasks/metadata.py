"""The task that requests metadata, as `core.metadata.requests` decides: start with `MetadataTask`.

Invariants
- At most one request is in flight, bounded by `request_timeout_ms`.
- Between two turns the task sleeps until a later time or an event; it never spins.
- If it ends with an error, all waiting calls fail with the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING

from aioproducer._util import log
from aioproducer._util.hosts import host_and_port
from aioproducer.core.metadata.requests import MetadataRequests
from aioproducer.core.sending.actions import NoBrokerReady, Rebootstrap, RequestMetadata
from aioproducer.core.sending.reasons import Reason
from aioproducer.errors import (
    AuthenticationError,
    BootstrapError,
    KafkaError,
    NameResolutionError,
    NotKafkaError,
    ProducerClosedError,
    ProtocolError,
    RebootstrapRequiredError,
    UnsupportedVersionError,
)
from aioproducer.errors.advice import ADVICE, joined
from aioproducer.net.connection import outcome_of
from aioproducer.runtime.tasks.metadata_waiters import MetadataWaiters
from aioproducer.runtime.tasks.turns import TurnTask
from aioproducer.types import Node
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.net.client import NetworkClient

_FIRST_WITH_AUTO_CREATE_FLAG = 4
_FIRST_WITH_RELIABLE_EPOCHS = 9

_MOST_FAILURES_LISTED = 8

_log = log.get("runtime")
_METADATA = "metadata"


class MetadataTask(TurnTask):
    """Fetch metadata when it is due, and let callers wait for it."""

    def __init__(
        self,
        metadata: Metadata,
        requests: MetadataRequests,
        client: NetworkClient,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        on_update: Callable[[], None],
        on_end: Callable[[KafkaError], None],
    ) -> None:
        super().__init__("metadata", loop, self._ended)
        self._metadata = metadata
        self._requests = requests
        self._client = client
        self._on_update = on_update
        self._on_failed = on_end
        self._may_create_topics = config.allow_auto_create_topics
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._resolve_timeout_ms = config.bootstrap_resolve_timeout_ms
        self._started_at = -inf
        self._bootstrap = {
            -i: Node(-i, host, port) for i, (host, port) in enumerate(config.bootstrap, start=1)
        }
        self.waits: MetadataWaiters = MetadataWaiters(metadata, loop)
        self._answer: asyncio.Future[Message | None] | None = None
        self._answer_version = 0
        self._asked_node = 0
        self._asked: list[str] | None = None
        """The topics of the request, None for all topics in use."""
        self._reported_nodes: Mapping[int, Node] | None = None
        self._fatal_errors: Mapping[int, KafkaError] = {}
        """The fatal errors that were reported last, by node."""
        self._in_background = False
        self._logged_error: type[KafkaError] | None = None
        self.on_fatal_error: Callable[[KafkaError], None] | None = None
        """Called with each error that is not retriable while a start in the background goes on."""
        metadata.on_event = self._on_metadata_event
        metadata.explain_connections = self._explain_connections

    # -- life ------------------------------------------------------------------------------------

    def start(self, *, in_background: bool = False) -> None:
        """Start the task; the first request is due at once.

        In the background, the task goes on after errors that are not retriable, until the first
        response. Such an error is logged once and fails waiting calls while it lasts.
        """
        self._in_background = in_background
        self._started_at = self._loop.time()
        super().start()

    async def close(self) -> None:
        """End the task; waiting calls raise `ProducerClosedError`."""
        self._stopping = True
        self.waits.fail(ProducerClosedError("the producer was closed during the wait"))
        self._wakeup.wake()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._wakeup.close()
        self._metadata.on_event = None

    def wake(self) -> None:
        """Set the next turn after a request for metadata."""
        now = self._loop.time()
        self.turn_at(self._requests.due_at(now, self._client), now)

    # -- the task --------------------------------------------------------------------------------

    def _ended(self, cause: KafkaError | None) -> None:
        if cause is not None:
            self.waits.fail(cause)
            self._on_failed(cause)

    async def _turn(self) -> None:
        self._wakeup.begin_turn()
        self._handle_answer()
        now = self._loop.time()
        for action in self._requests.poll(now, self._client):
            match action:
                case RequestMetadata(node_id):
                    self._send(node_id, now)
                case NoBrokerReady(node_id):
                    self._on_no_broker_ready(node_id, now)
                case Rebootstrap(why):
                    self._rebootstrap(now, why)
        await self._wakeup.sleep(self._requests.next_deadline(self._loop.time(), self._client))

    def _on_no_broker_ready(self, node_id: int | None, now: float) -> None:
        if self._note_fatal_connection_errors():
            return
        self._note_unknown_names(now)
        self._note_other_services(now)
        if node_id is not None:
            self._client.maybe_connect(node_id, now)

    def _send(self, node_id: int, now: float) -> None:
        try:
            version = self._choose_version(node_id)
            self.waits.keep_alive(now)
            fetch = self._metadata.start_request(now)
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in fetch.topics],
                allow_auto_topic_creation=fetch.allow_auto_create,
            )
            answer = self._client.send(node_id, request, now=now)
        except KafkaError as error:
            self._fail(error)
            return
        self._answer, self._answer_version, self._asked_node = answer, version, node_id
        self.waits.requests_sent += 1
        self._asked = fetch.topics if fetch.partial else None
        answer.add_done_callback(self._on_answer)

    def _choose_version(self, node_id: int) -> int:
        lowest = 0 if self._may_create_topics else _FIRST_WITH_AUTO_CREATE_FLAG
        try:
            return self._client.api_version(node_id, MetadataRequest, lowest)
        except UnsupportedVersionError as error:
            if self._may_create_topics:
                raise
            raise UnsupportedVersionError(
                "the broker is too old (before Kafka 0.11) to be asked about a topic without "
                "creating it",
                node_id=node_id,
                advice="set allow_auto_create_topics=True, or auto.create.topics.enable=false "
                "on the brokers as well",
            ) from error

    def _on_answer(self, answer: asyncio.Future[Message | None]) -> None:
        if not answer.cancelled():
            answer.exception()  # Retrieved now: `close()` may come before it is used.
        self._wakeup.wake()

    def _handle_answer(self) -> None:
        answer = self._answer
        if answer is None or not answer.done():
            return
        self._answer = None
        failure, response = outcome_of(answer)
        if isinstance(response, MetadataResponse):
            self._handle_response(response)
        else:
            wrong = f"{type(response).__name__} instead of a metadata response"
            self._fail(failure or ProtocolError(wrong))

    def _handle_response(self, response: MetadataResponse) -> None:
        now = self._loop.time()
        reliable = self._answer_version >= _FIRST_WITH_RELIABLE_EPOCHS
        before = self._metadata.cluster.cluster_id
        if self._answer_version == 0 and not response.brokers:
            # Brokers of 0.8 list no brokers before the first topic exists (KAFKA-1867).
            self.waits.end_bootstrap()
        if self._metadata.on_response(response, now, reliable_epochs=reliable):
            self._requests.on_answer()
            self._client.avoided.clear()
            self._in_background = False
            self.warnings.recovered(now, _METADATA, "metadata is fetched again")
            self._note_cluster(before)
            self._report_nodes()
            self._on_update()
            self.waits.resume_decided(now, self._asked)
            if self._metadata.last_answer_is_full:
                self.waits.resume_refreshes()
            return
        # It may have restarted and not joined the cluster again: others are asked before it.
        self._client.avoided.add(self._asked_node)
        if response.error_code == RebootstrapRequiredError.code and self._rebootstraps:
            self._rebootstrap(now, "the broker asked for it")
        self.waits.resume_decided(now)

    def _note_cluster(self, before: str | None) -> None:
        """Log a warning if another cluster has answered."""
        after = self._metadata.cluster.cluster_id
        if before is not None and after != before:
            self._reported_nodes = None
            # Rarely: a broker may name another cluster in each answer.
            self.warnings.warning(
                self._loop.time(),
                "cluster",
                "another",
                "another cluster answers now: %s instead of %s; topics count as created anew, and "
                "records that were not acknowledged are written there",
                after,
                before,
            )

    def _fail(self, error: KafkaError) -> None:
        now = self._loop.time()
        is_final = isinstance(error, AuthenticationError | UnsupportedVersionError)
        self._metadata.on_failure(error, now)
        if self._in_background and is_final:
            self._report_fatal_error(error)
        else:
            self.warnings.warning(
                now, _METADATA, type(error).__name__, "fetching metadata failed: %s", error
            )
        self.waits.resume_decided(now)

    def _report_fatal_error(self, error: KafkaError) -> None:
        """Report an error that keeps a start in the background from its end."""
        if self.on_fatal_error is not None:
            self.on_fatal_error(error)
        if type(error) is not self._logged_error:
            self._logged_error = type(error)
            _log.error("the cluster cannot be used; sends fail until this is corrected: %s", error)

    def _note_fatal_connection_errors(self) -> bool:
        """Report a new connection error that is not retriable, such as refused credentials.

        Not while a server is left that has not failed: it may accept the client. While brokers are
        known, bootstrap servers do not count, as they may never be tried.
        """
        failures = self._client.failures()
        failures = {node: error for node, error in failures.items() if node >= 0} or failures
        fatal = {
            node: error
            for node, error in failures.items()
            if isinstance(error, AuthenticationError | UnsupportedVersionError)
        }
        news = [error for node, error in fatal.items() if error is not self._fatal_errors.get(node)]
        if None in failures.values() or not news:
            return False
        self._fatal_errors = fatal
        self._fail(news[0])
        return True

    def _note_unknown_names(self, now: float) -> None:
        """Fail the start of a producer if no bootstrap name can be resolved (KIP-909).

        Once a broker has answered, names that do not resolve are ordinary connection failures.
        """
        elapsed_ms = round((now - self._started_at) * 1000)
        if self._in_background or elapsed_ms < self._resolve_timeout_ms:
            return
        if self._every_start_failed_with(NameResolutionError):
            reason = self._explain_connections()
            self.waits.fail(
                BootstrapError(
                    "no bootstrap server's name could be resolved within "
                    f"bootstrap_resolve_timeout_ms={self._resolve_timeout_ms}: {reason.text}",
                    elapsed_ms=elapsed_ms,
                    advice=joined(
                        reason.advice,
                        "correct bootstrap_servers, or give names that are yet to appear some time "
                        "with bootstrap_resolve_timeout_ms",
                    ),
                )
            )

    def _note_other_services(self, now: float) -> None:
        """Fail the start of a producer if no bootstrap server is a Kafka broker.

        A start in the background goes on, and waiting calls fail with this error while it lasts.
        """
        metadata = self._metadata
        if not self._every_start_failed_with(NotKafkaError):
            if isinstance(metadata.fatal_error, BootstrapError):
                metadata.fatal_error = None
            return
        reason = self._explain_connections()
        error = BootstrapError(
            f"no bootstrap server is a Kafka broker: {reason.text}",
            elapsed_ms=round((now - self._started_at) * 1000),
            advice=reason.advice,
        )
        error.__cause__ = self._client.connection_failures(-1)
        if not self._in_background:
            self.waits.fail(error)
        elif not isinstance(metadata.fatal_error, BootstrapError):
            metadata.fatal_error = error
            self._report_fatal_error(error)
            self.waits.resume_decided(now)

    def _every_start_failed_with(self, kind: type[KafkaError]) -> bool:
        """Return whether all bootstrap servers failed like this and no broker has answered yet."""
        if self._metadata.version > 0:
            return False
        failures = map(self._client.connection_failures, self._bootstrap)
        return all(isinstance(failure, kind) for failure in failures)

    def _rebootstrap(self, now: float, why: str) -> None:
        self.warnings.warning(
            now, None, "rebootstrap", "starting over from the bootstrap servers: %s", why
        )
        self._reported_nodes = self._answer = None
        self._client.rebootstrap()
        self._requests.on_rebootstrap(now)

    # -- helpers ---------------------------------------------------------------------------------

    def _on_metadata_event(self) -> None:
        if self._reported_nodes is not None:
            self._report_nodes()
        self.wake()

    def _report_nodes(self) -> None:
        cluster = self._metadata.cluster
        if cluster.nodes is not self._reported_nodes:
            self._reported_nodes = cluster.nodes
            self._client.set_nodes(cluster.nodes, cluster.cluster_id)

    def _explain_connections(self) -> Reason:
        """Return the brokers that cannot be reached or throttle, and why, for timeout errors."""
        brokers = self._reported_nodes or {}
        failures = self._connection_failures(brokers)
        if len(failures) == len(brokers):
            failures |= self._connection_failures(self._bootstrap)
        reasons = [f"{_place(node)}: {error.message}" for node, error in failures.items()]
        throttled = self._throttle_times(brokers)
        parts = {"connection failures": reasons, "throttled by": throttled}
        advices = [error.advice for error in failures.values()][:_MOST_FAILURES_LISTED]
        return Reason(
            "; ".join(f"{what}: {_shortened(each)}" for what, each in parts.items() if each),
            joined(*advices, ADVICE["over-quota"] if throttled else None),
        )

    def _connection_failures(self, nodes: Mapping[int, Node]) -> dict[Node, KafkaError]:
        failures = {node: self._client.connection_failures(node.id) for node in nodes.values()}
        return {node: error for node, error in failures.items() if error is not None}

    def _throttle_times(self, nodes: Mapping[int, Node]) -> list[str]:
        now = self._loop.time()
        times = {node: self._client.throttled_for(node.id, now) for node in nodes.values()}
        return [f"{_place(node)} for another {s:.0f} s" for node, s in times.items() if s]


def _place(node: Node) -> str:
    kind = f"broker {node.id}" if node.id >= 0 else "bootstrap server"
    return f"{kind} {host_and_port(node.host, node.port)}"


def _shortened(reasons: list[str]) -> str:
    hidden = len(reasons) - _MOST_FAILURES_LISTED
    return ", ".join(
        reasons if hidden <= 0 else [*reasons[:_MOST_FAILURES_LISTED], f"and {hidden} more"]
    )
