"""Arrow's structures, and cells in them: everything here is memory, and needs no GIL."""

from libc.stdint cimport (
    INT64_MAX,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)

from aioproducer.records._native cimport put_span, varint_size


cdef struct ArrowSchema:
    const char *format
    const char *name
    const char *metadata
    int64_t flags
    int64_t n_children
    ArrowSchema **children
    ArrowSchema *dictionary
    void (*release)(ArrowSchema *) noexcept nogil
    void *private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept nogil
    void *private_data

cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept nogil
    int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
    const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
    void (*release)(ArrowArrayStream *) noexcept nogil
    void *private_data


cdef enum Kind:  # of arrow_layout.py
    NULLS = 0
    BYTES = 1
    VIEWS = 2
    FIXED = 3
    SIGNED = 4
    UNSIGNED = 5
    LIST = 6
    FIXED_LIST = 7

cdef enum:
    NULL_SPAN = -1
    BAD_SPAN = -2  # to be explained by `record`
    INLINE_VIEW = 12
    NULL_LENGTH = 1  # the varint of -1

cdef struct Column:
    Kind kind
    int64_t width
    int64_t offset
    int64_t length
    const uint8_t *validity  # NULL: no nulls
    const uint8_t *main  # offsets, views, numbers or fixed-size values
    const uint8_t *data
    const void **blocks  # of views
    const int64_t *block_sizes
    int64_t block_count
    Column *dictionary
    int64_t per_second

cdef struct Span:
    const uint8_t *start
    int64_t length

cdef struct View:
    int32_t length
    uint8_t prefix[4]
    int32_t block
    int32_t offset


cdef inline bint is_null(const Column *column, int64_t index) noexcept nogil:
    return column.validity is not NULL and not column.validity[index >> 3] >> (index & 7) & 1


cdef inline int64_t offset_at(const Column *column, int64_t index) noexcept nogil:
    if column.width == 4:
        return (<const int32_t *> column.main)[index]
    return (<const int64_t *> column.main)[index]


cdef inline int64_t number_at(const Column *column, int64_t index) noexcept nogil:
    """An integer; -1 for one that only an unsigned column can hold."""
    cdef const uint8_t *main = column.main
    if column.kind == SIGNED:
        if column.width == 8:
            return (<const int64_t *> main)[index]
        if column.width == 4:
            return (<const int32_t *> main)[index]
        if column.width == 2:
            return (<const int16_t *> main)[index]
        return (<const int8_t *> main)[index]
    if column.width == 8:
        return max(<int64_t> (<const uint64_t *> main)[index], -1)
    if column.width == 4:
        return (<const uint32_t *> main)[index]
    if column.width == 2:
        return (<const uint16_t *> main)[index]
    return main[index]


cdef inline Span span_at(const Column *column, int64_t row) noexcept nogil:
    """The bytes of a cell."""
    cdef int64_t index = row + column.offset
    cdef int64_t begin
    cdef Span span
    span.start = NULL
    span.length = NULL_SPAN
    if column.kind == NULLS or is_null(column, index):
        return span
    if column.kind != BYTES:
        return other_span_at(column, index)
    begin = offset_at(column, index)
    span.length = offset_at(column, index + 1) - begin
    span.start = column.data + begin
    if span.length < 0:
        span.length = BAD_SPAN
    return span


cdef inline Span other_span_at(const Column *column, int64_t index) noexcept nogil:
    """Apart, so that compilers inline the usual kind."""
    cdef int64_t place
    cdef const View *view
    cdef Span span
    span.start = NULL
    span.length = BAD_SPAN
    if column.kind == FIXED:
        span.length = column.width
        span.start = column.main + index * column.width
    elif column.kind == VIEWS:
        view = <const View *> column.main + index
        if 0 <= view.length <= INLINE_VIEW:
            span.length = view.length
            span.start = &view.prefix[0]
        elif (
            view.length > INLINE_VIEW
            and 0 <= view.block < column.block_count
            and 0 <= view.offset <= column.block_sizes[view.block] - view.length
        ):
            span.length = view.length
            span.start = <const uint8_t *> column.blocks[view.block] + view.offset
    else:
        place = number_at(column, index)
        if 0 <= place < column.dictionary.length:
            return span_at(column.dictionary, place)
    return span


cdef inline int64_t span_size(Span span) noexcept nogil:
    return 1 if span.length < 0 else varint_size(<uint64_t> span.length << 1) + span.length


cdef inline uint8_t *put_cell(uint8_t *out, Span span) noexcept nogil:
    if span.length < 0:
        out[0] = NULL_LENGTH
        return out + 1
    return put_span(out, span.start, span.length)


cdef inline int64_t ms_at(const Column *column, int64_t index) noexcept nogil:
    """Milliseconds; -1 for a time that a record cannot have."""
    cdef int64_t time = number_at(column, index)
    if time < 0:
        return -1
    if column.per_second >= 1000:
        return time // (column.per_second // 1000)
    return time * 1000 if time <= INT64_MAX // 1000 else -1
