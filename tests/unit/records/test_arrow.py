"""Arrow data as rows: both readers, every type a column may have, and releases."""

from __future__ import annotations

import ctypes
import gc
import struct
import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from support.arrow import WatchedArray, WatchedStream, array_in

from aioproducer.errors import SerializationError
from aioproducer.records.arrow import ArrowColumns
from aioproducer.records.arrow_layout import Field, plan_columns

ANY_COLUMNS = ArrowColumns("v", "k", "h", "p", "ts", "topic")


@pytest.fixture(params=["native", "pure"])
def arrow(request: pytest.FixtureRequest) -> ModuleType:
    """The native reader or the pure-Python one: the same tests hold for both."""
    name = {"native": "_arrow", "pure": "_pure_arrow"}[request.param]
    try:
        return import_module(f"aioproducer.records.{name}")
    except ImportError:
        pytest.skip(f"the {request.param} reader is not built")


def rows_of(arrow: ModuleType, data: Any, columns: ArrowColumns = ANY_COLUMNS) -> list[Any]:
    source = arrow.ArrowSource(data, columns)
    rows = []
    while (chunk := source.next()) is not None:
        rows += [chunk.record(row) for row in range(len(chunk))]
        chunk.close()
    source.close()
    return rows


def values_of(arrow: ModuleType, array: Any) -> list[bytes | None]:
    rows = rows_of(arrow, pa.table({"v": array}), ArrowColumns("v"))
    assert all(row[:2] == (None, None) and row[3:] == ((), None, None) for row in rows)
    return [row[2] for row in rows]


def stream_of(array: Any, good: bytes, bad: bytes) -> Any:
    """A table out of an Arrow stream in which some bytes are others."""
    sink = pa.BufferOutputStream()
    table = pa.table({"v": array})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes()
    assert content.count(good) == 1
    return pa.ipc.open_stream(content.replace(good, bad)).read_all()


@pytest.mark.parametrize(
    ("length", "block", "offset"),
    [(41, 0, 0), (2**31 - 1, 0, 0), (20, 0, 21), (20, 0, -1), (20, 1, 0), (-1, 0, 0)],
)
def test_a_view_beyond_its_buffer_is_an_error(
    arrow: ModuleType, length: int, block: int, offset: int
) -> None:
    array = pa.array([b"x" * 20, b"y" * 20], pa.binary_view())
    view = struct.Struct("<i4sii")
    good, bad = (20, b"yyyy", 0, 20), (length, b"yyyy", block, offset)
    table = stream_of(array, view.pack(*good), view.pack(*bad))
    with pytest.raises(SerializationError, match="contradict"):
        rows_of(arrow, table, ArrowColumns("v"))


def test_a_view_at_the_end_of_its_buffer_is_read(arrow: ModuleType) -> None:
    array = pa.array([b"x" * 20, b"y" * 20], pa.binary_view())
    view = struct.Struct("<i4sii")
    table = stream_of(array, view.pack(20, b"yyyy", 0, 20), view.pack(40, b"yyyy", 0, 0))
    assert [row[2] for row in rows_of(arrow, table, ArrowColumns("v"))] == [
        b"x" * 20,
        b"x" * 20 + b"y" * 20,
    ]


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_beyond_its_dictionary_is_an_error(arrow: ModuleType, index: int) -> None:
    indices, words = pa.array([0, index], pa.int8()), pa.array(["x", "y", "z"]).slice(0, 2)
    array = pa.DictionaryArray.from_arrays(indices, words, safe=False)
    with pytest.raises(SerializationError, match="contradict"):
        values_of(arrow, array)


class Contradicting:
    """The schema of one column and the array of another, the latter changed by `edit`."""

    def __init__(self, named: Any, given: Any, edit: Callable[[Any], None] | None = None) -> None:
        self._named, self._given = (
            pa.StructArray.from_arrays([column], ["c"]) for column in (named, given)
        )
        self._edit = edit

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema, _ = self._named.__arrow_c_array__()
        _, array = self._given.__arrow_c_array__()
        if self._edit:
            self._edit(array_in(array))
        return schema, array


