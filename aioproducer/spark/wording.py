"""Errors in the words of the user of a data source: options as they were written, no values.

Spark prints errors in its log and keeps them in its event log. An option's value may be a secret
that was pasted into the wrong option, so errors about options quote none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Final

from aioproducer._util.causes import chain_of
from aioproducer.config import OPTIONS
from aioproducer.config.reading import all_names, option_set_by
from aioproducer.errors import ConfigError, KafkaError

KAFKA: Final = "kafka."
"""What the producer's options begin with."""
FROM_ENVIRONMENT: Final = ".env"
"""The suffix of options whose value is the name of an environment variable."""

VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
"""The form of an environment variable's name; anything else may be the secret itself."""
_HIDDEN: Final = "the value given"
_SHORTEST: Final = 4
"""Parts of values below this many characters are hidden only where they are quoted."""


@contextmanager
def option_errors(kafka: Mapping[str, str]) -> Iterator[None]:
    """Rewrite the errors that leave this block; `kafka` are options without that prefix."""
    try:
        yield
    except KafkaError as error:
        for each in chain_of(error):
            if isinstance(each, KafkaError):
                each.args = (_reworded(each.message, each, kafka), *each.args[1:])
                if each.advice:
                    each.advice = _reworded(each.advice, each, kafka)
        if isinstance(error, ConfigError):
            # Its cause may quote the value too.
            error.__cause__, error.__suppress_context__ = None, True
        raise


def _reworded(text: str, error: KafkaError, kafka: Mapping[str, str]) -> str:
    is_config = isinstance(error, ConfigError)
    text = _renamed(text, kafka, is_config=is_config)
    return without_values(text, _values(kafka)) if is_config else text


# -- names -----------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"(?P<tick>`?)(?<![\w.'\"])(?P<name>\w+(?:\.\w+)*)(?![\w'\"])(?P=tick)")


def _renamed(text: str, kafka: Mapping[str, str], *, is_config: bool) -> str:
    """Return the text with `kafka.linger.ms`, or what the user wrote for it, for `linger_ms`."""
    text = re.sub(r"[\w.]+ \(given as ([\w.]+)\)", r"\1", text)
    written = {name.removesuffix(FROM_ENVIRONMENT) for name in kafka}
    by_row = {row.name: name for name in sorted(written) if (row := option_set_by(name))}

    def user_name(found: re.Match[str]) -> str:
        name = found["name"]
        # Options such as `acks` are words as well.
        is_option = re.search(r"[._]", name) or found["tick"] or (is_config and found.start() == 0)
        if is_option and name in OPTIONS:
            name = by_row.get(name, OPTIONS[name].kafka_name)
        elif not is_option or name not in written:
            return found[0]
        return f"{found['tick']}{KAFKA}{name}{found['tick']}"

    return _NAME.sub(user_name, text)


# -- values ----------------------------------------------------------------------------------------


def _values(kafka: Mapping[str, str]) -> list[str]:
    """Return the values that may be secrets: the names of variables are none."""
    return [
        value
        for name, value in kafka.items()
        if not (name.endswith(FROM_ENVIRONMENT) and VARIABLE.fullmatch(value))
    ]


_SEPARATORS: Final = re.compile(
    r"[\s,;=:\"'\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]+"
)
_BEGINNING: Final = 32
_BEFORE: Final = (
    r"(?:(?<![\w.])|(?<=\\[nrtfv])|(?<=\\x[0-9a-f]{2})|(?<=\\u[0-9a-f]{4})|"
    r"(?<=\\U[0-9a-f]{8}))"
)
"""What is before a word: texts of errors have escapes for line ends and the like."""


def without_values(text: str, values: Iterable[str]) -> str:
    """Return the text without these values of options and without the words they consist of.

    One pass replaces everything: a value such as `given` does not change the replacement of another
    one. Names of options stay, even if a value is part of one, such as `kafka`.
    """
    parts = {part for value in values for part in (value, value.strip(), *_SEPARATORS.split(value))}
    parts -= {part for part in parts if not part or part.lower() in _vocabulary()}
    if not parts:
        return text
    # The longest comes first: an option's name is kept unless it is the beginning of a value.
    names = {name for name in _DOTTED.findall(text) if name.removeprefix(KAFKA) in _names()}
    longest = sorted(parts | names, key=lambda part: (-len(part), part))
    forms = (
        _forms(part) if part in parts else rf"{_BEFORE}{re.escape(part)}(?!\w)" for part in longest
    )
    pattern = re.compile("|".join(forms))

    def replacement(found: re.Match[str]) -> str:
        if found[0].startswith(", not "):
            return ""
        return found[0] if found[0] in names else _HIDDEN

    return pattern.sub(replacement, text)


def _forms(part: str) -> str:
    """Return a pattern of the forms in which a text may have a part of a value."""
    plain, quoted = re.escape(part), re.escape(repr(part))
    forms = [f", not {quoted}", f", not {plain}$", quoted]
    if len(part) > _BEGINNING:  # a long one may have been shortened
        forms.append(rf"{_BEFORE}{re.escape(part[:_BEGINNING])}\S*")
    if len(part) >= _SHORTEST:
        forms.insert(3, rf"{_BEFORE}{plain}(?!\w)")
    return "|".join(forms)


_DOTTED: Final = re.compile(r"kafka(?:\.\w+)+")


@cache
def _names() -> frozenset[str]:
    """Return the names of all clients' options: they are public."""
    return frozenset(all_names(dotted=True)) | frozenset(all_names(dotted=False))


@cache
def _vocabulary() -> frozenset[str]:
    """Return the words that options may be: they are public, even if a user gave them."""
    texts = [row.constraint.text for row in OPTIONS.values()]
    words = {word.lower() for text in texts for word in re.findall(r"'([^']+)'", text)}
    return frozenset(words | {"true", "false"})
