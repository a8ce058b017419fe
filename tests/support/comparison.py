"""Compare what was acknowledged with what a foreign client read. The differences are short texts:
a value of 900 KiB makes an assertion's message useless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aioproducer.types import RecordMetadata, TimestampType
from support.foreign import ForeignRecord
from support.records import SampleRecord

_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One record that was sent, and what its delivery said."""

    sample: SampleRecord
    metadata: RecordMetadata


@dataclass(frozen=True, slots=True)
class SendingTime:
    """The wall clock at both ends of the sending, epoch milliseconds."""

    begin_ms: int
    end_ms: int

    def __contains__(self, timestamp: object) -> bool:
        return isinstance(timestamp, int) and self.begin_ms <= timestamp <= self.end_ms


def differences(
    sent: Sequence[Acknowledged],
    read: Iterable[ForeignRecord],
    timestamp_type: TimestampType,
    sending_time: SendingTime,
) -> list[str]:
    """Return what differs; empty when each sent record was read once, and as sent."""
    found: dict[tuple[int, int], ForeignRecord] = {}
    result: list[str] = []
    for record in read:
        place = (record.partition, record.offset)
        if place in found:
            result.append(f"{place}: read twice")
        found[place] = record
    for acknowledged in sent:
        metadata = acknowledged.metadata
        place = (metadata.partition, -1 if metadata.offset is None else metadata.offset)
        record_read = found.pop(place, None)
        if record_read is None:
            result.append(f"{place}: acknowledged (or acknowledged twice) and not read")
            continue
        compared = _facts(acknowledged, record_read, timestamp_type, sending_time)
        result += [
            f"{place}: {name}: sent {_short(wanted)}, read {_short(got)}"
            for name, wanted, got in compared
            if wanted != got
        ]
    result += [f"{place}: read and never acknowledged" for place in found]
    return result


def _facts(
    acknowledged: Acknowledged,
    read: ForeignRecord,
    timestamp_type: TimestampType,
    sending_time: SendingTime,
) -> Iterable[tuple[str, object, object]]:
    """Name, wanted and found of everything that is to be equal."""
    sample, metadata = acknowledged.sample, acknowledged.metadata
    yield "key", sample.key, read.key
    yield "value", sample.value, read.value
    yield "headers", sample.headers, read.headers
    if sample.partition is not None:
        yield "partition", sample.partition, read.partition
    yield "timestamp type", timestamp_type, read.timestamp_type
    yield "acknowledged timestamp type", timestamp_type, metadata.timestamp_type
    yield "acknowledged timestamp", metadata.timestamp_ms, read.timestamp
    if timestamp_type is TimestampType.CREATE_TIME and sample.timestamp_ms is not None:
        yield "timestamp", sample.timestamp_ms, read.timestamp
    else:
        yield "timestamp within the time of sending", True, read.timestamp in sending_time
    yield "key size", _size(sample.key), metadata.serialized_key_size
    yield "value size", _size(sample.value), metadata.serialized_value_size


def _size(part: bytes | None) -> int:
    return -1 if part is None else len(part)


def _short(thing: object) -> str:
    if isinstance(thing, bytes) and len(thing) > _SHOWN_BYTES:
        return f"{thing[:_SHOWN_BYTES]!r}... ({len(thing)} bytes)"
    return repr(thing)
