import pytest

from aioproducer.records.message_set import records_of

T = 1_700_000_000_000


def test_record_is_encoded_as_the_format_says(core):
    builder = core.RecordBatchBuilder(bytearray(100))
    assert builder.try_append(T, b"k", b"val", (("h", b"x"), ("n", None))) == 0
    assert bytes(builder.body()) == (
        b"\x22"  # 17 bytes follow
        b"\x00"  # attributes
        b"\x00\x00"  # timestamp and offset, both deltas
        b"\x02k\x06val"
        b"\x04\x02h\x02x\x02n\x01"
    )


@pytest.mark.parametrize("length", [63, 64, 8190, 8191, 8192, 8193, 1_048_575, 1_048_576])
def test_lengths_of_any_number_of_bytes_are_read_back(core, length):
    data, name = b"x" * length, "n" * length
    row = (data, data, ((name, data), (name, None)))
    bound = core.record_size_bound(*row)
    builder = core.RecordBatchBuilder(bytearray(bound))
    assert builder.try_append(T, *row) == 0
    assert bound - 20 <= builder.size <= bound
    (record,) = records_of(builder)
    assert record == (0, T, *row)


@pytest.mark.parametrize("delta", [-8193, -8192, -65, -64, 63, 64, 8191, 8192, 2**40])
def test_times_after_and_before_the_first_are_read_back(core, delta):
    builder = core.RecordBatchBuilder(bytearray(100))
    for timestamp in (T, T + delta, T + delta):
        builder.try_append(timestamp, None, b"x", ())
    assert [record.timestamp_ms for record in records_of(builder)] == [T, T + delta, T + delta]


def test_more_records_than_the_table_of_varints_has_are_read_back(core):
    builder = core.RecordBatchBuilder(bytearray(100_000))
    assert [builder.try_append(T, None, None, ()) for _ in range(8200)] == list(range(8200))
    assert [record.offset for record in records_of(builder)] == list(range(8200))


def test_index_size_and_timestamps_follow_the_appends(core):
    builder = core.RecordBatchBuilder(bytearray(100))
    assert (builder.count, builder.size) == (0, 0)
    assert (builder.base_timestamp, builder.max_timestamp) == (-1, -1)
    assert [builder.try_append(T + d, None, b"v", ()) for d in (0, 5, -7)] == [0, 1, 2]
    assert builder.count == 3
    assert builder.size == len(builder.body())
    assert (builder.base_timestamp, builder.max_timestamp) == (T, T + 5)


def test_the_largest_record_is_known(core):
    builder = core.RecordBatchBuilder(bytearray(100))
    assert builder.largest == 0
    sizes = [0]
    for value in (b"12", b"1234567", None, b"x" * 200):  # the last one has no room
        builder.try_append(T, None, value, ())
        sizes.append(builder.size)
    assert builder.largest == sizes[2] - sizes[1]


def test_record_that_fills_the_buffer_exactly_fits(core):
    builder = core.RecordBatchBuilder(bytearray(18))
    assert builder.try_append(T, None, b"12", ()) == 0
    assert builder.try_append(T, None, b"12", ()) == 1
    assert builder.size == 18


def test_record_without_room_leaves_no_trace(core):
    buffer = bytearray(b"." * 17)
    builder = core.RecordBatchBuilder(buffer)
    builder.try_append(T, None, b"12", ())
    before = bytes(builder.body())
    assert builder.try_append(T + 9, b"k", b"12", (("a", b"b"),)) == -1
    assert (builder.count, builder.size, builder.max_timestamp) == (1, 9, T)
    assert bytes(builder.body()) == before
    assert buffer[9:] == b"." * 8


def test_smaller_record_still_fits_after_one_had_no_room(core):
    builder = core.RecordBatchBuilder(bytearray(20))
    assert builder.try_append(T, None, b"x" * 50, ()) == -1
    assert builder.base_timestamp == -1
    assert builder.try_append(T + 1, None, b"x", ()) == 0
    assert builder.base_timestamp == T + 1


def test_buffer_keeps_its_size_and_is_pinned_while_the_builder_lives(core):
    buffer = bytearray(10)
    builder = core.RecordBatchBuilder(buffer)
    assert builder.try_append(T, None, b"x" * 100, ()) == -1
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    del builder
    buffer.extend(b"more")


def test_no_more_records_than_it_may_take(core):
    builder = core.RecordBatchBuilder(bytearray(100))
    builder.most = 2
    assert [builder.try_append(T, None, b"x", ()) for _ in range(3)] == [0, 1, -1]
    builder.most = 3
    assert [builder.try_append(T, None, b"x", ()) for _ in range(2)] == [2, -1]


