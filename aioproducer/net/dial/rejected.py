"""RefusedDialError: an error of a `Dialer` that no retry can resolve."""

from __future__ import annotations

from aioproducer.errors import AuthenticationError


class RefusedDialError(OSError):
    """The connection was refused by the client, the broker or a proxy; `error` is for users."""

    def __init__(self, error: AuthenticationError) -> None:
        super().__init__(error.message)
        self.error: AuthenticationError = error
