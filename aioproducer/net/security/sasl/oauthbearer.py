"""OAUTHBEARER (RFC 7628; KIP-255, KIP-342): a bearer token and extensions."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from aioproducer._util.bounded_json import decoded_object
from aioproducer._util.secrets import without_secrets
from aioproducer.errors import AuthenticationError
from aioproducer.net.security.tokens import CachedTokens

_SEPARATOR = "\x01"
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_NAME = re.compile(r"[A-Za-z]+")
_SHOWN = 200
_LONGEST_ANSWER = 64 * 1024
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class OAuthBearer:
    """The mechanism OAUTHBEARER."""

    name: str = "OAUTHBEARER"

    def __init__(self, tokens: CachedTokens) -> None:
        self._tokens = tokens

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        """Send one message; a broker that refuses the token sends a status to acknowledge."""
        token = await self._tokens.token()
        if not _TOKEN.fullmatch(token.value):
            raise AuthenticationError("the OAuth token has characters no bearer token may have")
        extensions = []
        for name, value in token.extensions.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name == "auth":
                raise AuthenticationError(f"{name!r} is not a usable SASL extension")
            extensions.append(f"{name}={value}{_SEPARATOR}")
        message = f"auth=Bearer {token.value}{_SEPARATOR}{''.join(extensions)}{_SEPARATOR}"
        try:
            answer = yield f"n,,{_SEPARATOR}{message}".encode()
            if answer:
                # The broker answers this with the actual error, which ends the exchange.
                yield _SEPARATOR.encode()
                status = without_secrets(_status(answer), [token.value, *token.extensions.values()])
                raise AuthenticationError(f"the broker refused the OAuth token: {status[:_SHOWN]}")
        except AuthenticationError:
            self._tokens.on_refused(token)
            raise


def _status(answer: bytes) -> str:
    status = decoded_object(answer, _LONGEST_ANSWER).get("status")
    return status if isinstance(status, str) else "no reason given"