NUMBERS = pa.array([1])
HEADER = pa.array([[{"key": "a", "value": b"1"}]])
LONG_VIEW = pa.array([b"x" * 20], pa.binary_view())


def lengthen(array: Any) -> None:
    array.length += 1


def test_a_cell_that_ends_before_it_begins_is_refused(arrow: ModuleType) -> None:
    def set_end(array: Any) -> None:
        end = array.children[0].contents.buffers[1] + 4
        ctypes.c_int32.from_address(end).value = -1

    words = pa.array(["a"])
    with pytest.raises(SerializationError, match="contradict themselves"):
        rows_of(arrow, Contradicting(words, words, set_end), ArrowColumns("c"))


@pytest.mark.parametrize(("count", "expected"), [(1, None), (-1, None), (0, b"")])
def test_nulls_are_looked_up_unless_an_array_says_that_it_has_none(
    arrow: ModuleType, count: int, expected: bytes | None
) -> None:
    """A count of -1 is one that is not known."""

    def set_null_count(array: Any) -> None:
        array.children[0].contents.null_count = count

    words = pa.array(["a", None])
    data = Contradicting(words, words, set_null_count)
    assert [row[2] for row in rows_of(arrow, data, ArrowColumns("c"))] == [b"a", expected]


def drop_sizes_of_blocks(array: Any) -> None:
    column = array.children[0].contents
    column.buffers[column.n_buffers - 1] = None


def test_a_view_of_a_block_of_a_negative_size_is_refused(arrow: ModuleType) -> None:
    def set_size(array: Any) -> None:
        column = array.children[0].contents
        ctypes.c_int64.from_address(column.buffers[column.n_buffers - 1]).value = -1

    with pytest.raises(SerializationError, match="contradict themselves"):
        rows_of(arrow, Contradicting(LONG_VIEW, LONG_VIEW, set_size), ArrowColumns("c"))


@pytest.mark.parametrize(
    ("part", "named", "given", "edit", "text"),
    [
        ("value", pa.array(["a"]), NUMBERS, None, "a buffer is missing"),
        ("value", pa.array(["a"]), pa.nulls(1), None, "a buffer is missing"),
        ("value", pa.array(["a"]), pa.array(["a"]), lengthen, "a column is too short"),
        ("value", LONG_VIEW, LONG_VIEW, drop_sizes_of_blocks, "a buffer is missing"),
        ("value", pa.array(["a"]).dictionary_encode(), NUMBERS, None, "a dictionary is missing"),
        ("partition", NUMBERS, NUMBERS, lengthen, "a column is too short"),
        ("headers", HEADER, NUMBERS, None, "a list without its entries"),
        ("headers", HEADER, pa.array([[{"key": "a"}]]), None, "a column is missing"),
        ("headers", HEADER, pa.array([[{}]]), None, "a column is missing"),
    ],
)
def test_an_array_that_is_not_as_its_schema_says_is_refused(
    arrow: ModuleType,
    part: str,
    named: Any,
    given: Any,
    edit: Callable[[Any], None] | None,
    text: str,
) -> None:
    with pytest.raises(SerializationError, match=f"contradict their schema: {text}"):
        rows_of(arrow, Contradicting(named, given, edit), ArrowColumns(**{part: "c"}))


BYTES = [b"", b"a", None, b"twelve bytes", b"thirteen byte", b"\xff" * 300]
TEXTS = ["", "a", None, "twelve bytes", "thirteen byte", "ä" * 150]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_bytes_of_every_layout_are_read(arrow: ModuleType, kind: pa.DataType) -> None:
    assert values_of(arrow, pa.array(BYTES, kind)) == BYTES


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_is_read_as_its_utf_8(arrow: ModuleType, kind: pa.DataType) -> None:
    expected = [None if text is None else text.encode() for text in TEXTS]
    assert values_of(arrow, pa.array(TEXTS, kind)) == expected


