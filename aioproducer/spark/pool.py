"""Producers and connections that outlive tasks: Spark runs many tasks in one Python worker.

Invariants
- A producer is used by one task at a time; tasks that run beside each other have one each.
- A producer that has failed or was closed is never handed out again, nor one whose last
  transaction has no outcome yet.
- One that was handed out with a prepared transaction gets another transactional id next.
- A forked child starts with none; at exit each is closed (`aioproducer.blocking`).
- At most `most_idle` unused ones are kept; the one unused for longest is closed.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from aioproducer._util.forks import at_fork
from aioproducer.blocking import Producer
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from aioproducer.spark.options import SourceOptions


class _Closable(Protocol):
    def close(self) -> None: ...


_T = TypeVar("_T", bound=_Closable)

_CLOSE_S: Final = 10.0

_RANDOM: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_task_id(prefix: str) -> str:
    """Return a new transactional id with this prefix, for the tasks of one process."""
    return f"{prefix}-{uuid.uuid4()}"


def is_task_id(name: str, prefix: str) -> bool:
    """Return whether `new_task_id` made this id; others may have the same prefix."""
    return name.startswith(f"{prefix}-") and bool(_RANDOM.fullmatch(name[len(prefix) + 1 :]))


class Kind(NamedTuple):
    """The key of a pool: objects of an equal kind can replace each other.

    Attributes:
        options: the options that they are made with.
        id_prefix: the prefix of their transactional ids; empty if each attempt has another id.
    """

    options: frozenset[tuple[str, str]]
    id_prefix: str | None = None


class Pool(Generic[_T]):
    """The idle objects of this process, the one unused for longest first."""

    most_idle: ClassVar[int] = 4

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Hashable, _T]] = []

    def close(self) -> None:
        """Close all idle objects."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, each in idle:
            self._close(each)

    def after_fork_in_child(self) -> None:
        """Drop the parent's objects, and its lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()
        self._idle = []

    def take(self, kind: Hashable) -> _T | None:
        """Remove an object of this kind that works, and return it; None if there is none."""
        with self._lock:
            for position in reversed(range(len(self._idle))):
                if self._idle[position][0] == kind:
                    found = self._idle.pop(position)[1]
                    if self._works(found):
                        return found
                    # A failed one that is kept here is closed at exit.
        return None

    def put(self, kind: Hashable, item: _T) -> None:
        """Keep an object for the next caller; close it if it has failed."""
        surplus = [item]
        if self._works(item):
            with self._lock:
                self._idle.append((kind, item))
                surplus = [each for _, each in self._idle[: -self.most_idle]]
                self._idle = self._idle[-self.most_idle :]
        for each in surplus:
            self._close(each)

    def _works(self, item: _T) -> bool:
        """Return whether an object can be used again."""
        return True

    def _close(self, item: _T) -> None:
        """Close an object that will not be used again."""
        item.close()


class ProducerPool(Pool[Producer]):
    """The idle producers of this process."""

    @contextmanager
    def producer(self, options: SourceOptions, id_prefix: str | None = None) -> Iterator[Producer]:
        """Yield a running producer; its transactional id, if any, begins with `id_prefix`."""
        kind = Kind(frozenset(options.kafka.items()), id_prefix)
        producer = self.take(kind)
        if producer is None:
            own = {} if id_prefix is None else {"transactional_id": new_task_id(id_prefix)}
            producer = Producer(options.config(**own))
            producer.start()
        try:
            yield producer
        finally:
            self.put(kind, producer)

    def _works(self, item: Producer) -> bool:
        # Read from this thread: a call in the producer's thread costs more than a small task.
        try:
            item._usable()
        except KafkaError:
            return False
        transactions = item._producer._transaction_task
        return transactions is None or transactions.manager.is_free

    def _close(self, item: Producer) -> None:
        with suppress(KafkaError):  # what was to be delivered has been waited for
            item.close(_CLOSE_S)


POOL: Final = ProducerPool()

at_fork(after_in_child=POOL.after_fork_in_child)
