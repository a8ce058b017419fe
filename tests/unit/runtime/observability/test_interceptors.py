"""Interceptors: what they see, what they may change, that they harm nothing (KIP-42, KIP-512)."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from support.stage import Stage, play

from aioproducer import Record, RecordMetadata, blocking
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    ConfigError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationFailedError,
    WouldBlockError,
)
from aioproducer.interceptors import ClusterInfo
from aioproducer.runtime.observability.interceptors import InterceptorChain
from aioproducer.testing import MockProducer
from aioproducer.testing.broker import ErrorAnswer, Fault
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.types import HeaderPairs, TimestampType
from aioproducer.wire.api_keys import ApiKey

from ..send.fast_paths import Bench

ROOMY = {"buffer_memory": 1 << 20}
TOPIC_AUTHORIZATION_FAILED = 29


class Witness:
    """Writes down each call."""

    def __init__(self) -> None:
        self.sent: list[Record] = []
        self.reported: list[tuple[RecordMetadata, BaseException | None, HeaderPairs]] = []
        self.clusters: list[ClusterInfo] = []
        self.closed = 0

    def on_send(self, record: Record) -> None:
        self.sent.append(record)

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs
    ) -> None:
        self.reported.append((metadata, error, headers))

    def on_cluster(self, cluster: ClusterInfo) -> None:
        self.clusters.append(cluster)

    def close(self) -> None:
        self.closed += 1

    @property
    def offsets(self) -> list[int | None]:
        return [metadata.offset for metadata, _, _ in self.reported]


class Stamp:
    """Changes every record, and remembers what it was shown."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark

    def on_send(self, record: Record) -> Record:
        return replace(record, value=(record.value or b"") + self.mark)


class Grumbler:
    """Raises whenever it is called."""

    def on_send(self, record: Record) -> Record:
        raise RuntimeError("on_send grumbles")

    def on_acknowledgement(self, *_: object) -> None:
        raise RuntimeError("on_acknowledgement grumbles")

    def on_cluster(self, cluster: ClusterInfo) -> None:
        raise RuntimeError("on_cluster grumbles")

    def close(self) -> None:
        raise RuntimeError("close grumbles")


def intercepted(*interceptors: object, **options: Any) -> dict[str, Any]:
    return {"interceptor_classes": interceptors, **ROOMY, **options}


@pytest.mark.parametrize("way", ["send", "send_nowait", "send_and_wait"])
def test_each_interceptor_sees_what_the_one_before_it_made_of_the_record(way: str):
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            sent = getattr(producer, way)("t", b"v", b"k", headers={"h": b"1"}, timestamp_ms=7)
            if way == "send":
                sent = await (await sent)
            else:
                sent = await sent
        assert stage.values("t") == [b"v12"]
        assert witness.sent == [Record(b"v1", b"k", {"h": b"1"}, 7, None, "t")]
        assert witness.reported == [(sent, None, (("h", b"1"),))]
        assert (sent.offset, sent.timestamp_ms) == (0, 7)
        assert witness.closed == 1

    play(act, **intercepted(Stamp(b"1"), witness, Stamp(b"2")))


def test_what_interceptors_raise_harms_no_record(caplog: pytest.LogCaptureFixture):
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            assert (await producer.send_and_wait("t", b"v")).offset == 0
        assert stage.values("t") == [b"v1"]
        assert witness.offsets == [0]

    play(act, **intercepted(Grumbler(), Stamp(b"1"), witness))
    for name in ("on_send", "on_acknowledgement", "on_cluster", "close"):
        assert f"Grumbler.{name} raised" in caplog.text


def test_a_result_that_is_no_record_is_warned_of(caplog: pytest.LogCaptureFixture):
    class Wrong:
        def on_send(self, record: Record) -> object:
            return {"value": b"changed"}

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
        assert stage.values("t") == [b"v"]

    play(act, **intercepted(Wrong()))
    assert "on_send returned dict, not a Record or None" in caplog.text


def test_what_interceptors_raise_is_logged_without_the_records_data(
    caplog: pytest.LogCaptureFixture,
):
    class Reader:
        def on_send(self, record: Record) -> None:
            int(record.value)

        def on_acknowledgement(self, metadata: object, error: object, headers: Any) -> None:
            headers[0][1].decode()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"4711x", headers=[("h", b"4711\xff")])

    play(act, **intercepted(Reader()))
    assert "on_send raised ValueError at test_interceptors.py:" in caplog.text
    assert "on_acknowledgement raised UnicodeDecodeError at test_interceptors.py:" in caplog.text
    assert "4711" not in caplog.text


