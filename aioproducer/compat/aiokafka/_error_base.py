"""The roots of aiokafka's errors, and the class to raise for one (`shared_class`).

Invariants
- Where aiokafka is installed, an error that is raised is an instance of its class of the same name
  as well. aiokafka is imported then, as a handler names its class after that.
- Every error pickles as one of this package; where it is read, it is of both classes if aiokafka
  is installed there.
"""

from __future__ import annotations

import re
from typing import ClassVar

from aioproducer.compat._shared_classes import AnyError
from aioproducer.compat._shared_classes import shared_class as _shared_class

__all__ = ["BrokerResponseError", "KafkaError", "for_code", "kafka_errors"]

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class KafkaError(RuntimeError):
    """The root of the errors, apart from `IllegalOperation` and `ConsumerStoppedError`.

    Further facts (whether the record may be written, which broker, advice) are in `__cause__`, an
    `aioproducer.KafkaError`.

    Attributes:
        retriable: Whether the same call may succeed when it is made again.
        invalid_metadata: Whether the client's view of the cluster was out of date.
    """

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False

    def __str__(self) -> str:
        name = type(self).__name__
        # Not `super()`: in a class of both families that would be aiokafka's, with the name again.
        return f"{name}: {RuntimeError.__str__(self)}" if self.args else name


class BrokerResponseError(KafkaError):
    """The root of the errors that have a code.

    Attributes:
        errno: The code.
        message: The code's name, as aiokafka spells it.
    """

    errno: ClassVar[int] = -1
    message: ClassVar[str] = "UNKNOWN"
    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        *,
        errno: int | None = None,
        message: str | None = None,
        retriable: bool = False,
        stale: bool = False,
    ) -> None:
        super().__init_subclass__()
        if errno is None:  # a user's class, or one that `shared_class` makes
            return
        cls.errno = errno
        cls.retriable = retriable or stale
        cls.invalid_metadata = stale
        cls.message = message or _WORD.sub("_", cls.__name__.removesuffix("Error")).upper()
        kafka_errors[errno] = cls

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


kafka_errors: dict[int, type[BrokerResponseError]] = {}
"""The class of each code."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of a code; `UnknownError` for codes that aiokafka lacks."""
    return kafka_errors.get(error_code, kafka_errors[-1])


def shared_class(error_class: type[AnyError]) -> type[AnyError]:
    """Return the class to raise: also a subclass of aiokafka's, if that is installed."""
    return _shared_class(error_class, "aiokafka.errors")
