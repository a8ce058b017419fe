"""`AIOKafkaProducer`: aiokafka's interface, implemented by this package's producer.

Invariants
- A `start()` that fails leaves nothing open and may be repeated; one that succeeds is the last.
- Serializers run here, so that the caller gets their exceptions unchanged.
- Argument errors of aiokafka's `assert` statements are raised under `python -O` as well.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterable
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from aioproducer._checks.event_loop import running_loop
from aioproducer._util.secrets import hides_arguments
from aioproducer.compat._servers import servers_option
from aioproducer.compat.aiokafka import _settings as settings
from aioproducer.compat.aiokafka._abc import AbstractTokenProvider
from aioproducer.compat.aiokafka._batch import (
    BATCH_OVERHEAD,
    RECORD_OVERHEAD,
    BatchBuilder,
    checked_headers,
    checked_timestamp,
    content_size,
    serialized,
)
from aioproducer.compat.aiokafka._client import (
    ClientView,
    ClusterView,
    SenderView,
    TransactionView,
)
from aioproducer.compat.aiokafka._connection import Connection
from aioproducer.compat.aiokafka._error_base import shared_class
from aioproducer.compat.aiokafka._errors import (
    IllegalOperation,
    IllegalStateError,
    MessageSizeTooLargeError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
)
from aioproducer.compat.aiokafka._outcomes import RecordFutures
from aioproducer.compat.aiokafka._structs import RecordMetadata
from aioproducer.compat.aiokafka._transactions import TransactionContext, TransactionsMixin
from aioproducer.compat.aiokafka._translation import record_metadata, translated, translating
from aioproducer.compat.aiokafka.partitioner import (
    DefaultPartitioner,
    KeyPartitioner,
    adapted,
    is_default,
)
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.records import record_size_bound
from aioproducer.runtime.delivery import Delivery
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.runtime.send.fast_path import FastPath

__all__ = ["AIOKafkaProducer", "TransactionContext"]
__path__: list[str] = []  # a package there: its modules come from aiokafka

_NOT_GIVEN: Final[Any] = object()
_DEFAULT_PARTITIONER: Final = DefaultPartitioner()

Headers = list[tuple[str, bytes | None]] | None


class AIOKafkaProducer(TransactionsMixin):
    """aiokafka 0.14's producer; its parameters, defaults and calls.

    See `aioproducer.compat.aiokafka` for what is different on purpose.

    Raises:
        ValueError: an argument has a wrong value or contradicts another.
        RuntimeError: the compression's library cannot be imported.
    """

    _closed: bool = True  # until the constructor is through, there is nothing to warn about
    _loop: asyncio.AbstractEventLoop | None = None
    _source_traceback: traceback.StackSummary | None = None
    _own_futures: RecordFutures
    _own_fast_path: FastPath | None = None  # while it runs, without serializers and transactions

    @hides_arguments
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Iterable[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: str | None = None,
        acks: Any = _NOT_GIVEN,
        key_serializer: Callable[[Any], Any] | None = None,
        value_serializer: Callable[[Any], Any] | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16384,
        partitioner: KeyPartitioner = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: int = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: SSLContext | None = None,
        connections_max_idle_ms: int | None = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
    ) -> None:
        self._own_bind_loop(loop)
        if api_version is not None:
            warnings.warn(
                "The `api_version` parameter has no effect and is deprecated",
                DeprecationWarning,
                stacklevel=3,
            )
        idempotent = bool(enable_idempotence) or transactional_id is not None
        acks = settings.acks_option(acks, given=not _is_missing(acks), idempotent=idempotent)
        compression = settings.compression_option(compression_type)
        security = settings.security_options(
            security_protocol=security_protocol,
            ssl_context=ssl_context,
            sasl_mechanism=sasl_mechanism,
            username=sasl_plain_username,
            password=sasl_plain_password,
            kerberos_service=sasl_kerberos_service_name,
            kerberos_domain=sasl_kerberos_domain_name,
            token_provider=sasl_oauth_token_provider,
        )
        times = settings.time_options(
            idempotent=idempotent,
            request_timeout_ms=request_timeout_ms,
            linger_ms=linger_ms,
            retry_backoff_ms=retry_backoff_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            connections_max_idle_ms=connections_max_idle_ms,
            transaction_timeout_ms=transaction_timeout_ms,
            is_transactional=transactional_id is not None,
        )
        given = bootstrap_servers if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
        self._own_config = ProducerConfig(
            bootstrap_servers=servers_option(given),
            client_id=settings.client_id_option(client_id),
            acks=acks,
            compression_type=compression,
            enable_idempotence=idempotent,
            # Without idempotence, one request at a time is what keeps the order under retries.
            max_in_flight_requests_per_connection=5 if idempotent else 1,
            transactional_id=transactional_id,
            partitioner=("default" if is_default(partitioner) else adapted(partitioner)),
            **settings.size_options(max_batch_size, max_request_size),
            **times,
            **security,
        )
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._request_timeout_ms = request_timeout_ms
        self._max_request_size = max_request_size
        self._own_make_views(given, ssl_context)
        self._own_connection: Connection | None = None
        self._own_starting = asyncio.Lock()
        self._own_stopped = False
        self._closed = False

    def _own_make_views(
        self, bootstrap_servers: str | list[str], ssl_context: SSLContext | None
    ) -> None:
        self.client: ClientView = ClientView(self._own_config, bootstrap_servers)
        self.client._ssl_context = ssl_context  # also one that is not used
        self._metadata: ClusterView = self.client.cluster
        self._sender: SenderView = SenderView()
        self._txn_manager: TransactionView | None = (
            TransactionView(self._own_config.transactional_id)
            if self._own_config.enable_idempotence
            else None
        )

    def _own_bind_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is None:
            loop = asyncio._get_running_loop()
        else:
            warnings.warn(
                "The `loop` parameter is deprecated: the producer runs in the loop that starts it",
                DeprecationWarning,
                stacklevel=4,
            )
        self._loop = loop
        if loop is not None and loop.get_debug():
            self._source_traceback = traceback.extract_stack(sys._getframe(3))

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster; a transactional producer is initialized as well.

        Has no effect while it runs. Of several calls at once, each returns when it has started.

        Raises:
            KafkaConnectionError: no bootstrap server answered within `request_timeout_ms`. Nothing
                is left open, and the call may be repeated.
            AuthenticationFailedError: the brokers refuse the credentials.
            ProducerClosed: it is stopped.
        """
        loop = running_loop()
        if self._loop is not None and self._loop is not loop:
            raise AssertionError("Please create objects with the same loop as running with")
        self._loop = loop
        async with self._own_starting:
            if self._own_connection is None:
                await self._own_start()
            elif self._own_stopped:
                raise shared_class(ProducerClosed)()

    async def _own_start(self) -> None:
        self._own_stopped = False  # programs call `stop()` after each `start()` that fails
        connection = self._own_connection = Connection(self._own_config)
        try:
            with translating():
                await connection.start()
        except BaseException:
            self._own_connection = None
            self._closed = True
            raise
        self._own_futures = connection.futures
        self.client._attach(connection)
        self._sender._connection = connection
        if self._txn_manager is not None:
            self._txn_manager._connection = connection
        self._closed = self._own_stopped
        serializes = self._key_serializer is not None or self._value_serializer is not None
        if self._own_config.transactional_id is None and not serializes:
            self._own_fast_path = connection._fast_path  # which `stop()` in the meantime has closed

    async def stop(self) -> None:
        """Delivers what was accepted, then closes every connection; may be called again.

        It waits as long as the records' own time limits allow, not longer. An open transaction is
        aborted.
        """
        self._closed = self._own_stopped = True
        self._own_fast_path = None
        try:
            if self._own_connection is not None:
                with translating():
                    await self._own_connection.close()
        finally:
            await self.client.close()

    async def flush(self) -> None:
        """Send accepted records without linger, and wait for their outcomes."""
        if self._own_connection is not None and not self._own_stopped:
            with translating():
                await self._own_connection.flush()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an AIOKafkaProducer has connections and cannot be copied or pickled; "
            "create one in each process"
        )

    def __del__(self) -> None:
        if self._closed:
            return
        warnings.warn(
            f"Unclosed AIOKafkaProducer {self!r}", ResourceWarning, source=self, stacklevel=2
        )
        if self._loop is not None:
            context: dict[str, Any] = {"producer": self, "message": "Unclosed AIOKafkaProducer"}
            if self._source_traceback is not None:
                context["source_traceback"] = self._source_traceback
            self._loop.call_exception_handler(context)

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Headers = None,
    ) -> asyncio.Future[RecordMetadata | None]:
        """Accept a record, waiting at most `request_timeout_ms` for metadata and for memory.

        Returns:
            A future of the record's `RecordMetadata`, of None with `acks=0`. Cancelling it does not
            take the record back.

        Raises:
            AssertionError: neither key nor value, or no such partition.
            TypeError, ValueError: a part cannot be sent.
            MessageSizeTooLargeError: larger than `max_request_size`.
            UnknownTopicOrPartitionError: the topic did not become known in time.
            KafkaTimeoutError: no memory became free in time.
            IllegalOperation: outside a transaction, although there is a `transactional_id`.
            ProducerClosed: the producer is stopped.
        """
        try:  # not `translating()`: this is done for each record
            delivery = self._own_accept_at_once(topic, value, key, partition, timestamp_ms, headers)
            if delivery is None:
                delivery = await self._own_accept(
                    topic, value, key, partition, timestamp_ms, headers
                )
        except KafkaError as error:
            raise translated(error) from error
        return self._own_futures.of(delivery)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Headers = None,
    ) -> RecordMetadata | None:
        """`send`, then await the outcome; a `send` that a subclass or a wrapper has put there."""
        if type(self).send is not _OWN_SEND or "send" in self.__dict__:
            future = await self.send(topic, value, key, partition, timestamp_ms, headers)
            return await future
        try:
            delivery = self._own_accept_at_once(
                topic, value, key, partition, timestamp_ms, headers, is_awaited=True
            )
            if delivery is None:
                delivery = await self._own_accept(
                    topic, value, key, partition, timestamp_ms, headers
                )
            await delivery
        except KafkaError as error:
            raise translated(error) from error
        return record_metadata(delivery) if self._own_acknowledges else None

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch of at most `max_batch_size` bytes for `send_batch`."""
        return BatchBuilder(
            self._own_config.batch_size,
            key_serializer=self._key_serializer,
            value_serializer=self._value_serializer,
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> asyncio.Future[RecordMetadata | None]:
        """Accept a batch, which is written as one record batch: whole or not at all.

        Returns:
            A future of the first record's `RecordMetadata`, of None for an empty batch and with
            `acks=0`. Its timestamp is -1 unless the broker sets it. The future fails if the broker
            refuses the batch for its size or for any of its records: then none is written.

        Raises:
            TypeError: `batch` is not a `BatchBuilder`.
            AssertionError, IllegalOperation and others: see `send`.
        """
        if not isinstance(batch, BatchBuilder):
            raise TypeError(f"create_batch() makes what can be sent, not {type(batch).__name__}")
        connection = self._own_running()
        with translating():
            await self._own_check_partition(connection, topic, partition)
            self._own_check_transaction(connection)
            return await Connection.send_gathered(connection, batch, topic, partition)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partitions, waiting at most `request_timeout_ms` for its metadata."""
        connection = self._own_running()
        with translating():
            return {info.partition for info in await connection.partitions_for(topic)}

    # -- private, but used by other programs (see `_client`) -------------------------------------

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> int:
        """Return the partition that the partitioner names for a key; faust and OpenTelemetry ask.

        A record without a key is sent to another one, unless `partitioner` was given.
        """
        del key, value, serialized_value
        every = self._metadata.partitions_for_topic(topic)
        if every is None:
            raise shared_class(UnknownTopicOrPartitionError)(
                f"the metadata of {topic!r} is not fetched yet"
            )
        if partition is not None:
            if not partition >= 0:
                raise AssertionError
            if partition not in every:
                raise AssertionError("Unrecognized partition")
            return partition
        available = self._metadata.available_partitions_for_topic(topic) or set()
        return self._partitioner(serialized_key, sorted(every), sorted(available))

    # -- private ---------------------------------------------------------------------------------

    @property
    def _own_acknowledges(self) -> bool:
        return self._own_config.acks_value != 0

    def _own_running(self) -> Connection:
        if self._own_stopped:
            raise shared_class(ProducerClosed)()
        if self._own_connection is None:
            raise shared_class(IllegalStateError)("the producer is not started")
        return self._own_connection

    def _own_accept_at_once(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: Any,
        headers: Headers,
        *,
        is_awaited: bool = False,
    ) -> Delivery | None:
        """Accept a record of bytes that waits for nothing; None where `_accept` has to do it."""
        fast_path = self._own_fast_path
        if (
            fast_path is None
            or (value is None and key is None)
            or not (headers is None or type(headers) is list)
        ):
            return None
        return fast_path.append(topic, value, key, headers, partition, timestamp_ms, is_awaited)

    def _own_accept(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: Headers,
    ) -> Awaitable[Delivery]:
        """Check a record; await what this returns to have it accepted."""
        connection = self._own_running()
        if value is None and key is None:
            raise AssertionError("Need at least one: key or value")
        if partition is not None:
            return self._own_accept_at(
                connection, topic, value, key, partition, timestamp_ms, headers
            )
        if self._own_config.transactional_id is not None:
            self._own_check_transaction(connection)
        key = serialized(self._key_serializer, key)
        value = serialized(self._value_serializer, value)
        pairs = checked_headers(headers)
        self._own_check_size(key, value, pairs)
        stamp = checked_timestamp(timestamp_ms)
        return connection.send(topic, value, key, headers=pairs, timestamp_ms=stamp)

    async def _own_accept_at(
        self,
        connection: Connection,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        timestamp_ms: float | None,
        headers: Headers,
    ) -> Delivery:
        await self._own_check_partition(connection, topic, partition)
        self._own_check_transaction(connection)
        key = serialized(self._key_serializer, key)
        value = serialized(self._value_serializer, value)
        pairs = checked_headers(headers)
        self._own_check_size(key, value, pairs)
        stamp = checked_timestamp(timestamp_ms)
        return await connection.send(
            topic, value, key, headers=pairs, partition=partition, timestamp_ms=stamp
        )

    async def _own_check_partition(
        self, connection: Connection, topic: str, partition: int | None
    ) -> None:
        known = await connection.partition_ids(topic)
        if partition is None:
            return
        if not partition >= 0:  # so that a str is refused in aiokafka's words
            raise AssertionError
        if partition not in known or isinstance(partition, bool):
            raise AssertionError("Unrecognized partition")

    def _own_check_transaction(self, connection: Connection) -> None:
        if self._own_config.transactional_id is not None and not connection.in_transaction:
            raise shared_class(IllegalOperation)("Can't send messages while not in transaction")

    def _own_check_size(self, key: bytes | None, value: bytes | None, pairs: HeaderPairs) -> None:
        limit = self._own_config.max_request_size - BATCH_OVERHEAD - RECORD_OVERHEAD
        if record_size_bound(key, value, pairs) <= limit:
            return
        size = BATCH_OVERHEAD + RECORD_OVERHEAD + content_size(key, value, pairs)
        if size > self._own_config.max_request_size:
            raise shared_class(MessageSizeTooLargeError)(
                f"The message is {size} bytes when serialized which is larger than the maximum "
                "request size you have configured with the max_request_size configuration"
            )


def _is_missing(acks: Any) -> bool:
    """Return whether it means "not given" here or in aiokafka, whose default programs pass on."""
    if acks is _NOT_GIVEN:
        return True
    theirs = sys.modules.get("aiokafka.producer.producer")
    return theirs is not None and acks is getattr(theirs, "_missing", _NOT_GIVEN)


_OWN_SEND: Final = AIOKafkaProducer.send
