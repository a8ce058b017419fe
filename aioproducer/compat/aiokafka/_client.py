"""`AIOKafkaProducer.client` and others: the members of private objects that programs use.

OpenTelemetry, ddtrace, kstreams and faust use these members of aiokafka's private objects. They are
views of the producer: nothing here changes it, and nothing else of aiokafka's client is offered.
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Coroutine
from io import BytesIO
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioproducer.compat.aiokafka import _errors as errors
from aioproducer.compat.aiokafka._error_base import shared_class
from aioproducer.compat.aiokafka._errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaProtocolError,
    NodeNotReadyError,
    RequestTimedOutError,
)
from aioproducer.compat.aiokafka._structs import BrokerMetadata, TopicPartition, shared_struct
from aioproducer.compat.aiokafka._translation import translated, translating
from aioproducer.core.transactions import coordinator_queries
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from aioproducer.net.client import PreparedRequest
from aioproducer.net.responses import UndecodedAnswer
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.compat.aiokafka._connection import Connection
    from aioproducer.config import ProducerConfig
    from aioproducer.core.metadata.cluster import Cluster
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.types import Node, TopicMetadata

__all__ = ["ClientView", "ClusterView", "SenderView", "TransactionView"]

_T = TypeVar("_T")

_REFUSED: Final = {
    0: "send() and send_batch() write records",
    17: "connections authenticate themselves",
    36: "connections authenticate themselves",
}
"""API keys of Produce, SaslHandshake and SaslAuthenticate."""

_WITH_HEADERS, _WITHOUT_HEADERS = (2, 3), (0, 10)


class ClusterView:
    """Metadata of the cluster, with the methods of aiokafka's `ClusterMetadata`."""

    def __init__(self) -> None:
        self._metadata: Metadata | None = None
        self._seen: dict[str, TopicMetadata] = {}
        self._client: ClientView | None = None

    def request_update(self) -> asyncio.Future[ClusterView]:
        """Fetch metadata.

        Returns:
            A future of this object, which fails if no broker answers within `request_timeout_ms`.
        """
        if self._client is None:
            raise shared_class(IllegalStateError)("the producer is not started")
        return asyncio.ensure_future(self._client._update_cluster())

    @property
    def controller(self) -> BrokerMetadata | None:
        """The controller, or None while it is unknown."""
        cluster = self._cluster
        node = None if cluster is None else cluster.nodes.get(cluster.controller_id)
        return None if node is None else _broker(node)

    def brokers(self) -> set[BrokerMetadata]:
        """Return the brokers; empty before `start()`."""
        cluster = self._cluster
        return set() if cluster is None else {_broker(node) for node in cluster.nodes.values()}

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return a broker by its id, or None if it is unknown."""
        cluster = self._cluster
        node = None if cluster is None else cluster.nodes.get(broker_id)
        return None if node is None else _broker(node)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Return the names of the topics that are known: those in use, see `ClientView`."""
        known = {name: self._topic(name) for name in self._names()}
        return {
            name
            for name, topic in known.items()
            if topic is not None and not (exclude_internal_topics and topic.is_internal)
        }

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic, or None if it is unknown."""
        known = self._topic(topic)
        return None if known is None else set(range(len(known.partitions)))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions that have a leader, or None for an unknown topic."""
        known = self._topic(topic)
        return None if known is None else set(known.available)

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the leader's node id, -1 if there is none, None for an unknown partition."""
        known = self._topic(partition.topic)
        if known is None or not 0 <= partition.partition < len(known.partitions):
            return None
        return known.partitions[partition.partition].leader

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition] | None:
        """Return the known partitions that a broker leads, or None if there are none."""
        cluster = self._cluster
        struct = shared_struct(TopicPartition)
        led = {
            struct(topic.name, each.partition)
            for topic in (() if cluster is None else cluster.topics.values())
            for each in topic.partitions
            if each.leader == broker_id
        }
        return led or None

    # -- private ---------------------------------------------------------------------------------

    @property
    def _cluster(self) -> Cluster | None:
        return None if self._metadata is None else self._metadata.cluster

    def _names(self) -> set[str]:
        cluster = self._cluster
        return set(self._seen) if cluster is None else {*self._seen, *cluster.topics}

    def _topic(self, name: str) -> TopicMetadata | None:
        """Return a topic, also after the producer has dropped it for being idle.

        aiokafka keeps a topic until an answer says that there is none.
        """
        metadata = self._metadata
        if metadata is None:
            return None
        known = metadata.topic(name)
        if known is not None:
            self._seen[name] = known
        elif name in metadata.topics_in_use:
            self._seen.pop(name, None)
        return self._seen.get(name)


