"""`KafkaProducer`: kafka-python's interface to the blocking producer."""

from __future__ import annotations

import copy
import threading
from collections.abc import Container, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

from aioproducer._util.secrets import hides_arguments
from aioproducer.blocking.fork_safe_lock import ForkSafeLock
from aioproducer.compat.kafka import _errors as errors
from aioproducer.compat.kafka import _settings as settings
from aioproducer.compat.kafka._connection import Connection
from aioproducer.compat.kafka._transactions import TransactionsMixin
from aioproducer.compat.kafka._translation import translating
from aioproducer.compat.kafka.future import Failed, FutureRecordMetadata
from aioproducer.compat.kafka.partitioner import View, choice_of
from aioproducer.compat.kafka.serializer import function_of
from aioproducer.core.metadata.cluster import Cluster, check_topic_name
from aioproducer.errors import AuthorizationError, InvalidTopicError, UnknownTopicOrPartitionError
from aioproducer.metrics import Metric

__all__ = ["KafkaProducer", "MetricName"]
__path__: list[str] = []  # a package there: its modules come from kafka-python

_GROUPING = ("node-id", "topic")
_METADATA_ERRORS = (AuthorizationError, UnknownTopicOrPartitionError)


class MetricName(NamedTuple):
    """The identity of a metric, as the keys of `metrics(raw=True)`."""

    name: str
    group: str
    description: str
    tags: tuple[tuple[str, str], ...]


