"""Part of `_arrow.pyx`: the rows of one Arrow array, straight into open batches.

`bulk.py` has the contract.

Ownership and lifetime
- A chunk releases its array exactly once: on `close()`, or when it goes away.
- `Column`s point into that array, and go with it. By then the rows have been copied into batches.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from aioproducer.records._arrow_memory cimport (
    BAD_SPAN,
    BYTES,
    FIXED_LIST,
    NULL_LENGTH,
    NULL_SPAN,
    NULLS,
    UNSIGNED,
    VIEWS,
    ArrowArray,
    Column,
    Span,
    is_null,
    ms_at,
    number_at,
    offset_at,
    put_cell,
    span_at,
    span_size,
)
from aioproducer.records._bulk cimport (
    OpenBatches,
    Place,
    Spread,
    begin_row,
    chosen_partition,
    end_row,
)
from aioproducer.records._native cimport (
    HEADER_SIZE,
    MAX_RECORD_OVERHEAD,
    put_span,
    put_varint,
    varint_size,
)

from aioproducer.errors import SerializationError

cdef object THOUSAND = 1000  # an object: the product may need more than 64 bits

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


# -- binding: from structures to columns -----------------------------------------------------------

cdef int check(bint holds, str what) except -1:
    if not holds:
        raise SerializationError(f"the Arrow data contradict their schema: {what}")
    return 0


cdef const uint8_t *buffer_of(ArrowArray *array, int64_t number) except? NULL:
    check(number < array.n_buffers, "a buffer is missing")
    return <const uint8_t *> array.buffers[number]


cdef int bind(Column *column, Column *dictionary, ArrowArray *parent, object layout,
              int64_t needed) except -1:
    """Points `column` to the child of `parent` that `layout` describes."""
    cdef ArrowArray *array
    if layout is None:
        column.kind = NULLS
        return 0
    check(layout.position < parent.n_children, "a column is missing")
    array = parent.children[<int64_t> layout.position]
    check(array.length >= needed, "a column is too short")
    point(column, array, layout)
    if layout.dictionary is not None:
        check(array.dictionary is not NULL, "a dictionary is missing")
        point(dictionary, array.dictionary, layout.dictionary)
        column.dictionary = dictionary
    return 0


cdef int point(Column *column, ArrowArray *array, object layout) except -1:
    column.kind = layout.kind
    column.width = layout.width
    column.per_second = layout.per_second
    column.offset = array.offset
    column.length = array.length
    if column.kind == NULLS:
        return 0
    column.validity = buffer_of(array, 0) if array.null_count else NULL
    if column.kind == FIXED_LIST:
        return 0
    column.main = buffer_of(array, 1)
    if column.kind == BYTES:
        column.data = buffer_of(array, 2)
    elif column.kind == VIEWS:
        # The last buffer has the sizes of those in between.
        column.blocks = array.buffers + 2
        column.block_count = max(array.n_buffers - 3, 0)
        if column.block_count:
            column.block_sizes = <const int64_t *> array.buffers[array.n_buffers - 1]
            check(column.block_sizes is not NULL, "a buffer is missing")
    return 0


@cython.final
cdef class ArrowChunk:
    """See `arrow.py`."""

    cdef ArrowArray array
    cdef Column columns[PARTS]
    cdef Column dictionaries[PARTS]
    cdef const uint8_t *validity
    # The topics of some rows, by their place in what `topics` gave.
    cdef int32_t *topic_ids
    cdef int64_t topics_from
    cdef int64_t topics_to
    cdef Py_ssize_t topic_count

    def __dealloc__(self):
        self.release()

    def close(self):
        """Releases the array; the rows are gone."""
        self.release()

    cdef void release(self) noexcept:
        free(self.topic_ids)
        self.topic_ids = NULL
        self.array.length = 0
        with nogil:  # whatever the release waits for may need the GIL
            if self.array.release is not NULL:
                self.array.release(&self.array)
                self.array.release = NULL

    def __len__(self):
        return self.array.length

    cdef int bind(self, object plan) except -1:
        cdef ArrowArray *array = &self.array
        cdef ArrowArray *headers
        cdef ArrowArray *entries
        cdef int64_t needed = array.offset + array.length
        check(array.n_children == plan.children, "another number of columns")
        self.validity = buffer_of(array, 0) if array.null_count else NULL
        for part, layout in (
            (VALUE, plan.value),
            (KEY, plan.key),
            (HEADERS, plan.headers),
            (PARTITION, plan.partition),
            (TIMESTAMP, plan.timestamp),
            (TOPIC, plan.topic),
        ):
            bind(&self.columns[<int> part], &self.dictionaries[<int> part], array, layout, needed)
        if plan.headers is not None and plan.headers.pair is not None:
            headers = array.children[<int64_t> plan.headers.position]
            check(headers.n_children == 1, "a list without its entries")
            entries = headers.children[0]
            self.columns[ENTRIES].offset = entries.offset
            self.columns[ENTRIES].length = entries.length
            self.columns[ENTRIES].validity = buffer_of(entries, 0) if entries.null_count else NULL
            needed = entries.offset + entries.length
            for part, layout in zip((HEADER_KEY, HEADER_VALUE), plan.headers.pair):
                bind(
                    &self.columns[<int> part], &self.dictionaries[<int> part], entries, layout,
                    needed,
                )
        return 0

    # -- cells of a row --------------------------------------------------------------------------

    cdef inline bint absent(self, int64_t row) noexcept nogil:
        """Whether the whole row is null, as in an array of structs."""
        return self.validity is not NULL and not self.validity[row >> 3] >> (row & 7) & 1

    cdef inline Span cell(self, int part, int64_t row) noexcept nogil:
        cdef Span span
        if self.absent(row):
            span.start = NULL
            span.length = NULL_SPAN
            return span
        return span_at(&self.columns[part], row)

    cdef inline bint has_number(self, int part, int64_t row) noexcept nogil:
        cdef Column *column = &self.columns[part]
        return not (
            column.kind == NULLS or self.absent(row) or is_null(column, row + column.offset)
        )

    cdef int64_t header_range(self, int64_t row, int64_t *begin) noexcept nogil:
        """How many headers a row has, and where they begin; -1 when that makes no sense."""
        cdef Column *column = &self.columns[HEADERS]
        cdef int64_t index = row + column.offset
        cdef int64_t count
        begin[0] = 0
        if column.kind == NULLS or self.absent(row) or is_null(column, index):
            return 0
        if column.kind == FIXED_LIST:
            begin[0] = index * column.width
            count = column.width
        else:
            begin[0] = offset_at(column, index)
            count = offset_at(column, index + 1) - begin[0]
        if count < 0 or begin[0] < 0 or begin[0] + count > self.columns[ENTRIES].length:
            return -1
        return count

    cdef Span header_part(self, int part, int64_t entry) noexcept nogil:
        """Key or value of one header; an entry that is null has no key."""
        cdef Column *entries = &self.columns[ENTRIES]
        cdef Span span
        entry += entries.offset
        if is_null(entries, entry):
            span.start = NULL
            span.length = BAD_SPAN
            return span
        return span_at(&self.columns[part], entry)

    cdef int64_t headers_size(self, int64_t row) noexcept nogil:
        """Encoded size of a row's headers; -1 when they cannot be sent."""
        cdef int64_t begin, count, entry, size
        cdef Span key, value
        if self.columns[HEADERS].kind == NULLS:
            return 1
        count = self.header_range(row, &begin)
        if count < 0:
            return -1
        size = varint_size(<uint64_t> count << 1)
        for entry in range(begin, begin + count):
            key = self.header_part(HEADER_KEY, entry)
            value = self.header_part(HEADER_VALUE, entry)
            if not 0 <= key.length <= INT32_MAX or not NULL_SPAN <= value.length <= INT32_MAX:
                return -1
            size += span_size(key) + span_size(value)
        return size

    cdef uint8_t *put_headers(self, uint8_t *out, int64_t row) noexcept nogil:
        cdef int64_t begin, count, entry
        if self.columns[HEADERS].kind == NULLS:
            return put_varint(out, 0)
        count = self.header_range(row, &begin)
        out = put_varint(out, <uint64_t> count << 1)
        for entry in range(begin, begin + count):
            out = put_cell(out, self.header_part(HEADER_KEY, entry))
            out = put_cell(out, self.header_part(HEADER_VALUE, entry))
        return out

    # -- into batches ----------------------------------------------------------------------------

    def topics(self, int64_t start, int64_t stop, /):
        """See `arrow.py`."""
        cdef Column *column = &self.columns[TOPIC]
        cdef dict ids = {}
        cdef Span span, last
        cdef int32_t number = -1
        cdef int64_t row
        if column.kind == NULLS:
            return [None]
        if not 0 <= start <= stop <= self.array.length:
            raise IndexError(stop)
        free(self.topic_ids)
        self.topic_ids = <int32_t *> malloc(max(stop - start, 1) * sizeof(int32_t))
        if self.topic_ids is NULL:
            raise MemoryError
        self.topics_from, self.topics_to = start, stop
        for row in range(start, stop):
            span = self.cell(TOPIC, row + self.array.offset)
            if number < 0 or span.length != last.length or (
                span.length > 0
                and span.start != last.start
                and memcmp(span.start, last.start, span.length)
            ):
                number = ids.setdefault(text_of(span, "a topic"), len(ids))
                last = span
            self.topic_ids[row - start] = number
        self.topic_count = len(ids)
        return list(ids) or [None]

    def fill(
        self,
        list batches not None,
        int64_t start,
        int64_t stop,
        int64_t number,
        int64_t timestamp_ms,
        int64_t size_limit,
        int64_t budget,
        /,
    ):
        """See `arrow.py`."""
        cdef Spread **spreads
        cdef Spread *spread
        cdef int64_t row = start, written = 0
        cdef Py_ssize_t at
        cdef bint bare = self.is_bare()
        if timestamp_ms < 0 or not 0 <= start <= stop <= self.array.length or not batches:
            raise ValueError("rows and timestamp must be within their bounds")
        if self.topic_ids is not NULL and not (
            self.topics_from <= start and stop <= self.topics_to
            and self.topic_count <= len(batches)
        ):
            raise ValueError("the topics of these rows were not asked for")
        spreads = <Spread **> malloc(len(batches) * sizeof(Spread *))
        if spreads is NULL:
            raise MemoryError
        for at in range(len(batches)):
            # `batches` keeps them alive.
            spreads[at] = NULL if batches[at] is None else &(<OpenBatches?> batches[at]).spread
        with nogil:
            while row < stop and budget > 0:
                spread = spreads[self.topic_ids[row - self.topics_from] if self.topic_ids else 0]
                if bare:
                    written = self.put_bare(
                        spread, row + self.array.offset, number + row, timestamp_ms, size_limit
                    )
                else:
                    written = self.put(
                        spread, row + self.array.offset, number + row, timestamp_ms, size_limit
                    )
                if written < 0:
                    break
                budget -= written
                row += 1
        free(spreads)
        return row, written < 0

    cdef bint is_bare(self) noexcept nogil:
        """Whether each row is a value and nothing else, in the usual layout."""
        cdef Column *value = &self.columns[VALUE]
        return (
            self.validity is NULL and value.validity is NULL
            and value.kind == BYTES and value.width == sizeof(int32_t)
            and self.columns[KEY].kind == self.columns[HEADERS].kind == NULLS
            and self.columns[PARTITION].kind == self.columns[TIMESTAMP].kind == NULLS
        )

    cdef inline int64_t put_bare(self, Spread *spread, int64_t row, int64_t number,
                                 int64_t timestamp, int64_t size_limit) noexcept nogil:
        """`put` for rows that are bare, in two thirds of the instructions."""
        cdef Column *column = &self.columns[VALUE]
        cdef const int32_t *offsets = <const int32_t *> column.main + row + column.offset
        cdef int64_t length = offsets[1] - offsets[0]
        cdef int64_t contents = 2 + varint_size(<uint64_t> length << 1) + length
        cdef Py_ssize_t partition
        cdef uint8_t *out
        if spread is NULL or length < 0 or HEADER_SIZE + MAX_RECORD_OVERHEAD + contents > size_limit:
            return -1
        partition = chosen_partition(spread, NULL, -1, contents)
        if partition < 0 or spread.places[partition] is NULL:
            return -1
        out = begin_row(spread.places[partition], timestamp, contents)
        if out is NULL:
            return -1
        out[0] = NULL_LENGTH  # the key
        out = put_span(out + 1, column.data + offsets[0], length)
        out[0] = 0  # headers
        end_row(spread.places[partition], out + 1, timestamp, number)
        spread.sticky_used += MAX_RECORD_OVERHEAD + contents
        return MAX_RECORD_OVERHEAD + contents

    cdef int64_t put(self, Spread *spread, int64_t row, int64_t number, int64_t timestamp,
                     int64_t size_limit) noexcept nogil:
        """Writes one row; its bytes, or -1 when it has to go another way."""
        cdef Span key, value
        cdef int64_t contents, partition
        cdef Place *place
        cdef uint8_t *out
        cdef bint by_choice = False
        if spread is NULL:
            return -1
        key = self.cell(KEY, row)
        value = self.cell(VALUE, row)
        contents = self.headers_size(row)
        if (
            contents < 0
            or not NULL_SPAN <= key.length <= INT32_MAX
            or not NULL_SPAN <= value.length <= INT32_MAX
        ):
            return -1
        contents += span_size(key) + span_size(value)
        if HEADER_SIZE + MAX_RECORD_OVERHEAD + contents > size_limit:
            return -1
        if self.has_number(TIMESTAMP, row):
            timestamp = ms_at(&self.columns[TIMESTAMP], row + self.columns[TIMESTAMP].offset)
            if timestamp < 0:
                return -1
        if self.has_number(PARTITION, row):
            partition = number_at(
                &self.columns[PARTITION], row + self.columns[PARTITION].offset
            )
        else:
            partition = chosen_partition(spread, key.start, key.length, contents)
            by_choice = key.length < 0 or not spread.hashes_keys
        if not 0 <= partition < spread.partitions:
            return -1
        place = spread.places[partition]
        if place is NULL:
            return -1
        out = begin_row(place, timestamp, contents)
        if out is NULL:
            return -1
        out = put_cell(put_cell(out, key), value)
        end_row(place, self.put_headers(out, row), timestamp, number)
        if by_choice:
            spread.sticky_used += MAX_RECORD_OVERHEAD + contents
        return MAX_RECORD_OVERHEAD + contents

    cdef object header(self, int64_t entry):
        name = None
        if not is_null(&self.columns[ENTRIES], entry + self.columns[ENTRIES].offset):
            name = text_of(self.header_part(HEADER_KEY, entry), "a header's name")
        if name is None:
            raise SerializationError("a header, or its name, is null")
        return name, bytes_of(self.header_part(HEADER_VALUE, entry), "a header's value")

    def record(self, int64_t row):
        """See `arrow.py`."""
        cdef int64_t entry, count, begin, at
        cdef Column *column
        if not 0 <= row < self.array.length:
            raise IndexError(row)
        row += self.array.offset
        count = self.header_range(row, &begin)
        if count < 0:
            raise SerializationError("the headers' offsets make no sense")
        headers = tuple([self.header(entry) for entry in range(begin, begin + count)])
        partition = timestamp = None
        if self.has_number(PARTITION, row):
            column = &self.columns[PARTITION]
            at = row + column.offset
            partition = number_at(column, at)
            if column.kind == UNSIGNED and column.width == 8:
                partition = (<const uint64_t *> column.main)[at]
        if self.has_number(TIMESTAMP, row):
            column = &self.columns[TIMESTAMP]
            time = number_at(column, row + column.offset)
            timestamp = time * THOUSAND // <object> column.per_second
        return (
            text_of(self.cell(TOPIC, row), "a topic"),
            bytes_of(self.cell(KEY, row), "a key"),
            bytes_of(self.cell(VALUE, row), "a value"),
            headers,
            partition,
            timestamp,
        )


cdef object bytes_of(Span span, str what):
    if span.length == NULL_SPAN:
        return None
    if span.length == BAD_SPAN:
        raise SerializationError(f"{what} cannot be read: the Arrow data contradict themselves")
    return PyBytes_FromStringAndSize(<const char *> span.start, span.length)


cdef object text_of(Span span, str what):
    cdef object found = bytes_of(span, what)
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError as error:
        raise SerializationError(f"{what} is not UTF-8: {found!r}") from error
