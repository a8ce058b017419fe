"""Applications that start without Kafka, and how long their requests may wait."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse
from support.waiting import until

from aioproducer import Producer, ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    BootstrapError,
    ConfigError,
    IllegalStateError,
    KafkaError,
    MetadataTimeoutError,
    NotConnectedError,
    NotKafkaError,
    TlsError,
)
from aioproducer.fastapi import (
    ProducerDependency,
    ProducerLifespan,
    Refusal,
    answer_kafka_errors,
    producer_of,
)
from aioproducer.testing import EmbeddedCluster, MockProducer, read_topic
from aioproducer.testing.security.gate import ListenerSecurity

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer releases of Starlette want another HTTP library
    from fastapi.testclient import TestClient

QUICK: dict[str, Any] = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 20}


def cluster_down(**options: Any) -> EmbeddedCluster:
    """A cluster that is still to be started, on a port that is known."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    return EmbeddedCluster(1, ports=[port], topics={"events": 2}, **options)


def application(lifespan: ProducerLifespan, **answers: Any) -> FastAPI:
    app = FastAPI(lifespan=lifespan)
    answer_kafka_errors(app, **answers)

    @app.post("/events")
    async def publish(request: Request, producer: ProducerDependency) -> dict[str, int | None]:
        metadata = await producer.send_and_wait("events", await request.body())
        return {"offset": metadata.offset}

    @app.post("/nowait", status_code=202)
    async def publish_nowait(producer: ProducerDependency) -> None:
        producer.send_nowait("events", b"x")

    @app.post("/many")
    async def publish_many(producer: ProducerDependency) -> None:
        result = await producer.send_many("events", [b"1", b"2"])
        for failed in result.failed:
            raise failed.error

    @app.get("/ready")
    async def ready(producer: ProducerDependency) -> JSONResponse:
        health = producer.health()
        return JSONResponse(
            {"ready": health.ready, "error": health.error}, 200 if health.ready else 503
        )

    return app


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application whose lifespan runs; unhandled errors are 500, as in a server."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


async def test_without_kafka_the_application_serves_and_answers_503_at_once() -> None:
    cluster = cluster_down()
    app = application(
        ProducerLifespan(bootstrap_servers=cluster.bootstrap_servers, start="background", **QUICK)
    )
    began = time.monotonic()
    async with client_of(app) as client:
        for path in ("/events", "/nowait", "/many"):
            answer = await client.post(path, content=b"x")
            assert answer.status_code == 503, path
            assert answer.headers["Retry-After"] == "1"
            assert answer.json()["persistence"] == "not persisted"
        ready = await client.get("/ready")
        assert ready.status_code == 503
        assert "not connected to the cluster yet" in ready.json()["error"]
    assert time.monotonic() - began < 3


async def test_without_kafka_a_transaction_is_refused_at_once() -> None:
    cluster = cluster_down()
    app = FastAPI(
        lifespan=ProducerLifespan(
            bootstrap_servers=cluster.bootstrap_servers,
            start="background",
            transactional_id="tx",
            **QUICK,
        )
    )
    async with app.router.lifespan_context(app):
        began = time.monotonic()
        with pytest.raises(NotConnectedError, match="not connected to the cluster yet"):
            await app.state.aioproducer.begin_transaction()
        assert time.monotonic() - began < 3


async def test_when_kafka_appears_readiness_turns_true_and_sends_go() -> None:
    cluster = cluster_down()
    app = application(
        ProducerLifespan(
            bootstrap_servers=cluster.bootstrap_servers,
            start="background",
            warm_up=["events"],
            **QUICK,
        )
    )
    async with client_of(app) as client:
        assert (await client.post("/events", content=b"1")).status_code == 503
        async with cluster:
            producer: Producer = app.state.aioproducer
            await until(lambda: producer.health().ready)
            assert (await client.get("/ready")).json() == {"ready": True, "error": None}
            assert (await client.post("/events", content=b"2")).status_code == 200
            assert (await client.post("/nowait")).status_code == 202
            await producer.flush()
            found = await read_topic(cluster.bootstrap_servers, "events")
    assert sorted(r.value or b"" for each in found.values() for r in each) == [b"2", b"x"]


