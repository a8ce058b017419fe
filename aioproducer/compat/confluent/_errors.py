"""confluent-kafka's `KafkaError` and `KafkaException`.

Where confluent-kafka is installed, exceptions are instances of its classes as well; so is
`KafkaError` in a program that has imported it.
"""

from __future__ import annotations

import operator
from functools import total_ordering
from typing import Any, Final

from aioproducer.compat._shared_classes import counterpart
from aioproducer.compat._shared_classes import shared_class as _shared_class
from aioproducer.compat.confluent._codes import NAMES, Codes

__all__ = [
    "KafkaError",
    "KafkaException",
    "KeySerializationError",
    "ProduceError",
    "SerializationError",
    "ValueSerializationError",
]

_TEXTS: Final = {
    "INVALID_MSG": "Invalid message",
    "MSG_SIZE_TOO_LARGE": "Message size too large",
    "NO_ERROR": "Success",
    "TOPIC_EXCEPTION": "Invalid topic",
    "UNKNOWN": "Unknown broker error",
    "UNKNOWN_TOPIC_OR_PART": "Unknown topic or partition",
    "_ALL_BROKERS_DOWN": "All broker connections are down",
    "_AUTHENTICATION": "Authentication failure",
    "_BAD_MSG": "Bad message format",
    "_DESTROY": "Broker handle destroyed for termination",
    "_FAIL": "Communication failure with broker",
    "_FATAL": "Fatal error",
    "_FENCED": "This instance has been fenced by a newer instance",
    "_INVALID_ARG": "Invalid argument or configuration",
    "_KEY_SERIALIZATION": "Key serialization error",
    "_MSG_TIMED_OUT": "Message timed out",
    "_NOT_CONFIGURED": "Functionality not configured",
    "_PURGE_INFLIGHT": "Purged in flight",
    "_PURGE_QUEUE": "Purged in queue",
    "_RESOLVE": "Host resolution failure",
    "_SSL": "SSL error",
    "_STATE": "Erroneous state",
    "_TRANSPORT": "Broker transport failure",
    "_VALUE_SERIALIZATION": "Value serialization error",
}
"""Texts that do not follow from the name."""

Text = str
"""`str` is a method below."""


@total_ordering
class KafkaError(Codes, Exception):
    """The error of a call or a record; equal to its code and to errors of the same code.

    Callbacks get it and may raise it; what calls raise is a `KafkaException`, which has it as
    `args[0]`.

    Args:
        error: The code, one of the constants of this class.
        reason: A text; librdkafka's for the code when left out.
        fatal: Whether the producer cannot go on.
        retriable: Whether the same call may succeed when it is made again.
        txn_requires_abort: Whether the transaction has to be aborted.
    """

    def __init__(
        self,
        error: int,
        reason: Text | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = operator.index(error)
        self._reason = text_of(self._code) if reason is None else reason
        self._fatal = fatal
        self._retriable = retriable
        self._txn_requires_abort = txn_requires_abort

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # No subclass of theirs is an exception to Python; `isinstance()` asks for this as well.
        return counterpart("confluent_kafka", "KafkaError") or KafkaError

    def code(self) -> int:
        """Return the number: a broker's on the wire, or one of librdkafka's below zero."""
        return self._code

    def name(self) -> Text:
        """Return the name of the code, as the constant of this class."""
        return _name_of(self._code)

    def str(self) -> Text:
        """Return the text."""
        return self._reason

    def fatal(self) -> bool:
        """Return whether the producer cannot go on."""
        return self._fatal

    def retriable(self) -> bool:
        """Return whether the same call may succeed when it is made again."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Return whether the transaction has to be aborted."""
        return self._txn_requires_abort

    def __eq__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code == code

    def __lt__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code < code

    def __index__(self) -> int:  # for `==` of theirs with one of these
        return self._code

    def __hash__(self) -> int:
        return hash(self._code)

    def __repr__(self) -> Text:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self._reason}"}}'

    def __str__(self) -> Text:
        return repr(self)

    def __reduce__(self) -> tuple[Any, ...]:
        flags = (self._fatal, self._retriable, self._txn_requires_abort)
        return KafkaError, (self._code, self._reason, *flags)


class KafkaException(Exception):  # noqa: N818 - its name there
    """The exception that calls raise; `args[0]` is the `KafkaError`.

    More details of this producer (whether the record may be written, which broker, what to do) are
    in `__cause__`, an `aioproducer.KafkaError`.
    """


class SerializationError(KafkaException):
    """A key or value cannot be serialized."""


class ProduceError(KafkaException):
    """A record cannot be produced.

    Attributes:
        exception: What was raised.
    """

    def __init__(self, kafka_error: KafkaError, exception: BaseException | None = None) -> None:
        # By name: the next class may be confluent-kafka's, whose arguments are others.
        Exception.__init__(self, kafka_error)
        self.exception: BaseException | None = exception

    @property
    def code(self) -> int:
        """The code of the error."""
        return int(self.args[0].code())

    @property
    def name(self) -> str:
        """The name of the code."""
        return str(self.args[0].name())


class KeySerializationError(ProduceError, SerializationError):
    """The key's serializer has raised `exception`."""

    def __init__(self, exception: BaseException | KafkaError | None = None) -> None:
        _init_serialization_error(self, KafkaError._KEY_SERIALIZATION, exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The value's serializer has raised `exception`."""

    def __init__(self, exception: BaseException | KafkaError | None = None) -> None:
        _init_serialization_error(self, KafkaError._VALUE_SERIALIZATION, exception)


def _init_serialization_error(made: ProduceError, code: int, cause: Any) -> None:
    if isinstance(cause, KafkaError):  # a copy or a pickle is made with `args`
        ProduceError.__init__(made, cause)
    else:
        ProduceError.__init__(made, KafkaError(code, str(cause)), cause)


def shared_class(own: Any) -> Any:
    """Return the class to raise: also confluent-kafka's, where that is installed."""
    return _shared_class(own, "confluent_kafka.error")


def exception(code: int, reason: str | None = None, **flags: bool) -> KafkaException:
    """Return a `KafkaException` to raise."""
    made: KafkaException = shared_class(KafkaException)(KafkaError(code, reason, **flags))
    return made


def _name_of(code: int) -> str:
    return NAMES.get(code, f"ERR_{code}?")


def text_of(code: int) -> str:
    """Return librdkafka's text for a code.

    Those of rare codes come from confluent-kafka if it is loaded, and otherwise from the name.
    """
    if code not in NAMES:
        return f"Err-{code}?"
    theirs = counterpart("confluent_kafka", "KafkaError")
    if theirs is not None:
        return str(theirs(code).str())
    name = _name_of(code)
    text = _TEXTS.get(name) or name.strip("_").replace("_", " ").capitalize()
    if code in (0, -1):
        return text
    return f"{'Local' if code < -1 else 'Broker'}: {text}"


def _code_of(other: object) -> int | None:
    if isinstance(other, int):
        return other
    code = getattr(other, "code", None)
    number = code() if callable(code) else None
    return number if isinstance(number, int) else None
