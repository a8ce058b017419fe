"""The part of the native core that other native code uses: the builder, and sizes of what it writes.

See `_native.pyx` for the invariants.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    int PyLong_CheckExact(object number) noexcept
    int64_t PyLong_AsLongLongAndOverflow(object number, int *overflow) noexcept

cdef enum:
    HEADER_SIZE = 61
    # Java: DefaultRecord.MAX_RECORD_OVERHEAD = length (5) + attributes (1) + timestamp (10) +
    # offset (5).
    MAX_RECORD_OVERHEAD = 21


cdef inline Py_ssize_t varint_size(uint64_t value) noexcept nogil:
    """Bytes of an unsigned varint."""
    cdef Py_ssize_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *out, uint64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t> (value | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t> value
    return out + 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)


cdef inline uint8_t *put_span(uint8_t *out, const void *start, Py_ssize_t length) noexcept nogil:
    """Write bytes after their length."""
    out = put_varint(out, <uint64_t> length << 1)
    memcpy(out, start, length)
    return out + length


cdef inline Py_ssize_t blob_size(object blob) noexcept:
    """Encoded size of bytes or None with its length in front."""
    cdef Py_ssize_t length
    if blob is None:
        return 1
    length = PyBytes_GET_SIZE(blob)
    return varint_size(<uint64_t> length << 1) + length


cdef inline int64_t integer_of(object number) noexcept:
    """An int that is not negative; -1 for anything else."""
    cdef int overflow = 0
    cdef int64_t found = -1
    if PyLong_CheckExact(number):
        found = PyLong_AsLongLongAndOverflow(number, &overflow)
    return -1 if overflow or found < 0 else found


cdef Py_ssize_t headers_size(object headers) except -1
cdef int32_t murmur2_of(object data) except? -1
cdef int32_t murmur2_hash(const uint8_t *data, Py_ssize_t length) noexcept nogil


cdef class RecordBatchBuilder:
    cdef Py_buffer buffer
    cdef bint has_buffer
    cdef uint8_t *start
    cdef Py_ssize_t capacity
    cdef public int32_t most
    cdef readonly Py_ssize_t size
    cdef readonly int32_t count
    cdef readonly Py_ssize_t largest
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef public object owner

    # The caller vouches: key and value are bytes or None, `contents_size` is the sum of their
    # `blob_size` and of `headers_size(headers)`, the timestamp is not negative.
    cdef int32_t put(
        self,
        int64_t timestamp,
        object key,
        object value,
        object headers,
        Py_ssize_t contents_size,
    ) except -2


cdef inline uint8_t *begin_record(
    RecordBatchBuilder builder, int64_t timestamp, Py_ssize_t contents
) noexcept nogil:
    """Where key, value and headers are to be written; NULL when the record has no room."""
    cdef int32_t index = builder.count
    cdef uint64_t time_delta = zigzag(timestamp - builder.base_timestamp) if index else 0
    cdef Py_ssize_t length = (
        1 + varint_size(time_delta) + varint_size(<uint64_t> index << 1) + contents
    )
    cdef Py_ssize_t end = builder.size + varint_size(<uint64_t> length << 1) + length
    cdef uint8_t *out
    if end > builder.capacity or index >= builder.most:
        return NULL
    out = put_varint(builder.start + builder.size, <uint64_t> length << 1)
    out[0] = 0  # the record's attributes, none of which are in use
    out = put_varint(out + 1, time_delta)
    return put_varint(out, <uint64_t> index << 1)


cdef inline void end_record(
    RecordBatchBuilder builder, uint8_t *end, int64_t timestamp
) noexcept nogil:
    """The record that was begun ends at `end`."""
    cdef Py_ssize_t size = end - builder.start
    if size - builder.size > builder.largest:
        builder.largest = size - builder.size
    builder.size = size
    if builder.count == 0:
        builder.base_timestamp = timestamp
    builder.count += 1
    if timestamp > builder.max_timestamp:
        builder.max_timestamp = timestamp
