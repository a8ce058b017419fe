"""Search for secrets where they must not be.

Owns: the list of secrets, the collecting of everything a test can see. Not here: how secrets
are used. Every secret of a security test is made by `secret()`, so that one search finds them all.
"""

from __future__ import annotations

import base64
import io
import logging
import pickle
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote_plus

from support.frames import shown_by

_known: list[str] = []


def secret(text: str) -> str:
    """Declares a text that nothing may show, and gives it back."""
    if text not in _known:
        _known.append(text)
    return text


class Evidence:
    """Everything that was logged, shown or pickled meanwhile."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._bytes: list[bytes] = []

    def text(self, text: str) -> None:
        """Something a person could read."""
        self._texts.append(text)

    def add(self, thing: object) -> None:
        """An object: how it shows itself, and how it pickles if it does."""
        self._texts += [repr(thing), str(thing)]
        try:
            self._bytes.append(pickle.dumps(thing))
        except (TypeError, AttributeError, pickle.PicklingError):
            pass
        if isinstance(thing, BaseException):
            self._texts += traceback.format_exception(thing)
            self._texts.append(shown_by(thing))
            for other in (thing.__cause__, thing.__context__):
                if other is not None:
                    self.add(other)

    def found(self) -> list[str]:
        """The secrets in it, each with its surroundings."""
        text = "\n".join(self._texts)
        data = b"".join(self._bytes)
        found = []
        for known in _known:
            for form in _forms(known):
                at = text.find(form)
                if at >= 0:
                    found.append(text[max(0, at - 80) : at + len(form) + 20])
                if form.encode() in data:
                    found.append(f"a pickle with {form}")
        return found


def _forms(known: str) -> set[str]:
    encoded = base64.b64encode(known.encode()).decode().rstrip("=")
    return {known, encoded, quote_plus(known), repr(known)[1:-1]}


@contextmanager
def collected() -> Iterator[Evidence]:
    """Collects all log records, at every level, with their tracebacks."""
    evidence = Evidence()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s %(args)r"))

    def search_frames(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            evidence.text(shown_by(record.exc_info[1]))
        return True

    handler.addFilter(search_frames)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield evidence
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        evidence.text(stream.getvalue())
