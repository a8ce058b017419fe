"""Readers of Produce responses: matching by topic name or id, leader hints, per-record errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aioproducer.core.sending.produce_rules import DUPLICATE_SEQUENCE_NUMBER, ProduceAction
from aioproducer.errors import KafkaError, error_from_code
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.wire.acknowledgement import Acknowledgement, Position
    from aioproducer.wire.messages.produce import PartitionProduceResponse, ProduceResponse

Answers = Mapping[TopicPartition, "PartitionProduceResponse"]


def acknowledges(answer: Acknowledgement, batches: Sequence[ProducerBatch]) -> bool:
    """Return whether the response has the offset of each of these batches."""
    name, topic_id, positions = answer.name, answer.topic_id, answer.positions
    for batch in batches:
        topic, partition = batch.topic_partition
        if partition not in positions or not (
            topic_id is batch.topic_id
            or (name == topic if name else topic_id.int == batch.topic_id.int)
        ):
            return False
    return True


def match_answers(response: ProduceResponse, names: Mapping[UUID, str]) -> Answers:
    """Return the responses by partition; the first entry of a partition counts.

    Produce v13 has topic ids only (KIP-516); `names` are those of the request.
    """
    answers: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            answers.setdefault(TopicPartition(name, answer.index), answer)
    return answers


def leader_hints(answers: Answers) -> dict[TopicPartition, tuple[int, int]]:
    """Return leader and leader epoch of the partitions whose errors name them (KIP-951)."""
    return {
        topic_partition: (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
        for topic_partition, answer in answers.items()
        if answer.error_code and answer.current_leader.leader_id >= 0
    }


def named_record_errors(
    answer: PartitionProduceResponse, count: int, action: ProduceAction
) -> dict[int, KafkaError] | None:
    """Return the records that a broker names as the cause of its error (KIP-467), in order.

    Empty if some records caused it and the response does not name them (brokers before Kafka 2.4);
    None if the error is about the whole batch.
    """
    if action not in {ProduceAction.SPLIT, ProduceAction.FAIL}:
        return None
    messages = {
        record.batch_index: record.batch_index_error_message
        for record in answer.record_errors
        if 0 <= record.batch_index < count
    }
    record_errors: dict[int, KafkaError] = {
        index: error_from_code(answer.error_code, messages[index] or answer.error_message)
        for index in sorted(messages)
    }
    is_about_all = action is ProduceAction.FAIL or count == 1
    return record_errors or (None if is_about_all else {})


def position_of(answer: PartitionProduceResponse) -> Position | None:
    """Return where an accepted batch is written; None for a duplicate, which has no offset."""
    if answer.error_code == DUPLICATE_SEQUENCE_NUMBER or answer.base_offset < 0:
        return None
    return answer.base_offset, answer.log_append_time_ms, answer.log_start_offset
