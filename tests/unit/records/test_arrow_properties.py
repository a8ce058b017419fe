"""Rows written by native code are the bytes that the builder writes row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrow_tables import COLUMNS, Row, expected_record, rows, table_of

from aioproducer.errors import KafkaError
from aioproducer.records._pure_arrow import ArrowSource as PureSource
from aioproducer.records.layout import HEADER_SIZE

native = pytest.importorskip("aioproducer.records._native")
_arrow = pytest.importorskip("aioproducer.records._arrow")
_bulk = pytest.importorskip("aioproducer.records._bulk")

NOW = 1_700_000_000_000
LONGEST = 2**63 - 1


class Reference:
    """The batches as they are filled row by row."""

    def __init__(self, sizes: list[int], hashes_keys: bool, sticky: int, room: int) -> None:
        self.builders = [native.RecordBatchBuilder(bytearray(size)) for size in sizes]
        self.hashes_keys = hashes_keys
        self.sticky = sticky
        self.room = room
        self.rows: list[list[int]] = [[] for _ in sizes]

    def append(self, number: int, row: Any, size_limit: int) -> bool:
        _, key, value, headers, partition, time = row
        bound = native.record_size_bound(key, value, headers)
        if bound + HEADER_SIZE > size_limit or (time is not None and not 0 <= time <= LONGEST):
            return False
        sticks = partition is None and (key is None or not self.hashes_keys)
        if partition is None:
            partition = self.sticky if sticks else native.murmur2_partition(key, len(self.builders))
        if not 0 <= partition < len(self.builders) or (sticks and bound >= self.room):
            return False
        time = NOW if time is None else time
        if self.builders[partition].try_append(time, key, value, headers) < 0:
            return False
        self.room -= bound if sticks else 0
        self.rows[partition].append(number)
        return True


@given(
    st.data(),
    rows(max_size=30),
    st.lists(st.integers(0, 600), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 2000),
    st.integers(80, 400),
)
def test_native_code_writes_what_the_builder_would_and_stops_where_it_would_not(
    data: st.DataObject,
    given_rows: list[Row],
    sizes: list[int],
    hashes_keys: bool,
    room: int,
    size_limit: int,
) -> None:
    sticky = data.draw(st.integers(0, len(sizes) - 1))
    table = data.draw(table_of(given_rows))
    reference = Reference(sizes, hashes_keys, sticky, room)
    builders = [native.RecordBatchBuilder(bytearray(size)) for size in sizes]
    batches = _bulk.OpenBatches(len(sizes), hashes_keys)
    shares = [_bulk.Share(builder) for builder in builders]
    for partition, share in enumerate(shares):
        batches.add_batch(partition, share)
    batches.stick(sticky, room)
    source = _arrow.ArrowSource(table, COLUMNS)
    number = 0
    while (chunk := source.next()) is not None:
        topics = chunk.topics(0, len(chunk))
        row = 0
        while row < len(chunk):
            first = row
            row, stuck = chunk.fill(
                [batches] * len(topics), row, len(chunk), number, NOW, size_limit, 1 << 20
            )
            for written in range(first, row):
                expected = expected_record(given_rows[number + written])
                assert reference.append(number + written, expected, size_limit)
            assert stuck == (row < len(chunk))
            if stuck:
                expected = expected_record(given_rows[number + row])
                assert not reference.append(number + row, expected, size_limit)
                row += 1
        number += len(chunk)
    assert number == len(given_rows)
    for builder, expected_builder in zip(builders, reference.builders, strict=True):
        assert bytes(builder.body()) == bytes(expected_builder.body())
        for fact in ("count", "largest", "base_timestamp", "max_timestamp"):
            assert getattr(builder, fact) == getattr(expected_builder, fact)
    for share, numbers in zip(shares, reference.rows, strict=True):
        noted = [(row + step, at + step) for row, at, n in share.runs() for step in range(n)]
        assert noted == list(zip(numbers, range(len(numbers)), strict=True))
        assert share.records == len(numbers)
        if numbers:
            assert (share.first_index, share.last_index) == (0, len(numbers) - 1)
    assert batches.take_sticky_bytes() == room - reference.room


@given(st.data(), rows(max_size=20))
def test_both_readers_read_what_was_put_in(data: st.DataObject, given_rows: list[Row]) -> None:
    table = data.draw(table_of(given_rows))
    for reader in (_arrow.ArrowSource, PureSource):
        source = reader(table, COLUMNS)
        read = []
        while (chunk := source.next()) is not None:
            read += [chunk.record(row) for row in range(len(chunk))]
        assert read == [expected_record(row) for row in given_rows]


@given(rows(max_size=20), st.integers(0, 10), st.integers(1, 300))
def test_a_budget_ends_a_fill_early_and_loses_no_row(
    given_rows: list[Row], skipped: int, budget: int
) -> None:
    table = pa.table({"v": pa.array([row.value for row in given_rows], pa.binary())})
    builder = native.RecordBatchBuilder(bytearray(100_000))
    share = _bulk.Share(builder)
    batches = _bulk.OpenBatches(1, True)
    batches.add_batch(0, share)
    batches.stick(0, 1 << 40)
    chunk = _arrow.ArrowSource(
        table.combine_chunks().to_batches()[0] if given_rows else table, _arrow_columns()
    ).next()
    if chunk is None:
        return
    row = min(skipped, len(chunk))
    first = row
    while row < len(chunk):
        before = row
        row, stuck = chunk.fill([batches], row, len(chunk), 0, NOW, 1 << 20, budget)
        assert not stuck
        assert row > before
    assert share.runs() == ([(first, 0, len(chunk) - first)] if first < len(chunk) else [])


@given(
    st.lists(st.binary(max_size=300), max_size=20) | st.lists(st.none() | st.binary(max_size=9)),
    st.integers(0, 5),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.booleans(),
    st.integers(0, 2000),
    st.integers(80, 400),
)
def test_values_alone_are_written_as_the_builder_would_or_left_alone(
    values: list[bytes | None],
    skipped: int,
    kind: pa.DataType,
    slices_rows: bool,
    room: int,
    size_limit: int,
) -> None:
    """Draw whether the rows are sliced, or the column in them."""
    array, left = pa.array(values, kind), values[skipped:]
    if slices_rows:
        batch = pa.record_batch({"v": array}).slice(skipped)
    else:
        batch = pa.record_batch({"v": array.slice(skipped)})
    chunk = _arrow.ArrowSource(batch, _arrow_columns()).next()
    if chunk is None:
        return
    reference = Reference([900], True, 0, room)
    share = _bulk.Share(native.RecordBatchBuilder(bytearray(900)))
    batches = _bulk.OpenBatches(1, True)
    batches.add_batch(0, share)
    batches.stick(0, room)
    row = 0
    while row < len(left):
        first = row
        row, stuck = chunk.fill([batches], row, len(left), 0, NOW, size_limit, 1 << 20)
        for written in range(first, row):
            assert reference.append(
                written, (None, None, left[written], (), None, None), size_limit
            )
        if stuck:
            assert not reference.append(row, (None, None, left[row], (), None, None), size_limit)
            row += 1
    assert bytes(share.builder.body()) == bytes(reference.builders[0].body())
    assert batches.take_sticky_bytes() == room - reference.room


def _arrow_columns() -> Any:
    from aioproducer.records.arrow import ArrowColumns

    return ArrowColumns("v")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_shares_of_both_forms_keep_the_same_books(steps: list[tuple[int, int]]) -> None:
    from aioproducer.records._pure_bulk import Share

    builder = native.RecordBatchBuilder(bytearray(10))
    both = [_bulk.Share(builder), Share(builder)]
    row = index = 0
    for row_step, index_step in steps:
        row, index = row + 1 + row_step % 2, index + 1 + index_step % 2
        for share in both:
            share.add(row, index)
    first, second = both
    assert first.runs() == second.runs()
    assert first.records == second.records == len(steps)
    if steps:
        assert (first.first_index, first.last_index) == (second.first_index, second.last_index)


ITEM = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=40)),
    st.tuples(
        st.none() | st.binary(max_size=9),
        st.binary(max_size=9),
        st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5))),
        st.none() | st.integers(-2, 2**64),
        st.none() | st.integers(-2, 4) | st.just(2**70),
    ),
    st.sampled_from(
        ["text", None, 7, (b"k",), (b"k", b"v", 1), (b"k", b"v", None, 1.5), (1, b"v")]
    ),
)


@given(
    st.lists(ITEM, max_size=30),
    st.lists(st.integers(0, 400), min_size=1, max_size=3),
    st.booleans(),
    st.none() | st.integers(-1, 3),
    st.integers(80, 200),
)
def test_items_are_written_as_the_builder_would_or_left_alone(
    items: list[Any], sizes: list[int], hashes_keys: bool, partition: int | None, size_limit: int
) -> None:
    reference = Reference(sizes, hashes_keys, 0, 500)
    batches = _bulk.OpenBatches(len(sizes), hashes_keys)
    shares = [_bulk.Share(native.RecordBatchBuilder(bytearray(size))) for size in sizes]
    for number, share in enumerate(shares):
        batches.add_batch(number, share)
    batches.stick(0, 500)
    at = 0
    while at < len(items):
        first = at
        at, stuck = _bulk.fill_items(
            items, batches, partition, at, len(items), 100, NOW, size_limit, 1 << 20
        )
        for number in range(first, at):
            assert reference.append(number, _parts(items[number], partition), size_limit)
        assert stuck == (at < len(items))
        if stuck:
            assert not _would_go(reference, items[at], partition, size_limit)
            at += 1
    for share, expected in zip(shares, reference.builders, strict=True):
        assert bytes(share.builder.body()) == bytes(expected.body())


def _parts(item: Any, partition: int | None) -> tuple[Any, ...]:
    key, value, headers, time, own = (
        (*item, None, None, None)[:5] if isinstance(item, tuple) else (None, item, None, None, None)
    )
    return None, key, value, tuple(headers or ()), partition if own is None else own, time


def _would_go(reference: Reference, item: Any, partition: int | None, size_limit: int) -> bool:
    if isinstance(item, tuple) and not 2 <= len(item) <= 5:
        return False
    try:
        return item is not None and reference.append(0, _parts(item, partition), size_limit)
    except (TypeError, ValueError, KafkaError):
        return False
