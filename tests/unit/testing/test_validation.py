"""Batches that a broker refuses to append, and the error codes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.records.batch import RecordBatch
from aioproducer.records.codecs import CompressionType
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import TopicConfig
from aioproducer.testing.broker.validation import only_batch, validate_batch

from .support import NOW_MS, make_batch

HOUR_MS = 3_600_000


def check(
    data: bytes | None,
    *,
    version: int = 9,
    configs: Mapping[str, str] | None = None,
    verify: bool = False,
) -> RecordBatch:
    batch = only_batch(data, version=version)
    validate_batch(batch, TopicConfig(configs or {}, {}), NOW_MS, verify_records=verify)
    return batch


def refused(data: bytes | None, **options: object) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        check(data, **options)  # type: ignore[arg-type]
    return caught.value


def resealed(data: bytes, at: int, layout: str, value: int) -> bytes:
    """The batch with one header field changed and a CRC that fits."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("verify", [False, True])
def test_good_batch_of_every_codec_passes(codec: CompressionType, verify: bool) -> None:
    data = make_batch([b"one", None, b""] * 20, codec=codec)
    assert check(data, verify=verify).count == 60


@given(st.data())
def test_any_flipped_bit_after_the_crc_is_corrupt(data: st.DataObject) -> None:
    good = make_batch([b"payload"])
    position = data.draw(st.integers(17, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= 1 << data.draw(st.integers(0, 7))
    assert refused(bytes(bad)).error.error_name in {"CORRUPT_MESSAGE", "INVALID_RECORD"}


def test_crc_mismatch_is_corrupt_message() -> None:
    good = make_batch([b"payload"])
    assert refused(good[:-1] + b"?").error.error_name == "CORRUPT_MESSAGE"


@pytest.mark.parametrize("data", [None, b""])
def test_no_batch_is_invalid(data: bytes | None) -> None:
    assert refused(data).error.error_name == "INVALID_RECORD"


def test_two_batches_are_invalid() -> None:
    assert refused(make_batch() * 2).error.error_name == "INVALID_RECORD"


@pytest.mark.parametrize("size", [1, 12, 30, 60, 68])
def test_batch_cut_short_is_no_batch(size: int) -> None:
    assert refused(make_batch()[:size]).error.error_name == "INVALID_RECORD"


def test_old_magic_is_invalid() -> None:
    data = bytearray(make_batch())
    data[16] = 1
    assert refused(bytes(data)).error.error_name == "INVALID_RECORD"


def test_record_count_has_to_fit_the_last_offset_delta() -> None:
    data = make_batch([b"a", b"b"])
    assert refused(resealed(data, 57, ">i", 3)).error.error_name == "INVALID_RECORD"
    assert refused(resealed(data, 23, ">i", 5)).error.error_name == "INVALID_RECORD"


def test_base_offset_has_to_be_zero() -> None:
    assert refused(resealed(make_batch(), 0, ">q", 5)).error.error_name == "INVALID_RECORD"


def test_control_batch_is_invalid() -> None:
    assert refused(resealed(make_batch(), 21, ">h", 0x20)).error.error_name == "INVALID_RECORD"


def test_producer_id_without_a_sequence_is_invalid() -> None:
    data = make_batch(producer_id=1, producer_epoch=0)
    assert refused(data).error.error_name == "INVALID_RECORD"


def test_zstd_needs_produce_v7() -> None:
    data = make_batch([b"z" * 100], codec=CompressionType.ZSTD)
    assert refused(data, version=6).error.error_name == "UNSUPPORTED_COMPRESSION_TYPE"
    check(data, version=7)


def test_size_limit_counts_the_whole_batch() -> None:
    data = make_batch([b"x" * 100])
    check(data, configs={"max.message.bytes": str(len(data))})
    refusal = refused(data, configs={"max.message.bytes": str(len(data) - 1)})
    assert refusal.error.error_name == "MESSAGE_TOO_LARGE"


def test_compacted_topic_names_the_records_without_key() -> None:
    data = make_batch([b"a", b"b", b"c"], keys=[b"k", None, None])
    refusal = refused(data, configs={"cleanup.policy": "compact"})
    assert refusal.error.error_name == "INVALID_RECORD"
    assert [index for index, _ in refusal.record_errors] == [1, 2]
    check(data)


def test_timestamp_too_far_ahead_names_its_record() -> None:
    data = make_batch([b"a", b"b"], timestamps=[NOW_MS, NOW_MS + HOUR_MS + 1])
    refusal = refused(data)
    assert refusal.error.error_name == "INVALID_TIMESTAMP"
    assert [index for index, _ in refusal.record_errors] == [1]
    check(make_batch(timestamps=[NOW_MS + HOUR_MS]))
    check(data, configs={"message.timestamp.type": "LogAppendTime"})


def test_past_timestamps_pass_unless_the_topic_bounds_them() -> None:
    data = make_batch(timestamps=[0])
    check(data)
    refusal = refused(data, configs={"message.timestamp.before.max.ms": "1000"})
    assert refusal.error.error_name == "INVALID_TIMESTAMP"


TAMPERED: Mapping[str, Callable[[], bytes]] = {
    "max timestamp": lambda: resealed(make_batch(), 35, ">q", NOW_MS + 5),
    "count": lambda: resealed(resealed(make_batch([b"a"] * 3), 57, ">i", 2), 23, ">i", 1),
    "record length": lambda: resealed(make_batch(), 61, ">b", 4),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_records_are_compared_with_the_header_when_asked_to(what: str) -> None:
    data = TAMPERED[what]()
    check(data)
    assert refused(data, verify=True).error.error_name == "INVALID_RECORD"


def test_unknown_and_impossible_topic_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown topic config name: max\.bytes"):
        TopicConfig({"max.bytes": "1"}, {})
    with pytest.raises(ValueError, match=r"min\.insync\.replicas"):
        TopicConfig({"min.insync.replicas": "0"}, {})
    with pytest.raises(ValueError, match=r"message\.timestamp\.type"):
        TopicConfig({"message.timestamp.type": "Never"}, {})
