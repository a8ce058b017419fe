"""A record that is sent alone: its request in one go is the one made in pieces."""

from __future__ import annotations

from types import ModuleType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.records.batch import encode_batch
from aioproducer.wire.produce import (
    ProducePartition,
    ProduceRequestTemplate,
    ProduceTopic,
    encode_produce_request,
)

T = 1_700_000_000_000
PLACE = ("topic", UUID(int=9), 3)


def form(version: int) -> ProduceRequestTemplate:
    topic, topic_id, partition = PLACE
    return ProduceRequestTemplate(
        version,
        "client",
        acks=-1,
        timeout_ms=30_000,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
    )


@given(
    version=st.integers(3, 13),
    correlation_id=st.integers(0, 2**31 - 1),
    timestamp=st.integers(0, 2**63 - 1),
    key=st.none() | st.binary(max_size=5),
    # On both sides of where a compact length takes another byte.
    value=st.none() | st.binary(max_size=80) | st.integers(16_290, 16_320).map(bytes),
    numbers=st.tuples(
        st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)
    ),
)
def test_equals_the_batch_and_the_request_made_one_by_one(
    core: ModuleType,
    version: int,
    correlation_id: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    numbers: tuple[int, int, int],
) -> None:
    builder = core.RecordBatchBuilder(bytearray(20_000))
    assert builder.try_append(timestamp, key, value, (("h", b"v"),)) == 0
    batch = encode_batch(
        builder.body(),
        count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=numbers[0],
        producer_epoch=numbers[1],
        base_sequence=numbers[2],
    )
    name, topic_id, partition = PLACE
    whole = encode_produce_request(
        version,
        correlation_id,
        "client",
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topics=[ProduceTopic(name, topic_id, [ProducePartition(partition, batch.buffers)])],
    )
    known = form(version)
    prefix = known.prefix(correlation_id)
    request = core.single_record_request(builder, prefix, known.suffix, known.is_flexible, *numbers)
    assert request == b"".join(whole)


def test_a_record_whose_memory_was_given_back_has_no_request(core: ModuleType) -> None:
    builder = core.RecordBatchBuilder(bytearray(100))
    builder.try_append(T, None, b"v", ())
    builder.release()
    with pytest.raises(ValueError, match="let go of its buffer"):
        core.single_record_request(builder, form(13).prefix(1), b"", True, 1, 0, 0)
