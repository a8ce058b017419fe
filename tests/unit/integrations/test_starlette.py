"""Producers in Starlette and FastAPI applications, without a network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import Receive, Scope, Send
from support.waiting import until

import aioproducer.fastapi
import aioproducer.starlette
from aioproducer import Persistence, Producer, ProducerConfig
from aioproducer.errors import (
    BufferExhaustedError,
    BufferFullError,
    ConfigError,
    DeliveryTimeoutError,
    IllegalStateError,
    IncompatibleSchemaError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SerializationError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    WouldBlockError,
)
from aioproducer.fastapi import ProducerDependency
from aioproducer.serializers import AvroSerializer, JsonSerializer, SchemaRegistry
from aioproducer.serializers.json_text import JsonLibrary
from aioproducer.starlette import (
    ProducerLifespan,
    Refusal,
    answer_kafka_errors,
    producer_of,
    publish_quietly,
)
from aioproducer.testing import EmbeddedCluster, MockProducer, StubSchemaRegistry


def registry_error(status: int | None, *, retriable: bool = False) -> SchemaRegistryError:
    error = SchemaRegistryError("the registry is not to be asked")
    error.status, error.retriable = status, retriable
    return error


@asynccontextmanager
async def client_of(app: Starlette, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application whose lifespan runs."""
    transport = httpx.ASGITransport(app, **options)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


async def publish(request: Request) -> Response:
    metadata = await producer_of(request).send_and_wait("events", await request.body())
    return JSONResponse({"offset": metadata.offset})


def application(make: Callable[[], Producer], **answers: Any) -> Starlette:
    app = Starlette(routes=[Route("/", publish, methods=["POST"])], lifespan=ProducerLifespan(make))
    answer_kafka_errors(app, **answers)
    return app


async def test_the_producer_is_open_as_long_as_the_application() -> None:
    made: list[MockProducer] = []

    def make() -> MockProducer:
        made.append(MockProducer())
        return made[-1]

    app = application(make)
    assert not made
    async with client_of(app) as client:
        assert (await client.post("/", content=b"1")).json() == {"offset": 0}
        assert producer_state(made[0]) == "running"
    assert producer_state(made[0]) == "closed"
    assert [record.value for record in made[0].history] == [b"1"]


def producer_state(producer: Producer) -> str:
    return producer.statistics().state


def of_a_task_group(*errors: Exception, **answers: Any) -> Starlette:
    """An application whose handler sends in a task group, where these errors are raised."""

    async def publish_all(request: Request) -> Response:
        async def fail(error: Exception) -> None:
            raise error

        async with asyncio.TaskGroup() as group:
            for error in errors:
                group.create_task(fail(error))
        return Response()

    routes = [Route("/", publish_all, methods=["POST"])]
    app = Starlette(routes=routes, lifespan=ProducerLifespan(MockProducer))
    answer_kafka_errors(app, **answers)
    return app


@pytest.mark.parametrize(
    ("errors", "status", "retry_after"),
    [
        ([BufferFullError("full")], 503, "1"),
        ([BufferFullError("full"), RecordTooLargeError("large")], 413, None),
        ([ExceptionGroup("inner", [BufferFullError("full")]), BufferFullError("full")], 503, "1"),
    ],
)
async def test_errors_of_a_task_group_are_answered_as_the_one_that_a_retry_helps_least(
    errors: list[Exception], status: int, retry_after: str | None
) -> None:
    async with client_of(of_a_task_group(*errors)) as client:
        answer = await client.post("/")
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, retry_after)
    assert answer.json()["persistence"] == "possibly persisted"


@pytest.mark.parametrize("other", [ValueError("x"), TopicAuthorizationFailedError("no")])
async def test_a_task_group_with_an_error_that_is_not_answered_is_raised(other: Exception) -> None:
    app = of_a_task_group(BufferFullError("full"), other)
    async with client_of(app) as client:
        with pytest.raises(ExceptionGroup):
            await client.post("/")


async def test_an_applications_handler_of_groups_stays() -> None:
    def handle(request: Request, error: Exception) -> Response:
        return Response(status_code=418)

    app = Starlette(exception_handlers={ExceptionGroup: handle})
    answer_kafka_errors(app)
    assert app.exception_handlers[ExceptionGroup] is handle


async def test_a_router_may_be_served_without_an_application() -> None:
    routes = [Route("/", publish, methods=["POST"])]
    router = Router(routes, lifespan=ProducerLifespan(MockProducer))
    states: list[dict[str, Any]] = []

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await router({**scope, "state": states[-1]}, receive, send)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(serve), base_url="http://test"
    ) as client:
        async with router.lifespan_context(None) as state:
            states.append(dict(state or {}))
            assert (await client.post("/", content=b"1")).json() == {"offset": 0}
        states.append({})
        with pytest.raises(IllegalStateError, match="has no producer"):
            await client.post("/", content=b"1")


