"""Keeping secrets out of what crash reporters collect: frames, chained exceptions, pickles.

Reporters such as Sentry or rich show the locals of every frame of a traceback. Start with
`hides_arguments`, for functions that take options or credentials, and with `cleared`, for errors.
"""

from __future__ import annotations

import base64
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, Final, NoReturn, Self, SupportsIndex, TypeVar
from urllib.parse import quote, quote_plus

from aioproducer._util.causes import chain_of

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=BaseException)

_COROUTINE: Final = 0x80  # inspect.CO_COROUTINE
_USER_INFO: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
"""Up to the last `@`: a password that is not percent-encoded may contain `/`, `?` and `#`."""
_HIDDEN: Final = "***"
_SHORTEST: Final = 4
_RECOGNISED: Final = 16
_OPTION_NAME: Final = re.compile(r"[a-z0-9._-]{1,80}|[A-Za-z0-9._-]{1,40}")


class _Arguments:
    """The arguments of a call, which a reporter shows as this object."""

    __slots__ = ("by_name", "by_place")

    def __init__(self, by_place: tuple[Any, ...], by_name: dict[str, Any]) -> None:
        self.by_place = by_place
        self.by_name = by_name


def hides_arguments(function: F) -> F:
    """Decorate a function whose arguments may be secrets: no frame of its errors shows them."""

    if function.__code__.co_flags & _COROUTINE:
        return _hiding_coroutine(function)

    @wraps(function)
    def called(*by_place: Any, **by_name: Any) -> Any:
        arguments = _Arguments(by_place, by_name)
        del by_place, by_name
        outer = sys.exception()
        try:
            return function(*arguments.by_place, **arguments.by_name)
        except BaseException as error:
            cleared(error, outer)
            raise

    if function.__name__ == "__init__":
        # `inspect.getfullargspec` ignores `__wrapped__`; programs find a client's options with it.
        called.__dict__["__signature__"] = inspect.signature(function)
    return called  # type: ignore[return-value]


def _hiding_coroutine(function: F) -> F:
    @wraps(function)
    async def called(*by_place: Any, **by_name: Any) -> Any:
        arguments = _Arguments(by_place, by_name)
        del by_place, by_name
        outer = sys.exception()
        try:
            return await function(*arguments.by_place, **arguments.by_name)
        except BaseException as error:
            cleared(error, outer)
            raise

    return called  # type: ignore[return-value]


def cleared(error: E, outer: BaseException | None = None) -> E:
    """Drop the locals of all frames that an error and its chain went through; return it.

    Frames that still run keep theirs. A context that `raise ... from None` hides is dropped, and so
    is the text that errors of decoders hold. `outer`, which was being handled before, stays as it
    is.
    """
    from traceback import clear_frames

    for each in chain_of(error, outer):
        clear_frames(each.__traceback__)
        if each.__suppress_context__ and each.__context__ is not each.__cause__:
            each.__context__ = None
        if isinstance(each, UnicodeError):
            _drop_text(each)
        elif isinstance(each, ValueError) and hasattr(each, "doc"):  # of json
            each.doc = ""
    return error


def _drop_text(error: UnicodeError) -> None:
    if isinstance(error, UnicodeDecodeError):
        error.object = b""
        error.args = (error.encoding, b"", error.start, error.end, error.reason)
    elif isinstance(error, UnicodeEncodeError):
        error.object = ""
        error.args = (error.encoding, "", error.start, error.end, error.reason)


class Unpicklable:
    """A base for values that hold a secret: copied within a process, but not pickled."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse, so that no secret gets into a file or a message by accident."""
        raise TypeError(
            f"{type(self).__name__} is not pickled: it holds a secret; pass on where the secret is "
            "found instead"
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def without_login(url: str) -> str:
    """Return a URL or an address as it may be shown: no user, password, query or fragment."""
    text = _USER_INFO.sub(lambda found: f"{found[1] or ''}***@", url)
    for mark in "?#":
        before, found, _ = text.partition(mark)
        text = f"{before}{found}***" if found else before
    return text


def without_secrets(text: str, sent: Iterable[str | None]) -> str:
    """Return a peer's text without the secrets that it was sent, however it has encoded them.

    Servers quote the request in their refusals. Secrets of less than four characters are kept, as
    their absence from the text would give them away. It has to be the whole text: the beginning of
    a secret at its end would not be found.
    """
    for form in sorted({form for secret in sent for form in _forms(secret or "")}, key=len)[::-1]:
        if len(form) > _RECOGNISED:  # it may have been shortened
            text = re.sub(re.escape(form[:_RECOGNISED]) + r"[^\s\"'<>,;]*", _HIDDEN, text)
        text = text.replace(form, _HIDDEN)
    return text


def _forms(secret: str) -> Iterator[str]:
    if len(secret) < _SHORTEST:
        return
    data = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield quote(data, safe="")
    yield quote_plus(data)
    yield json.dumps(secret)[1:-1]
    for encoded in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        yield encoded.decode().rstrip("=")


def shown_name(name: str) -> str:
    """Return the name of an option as it may be shown, or a text in place of what may be a secret.

    A line of a key that was broken in a properties file has the form of an option's name.
    """
    if _OPTION_NAME.fullmatch(name):
        return name
    return f"of {len(name)} characters (not shown: it may be part of a secret)"
