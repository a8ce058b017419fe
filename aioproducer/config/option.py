"""An option: its names, type, default and limits, and the conversion of text to its value.

Invariants: a value is checked by `Option.checked` wherever it came from; text (files, environment)
goes through `Option.parsed` first; what is kept is text, a number, a truth value or a tuple of
Python's own types, never of a subclass, unless it is an object; no error repeats the value of a
secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from decimal import Decimal
from enum import Enum
from math import isnan
from typing import Any, Final, NamedTuple, TypeVar, cast

from aioproducer._util.arguments import utf8_size
from aioproducer._util.secrets import without_login
from aioproducer.errors import ConfigError

T = TypeVar("T")

_LONGEST_SHOWN: Final = 1000

METADATA_KEY: Final = "option"
"""Where a dataclass field keeps its `Option`."""


class Kind(Enum):
    """Kafka's types of options (`ConfigDef.Type`), `OBJECT` being what Java gives as a class."""

    INT = "int"
    LONG = "long"
    SHORT = "short"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    LIST = "list"
    PASSWORD = "password"
    OBJECT = "object"


class Constraint(NamedTuple):
    """A limit on an option's value, its words for errors and documentation, and its spelling."""

    text: str
    holds: Callable[[Any], bool]
    canonical: Callable[[Any], object] = lambda value: value


_LONGEST_SENDABLE: Final = 32_000
"""Limit in bytes. Kafka's is 32,767, but a client id may contain a transactional id."""

ANYTHING: Final = Constraint("", lambda _: True)


