"""Our bytes against the Java client's and librdkafka's (golden/ says how they were made)."""

import json
from pathlib import Path

import pytest

from aioproducer.records.batch import RecordBatch, encode_batch, parse_header
from aioproducer.types import TimestampType

from .helpers import Row, built, joined

GOLDEN = Path(__file__).parent / "golden"


def blob(pair: list | None) -> bytes | None:
    return None if pair is None else bytes.fromhex(pair[0]) * pair[1]


def load(file: str) -> list:
    lines = (GOLDEN / file).read_text("utf-8").splitlines()
    return [
        pytest.param(case, id=f"{file.partition('.')[0]}-{case['name']}")
        for case in map(json.loads, lines)
    ]


def rows(case: dict) -> list[Row]:
    return [
        (
            timestamp,
            blob(key),
            blob(value),
            tuple((name, blob(content)) for name, content in headers),
        )
        for timestamp, key, value, headers in case["records"]
    ]


def golden(case: dict) -> tuple[bytes, RecordBatch]:
    data = bytes.fromhex(case["batch"])
    return data, parse_header(data)


ALL = load("java_client.jsonl") + load("librdkafka.jsonl")
FROM_A_PRODUCER = [
    p for p in ALL if p.values[0]["base_offset"] == 0 and p.values[0]["log_append_time"] is None
]
UNCOMPRESSED = [p for p in FROM_A_PRODUCER if p.values[0]["codec"] == "none"]


@pytest.mark.parametrize("case", ALL)
def test_golden_batch_is_read_as_what_went_into_it(case):
    data, batch = golden(case)
    batch.check_crc()
    assert batch.size == len(data)
    assert batch.codec.name.lower() == case["codec"]
    assert batch.is_transactional == case["transactional"]
    assert not batch.is_control
    for name in ("base_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(batch, name) == case[name], name
    append_time = case["log_append_time"]
    assert (batch.timestamp_type is TimestampType.LOG_APPEND_TIME) == (append_time is not None)
    expected = [
        (case["base_offset"] + i, timestamp if append_time is None else append_time, *rest)
        for i, (timestamp, *rest) in enumerate(rows(case))
    ]
    assert [tuple(record) for record in batch.records()] == expected


def with_our_epoch(data):
    """A batch with the leader epoch -1, as Java's; librdkafka sends 0, and brokers set it."""
    return data[:12] + b"\xff\xff\xff\xff" + data[16:]


@pytest.mark.parametrize("case", UNCOMPRESSED)
def test_uncompressed_batch_is_byte_for_byte_theirs(case, core):
    fields = ("producer_id", "producer_epoch", "base_sequence", "transactional")
    batch = built(rows(case), core, **{name: case[name] for name in fields})
    assert joined(batch) == with_our_epoch(bytes.fromhex(case["batch"]))


@pytest.mark.parametrize("case", FROM_A_PRODUCER)
def test_header_around_their_body_is_byte_for_byte_theirs(case):
    data, theirs = golden(case)
    ours = encode_batch(
        theirs.body,
        count=theirs.count,
        base_timestamp=theirs.base_timestamp,
        max_timestamp=theirs.max_timestamp,
        codec=theirs.codec,
        producer_id=theirs.producer_id,
        producer_epoch=theirs.producer_epoch,
        base_sequence=theirs.base_sequence,
        transactional=theirs.is_transactional,
    )
    assert joined(ours) == with_our_epoch(data)


def test_golden_batches_cover_every_codec_of_both_clients():
    for file in ("java_client.jsonl", "librdkafka.jsonl"):
        codecs = {parameter.values[0]["codec"] for parameter in load(file)}
        assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