async def test_each_life_of_an_application_has_a_new_producer() -> None:
    made: list[Producer] = []
    app = application(lambda: made.append(MockProducer()) or made[-1])
    for _ in range(2):
        async with client_of(app) as client:
            assert (await client.post("/", content=b"1")).status_code == 200
    assert len(made) == 2


async def test_leaving_delivers_records_that_are_not_awaited() -> None:
    producer = MockProducer(auto_complete=False)

    async def send(request: Request) -> Response:
        await producer_of(request).send("events", b"1")
        return Response(status_code=202)

    app = Starlette(
        routes=[Route("/", send, methods=["POST"])], lifespan=ProducerLifespan(lambda: producer)
    )
    async with client_of(app) as client:
        assert (await client.post("/")).status_code == 202
        assert producer.pending == 1
    assert producer.pending == 0


async def test_an_inner_lifespan_has_the_producer_and_its_state_is_kept() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def inner(app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        yield {"answer": 42}
        seen.append(producer_state(producer))

    producer = MockProducer()
    app = Starlette(lifespan=ProducerLifespan(lambda: producer, inner=inner))
    async with app.router.lifespan_context(app) as state:
        assert state == {"answer": 42, "aioproducer": producer}
    assert seen == ["running"]


async def test_a_failing_inner_lifespan_closes_the_producer() -> None:
    @asynccontextmanager
    async def inner(app: Starlette) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    producer = MockProducer()
    app = Starlette(lifespan=ProducerLifespan(lambda: producer, inner=inner))
    with pytest.raises(OSError, match="no database"):
        async with app.router.lifespan_context(app):
            pass
    assert producer_state(producer) == "closed"


async def test_topics_are_warmed_up_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warmed: list[object] = []

    class Watched(MockProducer):
        async def warm_up(self, topics: object) -> None:
            warmed.append(topics)

    app = Starlette(lifespan=ProducerLifespan(Watched, warm_up=("events",)))
    async with app.router.lifespan_context(app):
        assert warmed == [("events",)]


def test_wrong_options_are_refused_when_the_application_is_made() -> None:
    with pytest.raises(ConfigError, match="linger_ms"):
        ProducerLifespan(bootstrap_servers="localhost:9092", linger=5)
    with pytest.raises(TypeError, match="function"):
        ProducerLifespan(MockProducer, linger_ms=5)
    config = ProducerConfig(bootstrap_servers="localhost:9092")
    assert ProducerLifespan(config, linger_ms=5)


async def test_what_makes_no_producer_of_the_application_is_refused() -> None:
    async def later() -> Producer:
        return MockProducer()

    made = MockProducer()
    for each in (later, made):
        with pytest.raises(TypeError, match="plain function that makes it"):
            ProducerLifespan(each)  # type: ignore[arg-type]
    started: list[object] = []

    class Blocking:
        def start(self) -> None:
            started.append(self)

    app = Starlette(lifespan=ProducerLifespan(Blocking))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"aioproducer\.Producer, not Blocking of .*test_starlette"):
        async with app.router.lifespan_context(app):
            pass
    assert started == []


async def test_without_a_lifespan_the_error_says_what_to_do() -> None:
    app = Starlette(routes=[Route("/", publish, methods=["POST"])])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        with pytest.raises(IllegalStateError, match="ProducerLifespan"):
            await client.post("/")


async def test_a_mounted_application_finds_the_producer_in_the_servers_state() -> None:
    inner = Starlette(routes=[Route("/", publish, methods=["POST"])])
    app = Starlette(routes=[Mount("/inner", inner)], lifespan=ProducerLifespan(MockProducer))

    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        transport = httpx.ASGITransport(with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.post("/inner/", content=b"1")).status_code == 200


def test_names_of_the_starlette_package_are_in_the_fastapi_module() -> None:
    fastapi, starlette = aioproducer.fastapi, aioproducer.starlette
    for name in starlette.__all__:
        assert getattr(fastapi, name) is getattr(starlette, name)
        assert name in fastapi.__all__


async def test_fastapi_injects_the_producer_and_tests_can_replace_it() -> None:
    app = FastAPI(lifespan=ProducerLifespan(MockProducer))

    @app.post("/")
    async def send(producer: ProducerDependency) -> dict[str, int | None]:
        return {"offset": (await producer.send_and_wait("events", b"1")).offset}

    async with client_of(app) as client, MockProducer() as other:
        assert (await client.post("/")).json() == {"offset": 0}
        app.dependency_overrides[producer_of] = lambda: other
        assert (await client.post("/")).json() == {"offset": 0}
        assert len(other.history) == 1


