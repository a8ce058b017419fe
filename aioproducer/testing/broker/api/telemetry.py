"""GetTelemetrySubscriptions (71) and PushTelemetry (72): metrics of clients (KIP-714)."""

from __future__ import annotations

from struct import error as StructError  # noqa: N812 - the exception of a function library
from uuid import UUID

from aioproducer import errors
from aioproducer.testing.broker.api.context import RequestContext
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.telemetry import ReceivedMetrics, decompressed, read_otlp
from aioproducer.wire.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)


def get_telemetry_subscriptions(
    ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the subscription, and an id for a client without one."""
    scripted = ctx.scripted_error(None)
    subscription = ctx.cluster.telemetry.subscription
    if scripted is not None or subscription is None:
        code = errors.UnsupportedVersionError.code if scripted is None else scripted.code
        return GetTelemetrySubscriptionsResponse(error_code=code)
    client_id = request.client_instance_id
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_id if client_id.int else ctx.cluster.new_uuid(),
        subscription_id=subscription.id,
        accepted_compression_types=list(subscription.codecs),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=subscription.max_bytes,
        delta_temporality=subscription.delta,
        requested_metrics=list(subscription.metrics),
    )


def push_telemetry(ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take metrics, or say why not."""

    def take() -> None:
        try:
            data = decompressed(bytes(request.metrics), request.compression_type)
            resource, points = read_otlp(data)
        except (errors.ProtocolError, ValueError, IndexError, KeyError, StructError) as error:
            raise RefusedError(errors.InvalidRecordError) from error
        ctx.cluster.telemetry.push(
            ReceivedMetrics(
                client_instance_id=UUID(int=request.client_instance_id.int),
                node_id=ctx.node_id,
                at_ms=ctx.now_ms,
                terminating=request.terminating,
                codec=request.compression_type,
                data=data,
                resource=resource,
                points=points,
            ),
            request.subscription_id,
            len(request.metrics),
        )

    outcome = ctx.attempt(take, ctx.scripted_error(None))
    return PushTelemetryResponse(error_code=outcome.code)