def test_buffer_of_size_zero_has_no_room(core):
    assert core.RecordBatchBuilder(bytearray()).try_append(T, None, None, ()) == -1


def test_body_is_a_view_of_the_buffer_not_a_copy(core):
    buffer = bytearray(50)
    builder = core.RecordBatchBuilder(buffer)
    builder.try_append(T, None, b"payload", ())
    body = builder.body()
    assert body.obj is buffer
    assert bytes(body) == bytes(buffer[: builder.size])


def test_body_may_be_taken_between_appends(core):
    builder = core.RecordBatchBuilder(bytearray(50))
    builder.try_append(T, None, b"one", ())
    first = bytes(builder.body())
    builder.try_append(T, None, b"two", ())
    assert bytes(builder.body())[: len(first)] == first
    assert len(builder.body()) == builder.size


def test_key_and_value_are_copied_when_they_are_appended(core):
    key, value = bytearray(b"key"), bytearray(b"value")
    builder = core.RecordBatchBuilder(bytearray(50))
    builder.try_append(T, key, memoryview(value), ())
    key[:], value[:] = b"KEY", b"VALUE"
    assert bytes(builder.body())[4:] == b"\x06key\x0avalue\x00"


def test_key_and_value_of_a_subclass_of_bytes_are_encoded_as_bytes(core):
    class Text(bytes):
        pass

    builder = core.RecordBatchBuilder(bytearray(100))
    assert builder.try_append(T, Text(b"key"), Text(b"value"), ()) == 0
    (record,) = records_of(builder)
    assert (record.key, record.value) == (b"key", b"value")


def test_memoryview_of_wide_or_scattered_items_gives_its_bytes(core):
    wide = memoryview(bytes(range(8))).cast("I")
    scattered = memoryview(b"a-b-c-")[::2]
    builder = core.RecordBatchBuilder(bytearray(100))
    builder.try_append(T, scattered, wide, ())
    assert bytes(builder.body())[4:] == b"\x06abc\x10" + bytes(range(8)) + b"\x00"
    assert core.record_size_bound(scattered, wide, ()) == 21 + 4 + 9 + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((T, "k", b"", ()), r"key must be bytes.* not str; encode it first \(key.encode\(\)\)"),
        ((T, b"", "v", ()), r"value must be bytes.* not str; .*value_serializer"),
        ((T, b"", {"a": 1}, ()), r"value must be bytes.* not dict; serialize it first"),
        ((T, 5, b"", ()), r"key must be bytes.* not int"),
        ((T, b"", b"", [("a", b"b")]), r"headers must be a tuple .* not list"),
        ((T, b"", b"", None), r"headers must be a tuple .* not NoneType"),
        ((T, b"", b"", ("ab",)), r"a header must be a \(name, value\) tuple, not str"),
        ((T, b"", b"", (("a", b"b", b"c"),)), r"a header must be a \(name, value\) tuple"),
        ((T, b"", b"", ((b"a", b"b"),)), r"a header's name must be str, not bytes"),
        ((T, b"", b"", (("a", "b"),)), r"value of header 'a' must be bytes or None, not str"),
        ((1.5, b"", b"", ()), r"timestamp_ms must be an int .* not float"),
        ((None, b"", b"", ()), r"timestamp_ms must be an int .* not NoneType"),
    ],
)
def test_wrong_type_is_refused_with_what_to_do(core, arguments, message):
    builder = core.RecordBatchBuilder(bytearray(100))
    builder.try_append(T, None, b"before", ())
    with pytest.raises(TypeError, match=message):
        builder.try_append(*arguments)
    assert builder.count == 1
    assert builder.try_append(T, None, b"after", ()) == 1


class Proxy:
    """Of the class of what it holds, as lazy objects of Django and of werkzeug are."""

    def __init__(self, held):
        self.held = held

    @property
    def __class__(self):
        return type(self.held)

    def __len__(self):
        return len(self.held)

    def __iter__(self):
        return iter(self.held)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Proxy(b"k"), b"", ()), "key must be bytes.* not Proxy"),
        ((b"", Proxy(b"v"), ()), "value must be bytes.* not Proxy"),
        ((b"", Proxy(bytearray(b"v")), ()), "value must be bytes.* not Proxy"),
        ((b"", b"", Proxy(())), "headers must be a tuple .* not Proxy"),
        ((b"", b"", (Proxy(("a", b"b")),)), "a header must be a .* tuple, not Proxy"),
        ((b"", b"", ((Proxy("a"), b"b"),)), "a header's name must be str, not Proxy"),
        ((b"", b"", (("a", Proxy(b"b")),)), "header 'a' must be bytes or None, not Proxy"),
    ],
)
def test_object_that_only_has_the_class_of_another_type_is_refused(core, arguments, message):
    builder = core.RecordBatchBuilder(bytearray(100))
    with pytest.raises(TypeError, match=message):
        builder.try_append(T, *arguments)
    with pytest.raises(TypeError, match=message):
        core.record_size_bound(*arguments)
    assert builder.count == 0


