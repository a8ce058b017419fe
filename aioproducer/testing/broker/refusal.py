"""The one exception with which the simulated broker refuses (part of) a request, as in KIP-467."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.errors import BrokerError

_LONGEST_MESSAGE = 1000


class RefusedError(Exception):
    """A broker's "no": an error of the broker error table, a text, maybe the records at fault."""

    def __init__(
        self,
        error: type[BrokerError],
        message: str | None = None,
        *,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(message or error.error_name)
        self.error = error
        # A text may quote what a client sent, and a classic string ends at 32767 bytes.
        self.message: str | None = message and message[:_LONGEST_MESSAGE]
        self.record_errors: tuple[tuple[int, str], ...] = tuple(record_errors)
        self.log_start_offset = -1
        """Where the log begins, once the batch got as far as the log."""

    @property
    def code(self) -> int:
        """The error code that goes over the wire."""
        return self.error.code