def at_least(low: int) -> Constraint:
    """Limit a number from below."""
    return Constraint(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> Constraint:
    """Limit a number to a closed range."""
    return Constraint(f"between {low} and {high}", lambda value: low <= value <= high)


def one_of(*allowed: object) -> Constraint:
    """Limit a value to a few."""

    def holds(value: object) -> bool:
        # By type too: True is not acks=1.
        return any(type(value) is type(choice) and value == choice for choice in allowed)

    return Constraint(f"one of {', '.join(map(repr, allowed))}", holds)


def one_of_ignoring_case(*allowed: str) -> Constraint:
    """Limit a text to a few, whatever the case they are given in."""
    spelling = {name.lower(): name for name in allowed}
    return one_of(*allowed)._replace(
        canonical=lambda value: spelling.get(str(value).lower(), value)
    )


def sendable(least: int = 0) -> Constraint:
    """Demand text that fits a string of Kafka's protocol."""
    shortest = "not empty and " if least else ""
    return Constraint(
        f"text that is {shortest}at most {_LONGEST_SENDABLE:,} bytes long in UTF-8",
        lambda value: value is None or least <= utf8_size(value) <= _LONGEST_SENDABLE,
    )


def release() -> Constraint:
    """Demand the number of a release of Kafka."""
    return Constraint(
        "a release of Kafka such as '0.9.0'",
        lambda value: re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", value) is not None,
    )


def either(value: object, other: Constraint) -> Constraint:
    """Allow one special value besides what another limit allows."""
    return Constraint(
        f"{value!r} or {other.text}", lambda given: given == value or other.holds(given)
    )


def plain(value: Any) -> object:
    """Return text, a number or a truth value as Python's own type, anything else as it is.

    Members of enumerations that are text or numbers too, other subclasses of these, `Decimal` and
    numpy's scalars are such values. So are proxies, such as Django's lazy objects, of which
    `__class__` is that of what they hold.
    """
    kind = value.__class__
    if kind is not type(value) and kind in (str, bool, int, float):
        value = kind(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return value if isinstance(value, bool) else int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Decimal) and not value.is_nan():  # databases and JSON readers have these
        return float(value)
    if getattr(value, "shape", None) == ():  # a scalar of numpy, which need not be installed
        return getattr(value, "item", lambda: value)()
    return value


def whole(value: object) -> object:
    """Return a float without a fraction as an int, anything else as it is."""
    return int(value) if type(value) is float and value.is_integer() else value


def int_of(value: object) -> int:
    """Return the whole number that a value is, or that text says."""
    number = plain(value)
    if isinstance(number, str):
        try:
            return int(number)
        except ValueError:
            number = float(number)
    number = whole(number)
    if type(number) is not int:
        raise TypeError(f"no whole number: {value!r}")
    return number


def bool_of(value: object) -> bool:
    """Return the truth value that a value is, or that text says."""
    truth = plain(value)
    if isinstance(truth, str):
        truth = _BOOLEANS.get(truth.strip().lower())
    if not isinstance(truth, bool):
        raise ValueError(f"no truth value: {value!r}")
    return truth


_UNITS: Final = {
    "_ms": "milliseconds",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_size": "bytes",
    "_memory": "bytes",
}
"""What numbers count, by a part of the option's name."""
_INTEGER_BITS: Final = {Kind.INT: 31, Kind.LONG: 63, Kind.SHORT: 15}
_EXPECTED: Final = {
    Kind.INT: "a 32-bit int",
    Kind.LONG: "a 64-bit int",
    Kind.SHORT: "a 16-bit int",
    Kind.DOUBLE: "a float",
    Kind.BOOLEAN: "True or False",
    Kind.STRING: "a str",
    Kind.PASSWORD: "a str",
    Kind.LIST: "a str of comma-separated values or a sequence of str",
    Kind.OBJECT: "an object",
}
_BOOLEANS: Final = {"true": True, "false": False}


def _converted(value: object, kind: Kind) -> object:
    """Return a value in the kind's own type where another one says the same."""
    value = plain(value)
    if kind in _INTEGER_BITS:
        return whole(value)
    if kind is Kind.DOUBLE and type(value) is int and value.bit_length() < 64:
        return float(value)
    is_text = isinstance(value, str | bytes | bytearray)
    if kind is Kind.LIST and isinstance(value, Sequence) and not is_text:
        return tuple(map(plain, value))
    return value


def _is_of_kind(value: object, kind: Kind) -> bool:
    if kind in _INTEGER_BITS:
        bound = 1 << _INTEGER_BITS[kind]
        return type(value) is int and -bound <= value < bound
    if kind is Kind.DOUBLE:
        return type(value) is float and not isnan(value)
    if kind is Kind.BOOLEAN:
        return isinstance(value, bool)
    if kind is Kind.LIST and isinstance(value, tuple):
        return all(isinstance(item, str) for item in value)
    return kind is Kind.OBJECT or isinstance(value, str)


class Option(NamedTuple):
    """One row of the option table.

    Attributes:
        kind: Kafka's type.
        doc: What it does, units included.
        default: The value when the user gives none; Kafka 4.4's where Kafka has the option.
        constraint: The limit on its value.
        source: Its origin: "Kafka", a KIP, or "aioproducer".
        required: Whether the user must give it.
        name: The field's name: Kafka's name with underscores.
        kafka_name: Kafka's dotted name.
        is_url: Whether it is a URL, whose login and query are not shown.
    """

    kind: Kind
    doc: str
    default: object = None
    constraint: Constraint = ANYTHING
    source: str = "Kafka"
    required: bool = False
    name: str = ""
    kafka_name: str = ""
    is_url: bool = False

    @property
    def secret(self) -> bool:
        """Whether its value must never be shown."""
        return self.kind is Kind.PASSWORD

    def named(self, name: str) -> Option:
        """Return the row under its field's name."""
        return self._replace(name=name, kafka_name=self.kafka_name or name.replace("_", "."))

    def shown(self, value: object) -> str:
        """Return a value as it may be printed."""
        if self.secret and value is not None:
            return "'***'"
        if self.is_url and isinstance(value, str):
            value = without_login(value)
        shown = repr(value)
        return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."

    def checked(self, value: object) -> object:
        """Return the value in the option's type.

        Raises:
            ConfigError: it has the wrong type or breaks its limit.
        """
        if value is None and self.default is None and not self.required:
            return None
        value = _converted(value, self.kind)
        if not _is_of_kind(value, self.kind):
            raise self._rejection(value, _EXPECTED[self.kind])
        if self.kind is Kind.LIST:
            value = split_list(value)
        elif isinstance(value, list):
            value = tuple(value)
        value = self.constraint.canonical(value)
        if not self.constraint.holds(value):
            raise self._rejection(value, self.constraint.text)
        return value

    def parsed(self, text: str) -> object:
        """Return the value of a text from a file or the environment.

        Raises:
            ConfigError: the text is not of the option's type.
        """
        text = text.strip()
        try:
            if self.kind in _INTEGER_BITS:
                return int_of(text)
            if self.kind is Kind.DOUBLE:
                return float(text)
            if self.kind is Kind.BOOLEAN:
                return bool_of(text)
        except (ValueError, TypeError):
            raise self._rejection(text, _EXPECTED[self.kind]) from None
        return text

    def _rejection(self, value: object, expected: str) -> ConfigError:
        """Return the error that says what would have been a good value."""
        given = self.shown(value)
        if self.secret and value is not None and not isinstance(value, str):
            given = f"a {type(value).__name__}"
        if self.constraint.text.startswith("one of "):
            expected = self.constraint.text
        return ConfigError(
            f"{self.name} must be {expected}, not {given}", advice=self._advice_for(value)
        )

    def _advice_for(self, value: object) -> str | None:
        """Return what to do about a value of the wrong type, where that can be known."""
        if isinstance(value, os.PathLike) and self.kind is not Kind.LIST:
            if self.secret:
                return "it takes the content; the option for a path ends in _location"
            return "give the path as text, as str(path) is"
        if isinstance(value, bytes | bytearray):
            return "give text: value.decode()"
        if isinstance(value, Enum):
            return "give its value: member.value"
        if hasattr(value, "get_secret_value"):  # pydantic's SecretStr and SecretBytes
            return "give its text: value.get_secret_value(), decoded if that is bytes"
        if self.kind in {Kind.STRING, Kind.PASSWORD} and _has_text(value):
            return "give its text: str(value)"
        if isinstance(value, str) and value[:1] in ("'", '"') and value[:1] == value[-1:]:
            return "leave out the quotes"
        if isinstance(value, str) and " #" in value:
            return "put a comment on a separate line"
        unit = next((unit for end, unit in _UNITS.items() if end in self.name), None)
        if self.kind in _INTEGER_BITS and type(value) is not int and unit is not None:
            return f"give a whole number of {unit}"
        if self.name == "bootstrap_servers":
            return "give host:port, several separated by commas or as a list of text"
        return None


def _has_text(value: object) -> bool:
    """Return whether an object of a library has a text, such as Starlette's `Secret` or a URL."""
    kind = type(value)
    return kind.__module__ != "builtins" and kind.__str__ is not object.__str__


def split_list(value: object) -> tuple[str, ...]:
    """Return Kafka's comma-separated list, or a sequence of such lists, as a tuple."""
    text = value if isinstance(value, str) else ",".join(cast("Sequence[str]", value))
    return tuple(item.strip() for item in text.split(",") if item.strip())


_KIND_OF_DEFAULT: Final = {bool: Kind.BOOLEAN, int: Kind.INT, float: Kind.DOUBLE, tuple: Kind.LIST}


def option(
    default: T,
    doc: str,
    constraint: Constraint = ANYTHING,
    *,
    kind: Kind | None = None,
    source: str = "Kafka",
    kafka_name: str = "",
    is_url: bool = False,
) -> T:
    """Declare an option as a dataclass field's default, whose kind is that of the default."""
    kind = kind or _KIND_OF_DEFAULT.get(type(default), Kind.STRING)
    row = Option(kind, doc, default, constraint, source, kafka_name=kafka_name, is_url=is_url)
    return field(default=default, metadata={METADATA_KEY: row})


def long_option(default: int, doc: str, *, low: int = 0, source: str = "Kafka") -> int:
    """Declare an option that is a 64-bit number of at least `low`."""
    return option(default, doc, at_least(low), kind=Kind.LONG, source=source)


def secret_option(doc: str, limit: Constraint = ANYTHING, *, source: str = "Kafka") -> str | None:
    """Declare an option whose value is never shown; None by default."""
    return option(None, doc, limit, kind=Kind.PASSWORD, source=source)
