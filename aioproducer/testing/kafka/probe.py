"""Asks one broker for its metadata: the proof that it serves, before any test relies on it.

Every wait has a bound.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TypeVar

from aioproducer._util.arguments import seconds_of
from aioproducer.errors import KafkaError
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import decode_response, encode_request, frame_size
from aioproducer.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataResponse
from aioproducer.wire.schema import Message

_CLIENT_ID = "aioproducer-testing"
_Response = TypeVar("_Response", bound=Message)


class ProbeError(Exception):
    """The broker did not answer, or not in Kafka's protocol."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as one of its brokers sees it."""

    cluster_id: str | None
    controller_id: int
    broker_ids: frozenset[int]


def describe_cluster(
    host: str, port: int, *, timeout_s: float, version: int | None = None
) -> ClusterView:
    """Return the brokers and the controller in the metadata of the broker at `host:port`.

    A `version` of Metadata saves the ApiVersions request; the broker has to support it.

    Raises:
        ProbeError: No proper answer within `timeout_s`.
    """
    deadline = time.monotonic() + seconds_of(timeout_s, "timeout_s")
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            if version is None:
                versions = _ask(connection, deadline, ApiVersionsRequest(), 0, ApiVersionsResponse)
                version = _highest_common_version(versions)
            request = MetadataRequest(topics=[], allow_auto_topic_creation=version < 4)
            metadata = _ask(connection, deadline, request, version, MetadataResponse)
    except (OSError, KafkaError) as error:
        raise ProbeError(f"{type(error).__name__}: {error}") from error
    return ClusterView(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        broker_ids=frozenset(broker.node_id for broker in metadata.brokers),
    )


def _ask(
    connection: socket.socket,
    deadline: float,
    request: Message,
    version: int,
    expected: type[_Response],
) -> _Response:
    connection.sendall(encode_request(request, version, 1, _CLIENT_ID))
    frame = _receive(connection, frame_size(_receive(connection, 4, deadline)), deadline)
    _, response = decode_response(type(request), version, frame)
    if not isinstance(response, expected):
        raise ProbeError(f"a {type(response).__name__} instead of a {expected.__name__}")
    return response


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < count:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("no whole answer in time")
        connection.settimeout(remaining)
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("closed by the broker")
        received += chunk
    return bytes(received)


def _highest_common_version(versions: ApiVersionsResponse) -> int:
    lowest_known, highest_known = MetadataRequest.VALID_VERSIONS
    for api in versions.api_keys:
        if api.api_key == ApiKey.METADATA:
            version = min(api.max_version, highest_known)
            if version >= max(api.min_version, lowest_known):
                return version
    raise ProbeError("no common version of Metadata")
