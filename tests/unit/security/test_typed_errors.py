"""Whatever a registry, issuer, broker or file says, the error is one of this package, and soon."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import time
import tracemalloc
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

from aioproducer.config import ProducerConfig
from aioproducer.config.jaas import parse_jaas
from aioproducer.config.properties import parse_properties
from aioproducer.errors import (
    AuthenticationError,
    ConfigError,
    KafkaError,
    SchemaRegistryError,
    SerializationError,
)
from aioproducer.loader.errors import StateError
from aioproducer.loader.state import LoadState
from aioproducer.net.security.assertions import AssertionSettings, make_assertion
from aioproducer.net.security.oidc import EndpointSettings, TokenEndpoint
from aioproducer.net.security.pem import parse_pem
from aioproducer.net.security.sasl.msk_iam import MskIam
from aioproducer.net.security.sasl.oauthbearer import OAuthBearer
from aioproducer.net.security.tokens import CachedTokens, RefreshPolicy, as_token, claims_of
from aioproducer.serializers import (
    AvroSerializer,
    SchemaReference,
    SchemaRegistry,
    SerializationContext,
)
from aioproducer.serializers.registry.protobuf_names import path_in
from aioproducer.serializers.registry.schema import Schema
from aioproducer.types import OAuthToken, SaslCredentials

DEEP = [b"[" * 200_000, b'{"a":' * 200_000, b"[" * 5000 + b"]" * 5000]
NUMBERS = [
    "1" * 400,
    "1" * 5000,
    "1e999",
    "-1e999",
    "Infinity",
    "NaN",
    "-1",
    "true",
    "[]",
    '"1"',
    "null",
    "1.5",
    "1" + "0" * 18,
]

# -- registries ------------------------------------------------------------------------------------


async def test_no_redirect_of_a_registry_raises_anything_else() -> None:
    headers = {"Location": "http://" + "u@" * 30_000}
    transport = httpx.MockTransport(lambda request: httpx.Response(302, headers=headers))
    async with SchemaRegistry("http://r", transport=transport, retries=0) as registry:
        with pytest.raises(SchemaRegistryError):
            await registry.schema(1)


@pytest.mark.parametrize("status", [200, 404, 409, 500])
@pytest.mark.parametrize("body", [*DEEP, b"\xff", b"", b"null", b"[]", b"1" * 5000])
async def test_no_answer_of_a_registry_raises_anything_else(status: int, body: bytes) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=body))
    async with SchemaRegistry("http://r", transport=transport, retries=0) as registry:
        for call in (
            registry.latest("s"),
            registry.version("s", 1),
            registry.schema(1),
            registry.lookup("s", Schema('"string"')),
            registry.register("s", Schema('"string"')),
            registry.ensure("s", Schema('"string"')),
        ):
            with pytest.raises(SchemaRegistryError):
                await call


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("field", ["id", "version", "guid", "references", "schemaType", "ruleSet"])
async def test_no_number_of_a_registry_raises_anything_else(field: str, number: str) -> None:
    answer = {"id": "1", "version": "1", "schema": '"\\"string\\""'} | {field: number}
    inner = (
        number if field != "references" else f'[{{"name":"a","subject":"b","version":{number}}}]'
    )
    text = ",".join(f'"{k}":{v if k != field else inner}' for k, v in answer.items())
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=f"{{{text}}}"))
    async with SchemaRegistry("http://r", transport=transport, retries=0) as registry:
        for call in (registry.latest("s"), registry.register("s", Schema('"string"'))):
            try:
                await call
            except SchemaRegistryError:
                pass


# -- issuers and tokens ----------------------------------------------------------------------------


def endpoint(monkeypatch: pytest.MonkeyPatch, status: int, content: bytes) -> TokenEndpoint:
    client = httpx.AsyncClient
    monkeypatch.setattr(
        httpx,
        "AsyncClient",
        lambda **_: client(
            transport=httpx.MockTransport(lambda _: httpx.Response(status, content=content))
        ),
    )
    settings = EndpointSettings("http://issuer/", "me", "secret", retry_s=0.01)
    return TokenEndpoint(settings, extensions={}, assertions=None, rng=random.Random(1))


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("body", [*DEEP, b"\xff", b"1" * 5000, b'{"error":{"a":[1]}}'])
async def test_no_answer_of_an_issuer_raises_anything_else(
    monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    with pytest.raises(KafkaError):
        await endpoint(monkeypatch, status, body).fetch()


@pytest.mark.parametrize("number", NUMBERS)
async def test_no_life_of_a_token_raises_anything_else(
    monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    content = f'{{"access_token":"abc","expires_in":{number}}}'.encode()
    asked = endpoint(monkeypatch, 200, content)
    tokens = CachedTokens(asked.fetch, RefreshPolicy(), rng=random.Random(1))
    for _ in range(2):
        try:
            assert (await tokens.token()).value == "abc"
        except AuthenticationError:
            pass


def jwt(body: bytes) -> str:
    return f"a.{urlsafe_b64encode(body).rstrip(b'=').decode()}.c"


@pytest.mark.parametrize("signature", ["", "c", "cc", "ccc"])
@pytest.mark.parametrize("name", ["", "s", "su", "sub"])
def test_claims_are_read_whatever_the_lengths_of_a_token(name: str, signature: str) -> None:
    token = jwt(f'{{"{name}":1}}'.encode()).removesuffix("c") + signature
    assert claims_of(token) == {name: 1}


@pytest.mark.parametrize("body", [*DEEP, b"\xff", b"1" * 5000])
def test_claims_that_are_none_are_no_claims(body: bytes) -> None:
    assert claims_of(jwt(body)) == {}


@pytest.mark.parametrize("number", NUMBERS)
async def test_no_end_of_a_token_raises_anything_else(number: str) -> None:
    token = as_token(jwt(f'{{"exp":{number}}}'.encode()))
    assert token.expires_at is None or abs(token.expires_at) < 1e12

    async def fetch() -> OAuthToken:
        return token

    try:
        await CachedTokens(fetch, RefreshPolicy(), rng=random.Random(1)).token()
    except AuthenticationError:
        pass


# -- brokers ---------------------------------------------------------------------------------------


class Tokens:
    async def token(self) -> OAuthToken:
        return OAuthToken("abc")

    def on_refused(self, token: OAuthToken) -> None:
        assert token.value == "abc"


@pytest.mark.parametrize(
    "answer", [*DEEP, b"\xff", b"1" * 5000, b"[1]", b'{"status":[[1]]}', b'{"status":1e999}']
)
async def test_no_refusal_of_a_token_raises_anything_else(answer: bytes) -> None:
    exchange = OAuthBearer(Tokens()).exchange("host")
    await anext(exchange)
    assert await exchange.asend(answer) == b"\x01"
    with pytest.raises(AuthenticationError, match="refused the OAuth token"):
        await exchange.asend(b"")


@pytest.mark.parametrize("answer", [*DEEP, b"\xff"])
async def test_no_answer_to_aws_raises_anything_else(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    async def credentials() -> SaslCredentials:
        return SaslCredentials("me", "secret")

    exchange = MskIam(credentials).exchange("host")
    await anext(exchange)
    try:
        await exchange.asend(answer)
    except (AuthenticationError, StopAsyncIteration):
        pass


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [*DEEP, b"\xff", b"", b"null", b"1" * 5000])
def test_no_state_file_raises_anything_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(StateError):
        LoadState.read(path)


@pytest.mark.parametrize("number", [each for each in NUMBERS if each != "1" + "0" * 18])
@pytest.mark.parametrize("place", ["row", "file", "acknowledged", "version"])
def test_no_number_of_a_state_file_is_believed(tmp_path: Path, place: str, number: str) -> None:
    path = tmp_path / "state.json"
    known = json.dumps(LoadState("t").as_dict())
    state: dict[str, Any] = json.loads(known)
    state["position"] = {"file": "a", "member": None, "row": 1}
    for part in (state, state["position"], state["settled"]):
        if place in part:
            part[place] = "PLACE"
    path.write_text(json.dumps(state).replace('"PLACE"', number))
    if (place, number) in (("file", '"1"'), ("version", "true")):  # True is 1
        assert LoadState.read(path)
        return
    with pytest.raises(StateError):
        LoadState.read(path)


@pytest.mark.parametrize("content", [*DEEP, b"\xff", b"[]"])
def test_no_template_of_assertions_raises_anything_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "template.json"
    path.write_bytes(content)
    with pytest.raises(AuthenticationError):
        make_assertion(AssertionSettings("/no/key", template_file=str(path)), 0.0)


# -- time ------------------------------------------------------------------------------------------

BEGIN = "-----BEGIN CERTIFICATE-----"


@pytest.mark.parametrize(
    "text",
    [
        BEGIN * 50_000,
        "-----BEGIN PRIVATE KEY-----" * 50_000,
        "-----BEGIN " + "A " * 500_000,
        "".join(f"-----BEGIN {n} PRIVATE KEY-----" for n in range(50_000)),
        (BEGIN + "-----END CERTIFICATE-") * 30_000,
        "-" * 1_000_000,
        f"{BEGIN}x-----END CERTIFICATE-----" * 20_000,
    ],
    ids=range(7),
)
def test_pem_is_parsed_in_linear_time(text: str) -> None:
    began = time.process_time()
    parse_pem(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    ["a=" + "\\" * 300_001 + "u", "a\\\n" * 200_000, "\\u" * 200_000, "=" * 500_000, " " * 500_000],
    ids=range(5),
)
def test_properties_are_parsed_in_linear_time(text: str) -> None:
    began = time.process_time()
    try:
        parse_properties(text)
    except ConfigError:
        pass
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["/* " * 100_000, '" ' * 100_001, "a=" * 100_000])
def test_a_jaas_line_is_parsed_in_linear_time(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError):
        parse_jaas(f"PlainLoginModule required {text};", "PLAIN")
    assert time.process_time() - began < 2


def test_the_pattern_of_a_provider_sees_no_name_that_is_no_variable() -> None:
    properties = {
        "config.providers": "env",
        "config.providers.env.param.allowlist.pattern": "(.+)+!",
        "client.id": f"${{env:KAFKA_{'a' * 200}}}",
    }
    with pytest.raises(ConfigError, match="no such variable"):
        ProducerConfig.from_properties(properties, allow=["env:KAFKA_*"])


@pytest.mark.parametrize(
    "text", ['"\\' * 500_000, "/* " * 400_000, "'a\\" * 300_000, "\"'" * 400_000, "map<" * 200_000]
)
def test_a_protobuf_schema_is_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    path_in(text, "a.b")
    assert time.process_time() - began < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "message a{" * 100_000,
        f"message {'a' * 1_000_000} {{" + "message b{} " * 50_000,
        f"package {'a' * 1_000_000}; " + "message b{} " * 50_000,
        "a1 " * 100_000,
        base64.b64encode(b"\x22\x00" * 750_000).decode(),
        base64.b64encode(b"\x22\x04\x0a\x02ab" * 250_000).decode(),
        base64.b64encode(b"\x22\xff\xff\x03" + b"\x1a\x00" * 32_767).decode(),
        base64.b64encode(b"\x0a" * 1_000_000).decode(),
    ],
)
def test_names_in_a_protobuf_schema_take_no_more_than_their_text(text: str) -> None:
    tracemalloc.start()
    try:
        path_in(text, "a.b")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 25_000_000


@pytest.mark.parametrize("references", [(), (SchemaReference("a", "s", 1),)])
def test_an_avro_schema_that_is_nested_too_deeply_is_an_error_of_ours(references: Any) -> None:
    deep: Any = "int"
    for _ in range(20_000):
        deep = {"type": "array", "items": deep}
    text = '{"type":"array","items":' * 20_000 + '"int"' + "}" * 20_000
    for schema in (text, deep):
        with pytest.raises(ConfigError, match="nested too deeply"):
            AvroSerializer(SchemaRegistry("http://r"), schema, references=references)


def test_an_avro_schema_that_is_no_json_is_an_error_of_ours() -> None:
    circular: dict[str, Any] = {"type": "array"}
    circular["items"] = circular
    for schema in (circular, {"type": b"int"}):
        with pytest.raises(ConfigError, match="no Avro schema"):
            AvroSerializer(SchemaRegistry("http://r"), schema)


@pytest.mark.parametrize(
    "schema",
    [
        [["int"]],
        ["null", {"type": ["int", "string"]}],
        {"type": "record", "name": "R", "fields": [{"name": [], "type": "int"}]},
        {"type": "record", "name": "R", "fields": [{"name": None, "type": "int"}]},
        {"type": "array", "items": [["int"]]},
        {"type": "bytes", "logicalType": [1]},
        {"type": "bytes", "logicalType": "decimal", "precision": [], "scale": {}},
        {"type": "enum", "name": "E", "symbols": [[]]},
        {"type": [None]},
        {"type": {}},
        5,
        None,
    ],
)
async def test_an_odd_avro_schema_raises_errors_of_ours_only(schema: Any) -> None:
    with contextlib.suppress(ConfigError):
        AvroSerializer(SchemaRegistry("http://r"), json.dumps(schema))
    serializer = AvroSerializer(SchemaRegistry("http://r"), use_latest_version=True)
    with contextlib.suppress(SchemaRegistryError, SerializationError):
        encode = await serializer._encoder(Schema(json.dumps(schema), "AVRO"))
        for data in (None, 1, {"a": 1}, [1]):
            with contextlib.suppress(SerializationError):
                encode(data, SerializationContext("t", "value", []))
