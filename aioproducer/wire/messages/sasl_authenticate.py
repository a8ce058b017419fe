"""SaslAuthenticate (36): one step of a SASL exchange (KIP-152).

v1 has the lifetime of the session, after which it must be authenticated again (KIP-368). The tokens
are secrets, or prove them: no repr shows them.
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, f, struct


@struct
class SaslAuthenticateResponse(
    Message, api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible_from=2
):
    """The broker's token, or why it refuses."""

    error_code: int = f("int16", "0+")
    error_message: str | None = f("string", "0+", nullable="0+")
    auth_bytes: bytes = f("bytes", "0+")
    session_lifetime_ms: int = f("int64", "1+", ignorable=True)

    def __repr__(self) -> str:
        return f"SaslAuthenticateResponse(error_code={self.error_code}, auth_bytes=***)"


@struct
class SaslAuthenticateRequest(Message, response=SaslAuthenticateResponse):
    """The client's token."""

    auth_bytes: bytes = f("bytes", "0+")

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(auth_bytes=***)"
