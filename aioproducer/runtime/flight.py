"""One lone record's way to its broker and back: what `lone.py` keeps of it.

Owns: what the requests of one partition have in common, and what one of them is made of. Must not
know: when it may be written, what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.net.versions import BrokerVersions
from aioproducer.records.batch import EncodedBatch, encode_alone
from aioproducer.types import TopicPartition
from aioproducer.wire.produce import ProduceForm

if TYPE_CHECKING:
    from aioproducer.net.connection import Connection
    from aioproducer.net.link import BrokerLink
    from aioproducer.records.protocol import BatchBuilder
    from aioproducer.wire.primitives import Buffer


class Way(NamedTuple):
    """What the requests for one partition have in common, on one connection of its leader's."""

    node_id: int
    link: BrokerLink
    versions: BrokerVersions
    version: int
    place: TopicPartition
    topic_id: UUID
    leader_epoch: int
    form: ProduceForm


class Flight:
    """One record's way to its broker and back; made before there is a record, where that can be."""

    __slots__ = (
        "answered_at",
        "batch",
        "builder",
        "connection",
        "correlation_id",
        "encoded",
        "frame",
        "front",
        "numbers",
        "received",
        "usual_answer",
        "way",
    )

    def __init__(
        self,
        way: Way,
        connection: Connection,
        numbers: tuple[int, int, int],
        batch: ProducerBatch,
        builder: BatchBuilder,
    ) -> None:
        self.way: Way = way
        self.connection: Connection = connection
        self.numbers: tuple[int, int, int] = numbers
        self.batch: ProducerBatch = batch
        self.builder: BatchBuilder = builder
        self.correlation_id: int = connection.next_correlation_id()
        self.usual_answer: bytes = way.form.usual_answer(self.correlation_id)
        self.front: bytes = way.form.front(self.correlation_id)
        self.encoded: EncodedBatch | None = None
        self.frame: Sequence[Buffer] = ()
        self.answered_at: float = 0.0
        self.received: int = 0
        """Bytes of the answer."""

    def encode(self) -> EncodedBatch:
        """The batch as the sender would have it, in pieces."""
        self.encoded = encode_alone(self.builder, *self.numbers)
        return self.encoded
