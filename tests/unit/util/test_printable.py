"""Text of the application's objects, which may raise when they are shown."""

from __future__ import annotations

from aioproducer._util.printable import exception_without_data, repr_of


class UnprintableError(TypeError):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise LookupError("no text")

    __repr__ = __str__


def test_an_object_is_shown_by_its_repr_or_its_type() -> None:
    assert repr_of("text") == "'text'"
    assert repr_of(UnprintableError()) == "<UnprintableError, whose repr() failed>"


def test_an_exception_whose_text_raises_is_shown_by_its_class() -> None:
    assert exception_without_data(UnprintableError()) == "UnprintableError"
