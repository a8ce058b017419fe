"""A chunk of Arrow rows: its layout, for code that fills one with an array.

Owns: which columns a chunk has. See `_arrow_chunk.pxi` for the rest.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from aioproducer.records._arrow_memory cimport ArrowArray, Column, Span
from aioproducer.records._bulk cimport Spread

cdef enum:  # parts of a record
    VALUE
    KEY
    HEADERS
    PARTITION
    TIMESTAMP
    TOPIC
    ENTRIES
    HEADER_KEY
    HEADER_VALUE
    PARTS


@cython.final
cdef class ArrowChunk:
    cdef ArrowArray array
    cdef Column columns[PARTS]
    cdef Column dictionaries[PARTS]
    cdef const uint8_t *validity
    # The topics of some rows, by their place in what `topics` gave.
    cdef int32_t *topic_ids
    cdef int64_t topics_from
    cdef int64_t topics_to
    cdef Py_ssize_t topic_count

    cdef void release(self) noexcept
    cdef int bind(self, object plan) except -1
    cdef bint absent(self, int64_t row) noexcept nogil
    cdef Span cell(self, int part, int64_t row) noexcept nogil
    cdef bint has_number(self, int part, int64_t row) noexcept nogil
    cdef int64_t header_range(self, int64_t row, int64_t *begin) noexcept nogil
    cdef Span header_part(self, int part, int64_t entry) noexcept nogil
    cdef int64_t headers_size(self, int64_t row) noexcept nogil
    cdef uint8_t *put_headers(self, uint8_t *out, int64_t row) noexcept nogil
    cdef bint is_bare(self) noexcept nogil
    cdef int64_t put_bare(
        self, Spread *spread, int64_t row, int64_t number, int64_t timestamp, int64_t size_limit
    ) noexcept nogil
    cdef int64_t put(
        self, Spread *spread, int64_t row, int64_t number, int64_t timestamp, int64_t size_limit
    ) noexcept nogil
    cdef object header(self, int64_t entry)
