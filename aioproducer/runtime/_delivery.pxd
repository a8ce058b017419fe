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

cdef extern from *:
    """
    #include <structmember.h>

    /* What is in a slot of a class with `__slots__`: by name that takes ten times as long. */
    static Py_ssize_t slot_offset(PyObject *type, PyObject *name) {
        PyObject *member = PyObject_GetAttr(type, name);
        Py_ssize_t offset = -1;
        if (member && PyObject_TypeCheck(member, &PyMemberDescr_Type))
            offset = ((PyMemberDescrObject *) member)->d_member->offset;
        else if (member)
            PyErr_SetString(PyExc_TypeError, "no slot");
        Py_XDECREF(member);
        return offset;
    }

    /* Borrowed; NULL where `owner` has no such slot, or nothing in it. */
    static PyObject *found_in_slot(PyObject *owner, PyObject *type, Py_ssize_t offset) {
        if (!PyObject_TypeCheck(owner, (PyTypeObject *) type))
            return NULL;
        return *(PyObject **) ((char *) owner + offset);
    }

    static PyObject *in_slot(PyObject *owner, PyObject *type, Py_ssize_t offset) {
        PyObject *found = found_in_slot(owner, type, offset);
        return found ? Py_NewRef(found) : PyErr_Format(PyExc_TypeError, "no slot in %R", owner);
    }
    """
    Py_ssize_t slot_offset(object type, object name) except -1
    PyObject *found_in_slot(object owner, object type, Py_ssize_t offset) noexcept
    object in_slot(object owner, object type, Py_ssize_t offset)

cdef bint runs_here(object loop) except -1
cdef object resumed(object iterator, object value, resume_function resume)
cdef object thrown(object kind, object value, object traceback)


cdef class Delivery:
    # One for each record that is kept: 48 bytes, in an order without gaps.
    cdef readonly object _batch
    cdef readonly int64_t _timestamp_ms
    cdef readonly int32_t _index
    cdef readonly int32_t _key_size
    cdef readonly int32_t _value_size
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

    cdef bint suspend(self) except -1
    cdef detach(self)
    cdef call_back(self)


cdef class WakeUps:
    cdef readonly object loop
    cdef object loop_reference
    cdef list due
    cdef bint held
    cdef object done  # a future that is