def test_fixed_size_bytes_are_read(arrow: ModuleType) -> None:
    array = pa.array([b"abc", None, b"def"], pa.binary(3))
    assert values_of(arrow, array) == [b"abc", None, b"def"]
    assert values_of(arrow, array.slice(1)) == [None, b"def"]


@pytest.mark.parametrize(
    "index", [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()]
)
def test_dictionaries_are_looked_up(arrow: ModuleType, index: pa.DataType) -> None:
    indexes = pa.array([1, None, 0, 2, 1], index)
    array = pa.DictionaryArray.from_arrays(indexes, pa.array(["x", None, "z"]))
    assert values_of(arrow, array) == [None, None, b"x", b"z", None]
    assert values_of(arrow, array.slice(2, 2)) == [b"x", b"z"]


def test_a_null_column_is_nothing_but_nulls(arrow: ModuleType) -> None:
    assert values_of(arrow, pa.nulls(3)) == [None] * 3
    assert values_of(arrow, pa.nulls(3).dictionary_encode()) == [None] * 3


@pytest.mark.parametrize("part", ["key", "headers", "partition", "timestamp", "topic"])
@pytest.mark.parametrize(
    "column", [pa.nulls(2), pa.nulls(2).dictionary_encode()], ids=["nulls", "categorical"]
)
def test_each_part_may_come_from_a_column_without_any_value(
    arrow: ModuleType, part: str, column: Any
) -> None:
    table = pa.table({"v": [b"a", b"b"], "c": column})
    rows = rows_of(arrow, table, ArrowColumns("v", **{part: "c"}))
    assert rows == [(None, None, value, (), None, None) for value in (b"a", b"b")]


def test_slices_and_chunks_are_read_in_order(arrow: ModuleType) -> None:
    array = pa.array([b"%d" % number if number % 3 else None for number in range(50)])
    chunked = pa.chunked_array(
        [array.slice(7, 9), array.slice(3, 0), array.slice(30), array.slice(0, 1)]
    )
    assert values_of(arrow, chunked) == chunked.to_pylist()


def test_an_empty_table_has_no_rows(arrow: ModuleType) -> None:
    assert values_of(arrow, pa.array([], pa.string())) == []


HEADERS = [[("a", b"1"), ("a", None)], None, [], [("ö", b"")], [("z", b"26")]]
PAIRS = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.large_string(), pa.binary_view()),
        pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.large_binary()),
        pa.list_(PAIRS),
        pa.large_list(PAIRS),
        pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])),
        pa.list_(pa.struct([("name", pa.string()), ("content", pa.binary())])),
    ],
)
def test_headers_are_read_from_maps_and_lists_of_pairs(
    arrow: ModuleType, kind: pa.DataType
) -> None:
    if pa.types.is_map(kind):
        array = pa.array(HEADERS, kind)
    else:
        names = [field.name for field in kind.value_type]
        key = "key" if "key" in names else names[0]
        other = next(name for name in names if name != key)
        array = pa.array(
            [row and [{key: name, other: value} for name, value in row] for row in HEADERS], kind
        )
    expected = [tuple(row or ()) for row in HEADERS]
    for begin in (0, 1, 3):
        rows = rows_of(arrow, pa.table({"h": array.slice(begin)}), ArrowColumns(headers="h"))
        assert [row[3] for row in rows] == expected[begin:]


def test_headers_are_read_from_entries_that_do_not_begin_their_array(arrow: ModuleType) -> None:
    entries = pa.array([{"key": key, "value": key.encode()} for key in "abcdef"], PAIRS).slice(2)
    array = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), entries)
    assert array.values.offset == 2
    rows = rows_of(arrow, pa.table({"h": array}), ArrowColumns(headers="h"))
    assert [row[3] for row in rows] == [(("c", b"c"),), (), (("d", b"d"), ("e", b"e"))]


NOT_UTF8 = pa.array([b"\xff"]).view(pa.string())


