"""The end of a `with` block."""

from __future__ import annotations

from types import TracebackType


class ClosedOnLeaving:
    """Is closed at the end of its `with` block."""

    def close(self) -> object:
        """Release everything; safe to call again."""
        raise NotImplementedError

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