def test_records_that_are_never_accepted_are_reported_once_with_their_headers():
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            with pytest.raises(WouldBlockError):
                producer.send_nowait("t", b"v", headers={"a": b""})
            with pytest.raises(SerializationError):
                await producer.send("t", 5, partition=0)
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", b"v" * (2 << 20), b"key")
            with pytest.raises(MetadataTimeoutError):
                await producer.send("unknown", b"v")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await producer.send("unknown", b"v")
        kinds = [type(error) for _, error, _ in witness.reported]
        assert kinds == [
            WouldBlockError,
            SerializationError,
            RecordTooLargeError,
            MetadataTimeoutError,
            asyncio.CancelledError,
        ]
        assert witness.reported[0][2] == (("a", b""),)
        assert {metadata.topic for metadata, _, _ in witness.reported} == {"t", "unknown"}
        assert [metadata.partition for metadata, _, _ in witness.reported] == [-1, 0, -1, -1, -1]
        assert witness.offsets == [None] * 5

    play(
        act,
        **intercepted(witness, allow_auto_create_topics=False, max_block_ms=100),
    )


async def test_a_record_whose_batch_has_its_outcome_already_is_reported() -> None:
    witness, bench = Witness(), Bench()
    chain = InterceptorChain([witness], (), bench.loop)
    bench.know(t=1)
    delivery = await bench.producer.send("t", b"v")
    bench.complete_oldest(base_offset=5)
    chain.accepted(delivery, ("t", None, b"v", (("h", b"1"),), None, None))
    assert not witness.reported
    await asyncio.sleep(0)
    assert witness.reported == [(await delivery, None, (("h", b"1"),))]
    assert witness.offsets == [5]
    bench.end()


def reversing(data: str) -> bytes:
    if data == "bad":
        raise ValueError("it is bad")
    return data[::-1].encode()


async def reversing_later(data: str) -> bytes:
    await asyncio.sleep(1)
    return reversing(data)


@pytest.mark.parametrize("way", ["send", "send_nowait", "send_and_wait"])
def test_a_record_that_cannot_be_serialized_is_reported_once(way: str) -> None:
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            with pytest.raises(SerializationError, match="serializer raised ValueError") as raised:
                place: dict[str, int] = {"partition": 0, "timestamp_ms": 7}
                sent = getattr(producer, way)("t", "bad", b"k", headers={"h": b"1"}, **place)
                await sent
        ((metadata, error, headers),) = witness.reported
        assert metadata == RecordMetadata("t", 0, None, 7, TimestampType.CREATE_TIME, -1, -1)
        assert error is raised.value
        assert headers == (("h", b"1"),)

    play(act, **intercepted(witness, value_serializer=reversing))


def test_a_record_whose_headers_cannot_be_read_is_reported_without_them() -> None:
    witness = Witness()

    class Unreadable:
        def __iter__(self) -> object:
            raise ZeroDivisionError

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            for given in (5, Unreadable()):
                with pytest.raises(SerializationError):
                    await producer.send("t", b"v", headers=given)  # type: ignore[arg-type]
        assert [type(error) for _, error, _ in witness.reported] == [SerializationError] * 2
        assert [headers for _, _, headers in witness.reported] == [(), ()]

    play(act, **intercepted(witness))


def test_a_record_with_an_asynchronous_serializer_is_reported_with_its_outcome() -> None:
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", "vw", timestamp_ms=7, headers={"h": b"1"})
            for way, kind in (("send", SerializationError), ("send_nowait", WouldBlockError)):
                with pytest.raises(kind):
                    await getattr(producer, way)("t", "bad", partition=0, headers={"h": b"2"})
        assert stage.values("t") == [b"wv"]
        (metadata, error, headers), *refused = witness.reported
        assert (metadata.offset, metadata.timestamp_ms, metadata.partition) == (0, 7, 0)
        assert (error, headers) == (None, (("h", b"1"),))
        assert [(each.partition, type(error)) for each, error, _ in refused] == [
            (0, SerializationError),
            (0, WouldBlockError),
        ]
        assert [headers for _, _, headers in refused] == [(("h", b"2"),)] * 2

    play(act, **intercepted(witness, value_serializer=reversing_later))


