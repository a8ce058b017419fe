"""Calls with wrong arguments, and calls of a producer that has ended: each raises its error.

Owns: the arguments that no call takes. Not here: calls that brokers refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from inspect import isawaitable
from math import nan
from typing import Any

from aioproducer import Producer
from aioproducer.errors import (
    IllegalStateError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)

_TOO_LONG, _TOO_MANY, _TOO_LATE_MS = 250, 2**31, 2**63

Call = tuple[str, Callable[[], Any], type[Exception]]


async def wrongly_accepted(producer: Producer, topic: str) -> list[str]:
    """Make calls with wrong arguments; return those that raise something else, or nothing.

    No record is buffered by them. Not with serializers, which take other values.
    """
    fast_path = producer._usable().appender.fast_path
    appended = fast_path.appended
    found = await _others(_wrong_calls(producer, topic))
    if fast_path.appended > appended:
        found.append(f"{fast_path.appended - appended} records are buffered")
    return found


async def accepted_after_end(
    producer: Producer, topic: str, kind: type[KafkaError] = ProducerClosedError
) -> list[str]:
    """Make calls of a producer that has ended; return those that do not raise this error."""
    calls: list[Call] = [
        ("send", partial(producer.send, topic, b""), kind),
        ("send_nowait", partial(producer.send_nowait, topic, b""), kind),
        ("send_and_wait", partial(producer.send_and_wait, topic, b""), kind),
        ("send_many", partial(producer.send_many, topic, [b""]), kind),
        ("flush", producer.flush, kind),
        ("purge", producer.purge, kind),
        ("partitions_for", partial(producer.partitions_for, topic), kind),
        ("warm_up", partial(producer.warm_up, [topic]), kind),
        ("start", producer.start, IllegalStateError),
    ]
    return await _others(calls)


async def _others(calls: Iterator[Call] | list[Call]) -> list[str]:
    found = []
    for what, call, kind in calls:
        try:
            result = call()
            if isawaitable(result):
                result = await result
            found.append(f"{what} returns {result!r}")
        except kind:
            pass
        except Exception as error:
            found.append(f"{what} raises {error!r}")
    return found


def _wrong_calls(producer: Any, topic: str) -> Iterator[Call]:
    rows: tuple[Any, ...] = (b"xx", "xx", 5, None)
    for items in rows:
        yield f"send_many({items!r})", partial(producer.send_many, topic, items), TypeError
    yield "send_arrow(5)", partial(producer.send_arrow, topic, 5), TypeError
    yield "warm_up(str)", partial(producer.warm_up, topic), TypeError
    for timeout in (-1, nan):
        yield f"flush({timeout})", partial(producer.flush, timeout), ValueError
        yield f"close({timeout})", partial(producer.close, timeout), ValueError
    yield "start()", producer.start, IllegalStateError
    if not producer.config.transactional_id:
        yield "begin_transaction()", producer.begin_transaction, IllegalStateError
        yield "commit_transaction()", producer.commit_transaction, IllegalStateError
    for method in (producer.send, producer.send_nowait):
        for what, arguments, kind in _wrong_records(topic, producer.config.max_request_size):
            yield f"{method.__name__} with {what}", partial(method, **arguments), kind


def _wrong_records(
    topic: str, most_bytes: int
) -> Iterator[tuple[str, dict[str, Any], type[Exception]]]:
    record = {"topic": topic, "value": b"x"}
    for name in ("", "a b", "a" * _TOO_LONG, 5):
        yield f"topic {name!r}", {**record, "topic": name}, InvalidTopicError
    for value in ("x", 5):
        yield f"value {value!r}", {**record, "value": value}, SerializationError
        yield f"key {value!r}", {**record, "key": value}, SerializationError
    for partition in (-1, _TOO_MANY, "0", True):
        yield f"partition {partition!r}", {**record, "partition": partition}, InvalidPartitionError
    for stamp in (-5, _TOO_LATE_MS, "1"):
        yield f"timestamp {stamp!r}", {**record, "timestamp_ms": stamp}, SerializationError
    for headers in ([("h", "x")], [(None, b"x")], 5):
        yield f"headers {headers!r}", {**record, "headers": headers}, SerializationError
    yield "a large value", {**record, "value": bytes(most_bytes + 1)}, RecordTooLargeError
