"""Plain value types shared by every room and by users.

Owns: names and shapes. Must not know: anything else of the package; this module imports the
standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

HeaderPairs = tuple[tuple[str, bytes | None], ...]
"""Headers as they are stored: ordered, duplicate keys allowed, values may be None."""

HeadersInput = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None] | None
"""Headers as users may give them; they are snapshotted into `HeaderPairs` by `send()`."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Node(NamedTuple):
    """One broker as the cluster metadata describes it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """What the cluster metadata says about one partition; `leader` is None while it has none."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One record to be sent; `topic` may be left out where the call names the topic."""

    value: bytes | None = None
    key: bytes | None = None
    headers: HeadersInput = None
    timestamp_ms: int | None = None
    partition: int | None = None
    topic: str | None = None


class TimestampType(Enum):
    """Who set a record's timestamp: the client (`CREATE_TIME`) or the broker (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Persistence(Enum):
    """Whether a failed record may stand in the broker's log."""

    NOT_PERSISTED = "not persisted"
    POSSIBLY_PERSISTED = "possibly persisted"
    PERSISTED = "persisted"


class RecordMetadata(NamedTuple):
    """Where an acknowledged record stands.

    `offset` is None where the broker gives none (`acks=0`, a duplicate sequence). `timestamp_ms`
    is the record's own timestamp, or the broker's on a LogAppendTime topic. Sizes are serialized
    bytes, -1 for a null key or value.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int
    timestamp_type: TimestampType
    serialized_key_size: int
    serialized_value_size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition as a `TopicPartition`."""
        return TopicPartition(self.topic, self.partition)
