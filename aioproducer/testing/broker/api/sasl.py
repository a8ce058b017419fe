"""SASL on a listener without authentication: the responses of a broker that lets all clients in."""

from __future__ import annotations

from aioproducer import errors
from aioproducer.testing.broker.api.context import RequestContext
from aioproducer.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse it (Java: KafkaApis.handleSaslHandshakeRequest)."""
    return SaslHandshakeResponse(error_code=errors.IllegalSaslStateError.code)


def sasl_authenticate(
    ctx: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Refuse it (Java: KafkaApis.handleSaslAuthenticateRequest)."""
    return SaslAuthenticateResponse(
        error_code=errors.IllegalSaslStateError.code,
        error_message="SaslAuthenticate request received after successful authentication",
    )