def test_a_row_that_cannot_be_read_is_reported_with_the_topic_of_the_call() -> None:
    witness = Witness()
    pair = pa.struct([("name", pa.string()), ("value", pa.binary())])
    headers = pa.array([[("h", b"1")], [(None, b"2")]], pa.list_(pair))

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            table = pa.table({"value": [b"x", b"y"], "headers": headers})
            result = await producer.send_arrow("t", table, headers="headers")
            assert [failed.index for failed in result.failed] == [1]
        assert stage.values("t") == [b"x"]
        ((metadata, error, _),) = [each for each in witness.reported if each[1] is not None]
        assert metadata == RecordMetadata("t", -1, None, -1, TimestampType.CREATE_TIME, -1, -1)
        assert isinstance(error, SerializationError)
        assert len(witness.sent) == 1

    play(act, **intercepted(witness))


def test_a_failed_batch_is_reported_and_still_counts_as_not_retrieved():
    witness = Witness()

    async def act(stage: Stage) -> None:
        fault = Fault(ErrorAnswer(TOPIC_AUTHORIZATION_FAILED), api=ApiKey.PRODUCE)
        stage.faults.add(fault)
        async with stage.producer as producer:
            for _ in range(3):
                await producer.send("t", b"v")
            await asyncio.sleep(1)
            gc.collect()
            assert producer.metrics()["unretrieved_failure_total"] == 3
        kinds = [type(error) for _, error, _ in witness.reported]
        assert kinds == [TopicAuthorizationFailedError] * 3
        assert {metadata.partition for metadata, _, _ in witness.reported} == {0}

    play(act, **intercepted(witness))


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_an_outcome_is_reported_before_those_that_await_it_go_on(linger_ms: int) -> None:
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            for number in range(3):
                await producer.send_and_wait("t", b"alone")
                assert witness.offsets == list(range(number + 1))
            deliveries = [await producer.send("t", b"together") for _ in range(3)]
            for delivery in deliveries:
                metadata = await delivery
                assert metadata.offset in witness.offsets

    play(act, **intercepted(witness, linger_ms=linger_ms))


def test_records_given_up_by_a_close_are_reported_before_it_returns():
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            stage.lose()
            deliveries = [await producer.send("t", b"v") for _ in range(3)]
            await producer.close(0)
            assert [type(error).__name__ for _, error, _ in witness.reported] == [
                "ProducerClosedError"
            ] * 3
        for delivery in deliveries:
            with pytest.raises(KafkaError):
                await delivery

    play(act, **intercepted(witness))


def test_parts_of_a_split_batch_are_reported_with_their_own_offsets():
    witness = Witness()

    async def act(stage: Stage) -> None:
        stage.faults.add(Fault(ErrorAnswer(10), api=ApiKey.PRODUCE))
        async with stage.producer as producer:
            await producer.send_many("t", [b"v"] * 4)
        assert witness.offsets == [0, 1, 2, 3]

    play(act, **intercepted(witness))


def test_every_row_of_a_bulk_call_is_seen_and_reported():
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            items = [b"a", (b"k", b"b"), Record(b"c", topic="u"), 5, b"v" * (2 << 20)]
            result = await producer.send_many("t", items, partition=0)
            assert (result.delivered, len(result.failed)) == (3, 2)
            table = pa.table({"value": [b"x", None], "key": [b"1", b"2"]})
            assert (await producer.send_arrow("t", table, key="key")).delivered == 2
        assert stage.values("t") == [b"a!", b"b!", b"x!", b"!"]
        assert stage.values("u") == [b"c!"]
        assert len(witness.sent) == len(witness.reported) == 7
        assert [record.topic for record in witness.sent] == ["t", "t", "u", "t", "t", "t", "t"]
        errors = [type(error) for _, error, _ in witness.reported if error is not None]
        assert errors == [SerializationError, RecordTooLargeError]

    class Exclaim:
        def on_send(self, record: Record) -> Record | None:
            if isinstance(record.value, int):
                return None
            return replace(record, value=(record.value or b"") + b"!")

    play(act, **intercepted(Exclaim(), witness))


@pytest.mark.parametrize("call", ["send_many", "send_arrow"])
def test_a_row_whose_topic_an_interceptor_makes_a_list_fails_alone(call: str) -> None:
    class Listed:
        def on_send(self, record: Record) -> Record | None:
            return replace(record, topic=["t"]) if record.value == b"0" else None  # type: ignore[arg-type]

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            rows = pa.table({"value": [b"0", b"1"]}) if call == "send_arrow" else [b"0", b"1"]
            result = await getattr(producer, call)("t", rows)
        assert result.delivered == 1
        assert [type(failed.error) for failed in result.failed] == [InvalidTopicError]

    play(act, **intercepted(Listed()))