@pytest.mark.parametrize(
    ("table", "columns", "text"),
    [
        (pa.table({"t": NOT_UTF8}), ArrowColumns(topic="t"), "a topic is not UTF-8"),
        (
            pa.table({"h": pa.MapArray.from_arrays([0, 1], NOT_UTF8, pa.array([b""]))}),
            ArrowColumns(headers="h"),
            "a header's name is not UTF-8",
        ),
    ],
    ids=["topic", "header"],
)
def test_text_that_is_not_utf_8_is_refused(
    arrow: ModuleType, table: Any, columns: ArrowColumns, text: str
) -> None:
    with pytest.raises(SerializationError, match=text):
        rows_of(arrow, table, columns)


def test_headers_are_read_from_lists_of_a_fixed_size(arrow: ModuleType) -> None:
    pairs = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None]
    array = pa.array([*pairs, *pairs], pa.list_(PAIRS, 2))
    expected = [(("a", b"1"), ("b", None)), ()] * 2
    for begin in range(4):
        rows = rows_of(arrow, pa.table({"h": array.slice(begin)}), ArrowColumns(headers="h"))
        assert [row[3] for row in rows] == expected[begin:]


@pytest.mark.parametrize("pair", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_name_is_refused(arrow: ModuleType, pair: Any) -> None:
    with pytest.raises(SerializationError, match="a header, or its name, is null"):
        rows_of(
            arrow, pa.table({"h": pa.array([[pair]], pa.list_(PAIRS))}), ArrowColumns(headers="h")
        )


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (pa.int8(), [1, None, -128]),
        (pa.uint8(), [1, None, 255]),
        (pa.int16(), [1, None, -(2**15)]),
        (pa.uint16(), [1, None, 2**16 - 1]),
        (pa.int32(), [1, None, -(2**31)]),
        (pa.uint32(), [1, None, 2**32 - 1]),
        (pa.int64(), [1, None, -(2**63)]),
        (pa.uint64(), [1, None, 2**64 - 1]),
    ],
)
def test_partitions_are_read_from_every_integer(
    arrow: ModuleType, kind: pa.DataType, numbers: list[int | None]
) -> None:
    table = pa.table({"p": pa.array(numbers, kind)})
    assert [row[4] for row in rows_of(arrow, table, ArrowColumns(partition="p"))] == numbers


@pytest.mark.parametrize(
    ("kind", "time", "expected"),
    [
        (pa.timestamp("s"), 1_700_000_000, 1_700_000_000_000),
        (pa.timestamp("s", "Europe/Berlin"), 2**62, 2**62 * 1000),
        (pa.timestamp("ms"), 1_700_000_000_123, 1_700_000_000_123),
        (pa.timestamp("us", "UTC"), 1_700_000_000_123_999, 1_700_000_000_123),
        (pa.timestamp("ns"), 1_700_000_000_123_999_999, 1_700_000_000_123),
        (pa.timestamp("ns"), -1, -1),
        (pa.int64(), 1_700_000_000_123, 1_700_000_000_123),
    ],
)
def test_timestamps_of_every_unit_become_milliseconds(
    arrow: ModuleType, kind: pa.DataType, time: int, expected: int
) -> None:
    table = pa.table({"ts": pa.array([time, None], pa.int64()).cast(kind)})
    rows = rows_of(arrow, table, ArrowColumns(timestamp="ts"))
    assert [row[5] for row in rows] == [expected, None]


def test_a_row_that_is_null_as_a_whole_is_a_record_of_nulls(arrow: ModuleType) -> None:
    structs = pa.array(
        [{"v": b"1", "k": "k", "p": 1}, None, {"v": b"2", "k": None, "p": None}],
        pa.struct([("v", pa.binary()), ("k", pa.string()), ("p", pa.int8())]),
    )
    columns = ArrowColumns("v", "k", partition="p")
    for begin in range(3):
        rows = rows_of(arrow, structs.slice(begin), columns)
        assert [(row[2], row[1], row[4]) for row in rows] == [
            (b"1", b"k", 1),
            (None, None, None),
            (b"2", None, None),
        ][begin:]


