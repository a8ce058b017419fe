"""Producers that outlive tasks: Spark runs many tasks in one Python worker, one after the other.

Owns: which producers live in this process, their number, the transactional ids they get. Must not
know: PySpark, rows.

Invariants
- A producer is used by one task at a time; tasks that run beside each other have one each.
- A producer that has failed or was closed is never handed out again.
- One that was lent with a prepared transaction is handed out for another transactional id only.
- A forked child starts with none; at exit each is closed (`aioproducer.blocking`).
- At most `_IDLE` are kept that nobody uses; the one unused for longest is closed.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.blocking import Producer
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from aioproducer.spark.options import SourceOptions

_IDLE: Final = 4
_CLOSE_S: Final = 10.0


class Kind(NamedTuple):
    """What producers have to have in common to stand in for each other.

    Attributes:
        options: what they are made with.
        id_prefix: what their transactional ids begin with; empty where each attempt has its own.
    """

    options: frozenset[tuple[str, str]]
    id_prefix: str | None = None


class ProducerPool:
    """The idle producers of this process, the one unused for longest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Kind, Producer]] = []

    @contextmanager
    def producer(self, options: SourceOptions, id_prefix: str | None = None) -> Iterator[Producer]:
        """A running producer.

        Args:
            options: what it is made with.
            id_prefix: what its transactional id begins with; the rest nobody else has.
        """
        kind = Kind(frozenset(options.kafka.items()), id_prefix)
        producer = self.take(kind)
        if producer is None:
            own = {} if id_prefix is None else {"transactional_id": f"{id_prefix}-{uuid.uuid4()}"}
            producer = Producer(options.config(**own))
            producer.start()
        try:
            yield producer
        finally:
            self.put(kind, producer)

    def close(self) -> None:
        """Closes those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, producer in idle:
            _close(producer)

    def after_fork_in_child(self) -> None:
        """They are the parent's, and somebody who is not here may have held the lock."""
        self._lock = threading.Lock()
        self._idle = []

    def take(self, kind: Kind) -> Producer | None:
        """A producer that works, which belongs to the caller now; None for none."""
        with self._lock:
            for position in reversed(range(len(self._idle))):
                if self._idle[position][0] == kind:
                    producer = self._idle.pop(position)[1]
                    if _works(producer):
                        return producer
                    # A failed one that lies here is closed at exit.
        return None

    def put(self, kind: Kind, producer: Producer) -> None:
        """Keeps a producer for the next one who takes it; closes it if it has failed."""
        surplus = [producer]
        if _works(producer):
            with self._lock:
                self._idle.append((kind, producer))
                surplus, self._idle = (
                    [each for _, each in self._idle[:-_IDLE]],
                    self._idle[-_IDLE:],
                )
        for each in surplus:
            _close(each)


def _works(producer: Producer) -> bool:
    """Looked at from here: a question to its thread costs a small task more than its rows."""
    try:
        producer._usable()
    except KafkaError:
        return False
    return True


def _close(producer: Producer) -> None:
    with suppress(KafkaError):  # what was to be delivered has been waited for
        producer.close(_CLOSE_S)


POOL: Final = ProducerPool()
"""This process's."""

os.register_at_fork(after_in_child=POOL.after_fork_in_child)
