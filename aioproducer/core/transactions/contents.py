"""Contents of the open transaction: partitions, groups and offsets, added or still to be added.

V1 adds partitions and groups at the coordinator before they are used; in V2 the brokers do that
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
    """The contents of the current transaction; `clear` prepares it for the next one."""

    def __init__(self, transactional_id: str) -> None:
        self.v2: bool = False
        """True for V2 (KIP-890), False for V1."""
        self.begun: bool = False
        """True if the coordinator may have the transaction, so that it has to be ended."""
        self.known: bool = False
        """True if a response to an addition confirmed that the coordinator has it (V1)."""
        self.may_have_ended: bool = False
        """True once EndTxn was sent: the decision is final."""
        self.end_is_out: bool = False
        """True while EndTxn is in flight."""
        self.end_in_doubt: bool = False
        """True if EndTxn may have succeeded although no response confirmed it."""
        self.handed_out: bool = False
        """True if another process may have ended it: it was prepared and handed out."""
        self._name = transactional_id
        self._to_add: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._offsets: list[OffsetsOperation] = []

    def __contains__(self, partition: TopicPartition) -> bool:
        """Return whether batches for the partition may be sent."""
        return self.v2 or partition in self._added

    def use(self, partition: TopicPartition) -> bool:
        """Note a partition in use; return True if it has to be added at the coordinator."""
        if partition in self or partition in self._to_add:
            return False
        self._to_add[partition] = None
        return True

    def add_offsets(self, operation: OffsetsOperation) -> None:
        """Queue offsets to be added to the transaction."""
        if operation.left:
            self._offsets.append(operation)
        else:
            operation.finish()

    @property
    def has_additions(self) -> bool:
        """Whether partitions or offsets are still to be added."""
        return bool(self._to_add or self._offsets)

    def wanted(
        self, identity: ProducerIdentity, topic_ids: Callable[[], Mapping[str, UUID]]
    ) -> TransactionalRequest | None:
        """Return the request for the next addition, if any."""
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
        """Handle partitions that the coordinator has added."""
        for partition in partitions:
            self.begun = self.known = True
            self._added.add(partition)
            self._to_add.pop(partition, None)

    def on_group_added(self, group_id: str) -> None:
        """Handle a group that the coordinator has added."""
        self.begun = self.known = True
        self._groups.add(group_id)

    def on_offsets_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Handle offsets that the group coordinator has accepted for these partitions."""
        if not self._offsets:
            return
        operation = self._offsets[0]
        for partition in partitions:
            operation.left.pop(partition, None)
        if not operation.left:
            operation.finish()
            del self._offsets[0]

    def drop(self, error: KafkaError) -> None:
        """Drop all pending additions; offsets calls fail with the error."""
        self._to_add.clear()
        while self._offsets:
            self._offsets[0].finish(error)
            del self._offsets[0]

    def clear(self) -> None:
        """Reset the contents after the end of the transaction."""
        self.begun = self.known = False
        self.may_have_ended = self.end_is_out = self.end_in_doubt = self.handed_out = False
        self._added.clear()
        self._groups.clear()
