"""Ended objects and unused topics that a producer still has: found by a walk from its engine."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Container, Iterable, Iterator
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.net.connection import Connection
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.runtime.engine import ProducerEngine

_OUTLIVE_TOPICS = frozenset(
    {
        "Metadata._topic_ids",
        "Sequencer._partitions",
        "AcknowledgedOffsets._last",
        "UnretrievedFailures._totals",
        "UnretrievedFailures._unwritten",
    }
)
"""What is kept of a topic that is not used any more: so that no record of it is written twice, and
the counts for the last line of the log."""
_MOST_ROUTES = 20
"""Routes are dropped with the next one after a change of the metadata."""


def kept_topics(engine: ProducerEngine, topics: Container[str]) -> list[str]:
    """Name the attributes of a producer that are keyed by one of these topics."""
    found = set()
    for name, keys in _containers(engine):
        count = sum(_names_one(key, topics) for key in keys)
        if count > (_MOST_ROUTES if name == "SenderTask._routes" else 0):
            found.add(name)
    return sorted(found - _OUTLIVE_TOPICS)


def kept_ends(engine: ProducerEngine) -> list[str]:
    """Name the attributes with futures, batches and connections that have ended."""
    return sorted(
        {name for name, each in _containers(engine) if any(map(_has_ended, _all_in(each)))}
    )


def _containers(engine: ProducerEngine) -> Iterator[tuple[str, Iterable[object]]]:
    """Yield the collections that a producer has, each with the name of its attribute."""
    names: dict[int, str] = {}
    seen = {id(engine)}
    left: list[tuple[str, object]] = [("", engine)]
    while left:
        owner, each = left.pop()
        if _is_internal(each):
            owner = type(each).__name__
            names |= _attributes(each)
            names[id(getattr(each, "__dict__", None))] = ""
        elif isinstance(each, dict | set | frozenset | deque | list):
            name = names.get(id(each), owner)
            if name:  # else they are an object's attributes
                yield name, each
        elif not isinstance(each, tuple | MethodType | partial):
            continue
        for child in gc.get_referents(each):
            if id(child) not in seen:
                seen.add(id(child))
                left.append((owner, child))


def _all_in(collection: Iterable[object]) -> Iterable[object]:
    if isinstance(collection, dict):
        return (*collection, *collection.values())
    return collection


def _has_ended(each: object) -> bool:
    match each:
        case asyncio.Future():
            return each.done()
        case ProducerBatch():
            return each.outcome is not None
        case Connection():
            return not each.is_open
    future = getattr(each, "future", None)
    return isinstance(future, asyncio.Future) and future.done()


def _is_internal(each: object) -> bool:
    module = type(each).__module__
    return module.startswith(("aioproducer.core", "aioproducer.runtime", "aioproducer.net"))


def _names_one(key: object, topics: Container[str]) -> bool:
    name = key.topic if isinstance(key, TopicPartition) else key
    return isinstance(name, str) and name in topics


def _attributes(each: object) -> dict[int, str]:
    """The names of an object's attributes by the identity of their values."""
    names = [*getattr(each, "__dict__", ())]
    for kind in type(each).__mro__:
        names += getattr(kind, "__slots__", ())
    values = ((name, getattr(each, name, None)) for name in names)
    return {id(value): f"{type(each).__name__}.{name}" for name, value in values}
