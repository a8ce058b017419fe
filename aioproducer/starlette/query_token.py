"""The token in the query of a request, such as `/live/?token=...`, kept out of logs.

Servers such as uvicorn log the query of each request and WebSocket, as it is in the ASGI scope when
the application answers.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Scope

from aioproducer._util.secrets import Unpicklable

_KEPT: Final = "aioproducer.query_token"


class _Token(Unpicklable):
    """A token in a scope, which crash reporters show as this object."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value


def take_token(scope: Scope) -> str:
    """Return the token in the query of a request, and remove it from the query.

    Call it before the response starts, with the scope that the server made: it then logs the
    request without the token. Later calls return the same token.

    Args:
        scope: The ASGI scope of a request or a WebSocket.

    Returns:
        The value of the query's last `token`; empty without one.
    """
    kept = scope.get(_KEPT)
    if kept is None:
        token, others = "", []
        for part in scope.get("query_string", b"").split(b"&"):
            pairs = parse_qsl(part.decode("latin-1"), keep_blank_values=True)
            if pairs and pairs[0][0] == "token":
                token = pairs[0][1]
            else:
                others.append(part)
        kept = scope[_KEPT] = _Token(token)
        scope["query_string"] = b"&".join(others)
    return str(kept.value)
