"""The errors of this package: their facts, their text, and the mapping of broker codes to classes.

Invariants: an error carries facts (topic, node, time ...) as attributes, never inside its message;
every error pickles and copies with its facts; a broker code belongs to exactly one class. All
classes have `aioproducer.errors` as their module, so that pickles outlive a move of a class.
"""

from __future__ import annotations

import re
from copy import copy
from typing import Any, ClassVar, Self, TypedDict, Unpack

from aioproducer._util.printable import printable
from aioproducer.errors.advice import ADVICE, joined
from aioproducer.types import Persistence

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "ErrorFacts",
    "InvalidMetadataError",
    "KafkaError",
    "RetriableBrokerError",
    "UnknownBrokerError",
    "error_for_code",
    "error_from_code",
]

_HOME = "aioproducer.errors"
_LONGEST_MESSAGE = 4000
_LONGEST_REMOTE_TEXT = 500


class ErrorFacts(TypedDict, total=False):
    """The facts an error may carry; None means not known."""

    topic: str | None
    partition: int | None
    node_id: int | None
    elapsed_ms: int | None
    persistence: Persistence | None
    advice: str | None


_FACT_NAMES = frozenset(ErrorFacts.__annotations__)


class KafkaError(Exception):
    """The root of every error this package raises.

    Attributes:
        message: What went wrong, without the facts below.
        topic: The topic concerned.
        partition: The partition concerned.
        node_id: The broker concerned; negative ids are bootstrap servers.
        elapsed_ms: How long the operation had been going on.
        persistence: Whether the record may be in the broker's log.
        advice: What to do about it.
        retriable: Whether the same operation may succeed when tried again.
    """

    __module__ = _HOME

    default_message: ClassVar[str] = ""
    retriable: bool = False
    topic: str | None = None
    partition: int | None = None
    node_id: int | None = None
    elapsed_ms: int | None = None
    persistence: Persistence | None = None
    advice: str | None = None

    def __init_subclass__(cls, *, advice: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if advice is not None:
            cls.advice = ADVICE[advice]
        if cls.__module__.startswith("aioproducer.errors."):
            cls.__module__ = _HOME

    def __init__(self, message: str | None = None, **facts: Unpack[ErrorFacts]) -> None:
        super().__init__(
            self.default_message if message is None else printable(str(message), _LONGEST_MESSAGE)
        )
        self._learn(facts)

    @property
    def message(self) -> str:
        """The error's message, without the facts."""
        return printable(str(self.args[0]), _LONGEST_MESSAGE) if self.args else self.default_message

    def with_context(self, **facts: Unpack[ErrorFacts]) -> Self:
        """Return a copy of this error with `facts` added; a fact of None changes nothing."""
        clone = copy(self)
        clone.__cause__ = self.__cause__
        clone.__suppress_context__ = self.__suppress_context__
        clone._learn(facts)
        return clone

    def __copy__(self) -> Self:
        """Return a copy; the constructor is not called: subclasses may have another one."""
        clone = type(self).__new__(type(self), *self.args)
        clone.args = self.args
        clone.__dict__.update(self.__dict__)
        return clone

    def _learn(self, facts: ErrorFacts) -> None:
        if not _FACT_NAMES.issuperset(facts):
            unknown = ", ".join(sorted(set(facts) - _FACT_NAMES))
            raise TypeError(f"{type(self).__name__} has no fact named {unknown}")
        self.__dict__.update({name: fact for name, fact in facts.items() if fact is not None})
        if isinstance(self.topic, str):  # a member of an enumeration is formatted otherwise
            self.__dict__["topic"] = str.__str__(self.topic)
        advice = self.__dict__.get("advice")
        if advice is not None:
            self.__dict__["advice"] = printable(advice, _LONGEST_MESSAGE)

    def _headline(self) -> str:
        return self.message or type(self).__name__

    def because_of(self, cause: KafkaError) -> Self:
        """Return a copy whose text ends with the cause's, with the advice of both."""
        text = f"{self.message}: {cause.without_advice()}"
        clone = copy(self)
        clone.args = (text, *self.args[1:])
        clone._learn({"advice": joined(cause.advice, self.advice)})
        clone.__cause__ = cause
        return clone

    def __str__(self) -> str:
        text = self.without_advice()
        return f"{text} -> {self.advice}" if self.advice else text

    def without_advice(self) -> str:
        """Return the text up to the advice: what went wrong, with the facts."""
        known = [
            f"{label} {printable(str(fact))}"
            for label, fact in (("topic", self.topic), ("partition", self.partition))
            if fact is not None
        ]
        if self.node_id is not None:
            known.append(name_of_node(self.node_id))
        if self.elapsed_ms is not None:
            known.append(f"after {self.elapsed_ms} ms")
        if self.persistence is not None:
            known.append(self.persistence.value)
        text = self._headline()
        if known:
            text += f" [{', '.join(known)}]"
        return text


def name_of_node(node_id: int) -> str:
    """Return a broker's name for messages; a negative id is the place of a bootstrap server."""
    return f"node {node_id}" if node_id >= 0 else f"bootstrap server {-node_id}"


_BY_CODE: dict[int, type[BrokerError]] = {}
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class BrokerError(KafkaError):
    """An error code a broker answered; its subclasses are the rows of one table.

    A class statement is a row: `class NotLeaderOrFollowerError(InvalidMetadataError, code=6)`. The
    protocol's name follows from the class name unless the row gives it, the default message is the
    docstring, `advice` names a text of `ADVICE`, and the family it derives from says whether a
    retry makes sense.

    Attributes:
        code: The number on the wire.
        error_name: Kafka's name of the code.
        refreshes_metadata: Whether the client's view of the cluster is to be refreshed.
    """

    default_message: ClassVar[str] = ""
    code: int = -1
    error_name: str = "UNKNOWN_SERVER_ERROR"
    refreshes_metadata: bool = False

    def __init_subclass__(
        cls, *, code: int | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if code is None:
            return
        if code in _BY_CODE:
            raise TypeError(f"broker code {code} has a class already: {_BY_CODE[code].__name__}")
        cls.code = code
        cls.error_name = name or _WORD.sub("_", cls.__name__.removesuffix("Error")).upper()
        cls.default_message = cls.__doc__ or cls.error_name
        _BY_CODE[code] = cls

    def _headline(self) -> str:
        return f"{self.error_name} ({self.code}): {self.message}"


class UnknownBrokerError(BrokerError):
    """The broker answered a code that this client has no class for; `code` is the instance's."""

    default_message: ClassVar[str] = "The broker answered a code that this client does not support."
    code: int = -1
    error_name: str = "UNKNOWN_CODE"

    def __init__(
        self, message: str | None = None, *, code: int = -1, **facts: Unpack[ErrorFacts]
    ) -> None:
        super().__init__(message, **facts)
        self.code = code
        self.error_name = f"UNKNOWN_CODE_{code}"


class RetriableBrokerError(BrokerError):
    """A broker error that may go away when the request is sent again."""

    retriable: bool = True


class InvalidMetadataError(RetriableBrokerError):
    """A broker error that says the client's view of the cluster is out of date."""

    refreshes_metadata: bool = True


class AuthorizationError(BrokerError, advice="not-authorized"):
    """The broker has authenticated the client and does not allow its request.

    Attributes:
        principal: The client's identity for the broker, as far as its options show.
        operation: The operation that it is not allowed, such as WRITE.
        resource: The resource, such as topic 'orders'.
    """

    principal: str | None = None
    operation: str | None = None
    resource: str | None = None

    def with_access(self, principal: str, operation: str, resource: str) -> Self:
        """Return a copy that names the principal and the missing permission."""
        clone = self.with_context()
        clone.principal, clone.operation, clone.resource = principal, operation, resource
        return clone

    def _headline(self) -> str:
        text = super()._headline()
        if self.principal is None:
            return text
        needs = f"{self.principal} needs {self.operation} on {self.resource}"
        return f"{text.rstrip('.')}: {needs}"


class AuthenticationError(KafkaError, advice="authentication-failed"):
    """The broker refused the client's identity, or the client the broker's."""


def error_for_code(code: int) -> type[BrokerError]:
    """Return the class of a broker code; `UnknownBrokerError` for codes newer than this client.

    Raises:
        ValueError: `code` is 0, which says that nothing is wrong.
    """
    if code == 0:
        raise ValueError("code 0 is no error")
    return _BY_CODE.get(code, UnknownBrokerError)


def error_from_code(
    code: int, message: str | None = None, **facts: Unpack[ErrorFacts]
) -> BrokerError:
    """Return the error for a broker code; a `message` from the broker replaces the default one."""
    error_class = error_for_code(code)
    message = printable(message or "", _LONGEST_REMOTE_TEXT)
    if issubclass(error_class, UnknownBrokerError):
        return error_class(message or None, code=code, **facts)
    return error_class(message or None, **facts)


def raise_for_code(code: int, message: str | None = None, **facts: Unpack[ErrorFacts]) -> None:
    """Raise the error for a broker code; 0 is none."""
    if code:
        raise error_from_code(code, message, **facts)
