"""From this producer's errors to another client's; the original is the `__cause__`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from aioproducer import errors as ours
from aioproducer._util import causes

_WRAPPERS: Final = (
    ours.BatchRefusedError,
    ours.FatalTransactionError,
    ours.TransactionAbortableError,
)


def root_of(error: ours.KafkaError) -> ours.KafkaError:
    """Return the error that made a transaction or a batch fail, or the error itself."""
    return causes.root_of(error, _WRAPPERS, ours.KafkaError)


class Translation(NamedTuple):
    """A mapping of our errors to those of a client.

    Attributes:
        rows: Our classes with theirs; the first row that fits counts.
        for_code: Their class of a broker's error code.
        authentication: Their class of refused credentials.
        anything: Their class of everything else.
        raised: The class to raise for one of theirs.
        timeout: Their class of a `TimeoutError`; None leaves it as it is.
    """

    rows: Sequence[tuple[type[Exception], type[Exception]]]
    for_code: Callable[[int], type[Exception]]
    authentication: type[Exception]
    anything: type[Exception]
    raised: Callable[[type[Exception]], type[Exception]]
    timeout: type[Exception] | None = None

    def translated(self, error: ours.KafkaError) -> Exception:
        """Return the client's error, with ours as its cause."""
        result = self.raised(self._class_for(root_of(error)))(str(error))
        result.__cause__ = error
        return result

    def translating(self) -> Self:
        """Return the context whose block raises in the client's terms; a generator costs more."""
        return self

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ours.KafkaError):
            raise self.translated(error) from error
        if isinstance(error, TimeoutError) and self.timeout is not None:
            raise self.raised(self.timeout)(str(error)) from error

    def _class_for(self, error: ours.KafkaError) -> type[Exception]:
        if isinstance(error, _WRAPPERS):
            return self.anything
        for known, theirs in self.rows:
            if isinstance(error, known):
                return theirs
        if isinstance(error, ours.BrokerError):
            return self.for_code(error.code)
        if isinstance(error, ours.AuthenticationError):
            return self.authentication
        return self.anything
