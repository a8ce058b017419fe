"""The common part of the native row sources: where the next record of a partition goes.

Nothing here needs the GIL. See `_bulk.pyx` for the rest.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc

from aioproducer.records._native cimport (
    MAX_RECORD_OVERHEAD,
    RecordBatchBuilder,
    murmur2_hash,
    put_varint,
    varint_size,
    zigzag,
)


cdef struct Run:
    # Rows that follow one another and whose records do too.
    int64_t row
    int32_t index
    int32_t count


cdef struct Place:
    # The state of a partition's open builder, by pointers into it: once it is closed, its capacity
    # is 0, and nothing is written any more.
    uint8_t **start
    Py_ssize_t *capacity
    Py_ssize_t *size
    int32_t *count
    int32_t *most
    int64_t *base_timestamp
    int64_t *max_timestamp
    Py_ssize_t *largest
    # Which rows went there.
    Run *runs
    Py_ssize_t run_count
    Py_ssize_t run_room
    int64_t records


cdef struct Spread:
    Place **places  # by partition; NULL where no batch is known
    Py_ssize_t partitions
    bint hashes_keys
    Py_ssize_t sticky_partition  # -1: not known
    int64_t sticky_room
    int64_t sticky_used


cdef class Share:
    cdef readonly RecordBatchBuilder builder
    cdef Place place


cdef class OpenBatches:
    cdef Spread spread
    cdef list shares


cdef inline bint reserve_run(Place *place) noexcept nogil:
    """Makes room for one more run, so that noting a record cannot fail."""
    cdef Py_ssize_t room = place.run_room
    cdef Run *runs
    if place.run_count < room:
        return True
    room = room * 2 if room else 4
    runs = <Run *> realloc(place.runs, room * sizeof(Run))
    if runs is NULL:
        return False
    place.runs = runs
    place.run_room = room
    return True


cdef inline void note(Place *place, int64_t row, int32_t index) noexcept nogil:
    """Note that a row is record `index` of the batch; `reserve_run` has made room for it."""
    cdef Run *last = place.runs + place.run_count - 1
    place.records += 1
    if (
        place.run_count
        and last.row + last.count == row
        and last.index + last.count == index
    ):
        last.count += 1
        return
    last += 1
    last.row = row
    last.index = index
    last.count = 1
    place.run_count += 1


cdef inline Py_ssize_t chosen_partition(
    Spread *spread, const uint8_t *key, Py_ssize_t key_size, Py_ssize_t contents
) noexcept nogil:
    """The partition of a record that names none; -1 when that is not decided here.

    `key_size` is -1 for a null key, `contents` the encoded size of key, value and headers.
    """
    if key_size >= 0 and spread.hashes_keys:
        return (murmur2_hash(key, key_size) & 0x7FFFFFFF) % spread.partitions
    # The record that uses up the room is left to the code that then switches partitions.
    if spread.sticky_used + MAX_RECORD_OVERHEAD + contents >= spread.sticky_room:
        return -1
    return spread.sticky_partition


cdef inline uint8_t *begin_record(
    Place *place, int64_t timestamp, Py_ssize_t contents
) noexcept nogil:
    """Where key, value and headers are to be written; NULL when the record has no room."""
    cdef int32_t index = place.count[0]
    cdef uint64_t time_delta = zigzag(timestamp - place.base_timestamp[0]) if index else 0
    cdef Py_ssize_t length = (
        1 + varint_size(time_delta) + varint_size(<uint64_t> index << 1) + contents
    )
    cdef Py_ssize_t end = place.size[0] + varint_size(<uint64_t> length << 1) + length
    cdef uint8_t *out
    if end > place.capacity[0] or index >= place.most[0] or not reserve_run(place):
        return NULL
    out = put_varint(place.start[0] + place.size[0], <uint64_t> length << 1)
    out[0] = 0  # the record's attributes, none of which are in use
    out = put_varint(out + 1, time_delta)
    return put_varint(out, <uint64_t> index << 1)


cdef inline void end_record(
    Place *place, uint8_t *end, int64_t timestamp, int64_t row
) noexcept nogil:
    """The record that was begun ends at `end`."""
    cdef int32_t index = place.count[0]
    cdef Py_ssize_t size = end - place.start[0]
    if size - place.size[0] > place.largest[0]:
        place.largest[0] = size - place.size[0]
    place.size[0] = size
    place.count[0] = index + 1
    if index == 0:
        place.base_timestamp[0] = timestamp
    if timestamp > place.max_timestamp[0]:
        place.max_timestamp[0] = timestamp
    note(place, row, index)
