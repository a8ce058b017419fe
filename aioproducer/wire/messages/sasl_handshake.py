"""SaslHandshake (17): chooses the SASL mechanism of a connection.

After v0 the tokens follow as bare frames, after v1 as SaslAuthenticate requests (KIP-152).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, array, f, struct


@struct
class SaslHandshakeResponse(Message, api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    """The result, and the broker's mechanisms."""

    error_code: int = f("int16", "0+")
    mechanisms: list[str] = f(array("string"), "0+")


@struct
class SaslHandshakeRequest(Message, response=SaslHandshakeResponse):
    """The mechanism the client wants."""

    mechanism: str = f("string", "0+")
