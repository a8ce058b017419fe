"""Message sets at a simulated broker from before Kafka 0.11, which keeps them as batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from aioproducer.records.batch import read_batches
from aioproducer.records.codecs import codec_for
from aioproducer.records.message_set import encode_message_set
from aioproducer.records.reader import DecodedRecord
from aioproducer.testing.broker import ClusterState, TopicSpec
from aioproducer.testing.broker.message_sets import as_batch
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.wire.api_keys import ApiKey

from .support import NOW_MS, make_state, produce

CORRUPT = 2
ROWS = [
    DecodedRecord(0, NOW_MS + 5, b"k", b"v" * 300, ()),
    DecodedRecord(1, NOW_MS + 9, None, b"v" * 300, ()),
    DecodedRecord(2, NOW_MS, b"", None, ()),
]


def _foreign(magic: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    for row in ROWS:
        builder.append(row.offset, timestamp=row.timestamp_ms, key=row.key, value=row.value)
    return bytes(builder.build())


def _records(data: bytes) -> list[DecodedRecord]:
    return [record for batch in read_batches(data) for record in batch.records()]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
@pytest.mark.parametrize("codec", ["foreign", "none", "gzip", "snappy"])
def test_records_of_a_set_become_those_of_a_batch(version: int, magic: int, codec: str) -> None:
    made = encode_message_set(ROWS, magic, None if codec == "foreign" else codec_for(codec)).body
    expected = ROWS if magic else [each._replace(timestamp_ms=0) for each in ROWS]
    assert _records(as_batch(_foreign(magic) if codec == "foreign" else made, version)) == expected


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_malformed_sets_are_refused(codec: str) -> None:
    whole = encode_message_set(ROWS, 1, codec_for(codec)).body
    for broken in (whole[:-1], whole + b"\0", b"", whole[:20] + b"?" + whole[21:], whole * 2):
        with pytest.raises(RefusedError, match="message set"):
            as_batch(broken, 2)
    with pytest.raises(RefusedError, match="format 1, expected 0"):
        as_batch(whole, 1)


def test_a_broker_before_0_11_takes_message_sets() -> None:
    state: ClusterState = make_state()
    state.settings = replace(state.settings, api_versions={ApiKey.PRODUCE: (0, 2)})
    state.create_topic("t", TopicSpec(1, 1))
    answers = [produce(state, _foreign(1), version=2) for _ in range(2)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 3)]
    assert produce(state, b"\0" * 30, version=2).error_code == CORRUPT
