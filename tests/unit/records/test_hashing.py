import pytest

from aioproducer.records import crc32_partition
from aioproducer.records.hashing import java_bytes_partition, java_string_partition

# The vectors of Java's UtilsTest.testMurmur2.
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_MURMUR2.items())
def test_murmur2_is_javas(core, key, expected):
    assert core.murmur2(key) == expected
    assert core.murmur2(bytearray(key)) == expected
    assert core.murmur2(memoryview(key)) == expected


def test_partition_of_a_negative_hash_drops_the_sign_bit_as_java_does(core):
    # Java: Utils.toPositive, which is not abs().
    assert core.murmur2_partition(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert core.murmur2_partition(b"21", 7) != 973932308 % 7


def test_keys_longer_than_any_prepared_table_are_hashed(both):
    native, pure = both
    for length in range(120, 150):
        key = bytes(range(length))
        assert native.murmur2(key) == pure.murmur2(key)


def test_key_of_a_wrong_type_is_refused(core):
    with pytest.raises(TypeError, match="key must be bytes"):
        core.murmur2("text")


def test_topic_without_partitions_has_none_for_a_key(core):
    with pytest.raises(ZeroDivisionError):
        core.murmur2_partition(b"key", 0)


def test_crc32_partition_is_librdkafkas_consistent_partitioner():
    # librdkafka's rd_crc32 is the CRC-32 of zlib, whose check value is known.
    assert crc32_partition(b"123456789", 1_000_000) == 0xCBF43926 % 1_000_000
    assert crc32_partition(b"", 5) == 0


# Computed by Java: `"...".hashCode()` and `Arrays.hashCode(bytes)`, made positive as 0.8 did.
def test_keys_hash_as_in_java() -> None:
    most = 1 << 31
    assert java_string_partition(b"hello", most) == 99_162_322
    assert java_bytes_partition(b"hello", most) == 127_791_473
    assert java_bytes_partition(b"\xff\xfe", most) == 928
    assert java_string_partition(b"", 7) == 0
    assert java_string_partition(b"polygenelubricants", most) == 0  # Integer.MIN_VALUE
    assert java_string_partition("\U0001f600".encode(), most) == 1_772_899
