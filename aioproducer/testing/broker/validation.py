"""Checks of a broker before it appends a produced batch.

Their order and codes are those of Java: ProduceRequest.validateRecords, LogValidator and
UnifiedLog.analyzeAndValidateRecords.

Records are decoded only where the answer depends on them: a compacted topic (keys), a lower
timestamp bound, an upper one that was crossed (which records?), or `verify_records`.
"""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer import errors
from aioproducer.records.batch import DecodedRecord, RecordBatch, parse_header
from aioproducer.records.codecs import CompressionType
from aioproducer.records.layout import MAGIC
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import TopicConfig

_MAGIC_AT = 16
_FIRST_ZSTD_VERSION = 7
_SHOWN_RECORD_ERRORS = 10
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def only_batch(data: bytes | memoryview | None, *, version: int) -> RecordBatch:
    """Return the one batch that a Produce request of `version` may carry for a partition."""
    batch = _whole_batch(data or b"")
    if batch.codec is CompressionType.ZSTD and version < _FIRST_ZSTD_VERSION:
        raise RefusedError(
            errors.UnsupportedCompressionTypeError,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    return batch


def validate_batch(
    batch: RecordBatch, config: TopicConfig, now_ms: int, *, verify_records: bool
) -> None:
    """Refuse a batch with the code and records that a broker names for the topic's options."""
    _check_header(batch)
    if batch.size > config.max_message_bytes:
        raise RefusedError(
            errors.RecordTooLargeError,
            f"The record batch size is {batch.size} bytes which exceeds the maximum configured "
            f"value of {config.max_message_bytes}.",
        )
    try:
        batch.check_crc()
    except errors.ProtocolError as error:
        raise RefusedError(errors.CorruptMessageError, error.message) from error
    _check_records(batch, config, now_ms, verify_records=verify_records)


def _whole_batch(data: bytes | memoryview) -> RecordBatch:
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] != MAGIC:
        raise RefusedError(
            errors.InvalidRecordError,
            "Produce requests are only allowed to contain record batches with magic version 2",
        )
    try:
        batch = parse_header(data)
    except errors.ProtocolError as error:
        # What does not make a whole batch counts as none; only a wrong CRC makes it a corrupt one.
        raise RefusedError(errors.InvalidRecordError, error.message) from error
    if batch.size != len(data):
        raise RefusedError(
            errors.InvalidRecordError, "Produce requests must have exactly one record batch"
        )
    return batch


def _check_header(batch: RecordBatch) -> None:
    if batch.is_control:
        _refuse("Clients are not allowed to write control records")
    if batch.count <= 0 or batch.count != batch.last_offset_delta + 1:
        _refuse(
            f"Inconsistent batch offset range [0, {batch.last_offset_delta}] "
            f"and count of records {batch.count}"
        )
    if batch.base_offset != 0:
        _refuse(f"The baseOffset of the record batch should be 0, but it is {batch.base_offset}")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        _refuse(
            f"Invalid sequence number {batch.base_sequence} or epoch {batch.producer_epoch} "
            f"in record batch with producerId {batch.producer_id}"
        )


def _refuse(message: str) -> None:
    raise RefusedError(errors.InvalidRecordError, message)


def _check_records(
    batch: RecordBatch, config: TopicConfig, now_ms: int, *, verify_records: bool
) -> None:
    before_ms, after_ms = config.timestamp_bounds_ms
    own_times = not config.is_log_append_time
    latest = now_ms + after_ms if own_times else _LONG_MAX
    earliest = now_ms - before_ms if own_times and before_ms < _LONG_MAX else _LONG_MIN
    crossed = batch.max_timestamp > latest or earliest > _LONG_MIN
    if not (verify_records or crossed or config.is_compacted):
        return
    records = _decode(batch)
    if verify_records:
        _check_consistency(batch, records)
    if config.is_compacted:
        _raise_for(
            errors.InvalidRecordError,
            (
                (index, "Compacted topic cannot accept message without key")
                for index, record in enumerate(records)
                if record.key is None
            ),
        )
    _raise_for(
        errors.InvalidTimestampError,
        (
            (index, f"Timestamp {record.timestamp_ms} of message is out of range")
            for index, record in enumerate(records)
            if not earliest <= record.timestamp_ms <= latest
        ),
    )


def _decode(batch: RecordBatch) -> list[DecodedRecord]:
    try:
        return batch.records()
    except errors.ProtocolError as error:
        raise RefusedError(errors.InvalidRecordError, f"Malformed records: {error}") from error


def _check_consistency(batch: RecordBatch, records: list[DecodedRecord]) -> None:
    if len(records) != batch.count:
        _refuse(f"The batch announces {batch.count} records and holds {len(records)}")
    for index, record in enumerate(records):
        if record.offset != batch.base_offset + index:
            _refuse(f"Inner record {record.offset} is not at the expected offset {index}")
    newest = max(record.timestamp_ms for record in records)
    if newest != batch.max_timestamp:
        _refuse(f"The batch's max timestamp is {batch.max_timestamp}, its records' is {newest}")


def _raise_for(error: type[errors.BrokerError], found: Iterator[tuple[int, str]]) -> None:
    record_errors = list(found)
    if not record_errors:
        return
    total = len(record_errors)
    raise RefusedError(
        error,
        f"One or more records have been rejected due to {total} record errors in total, and only "
        f"showing the first ten errors at most: {record_errors[:_SHOWN_RECORD_ERRORS]}",
        record_errors=record_errors,
    )