async def test_an_application_that_ends_before_kafka_appears_ends_at_once() -> None:
    cluster = cluster_down()
    app = application(
        ProducerLifespan(bootstrap_servers=cluster.bootstrap_servers, start="background", **QUICK)
    )
    async with asyncio.timeout(3):
        async with client_of(app) as client:
            assert (await client.get("/ready")).status_code == 503


async def test_wrong_credentials_are_500_and_are_said_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    security = ListenerSecurity(mechanisms=("PLAIN",), users={"u": "right"})
    async with EmbeddedCluster(1, topics={"events": 1}, security=security) as cluster:
        app = application(
            ProducerLifespan(
                bootstrap_servers=cluster.bootstrap_servers,
                start="background",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_username="u",
                sasl_password="wrong",
                **QUICK,
            )
        )
        async with client_of(app) as client:
            producer: Producer = app.state.aioproducer
            await until(lambda: "uthentication" in (producer.health().error or ""))
            for _ in range(3):
                answer = await client.post("/events", content=b"x")
                assert answer.status_code == 500
                assert "Retry-After" not in answer.headers
            assert not (await client.get("/ready")).json()["ready"]
            security.users = {"u": "wrong"}
            await until(lambda: producer.health().ready)
            assert (await client.post("/events", content=b"x")).status_code == 200
    errors = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == 1


async def test_a_topic_to_warm_up_that_is_missing_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = cluster_down()
    app = application(
        ProducerLifespan(
            bootstrap_servers=cluster.bootstrap_servers,
            start="background",
            warm_up=["missing"],
            allow_auto_create_topics=False,
            max_block_ms=100,
            **QUICK,
        )
    )
    async with cluster, client_of(app):
        await until(lambda: any("warm_up" in r.getMessage() for r in caplog.records))
    assert "missing" in next(r.getMessage() for r in caplog.records if "warm_up" in r.getMessage())


async def test_a_start_that_waits_ends_the_application_after_five_seconds_at_most() -> None:
    cluster = cluster_down()
    app = application(
        ProducerLifespan(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=200, **QUICK)
    )
    with pytest.raises(BootstrapError):
        async with app.router.lifespan_context(app):
            pass


def test_a_topic_to_warm_up_is_one_of_a_sequence() -> None:
    with pytest.raises(TypeError, match=r"\['events'\]"):
        ProducerLifespan(bootstrap_servers="localhost:1", warm_up="events")


def test_start_is_one_of_two_words() -> None:
    with pytest.raises(ValueError, match="background"):
        ProducerLifespan(bootstrap_servers="localhost:1", start="later")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotConnectedError("not yet"), 503),
        (MetadataTimeoutError("late"), 503),
        (BootstrapError("none has answered"), 503),
    ],
)
def test_what_may_pass_is_503(error: KafkaError, status: int) -> None:
    refusal = Refusal.of(error)
    assert refusal is not None
    assert (refusal.status, refusal.retry_after_s) == (status, 1)


@pytest.mark.parametrize("cause", [AuthenticationError("no"), TlsError("no"), NotKafkaError("no")])
@pytest.mark.parametrize("between", [False, True])
def test_what_lasts_is_500(cause: KafkaError, between: bool) -> None:
    error = NotConnectedError("not yet")
    error.__cause__ = cause
    if between:
        error.__cause__ = BootstrapError("no server")
        error.__cause__.__cause__ = cause
    refusal = Refusal.of(error)
    assert refusal is not None
    assert (refusal.status, refusal.retry_after_s) == (500, None)


# -- bounds ----------------------------------------------------------------------------------------


def bounds(*arguments: Any, **options: Any) -> tuple[int, int, int]:
    config = ProducerLifespan(*arguments, **options)._make().config
    return config.max_block_ms, config.request_timeout_ms, config.delivery_timeout_ms


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (5_000, 5_000, 10_000)),
        ({"max_block_ms": 60_000}, (60_000, 5_000, 10_000)),
        ({"request_timeout_ms": 30_000}, (5_000, 30_000, 30_005)),
        ({"request_timeout_ms": 30_000, "linger_ms": 0}, (5_000, 30_000, 30_000)),
        ({"linger_ms": 8_000}, (5_000, 5_000, 13_000)),
        ({"delivery_timeout_ms": 3_000}, (5_000, 2_995, 3_000)),
        ({"delivery_timeout_ms": 120_000}, (5_000, 5_000, 120_000)),
        ({"message_timeout_ms": 120_000, "socket_timeout_ms": 7_000}, (5_000, 7_000, 120_000)),
    ],
)
def test_requests_wait_seconds_unless_the_options_say_otherwise(
    options: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    assert bounds(bootstrap_servers="a:1", **options) == expected
    properties = {name.replace("_", "."): value for name, value in options.items()}
    assert bounds({"bootstrap.servers": "a:1", **properties}) == expected
    assert bounds({"bootstrap.servers": "a:1"}, **options) == expected


def test_a_ready_configuration_and_a_function_keep_their_bounds() -> None:
    java = (60_000, 30_000, 120_000)
    assert bounds(ProducerConfig(bootstrap_servers="a:1")) == java
    assert bounds(lambda: Producer(bootstrap_servers="a:1")) == java


def test_bounds_that_contradict_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="delivery_timeout_ms"):
        bounds(bootstrap_servers="a:1", delivery_timeout_ms=1_000, request_timeout_ms=2_000)


