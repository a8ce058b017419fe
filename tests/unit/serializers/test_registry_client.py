"""The registry's client: caches, one request for many, retries, credentials, refusals."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import gzip
import json
import os
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import httpx
import pydantic
import pytest
from support.eager import start_tasks_eagerly
from support.registry_server import serve_registry
from support.waiting import until

from aioproducer.errors import (
    ConfigError,
    IncompatibleSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
    WrongLoopError,
)
from aioproducer.serializers import Schema, SchemaReference, SchemaRegistry, SchemaRule
from aioproducer.testing import VirtualKafka, run_virtual
from aioproducer.testing.schema_registry import StubSchemaRegistry

OLD = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "age", "type": "int"}]}


def avro(schema: Any, *references: SchemaReference) -> Schema:
    return Schema(json.dumps(schema), "AVRO", references)


def answering(handle: Callable[[httpx.Request], httpx.Response], **options: Any) -> SchemaRegistry:
    options = {"retry_backoff_ms": 0, "url": "http://one", **options}
    return SchemaRegistry(transport=httpx.MockTransport(handle), **options)


def rooted(stub: StubSchemaRegistry, **options: Any) -> SchemaRegistry:
    options = {"retry_backoff_ms": 0, **options}
    return SchemaRegistry("http://registry", transport=stub.transport, **options)


async def test_answers_are_asked_once() -> None:
    stub = StubSchemaRegistry()
    async with rooted(stub) as registry:
        for _ in range(3):
            assert await registry.register("a-value", avro(OLD)) == 1
            assert (await registry.lookup("a-value", avro(OLD))).version == 1
            assert (await registry.latest("a-value")).id == 1
            assert (await registry.version("a-value", 1)).schema == avro(OLD)
            assert await registry.schema(1) == avro(OLD)
    assert stub.requests == [
        "POST /subjects/a-value/versions",
        "POST /subjects/a-value",
        "GET /subjects/a-value/versions/latest",
        "GET /subjects/a-value/versions/1",
        "GET /schemas/ids/1",
    ]


async def test_an_answer_that_is_over_is_not_used_again_also_with_eager_tasks() -> None:
    start_tasks_eagerly()
    stub = StubSchemaRegistry()
    stub.register("a", OLD)
    async with rooted(stub, latest_cache_ttl_ms=0) as registry:
        for count in (1, 2):
            await registry.latest("a")
            assert len(stub.requests) == count


async def test_many_calls_that_ask_the_same_share_one_request() -> None:
    stub = StubSchemaRegistry()
    stub.register("a-value", OLD)
    async with rooted(stub) as registry:
        asked = [asyncio.create_task(registry.latest("a-value")) for _ in range(20)]
        await asyncio.sleep(0)
        asked[0].cancel()  # which ends no other wait
        found = await asyncio.gather(*asked[1:])
        assert {each.id for each in found} == {1}
    assert len(stub.requests) == 1


async def test_the_latest_version_is_believed_for_a_time() -> None:
    stub = StubSchemaRegistry()
    stub.register("a-value", OLD)
    async with rooted(stub, latest_cache_ttl_ms=0) as registry:
        assert (await registry.latest("a-value")).version == 1
        stub.register("a-value", NEW)
        assert (await registry.latest("a-value")).version == 2


async def test_the_cache_is_bounded() -> None:
    stub = StubSchemaRegistry()
    for number in range(5):
        stub.register(f"s{number}", OLD)
    async with rooted(stub, cache_capacity=2) as registry:
        for number in (0, 1, 2, 2, 1, 0):
            await registry.version(f"s{number}", 1)
    assert len(stub.requests) == 4


async def test_a_subject_may_have_any_name() -> None:
    stub = StubSchemaRegistry()
    async with rooted(stub) as registry:
        await registry.register("a/b c?é-value", avro(OLD), normalize=True)
    assert stub.subjects() == ["a/b c?é-value"]
    assert stub.requests == ["POST /subjects/a%2Fb%20c%3F%C3%A9-value/versions?normalize=true"]


async def test_an_incompatible_schema_is_refused_with_its_field() -> None:
    stub = StubSchemaRegistry()
    stub.register("a-value", OLD)
    async with rooted(stub) as registry:
        with pytest.raises(IncompatibleSchemaError, match="field 'age'") as caught:
            await registry.register("a-value", avro(NEW))
        found = caught.value
        assert (found.status, found.error_code, found.retriable) == (409, 409, False)
        assert found.details == (
            "The field 'age' at path '/fields/1' in the new schema has no default value and is "
            "missing in the old schema",
        )
        copy = pickle.loads(pickle.dumps(found))
        assert (copy.details, copy.status) == (found.details, 409)


async def test_a_registry_that_does_not_say_why_is_asked() -> None:
    stub = StubSchemaRegistry()
    stub.register("a-value", OLD)

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/versions"):
            body = {"error_code": 409, "message": "Schema being registered is incompatible"}
            return httpx.Response(409, json=body)
        target = request.url.raw_path.decode()
        status, answer = stub.answer(request.method, target, json.loads(request.content))
        return httpx.Response(status, json=answer)

    async with answering(handle) as registry:
        with pytest.raises(IncompatibleSchemaError, match="field 'age'") as caught:
            await registry.register("a-value", avro(NEW))
    assert len(caught.value.details) == 1


async def test_a_schema_that_is_not_there_is_reported_with_what_differs() -> None:
    stub = StubSchemaRegistry()
    async with rooted(stub) as registry:
        with pytest.raises(SchemaNotFoundError, match="Subject 'a-value' not found") as caught:
            await registry.lookup("a-value", avro(OLD))
        assert (caught.value.status, caught.value.error_code) == (404, 40401)
        assert "auto_register=True" in str(caught.value)
        stub.register("a-value", OLD)
        with pytest.raises(SchemaNotFoundError, match=r"Schema not found; .*field 'age'"):
            await registry.lookup("a-value", avro(NEW))
        with pytest.raises(SchemaNotFoundError, match="Version 7 not found"):
            await registry.version("a-value", 7)
        assert (await registry.lookup("a-value", avro(OLD))).id == 1  # failures are not cached


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_what_may_help_is_tried_again(status: int) -> None:
    stub = StubSchemaRegistry(failures=[status, status])
    stub.register("a-value", OLD)
    async with rooted(stub) as registry:
        assert (await registry.latest("a-value")).id == 1
    assert len(stub.requests) == 3


async def test_tries_are_bounded() -> None:
    stub = StubSchemaRegistry(failures=[503] * 10)
    async with rooted(stub, retries=2) as registry:
        with pytest.raises(SchemaRegistryError, match="a scripted failure") as caught:
            await registry.latest("a-value")
    assert (caught.value.retriable, caught.value.status) == (True, 503)
    assert len(stub.requests) == 3


def tries_against_retry_after(url: str, seconds: str) -> list[float]:
    """Return when a registry was asked that answers 429 twice, in virtual seconds."""
    times: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        times.append(round(asyncio.get_running_loop().time()))
        if len(times) < 3:
            return httpx.Response(429, headers={"Retry-After": seconds})
        return httpx.Response(200, json={"schema": '"string"'})

    async def act(_: VirtualKafka) -> None:
        async with answering(handle, url=url) as registry:
            with contextlib.suppress(SchemaRegistryError):
                await registry.schema(1)

    run_virtual(act)
    return [each - times[0] for each in times]


def test_a_registry_is_not_asked_again_before_its_retry_after() -> None:
    assert tries_against_retry_after("http://one", "7") == [0, 7, 14]


def test_a_retry_after_beyond_the_time_limit_ends_the_tries() -> None:
    assert tries_against_retry_after("http://one", "11") == [0]


@pytest.mark.parametrize(("seconds", "later"), [("11", 11), ("99999", 60)])
def test_other_requests_wait_for_the_retry_after_too(seconds: str, later: float) -> None:
    times: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        times.append(asyncio.get_running_loop().time())
        return httpx.Response(429, headers={"Retry-After": seconds})

    async def act(_: VirtualKafka) -> None:
        async with answering(handle, url="http://one") as registry:
            for schema_id in range(3):
                with pytest.raises(SchemaRegistryError) as caught:
                    await registry.schema(schema_id)
                assert caught.value.retriable
                await asyncio.sleep(0.5 if schema_id == 0 else later - 10.5)

    run_virtual(act)
    assert [round(each - times[0]) for each in times] == [0, later]


def test_another_address_is_tried_without_the_retry_after_of_the_first() -> None:
    assert tries_against_retry_after("http://one,http://two,http://three", "7") == [0, 0, 0]


def test_the_retry_after_is_waited_for_when_all_addresses_were_tried() -> None:
    assert tries_against_retry_after("http://one,http://two", "7") == [0, 0, 7]


@pytest.mark.parametrize("retries", [0, 3])
async def test_each_address_is_tried(retries: int) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.host != "five":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"schema": '"string"'})

    url = "http://one,http://two,http://three,http://four,http://five"
    async with answering(handle, url=url, retries=retries) as registry:
        assert (await registry.schema(1)).text == '"string"'


async def test_each_address_is_tried_although_another_request_succeeds_meanwhile() -> None:
    tried: list[str] = []
    first_is_sent, second_has_answer = asyncio.Event(), asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        tried.append(request.url.host)
        if len(tried) == 1:
            first_is_sent.set()
            await second_has_answer.wait()
        if request.url.host == "one":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"schema": '"string"'})

    transport = httpx.MockTransport(handle)
    async with SchemaRegistry(
        "http://one,http://two", retries=0, retry_backoff_ms=0, transport=transport
    ) as registry:
        first = asyncio.create_task(registry.schema(1))
        await first_is_sent.wait()
        await registry.schema(2)
        second_has_answer.set()
        await first
    assert tried == ["one", "one", "two", "two"]


@pytest.mark.parametrize(
    "answer",
    [
        {"message": "no Route matched"},
        {"detail": "Not Found"},
        {"error_code": 404, "message": "HTTP 404 Not Found"},  # Confluent's, at a wrong path
    ],
)
async def test_a_404_of_another_service_or_path_is_no_missing_schema(
    answer: dict[str, object],
) -> None:
    async with answering(lambda _: httpx.Response(404, json=answer)) as registry:
        with pytest.raises(SchemaRegistryError, match="no schema registry answers") as caught:
            await registry.schema(1)
    assert not isinstance(caught.value, SchemaNotFoundError)


async def test_a_404_with_a_general_code_may_be_a_missing_schema() -> None:
    answer = {"error_code": 404, "message": "No artifact with ID 'orders-value' was found."}
    async with answering(lambda _: httpx.Response(404, json=answer)) as registry:
        with pytest.raises(SchemaNotFoundError, match="No artifact with ID"):
            await registry.latest("orders-value")


async def test_a_page_instead_of_json_points_to_the_url() -> None:
    async with answering(lambda _: httpx.Response(200, text="<html>Log in</html>")) as registry:
        with pytest.raises(SchemaRegistryError, match="the answer is no JSON") as caught:
            await registry.schema(1)
    assert "check the URL" in (caught.value.advice or "")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_reported_with_its_target(status: int) -> None:
    asked = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        target = "https://elsewhere/login?state=secret"
        return httpx.Response(status, headers={"Location": target}, text="<html>Moved</html>")

    async with answering(handle) as registry:
        with pytest.raises(SchemaRegistryError, match="the URL redirects to") as caught:
            await registry.schema(1)
    assert "the URL redirects to https://elsewhere/login?***" in str(caught.value)
    assert (caught.value.retriable, caught.value.status, len(asked)) == (False, status, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 422])
async def test_what_cannot_help_is_not_tried_again(status: int) -> None:
    stub = StubSchemaRegistry(failures=[status])
    async with rooted(stub) as registry:
        with pytest.raises(SchemaRegistryError) as caught:
            await registry.latest("a-value")
    assert (caught.value.retriable, caught.value.status) == (False, status)


async def test_another_address_is_tried_and_remembered() -> None:
    asked = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "one":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"schema": '"string"'})

    async with answering(handle, url="http://one,https://two:8081/") as registry:
        assert await registry.schema(1) == Schema('"string"')
        await registry.schema(2)
        assert repr(registry) == "<SchemaRegistry http://one, https://two:8081>"
    assert asked == ["one", "two", "two"]


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async def handle(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError("no call waits so long")

    options = {"retries": 1, "request_timeout_ms": 20, "retry_backoff_ms": 0}
    transport = httpx.MockTransport(handle)
    async with SchemaRegistry("http://one", transport=transport, **options) as registry:
        with pytest.raises(
            SchemaRegistryError, match=r"http://one does not answer: no answer within 0.02 s"
        ) as caught:
            await registry.schema(1)
    assert caught.value.retriable


async def test_an_endless_answer_is_cut_off() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b" " * ((2 << 20) + 1))

    async with answering(handle) as registry:
        with pytest.raises(SchemaRegistryError, match="exceeds"):
            await registry.schema(1)


async def test_a_compressed_answer_is_not_unpacked() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        packed = gzip.compress(b" " * 1000)
        return httpx.Response(200, content=packed, headers={"Content-Encoding": "gzip"})

    async with answering(handle) as registry:
        with pytest.raises(SchemaRegistryError, match="is compressed, which was not requested"):
            await registry.schema(1)


@pytest.mark.parametrize(
    "answer",
    [
        b"no json",
        b"[]",
        b'{"id": 1}',
        b'{"schema": 5}',
        b'{"schema": "x", "schemaType": "XML"}',
        b'{"schema": "x", "references": [{"name": "y"}]}',
        b'{"schema": "x", "references": 3}',
        b'{"schema": "x", "references": [{"name": 1, "subject": "s", "version": 1}]}',
        b'{"schema": "x", "references": [{"name": "n", "subject": ["s"], "version": 1}]}',
        b'{"schema": "x", "references": [{"name": "n", "subject": "s", "version": 0}]}',
        b'{"schema": "x", "references": [{"name": "n", "subject": "s", "version": 99999999999}]}',
        b'{"schema": "x", "references": [{"name": "%b", "subject": "s", "version": 1}]}'
        % (b"n" * 2000),
    ],
)
async def test_an_answer_that_makes_no_sense_is_refused(answer: bytes) -> None:
    async with answering(lambda request: httpx.Response(200, content=answer)) as registry:
        with pytest.raises(SchemaRegistryError, match="getting schema 1: the answer is no"):
            await registry.schema(1)


@pytest.mark.parametrize("number", [b"null", b"true", b'"1"', b"-1", b"4294967296"])
async def test_an_id_that_makes_no_sense_is_refused(number: bytes) -> None:
    content = b'{"id": %s}' % number
    async with answering(lambda request: httpx.Response(200, content=content)) as registry:
        with pytest.raises(SchemaRegistryError, match="the answer has no id of up to 32 bits"):
            await registry.register("a", avro(OLD))


async def test_credentials_are_sent_and_never_shown() -> None:
    stub = StubSchemaRegistry(failures=[401])
    url = "http://me:s%40cret@registry"
    async with SchemaRegistry(url, transport=stub.transport) as registry:
        with pytest.raises(SchemaRegistryError) as caught:
            await registry.schema(1)
    assert stub.headers["authorization"] == "Basic bWU6c0BjcmV0"
    assert "credentials" in str(caught.value)
    for text in (repr(registry), str(caught.value), repr(caught.value), repr(vars(registry))):
        assert "cret" not in text


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, {"a": ("me", "1"), "b": ("you", "2"), "c": ("me", "1")}),
        (("all", "3"), dict.fromkeys("abc", ("all", "3"))),
    ],
)
async def test_credentials_in_an_address_are_sent_to_it_alone_if_others_have_theirs(
    given: tuple[str, str] | None, sent: dict[str, tuple[str, str]]
) -> None:
    seen = {}

    def answer(request: httpx.Request) -> httpx.Response:
        kind, _, login = request.headers["authorization"].partition(" ")
        assert kind == "Basic"
        seen[request.url.host] = tuple(base64.b64decode(login).decode().split(":"))
        return httpx.Response(503)

    urls = "https://me:1@a,https://you:2@b,https://c"
    transport = httpx.MockTransport(answer)
    async with SchemaRegistry(
        urls, basic_auth=given, transport=transport, retry_backoff_ms=1
    ) as registry:
        with pytest.raises(SchemaRegistryError):
            await registry.schema(1)
    assert seen == sent


async def test_an_error_quotes_no_token_although_another_request_has_a_newer_one() -> None:
    tokens = iter(["first-token", "second-token"])
    answers = [asyncio.Event(), asyncio.Event()]
    requests: list[httpx.Request] = []

    async def refuse(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        await answers[len(requests) - 1].wait()
        return httpx.Response(401, json={"message": request.headers["authorization"]})

    transport = httpx.MockTransport(refuse)
    async with SchemaRegistry(
        "https://r", transport=transport, bearer_token=lambda: next(tokens)
    ) as registry:
        asked = [asyncio.create_task(registry.latest(subject)) for subject in "ab"]
        await until(lambda: len(requests) == 2)
        for answer in answers:
            answer.set()
        for each in asked:
            with pytest.raises(SchemaRegistryError, match=r"of subject [ab]: \*\*\*"):
                await each


@pytest.mark.parametrize("waits", [False, True])
async def test_a_bearer_token_may_be_fetched_for_each_request(waits: bool) -> None:
    tokens = iter(["first", "second"])

    async def later() -> str:
        return next(tokens)

    stub = StubSchemaRegistry()
    stub.register("a", OLD)
    function = later if waits else (lambda: next(tokens))
    async with rooted(stub, bearer_token=function, headers={"X-Tenant": "t"}) as registry:
        await registry.schema(1)
        assert stub.headers["authorization"] == "Bearer first"
        assert stub.headers["x-tenant"] == "t"
        await registry.latest("a")
    assert stub.headers["authorization"] == "Bearer second"


@pytest.mark.parametrize("host", ["300.1.1.1", "☃.example", "xn--a", "[v1.a]"])
def test_a_host_to_which_no_request_can_be_sent_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="the host in a schema registry's url"):
        SchemaRegistry(f"http://one,http://{host}:8081")


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be like https://"):
        SchemaRegistry("registry:8081")
    with pytest.raises(ConfigError, match="at least one url"):
        SchemaRegistry([])
    with pytest.raises(ConfigError, match="not both"):
        SchemaRegistry("http://a:b@registry", bearer_token="t")
    with pytest.raises(ConfigError, match="cache_capacity of a schema registry is at least 1"):
        SchemaRegistry("http://registry", cache_capacity=0)
    with pytest.raises(ConfigError, match="retries of a schema registry is at least 0, not -1"):
        SchemaRegistry("http://registry", retries=-1)
    with pytest.raises(ConfigError, match="request_timeout_ms of a schema registry is a number"):
        SchemaRegistry("http://registry", request_timeout_ms="5")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match="basic_auth of a schema registry is not valid UTF-8 text"
    ):
        SchemaRegistry("http://registry", basic_auth=("me", "open\udcffsesame"))
    with pytest.raises(ConfigError, match="must be like https://"):
        SchemaRegistry("http://me:open\udcffsesame@registry")
    with pytest.raises(ConfigError, match="name of header 1"):
        SchemaRegistry("http://registry", headers={1: "a"})  # type: ignore[dict-item]


@pytest.mark.parametrize("url", [pydantic.HttpUrl("http://registry"), [b"http://registry"], 5])
def test_an_url_that_is_no_text_is_refused(url: Any) -> None:
    with pytest.raises(ConfigError, match=r"url is a text, not .*give str\(url\)"):
        SchemaRegistry(url)


@pytest.mark.parametrize(
    "login",
    [
        {"basic_auth": "me:opensesame"},
        {"basic_auth": ("me", pydantic.SecretStr("opensesame"))},
        {"basic_auth": ("me", None)},
        {"bearer_token": pydantic.SecretStr("opensesame")},
        {"bearer_token": b"opensesame"},
    ],
)
def test_credentials_that_are_no_text_are_refused_at_once(login: Any) -> None:
    with pytest.raises(ConfigError, match="of a schema registry is a") as caught:
        SchemaRegistry("https://registry", **login)
    assert "opensesame" not in str(caught.value)


async def test_references_come_in_the_order_in_which_they_build_on_each_other() -> None:
    stub = StubSchemaRegistry()
    to_b = {"name": "B", "subject": "b", "version": 1}
    to_a = {"name": "A", "subject": "a", "version": 1}
    stub.register("a", {"type": "fixed", "name": "A", "size": 1})
    stub.register("b", {"type": "record", "name": "B", "fields": []}, references=[to_a])
    # A registry whose references form a circle blocks no call.
    stub.register("c", {"type": "record", "name": "C", "fields": []}, references=[to_b, to_a])
    async with rooted(stub) as registry:
        schema = (await registry.latest("c")).schema
        found = await registry.referenced(schema)
    assert [reference.name for reference, _ in found] == ["A", "B"]


async def test_a_reference_may_be_to_a_version_that_is_deleted() -> None:
    stub = StubSchemaRegistry()
    stub.register("a", {"type": "fixed", "name": "A", "size": 1})

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.params.get("deleted") != "true":
            return httpx.Response(404, json={"error_code": 40402, "message": "Version 1 not found"})
        status, answer = stub.answer("GET", request.url.path, {})
        return httpx.Response(status, json=answer)

    async with answering(handle) as registry:
        with pytest.raises(SchemaNotFoundError):
            await registry.version("a", 1)
        for schema_format in (None, "serialized"):
            schema = avro(OLD, SchemaReference("A", "a", 1))
            [(_, found)] = await registry.referenced(schema, schema_format=schema_format)
            assert json.loads(found.text)["name"] == "A"


async def test_a_subject_that_is_no_proper_text_is_refused() -> None:
    schema = avro(OLD, SchemaReference("A", "\ud800", 1))  # as JSON of a registry may have it
    async with rooted(StubSchemaRegistry()) as registry:
        for ask in (registry.referenced(schema), registry.lookup("\ud800", schema)):
            with pytest.raises(SchemaRegistryError, match="cannot be a subject"):
                await ask


async def test_the_references_of_a_schema_may_be_a_list() -> None:
    references: Any = [SchemaReference("A", "a", 1)]
    schema = Schema(json.dumps(OLD), "AVRO", references)
    async with rooted(StubSchemaRegistry()) as registry:
        assert (await registry.ensure("b", schema)).schema == avro(OLD, *references)


async def test_schemas_and_references_may_be_of_subclasses_with_another_constructor() -> None:
    class Common(SchemaReference):
        def __init__(self, name: str) -> None:
            super().__init__(name, name.lower(), 1)

    class OldSchema(Schema):
        def __init__(self) -> None:
            super().__init__(json.dumps(OLD), references=(Common("A"),))

    stub = StubSchemaRegistry()
    stub.register("a", {"type": "fixed", "name": "A", "size": 1})
    async with rooted(stub) as registry:
        for found in (
            await registry.ensure("b", OldSchema()),
            await registry.lookup("b", OldSchema()),
        ):
            assert found.schema == avro(OLD, SchemaReference("A", "a", 1))


async def test_a_reference_without_a_context_is_in_that_of_its_schema() -> None:
    stub = StubSchemaRegistry()
    stub.register(":.other:a", {"type": "fixed", "name": "A", "size": 1})
    to_a = {"name": "A", "subject": ":.other:a", "version": 1}
    to_b = {"name": "B", "subject": "b", "version": 1}
    b = {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]}
    c = {"type": "record", "name": "C", "fields": [{"name": "b", "type": "B"}]}
    stub.register(":.mine:b", b, references=[to_a])
    stub.register(":.mine:c", c, references=[to_b])
    async with rooted(stub) as registry:
        latest = (await registry.latest(":.mine:c")).schema
        looked_up = await registry.lookup(":.mine:c", avro(c, SchemaReference("B", "b", 1)))
        for schema in (latest, looked_up.schema):
            found = await registry.referenced(schema)
            assert [reference.subject for reference, _ in found] == [":.other:a", ":.mine:b"]


def test_a_client_serves_one_loop_after_the_other() -> None:
    stub = StubSchemaRegistry()
    stub.register("a", OLD)
    registry = rooted(stub)
    asyncio.run(registry.latest("a"))
    asyncio.run(registry.schema(1))

    async def elsewhere() -> None:
        await registry.version("a", 1)
        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(asyncio.run, registry.lookup("a", avro(OLD)))
        await registry.close()

    asyncio.run(elsewhere())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_client_that_was_used_before_a_fork_serves_the_child_and_the_parent() -> None:
    stub = StubSchemaRegistry()
    stub.register("a", OLD)
    stub.register("b", NEW)
    with serve_registry(stub) as url:
        async with SchemaRegistry(url) as registry:
            await registry.latest("a")
            child = os.fork()
            if child == 0:
                found = 0
                try:
                    if not registry.in_background(lambda: asyncio.sleep(0)):
                        found = asyncio.run(registry.latest("b")).id
                finally:
                    os._exit(found)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 2
            assert (await registry.latest("b")).id == 2


class LoopBound(httpx.MockTransport):
    """A transport that can be closed only in the loop of its connections, as one of sockets."""

    loop: asyncio.AbstractEventLoop | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.loop = asyncio.get_running_loop()
        return await super().handle_async_request(request)

    async def aclose(self) -> None:
        if self.loop is not None and self.loop is not asyncio.get_running_loop():
            raise RuntimeError("another loop has the connections")
        self.loop = None


def test_a_client_may_be_closed_after_its_loop() -> None:
    answer = {"id": 1, "version": 1, "schema": json.dumps(OLD)}
    transport = LoopBound(lambda _: httpx.Response(200, json=answer))
    registry = SchemaRegistry("http://registry", transport=transport)
    asyncio.run(registry.ensure("a", avro(OLD)))
    asyncio.run(registry.close())
    asyncio.run(registry.ensure("b", avro(OLD)))

    async def elsewhere() -> None:
        await registry.ensure("c", avro(OLD))
        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(asyncio.run, registry.close())
        await registry.close()

    asyncio.run(elsewhere())


async def test_closing_ends_what_is_under_way() -> None:
    async def handle(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError("no call waits so long")

    registry = SchemaRegistry("http://one", transport=httpx.MockTransport(handle))
    waiting = asyncio.create_task(registry.schema(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await registry.close()
    with pytest.raises(SchemaRegistryError, match="closed meanwhile") as caught:
        await waiting
    assert caught.value.retriable


@pytest.mark.parametrize(
    ("trouble", "retriable"),
    [
        (ConnectionRefusedError("no way"), True),
        (httpx.ConnectError("no way"), True),
        (KeyError("no way"), False),
        (asyncio.CancelledError("no way"), False),
    ],
)
async def test_a_token_function_that_raises_is_named(
    trouble: BaseException, retriable: bool
) -> None:
    async def token() -> str:
        raise trouble

    stub = StubSchemaRegistry()
    registry = SchemaRegistry("http://one", transport=stub.transport, bearer_token=token, retries=0)
    with pytest.raises(
        SchemaRegistryError, match=r"bearer_token function raised .*no way"
    ) as raised:
        await registry.schema(1)
    assert (raised.value.retriable, raised.value.__cause__) == (retriable, trouble)
    assert stub.requests == []


async def test_a_registration_is_looked_up_until_every_node_of_the_registry_has_it() -> None:
    stub = StubSchemaRegistry()
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        target = request.url.raw_path.decode("ascii")
        asked.append(target)
        if asked.count("/subjects/a-value") in {1, 2}:
            return httpx.Response(404, json={"error_code": 40403, "message": "Schema not found"})
        status, answer = stub.answer(request.method, target, json.loads(request.content))
        return httpx.Response(status, json=answer)

    async with answering(handle) as registry:
        found = await registry.ensure("a-value", avro(OLD))
        assert (found.id, found.version, found.subject) == (1, 1, "a-value")
        assert await registry.ensure("a-value", avro(OLD)) is found
    assert asked.count("/subjects/a-value/versions") == 1
    assert asked.count("/subjects/a-value") == 3


async def test_a_registration_that_stays_unknown_may_be_tried_again() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/subjects/a-value/versions":
            return httpx.Response(200, json={"id": 5})
        return httpx.Response(404, json={"error_code": 40403, "message": "Schema not found"})

    async with answering(handle, retries=1) as registry:
        with pytest.raises(SchemaNotFoundError) as caught:
            await registry.ensure("a-value", avro(OLD))
    assert caught.value.retriable


async def test_a_full_answer_to_a_registration_needs_no_second_request() -> None:
    rules = {"domainRules": [{"name": "r", "type": "CEL", "mode": "WRITE"}]}
    text = json.dumps(OLD)
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        answer = {"id": 5, "version": 2, "schema": text, "ruleSet": rules}
        return httpx.Response(200, json=answer)

    async with answering(handle) as registry:
        found = await registry.ensure("a-value", avro(OLD))
    assert (found.id, found.version, found.write_rules) == (5, 2, (SchemaRule("r", "CEL"),))
    assert len(asked) == 1
    # Without this header Confluent's registry leaves fields out.
    assert asked[0].headers["Confluent-Accept-Unknown-Properties"] == "true"


async def test_the_references_of_a_schema_have_a_bound_together() -> None:
    stub = StubSchemaRegistry()
    registry = rooted(stub)
    async with registry:
        wide = json.dumps({"type": "string", "doc": "x" * 1_000_000})
        references = []
        for number in range(5):
            subject = f"part{number}"
            await registry.register(subject, Schema(f"{wide} {' ' * number}"))
            references.append(SchemaReference(f"p{number}", subject, 1))
        few = Schema('"int"', references=tuple(references[:4]))
        assert len(await registry.referenced(few)) == 4
        with pytest.raises(SchemaRegistryError, match="more than 4194304 characters"):
            await registry.referenced(Schema('"int"', references=tuple(references)))


async def test_too_many_references_in_an_answer_are_refused() -> None:
    references = [{"name": f"n{n}", "subject": "s", "version": 1} for n in range(5_000)]
    content = json.dumps({"schema": "x", "references": references}).encode()
    async with answering(lambda request: httpx.Response(200, content=content)) as registry:
        with pytest.raises(SchemaRegistryError, match="refers to more than 500"):
            await registry.schema(1)


async def test_cached_schemas_take_bounded_memory() -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, json={"schema": "x" * 1_900_000})

    async with answering(handle) as registry:
        tracemalloc.start()
        try:
            for number in range(40):
                await registry.schema(number)
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await registry.schema(39)  # the newest one is still known
        assert len(asked) == 40
    assert kept < 50_000_000