@pytest.mark.parametrize(
    ("column", "array", "text"),
    [
        ("v", pa.array([1]), "column 'v' is int64; a column for the value is binary or string"),
        ("k", pa.array([1.5]), "column 'k' is float64; a column for the key is binary"),
        ("k", pa.array([["a"]]), "column 'k' is list<string>; a column for the key"),
        ("h", pa.array(["a"]), "column 'h' is string; a column for the headers is map<string"),
        (
            "h",
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
            "column 'h' is map<string, int8>; a column for the headers",
        ),
        (
            "h",
            pa.array([[(b"a", b"")]], pa.map_(pa.binary(), pa.binary())),
            "column 'h' is map<binary, binary>; a column for the headers",
        ),
        ("p", pa.array([1.0]), "column 'p' is float64; a column for the partition is an integer"),
        ("p", pa.array([1]).dictionary_encode(), "column 'p' is dictionary<int64>"),
        ("ts", pa.array([1], pa.int32()), "column 'ts' is int32; a column for the timestamp is"),
        ("ts", pa.array([1], pa.date32()), "column 'ts' is date32; a column for the timestamp"),
        ("topic", pa.array([b"t"]), "column 'topic' is binary; a column for the topic is string"),
        ("v", pa.array([[1]], pa.list_view(pa.int8())), "column 'v' is list_view<int8>"),
        ("v", pa.array([1], pa.decimal128(5)), "column 'v' is decimal; a column for the value"),
    ],
)
def test_a_wrong_type_is_refused_with_its_column_and_what_was_taken_is_released(
    arrow: ModuleType, column: str, array: Any, text: str
) -> None:
    named = {"v": "value", "k": "key", "h": "headers", "p": "partition", "ts": "timestamp"}
    columns = ArrowColumns(**{named.get(column, column): column})
    watched = WatchedStream(pa.table({column: array}))
    with pytest.raises(SerializationError) as caught:
        arrow.ArrowSource(watched, columns)
    assert text in str(caught.value)
    del caught
    gc.collect()
    assert watched.given == watched.released == 2


def test_a_column_that_does_not_exist_is_refused_with_those_that_do(arrow: ModuleType) -> None:
    with pytest.raises(SerializationError, match=r"no column 'c' for the value.*: 'a', 'b'"):
        arrow.ArrowSource(pa.table({"a": [1], "b": [2]}), ArrowColumns("c"))


def test_a_column_that_exists_twice_is_refused(arrow: ModuleType) -> None:
    table = pa.table([pa.array(["x"]), pa.array(["y"])], names=["a", "a"])
    with pytest.raises(SerializationError, match="there is 2 columns 'a' for the value"):
        arrow.ArrowSource(table, ArrowColumns("a"))


def test_a_type_that_is_newer_than_this_package_is_named_by_its_format() -> None:
    schema = Field("", "+s", (Field("v", "?new:1"),))
    with pytest.raises(SerializationError, match=r"column 'v' is of an unknown type \('\?new:1'\)"):
        plan_columns(schema, ArrowColumns("v"))


def test_what_has_no_columns_is_refused(arrow: ModuleType) -> None:
    with pytest.raises(SerializationError, match=r"has to have columns.*this is string"):
        arrow.ArrowSource(pa.array(["a"]), ArrowColumns("a"))


def test_what_is_not_arrow_is_refused(arrow: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"__arrow_c_stream__.*not list"):
        arrow.ArrowSource([b"a"], ArrowColumns("a"))


# -- releases --------------------------------------------------------------------------------------

TABLE = pa.concat_tables([pa.table({"v": [f"{number}"]}) for number in range(4)])


@pytest.mark.parametrize("form", ["__arrow_c_array__", "__arrow_c_stream__"])
def test_a_capsule_that_was_taken_before_is_refused(arrow: ModuleType, form: str) -> None:
    [rows] = pa.table({"v": [b"x"]}).to_batches()
    capsules = getattr(rows, form)()
    held = type("Held", (), {form: lambda self: capsules})()
    assert len(rows_of(arrow, held, ArrowColumns("v"))) == 1

    with pytest.raises(SerializationError, match="were taken out of their capsule before"):
        arrow.ArrowSource(held, ArrowColumns("v"))


