"""The transactional calls that may be made now: librdkafka's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aioproducer.blocking.fork_safe_lock import ForkSafeLock
from aioproducer.compat.confluent import _errors as errors
from aioproducer.compat.confluent._errors import KafkaError
from aioproducer.compat.confluent._translation import translating

_INIT: Final = "init_transactions"


def check_produce(check: Callable[[], object] | None) -> None:
    """Raise what `produce()` raises unless a transaction is open; None: nothing has started."""
    if check is None:
        raise refused_by_produce(KafkaError._STATE)
    try:
        with translating():
            check()
    except errors.KafkaException as error:
        if not error.args[0].fatal():
            raise
        raise refused_by_produce(KafkaError._FATAL, fatal=True) from error.__cause__


def refused_by_produce(code: int, **flags: bool) -> errors.KafkaException:
    """Return the exception of a `produce()` that fails by a code of librdkafka's."""
    return errors.exception(code, f"Unable to produce message: {errors.text_of(code)}", **flags)


class TransactionalCalls:
    """The call that is being made, or that has run out of time and has to be made again."""

    def __init__(self, configured: bool) -> None:
        self._configured = configured
        self._initialized = False
        self._current: str | None = None
        self._is_running = False
        self._lock = ForkSafeLock()

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        """Make a call in the block, or raise the error of a call that is not allowed now.

        That is `_NOT_CONFIGURED` without a `transactional.id`, `_CONFLICT` while another call has
        not ended, `_PREV_IN_PROGRESS` while another thread makes the same, and `_STATE` before
        `init_transactions()` was successful.
        """
        if not self._configured:
            raise errors.exception(
                KafkaError._NOT_CONFIGURED,
                "The Transactional API requires transactional.id to be configured",
            )
        self._begin(name)
        try:
            yield
        except errors.KafkaException as error:
            self._end(to_be_resumed=error.args[0].code() == KafkaError._TIMED_OUT)
            raise
        except BaseException:
            self._end(to_be_resumed=False)
            raise
        self._initialized = True
        self._end(to_be_resumed=False)

    def _begin(self, name: str) -> None:
        with self._lock:
            if self._current not in (None, name):
                raise errors.exception(
                    KafkaError._CONFLICT,
                    f"Conflicting {self._current} API call is already in progress",
                    retriable=True,
                )
            if self._is_running:
                raise errors.exception(
                    KafkaError._PREV_IN_PROGRESS,
                    f"Simultaneous {name} API calls not allowed",
                    retriable=True,
                )
            if not self._initialized and name != _INIT:
                raise errors.exception(KafkaError._STATE, "Operation not valid in state Init")
            self._current, self._is_running = name, True

    def _end(self, *, to_be_resumed: bool) -> None:
        with self._lock:
            self._is_running = False
            if not to_be_resumed:
                self._current = None
