"""Tests of the declaration language, the compiler and `Message`, on messages made for them."""

from __future__ import annotations

import traceback
import tracemalloc
from uuid import UUID

import pytest

from aioproducer.errors import ProtocolError, UnsupportedVersionError
from aioproducer.testing.framing import REQUEST_TYPES
from aioproducer.wire.compiler import compile_struct
from aioproducer.wire.fields import Versions
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.wire.messages.produce import ProduceResponse
from aioproducer.wire.primitives import (
    MAX_MESSAGE_ELEMENTS,
    OBJECT_WEIGHT,
    STRUCT_WEIGHT,
    write_uvarint,
)
from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class Inner(Struct):
    """An element; `late` exists from version 1."""

    number: int = f("int32", "0+")
    late: str = f("string", "1+", default="now")


@struct
class Everything(Message):
    """One field of every kind; versions 0 and 1 are classic, 2 is flexible."""

    API_KEY = ApiKey.METADATA
    VALID_VERSIONS = (0, 3)
    FLEXIBLE_FROM = 2

    flag: bool = f("bool", "0+")
    tiny: int = f("int8", "0+")
    short: int = f("int16", "0+", default=-1)
    long: int = f("int64", "0+")
    id: UUID = f("uuid", "0+")
    text: str = f("string", "0+")
    maybe: str | None = f("string", "0+", nullable="1+", default="")
    data: bytes = f("bytes", "0+")
    batch: bytes | memoryview | None = f("records", "0+", nullable="0+")
    numbers: list[int] | None = f(array("int64"), "0+", nullable="1+")
    ids: list[UUID] = f(array("uuid"), "0+")
    names: list[str] = f(array("string"), "0+")
    inner: list[Inner] = f(array(Inner), "0+")
    one: Inner | None = f(Inner, "0+", nullable="1+")
    gone: int = f("int32", "0-1", default=7)
    dropped: int = f("int32", "1+", ignorable=True)
    hint: int = f("int32", "2+", default=-1, tag=1, ignorable=True)
    hints: list[Inner] = f(array(Inner), "2+", tag=0, ignorable=True)


FULL = Everything(
    flag=True,
    tiny=-2,
    short=300,
    long=-(2**40),
    id=UUID(int=5),
    text="text",
    maybe="perhaps",
    data=b"\0\1",
    batch=b"batch",
    numbers=[1, -1],
    ids=[UUID(int=9)],
    names=["a", ""],
    inner=[Inner(1), Inner(2)],
    one=Inner(3),
)

CLASSIC_V0 = (
    b"\x01\xfe\x01\x2c"
    + (-(2**40)).to_bytes(8, "big", signed=True)
    + UUID(int=5).bytes
    + b"\0\x04text"
    + b"\0\x07perhaps"
    + b"\0\0\0\x02\0\1"
    + b"\0\0\0\x05batch"
    + b"\0\0\0\x02"
    + b"\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff"
    + b"\0\0\0\x01"
    + UUID(int=9).bytes
    + b"\0\0\0\x02\0\x01a\0\0"
    + b"\0\0\0\x02\0\0\0\x01\0\0\0\x02"
    + b"\0\0\0\x03"
    + b"\0\0\0\x07"
)


def test_the_classic_layout_is_what_kafka_documents() -> None:
    assert FULL.encode(0) == CLASSIC_V0
    assert Everything.decode(CLASSIC_V0, 0) == FULL


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_what_is_encoded_is_decoded_equal(version: int) -> None:
    message = FULL if version < 2 else Everything.decode(FULL.encode(1), 1)
    assert Everything.decode(message.encode(version), version) == message


def test_fixed_size_fields_at_the_default_of_everything_round_trip_flexibly() -> None:
    empty = Everything()
    assert Everything.decode(empty.encode(2), 2) == empty


@pytest.mark.parametrize(
    ("text", "lowest", "highest"),
    [("0+", 0, 0x7FFF), ("3-5", 3, 5), ("4", 4, 4), ("none", 0, -1)],
)
def test_version_ranges_are_written_as_in_kafkas_schema(
    text: str, lowest: int, highest: int
) -> None:
    assert Versions.parse(text) == Versions(lowest, highest)


