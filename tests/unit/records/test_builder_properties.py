"""Rules for any records: both builders agree, and what is built is read back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.records import _pure
from aioproducer.records.batch import parse_header

from .helpers import built, joined

timestamps = st.one_of(
    st.integers(0, 2**63 - 1),
    st.integers(1_700_000_000_000, 1_700_000_000_200),
    st.sampled_from([0, 2**63 - 1]),
)
payloads = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.builds(
        lambda unit, size: unit * size, st.binary(min_size=1, max_size=1), st.integers(0, 9000)
    ),
)
headers = st.lists(
    st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=80)), max_size=4
).map(tuple)
rows = st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=30)


@given(rows=rows, room=st.integers(0, 30_000))
def test_native_and_pure_write_the_same_bytes_and_agree_on_what_fits(both, rows, room):
    outcomes = []
    for core in both:
        buffer = bytearray(b"\xa5" * room)
        builder = core.RecordBatchBuilder(buffer)
        indexes = [builder.try_append(*row) for row in rows]
        state = (builder.count, builder.size, builder.base_timestamp, builder.max_timestamp)
        body = bytes(builder.body())
        outcomes.append((indexes, state, body, bytes(buffer)))
    assert outcomes[0] == outcomes[1]


@given(row=st.tuples(timestamps, payloads, payloads, headers))
def test_native_and_pure_agree_on_the_size_bound(both, row):
    native, pure = both
    assert native.record_size_bound(*row[1:]) == pure.record_size_bound(*row[1:])


@given(data=st.binary(max_size=200), partitions=st.integers(1, 1000))
def test_native_and_pure_agree_on_hash_and_partition(both, data, partitions):
    native, pure = both
    assert native.murmur2(data) == pure.murmur2(data)
    assert native.murmur2_partition(data, partitions) == pure.murmur2_partition(data, partitions)


@given(rows=rows)
def test_no_record_takes_more_than_its_size_bound(rows):
    builder = _pure.RecordBatchBuilder(bytearray(2_000_000))
    for row in rows:
        before = builder.size
        builder.try_append(*row)
        assert builder.size - before <= _pure.record_size_bound(*row[1:])


@given(rows=rows, codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]))
@settings(max_examples=200)
def test_what_is_built_is_read_back(rows, codec):
    batch = parse_header(joined(built(rows, codec=codec)))
    batch.check_crc()
    assert batch.max_timestamp == max(timestamp for timestamp, *_ in rows)
    assert [
        (record.timestamp_ms, record.key, record.value, record.headers)
        for record in batch.records()
    ] == rows
    assert [record.offset for record in batch.records()] == list(range(len(rows)))
