"""A dial that was refused for good, as an error a `Dialer` may raise.

Owns: `RefusedDialError`. Must not know: who refuses whom.
"""

from __future__ import annotations

from aioproducer.errors import AuthenticationError


class RefusedDialError(OSError):
    """Somebody on the way refuses us, or we them; `error` is what users get to see."""

    def __init__(self, error: AuthenticationError) -> None:
        super().__init__(error.message)
        self.error: AuthenticationError = error
