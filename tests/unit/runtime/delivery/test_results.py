"""The result of `await delivery` does not change with later awaits."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.types import RecordMetadata, TimestampType

from ..send.fast_paths import NOW_MS, Bench

pytestmark = pytest.mark.usefixtures("fast_path_form")


async def delivered(*values: bytes | None, base_offset: int = 0) -> tuple[Bench, list]:
    """Records that were acknowledged, and their deliveries."""
    bench = Bench()
    bench.know(a=1)
    deliveries = [
        await bench.producer.send("a", value, timestamp_ms=NOW_MS + number)
        for number, value in enumerate(values)
    ]
    while bench.complete_oldest(base_offset) is not None:
        pass
    return bench, deliveries


def expected(number: int, value: bytes | None, base_offset: int = 0) -> RecordMetadata:
    return RecordMetadata(
        "a",
        0,
        base_offset + number,
        NOW_MS + number,
        TimestampType.CREATE_TIME,
        -1,
        -1 if value is None else len(value),
    )


async def test_metadata_as_a_dict_can_be_written_as_json() -> None:
    bench, (delivery,) = await delivered(b"v")
    written = json.loads(json.dumps((await delivery)._asdict()))
    assert RecordMetadata(**written) == expected(0, b"v")
    bench.end()


@given(
    keeps=st.lists(st.tuples(st.sampled_from(["drop", "name", "list", "task"]), st.integers(0, 9))),
    base_offset=st.sampled_from([0, 250, 1 << 40]),
)
def test_metadata_that_are_referenced_never_change(keeps, base_offset):
    values = [None if size == 9 else b"v" * size for _, size in keeps]

    async def check() -> None:
        bench, deliveries = await delivered(*values, base_offset=base_offset)
        held: list[tuple[int, RecordMetadata]] = []
        metadata = None
        for number, delivery in enumerate(deliveries):
            match keeps[number][0]:
                case "drop":
                    await delivery
                case "name":
                    metadata = await delivery
                    assert metadata == expected(number, values[number], base_offset)
                case "list":
                    held.append((number, await delivery))
                case "task":
                    held.append((number, await asyncio.ensure_future(delivery)))
                case unknown:
                    raise AssertionError(unknown)
            if metadata is not None:
                at = metadata.offset - base_offset
                assert metadata == expected(at, values[at], base_offset)
        for number, kept in held:
            assert type(kept) is RecordMetadata
            assert kept == expected(number, values[number], base_offset)
        bench.end()

    asyncio.run(check())


async def test_metadata_hash_as_their_fields_do():
    bench, deliveries = await delivered(*[b"v"] * 6)
    for _ in range(2):
        for number, delivery in enumerate(deliveries):
            metadata = await delivery
            assert hash(metadata) == hash(expected(number, b"v")) == hash(tuple(metadata))
            assert {expected(number, b"v"): number}[metadata] == number
    bench.end()


async def test_awaits_that_overlap_give_each_their_own():
    bench, (first, second) = await delivered(b"1", b"22")
    awaits = [first.__await__(), second.__await__(), first.__await__()]
    found = []
    for each in reversed(awaits):
        with pytest.raises(StopIteration) as stop:
            next(each)
        found.append(stop.value.value.serialized_value_size)
    assert found == [1, 2, 1]
    bench.end()


@pytest.mark.parametrize("how", ["resumed", "closed", "thrown into"])
async def test_await_that_has_ended_disturbs_no_other(how):
    bench, (delivery, other) = await delivered(b"v", b"v")
    ended = delivery.__await__()
    if how == "resumed":
        with pytest.raises(StopIteration):
            next(ended)
    elif how == "closed":
        ended.close()
    else:
        with pytest.raises(LookupError):
            ended.throw(LookupError())
    assert [(await each).offset for each in (other, delivery)] == [1, 0]
    with pytest.raises((RuntimeError, StopIteration)) as again:
        next(ended)
    assert getattr(again.value, "value", None) in (None, expected(0, b"v"))
    assert [(await each).offset for each in (other, delivery)] == [1, 0]
    bench.end()


async def test_await_that_waits_for_nothing_has_no_loop():
    bench = Bench()
    bench.know(a=1)
    waits = (await bench.producer.send("a", b"v")).__await__()
    with pytest.raises(AttributeError):
        waits.get_loop  # noqa: B018
    bench.end()
