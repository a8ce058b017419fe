"""Regular expressions of schemas, matched in time that grows with the text and not faster.

A pattern such as `^(a+)+$` takes Python's `re` exponential time, which holds the event loop up and
cannot be interrupted. Start with `Pattern`: it uses `re` where a bound of its steps is known to be
small, and else follows all ways through the pattern at once (Thompson's construction).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from re import _compiler as sre_compiler  # type: ignore[attr-defined]
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from threading import Lock
from typing import Any, Final, Generic, TypeVar

MAX_PATTERN: Final = 10_000
"""How long a pattern may be, in characters."""

_MAX_STATES: Final = 20_000
_MAX_STEPS: Final = 2_000_000
"""How many steps `re` may take by our estimate: some tens of milliseconds."""

_MAX_WORK: Final = 500_000
"""How many of our own steps: half a second. What has been seen before costs next to nothing."""

_MAX_KNOWN: Final = 10_000
_MAX_KNOWN_STATES: Final = 100_000
"""How many states the known steps of one machine have together: 64 bytes each."""

_MAX_CHARACTERS: Final = 200_000
"""How many characters the patterns that are kept have together: some 200 bytes each."""

_LEAST_CHARACTERS: Final = 100
"""As how many the shortest pattern counts."""

_MAX_STATES_KEPT: Final = 60_000
"""How many states the machines that are kept have together: up to 1 kB each, with known steps."""

_FEW_ROUNDS: Final = 10
_FEW_WAYS: Final = 100
"""Up to as many, ways are a constant factor."""

_MOST_DEGREES: Final = 10


class PatternError(Exception):
    """A pattern is malformed, or cannot be matched within bounds."""


class Pattern:
    """One regular expression, searched for as JSON Schema does.

    Raises:
        PatternError: It is malformed or too long.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN:
            raise PatternError(f"a pattern of {len(text)} characters is too long")
        try:
            tree = sre_parser.parse(text)
            # Not by `re.compile`, which would keep 512 of them.
            self._compiled = sre_compiler.compile(tree)
        except (re.error, RecursionError, OverflowError, MemoryError):
            raise PatternError("a pattern is malformed") from None
        self._text = text
        self._cost = _cost_of(tree)

    @property
    def is_linear(self) -> bool:
        """Whether `re` takes linear time for it."""
        return self._cost.steps(1 << 20) == 0

    def is_found_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text.

        Raises:
            PatternError: That cannot be decided within bounds.
        """
        if not text or self._cost.steps(len(text)) <= _MAX_STEPS:
            return self._compiled.search(text) is not None
        machine = _machines.get(self._text)
        if machine is None:
            machine = _Machine(sre_parser.parse(self._text), self._compiled.flags)
            _machines.keep(self._text, machine, machine.size)
        return machine.is_found_in(text)


def pattern(text: str) -> Pattern:
    """Return a pattern, made once as long as it is in use.

    Raises:
        PatternError: It is malformed or too long.
    """
    found = _patterns.get(text)
    if found is None:
        found = Pattern(text)
        _patterns.keep(text, found, max(len(text), _LEAST_CHARACTERS))
    return found


_Kept = TypeVar("_Kept")


class _Cache(Generic[_Kept]):
    """The objects used last, up to a total size; for several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._kept: OrderedDict[str, tuple[_Kept, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, text: str) -> _Kept | None:
        with self._lock:
            if text not in self._kept:
                return None
            self._kept.move_to_end(text)
            return self._kept[text][0]

    def keep(self, text: str, made: _Kept, size: int) -> None:
        with self._lock:
            if text in self._kept:  # another thread has made it meanwhile
                return
            self._kept[text] = made, size
            self._size += size
            while self._size > self._capacity:
                _, (_, gone) = self._kept.popitem(last=False)
                self._size -= gone


# -- how many steps `re` may take ------------------------------------------------------------------


@dataclass(slots=True)
class _Cost:
    """A bound of the steps of a backtracking search: `size * ways * n ** degree`, or none."""

    size: int = 0
    ways: int = 1
    degree: int = 0
    ahead: int = 0
    """The degree of the costliest assertion, which is tried once for each way up to it."""
    is_bounded: bool = True

    @property
    def has_choice(self) -> bool:
        """Whether it can match in several ways."""
        return self.ways > 1 or self.degree > 0

    def steps(self, length: int) -> float:
        """Return how many steps a text may take; 0 for what is linear."""
        degree = max(self.degree, self.ahead)
        if not self.is_bounded or self.ways > _MAX_STEPS or degree > _MOST_DEGREES:
            return inf
        if degree <= 1 and self.ways <= _FEW_WAYS:
            return 0
        return float(self.size * self.ways) * float(max(length, 1)) ** degree


def _cost_of(tree: Any) -> _Cost:
    cost = _measured(tree)
    if not (len(tree) and tree[0] == (sre.AT, sre.AT_BEGINNING)) or tree.state.flags & re.MULTILINE:
        cost.degree += 1  # it is tried at each place
        cost.ahead += 1
    return cost


def _measured(tree: Any) -> _Cost:
    cost = _Cost()
    for operator, given in tree:
        cost.size += 1
        if operator in _REPEATS:
            _repeat_cost(cost, *given)
        elif operator is sre.BRANCH:
            branches = [_measured(each) for each in given[1]]
            cost.ways *= sum(each.ways for each in branches)
            cost.degree += max(each.degree for each in branches)
            for each in branches:
                _join(cost, each)
        elif operator is sre.GROUPREF:
            cost.degree += 1
        elif operator in (sre.ASSERT, sre.ASSERT_NOT):
            inner = _measured(given[1])
            cost.ahead = max(cost.ahead, cost.degree + max(inner.degree, inner.ahead))
            cost.size += inner.size * inner.ways
            cost.is_bounded = cost.is_bounded and inner.is_bounded
        else:
            for each in map(_measured, _inner(operator, given)):
                cost.ways *= each.ways
                cost.degree += each.degree
                _join(cost, each)
    return cost


def _repeat_cost(cost: _Cost, low: int, high: int, inner: Any) -> None:
    each = _measured(inner)
    if each.has_choice and high > _FEW_ROUNDS:
        cost.is_bounded = False  # ways multiply with every round
    elif each.has_choice:
        cost.ways *= each.ways**high * (high - low + 1)
        cost.degree += each.degree * high
    elif high > _FEW_WAYS:
        cost.degree += 1
    else:
        cost.ways *= high - low + 1
    _join(cost, each)


def _join(cost: _Cost, inner: _Cost) -> None:
    cost.size += inner.size
    cost.ahead = max(cost.ahead, cost.degree + inner.ahead if inner.ahead else 0)
    cost.is_bounded = cost.is_bounded and inner.is_bounded


def _inner(operator: Any, given: Any) -> list[Any]:
    """Return the patterns within one element that is neither repeat, branch nor assertion."""
    if operator is sre.SUBPATTERN:
        return [given[3]]
    if operator is sre.ATOMIC_GROUP:
        return [given]
    if operator is sre.GROUPREF_EXISTS:
        return [each for each in given[1:] if each is not None]
    return []


_WORDS: Final = frozenset({sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY})
_REPEATS: Final = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


# -- all ways at once ------------------------------------------------------------------------------

_Test = Callable[[str], Any]


class _Machine:
    """A nondeterministic automaton; states are numbers.

    A state is a character's test and what follows, or a place's test (`^`, `$`, `\\b`) and what
    follows, or a fork.
    """

    def __init__(self, tree: Any, flags: int) -> None:
        self._flags = flags & (re.IGNORECASE | re.MULTILINE | re.DOTALL | re.ASCII)
        self._tests: list[_Test | None] = []
        self._places: list[Any] = []
        self._next: list[tuple[int, ...]] = []
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._known_states = 0
        self._made: dict[tuple[Any, Any], _Test] = {}
        self._end = self._state(None, None, ())
        try:
            self._start = self._sequence(tree, self._end)
        except RecursionError:
            raise PatternError("a pattern is nested too deeply") from None
        # What follows depends on the character alone, except at the ends of the text.
        lines = bool(self._flags & re.MULTILINE)
        self._is_simple = not lines and _WORDS.isdisjoint(self._places)
        self._made.clear()

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self._next)

    def is_found_in(self, text: str) -> bool:
        current = frozenset(self._closed([self._start], text, 0))
        last = len(text) - 2  # the places after it differ: `$` may match there
        work = 0
        for at, character in enumerate(text):
            if self._end in current:
                return True
            key = (current, character)
            known = self._known.get(key) if self._is_simple and at < last else None
            if known is None:
                known = frozenset(self._after(current, text, at))
                work += len(current) + len(known) + 1
                if work > _MAX_WORK:
                    raise PatternError("a text is too long for a pattern of this kind")
                if self._is_simple and at < last:
                    self._remember(key, known)
            current = known
        return self._end in current

    def _remember(self, key: tuple[frozenset[int], str], known: frozenset[int]) -> None:
        self._known_states += len(known) + 1
        if len(self._known) >= _MAX_KNOWN or self._known_states > _MAX_KNOWN_STATES:
            self._known.clear()
            self._known_states = len(known) + 1
        self._known[key] = known

    def _after(self, current: Iterable[int], text: str, at: int) -> set[int]:
        """Return the states after one character."""
        following = {self._start}
        for state in current:
            test = self._tests[state]
            if test is not None and test(text[at]):
                following.update(self._next[state])
        return self._closed(following, text, at + 1)

    def _closed(self, states: Iterable[int], text: str, at: int) -> set[int]:
        """Return these states and all that are reached without a character."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            place = self._places[state]
            if self._tests[state] is None and (place is None or self._holds(place, text, at)):
                waiting += self._next[state]
        return found

    def _holds(self, place: Any, text: str, at: int) -> bool:
        if place is sre.AT_BEGINNING_STRING or place is sre.AT_BEGINNING:
            lines = place is sre.AT_BEGINNING and self._flags & re.MULTILINE
            return at == 0 or bool(lines and text[at - 1] == "\n")
        if place is sre.AT_END_STRING:
            return at == len(text)
        if place is sre.AT_END:
            is_last = at == len(text) or (at == len(text) - 1 and text[at] == "\n")
            return is_last or bool(self._flags & re.MULTILINE and text[at] == "\n")
        word = re.compile(r"\w", self._flags & re.ASCII)
        before = at > 0 and word.match(text[at - 1]) is not None
        behind = at < len(text) and word.match(text[at]) is not None
        return (before != behind) == (place is sre.AT_BOUNDARY)

    # -- making it

    def _state(self, test: _Test | None, place: Any, following: tuple[int, ...]) -> int:
        if len(self._next) >= _MAX_STATES:
            raise PatternError("a pattern is too large to be matched within bounds")
        self._tests.append(test)
        self._places.append(place)
        self._next.append(following)
        return len(self._next) - 1

    def _sequence(self, tree: Any, following: int) -> int:
        for operator, given in reversed(list(tree)):
            following = self._element(operator, given, following)
        return following

    def _element(self, operator: Any, given: Any, following: int) -> int:
        if operator in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN, sre.CATEGORY):
            return self._state(self._test(operator, given), None, (following,))
        if operator is sre.AT:
            return self._state(None, given, (following,))
        if operator is sre.SUBPATTERN:
            if given[1] or given[2]:
                raise PatternError("a pattern has flags inside, which are not supported")
            return self._sequence(given[3], following)
        if operator is sre.BRANCH:
            ways = tuple(self._sequence(each, following) for each in given[1])
            return self._state(None, None, ways)
        if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            low, high, inner = given
            return self._repeat(low, high, inner, following)
        raise PatternError(
            "a pattern with references, assertions or atomic groups cannot be matched within bounds"
        )

    def _repeat(self, low: int, high: int, inner: Any, following: int) -> int:
        if high == sre.MAXREPEAT:
            loop = self._state(None, None, ())
            self._next[loop] = (self._sequence(inner, loop), following)
            start = loop
        else:
            start = following
            for _ in range(high - low):
                start = self._state(None, None, (self._sequence(inner, start), following))
        for _ in range(low):
            start = self._sequence(inner, start)
        return start

    def _test(self, operator: Any, given: Any) -> _Test:
        """Return a function that checks one character, by `re` itself."""
        # A repeat makes states of the same part of the tree again and again.
        key = operator, id(given) if isinstance(given, list) else given
        made = self._made.get(key)
        if made is None:
            source = sre_parser.SubPattern(sre_parser.State(), [(operator, given)])
            source.state.flags = self._flags & re.ASCII or re.UNICODE
            made = self._made[key] = sre_compiler.compile(source, self._flags).match
        return made


_patterns: Final[_Cache[Pattern]] = _Cache(_MAX_CHARACTERS)
_machines: Final[_Cache[_Machine]] = _Cache(_MAX_STATES_KEPT)
