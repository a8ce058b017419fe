"""States as bytes (to go back to one) and as fingerprints (to recognize one).

A snapshot is a pickle of the whole object graph. What never changes is shared between all states.
A fingerprint reads the same graph: objects are numbered in the order in which they are met, loop
times are relative to now, and what decides nothing is left out.
"""

from __future__ import annotations

import copyreg
import io
import marshal
import pickle
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from math import inf
from operator import attrgetter
from types import CellType, FunctionType, MappingProxyType, MethodType
from typing import Any
from uuid import UUID

from aioproducer.core.metadata.cluster import Cluster
from aioproducer.errors import KafkaError
from aioproducer.types import TopicMetadata

_SHARED: list[object] = []
_PLACES: dict[int, int] = {}
_ERRORS: dict[object, int] = {}
_CODE: dict[object, FunctionType] = {}


def share(thing: object) -> object:
    """All states have this very object: it never changes, or decides nothing."""
    if id(thing) not in _PLACES:
        _PLACES[id(thing)] = len(_SHARED)
        _SHARED.append(thing)
    return thing


def _shared(place: int) -> object:
    return _SHARED[place]


def _reduce_error(error: KafkaError) -> tuple[Any, ...]:
    # Which batch an error was about makes no difference once its outcome has been noted.
    key = type(error), error.persistence, error.retriable
    if key not in _ERRORS:
        share(error)
        _ERRORS[key] = _PLACES[id(error)]
    return _shared, (_ERRORS[key],)


def _make_function(key: object) -> FunctionType:
    before = _CODE[key]
    cells = tuple(CellType() for _ in before.__closure__ or ())
    return FunctionType(
        before.__code__, before.__globals__, before.__name__, before.__defaults__, cells
    )


def _fill_cells(function: FunctionType, contents: tuple[object, ...]) -> None:
    for cell, content in zip(function.__closure__ or (), contents, strict=True):
        cell.cell_contents = content


def _reduce_function(function: FunctionType) -> tuple[Any, ...]:
    if not function.__closure__:
        share(function)
        return _shared, (_PLACES[id(function)],)
    key = function.__module__, function.__qualname__
    _CODE.setdefault(key, function)
    contents = tuple(cell.cell_contents for cell in function.__closure__)
    return _make_function, (key,), contents, None, None, _fill_cells


def _make_cluster(*fields: Any) -> Cluster:
    cluster = Cluster()
    cluster.cluster_id, cluster.controller_id, cluster.nodes = fields[:3]
    cluster._table, cluster._changed = fields[3:]
    cluster.topics = MappingProxyType(cluster._table)
    return cluster


def _reduce_cluster(cluster: Cluster) -> tuple[Any, ...]:
    share(cluster.nodes)
    return _make_cluster, (
        cluster.cluster_id,
        cluster.controller_id,
        cluster.nodes,
        cluster._table,
        cluster._changed,
    )


def _reduce_shared(thing: object) -> tuple[Any, ...]:
    share(thing)
    return _shared, (_PLACES[id(thing)],)


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table.copy()
    dispatch_table[Cluster] = _reduce_cluster
    dispatch_table[TopicMetadata] = _reduce_shared
    dispatch_table[MappingProxyType] = _reduce_shared
    dispatch_table[UUID] = _reduce_shared

    def reducer_override(self, thing: Any) -> Any:
        place = _PLACES.get(id(thing))
        if place is not None:
            return _shared, (place,)
        if type(thing) is FunctionType and "<" in thing.__qualname__:
            return _reduce_function(thing)
        if isinstance(thing, KafkaError):
            return _reduce_error(thing)
        return NotImplemented


def snapshot(world: object) -> bytes:
    """A state as bytes."""
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(world)
    return out.getvalue()


restore: Callable[[bytes], Any] = pickle.loads
"""The state that a snapshot was made of, as another object."""


# -- fingerprints --------------------------------------------------------------------------------

_PLAIN = frozenset({int, str, bool, bytes, type(None)})
_LONG_AGO = -2.0
"""Seconds: what is longer ago decides nothing, neither backoffs nor what brokers remember."""
_FAR = 8.0
"""Seconds: what is due later is due after everything else; only delivery timeouts are."""

IGNORED: Mapping[str, frozenset[str]] = {
    "ProducerBatch": frozenset(
        {"last_attempt_at", "owner", "receipt", "retrieved", "on_unretrieved", "_final_count"}
    ),
    "IncompleteBatches": frozenset({"_timeout"}),
    "Readiness": frozenset({"_compact_at", "_heap", "_linger", "_order"}),
    "Metadata": frozenset({"version", "_last_failure", "_max_age", "_max_idle", "_principal"}),
    "LiveTopic": frozenset({"used_at", "principal", "error"}),
    "ProducerIdRequests": frozenset({"last_error"}),
    "TransactionManager": frozenset({"coordinator_error", "error", "on_work"}),
}
"""By class: what decides nothing, or is a counter of events."""

CAPPED: Mapping[str, Mapping[str, int]] = {
    "ProducerBatch": {"attempts": 4},
    "Metadata": {"_failures": 3, "_unchanged_answers": 3},
    "ProducerIdRequests": {"failures": 3},
    "CoordinatorSession": {"failures": 3},
}
"""By class: counters that make no more difference above a number."""