class ClientView:
    """The members of aiokafka's `AIOKafkaClient` that other programs use.

    Attributes:
        cluster: What is known of the cluster.
    """

    def __init__(self, config: ProducerConfig, bootstrap_servers: str | list[str]) -> None:
        self.cluster: ClusterView = ClusterView()
        self.cluster._client = self
        self._config = config
        self._bootstrap_servers = bootstrap_servers
        self._client_id = config.client_id
        self._security_protocol = config.security_protocol
        self._ssl_context: SSLContext | None = config.ssl_context
        self._request_timeout_ms = config.request_timeout_ms
        self._connection: Connection | None = None
        self._requests: CoordinatorClient | None = None
        self._tasks: set[asyncio.Task[bool]] = set()
        self._abandoned: weakref.WeakSet[asyncio.Task[bool]] = weakref.WeakSet()
        self._listed: set[str] = set()

    @property
    def api_version(self) -> tuple[int, ...]:
        """(2, 3) if brokers store headers, else (0, 10); there are no other values."""
        connection = self._connection
        if connection is None or connection.takes_headers:
            return _WITH_HEADERS
        return _WITHOUT_HEADERS

    def get_random_node(self) -> int | None:
        """Return the id of one of the brokers, or None if none is known."""
        cluster = self.cluster._cluster
        return random.choice(list(cluster.nodes)) if cluster is not None and cluster.nodes else None

    async def bootstrap(self) -> None:
        """Ask a broker for metadata.

        Raises:
            KafkaConnectionError: None has answered within `request_timeout_ms`.
        """
        with translating():
            has_answer = await self._running().refresh_metadata()
        if not has_answer:
            raise shared_class(errors.KafkaConnectionError)(
                f"no broker has answered within {self._request_timeout_ms} ms"
            )

    async def ready(self, node_id: int | None, *, group: object = None) -> bool:
        """Return whether a broker of the cluster answers within `request_timeout_ms`.

        Programs ask before `start()`, too, when no broker is known.

        Args:
            node_id: The broker; one of `cluster.brokers()`.
            group: Has no effect.
        """
        del group
        connection = self._connection
        if connection is None or node_id is None:
            return False
        try:
            connection.check_running()
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                await self._requester().ask_broker(node_id, coordinator_queries.brokers())
        except (KafkaError, TimeoutError):
            return False
        return True

    async def fetch_all_metadata(self) -> ClusterView:
        """Fetch the metadata of all topics of the cluster.

        Raises:
            KafkaError: No broker has answered within `request_timeout_ms`.
        """
        connection = self._running()
        with translating():
            names = await self._requester().ask(coordinator_queries.topic_names())
            self._listed.update(names)
            connection.use_topics(names)
        await self.bootstrap()
        return self.cluster

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Fetch metadata; as with aiokafka, of all topics of the cluster while none is in use.

        Returns:
            A future of whether a broker has answered within `request_timeout_ms`.
        """
        return self._started(self._update(self._running()))

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Fetch a topic's metadata and keep it up to date.

        Returns:
            A future of whether a broker has answered within `request_timeout_ms`; of True if the
            topic is known already.
        """
        connection = self._running()
        if connection.metadata.topic(topic) is not None:
            known: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            known.set_result(True)
            return known
        connection.use_topics([topic])
        return self._started(connection.refresh_metadata())

    async def send(self, node_id: int, request: Any, *, group: object = None) -> Any:
        """Send one of aiokafka's requests, such as `aiokafka.protocol.admin.CreateTopicsRequest`.

        It goes over a connection that only this method uses, so that it delays no record.

        Args:
            node_id: The broker; one of `cluster.brokers()`.
            request: The request. Its own class encodes it and decodes the response, in the highest
                version that the broker supports, too.
            group: Has no effect.

        Returns:
            The response, an object of the class that aiokafka has for it.

        Raises:
            IllegalArgumentError: The request is of a kind that is refused: Produce, SaslHandshake
                and SaslAuthenticate.
            TypeError: The object is not a request.
            NodeNotReadyError: The broker is unknown or cannot be reached.
            RequestTimedOutError: No response within `request_timeout_ms`.
            KafkaProtocolError: The response cannot be decoded.
        """
        del group
        key = getattr(request, "API_KEY", None)
        if not isinstance(key, int):
            raise TypeError(f"aiokafka's requests can be sent, not {type(request).__name__}")
        if key in _REFUSED:
            name = type(request).__name__
            raise shared_class(IllegalArgumentError)(f"{name} cannot be sent here: {_REFUSED[key]}")
        self._running()
        exchange = _Exchange(request)
        try:
            frame = await self._requester().relay(node_id, exchange.encoded)
        except KafkaTimeoutError as error:
            raise shared_class(RequestTimedOutError)(str(error)) from error
        except KafkaConnectionError as error:
            raise shared_class(NodeNotReadyError)(str(error)) from error
        except KafkaError as error:
            raise translated(error) from error
        return exchange.decoded(frame)

    async def close(self) -> None:
        """Close the connections that `send` has opened; `AIOKafkaProducer.stop()` does so too.

        The producer's own connections stay open until `stop()`.
        """
        for task in self._tasks:
            self._abandoned.add(task)
            task.cancel()
        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.close()

    # -- private ---------------------------------------------------------------------------------

    def _attach(self, connection: Connection) -> None:
        self._connection = connection
        self.cluster._metadata = connection.metadata

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Return the partitions of a topic, waiting at most `request_timeout_ms` for them."""
        connection = self._running()
        with translating():
            return set(await connection.partition_ids(topic))

    def _running(self) -> Connection:
        if self._connection is None:
            raise shared_class(IllegalStateError)("the producer is not started")
        with translating():
            self._connection.check_running()
        return self._connection

    async def _update_cluster(self) -> ClusterView:
        await self.bootstrap()
        return self.cluster

    def _requester(self) -> CoordinatorClient:
        if self._requests is None:
            self._requests = CoordinatorClient(self._config)
        return self._requests

    def _started(self, work: Coroutine[Any, Any, bool]) -> asyncio.Future[bool]:
        """Start a task, since callers of aiokafka need not await the future."""
        task = asyncio.get_running_loop().create_task(self._answered(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _answered(self, work: Coroutine[Any, Any, bool]) -> bool:
        try:
            return await work
        except KafkaError:
            return False
        except asyncio.CancelledError:
            if asyncio.current_task() not in self._abandoned:
                raise
            return False

    async def _update(self, connection: Connection) -> bool:
        if connection.metadata.topics_in_use <= self._listed:
            names = await self._requester().ask(coordinator_queries.topic_names())
            self._listed.update(names)
            connection.use_topics(names)
        return await connection.refresh_metadata()


class SenderView:
    """Members of aiokafka's sender that health checks use."""

    def __init__(self) -> None:
        self._connection: Connection | None = None

    @property
    def sender_task(self) -> asyncio.Task[None] | None:
        """The task that sends; None before the start. It is done once the producer has stopped."""
        return None if self._connection is None else self._connection.sender_task

    _sender_task = sender_task  # programs read this one, too


