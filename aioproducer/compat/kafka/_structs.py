"""kafka-python's value types by their names and fields.

Tuples of theirs and of ours with the same content are equal, and either does where one is asked
for. In a program that has imported `kafka`, results are its own named tuples.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from aioproducer.compat._shared_classes import counterpart
from aioproducer.types import RecordMetadata as _RecordMetadata
from aioproducer.types import TopicPartition as TopicPartition  # noqa: PLC0414


class OffsetAndMetadata(NamedTuple):
    """A position to commit, free text beside it, and the leader's epoch (-1: unknown)."""

    offset: int | None = None
    metadata: str = ""
    leader_epoch: int = -1


class BrokerMetadata(NamedTuple):
    """A broker; its id has the names of kafka-python 2 and 3."""

    nodeId: int  # noqa: N815
    host: str
    port: int
    rack: str | None

    @property
    def node_id(self) -> int:
        """The id of the broker."""
        return self.nodeId


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record.

    `offset` is -1 where the broker gives none (`acks=0`), sizes are -1 for a null key or value and
    without headers, `checksum` is always None.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


def metadata_of(ours: _RecordMetadata, header_size: int) -> RecordMetadata:
    """Return an acknowledgement as kafka-python's.

    kafka-python before 2.2 has a field more, `log_start_offset`, which is None here.
    """
    pair = counterpart("kafka.structs", "TopicPartition") or TopicPartition
    made = RecordMetadata(
        ours.topic,
        ours.partition,
        pair(ours.topic, ours.partition),
        -1 if ours.offset is None else ours.offset,
        ours.timestamp_ms,
        None,
        ours.serialized_key_size,
        ours.serialized_value_size,
        header_size,
    )
    shape: Any = counterpart("kafka.producer.future", "RecordMetadata") or RecordMetadata
    return cast("RecordMetadata", shape(*(getattr(made, name, None) for name in shape._fields)))