@pytest.mark.parametrize(
    ("error", "status", "retry_after", "persistence"),
    [
        (BufferFullError("full"), 503, "7", "not persisted"),
        (BufferExhaustedError("full"), 503, "7", "not persisted"),
        (ProducerClosedError("bye"), 503, "7", "not persisted"),
        (
            DeliveryTimeoutError("late", persistence=Persistence.POSSIBLY_PERSISTED),
            503,
            "7",
            "possibly persisted",
        ),
        (registry_error(None, retriable=True), 503, "7", "not persisted"),
        (registry_error(503, retriable=True), 503, "7", "not persisted"),
        (RecordTooLargeError("too large"), 413, None, "not persisted"),
        (SerializationError("no number"), 422, None, "not persisted"),
    ],
)
async def test_a_client_gets_an_error_for_what_kafka_could_not_take(
    error: KafkaError, status: int, retry_after: str | None, persistence: str
) -> None:
    noted: list[Exception] = []
    app = application(lambda: failing(error), retry_after_s=7, on_refusal=noted.append)
    async with client_of(app) as client:
        answer = await client.post("/", content=b"secret")
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after)
    assert answer.json()["persistence"] == persistence
    assert "events" not in answer.text
    assert [type(each) for each in noted] == [type(error)]


@pytest.mark.parametrize("trouble", [ZeroDivisionError, asyncio.CancelledError])
async def test_what_on_refusal_raises_is_logged_and_the_answer_is_the_same(
    caplog: pytest.LogCaptureFixture, trouble: type[BaseException]
) -> None:
    def broken(error: Exception) -> None:
        raise trouble

    app = application(lambda: failing(DeliveryTimeoutError("late")), on_refusal=broken)
    async with client_of(app) as client:
        assert (await client.post("/", content=b"1")).status_code == 503
    assert "on_refusal raised" in caplog.text


def failing(error: KafkaError) -> MockProducer:
    producer = MockProducer()
    producer.errors["send"] = error
    return producer


async def test_what_is_no_clients_business_stays_an_error() -> None:
    error = TopicAuthorizationFailedError()
    app = application(lambda: failing(error))
    async with client_of(app) as client:
        with pytest.raises(TopicAuthorizationFailedError):
            await client.post("/")
    async with client_of(app, raise_app_exceptions=False) as client:
        assert (await client.post("/")).status_code == 500
    assert Refusal.of(error) is None


@pytest.mark.parametrize(
    "error",
    [
        SchemaNotFoundError("no such schema"),
        IncompatibleSchemaError("differs"),
        registry_error(401),
        registry_error(403),
        registry_error(422),
        registry_error(501),
        registry_error(None),  # an answer that is none
    ],
)
async def test_what_a_registry_refuses_is_an_error_for_the_operator(error: KafkaError) -> None:
    assert Refusal.of(error) is None
    async with client_of(application(lambda: failing(error)), raise_app_exceptions=False) as client:
        assert (await client.post("/")).status_code == 500


@pytest.mark.parametrize(
    ("failures", "status"), [([], 500), ([401], 500), ([403], 500), ([409], 500), ([503], 503)]
)
async def test_a_real_registry_error_is_no_fault_of_the_event(
    failures: list[int], status: int
) -> None:
    stub = StubSchemaRegistry(failures=failures)
    registry = SchemaRegistry("http://registry", transport=stub.transport, retries=0)
    serializer = AvroSerializer(registry, "string")
    app = application(lambda: MockProducer(value_serializer=serializer))
    async with client_of(app, raise_app_exceptions=False) as client:
        assert (await client.post("/", content=b"x")).status_code == status
    await registry.close()


async def test_a_serializer_of_another_loop_is_no_fault_of_the_event() -> None:
    registry = SchemaRegistry("http://registry", transport=StubSchemaRegistry().transport)

    async def elsewhere() -> None:
        with pytest.raises(SchemaNotFoundError):
            await registry.latest("events-value")

    loop = asyncio.new_event_loop()
    try:
        await asyncio.to_thread(loop.run_until_complete, elsewhere())
        serializer = AvroSerializer(registry, "string")
        app = application(lambda: MockProducer(value_serializer=serializer))
        async with client_of(app, raise_app_exceptions=False) as client:
            assert (await client.post("/", content=b"x")).status_code == 500
    finally:
        loop.close()