def test_a_range_contains_its_ends_and_nothing_beyond_them() -> None:
    versions = Versions.parse("3-5")
    assert [version for version in range(8) if version in versions] == [3, 4, 5]
    assert 0 not in Versions.parse("none")


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_the_message_never_had_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"Everything has versions 0 to 3"):
        Everything().encode(version)
    with pytest.raises(UnsupportedVersionError):
        Everything.decode(b"", version)


def test_a_message_that_declares_no_versions_has_version_zero_alone() -> None:
    @struct
    class Single(Message):
        number: int = f("int32", "0+")

    assert Single.decode(Single(number=5).encode(0), 0) == Single(number=5)
    for version in (-1, 1):
        with pytest.raises(UnsupportedVersionError, match="has versions 0 to 0"):
            Single().encode(version)


def test_a_set_field_that_the_version_lacks_is_refused_unless_ignorable() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"Everything\.gone"):
        Everything(gone=8).encode(2)
    assert Everything.decode(Everything(dropped=8).encode(0), 0).dropped == 0
    with pytest.raises(UnsupportedVersionError, match=r"Inner\.late"):
        Everything(inner=[Inner(1, "later")]).encode(0)


def test_null_is_refused_where_the_version_forbids_it() -> None:
    for message in (Everything(maybe=None), Everything(numbers=None), Everything(one=None)):
        with pytest.raises(ValueError, match="Everything v0"):
            message.encode(0)
        assert Everything.decode(message.encode(1), 1) == message


def test_a_received_null_is_refused_where_the_version_forbids_it() -> None:
    data = Everything(text="").encode(0)
    at = data.index(b"\0\0", 28)
    with pytest.raises(ProtocolError, match="text"):
        Everything.decode(data[:at] + b"\xff\xff" + data[at + 2 :], 0)


