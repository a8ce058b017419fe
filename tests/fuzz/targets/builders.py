"""The two forms of the native core, given the same calls with any arguments.

Input: the buffer's size, then calls of `try_append`, each followed by what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

from aioproducer.records import _pure
from aioproducer.records.batch import encode_batch, read_batches
from fuzz.guard import Target, require
from fuzz.source import Source, blob

_MOST_CALLS = 64
_LONGEST_PAYLOAD = 9000
"""Lengths from 8192 on take a third byte; what is longer costs the pure core's hash its time."""
_CLOSE, _RELEASE = 0xFE, 0xFF
_ENDINGS = {_CLOSE: "close", _RELEASE: "release"}
"""The first byte of a call; any other means `try_append`, odd ones with a check of the body."""
_EDGES = [0, 1, -1, 63, 64, 8191, 8192, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**70, True]
_NO_PAYLOADS = ["text", 7, 1.5, ["list"], object]
_NO_TIMESTAMPS = [None, "1", b"1", 1.5, [], object]
_NO_HEADERS = [
    None,
    [],
    {},
    "ab",
    ("ab",),
    (("a",),),
    (("a", b"", b""),),
    ((b"a", b""),),
    (("a", "b"),),
    (("a", bytearray(b"b")),),
    ((None, b""),),
    (["a", b""],),
    (("\ud800", b""),),
    (("\ud800", "b"),),
    (("\ud800", b""), 7),
    (("a", b""), None),
]


def run(data: bytes) -> None:
    from aioproducer.records import _native

    source = Source(data)
    size = source.number(2)
    buffers = bytearray(size), bytearray(size)
    native, pure = _native.RecordBatchBuilder(buffers[0]), _pure.RecordBatchBuilder(buffers[1])
    appended: list[tuple] = []
    released = False
    for _ in range(_MOST_CALLS):
        if not source.left:
            break
        call = source.number(1)
        if call in _ENDINGS:
            for builder in (native, pure):
                getattr(builder, _ENDINGS[call])()
            released = released or call == _RELEASE
            continue
        last = appended[-1][0] if appended else 0
        row = _timestamp(source, last), _payload(source), _payload(source), _headers(source)
        outcome = _same(native.try_append, pure.try_append, *row)
        _compare_functions(_native, row, source.number(1))
        if isinstance(outcome, int) and outcome >= 0:
            appended.append(row)
        if call & 1:
            _same(partial(_body, native), partial(_body, pure))
    for name in ("size", "count", "base_timestamp", "max_timestamp"):
        both = getattr(native, name), getattr(pure, name)
        require(both[0] == both[1], "{} of the native and the pure builder: {}", name, both)
    _same(partial(_body, native), partial(_body, pure))
    if not released:
        require(buffers[0] == buffers[1], "the buffers differ after the body")
        require(not any(buffers[0][native.size :]), "bytes were written after the body")
        if appended:
            _check_contents(native, appended)


def _body(builder: Any) -> bytes:
    return bytes(builder.body())


def _same(native: Callable[..., object], pure: Callable[..., object], *arguments: object) -> object:
    """The result of a call in both cores; an error counts with its text."""
    outcome, other = _outcome(native, arguments), _outcome(pure, arguments)
    require(
        outcome == other,
        "{} of {!r} gives {!r} in the native core and {!r} in the pure one",
        native,
        arguments,
        outcome,
        other,
    )
    return outcome


def _outcome(call: Callable[..., object], arguments: tuple) -> object:
    try:
        return call(*arguments)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


def _compare_functions(native: ModuleType, row: tuple, partitions: int) -> None:
    _, key, value, headers = row
    bound = _same(native.record_size_bound, _pure.record_size_bound, key, value, headers)
    if isinstance(bound, int):
        index = native.RecordBatchBuilder(bytearray(bound)).try_append(0, key, value, headers)
        require(index == 0, "{!r} needs more than the {} bytes it is said to", row, bound)
    _same(native.murmur2, _pure.murmur2, key)
    if partitions:
        _same(native.murmur2_partition, _pure.murmur2_partition, key, partitions)


def _check_contents(builder: Any, rows: list[tuple]) -> None:
    encoded = encode_batch(
        builder.body(),
        count=len(rows),
        base_timestamp=builder.base_timestamp,
        max_timestamp=builder.max_timestamp,
    )
    (batch,) = read_batches(b"".join(encoded.buffers))
    found = [record[1:] for record in batch.records()]
    wanted = [
        (time, *(None if each is None else bytes(each) for each in (key, value)), headers)
        for time, key, value, headers in rows
    ]
    require(found == wanted, "{} was written, {} is read", wanted, found)


def _timestamp(source: Source, last: Any) -> object:
    match source.number(1) % 6:
        case 0:
            return last
        case 1:
            return last + source.number(1, signed=True)
        case 2:
            return source.number(8, signed=True)
        case 3:
            return source.one_of(_EDGES)
        case 4:
            return float(last)
        case _:
            return source.one_of(_NO_TIMESTAMPS)


def _payload(source: Source) -> object:
    match source.number(1) % 8:
        case 0:
            return None
        case 1:
            return source.blob()
        case 2:
            return bytes(source.number(2) % _LONGEST_PAYLOAD)
        case 3:
            return bytearray(source.blob())
        case 4:
            return memoryview(source.blob())
        case 5:
            return memoryview(source.blob())[::2]
        case 6:
            raw = source.blob()
            return memoryview(raw[: len(raw) & ~3]).cast("i")
        case _:
            return source.one_of(_NO_PAYLOADS)


def _headers(source: Source) -> object:
    choice = source.number(1)
    if choice >= 0xF0:
        return source.one_of(_NO_HEADERS)
    return tuple(
        (
            source.blob().decode("utf-8", "surrogateescape"),
            source.blob() if source.number(1) & 1 else None,
        )
        for _ in range(choice % 4)
    )


def seeds() -> Iterator[bytes]:
    now = b"\x02" + (1_700_000_000_000).to_bytes(8, "big")
    value = b"\x01" + blob(b"a value")
    header = blob(b"name") + b"\x01" + blob(b"x")
    plain = b"\0" + now + b"\0" + value + b"\0" + b"\x03"
    full = b"\1\0" + b"\x01" + blob(b"key") + value + b"\1" + header + b"\x07"
    for size in (0, 10, 40, 4000):
        yield size.to_bytes(2, "big") + plain + full * 3
        yield size.to_bytes(2, "big") + plain + b"\xfe" + full
        yield size.to_bytes(2, "big") + full + b"\xff" + full
    for kind in range(6):
        yield b"\x0f\xa0" + plain + (b"\1" + bytes([kind]) + b"\x05" + bytes(12)) * 2
    for kind in range(8):
        yield b"\x0f\xa0" + b"\0\0" + bytes([kind]) + blob(b"12345678") + bytes([kind]) * 8
    for index in range(len(_NO_HEADERS)):
        yield b"\x0f\xa0" + b"\0\0" + b"\0\0" + b"\xf0" + bytes([index]) + b"\0"


# Two bytes may ask for a long payload, and the first two for the size of the buffers.
TARGET = Target(
    "builders", run, seeds, bytes_per_byte=_LONGEST_PAYLOAD, extra_bytes=1024 * 1024, longest=512
)