def missing_topic() -> KafkaError:
    error = MetadataTimeoutError("the topic is not present", topic="orders", advice="create it")
    error.__cause__ = UnknownTopicOrPartitionError()
    return error


async def test_a_lasting_misconfiguration_is_no_503() -> None:
    app = application(lambda: failing(missing_topic()))
    async with client_of(app) as client:
        answer = await client.post("/", content=b"1")
    assert (answer.status_code, answer.headers.get("retry-after")) == (500, None)
    assert "orders" not in answer.text


async def test_answers_are_logged_with_topic_and_advice_but_not_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = application(lambda: failing(missing_topic()))
    with caplog.at_level(logging.WARNING, "aioproducer.starlette"):
        async with client_of(app) as client:
            for _ in range(3):
                await client.post("/", content=b"1")
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    line, at_the_end = lines
    assert at_the_end.startswith("2 line(s) like this were not logged")
    assert "500" in line
    assert "topic orders" in line
    assert "create it" in line


async def test_the_end_of_an_application_says_how_many_answers_were_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = failing(missing_topic())
    app = application(lambda: producer)
    with caplog.at_level(logging.WARNING, "aioproducer.starlette"):
        async with client_of(app) as client:
            for _ in range(7):
                await client.post("/", content=b"1")
                await publish_quietly(producer, "orders", b"1")
            assert len(caplog.records) == 2
    lines = [(each.levelno, each.getMessage()) for each in caplog.records[2:]]
    assert [level for level, _ in lines] == [logging.WARNING, logging.ERROR]
    assert all(line.startswith("6 line(s) like this were not logged") for _, line in lines)


MISTAKES = [
    {"value": {"a": 1}},
    {"value": "text"},
    {"value": b"", "key": 5},
    {"value": b"", "headers": [("a", "text")]},
    {"value": b"", "headers": [("a", b"", 1)]},
    {"value": b"", "headers": [(b"a", b"")]},
    {"value": b"", "timestamp_ms": 1.5},
]


