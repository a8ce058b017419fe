"""What belongs to the open transaction: partitions, groups, offsets, and what still has to.

Owns: which of them the coordinator knows, whether it knows of the transaction and of its end, the
requests that tell it. Must not know: states, error codes.

V1 announces partitions and groups before they are used; in V2 the brokers do that among themselves
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from aioproducer.core.transactions import requests
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from aioproducer.core.sending.idempotence import ProducerIdentity
    from aioproducer.core.transactions.operations import OffsetsOperation
    from aioproducer.core.transactions.requests import TransactionalRequest
    from aioproducer.errors import KafkaError


class TransactionContents:
    """The contents of one transaction after another."""

    def __init__(self, transactional_id: str) -> None:
        self.v2: bool = False
        """Which protocol holds."""
        self.begun: bool = False
        """Whether the coordinator may know of the transaction, so that it has to be ended."""
        self.known: bool = False
        """Whether it does, because an answer to an addition said so; V1."""
        self.may_have_ended: bool = False
        """Whether the coordinator was asked to end it: nothing can be decided anew."""
        self.end_is_out: bool = False
        """Whether a request to end it waits for its answer."""
        self.end_in_doubt: bool = False
        """Whether a request to end it may have worked although no answer said so."""
        self.handed_out: bool = False
        """Whether somebody else may have ended it: it was prepared, and somebody was told."""
        self._name = transactional_id
        self._to_add: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._offsets: list[OffsetsOperation] = []

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether batches for the partition may be sent."""
        return self.v2 or partition in self._added

    def use(self, partition: TopicPartition) -> bool:
        """A batch for the partition was opened; True when that has to be announced."""
        if partition in self or partition in self._to_add:
            return False
        self._to_add[partition] = None
        return True

    def add_offsets(self, operation: OffsetsOperation) -> None:
        """Offsets are to be part of the transaction."""
        if operation.left:
            self._offsets.append(operation)
        else:
            operation.finish()

    @property
    def has_additions(self) -> bool:
        """Whether something is to be added."""
        return bool(self._to_add or self._offsets)

    def wanted(
        self, identity: ProducerIdentity, topic_ids: Callable[[], Mapping[str, UUID]]
    ) -> TransactionalRequest | None:
        """The request that adds what is to be added next."""
        if self._to_add:
            return requests.add_partitions(self._name, identity, self._to_add)
        if not self._offsets:
            return None
        operation = self._offsets[0]
        group = operation.group
        if not self.v2 and group.group_id not in self._groups:
            return requests.add_offsets(self._name, identity, group.group_id)
        return requests.commit_offsets(
            self._name, identity, group, operation.left, topic_ids(), v2=self.v2
        )

    def on_partitions_added(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator has taken these in."""
        for partition in partitions:
            self.begun = self.known = True
            self._added.add(partition)
            self._to_add.pop(partition, None)

    def on_group_added(self, group_id: str) -> None:
        """The coordinator has taken the group in."""
        self.begun = self.known = True
        self._groups.add(group_id)

    def on_offsets_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """The group's coordinator has taken in the offsets of these partitions."""
        if not self._offsets:
            return
        operation = self._offsets[0]
        for partition in partitions:
            operation.left.pop(partition, None)
        if not operation.left:
            operation.finish()
            del self._offsets[0]

    def drop(self, error: KafkaError) -> None:
        """What was still to be added is pointless now."""
        self._to_add.clear()
        while self._offsets:
            self._offsets[0].finish(error)
            del self._offsets[0]

    def clear(self) -> None:
        """The transaction has ended."""
        self.begun = self.known = False
        self.may_have_ended = self.end_is_out = self.end_in_doubt = self.handed_out = False
        self._added.clear()
        self._groups.clear()
