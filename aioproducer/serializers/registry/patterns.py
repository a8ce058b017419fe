"""Regular expressions of schemas, searched for in bounded time and memory.

A pattern such as `^(a|aa)+$` takes Python's `re` exponential time, which holds the event loop up
and cannot be interrupted. So `re` only parses patterns, and the package `regex` searches for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log10
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Final

MAX_PATTERN: Final = 10_000
"""Limit of a pattern, in characters."""

MAX_SIZE: Final = 50_000
"""Limit of all patterns of a schema with their repeats, in characters (300 bytes each)."""

_SEARCH_S: Final = 0.5
_ENDLESS: Final = 10_000
"""The number of rounds that a repeat without an end counts as."""

_LINEAR: Final = log10(_ENDLESS) + 2.0
"""The logarithm of the ways that linear time allows: one repeat without end, and 100 others."""

_REPEATS: Final = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
_ESCAPED: Final = r"\\N\{[^}]*\}|\\."
_SET: Final = r"\[\^?\]?(?:\\.|[^\\\]])*\]"
_BRACE: Final = r"\{(?!\d*,?\d*\})"
"""A brace that does not begin a repeat; in the package `regex`, `{e<=1}` allows an error."""
_SPECIAL: Final = re.compile(f"({_ESCAPED})|({_SET})|{_BRACE}", re.DOTALL)
_BRACKET: Final = re.compile(rf"({_ESCAPED})|\[", re.DOTALL)
"""A bracket within a set; in the package `regex`, `[:alpha:]` is a set of letters there."""


class PatternError(Exception):
    """A pattern is malformed, or cannot be matched within bounds."""


class Pattern:
    """One regular expression, with the meaning that it has for `re`.

    Attributes:
        size: How many characters it has with its repeats written out, as `regex` compiles it.
        is_linear: Whether `re` takes linear time for it.
    """

    def __init__(self, text: str) -> None:
        import regex

        if len(text) > MAX_PATTERN:
            raise PatternError(f"a pattern of {len(text)} characters is too long")
        try:
            tree = sre_parser.parse(text)
            self.size: int = _size(tree)
            if self.size > MAX_SIZE:
                raise PatternError("a pattern is too large to be matched within bounds")
            self._compiled = regex.compile(_SPECIAL.sub(_plain, text), cache_pattern=False)
        except (re.error, regex.error, RecursionError, OverflowError, MemoryError):
            raise PatternError("a pattern is malformed") from None
        is_anchored = len(tree) and tree[0] == (sre.AT, sre.AT_BEGINNING)
        if not is_anchored or tree.state.flags & re.MULTILINE:
            ways = _ways(tree) + log10(_ENDLESS)  # it is tried at each place
        else:
            ways = _ways(tree)
        self.is_linear: bool = ways <= _LINEAR

    def is_found_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text."""
        try:
            return self._compiled.search(text, timeout=_SEARCH_S) is not None
        except (TimeoutError, MemoryError):
            raise PatternError("a text is too long for a pattern of this kind") from None


def _plain(found: re.Match[str]) -> str:
    """Return a part of a pattern in which `regex` finds nothing that `re` does not."""
    if found[2]:
        return "[" + _BRACKET.sub(lambda inner: inner[1] or r"\[", found[2][1:])
    return found[1] or r"\{"


def _size(tree: Any) -> int:
    size = 0
    for operator, given in tree:
        rounds = max(given[0], 1) if operator in _REPEATS else 1
        size += rounds * max(1, sum(map(_size, _inner(given))))
    return size


def _ways(tree: Any) -> float:
    """Return the logarithm of the number of ways in which a pattern may match a text."""
    ways = 0.0
    for operator, given in tree:
        inner = [_ways(each) for each in _inner(given)]
        if operator in _REPEATS:
            low, high = (min(rounds, _ENDLESS) for rounds in given[:2])
            ways += inner[0] * high + log10(high - low + 1)
        elif operator is sre.BRANCH:
            ways += max(inner) + log10(len(inner))
        elif operator is sre.GROUPREF:
            ways += log10(_ENDLESS)
        else:
            ways += sum(inner)
    return ways


def _inner(given: Any) -> Iterator[Any]:
    """Yield the patterns within one element of a pattern."""
    if isinstance(given, sre_parser.SubPattern):
        yield given
    elif isinstance(given, list | tuple):
        for each in given:
            yield from _inner(each)