class TransactionView:
    """Members of aiokafka's transaction manager that programs use.

    Attributes:
        transactional_id: The option.
    """

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id: str | None = transactional_id
        self._connection: Connection | None = None

    def is_in_transaction(self) -> bool:
        """Return whether a transaction is open and has not failed."""
        return self._state is TransactionState.IN_TRANSACTION

    def is_fatal_error(self) -> bool:
        """Return whether only `stop()` can be called."""
        return self._state is TransactionState.FATAL_ERROR

    @property
    def _state(self) -> TransactionState | None:
        return None if self._connection is None else self._connection.transaction_state


class _Exchange:
    """One request of aiokafka's: its bytes in the version that is chosen, and its response."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._struct: Any = None

    def encoded(self, versions: Mapping[int, tuple[int, int]]) -> PreparedRequest:
        """Return what to send to a broker of these versions."""
        prepare = getattr(self._request, "prepare", None)  # aiokafka 0.13 and later
        struct = self._struct = self._request if prepare is None else prepare(dict(versions))
        body: bytes = struct.encode()

        def build(version: int, correlation_id: int, client_id: str | None) -> list[bytes]:
            del version
            header = struct.build_request_header(correlation_id, client_id).encode()
            return [(len(header) + len(body)).to_bytes(4, "big") + header + body]

        return PreparedRequest(UndecodedAnswer, build, version=struct.API_VERSION)

    def decoded(self, frame: bytes) -> Any:
        """Return the response as aiokafka's object."""
        data = BytesIO(frame)
        try:
            self._struct.parse_response_header(data)
            return self._struct.RESPONSE_TYPE.decode(data)
        except ValueError as error:
            name = type(self._struct).__name__
            raise shared_class(KafkaProtocolError)(f"the response to {name}: {error}") from error


def _broker(node: Node) -> BrokerMetadata:
    return shared_struct(BrokerMetadata)(node.id, node.host, node.port, node.rack)
