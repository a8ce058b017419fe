"""From a request's bytes to a response's bytes: which API, which version, which fault.

A broker that cannot read a request has one answer: it closes the connection. The exception is
ApiVersions in a version it lacks, answered in v0 with UNSUPPORTED_VERSION and the versions it has
(KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from aioproducer import errors
from aioproducer.net.versions import client_obeys_throttle
from aioproducer.testing.broker.api import (
    admin,
    coordinators,
    fetch,
    metadata,
    offsets,
    produce,
    sasl,
    telemetry,
    transaction_views,
    transactions,
)
from aioproducer.testing.broker.api.context import DisconnectError, LongPoll, RequestContext
from aioproducer.testing.broker.faults import ConnectionFault
from aioproducer.testing.broker.shared_state import SharedState
from aioproducer.testing.broker.transactions.states import V2
from aioproducer.testing.framing import REQUEST_TYPES, RequestHeader, encode_response
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.compiler import compile_struct
from aioproducer.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aioproducer.wire.primitives import MALFORMED, ElementBudget
from aioproducer.wire.schema import Message

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What a client may call itself (KIP-511)."""
_FIRST_VERSION_WITH_SOFTWARE = 3
_FIRST_VERSION_WITH_LEVEL_0 = 4
_TRANSACTION_VERSION = "transaction.version"


class RequestWait(NamedTuple):
    """A long poll in progress: ask again when something watched changes, or at the deadline."""

    poll: LongPoll
    fault: ConnectionFault | None

    @property
    def deadline_ms(self) -> int:
        """The deadline of the response."""
        return self.poll.deadline_ms


@dataclass(frozen=True, slots=True)
class Reply:
    """The actions to take on the connection.

    Attributes:
        frame: The bytes to send, size prefix included; None for nothing.
        delay_ms: How long to hold them back first.
        mute_ms: How long not to read from the connection afterwards (KIP-219).
        close: Why the connection is to be closed after that; None to keep it.
        wait: Set when nothing is to be done yet.
    """

    frame: bytes | None = None
    delay_ms: int = 0
    mute_ms: int = 0
    close: str | None = None
    wait: RequestWait | None = None


class Api(NamedTuple):
    """The versions of one API, and what carries it out."""

    lowest: int
    highest: int
    handler: Callable[[RequestContext, Any], Message | LongPoll | None]
    advertised_lowest: int | None = None
    advertised_highest: int | None = None


def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the served versions."""
    if ctx.version >= _FIRST_VERSION_WITH_SOFTWARE and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=errors.InvalidRequestError.code)
    meant = (request.cluster_id, request.node_id)  # unset before v5 (KIP-1242)
    if request.cluster_id is not None and meant != (ctx.cluster.settings.cluster_id, ctx.node_id):
        return ApiVersionsResponse(error_code=errors.RebootstrapRequiredError.code)
    response = ApiVersionsResponse(api_keys=_advertised(ctx.cluster, ctx.node_id))
    level = ctx.cluster.transaction_version
    response.finalized_features_epoch = ctx.cluster.features_epoch
    if level:
        response.finalized_features = [
            FinalizedFeatureKey(
                name=_TRANSACTION_VERSION, min_version_level=level, max_version_level=level
            )
        ]
    if ctx.version >= _FIRST_VERSION_WITH_LEVEL_0:
        response.supported_features = [
            SupportedFeatureKey(name=_TRANSACTION_VERSION, min_version=0, max_version=V2)
        ]
    return response


SERVED: Mapping[ApiKey, Api] = {
    # Java brokers advertise Produce from 0 although they refuse 0 to 2: older librdkafka sends no
    # compressed batches to a broker that seems to lack them (KAFKA-18659).
    ApiKey.PRODUCE: Api(3, 13, produce.produce, advertised_lowest=0),
    ApiKey.FETCH: Api(4, 17, fetch.fetch),
    ApiKey.LIST_OFFSETS: Api(1, 10, fetch.list_offsets),
    ApiKey.METADATA: Api(0, 13, metadata.metadata),
    ApiKey.FIND_COORDINATOR: Api(0, 6, coordinators.find_coordinator),
    ApiKey.SASL_HANDSHAKE: Api(0, 1, sasl.sasl_handshake),
    ApiKey.SASL_AUTHENTICATE: Api(0, 2, sasl.sasl_authenticate),
    ApiKey.API_VERSIONS: Api(0, 5, api_versions),
    ApiKey.CREATE_TOPICS: Api(2, 7, admin.create_topics),
    ApiKey.DELETE_TOPICS: Api(1, 6, admin.delete_topics),
    ApiKey.INIT_PRODUCER_ID: Api(0, 5, transactions.init_producer_id),
    # Brokers use v4 and v5 among themselves and yet advertise them to every client (KIP-890).
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(
        0, 3, transactions.add_partitions_to_txn, advertised_highest=5
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Api(0, 4, transactions.add_offsets_to_txn),
    ApiKey.END_TXN: Api(0, 5, transactions.end_txn),
    ApiKey.TXN_OFFSET_COMMIT: Api(0, 6, offsets.txn_offset_commit),
    ApiKey.OFFSET_COMMIT: Api(2, 10, offsets.offset_commit),
    ApiKey.OFFSET_FETCH: Api(1, 10, offsets.offset_fetch),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(0, 0, transaction_views.describe_transactions),
    ApiKey.LIST_TRANSACTIONS: Api(0, 2, transaction_views.list_transactions),
    ApiKey.DESCRIBE_CONFIGS: Api(1, 4, admin.describe_configs),
    ApiKey.CREATE_PARTITIONS: Api(0, 3, admin.create_partitions),
    ApiKey.DESCRIBE_CLUSTER: Api(0, 2, metadata.describe_cluster),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api(0, 0, telemetry.get_telemetry_subscriptions),
    ApiKey.PUSH_TELEMETRY: Api(0, 0, telemetry.push_telemetry),
}
"""Everything the simulated brokers serve; nothing else is advertised."""

_WITH_A_PLUGIN = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""What brokers offer only where a metrics reporter takes telemetry (KIP-714)."""


