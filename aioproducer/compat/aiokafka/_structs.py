"""aiokafka's value types by their names and fields.

Tuples of aiokafka and of this module with the same content are equal, and each call takes both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from aioproducer.compat.aiokafka._errors import KafkaError
from aioproducer.types import TopicPartition as TopicPartition  # noqa: PLC0414

KT_co = TypeVar("KT_co", covariant=True)
VT_co = TypeVar("VT_co", covariant=True)
AnyTuple = TypeVar("AnyTuple", bound=tuple[object, ...])


class BrokerMetadata(NamedTuple):
    """One broker."""

    nodeId: int | str  # noqa: N815 - aiokafka's spelling
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """One partition as the cluster describes it."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """A position to commit, and free text beside it."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """Offset and timestamp of the first record at or after a time."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Partition, offset and timestamp of an acknowledged record.

    `offset` is -1 if the broker gives none; `timestamp` is the record's own, or the broker's if
    `timestamp_type` is 1 (LogAppendTime).
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


@dataclass
class ConsumerRecord(Generic[KT_co, VT_co]):
    """A record that a consumer has read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT_co | None
    value: VT_co | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes]]


def shared_struct(own: type[AnyTuple]) -> type[AnyTuple]:
    """Return the class of results: aiokafka's of the same name and fields, if that is imported."""
    theirs: Any = getattr(sys.modules.get("aiokafka.structs"), own.__name__, None)
    return theirs if getattr(theirs, "_fields", None) == getattr(own, "_fields", ()) else own