@pytest.mark.parametrize("record", MISTAKES, ids=str)
async def test_a_mistake_of_the_application_is_no_fault_of_the_event(
    record: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def send(request: Request) -> Response:
        await producer_of(request).send_and_wait("events", **record)
        return Response()

    app = Starlette(
        routes=[Route("/", send, methods=["POST"])], lifespan=ProducerLifespan(MockProducer)
    )
    answer_kafka_errors(app)
    async with client_of(app, raise_app_exceptions=False) as client:
        assert (await client.post("/")).status_code == 500
    assert "SerializationError" in caplog.text


@pytest.mark.parametrize("record", MISTAKES, ids=str)
async def test_it_is_none_with_a_real_producer_either(record: dict[str, Any]) -> None:
    async with (
        EmbeddedCluster(1, topics={"events": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        for send in (producer.send, producer.send_and_wait):
            with pytest.raises(SerializationError) as caught:
                await send("events", **record)
            assert Refusal.of(caught.value) is None


def raising(error: Exception) -> Callable[[object], bytes]:
    def serialize(value: object) -> bytes:
        raise error

    return serialize


@pytest.mark.parametrize(
    ("serializer", "status"),
    [
        (raising(ValueError("not a number")), 422),
        (raising(UnicodeEncodeError("utf-8", "x", 0, 1, "no")), 422),
        (raising(OverflowError("too large")), 422),
        (raising(RecursionError("too deep")), 422),
        (raising(SerializationError("does not fit")), 422),
        (raising(TypeError("no JSON")), 500),
        (raising(KeyError("id")), 500),
        (raising(AttributeError("encode")), 500),
        (raising(OSError("no disk")), 500),
        (str, 500),  # returns no bytes
        (lambda value: 5, 500),
    ],
)
async def test_a_serializer_refuses_an_event_or_is_broken(
    serializer: Callable[[object], Any], status: int
) -> None:
    app = application(lambda: MockProducer(value_serializer=serializer))
    async with client_of(app, raise_app_exceptions=False) as client:
        assert (await client.post("/", content=b"1")).status_code == status


@pytest.mark.parametrize("library", ["json", "orjson", "msgspec"])
@pytest.mark.parametrize(
    ("value", "is_events"), [("\ud800", True), (object(), False), ({"a": [object()]}, False)]
)
async def test_json_of_an_events_text_is_the_events_fault_and_of_an_object_is_not(
    library: JsonLibrary, value: object, is_events: bool
) -> None:
    pytest.importorskip(library)
    async with MockProducer(value_serializer=JsonSerializer(library)) as producer:
        with pytest.raises(SerializationError) as caught:
            await producer.send("events", value)
    assert (Refusal.of(caught.value) is not None) is is_events


async def test_a_number_beyond_what_orjson_writes_is_the_events_fault() -> None:
    pytest.importorskip("orjson")
    async with MockProducer(value_serializer=JsonSerializer("orjson")) as producer:
        with pytest.raises(SerializationError, match="64-bit") as caught:
            await producer.send("events", 2**70)
    assert Refusal.of(caught.value) is not None


async def test_a_missing_permission_is_logged_with_topic_and_advice_and_stays_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = TopicAuthorizationFailedError(topic="orders")
    reported = error.with_access("User:app", "WRITE", "topic 'orders'")
    app = application(lambda: failing(reported))
    with caplog.at_level(logging.WARNING, "aioproducer.starlette"):
        async with client_of(app, raise_app_exceptions=False) as client:
            for _ in range(3):
                assert (await client.post("/", content=b"1")).status_code == 500
    line, _ = [each.getMessage() for each in caplog.records if "answered with" in each.message]
    assert "User:app needs WRITE on topic 'orders'" in line
    assert "grant" in line


async def test_the_end_of_an_application_says_what_became_of_its_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        lifespan = ProducerLifespan(bootstrap_servers=cluster.bootstrap_servers, close_timeout_s=0)
        app = Starlette(lifespan=lifespan)
        with caplog.at_level(logging.INFO, "aioproducer.starlette"):
            async with app.router.lifespan_context(app):
                producer = app.state.aioproducer
                await producer.send_and_wait("t", b"1")
                cluster.freeze_broker(1)
                lost = await producer.send("t", b"2")
            assert isinstance(lost.exception(), ProducerClosedError)
        began, ended = [each for each in caplog.records if "the application" in each.message]
    assert "1 record(s) are pending" in began.message
    assert ended.levelno == logging.WARNING
    assert "1 record(s) were delivered, 1 failed (1 of them at the end), 0 are pending" in (
        ended.message
    )


async def test_background_tasks_of_both_frameworks_send_and_only_log_a_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = MockProducer()

    async def starlettes(request: Request) -> Response:
        task = BackgroundTask(publish_quietly, producer_of(request), "events", b"1", b"key")
        return PlainTextResponse("accepted", background=task)

    app = FastAPI(lifespan=ProducerLifespan(lambda: producer))
    app.router.routes.append(Route("/starlette", starlettes, methods=["POST"]))

    @app.post("/fastapi")
    async def fastapis(background: BackgroundTasks, producer: ProducerDependency) -> None:
        background.add_task(publish_quietly, producer, "events", b"2", headers=[("h", b"v")])

    async with client_of(app) as client:
        await client.post("/starlette")
        await client.post("/fastapi")
        assert [record.value for record in producer.history] == [b"1", b"2"]
        producer.errors["send"] = BufferExhaustedError("no room")
        with caplog.at_level(logging.ERROR, "aioproducer.starlette"):
            assert (await client.post("/fastapi")).status_code == 200
    assert "no room" in caplog.text


async def test_a_producer_says_that_the_topic_is_missing_so_that_the_answer_is_500() -> None:
    async with (
        EmbeddedCluster(topics={"other": 1}) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            max_block_ms=200,
            allow_auto_create_topics=False,
        ) as producer,
    ):
        with pytest.raises(MetadataTimeoutError) as missing:
            await producer.send("events", b"1")
        with pytest.raises(MetadataTimeoutError) as outside:
            await producer.send("other", b"1", partition=7)
    for caught in (missing.value, outside.value):
        refusal = Refusal.of(caught)
        assert refusal is not None
        assert refusal.status == 500


async def test_send_nowait_says_what_is_missing_once_the_cluster_has_answered() -> None:
    async with (
        EmbeddedCluster(1, topics={"orders": 1}) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap_servers, allow_auto_create_topics=False
        ) as producer,
    ):
        await producer.warm_up(["orders"])

        def missing(topic: str, partition: int | None = None) -> WouldBlockError:
            with pytest.raises(WouldBlockError) as caught:
                producer.send_nowait(topic, b"v", partition=partition)
            return caught.value

        early = missing("nowhere")
        assert "not known yet" in early.message
        found = Refusal.of(early)
        assert found is not None
        assert found.status == 503
        await until(lambda: "not known yet" not in missing("nowhere").message)
        for error, words, advice in (
            (missing("nowhere"), "the topic does not exist", "create the topic"),
            (missing("orders", 7), "the topic has 1 partition(s)", "choose a partition"),
        ):
            assert words in error.message
            assert advice in (error.advice or "")
            found = Refusal.of(error)
            assert found is not None
            assert (found.status, found.retry_after_s) == (500, None)
