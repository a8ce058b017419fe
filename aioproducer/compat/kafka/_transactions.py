"""The transactional calls of `KafkaProducer`, and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aioproducer.compat.kafka import _errors as errors
from aioproducer.compat.kafka._connection import Connection
from aioproducer.compat.kafka._translation import translating
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class TransactionsMixin:
    """They need `transactional_id`; see `KafkaProducer`."""

    config: dict[str, Any]
    _own_initialized: bool = False

    def init_transactions(self) -> None:
        """End what an earlier producer of this `transactional_id` has left; call it once first.

        Raises:
            KafkaTimeoutError: The coordinator did not answer within `max_block_ms`; call it again.
            IllegalStateError: There is no `transactional_id`.
        """
        connection = self._own_transactional()
        if not self._own_initialized:
            with translating():
                connection.init_transactions()
            self._own_initialized = True

    def begin_transaction(self) -> None:
        """Begin a transaction; what any thread sends until its end belongs to it."""
        with translating():
            self._own_transactional().begin_transaction()

    def commit_transaction(self) -> None:
        """Wait for every record of the transaction, and commit.

        Raises:
            KafkaError: A record has failed, with that record's error: abort then.
            ProducerFencedError: Another producer has taken the `transactional_id`.
        """
        with translating():
            self._own_transactional().commit_transaction()

    def abort_transaction(self) -> None:
        """Abort; records that were not sent yet fail with `TransactionAbortedError`."""
        with translating():
            self._own_transactional().abort_transaction()

    def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_metadata: Any) -> None:
        """Make a consumer group's positions part of the transaction.

        Args:
            offsets: `OffsetAndMetadata` by `TopicPartition`, kafka-python's or those from here.
            group_metadata: `KafkaConsumer.group_metadata()`, or the id of the group.
        """
        connection = self._own_transactional()
        with translating():
            connection.send_offsets_to_transaction(_positions(offsets), _group(group_metadata))

    def _own_running(self) -> Connection:
        raise NotImplementedError

    def _own_transactional(self) -> Connection:
        if self.config["transactional_id"] is None:
            raise errors.shared_class(errors.IllegalStateError)(
                "Cannot use transactional methods without setting a transactional_id."
            )
        return self._own_running()


def _positions(offsets: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(place.topic, place.partition): OffsetAndMetadata(
            position.offset,
            position.metadata,
            None if position.leader_epoch < 0 else position.leader_epoch,
        )
        for place, position in offsets.items()
    }


def _group(source: Any) -> str | ConsumerGroupMetadata:
    if isinstance(source, str | ConsumerGroupMetadata):
        return source
    if not hasattr(source, "group_id"):
        raise TypeError(
            "send_offsets_to_transaction expects group_metadata to be a ConsumerGroupMetadata or a "
            f"group_id str, got {type(source)!r}"
        )
    return ConsumerGroupMetadata(
        source.group_id, source.generation_id, source.member_id, source.group_instance_id
    )