@pytest.mark.parametrize(
    "message",
    [
        Everything(tiny=128),
        Everything(long=2**63),
        Everything(text="x" * 40_000),
        Everything(text="\ud800"),
        Everything(names=[None]),  # type: ignore[list-item]
        Everything(numbers=["one"]),  # type: ignore[list-item]
        Everything(inner=None),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_value_that_does_not_fit_is_a_value_error(message: Everything, version: int) -> None:
    with pytest.raises(ValueError, match=f"does not fit Everything v{version}"):
        message.encode(version)


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(ProtocolError, match="1 bytes left over"):
        Everything.decode(Everything().encode(2) + b"\0", 2)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_truncation_is_refused(version: int) -> None:
    data = FULL.encode(version) if version < 2 else Everything(hints=[Inner()]).encode(version)
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            Everything.decode(data[:length], version)


def test_tagged_fields_are_written_only_beyond_their_default_and_in_order_of_tags() -> None:
    plain = Everything().encode(2)
    assert plain[-1] == 0
    tagged = Everything(hint=5, hints=[Inner(1)]).encode(2)
    # An Inner is int32, compact string "now" and an empty tagged section: nine bytes.
    content = b"\x02\0\0\0\x01\x04now\0"
    assert tagged == plain[:-1] + b"\x02" + b"\x00\x0a" + content + b"\x01\x04\0\0\0\x05"


def test_unknown_tags_are_skipped_between_known_ones() -> None:
    data = Everything().encode(2)[:-1]
    data += b"\x03" + b"\x00\x01\x01" + b"\x01\x04\0\0\0\x05" + b"\x63\x02zz"
    assert Everything.decode(data, 2) == Everything(hint=5)


@pytest.mark.parametrize("size", [3, 5])
def test_a_known_tag_must_fill_its_size_exactly(size: int) -> None:
    data = Everything().encode(2)[:-1] + b"\x01\x01" + bytes([size]) + b"\0\0\0\x05\0"
    with pytest.raises(ProtocolError, match="tagged field 1"):
        Everything.decode(data, 2)


def test_text_that_is_not_utf8_is_refused() -> None:
    data = Everything(text="ab").encode(2).replace(b"ab", b"\xff\xfe")
    with pytest.raises(ProtocolError, match="utf-8"):
        Everything.decode(data, 2)


def test_records_are_a_view_of_the_received_buffer_and_bytes_a_copy() -> None:
    received = bytearray(FULL.encode(1))
    message = Everything.decode(memoryview(received), 1)
    received[:] = received.replace(b"batch", b"BATCH").replace(b"\0\1", b"\0\2")
    assert isinstance(message.batch, memoryview)
    assert message.batch == b"BATCH"
    assert message.data == b"\0\1"


def test_lists_and_structs_of_two_messages_are_never_shared() -> None:
    first, second = Everything(), Everything()
    first.numbers.append(1)  # type: ignore[union-attr]
    first.one.number = 9  # type: ignore[union-attr]
    assert second == Everything()
    decoded = [Everything.decode(Everything().encode(2), 2) for _ in range(2)]
    decoded[0].hints.append(Inner())
    assert decoded[1].hints == []


def test_a_message_is_read_from_the_middle_of_a_buffer() -> None:
    assert Everything.decode_from(b"header" + FULL.encode(1), 6, 1) == FULL


def test_a_struct_is_compiled_once_per_version() -> None:
    assert compile_struct(Inner, 0, False) is compile_struct(Inner, 0, False)
    assert compile_struct(Inner, 0, False) is not compile_struct(Inner, 1, False)


def test_a_traceback_shows_the_generated_line_that_failed() -> None:
    with pytest.raises(ValueError, match="does not fit") as caught:
        Everything(tiny=128).encode(0)
    assert "m.tiny" in "".join(traceback.format_exception(caught.value.__cause__))


@struct
class Rows(Struct):
    """An element that holds an array itself."""

    numbers: list[int] = f(array("int8"), "0+")


@struct
class Table(Message):
    """Arrays within arrays."""

    API_KEY = ApiKey.METADATA
    VALID_VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    rows: list[Rows] = f(array(Rows), "0+")
    totals: list[int] = f(array("int32"), "0+")


@struct
class Lists(Message):
    """Arrays of what is no number."""

    API_KEY = ApiKey.METADATA
    VALID_VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    names: list[str] = f(array("string"), "0+")
    ids: list[UUID] = f(array("uuid"), "0+")


@pytest.mark.parametrize("version", [0, 1])
def test_array_elements_of_a_whole_message_are_bounded(version: int) -> None:
    row = Rows(numbers=[0] * 100)
    most = MAX_MESSAGE_ELEMENTS // (STRUCT_WEIGHT + 100)
    fits = Table(rows=[row] * most).encode(version)
    assert len(Table.decode(fits, version).rows) == most
    too_many = Table(rows=[row] * (most + 1)).encode(version)
    with pytest.raises(ProtocolError, match=f"more than {MAX_MESSAGE_ELEMENTS} array elements"):
        Table.decode(too_many, version)


def test_what_a_hostile_answer_becomes_takes_little_memory() -> None:
    """Elements with fields cost far more than numbers: 18 MB of partitions became 370 MB."""
    count = 20_000
    partition = MetadataResponsePartition(replica_nodes=[], isr_nodes=[], offline_replicas=[])
    topic = MetadataResponseTopic(name="t", partitions=[partition] * count)
    data = MetadataResponse(topics=[topic]).encode(12)
    tracemalloc.start()
    try:
        assert len(MetadataResponse.decode(data, 12).topics[0].partitions) == count
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most / (count * STRUCT_WEIGHT) * MAX_MESSAGE_ELEMENTS < 240_000_000


def test_metadata_of_100_000_partitions_with_three_replicas_is_accepted() -> None:
    replicas = [1, 2, 3]
    partition = MetadataResponsePartition(replica_nodes=replicas, isr_nodes=replicas)
    topics = [
        MetadataResponseTopic(name=f"t{i}", partitions=[partition] * 100) for i in range(1000)
    ]
    found = MetadataResponse.decode(MetadataResponse(topics=topics).encode(13), 13)
    assert sum(len(topic.partitions) for topic in found.topics) == 100_000


@pytest.mark.parametrize("tag", [b"\x00\x09" + bytes(9), b"\x4d\x00"], ids=["known", "unknown"])
def test_tagged_fields_of_all_elements_together_are_bounded(tag: bytes) -> None:
    """Each element may have 10,000: 100 MB of them took half a minute."""
    partition = bytes(30) + b"\x01\x00" + b"\x90\x4e" + tag * 10_000

    def answer(partitions: int) -> bytes:
        return b"\x02\x02t" + bytes([1 + partitions]) + partition * partitions + bytes(6)

    assert len(ProduceResponse.decode(answer(90), 10).responses[0].partition_responses) == 90
    with pytest.raises(ProtocolError, match="tagged fields 4 times"):
        ProduceResponse.decode(answer(110), 10)


def test_strings_and_ids_count_more_than_numbers() -> None:
    most = MAX_MESSAGE_ELEMENTS // OBJECT_WEIGHT

    def lists(names: int, ids: int) -> bytes:
        data = bytearray()
        write_uvarint(data, names + 1)
        data += b"\1" * names
        write_uvarint(data, ids + 1)
        return bytes(data + bytes(16 * ids) + b"\0")

    found = Lists.decode(lists(most - 50_000, 50_000), 1)
    assert (len(found.names), len(found.ids)) == (most - 50_000, 50_000)
    for names, ids in ((most - 50_000, 50_001), (most - 49_999, 50_000)):
        with pytest.raises(ProtocolError, match="array elements"):
            Lists.decode(lists(names, ids), 1)


@pytest.mark.parametrize("version", [0, 1])
def test_no_memory_is_left_after_a_long_array(version: int) -> None:
    data = Table(totals=[7] * 300_000).encode(version)
    tracemalloc.start()
    try:
        assert len(Table.decode(data, version).totals) == 300_000
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


@struct
class Pair(Message):
    """A string and an array; version 1 is flexible."""

    VALID_VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    text: str = f("string", "0+")
    numbers: list[int] = f(array("int32"), "0+")


@pytest.mark.parametrize(
    ("data", "version", "complaint"),
    [
        (b"\0\x04ab", 0, "4 bytes announced at offset 2, 2 left"),
        (b"\x05ab", 1, "4 bytes announced at offset 1, 2 left"),
        (b"\xff\x01ab", 1, "254 bytes announced at offset 2, 2 left"),
        (b"\0\0\0\0\0\x02abcd", 0, "8 bytes announced at offset 6, 4 left"),
        (b"\x01\x03abcd", 1, "8 bytes announced at offset 2, 4 left"),
        (b"\x01\xff\x01abcd", 1, "1016 bytes announced at offset 3, 4 left"),
        (b"\x01\x01\x01\x00\x05abc", 1, "5 bytes announced at offset 5, 3 left"),
    ],
)
def test_a_length_beyond_the_end_is_refused_before_it_is_used(
    data: bytes, version: int, complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        Pair.decode(data, version)


@struct
class Option(Struct):
    """An element of one byte at least: null, or from version 1 on, nothing at all."""

    maybe: Inner | None = f(Inner, "0", nullable="0")


@struct
class Options(Message):
    """A list of options."""

    API_KEY = ApiKey.METADATA
    VALID_VERSIONS = (0, 1)
    FLEXIBLE_FROM = None

    options: list[Option] = f(array(Option), "0+")


def test_an_array_of_nulls_takes_one_byte_for_each() -> None:
    options = Options([Option(None)] * 3)
    assert options.encode(0) == b"\0\0\0\x03" + 3 * b"\xff"
    assert Options.decode(options.encode(0), 0) == options


def test_elements_without_any_field_are_counted_as_one_byte_each() -> None:
    with pytest.raises(ProtocolError):
        Options.decode(b"\0\0\0\x03", 1)


def test_messages_have_no_attributes_but_their_fields() -> None:
    assert not hasattr(FULL, "__dict__")
    assert not hasattr(Inner(1), "__dict__")


@pytest.mark.parametrize("request_type", REQUEST_TYPES.values(), ids=lambda each: each.__name__)
def test_a_request_has_the_response_of_its_api(request_type: type[Message]) -> None:
    response = request_type.RESPONSE
    assert response.__name__ == request_type.__name__.replace("Request", "Response")


@struct
class Answer(Message, api_key=ApiKey.FETCH, versions=(1, 4), flexible_from=3):
    """A response; its request names no API and no versions."""


@struct
class Question(Message, response=Answer):
    """The request."""


def test_a_request_has_the_api_and_the_versions_of_its_response() -> None:
    assert Question.RESPONSE is Answer
    assert Question.API_KEY is ApiKey.FETCH
    assert Question.VALID_VERSIONS == (1, 4)
    assert Question.FLEXIBLE_FROM == 3
