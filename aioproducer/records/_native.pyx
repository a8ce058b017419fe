# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False, auto_pickle=False
"""The native core: records encoded straight into the batch's buffer, and the murmur2 hash.

`_pure.py` is the pure fallback, and has the docstrings: same names, same bytes, same errors. What
takes several arguments takes them by position: names would make the wheel larger.

Invariants:
- everything that can fail happens in the measuring pass; the writing pass cannot fail, so a record
  is written whole or not at all;
- the buffer is held through the buffer protocol, hence it cannot be resized under the pointer;
- no Python object is made per record, unless a key or value is not `bytes`.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from aioproducer.records._validation import (
    buffer_error,
    header_name_error,
    headers_error,
    moving_error,
    payload_bytes,
    released_error,
    timestamp_error,
)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    PyObject *PyTuple_GET_ITEM(object pair, Py_ssize_t index) noexcept
    int64_t PyLong_AsLongLong(object number) except? -1
    int PyLong_Check(object number) noexcept
    object PyMemoryView_FromMemory(char *start, Py_ssize_t size, int flags)
    enum: PyBUF_READ

cdef enum:
    NULL_LENGTH = 1  # the varint of -1


cdef inline uint8_t *put_blob(uint8_t *out, object blob) noexcept:
    if blob is None:
        out[0] = NULL_LENGTH
        return out + 1
    return put_span(out, PyBytes_AS_STRING(blob), PyBytes_GET_SIZE(blob))


cdef Py_ssize_t headers_size(object headers) except -1:
    """Encoded size of the headers; every check of their types is here."""
    cdef Py_ssize_t size, index, length
    cdef object header, name, value
    if not PyTuple_Check(headers):
        raise headers_error(headers)
    size = varint_size(<uint64_t> PyTuple_GET_SIZE(headers) << 1)
    for index in range(PyTuple_GET_SIZE(headers)):
        header = <object> PyTuple_GET_ITEM(headers, index)
        if not PyTuple_Check(header) or PyTuple_GET_SIZE(header) != 2:
            raise headers_error(headers)
        name = <object> PyTuple_GET_ITEM(header, 0)
        value = <object> PyTuple_GET_ITEM(header, 1)
        if not PyUnicode_Check(name) or not (value is None or PyBytes_Check(value)):
            raise headers_error(headers)
        # The UTF-8 form is kept inside the str, so asking again in put_headers cannot fail.
        try:
            PyUnicode_AsUTF8AndSize(name, &length)
        except UnicodeEncodeError:
            raise header_name_error(name) from None
        size += varint_size(<uint64_t> length << 1) + length + blob_size(value)
    return size


cdef uint8_t *put_headers(uint8_t *out, object headers) except NULL:
    cdef Py_ssize_t index, length
    cdef const char *name
    cdef object header
    out = put_varint(out, <uint64_t> PyTuple_GET_SIZE(headers) << 1)
    for index in range(PyTuple_GET_SIZE(headers)):
        header = <object> PyTuple_GET_ITEM(headers, index)
        name = PyUnicode_AsUTF8AndSize(<object> PyTuple_GET_ITEM(header, 0), &length)
        out = put_span(out, name, length)
        out = put_blob(out, <object> PyTuple_GET_ITEM(header, 1))
    return out


cdef int64_t checked_timestamp(object timestamp_ms) except -1:
    cdef int64_t timestamp
    if not PyLong_Check(timestamp_ms):
        raise timestamp_error(timestamp_ms)
    try:
        timestamp = PyLong_AsLongLong(timestamp_ms)
    except OverflowError:
        raise timestamp_error(timestamp_ms) from None
    if timestamp < 0:
        raise timestamp_error(timestamp_ms)
    return timestamp


# The garbage collector may find a cycle through `owner`, and must not take the buffer apart before
# `__dealloc__` has given it back. The owner, a Python object, breaks the cycle.
@cython.no_gc_clear
cdef class RecordBatchBuilder:
    """See `_pure.py`."""

    def __cinit__(self, object buffer):
        if not isinstance(buffer, bytearray):
            raise buffer_error(buffer)
        PyObject_GetBuffer(buffer, &self.buffer, PyBUF_WRITABLE)
        self.has_buffer = True
        self.start = <uint8_t *> self.buffer.buf
        # A batch's length field is an int32 and counts the header too.
        self.capacity = min(self.buffer.len, <Py_ssize_t> INT32_MAX - HEADER_SIZE)
        self.most = INT32_MAX
        self.base_timestamp = -1
        self.max_timestamp = -1

    def __dealloc__(self):
        if self.has_buffer:
            PyBuffer_Release(&self.buffer)

    def try_append(self, object timestamp_ms, object key, object value, object headers, /):
        cdef int64_t timestamp = checked_timestamp(timestamp_ms)
        if key is not None and not PyBytes_Check(key):
            key = payload_bytes("key", key)
        if value is not None and not PyBytes_Check(value):
            value = payload_bytes("value", value)
        return self.put(
            timestamp, key, value, headers,
            blob_size(key) + blob_size(value) + headers_size(headers),
        )

    cdef int32_t put(
        self,
        int64_t timestamp,
        object key,
        object value,
        object headers,
        Py_ssize_t contents_size,
    ) except -2:
        """`try_append` of checked arguments, whose encoded size the caller has measured."""
        cdef int32_t index = self.count
        cdef uint8_t *out = begin_record(self, timestamp, contents_size)
        if out is NULL:
            return -1
        out = put_blob(put_blob(out, key), value)
        end_record(self, put_headers(out, headers), timestamp)
        return index

    def move_to(self, object buffer):
        cdef Py_buffer larger
        if not isinstance(buffer, bytearray):
            raise buffer_error(buffer)
        PyObject_GetBuffer(buffer, &larger, PyBUF_WRITABLE)
        if not self.capacity or larger.len < self.capacity:
            PyBuffer_Release(&larger)
            raise moving_error()
        memcpy(larger.buf, self.start, self.size)
        PyBuffer_Release(&self.buffer)
        self.buffer = larger
        self.start = <uint8_t *> larger.buf
        self.capacity = min(larger.len, <Py_ssize_t> INT32_MAX - HEADER_SIZE)

    def close(self):
        self.capacity = 0
        self.owner = None

    def release(self):
        self.close()
        if self.has_buffer:
            self.has_buffer = False
            self.start = NULL
            self.size = 0
            PyBuffer_Release(&self.buffer)

    def body(self):
        if not self.has_buffer:
            raise released_error()
        return memoryview(<object> self.buffer.obj)[: self.size]


cdef object crc32c = None  # imported with the first request: see `batch._checksum`


cdef uint8_t *put_int(uint8_t *out, uint64_t value, Py_ssize_t size) noexcept:
    """Writes the low bytes of an integer, big-endian."""
    cdef Py_ssize_t at
    for at in range(size):
        out[size - 1 - at] = <uint8_t> (value >> (8 * at))
    return out + size


def single_record_request(RecordBatchBuilder builder not None, bytes prefix, bytes suffix, bint is_flexible,
                  int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, /):
    global crc32c
    cdef Py_ssize_t size = HEADER_SIZE + builder.size
    cdef Py_ssize_t total = len(prefix) + len(suffix) + size + (
        varint_size(<uint64_t> size + 1) if is_flexible else 4
    )
    cdef bytes request
    cdef uint8_t *out
    cdef uint8_t *crc
    if not builder.has_buffer:
        raise released_error()
    if crc32c is None:
        from crc32c import crc32c
    request = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t *> PyBytes_AS_STRING(request)
    memcpy(out, PyBytes_AS_STRING(prefix), len(prefix))
    put_int(out, total - 4, 4)
    out += len(prefix)
    out = put_varint(out, <uint64_t> size + 1) if is_flexible else put_int(out, size, 4)
    out = put_int(out, 0, 8)  # base offset
    out = put_int(out, size - 12, 4)
    out = put_int(out, <uint64_t> -1, 4)  # leader epoch
    out[0] = 2  # the format's version
    crc = out + 1
    out = put_int(crc + 4, 0, 6)  # attributes, last offset delta
    out = put_int(out, builder.base_timestamp, 8)
    out = put_int(out, builder.max_timestamp, 8)
    out = put_int(out, producer_id, 8)
    out = put_int(out, producer_epoch, 2)
    out = put_int(out, base_sequence, 4)
    out = put_int(out, 1, 4)  # records
    memcpy(out, builder.start, builder.size)
    out += builder.size
    memcpy(out, PyBytes_AS_STRING(suffix), len(suffix))
    put_int(crc, crc32c(PyMemoryView_FromMemory(<char *> crc + 4, out - crc - 4, PyBUF_READ)), 4)
    return request


def record_size_bound(object key, object value, object headers, /):
    return (
        MAX_RECORD_OVERHEAD
        + payload_size("key", key)
        + payload_size("value", value)
        + headers_size(headers)
    )


cdef Py_ssize_t payload_size(str name, object payload) except -1:
    cdef Py_ssize_t length
    if payload is None or PyBytes_Check(payload):
        return blob_size(payload)
    if isinstance(payload, memoryview):
        length = payload.nbytes
    elif isinstance(payload, bytearray):
        length = len(payload)
    else:
        length = len(payload_bytes(name, payload))  # raises
    return varint_size(<uint64_t> length << 1) + length


cdef int32_t murmur2_hash(const uint8_t *data, Py_ssize_t length) noexcept nogil:
    """Java's Utils.murmur2: 32 bits, little-endian words, the tail without sign extension."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t> 0x9747B28C ^ <uint32_t> length
    cdef uint32_t k
    cdef Py_ssize_t position = 0
    while length - position >= 4:
        k = (
            <uint32_t> data[position]
            | <uint32_t> data[position + 1] << 8
            | <uint32_t> data[position + 2] << 16
            | <uint32_t> data[position + 3] << 24
        )
        k *= m
        k ^= k >> 24
        h *= m
        h ^= k * m
        position += 4
    if position < length:
        if length - position == 3:
            h ^= <uint32_t> data[position + 2] << 16
        if length - position >= 2:
            h ^= <uint32_t> data[position + 1] << 8
        h ^= data[position]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return <int32_t> h


cdef int32_t murmur2_of(object data) except? -1:
    if not PyBytes_Check(data):
        data = payload_bytes("key", data)
    return murmur2_hash(<const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def murmur2(object data):
    return murmur2_of(data)


def murmur2_partition(object key, Py_ssize_t partition_count, /):
    if partition_count == 0:
        raise ZeroDivisionError("a topic without partitions has none for a key")
    return (murmur2_of(key) & 0x7FFFFFFF) % partition_count