def test_everything_taken_is_released_once(arrow: ModuleType) -> None:
    stream, batch = WatchedStream(TABLE), WatchedArray(TABLE.to_batches()[0])
    assert len(rows_of(arrow, stream, ArrowColumns("v"))) == 4
    assert len(rows_of(arrow, batch, ArrowColumns("v"))) == 1
    assert (stream.given, batch.given) == (stream.released, batch.released) == (6, 2)


def test_a_source_that_is_dropped_half_read_is_released_once(arrow: ModuleType) -> None:
    watched = WatchedStream(TABLE)
    source = arrow.ArrowSource(watched, ArrowColumns("v"))
    chunk = source.next()
    del source
    gc.collect()
    assert (watched.given, watched.released) == (3, 2)
    assert chunk.record(0)[2] == b"0"
    del chunk
    gc.collect()
    assert watched.released == 3


def test_a_source_is_released_by_closing_it_and_not_again(arrow: ModuleType) -> None:
    for watched in (WatchedStream(TABLE), WatchedArray(TABLE.to_batches()[0])):
        source = arrow.ArrowSource(watched, ArrowColumns("v"))
        source.close()
        source.close()
        assert watched.given == watched.released == 2
        assert source.next() is None


def test_what_is_taken_out_of_a_capsule_is_not_released_with_it(arrow: ModuleType) -> None:
    schema, array = TABLE.to_batches()[0].__arrow_c_array__()

    class Capsules:
        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
            return schema, array

    arrow.ArrowSource(Capsules(), ArrowColumns("v"))
    with pytest.raises(pa.ArrowInvalid, match="released"):
        pa.RecordBatch._import_from_c_capsule(schema, array)


@pytest.mark.parametrize("row", [-1, 1])
def test_a_row_outside_of_its_chunk_is_an_index_error(arrow: ModuleType, row: int) -> None:
    chunk = arrow.ArrowSource(TABLE, ArrowColumns("v")).next()
    assert len(chunk) == 1
    with pytest.raises(IndexError):
        chunk.record(row)


def test_a_closed_chunk_has_no_rows(arrow: ModuleType) -> None:
    chunk = arrow.ArrowSource(TABLE, ArrowColumns("v")).next()
    chunk.close()
    chunk.close()
    assert len(chunk) == 0
    with pytest.raises(IndexError):
        chunk.record(0)


def test_a_stream_that_fails_says_why_and_is_released_once(arrow: ModuleType) -> None:
    watched = WatchedStream(TABLE, fails_at=2)
    source = arrow.ArrowSource(watched, ArrowColumns("v"))
    chunks = [source.next(), source.next()]
    with pytest.raises(SerializationError, match="the Arrow stream failed: the disk is gone"):
        source.next()
    assert [chunk.record(0)[2] for chunk in chunks] == [b"0", b"1"]
    del chunks, source
    gc.collect()
    assert watched.given == watched.released == 4


def test_closing_while_another_thread_reads_does_not_wait(arrow: ModuleType) -> None:
    reading, go_on = threading.Event(), threading.Event()
    released_then: list[int] = []

    def on_next() -> None:
        reading.set()
        assert go_on.wait(20)

    watched = WatchedStream(TABLE, on_next=on_next)
    source = arrow.ArrowSource(watched, ArrowColumns("v"))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(source.next()))
    thread.start()
    assert reading.wait(20)
    source.close()
    with pytest.raises(RuntimeError, match="one chunk at a time"):
        source.next()
    released_then.append(watched.released)
    go_on.set()
    thread.join(20)
    assert released_then == [0]
    assert watched.released == 2  # the schema and the stream; the chunk is still there
    assert found.pop().record(0)[2] == b"0"
    gc.collect()
    assert watched.given == watched.released == 3