# -- overrides in tests ----------------------------------------------------------------------------

UNREACHABLE = "127.0.0.1:1"


def overridden(override: Callable[..., object], **options: Any) -> FastAPI:
    app = application(ProducerLifespan(bootstrap_servers=UNREACHABLE, **options))
    app.dependency_overrides[producer_of] = override
    return app


@pytest.mark.parametrize("runs_lifespan", [False, True])
@pytest.mark.parametrize("start", ["wait", "background"])
def test_a_mock_that_was_not_started_overrides_the_producer(
    runs_lifespan: bool, start: str
) -> None:
    mock = MockProducer()
    app = overridden(lambda: mock, start=start, warm_up=["events"])
    client = TestClient(app)
    if runs_lifespan:
        with client:
            assert client.post("/events", content=b"1").json() == {"offset": 0}
            assert client.post("/events", content=b"2").json() == {"offset": 1}
    else:
        assert client.post("/events", content=b"1").json() == {"offset": 0}
        assert client.post("/events", content=b"2").json() == {"offset": 1}
        assert client.post("/nowait").status_code == 202
    assert [record.value for record in mock.history][:2] == [b"1", b"2"]


def test_a_mock_can_fail_and_is_used_by_several_clients() -> None:
    mock = MockProducer()
    app = overridden(lambda: mock)
    with TestClient(app) as client:
        assert client.post("/events", content=b"1").status_code == 200
    mock.errors["send"] = MetadataTimeoutError("no topic")
    with TestClient(app) as client:
        assert client.post("/events", content=b"2").status_code == 503
    del mock.errors["send"]
    with TestClient(app) as client:
        assert client.post("/events", content=b"3").status_code == 200
    assert [record.value for record in mock.history] == [b"1", b"3"]


@pytest.mark.parametrize("kind", ["generator", "asynchronous", "per_request", "with_dependency"])
def test_every_kind_of_override_works(kind: str) -> None:
    def with_dependency(client_id: str = Depends(lambda: "of-a-test")) -> MockProducer:
        return MockProducer(client_id=client_id.lower())

    def generator() -> Any:
        yield MockProducer()

    async def asynchronous() -> MockProducer:
        return MockProducer()

    def per_request() -> MockProducer:
        return MockProducer()

    app = overridden(locals()[kind])
    for client in (TestClient(app), TestClient(app)):
        with client:
            assert client.post("/events", content=b"1").json() == {"offset": 0}


async def test_a_mock_in_an_asynchronous_test_is_used_in_its_loop() -> None:
    mock = MockProducer(auto_complete=False)
    app = overridden(lambda: mock)
    async with client_of(app) as client:
        posting = asyncio.create_task(client.post("/events", content=b"1"))
        await until(lambda: mock.pending == 1)
        mock.complete_next()
        assert (await posting).json() == {"offset": 0}
    await mock.close()
    with pytest.raises(IllegalStateError):
        await mock.send("events", b"2")


async def test_a_mock_starts_with_any_call_by_default() -> None:
    transactional = MockProducer(transactional_id="id")
    async with transactional.transaction():
        await transactional.send("t", b"1")
    assert transactional.commits == 1
    assert [each.partition for each in await MockProducer().partitions_for("t")] == [0]
    assert (await MockProducer().send_many("t", [b"1"])).delivered == 1
    with pytest.raises(IllegalStateError, match="not started"):
        await MockProducer(auto_start=False).send("t", b"1")
