# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False, auto_pickle=False, cdivision=True
"""Arrow data through the C data interface.

`_arrow_chunk.pxi` reads and writes rows, `arrow_layout.py` says which types are allowed.
`_pure_arrow.py` is the pure fallback; `arrow.py` has the contract of both.

Ownership and lifetime
- A capsule's structure is moved into an `ArrowSource`, which releases it exactly once: on `close()`,
  or when it goes away.
- `next` may run in another thread, one call at a time; releasing does not wait, so `close()`
  during such a call is left to the end of that call.

One native module, because each carries some 12 KB of Cython's own.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t

from aioproducer.records._arrow_memory cimport ArrowArray, ArrowArrayStream, ArrowSchema

from aioproducer.errors import SerializationError
from aioproducer.records.arrow_layout import Field, plan_columns, taken_error

include "_arrow_chunk.pxi"


cdef object field_of(const ArrowSchema *schema):
    """A schema in the form that `arrow_layout` reads."""
    cdef int64_t number
    return Field(
        schema.name.decode() if schema.name is not NULL else "",
        schema.format.decode(),
        tuple([field_of(schema.children[number]) for number in range(schema.n_children)]),
        field_of(schema.dictionary) if schema.dictionary is not NULL else None,
    )


@cython.final
cdef class ArrowSource:
    """See `arrow.py`."""

    cdef ArrowArrayStream stream
    cdef ArrowSchema schema
    cdef ArrowArray array  # the only one, of a source that is not a stream
    cdef object plan
    cdef bint busy
    cdef bint closing
    cdef readonly bint streams

    def __init__(self, data, columns):
        if hasattr(data, "__arrow_c_array__"):
            schema, array = data.__arrow_c_array__()
            self.take_array(schema, array)
        elif hasattr(data, "__arrow_c_stream__"):
            self.take_stream(data.__arrow_c_stream__())
        else:
            raise TypeError(
                "send_arrow takes what has __arrow_c_stream__ or __arrow_c_array__ (tables of "
                f"pyarrow, polars, DuckDB, pandas ...), not {type(data).__name__}"
            )
        self.plan = plan_columns(field_of(&self.schema), columns)

    def __dealloc__(self):
        self.release()

    cdef take_array(self, object schema, object array):
        cdef ArrowSchema *moved = <ArrowSchema *> PyCapsule_GetPointer(schema, "arrow_schema")
        cdef ArrowArray *moved_array = <ArrowArray *> PyCapsule_GetPointer(array, "arrow_array")
        if moved.release is NULL or moved_array.release is NULL:
            raise taken_error()
        self.schema = moved[0]
        moved.release = NULL
        self.array = moved_array[0]
        moved_array.release = NULL

    cdef take_stream(self, object capsule):
        cdef int code
        cdef ArrowArrayStream *moved = <ArrowArrayStream *> PyCapsule_GetPointer(
            capsule, "arrow_array_stream"
        )
        if moved.release is NULL:
            raise taken_error()
        self.stream = moved[0]
        moved.release = NULL
        self.streams = True
        with nogil:
            code = self.stream.get_schema(&self.stream, &self.schema)
        self.check(code)

    cdef int check(self, int code) except -1:
        cdef const char *text
        if code:
            text = self.stream.get_last_error(&self.stream)
            reason = text.decode(errors="replace") if text is not NULL else f"error {code}"
            raise SerializationError(f"the Arrow stream failed: {reason}")
        return 0

    def next(self):
        cdef ArrowChunk chunk = ArrowChunk.__new__(ArrowChunk)
        cdef int code
        if self.busy:
            raise RuntimeError("an Arrow source gives one chunk at a time")
        if self.stream.release is not NULL:
            self.busy = True
            try:
                with nogil:
                    code = self.stream.get_next(&self.stream, &chunk.array)
                self.check(code)
            finally:
                self.busy = False
                if self.closing:
                    self.close()
        else:
            chunk.array = self.array
            self.array.release = NULL
        if chunk.array.release is NULL:
            return None
        chunk.bind(self.plan)
        return chunk

    def close(self):
        if self.busy:
            self.closing = True
        else:
            self.release()

    cdef void release(self) noexcept:
        with nogil:  # whatever the release waits for may need the GIL
            if self.array.release is not NULL:
                self.array.release(&self.array)
                self.array.release = NULL
            if self.schema.release is not NULL:
                self.schema.release(&self.schema)
                self.schema.release = NULL
            if self.stream.release is not NULL:
                self.stream.release(&self.stream)
                self.stream.release = NULL
