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
class PushTelemetryResponse(Message):
    """Whether they were taken."""

    API_KEY = ApiKey.PUSH_TELEMETRY
    VALID_VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = f(int32, "0+")
    error_code: int = f(int16, "0+")


@struct
class PushTelemetryRequest(Message):
    """Metrics in OpenTelemetry's protobuf encoding, perhaps compressed."""

    API_KEY = ApiKey.PUSH_TELEMETRY
    VALID_VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0
    RESPONSE = PushTelemetryResponse

    client_instance_id: UUID = f(uuid, "0+")
    subscription_id: int = f(int32, "0+")
    terminating: bool = f(boolean, "0+")
    compression_type: int = f(int8, "0+")
    metrics: bytes = f(blob, "0+")
