"""The root of aiokafka's errors, and what ties ours to theirs.

Owns: `KafkaError` as aiokafka shows it, and `kin`: the class that is really raised. Must not know:
any single error.

Invariants
- aiokafka is never imported here. A handler such as `except aiokafka.errors.KafkaError` can only
  stand in a program that has imported it, so it is looked up when an error is raised; the error
  then is one of ours and one of theirs of the same name.
- Every error pickles as ours.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from aioproducer.compat._kin import AnyError, counterpart, joined

__all__ = ["KafkaError", "kin"]


class KafkaError(RuntimeError):
    """The root of the errors, apart from `IllegalOperation` and `ConsumerStoppedError`.

    Where this producer knows more (whether the record may be written, which broker, what to do), it
    stands in `__cause__`, an `aioproducer.KafkaError`.

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


def kin(error_class: type[AnyError]) -> type[AnyError]:
    """The class to raise for one of ours: also a subclass of aiokafka's, where that is loaded."""
    own: Any = error_class
    theirs = counterpart("aiokafka.errors", own.__name__)
    return error_class if theirs is None else cast("type[AnyError]", joined(own, theirs))