def test_a_row_with_an_empty_topic_is_refused_with_interceptors_too() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            table = pa.table({"value": [b"0", b"1"], "topic": ["", None]})
            result = await producer.send_arrow("t", table, topic_column="topic")
        assert [type(failed.error) for failed in result.failed] == [InvalidTopicError]
        assert stage.values("t") == [b"1"]

    play(act, **intercepted(Witness()))


@pytest.mark.parametrize("call", ["send_many", "send_arrow"])
def test_a_row_that_waits_when_a_bulk_call_is_cancelled_is_reported(call: str) -> None:
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            rows = pa.table({"value": [b"v"]}) if call == "send_arrow" else [b"v"]
            sending = asyncio.create_task(getattr(producer, call)("unknown", rows))
            await asyncio.sleep(0.1)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert len(witness.sent) == 1
            assert [type(error) for _, error, _ in witness.reported] == [asyncio.CancelledError]

    play(act, **intercepted(witness, allow_auto_create_topics=False))


def test_a_row_of_a_bulk_call_whose_serializer_waits_at_its_end_is_reported() -> None:
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await producer.send_many("t", ["v"])
        assert len(witness.sent) == 1
        assert [type(error) for _, error, _ in witness.reported] == [asyncio.CancelledError]

    play(act, **intercepted(witness, value_serializer=reversing_later))


def is_reported(witness: Witness) -> None:
    """Check the calls for the second of two items, a tuple that is no record."""
    assert len(witness.sent) == 1
    ((metadata, error, headers),) = [each for each in witness.reported if each[1] is not None]
    assert metadata == RecordMetadata("t", 0, None, -1, TimestampType.CREATE_TIME, -1, -1)
    assert isinstance(error, SerializationError)
    assert headers == ()


def test_an_item_that_is_no_record_is_reported_with_topic_and_partition_of_the_call() -> None:
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            result = await producer.send_many("t", [b"x", (b"k",)], partition=0)
        assert [failed.index for failed in result.failed] == [1]
        is_reported(witness)

    play(act, **intercepted(witness))


async def test_a_mock_producer_reports_an_item_that_is_no_record() -> None:
    witness = Witness()
    async with MockProducer(interceptor_classes=[witness]) as producer:
        result = await producer.send_many("t", [b"x", (b"k",)], partition=0)
    assert [failed.index for failed in result.failed] == [1]
    is_reported(witness)


@pytest.mark.parametrize(
    ("value", "key", "sizes"),
    [(None, None, (-1, -1)), (b"", b"", (0, 0)), (b"vv", None, (-1, 2)), (None, b"k", (1, -1))],
)
def test_a_refused_record_is_reported_with_the_sizes_of_what_it_has(value, key, sizes):
    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            with pytest.raises(KafkaError):
                await producer.send("no topic", value, key)
        ((metadata, _, _),) = witness.reported
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == sizes

    play(act, **intercepted(witness))


def test_serializers_get_what_interceptors_made_of_the_record():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", "v")
        assert stage.values("t") == [b"V?"]

    class Question:
        def on_send(self, record: Record) -> Record:
            return replace(record, value=f"{record.value}?")

    options = intercepted(Question(), value_serializer=lambda text: text.upper().encode())
    play(act, **options)


def test_the_cluster_is_reported_once_to_interceptors_and_serializers():
    witness = Witness()

    class Serializer:
        def __init__(self) -> None:
            self.clusters: list[ClusterInfo] = []

        def __call__(self, value: bytes) -> bytes:
            return value

        def on_cluster(self, cluster: ClusterInfo) -> None:
            self.clusters.append(cluster)

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"v")
                await asyncio.sleep(400 / 5)
        (reported,) = witness.clusters
        assert reported.cluster_id == stage.world.cluster.settings.cluster_id
        assert set(reported.nodes) == {1}
        assert serializer.clusters == [reported]

    serializer = Serializer()
    play(act, **intercepted(witness, value_serializer=serializer, metadata_max_age_ms=10_000))


async def test_a_cluster_is_reported_again_only_if_another_one_answers() -> None:
    witness = Witness()
    chain = InterceptorChain([witness], (), asyncio.get_running_loop())
    clusters = [ClusterInfo(name, {}) for name in (None, "a", "a", "b", "a")]
    for cluster in clusters:
        chain.on_cluster(cluster)
    await asyncio.sleep(0)
    assert [cluster.cluster_id for cluster in witness.clusters] == [None, "a", "b", "a"]


