"""What `_fastlane.pyx` uses of the native deliveries."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

cdef extern from "Python.h":
    int PYGEN_RETURN, PYGEN_NEXT
    int PyIter_Send(object iterator, object value, PyObject **result) except -1

cdef extern from *:
    """
    /* Cython has no name for this slot (`am_send`, since Python 3.10). Through it an await
       gets its result without the StopIteration that would otherwise carry it. */
    typedef int (*resume_function)(PyObject *, PyObject *, PyObject **);
    static void set_am_send(PyObject *type, resume_function resume) {
        ((PyTypeObject *) type)->tp_as_async->am_send = (sendfunc) resume;
        PyType_Modified((PyTypeObject *) type);
    }
    """
    ctypedef int (*resume_function)(object, object, PyObject **) except -1
    void set_am_send(object type, resume_function resume)

cdef bint runs_here(object loop) except -1
cdef object resumed(object iterator, object value, resume_function resume)
cdef object thrown(object kind, object value, object traceback)


cdef class Delivery:
    cdef readonly object _batch
    cdef readonly int32_t _index
    cdef readonly int64_t _timestamp_ms
    cdef readonly Py_ssize_t _key_size
    cdef readonly Py_ssize_t _value_size
    cdef public bint _retrieved


cdef enum WaitState:
    FRESH
    WAITING
    DUE
    CANCELLED
    OVER


cdef class Wait:
    cdef Delivery delivery
    cdef WakeUps wake_ups
    cdef object callback
    cdef object context
    cdef object cancel_message
    cdef WaitState state
    cdef public bint _asyncio_future_blocking

    cdef suspend(self)
    cdef detach(self)
    cdef call_back(self)


cdef class WakeUps:
    cdef readonly object loop
    cdef list due
    cdef bint held
    cdef object done  # a future that is