def respond(
    cluster: SharedState,
    node_id: int,
    header: RequestHeader,
    now_ms: int,
    wait: RequestWait | None,
    gate: Callable[[], Reply | None] | None = None,
) -> Reply:
    """Carry out one request; see `ClusterState.respond`."""
    if not cluster.is_live(node_id):
        return Reply(close=f"broker {node_id} is down")
    served = _served_api(cluster, node_id, header.api_key)
    if served is None:
        return Reply(close=f"API {header.api_key} is not served")
    key, api = served
    if not api.lowest <= header.api_version <= api.highest:
        if key is ApiKey.API_VERSIONS:
            return Reply(frame=_unsupported_api_versions(api, header.correlation_id))
        return Reply(close=f"{key.name} v{header.api_version} is not served")
    fault = wait.fault if wait else cluster.faults.take_connection_fault(key, node_id)
    if fault is not None and not fault.apply:
        return _struck(fault, fault.frame, header)
    if gate is not None and (answered := gate()) is not None:
        if fault is None:
            return answered
        struck = _struck(fault, answered.frame, header)
        return replace(struck, close=struck.close or answered.close)
    deadline_ms = wait.deadline_ms if wait else None
    ctx = RequestContext(cluster, node_id, key, header.api_version, now_ms, deadline_ms)
    try:
        if wait is not None and wait.poll.resume is not None:
            outcome = wait.poll.resume(ctx)
        else:
            outcome = api.handler(ctx, _decode(key, header))
    except errors.ProtocolError as error:
        return Reply(close=str(error))
    except DisconnectError as error:
        return Reply(close=str(error))
    if isinstance(outcome, LongPoll):
        return Reply(wait=RequestWait(outcome, fault))
    return _answer(outcome, header, fault)


def _decode(key: ApiKey, header: RequestHeader) -> Message:
    """Return the request message.

    Java brokers ignore bytes after a request's end. We do not, as they are a client's mistake,
    except for Metadata: librdkafka 2.16 asks for all topics in v13 with three bytes too many.
    """
    request_type = REQUEST_TYPES[key]
    if key is not ApiKey.METADATA:
        return request_type.decode(header.body, header.api_version)
    flexible = request_type.is_flexible(header.api_version)
    codec = compile_struct(request_type, header.api_version, flexible)
    try:
        request, _ = codec.decode(header.body, 0, ElementBudget())
    except MALFORMED as error:
        raise errors.ProtocolError(f"malformed {key.name} request: {error}") from error
    return cast(Message, request)


def _answer(
    response: Message | None, header: RequestHeader, fault: ConnectionFault | None
) -> Reply:
    if response is not None and fault is not None and fault.throttle_ms:
        response.throttle_time_ms = fault.throttle_ms  # type: ignore[attr-defined]
    frame = None
    if response is not None:
        frame = encode_response(response, header.api_version, header.correlation_id)
    return Reply(frame) if fault is None else _struck(fault, frame, header)


def _struck(fault: ConnectionFault, frame: bytes | None, header: RequestHeader) -> Reply:
    if not fault.answer:
        frame = None
    elif frame is not None and fault.cut_at is not None:
        frame = frame[: fault.cut_at]
    # Before KIP-219 the broker itself delayed the response, and went on reading after it.
    mutes = client_obeys_throttle(ApiKey(header.api_key), header.api_version)
    return Reply(
        frame,
        delay_ms=fault.delay_ms + (0 if mutes else fault.throttle_ms),
        mute_ms=fault.throttle_ms if mutes else 0,
        close="scripted fault" if fault.close else None,
    )


def _served_api(cluster: SharedState, node_id: int, api_key: int) -> tuple[ApiKey, Api] | None:
    try:
        key = ApiKey(api_key)
    except ValueError:
        return None
    api = SERVED.get(key)
    if key in _WITH_A_PLUGIN and cluster.telemetry.subscription is None:
        return None
    overrides = cluster.settings.api_versions_of(node_id)
    if api is None or key not in overrides:
        return None if api is None else (key, api)
    override = overrides[key]
    return None if override is None else (key, Api(*override, api.handler))


def _advertised(cluster: SharedState, node_id: int) -> list[ApiVersion]:
    served = filter(None, (_served_api(cluster, node_id, key) for key in SERVED))
    return [_range_of(key, api) for key, api in served]


def _range_of(key: ApiKey, api: Api) -> ApiVersion:
    lowest = api.lowest if api.advertised_lowest is None else api.advertised_lowest
    highest = api.highest if api.advertised_highest is None else api.advertised_highest
    return ApiVersion(api_key=int(key), min_version=lowest, max_version=highest)


def _unsupported_api_versions(api: Api, correlation_id: int) -> bytes:
    response = ApiVersionsResponse(
        error_code=errors.UnsupportedVersionError.code,
        api_keys=[_range_of(ApiKey.API_VERSIONS, api)],
    )
    return encode_response(response, 0, correlation_id)
