"""JSON that registries, token endpoints, brokers and state files give.

Input: the JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from aioproducer._util.bounded_json import decoded_object
from aioproducer.errors import AuthenticationError, KafkaError, SchemaRegistryError
from aioproducer.loader.errors import StateError
from aioproducer.loader.state import LoadState
from aioproducer.net.security.oidc import _LONGEST_ANSWER
from aioproducer.net.security.sasl.oauthbearer import _status
from aioproducer.net.security.tokens import CachedTokens, RefreshPolicy, as_token, seconds_in
from aioproducer.serializers.registry import client
from aioproducer.serializers.registry.answers import registry_error, write_rules_in
from aioproducer.serializers.registry.avro_bounds import bounds_of
from aioproducer.serializers.registry.avro_schema import AvroSchemaError, resolve
from aioproducer.serializers.registry.avro_writer import AvroWriter
from aioproducer.serializers.registry.http import _decoded
from aioproducer.serializers.registry.schema import Schema
from aioproducer.types import OAuthToken
from fuzz.guard import Target, require

_STATE = Path(tempfile.gettempdir()) / f"aioproducer-fuzz-{os.getpid()}.json"


def run(data: bytes) -> None:
    for status in (404, 409, 500):
        error = registry_error(status, data, "asking")
        _check_text(error)
        for detail in getattr(error, "details", ()):
            require(detail.isprintable(), "not printable: {!r}", detail)
    require(isinstance(_status(data), str), "no text")
    answer = decoded_object(data, _LONGEST_ANSWER)
    life = seconds_in(answer.get("expires_in"))
    require(life is None or abs(life) < 1e12, "{} seconds", life)
    _registry(data)
    _avro(data)
    _token(data)
    try:
        _STATE.write_bytes(data)
        LoadState.read(_STATE)
    except StateError as error:
        _check_text(error)
    finally:
        _STATE.unlink(missing_ok=True)


def _check_text(error: KafkaError) -> None:
    require(str(error).isprintable() and len(str(error)) < 10_000, "shown: {!r}", str(error))


def _registry(data: bytes) -> None:
    try:
        answer = _decoded(data, "asking")
        if isinstance(answer, dict):
            write_rules_in(answer, "asking")
            client._registered(answer, "s", Schema('"string"'), "asking")
        client._schema(answer, "asking")
    except SchemaRegistryError as error:
        _check_text(error)


def _avro(data: bytes) -> None:
    try:
        schema = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        resolved = resolve(schema)
        AvroWriter(resolved)
        bounds_of(resolved)
    except AvroSchemaError:
        return


def _token(data: bytes) -> None:
    token = as_token(data.decode("utf-8", "replace"))

    async def fetch() -> OAuthToken:
        return token

    try:
        asyncio.run(CachedTokens(fetch, RefreshPolicy(), rng=Random(1)).token())
    except AuthenticationError as error:
        _check_text(error)


def seeds() -> Iterator[bytes]:
    yield b'{"error_code": 409, "message": "{description:\'a\', additionalInfo:\'b\'}"}'
    yield b'{"id": 1, "version": 2, "schema": "\\"string\\"", "guid": null, "ruleSet": {}}'
    yield b'{"access_token": "a", "expires_in": 3600}'
    yield b'{"status": "invalid_token"}'
    yield b'{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R", "default": {}}]}'
    yield b'{"type": "array", "items": ["null", {"type": "map", "values": "long"}]}'
    yield b"a.eyJleHAiOjE3MDAwMDAwMDB9.c"
    yield json.dumps(LoadState("t").as_dict()).encode()


TARGET = Target("answers", run, seeds, bytes_per_byte=4000, extra_bytes=4 << 20)
