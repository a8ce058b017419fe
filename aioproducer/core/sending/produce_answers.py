"""Reading a Produce response: what it says about the partitions that were asked for.

Owns: matching by name or id, leader hints, per-record errors, the outcome of a success. Must not
know: what is done about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aioproducer.core.batching.batch import BatchOutcome
from aioproducer.core.sending.produce_rules import DUPLICATE_SEQUENCE_NUMBER, ProduceAction
from aioproducer.errors import KafkaError, error_from_code
from aioproducer.types import TopicPartition
from aioproducer.wire.produce import STANDS

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.wire.messages.produce import PartitionProduceResponse, ProduceResponse
    from aioproducer.wire.produce import Acknowledgement

_new_tuple = tuple.__new__
BLAMELESS = BatchOutcome().record_errors
"""Of a batch that was accepted."""

Answers = Mapping[TopicPartition, "PartitionProduceResponse"]


def acknowledges(answer: Acknowledgement, batches: Sequence[ProducerBatch]) -> bool:
    """Whether this tells where each of them stands."""
    name, topic_id, places = answer.name, answer.topic_id, answer.places
    for batch in batches:
        topic, partition = batch.topic_partition
        if partition not in places or not (
            topic_id is batch.topic_id
            or (name == topic if name else topic_id.int == batch.topic_id.int)
        ):
            return False
    return True


def match_answers(response: ProduceResponse, names: Mapping[UUID, str]) -> Answers:
    """The answers by partition; of an entry that comes twice the first one counts.

    Produce v13 answers by topic id alone (KIP-516); `names` are those the request was made with.
    """
    answers: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            answers.setdefault(TopicPartition(name, answer.index), answer)
    return answers


def leader_hints(answers: Answers) -> dict[TopicPartition, tuple[int, int]]:
    """Leader and epoch where a refusal names them (KIP-951)."""
    return {
        topic_partition: (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
        for topic_partition, answer in answers.items()
        if answer.error_code and answer.current_leader.leader_id >= 0
    }


def blamed_records(
    answer: PartitionProduceResponse, count: int, action: ProduceAction
) -> dict[int, KafkaError] | None:
    """The records that a broker names as the cause of its refusal (KIP-467), in their order.

    Empty if some records are to blame and the answer does not name them, as it is with brokers
    before Kafka 2.4; None if the refusal is about the whole batch.

    Args:
        answer: A refusal.
        count: How many records the batch has.
        action: What the refusal leads to.
    """
    if action not in {ProduceAction.SPLIT, ProduceAction.FAIL}:
        return None
    messages = {
        record.batch_index: record.batch_index_error_message
        for record in answer.record_errors
        if 0 <= record.batch_index < count
    }
    blamed: dict[int, KafkaError] = {
        index: error_from_code(answer.error_code, messages[index] or answer.error_message)
        for index in sorted(messages)
    }
    is_about_all = action is ProduceAction.FAIL or count == 1
    return blamed or (None if is_about_all else {})


def success_outcome(answer: PartitionProduceResponse) -> BatchOutcome:
    """Where an accepted batch stands; a duplicate gets no offset, its first answer had it."""
    if answer.error_code == DUPLICATE_SEQUENCE_NUMBER or answer.base_offset < 0:
        return BatchOutcome()
    return standing_at(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)


def usual_outcome(data: bytes, front: bytes, back: bytes, /) -> BatchOutcome | None:
    """The outcome of a batch whose answer says nothing but where it stands; None for any other.

    Args:
        data: what was received.
        front: `ProduceForm.usual_answer` of the request.
        back: `USUAL_END`.
    """
    at = len(front)
    if len(data) != at + STANDS.size + len(back):
        return None
    if not data.startswith(front) or not data.endswith(back):
        return None
    base_offset, stamped, log_start = STANDS.unpack_from(data, at)
    return None if base_offset < 0 else standing_at(base_offset, stamped, log_start)


def standing_at(base_offset: int, stamped: int, log_start: int) -> BatchOutcome:
    """The outcome of a batch with this offset, log append time and log start as answered."""
    # What a NamedTuple's own `__new__` does, without that call.
    return _new_tuple(
        BatchOutcome,
        (
            base_offset,
            stamped if stamped >= 0 else None,
            None,
            BLAMELESS,
            log_start if log_start >= 0 else None,
        ),
    )