def test_a_mock_producer_reports_outcomes_in_each_loop_that_uses_it() -> None:
    witness = Witness()
    producer = MockProducer(interceptor_classes=[witness])
    for number in range(2):
        asyncio.run(producer.send_and_wait("t", b"v"))
        assert witness.offsets == list(range(number + 1))


def test_interceptors_that_only_listen_leave_the_fast_path_enabled():
    class Listener:
        def on_cluster(self, cluster: ClusterInfo) -> None:
            pass

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            assert producer._fast_path is not None

    play(act, **intercepted(Listener()))


async def test_the_blocking_producer_shows_its_records_too() -> None:
    witness = Witness()

    def work(servers: str) -> list[int | None]:
        with blocking.Producer(
            bootstrap_servers=servers, interceptor_classes=[Stamp(b"1"), witness]
        ) as producer:
            offsets = [producer.send("t", b"v").result().offset for _ in range(3)]
            with pytest.raises(SerializationError):
                producer.send("t", object())
            producer.send_many("t", [b"w"])
        return offsets

    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        assert await asyncio.to_thread(work, cluster.bootstrap_servers) == [0, 1, 2]
    assert [offset for offset in witness.offsets if offset is not None] == [0, 1, 2, 3]
    assert [record.value for record in witness.sent if record.value != b"w1"][:3] == [b"v1"] * 3
    assert sum(error is not None for _, error, _ in witness.reported) == 1


class Coroutines:
    async def on_send(self, record: Record) -> Record:
        return record


@pytest.mark.parametrize(
    "given", ["text", [object()], [Witness], [Coroutines()], 5, [lambda record: record]]
)
def test_what_is_no_interceptor_is_refused(given: Any):
    with pytest.raises(ConfigError):
        ProducerConfig(bootstrap_servers="h:1", interceptor_classes=given)


def test_exceptions_of_interceptors_that_cannot_be_shown_are_logged_by_their_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class UnprintableError(TypeError):
        def __str__(self) -> str:
            raise LookupError("no text")

    class Broken:
        def on_acknowledgement(self, *arguments: object) -> None:
            raise UnprintableError

    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_many("t", [b"a", b"b"])
        assert witness.offsets == [0, 1]

    play(act, **intercepted(Broken(), witness))
    assert "on_acknowledgement raised UnprintableError at test_interceptors.py:" in caplog.text


def test_a_record_of_a_class_with_another_constructor_is_shown_as_a_record() -> None:
    class Order(Record):
        def __init__(self, number: int) -> None:
            super().__init__(b"%d" % number, b"k")

    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            result = await producer.send_many("t", [Order(1), Order(2)])
        assert result.delivered == 2
        assert witness.sent == [Record(b"%d" % n, b"k", topic="t") for n in (1, 2)]

    play(act, **intercepted(witness))


def test_headers_of_an_interceptor_that_are_none_refuse_their_row_of_a_table() -> None:
    class Wrong:
        def on_send(self, record: Record) -> Record:
            return replace(record, headers=5 if record.value == b"1" else record.headers)

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            result = await producer.send_arrow("t", pa.table({"value": [b"0", b"1", b"2"]}))
        assert [failed.index for failed in result.failed] == [1]
        assert stage.values("t") == [b"0", b"2"]

    play(act, **intercepted(Wrong()))


def test_interceptors_are_closed_once_although_the_close_is_cancelled_with_all_tasks() -> None:
    class Waiting:
        def serialize(self, data: bytes, context: object) -> bytes:
            return data

        async def close(self) -> None:
            await asyncio.sleep(1)

    witness = Witness()

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        closing = asyncio.create_task(stage.producer.close())
        await asyncio.sleep(0.5)
        for task in stage.engine.tasks():
            task.cancel()
        await closing
        assert witness.closed == 1

    play(act, **intercepted(witness, value_serializer=Waiting()))


def test_the_result_of_a_cancelled_future_in_an_interceptor_cancels_no_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Reader:
        def on_send(self, record: Record) -> None:
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            cancelled.result()

        on_acknowledgement = close = lambda self, *arguments: Reader.on_send(self, Record())

    witness = Witness()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_many("t", [b"a", b"b"])
        assert witness.offsets == [0, 1]

    play(act, **intercepted(Reader(), witness))
    assert "raised CancelledError at test_interceptors.py:" in caplog.text
