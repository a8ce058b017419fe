"""PushTelemetry (72): sends client metrics to the broker (KIP-714).

The last push before closing says so with `terminating`, and may come before its time.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import (
    ApiKey,
    Message,
    blob,
    boolean,
    f,
    int8,
    int16,
    int32,
    struct,
    uuid,
)


@struct
class PushTelemetryResponse(
    Message, api_key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible_from=0
):
    """The result of the push."""

    throttle_time_ms: int = f(int32, "0+")
    error_code: int = f(int16, "0+")


@struct
class PushTelemetryRequest(
    Message,
    api_key=ApiKey.PUSH_TELEMETRY,
    versions=(0, 0),
    flexible_from=0,
    response=PushTelemetryResponse,
):
    """Metrics in OpenTelemetry's protobuf encoding, perhaps compressed."""

    client_instance_id: UUID = f(uuid, "0+")
    subscription_id: int = f(int32, "0+")
    terminating: bool = f(boolean, "0+")
    compression_type: int = f(int8, "0+")
    metrics: bytes = f(blob, "0+")
