# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False, auto_pickle=False
"""Many records into open batches: the native inner loop of bulk sending.

`_pure_bulk.py` is the pure fallback, and has the docstrings; `bulk.py` has the contract of both.

Ownership and lifetime
- A `Share` keeps its builder alive, and an `OpenBatches` its shares: the pointers of a `Place` stay
  good. A closed builder has no room, so nothing is written to a buffer that was given back.
- A row is written whole and noted, or not at all.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from aioproducer.records._native cimport (
    HEADER_SIZE,
    MAX_RECORD_OVERHEAD,
    RecordBatchBuilder,
    blob_size,
    headers_size,
    integer_of,
)

cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(object items, Py_ssize_t index) noexcept

cdef enum:
    LONGEST_TUPLE = 5


cdef class Share:
    """See `bulk.py`."""

    def __cinit__(self, RecordBatchBuilder builder not None):
        self.builder = builder
        self.place.builder = <PyObject *> builder

    def __dealloc__(self):
        free(self.place.runs)

    def add(self, int64_t row, int32_t index, /):
        if not reserve_run(&self.place):
            raise MemoryError
        note(&self.place, row, index)

    @property
    def records(self):
        return self.place.records

    @property
    def first_index(self):
        return self.place.runs[0].index

    @property
    def last_index(self):
        cdef Run *last = self.place.runs + self.place.run_count - 1
        return last.index + last.count - 1

    def runs(self):
        cdef Py_ssize_t number
        cdef Run *run
        found = []
        for number in range(self.place.run_count):
            run = self.place.runs + number
            found.append((run.row, run.index, run.count))
        return found


cdef class OpenBatches:
    """See `bulk.py`."""

    def __cinit__(self, Py_ssize_t partitions, bint hashes_keys):
        if partitions < 1:
            raise ValueError("a topic without partitions takes no records")
        self.spread.places = <Place **> calloc(partitions, sizeof(Place *))
        if self.spread.places is NULL:
            raise MemoryError
        self.spread.partitions = partitions
        self.spread.hashes_keys = hashes_keys
        self.spread.sticky_partition = -1
        self.shares = [None] * partitions

    def __dealloc__(self):
        free(self.spread.places)

    def add_batch(self, Py_ssize_t partition, Share share not None, /):
        if not 0 <= partition < self.spread.partitions:
            raise IndexError(partition)
        self.shares[partition] = share
        self.spread.places[partition] = &share.place

    def stick(self, Py_ssize_t partition, int64_t room, /):
        if partition >= self.spread.partitions:
            raise IndexError(partition)
        self.spread.sticky_partition = partition
        self.spread.sticky_room = room
        self.spread.sticky_used = 0

    def take_sticky_bytes(self):
        cdef int64_t used = self.spread.sticky_used
        self.spread.sticky_partition = -1
        self.spread.sticky_room = self.spread.sticky_used = 0
        return used


cdef inline object part_of(object item, Py_ssize_t number):
    """A part of an item; anything but a tuple is a value."""
    if not PyTuple_CheckExact(item):
        return item if number == 1 else None
    return <object> PyTuple_GET_ITEM(item, number) if number < PyTuple_GET_SIZE(item) else None


cdef inline bint is_payload(object payload) noexcept:
    return payload is None or PyBytes_CheckExact(payload)


cdef int64_t put_item(OpenBatches batches, object item, object partition, int64_t timestamp,
                      int64_t row, Py_ssize_t size_limit) except -2:
    """Writes one item; its bytes, or -1 when it has to go another way."""
    cdef Spread *spread = &batches.spread
    cdef object key = part_of(item, 0)
    cdef object value = part_of(item, 1)
    cdef object headers = part_of(item, 2)
    cdef object own_time = part_of(item, 3)
    cdef object own_partition = part_of(item, 4)
    cdef Py_ssize_t contents, number
    cdef bint by_choice = False
    cdef Share share
    cdef int32_t index
    if not is_payload(key) or not is_payload(value):
        return -1
    if PyTuple_CheckExact(item) and not 2 <= PyTuple_GET_SIZE(item) <= LONGEST_TUPLE:
        return -1
    if headers is None:
        headers = ()
    elif PyList_CheckExact(headers):
        headers = tuple(headers)
    elif not PyTuple_CheckExact(headers):
        return -1
    try:
        contents = blob_size(key) + blob_size(value) + headers_size(headers)
    except (TypeError, ValueError):
        return -1  # the general path raises the error
    if HEADER_SIZE + MAX_RECORD_OVERHEAD + contents > size_limit:
        return -1
    if own_time is not None:
        timestamp = integer_of(own_time)
        if timestamp < 0:
            return -1
    if own_partition is not None:
        partition = own_partition
    if partition is not None:
        number = integer_of(partition)
    elif key is None:
        by_choice = True
        number = chosen_partition(spread, NULL, -1, contents)
    else:
        by_choice = not spread.hashes_keys
        number = chosen_partition(
            spread, <const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), contents
        )
    if not 0 <= number < spread.partitions or spread.places[number] is NULL:
        return -1
    share = <Share> batches.shares[number]
    if not reserve_run(&share.place):
        raise MemoryError
    index = share.builder.put(timestamp, key, value, headers, contents)
    if index < 0:
        return -1
    note(&share.place, row, index)
    if by_choice:
        spread.sticky_used += MAX_RECORD_OVERHEAD + contents
    return MAX_RECORD_OVERHEAD + contents


def fill_items(
    list items not None,
    OpenBatches batches,
    object partition,
    Py_ssize_t start,
    Py_ssize_t stop,
    int64_t number,
    int64_t timestamp_ms,
    Py_ssize_t size_limit,
    int64_t budget,
    /,
):
    cdef Py_ssize_t index = start
    cdef int64_t written
    if batches is None:
        return start, True
    if timestamp_ms < 0 or start < 0 or stop > len(items):
        raise ValueError("rows and timestamp must be within their bounds")
    while index < stop and budget > 0:
        written = put_item(
            batches, items[index], partition, timestamp_ms, number + index, size_limit
        )
        if written < 0:
            return index, True
        budget -= written
        index += 1
    return index, False