def _fields_of(kind: type) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for each in reversed(kind.__mro__):
        slots = each.__dict__.get("__slots__", ())
        names |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
    return tuple(name for name in names if name != "__weakref__")


_NAMES: dict[int, str] = {}


def _name_of_shared(thing: object) -> str:
    place = _PLACES[id(thing)]
    name = _NAMES.get(place)
    if name is None:
        is_value = isinstance(thing, TopicMetadata | UUID | MappingProxyType)
        name = _NAMES[place] = repr(thing) if is_value else type(thing).__name__
    return name


_Reader = tuple[str, Callable[[object], tuple[object, ...]], tuple[tuple[str, int], ...]]


_READERS: dict[type, _Reader] = {}


class _Fingerprint:
    def __init__(self, now: float) -> None:
        self._now = now
        self._numbers: dict[int, int] = {}
        self._keep: list[object] = []  # temporary objects: their ids must not be used again
        self.out: list[object] = []

    def walk(self, thing: Any) -> None:
        kind, out = type(thing), self.out
        if kind in _PLAIN:
            out.append(thing)
        elif kind is float:
            out.append(self._time(thing))
        elif isinstance(thing, tuple):
            self._walk_all("(", thing)
        elif id(thing) in self._numbers:
            out.append(-1000 - self._numbers[id(thing)])
        elif id(thing) in _PLACES:
            out.append(_name_of_shared(thing))
        else:
            self._numbers[id(thing)] = len(self._numbers)
            self._keep.append(thing)
            self._walk_new(kind, thing)

    def _walk_all(self, begin: str, things: Iterable[Any]) -> None:
        out = self.out
        out.append(begin)
        for each in things:
            if type(each) in _PLAIN:
                out.append(each)
            else:
                self.walk(each)
        out.append(")")

    def _time(self, moment: float) -> float:
        if moment in (inf, -inf):
            return moment
        return min(max(round(moment - self._now, 6), _LONG_AGO), _FAR)

    def _walk_new(self, kind: type, thing: Any) -> None:
        out = self.out
        if kind in (list, deque):
            self._walk_all("[", thing)
        elif kind in (dict, OrderedDict, MappingProxyType):
            self._walk_all("{", thing)
            self._walk_all("=", thing.values())
        elif kind in (set, frozenset):
            self._walk_set(thing)
        elif isinstance(thing, type):
            out.append(thing.__name__)
        elif isinstance(thing, Enum):
            out.append(thing.name)
        elif isinstance(thing, BaseException):
            out.append(kind.__name__)
        elif kind is bytearray:
            out.append("buffer")  # its contents are read where they are used
        elif kind is MethodType:
            out.append(thing.__func__.__qualname__)
            self.walk(thing.__self__)
        elif kind is FunctionType:
            out.append(thing.__qualname__)
            for cell in thing.__closure__ or ():
                self.walk(cell.cell_contents)
        else:
            self._walk_object(kind, thing)

    def _walk_set(self, things: Any) -> None:
        # Batches in their order; what else is in sets has no identity.
        self._walk_all("set", sorted(things, key=lambda each: getattr(each, "ordinal", each)))

    def _walk_object(self, kind: type, thing: Any) -> None:
        special = SPECIAL.get(kind.__name__)
        if special is not None:
            self.walk(special(thing))
        name, read, caps = _READERS.get(kind) or self._reader_of(kind, thing)
        out = self.out
        out.append(name)
        for value in read(thing):
            if type(value) in _PLAIN:
                out.append(value)
            else:
                self.walk(value)
        for name, cap in caps:
            out.append(min(getattr(thing, name), cap))

    def _reader_of(self, kind: type, thing: Any) -> _Reader:
        caps = CAPPED.get(kind.__name__, {})
        ignored = IGNORED.get(kind.__name__, frozenset()).union(caps)
        fields = {*_fields_of(kind), *getattr(thing, "__dict__", ())} - ignored
        # Twice the class: of one name alone `attrgetter` would give no tuple.
        read = attrgetter(*sorted(fields), "__class__.__name__", "__class__.__name__")
        known = _READERS[kind] = kind.__name__, read, tuple(caps.items())
        return known


def _heap_of(readiness: Any) -> tuple[object, ...]:
    # In the order in which they come off the heap, without those that hold no more.
    live = sorted(entry[:2] for entry in readiness._heap if entry[0] == entry[2].ready_at)
    queues = {entry[:2]: entry[2] for entry in readiness._heap}
    return tuple((at, queues[at, ticket].topic_partition) for at, ticket in live)


def _content_of(memory: Any) -> tuple[object, ...]:
    return (bytes(memory.memory[: memory.count]),)


SPECIAL: Mapping[str, Callable[[Any], tuple[object, ...]]] = {
    "Readiness": _heap_of,
    "Builder": _content_of,
    "Encoded": _content_of,
}
"""By class: what is read besides the fields."""


def fingerprint(now: float, *roots: object) -> int:
    """Return the same number for two states that no step can distinguish."""
    reader = _Fingerprint(now)
    for root in roots:
        reader.walk(root)
    data = marshal.dumps(reader.out, 2)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
