"""Messages of client telemetry (KIP-714).

- GetTelemetrySubscriptions (71): which client metrics the broker wants (KIP-714). The first answer
  gives the client its instance id; the subscription id changes whenever the subscription does, and
  PushTelemetry must name the one in force.
- PushTelemetry (72): sends client metrics to the broker (KIP-714). The last push before closing
  says so with `terminating`, and may come before its time.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import ApiKey, Message, array, f, struct


@struct
class GetTelemetrySubscriptionsResponse(
    Message, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible_from=0
):
    """The metrics to push, the interval, and the maximum size."""

    throttle_time_ms: int = f("int32", "0+")
    error_code: int = f("int16", "0+")
    client_instance_id: UUID = f("uuid", "0+")
    subscription_id: int = f("int32", "0+")
    accepted_compression_types: list[int] = f(array("int8"), "0+")
    push_interval_ms: int = f("int32", "0+")
    telemetry_max_bytes: int = f("int32", "0+")
    delta_temporality: bool = f("bool", "0+")
    requested_metrics: list[str] = f(array("string"), "0+")


@struct
class GetTelemetrySubscriptionsRequest(Message, response=GetTelemetrySubscriptionsResponse):
    """Asks for the subscription; a zero id asks for a new client id as well."""

    client_instance_id: UUID = f("uuid", "0+")


@struct
class PushTelemetryResponse(
    Message, api_key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible_from=0
):
    """The result of the push."""

    throttle_time_ms: int = f("int32", "0+")
    error_code: int = f("int16", "0+")


@struct
class PushTelemetryRequest(Message, response=PushTelemetryResponse):
    """Metrics in OpenTelemetry's protobuf encoding, perhaps compressed."""

    client_instance_id: UUID = f("uuid", "0+")
    subscription_id: int = f("int32", "0+")
    terminating: bool = f("bool", "0+")
    compression_type: int = f("int8", "0+")
    metrics: bytes = f("bytes", "0+")
