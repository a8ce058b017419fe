"""SaslHandshake (17): chooses the SASL mechanism of a connection.

After v0 the tokens follow as bare frames, after v1 as SaslAuthenticate requests (KIP-152).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, array, f, int16, string, struct


@struct
class SaslHandshakeResponse(Message):
    """Whether the broker takes it, and the mechanisms it has."""

    API_KEY = ApiKey.SASL_HANDSHAKE
    VALID_VERSIONS = (0, 1)

    error_code: int = f(int16, "0+")
    mechanisms: list[str] = f(array(string), "0+")


@struct
class SaslHandshakeRequest(Message):
    """The mechanism the client wants."""

    API_KEY = ApiKey.SASL_HANDSHAKE
    VALID_VERSIONS = (0, 1)
    RESPONSE = SaslHandshakeResponse

    mechanism: str = f(string, "0+")
