"""Plain value types shared by every package and by users."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import InitVar, asdict, dataclass, field, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable
from uuid import UUID

from aioproducer._util import arguments
from aioproducer._util.secrets import Unpicklable

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

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
    """The cluster metadata of one partition; `leader` is None while it has none."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


NO_LEADER = -1
NO_EPOCH = -1


class PartitionMetadata(NamedTuple):
    """One partition as last described; -1 means no leader, or an unknown epoch."""

    partition: int
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic as partitioners see it; `available` lists the partitions with a known leader.

    `known_nodes` are the known brokers; without it, every leader counts as known.
    """

    name: str
    topic_id: UUID
    partitions: tuple[PartitionMetadata, ...]
    is_internal: bool = False
    known_nodes: InitVar[Container[int] | None] = None
    available: tuple[int, ...] = field(init=False)

    def __post_init__(self, known_nodes: Container[int] | None) -> None:
        available = tuple(
            p.partition
            for p in self.partitions
            if p.leader >= 0 and (known_nodes is None or p.leader in known_nodes)
        )
        object.__setattr__(self, "available", available)

    def replacing(
        self, changed: Mapping[int, PartitionMetadata], known_nodes: Container[int]
    ) -> TopicMetadata:
        """Return a copy with some partitions replaced and `available` computed again."""
        partitions = tuple(changed.get(p.partition, p) for p in self.partitions)
        return replace(self, partitions=partitions, known_nodes=known_nodes)

    def has_moved_since(self, before: TopicMetadata) -> bool:
        """Return whether a partition of the same topic had another leader before."""
        if before is self or before.topic_id != self.topic_id:
            return False
        pairs = zip(before.partitions, self.partitions, strict=False)
        return any(old.leader not in (NO_LEADER, new.leader) for old, new in pairs)

    def led_by_any(self, node_ids: Container[int]) -> bool:
        """Return whether one of `node_ids` leads a partition."""
        return any(p.leader in node_ids for p in self.partitions)


PartitionFunction = Callable[[str, bytes | None, bytes | None, TopicMetadata], int | None]
"""`(topic, key, value, cluster) -> partition`, or None to leave it to the sticky partitioner."""


@runtime_checkable
class Partitioner(Protocol):
    """The protocol of a user-written partitioner; a plain function of the same form will do too.

    It may have a `close()`, which is called as that of a `Serializer`.
    """

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: TopicMetadata
    ) -> int | None:
        """Choose a partition of `cluster.partitions`; None leaves it to the sticky partitioner.

        Called once per record, on the event loop: it must not block. `cluster.available` lists the
        partitions that have a leader at the moment.
        """


@dataclass(frozen=True, slots=True)
class Record:
    """One record to be sent; `topic` may be left out where the call names the topic.

    `value` and `key` are bytes or None, or what the producer's serializers take.
    """

    value: Any = None
    key: Any = None
    headers: HeadersInput = None
    timestamp_ms: int | None = None
    partition: int | None = None
    topic: str | None = None


class TimestampType(IntEnum):
    """The origin of a record's timestamp: the client (`CREATE_TIME`) or the broker (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Persistence(Enum):
    """The persistence of a failed record: whether it may be in the broker's log."""

    NOT_PERSISTED = "not persisted"
    POSSIBLY_PERSISTED = "possibly persisted"
    PERSISTED = "persisted"


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record.

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


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position to commit for a consumer group: the offset of the record to read next.

    `metadata` is free text kept beside it; `leader_epoch` that of the last record read, if known.
    """

    offset: int
    metadata: str | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The committer of offsets: a group and, to fence zombies, one of its members (KIP-447).

    With only a `group_id` the broker cannot distinguish an expelled member from the current one.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def __post_init__(self) -> None:
        arguments.check_text("group_id", self.group_id)
        if not self.group_id:
            raise ValueError("group_id must not be empty: brokers refuse such a group")
        arguments.check_integer("generation_id", self.generation_id, 32)
        arguments.check_text("member_id", self.member_id)
        if self.group_instance_id is not None:
            arguments.check_text("group_instance_id", self.group_instance_id)
        if self.generation_id > 0 and not self.member_id:
            raise ValueError(f"generation {self.generation_id} of a group needs a member_id")

    @property
    def names_member(self) -> bool:
        """Whether it names more than the group."""
        return self.generation_id >= 0 or bool(self.member_id) or self.group_instance_id is not None


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """An open transaction whose records are all written; any process that holds this can end it.

    It names nothing secret and no broker, pickles, and goes through JSON (`as_dict`, `from_dict`).

    Attributes:
        transactional_id: the producer's.
        producer_id: the id its records were written under.
        epoch: the epoch of that id.
        transaction_version: the protocol it was begun by: 1 (KIP-98) or 2 (KIP-890).
        empty: whether nothing was written, so that there is nothing to end either.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int
    empty: bool = False

    def __post_init__(self) -> None:
        arguments.check_text("transactional_id", self.transactional_id)
        arguments.check_integer("producer_id", self.producer_id, 64)
        arguments.check_integer("epoch", self.epoch, 16)
        if self.transaction_version not in {1, 2}:
            raise ValueError(f"{self.transaction_version} is no version of transactions")
        if not self.transactional_id or self.producer_id < 0 or self.epoch < 0:
            raise ValueError("no producer prepares such a transaction")

    def as_dict(self) -> dict[str, Any]:
        """Return its fields, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the transaction from the result of `as_dict`.

        Raises:
            TypeError, ValueError: these are not its fields.
        """
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A coordinator's state of a transactional id (KIP-664).

    Attributes:
        transactional_id: the id.
        state: `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`,
            `CompleteAbort`; Kafka may add others.
        producer_id: the producer id in use.
        epoch: its epoch.
        timeout_ms: after how long an open transaction is aborted.
        started_ms: when the last transaction began, ms since the epoch; -1 if none did.
        partitions: what belongs to the open transaction.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SaslCredentials(Unpicklable):
    """A user name and what proves it, as `sasl_credentials` may return them.

    It is not pickled (`TypeError`): a secret gets into no file or message by accident.

    Attributes:
        username: The name, or the id of a delegation token (KIP-48), or an AWS access key.
        password: The password, or the token's HMAC, or the AWS secret key.
        extensions: SCRAM's extensions, such as `{"tokenauth": "true"}` for a delegation token.
        session_token: AWS's, for temporary credentials.
    """

    username: str
    password: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class OAuthToken(Unpicklable):
    """A bearer token, as `sasl_oauthbearer_token` may return it; it is not pickled (`TypeError`).

    Attributes:
        value: The token itself.
        expires_at: Its end in seconds since the epoch; None if unknown, and then it is fetched
            anew for each authentication.
        extensions: SASL extensions to send with it (KIP-342).
    """

    value: str = field(repr=False)
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


class StreamOpener(Protocol):
    """The protocol of the option `dialer`, which opens connections: an async function like this.

    It is called for every connection, cancelled when the setup timeout is reached, and called
    again after the usual backoff when it raised; whatever it raises counts as a failed connection,
    unless it is an error of this package, which is taken as it is. With TLS switched on the client
    encrypts the stream it gets and verifies the broker's name itself.
    """

    async def __call__(self, host: str, port: int) -> tuple[StreamReader, StreamWriter]:
        """Open a byte stream to a broker.

        Args:
            host: As in `bootstrap_servers` or as the brokers advertise it, not resolved.
            port: Likewise.

        Raises:
            OSError: The broker cannot be reached.
        """