def test_key_that_only_has_the_class_of_bytes_is_not_hashed(core):
    with pytest.raises(TypeError, match="key must be bytes"):
        core.murmur2_partition(Proxy(b"key"), 3)


@pytest.mark.parametrize("timestamp", [-1, -(2**63), 2**63, 10**30])
def test_timestamp_kafka_cannot_store_is_refused(core, timestamp):
    builder = core.RecordBatchBuilder(bytearray(100))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"timestamp_ms must be within 0\.\.2\*\*63-1"):
            builder.try_append(timestamp, None, b"", ())
        assert builder.try_append(T, None, b"", ()) >= 0


@pytest.mark.parametrize("timestamp", [float(T), str(T), None])
def test_timestamp_of_another_type_is_refused_even_if_it_equals_the_last_one(core, timestamp):
    builder = core.RecordBatchBuilder(bytearray(100))
    builder.try_append(T, None, b"", ())
    with pytest.raises(TypeError, match="timestamp_ms must be an int"):
        builder.try_append(timestamp, None, b"", ())
    assert builder.count == 1


def test_header_name_that_is_no_unicode_is_named_by_its_refusal_and_nothing_is_written(core):
    builder = core.RecordBatchBuilder(bytearray(100))
    with pytest.raises(ValueError, match=r"header '\\ud800' has no form in UTF-8"):
        builder.try_append(T, b"k", b"v", (("fine", b""), ("\ud800", b"")))
    assert (builder.count, builder.size) == (0, 0)


def test_buffer_must_be_a_bytearray(core):
    with pytest.raises(TypeError, match="the buffer must be a bytearray, not bytes"):
        core.RecordBatchBuilder(b"read-only")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("k", b"", ()), "key must be bytes"),
        ((b"", "v", ()), "value must be bytes"),
        ((b"", b"", [("a", b"b")]), "headers must be a tuple"),
    ],
)
def test_size_bound_refuses_the_types_that_an_append_would(core, arguments, message):
    with pytest.raises(TypeError, match=message):
        core.record_size_bound(*arguments)


def test_size_bound_of_an_empty_record_is_javas(core):
    assert core.record_size_bound(None, None, ()) == 24


def test_a_builder_goes_on_in_a_larger_buffer_with_what_it_has(core):
    small, large = bytearray(30), bytearray(200)
    builder, other = core.RecordBatchBuilder(small), core.RecordBatchBuilder(bytearray(200))
    rows = [(T + n, None if n % 2 else b"k", b"v" * n, ()) for n in range(6)]
    for number, row in enumerate(rows):
        if builder.try_append(*row) < 0:
            builder.move_to(large)
            assert builder.try_append(*row) == number
        other.try_append(*row)
    assert bytes(builder.body()) == bytes(other.body()) == bytes(large[: builder.size])
    assert (builder.count, builder.max_timestamp) == (6, T + 5)
    small.extend(b"the old buffer is free")
    with pytest.raises(BufferError):
        large.extend(b"the new one is pinned")


def test_a_builder_does_not_move_to_less_room_nor_once_it_is_closed(core):
    builder = core.RecordBatchBuilder(bytearray(30))
    builder.try_append(T, None, b"v", ())
    with pytest.raises(ValueError, match="no smaller"):
        builder.move_to(bytearray(29))
    with pytest.raises(TypeError, match="bytearray"):
        builder.move_to(b"bytes" * 10)
    assert builder.try_append(T, None, b"v", ()) == 1
    builder.close()
    with pytest.raises(ValueError, match="open builder"):
        builder.move_to(bytearray(100))
    assert builder.count == 2


def test_a_builder_whose_buffer_was_given_back_has_no_bytes_and_takes_none(core):
    buffer = bytearray(100)
    builder = core.RecordBatchBuilder(buffer)
    builder.owner = "owner"
    builder.try_append(T, None, b"v", ())
    builder.release()
    assert (builder.size, builder.owner) == (0, None)
    assert builder.try_append(T, None, b"v", ()) == -1
    buffer.extend(b"not pinned any more")
    with pytest.raises(ValueError, match="let go of its buffer"):
        builder.body()