class KafkaProducer(TransactionsMixin):
    """kafka-python 3's producer: its options, calls and defaults. Use it from any thread.

    It connects in the constructor, waiting at most `bootstrap_timeout_ms`; with `api_version` given
    in the background of the first call that needs the cluster.

    Args:
        **configs: Options by kafka-python's names (`DEFAULT_CONFIG`), or by those of
            `aioproducer.ProducerConfig`.

    Attributes:
        config: The options with kafka-python's names and defaults.

    Raises:
        KafkaConfigurationError: An option is unknown, has a wrong value or contradicts another one;
            also a ValueError.
        KafkaTimeoutError: No broker answered in time.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = settings.DEFAULT_CONFIG

    _closed: bool = True  # until the constructor is through, there is nothing to close

    @hides_arguments
    def __init__(self, **configs: Any) -> None:
        self.config: dict[str, Any] = {**copy.copy(self.DEFAULT_CONFIG), **configs}
        with translating():
            self._own_settings = settings.producer_config(configs, self.config)
            self._own_serialize_key = function_of(self.config["key_serializer"])
            self._own_serialize_value = function_of(self.config["value_serializer"])
            self._own_choice = choice_of(self.config["partitioner"])
        self._metadata = View(Cluster())
        self._own_connection: Connection | None = None
        self._own_starting = ForkSafeLock()
        self._closed = False
        if self.config["api_version"] is None:
            try:
                self._own_running()
            except BaseException:
                self._closed = True
                raise

    # -- sending ---------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Hand a record over; return before it is sent.

        Waits at most `max_block_ms`, for the metadata of a new topic and for memory.

        Args:
            topic: Topic name.
            value: Bytes, or what `value_serializer` takes; None is a tombstone and needs a key.
            key: Bytes, or what `key_serializer` takes.
            headers: Pairs of name and bytes.
            partition: A partition id, instead of the partitioner's choice.
            timestamp_ms: Milliseconds since the epoch; now when left out.

        Raises:
            KafkaTimeoutError: Metadata or memory did not come in time.
            TypeError: A part has a type that cannot be sent.
            ValueError: Neither value nor key, no such partition, or no such topic name.
            MessageSizeTooLargeError: The record is larger than `max_request_size`.
            IllegalStateError: The producer is closed, or no transaction is open.
        """
        connection = self._own_running()
        if value is None and key is None:
            raise ValueError("Need at least one: key or value")
        headers = _checked_headers(headers)
        _check_topic(topic, self._metadata._topics)
        key_bytes = _serialized(self._own_serialize_key, topic, headers, key, "key")
        value_bytes = _serialized(self._own_serialize_value, topic, headers, value, "value")
        header_size = -1
        if headers:
            header_size = sum(len(name.encode()) + len(content) for name, content in headers)
        with translating():
            try:
                if partition is not None:
                    _check_partition(connection, topic, partition)
                elif self._own_choice is not None:
                    connection.topic(topic)
                    partition = self._own_choice(
                        topic, key, key_bytes, value, value_bytes, self._metadata
                    )
                    if partition is None:
                        raise ValueError(f"the partitioner chose no partition of topic {topic}")
                handle = connection.send(
                    topic, value_bytes, key_bytes, headers or None, partition, timestamp_ms
                )
            except _METADATA_ERRORS as error:
                return FutureRecordMetadata(Failed(error), header_size)
        if self._own_settings.partitioner_ignore_keys:
            key_bytes = None
        choice = self._metadata._topics, topic, partition, key_bytes
        return FutureRecordMetadata(handle, header_size, choice)

    def flush(self, timeout: float | None = None) -> None:
        """Send what was handed over without lingering, wait for the outcomes and their callbacks.

        Raises:
            KafkaTimeoutError: The timeout, in seconds, ended first.
        """
        connection = self._own_connection
        if connection is None or self._closed or connection.has_ended:
            return
        with translating():
            left = connection.flush(None if timeout is None else max(0.0, timeout))
            if left:
                raise errors.shared_class(errors.KafkaTimeoutError)(
                    f"{left} records were not delivered within {timeout} secs."
                )
            connection.run_callbacks()

    def partitions_for(self, topic: str) -> set[int]:
        """Return the ids of a topic's partitions, waiting at most `max_block_ms` for them."""
        connection = self._own_running()
        _check_topic(topic, self._metadata._topics)
        with translating():
            return set(range(len(connection.topic(topic).partitions)))

    # -- life ------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Deliver what was handed over, then release everything; safe to call again.

        In a callback it does so in the background.

        Args:
            timeout: Seconds for deliveries; what is left then fails with `IllegalStateError`.
            null_logger: No effect.

        Raises:
            ValueError: The timeout is negative.
        """
        del null_logger
        if timeout is not None and not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"Invalid timeout: {timeout}")
        if self._closed:
            return
        self._closed = True
        connection = self._own_connection
        if connection is not None and connection.is_here:
            connection.close_soon()
        elif connection is not None:
            with translating():
                connection.close(timeout)
        for name in ("key_serializer", "value_serializer"):
            close = getattr(self.config[name], "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a KafkaProducer has a thread and connections and cannot be copied or pickled; "
            "create one in each process"
        )

    def __str__(self) -> str:
        client_id, transactional_id = self.config["client_id"], self.config["transactional_id"]
        return f"<KafkaProducer client_id={client_id} transactional_id={transactional_id}>"

    # -- inspection ------------------------------------------------------------------------------

    def bootstrap_connected(self) -> bool:
        """Return whether a broker is connected."""
        connection = self._own_connection
        return connection is not None and not self._closed and connection.health().ready

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """Return the version of the record format that a release of Kafka understands."""
        if api_version >= (0, 11):
            return 2
        return 1 if api_version >= (0, 10, 0) else 0

    def metrics(self, raw: bool = False) -> Mapping[Any, Any] | None:
        """Return values by group and Java's name; None with `metrics_enabled=False`.

        Each topic and broker has a group, such as `producer-topic-metrics.orders`.

        Args:
            raw: Return the metrics by `MetricName` instead, each an `aioproducer.metrics.Metric`.
        """
        if not self.config["metrics_enabled"]:
            return None
        connection = self._own_connection or self._own_running()  # also of a closed producer
        with translating():
            measured = connection.all_metrics()
        if raw:
            return {
                MetricName(each.name, _group_of(each), each.description, each.tags): each
                for each in measured
            }
        groups: dict[str, dict[str, float]] = {}
        for each in measured:
            groups.setdefault(_group_of(each), {})[each.name] = each.value
        return groups

    # -- private ---------------------------------------------------------------------------------

    @property
    def _sender(self) -> SimpleNamespace:
        """The sender's thread, of which health checks ask whether it is alive."""
        return SimpleNamespace(is_alive=lambda: not self._closed)

    def _own_running(self) -> Connection:
        self._own_check_open()
        connection = self._own_connection
        if connection is None:
            with self._own_starting:
                connection = self._own_connection or self._own_started()
        return connection

    def _own_check_open(self) -> None:
        if self._closed:
            raise errors.shared_class(errors.IllegalStateError)("KafkaProducer already closed!")

    def _own_started(self) -> Connection:
        connection = Connection(self._own_settings, self.config["bootstrap_timeout_ms"] / 1000)
        waits = self.config["api_version"] is None
        with translating():
            connection.start(init_transactions=False, wait=waits)
        if waits:
            self.config["api_version"] = connection.release()
        self._metadata = View(connection.cluster, connection.request_update)
        self._own_connection = connection
        if self._closed:  # by another thread, which has not seen this connection
            connection.close()
            self._own_check_open()
        return connection


def _group_of(metric: Metric) -> str:
    return ".".join([metric.group, *(value for name, value in metric.tags if name in _GROUPING)])


def _check_topic(topic: Any, known: Container[str]) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"All topics must be strings, not {type(topic).__name__}")
    if topic in known:
        return
    try:
        check_topic_name(topic)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from error


def _checked_headers(headers: Any) -> list[tuple[str, bytes]]:
    if headers is None:
        return []
    if not isinstance(headers, list):
        raise TypeError("headers must be list-type")
    for item in headers:
        if not (isinstance(item, tuple) and len(item) == 2):
            raise TypeError("All headers items must be (str, bytes) tuples")
        if not (isinstance(item[0], str) and isinstance(item[1], bytes)):
            raise TypeError("All headers items must be (str, bytes) tuples")
    return headers


def _serialized(
    serialize: Any, topic: str, headers: list[tuple[str, bytes]], data: Any, part: str
) -> bytes | None:
    if serialize is not None:
        data = serialize(topic, headers, data)
    if data is None or type(data) is bytes:
        return data
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"Unsupported type for serialized {part}: {type(data)}")
    return bytes(data)


def _check_partition(connection: Connection, topic: str, partition: Any) -> None:
    if partition < 0:
        raise ValueError("partition must be >= 0")
    if partition >= len(connection.topic(topic).partitions):
        raise ValueError(f"Unrecognized partition {partition} for topic {topic}")
