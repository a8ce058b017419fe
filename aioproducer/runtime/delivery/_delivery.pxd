"""Declarations of the native deliveries that `_fast_path.pyx` uses."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

cdef extern from "Python.h":
    int PYGEN_RETURN, PYGEN_NEXT
    int PyIter_Send(object iterator, object value, PyObject **result) except -1

cdef extern from *:
    """
    typedef int (*resume_function)(PyObject *, PyObject *, PyObject **);

    /* StopIteration, but that the last one freed is used again: making one anew takes as long as
       a third of `await send()`. One that Python code has caught has a traceback. */
    static PyTypeObject stop_type = {PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "StopIteration"};
    static PyObject *spare_stop;

    static void stop_dealloc(PyObject *self) {
        PyStopIterationObject *stop = (PyStopIterationObject *) self;
        if (spare_stop || stop->traceback || stop->context) {
            stop_type.tp_base->tp_dealloc(self);
            return;
        }
        Py_SET_REFCNT(self, 1);
        spare_stop = self;
        Py_CLEAR(stop->value);
    }

    static PyObject *new_stop(void) {
        PyObject *args, *stop = spare_stop;
        if (stop) {
            spare_stop = NULL;
            return stop;
        }
        if (!(stop_type.tp_flags & Py_TPFLAGS_READY)) {
            stop_type.tp_base = (PyTypeObject *) PyExc_StopIteration;
            stop_type.tp_basicsize = stop_type.tp_base->tp_basicsize;
            stop_type.tp_dealloc = stop_dealloc;
            if (PyType_Ready(&stop_type) < 0)
                return NULL;
        }
        args = PyTuple_New(0);
        stop = args ? stop_type.tp_new(&stop_type, args, NULL) : NULL;
        Py_XDECREF(args);
        return stop;
    }

    static void raise_stop(PyObject *value) {
        PyObject *stop = new_stop();
        if (!stop)
            return;
        Py_XSETREF(((PyStopIterationObject *) stop)->value, Py_NewRef(value));
    #if PY_VERSION_HEX >= 0x030C0000
        PyErr_SetRaisedException(stop);
    #else
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    #endif
    }

    /* `tp_iternext` by `am_send`. Raising StopIteration in Cython would add a traceback with two
       frames, which take longer than everything else an await does. */
    static PyObject *next_result(PyObject *self) {
        PyObject *result = NULL;
        if (Py_TYPE(self)->tp_as_async->am_send(self, Py_None, &result) == PYGEN_NEXT)
            return result;
        if (result && result != Py_None)
            raise_stop(result);
        Py_XDECREF(result);
        return NULL;
    }

    /* Cython has no name for `am_send`, through which an await gets its result without a
       StopIteration: the interpreter calls it up to 3.11, asyncio's tasks call it always. Since
       3.12 the interpreter calls `tp_iternext`. */
    static void set_am_send(PyObject *type, resume_function resume) {
        ((PyTypeObject *) type)->tp_as_async->am_send = (sendfunc) resume;
        ((PyTypeObject *) type)->tp_iternext = next_result;
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
    cdef public unsigned char _retrieved
    cdef public unsigned char _cancelled  # 0, CANCELLING or CANCELLED: see `_delivery_py.py`

    cdef succeed(self)


cdef class Callbacks:
    cdef Delivery delivery
    cdef object callback
    cdef object context
    cdef Callbacks following  # the next one of the same delivery
    cdef Callbacks last  # of those that follow
    cdef public object message

    cdef append(self, Callbacks added)
    cdef call_back(self)


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
    cdef public bint held  # schedule no loop callback until `run_now` is called
    cdef object done  # a future that is

    cdef push(self, object entry)
