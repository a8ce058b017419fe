"""The common part of the native row sources: where the next record of a partition goes.

Nothing here needs the GIL. See `_bulk.pyx` for the rest.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc

from aioproducer.records._native cimport (
    MAX_RECORD_OVERHEAD,
    RecordBatchBuilder,
    begin_record,
    end_record,
    murmur2_hash,
)


cdef struct Run:
    # Rows that follow one another and whose records do too.
    int64_t row
    int32_t index
    int32_t count


cdef struct Place:
    # A partition's open builder; once it is closed, its capacity is 0, and nothing is written.
    PyObject *builder
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


cdef inline uint8_t *begin_row(
    Place *place, int64_t timestamp, Py_ssize_t contents
) noexcept nogil:
    """Where key, value and headers are to be written; NULL when the record has no room."""
    if not reserve_run(place):
        return NULL
    return begin_record(<RecordBatchBuilder> place.builder, timestamp, contents)


cdef inline void end_row(Place *place, uint8_t *end, int64_t timestamp, int64_t row) noexcept nogil:
    """The record that was begun ends at `end`."""
    cdef int32_t index = (<RecordBatchBuilder> place.builder).count
    end_record(<RecordBatchBuilder> place.builder, end, timestamp)
    note(place, row, index)
