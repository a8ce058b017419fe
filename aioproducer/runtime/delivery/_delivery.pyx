# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=True, embedsignature.format=clinic, auto_pickle=False
"""Deliveries in native code: `Delivery`, its await (`Wait`) and the resumption of all awaiters.

Not here: appending, sending. `_delivery_py.py` is the pure-Python implementation and documents a
delivery; what is not defined here is taken from there.

Ownership and lifetime
- Every `object` field is a counted reference; nothing here is borrowed across a call into Python.
  The results returned through `am_send` are the only references counted by hand.
- `Delivery` is invisible to the garbage collector, which would otherwise traverse every record in
  flight again and again. The only cycle through it is batch -> listener -> delivery -> batch, and
  it ends with the batch's outcome.
- A suspended `Wait` is a listener of its batch and has the callback of its task; it drops the
  callback before calling it. So neither outlives the outcome or the cancellation. The same holds
  for `Callbacks`.
"""

cimport cython
from cpython.contextvars cimport PyContext_CopyCurrent, PyContext_Enter, PyContext_Exit
from cpython.ref cimport Py_DECREF, Py_INCREF

import asyncio
from asyncio import CancelledError, InvalidStateError, Task, current_task
from asyncio import _get_running_loop as running_loop
from sys import version_info
from weakref import ref

from aioproducer.runtime.delivery._delivery_py import Delivery as Twin
from aioproducer.runtime.delivery._delivery_py import check_done_callback
from aioproducer.types import RecordMetadata, TimestampType

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()
    Py_ssize_t Py_REFCNT(object counted) noexcept
    bint PyCFunction_Check(object callback) noexcept
    PyObject *PyCFunction_GetSelf(object callback) except? NULL

cdef extern from *:
    """
    /* Since 3.14 a tuple caches its hash; -1: not computed yet. */
    static void forget_hash(PyObject *items) {
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *) items)->ob_hash = -1;
    #endif
    }

    /* A function, but not a coroutine function, nor marked as one by an attribute. */
    static int is_plain_function(PyObject *callback) {
        PyFunctionObject *function = (PyFunctionObject *) callback;
        return PyFunction_Check(callback) && !function->func_dict
            && !(((PyCodeObject *) function->func_code)->co_flags & CO_COROUTINE);
    }

    /* A tuple of a subclass of tuple; the items are still to be set. */
    static PyObject *new_tuple(PyObject *type, Py_ssize_t length) {
        PyObject *made = ((PyTypeObject *) type)->tp_alloc((PyTypeObject *) type, length);
        if (made)
            forget_hash(made);
        return made;
    }

    /* Sets an item of a tuple that has no other owner. */
    static void set_item(PyObject *items, Py_ssize_t index, PyObject *item) {
        PyObject *old = PyTuple_GET_ITEM(items, index);
        PyTuple_SET_ITEM(items, index, Py_NewRef(item));
        Py_XDECREF(old);
    }
    """
    bint is_plain_function(object callback) noexcept
    void forget_hash(object items) noexcept
    object new_tuple(object type, Py_ssize_t length)
    void set_item(object items, Py_ssize_t index, object item) noexcept


cdef enum:
    AT_ONCE = 500  # awaiters resumed in one go: `EARLY_FLUSH_RECORDS` in `core.batching.readiness`
    CANCELLING = 1  # as in `_delivery_py.py`


cdef dict asyncio_names = vars(asyncio)
cdef object known_loop_type = None
cdef bint loop_notes_thread = False


cdef bint runs_here(object loop) except -1:
    """Return whether `loop` is the one running in this thread.

    On Python 3.11 `_get_running_loop` makes a system call (getpid), which takes some 0.1 us. But a
    thread runs one loop at a time, and asyncio's own loops store the id of their thread.
    """
    global known_loop_type, loop_notes_thread
    cdef object thread
    if type(loop) is not known_loop_type:
        known_loop_type = type(loop)
        loop_notes_thread = version_info < (3, 12) and hasattr(loop, "_thread_id")
    if not loop_notes_thread:
        return running_loop() is loop
    thread = loop._thread_id
    return thread is not None and <unsigned long> thread == PyThread_get_thread_ident()


@cython.final
cdef class Receipt:
    """See `_delivery_py.py`."""

    cdef object topic
    cdef object partition
    cdef object timestamp_type
    cdef object stamped
    cdef bint has_offset
    cdef int64_t base_offset
    cdef int64_t last_timestamp_ms
    cdef object last_timestamp  # the same as an object: records in a row often share it

    def __init__(self, topic, partition, base_offset, log_append_time_ms):
        self.topic = topic
        self.partition = partition
        self.has_offset = base_offset is not None
        self.base_offset = base_offset if base_offset is not None else 0
        self.stamped = log_append_time_ms
        self.last_timestamp_ms = -1
        self.timestamp_type = (
            TimestampType.CREATE_TIME if log_append_time_ms is None
            else TimestampType.LOG_APPEND_TIME
        )

    cpdef metadata(self, Delivery delivery, int32_t place):
        global last_metadata
        cdef object metadata = writable_metadata()
        set_item(metadata, 0, self.topic)
        set_item(metadata, 1, self.partition)
        set_item(metadata, 2, self.base_offset + place if self.has_offset else None)
        set_item(metadata, 3, self.timestamp(delivery) if self.stamped is None else self.stamped)
        set_item(metadata, 4, self.timestamp_type)
        set_item(metadata, 5, delivery._key_size)
        set_item(metadata, 6, delivery._value_size)
        last_metadata = metadata  # complete now: `gc.get_objects` may return it
        return metadata

    cdef inline timestamp(self, Delivery delivery):
        if delivery._timestamp_ms != self.last_timestamp_ms:
            self.last_timestamp = delivery._timestamp_ms
            self.last_timestamp_ms = delivery._timestamp_ms
        return self.last_timestamp


cdef object last_metadata = None, last_but_one = None


cdef object writable_metadata():
    """Return a `RecordMetadata` without other references, to be filled in.

    One that its awaiter has dropped is reused, as `zip` does with its tuples: most are dropped at
    once. There are two, because `metadata = await delivery` keeps one meanwhile.
    """
    global last_but_one
    cdef object metadata = last_but_one
    last_but_one = last_metadata
    if Py_REFCNT(metadata) == 1:  # this reference
        forget_hash(metadata)
        return metadata
    # As a NamedTuple's own `__new__`, which is a Python function, does.
    return new_tuple(RecordMetadata, 7)


@cython.final
@cython.no_gc
cdef class Delivery:
    """The outcome of one accepted record; await it for its `RecordMetadata`.

    See `_delivery_py.py`, from which other attributes are taken.
    """

    _asyncio_future_blocking = False
    _receipt_type = Receipt
    _callbacks_type = Callbacks
    topic = Twin.topic
    partition = Twin.partition
    get_loop = Twin.get_loop
    cancel = Twin.cancel
    batch_and_index = Twin.batch_and_index
    _on_cancelled = Twin._on_cancelled
    _cancel_message = Twin._cancel_message
    _make_cancelled_error = Twin._make_cancelled_error
    _running_loop = Twin._running_loop

    def __init__(self, batch, int32_t index, int64_t timestamp_ms, int32_t key_size,
                 int32_t value_size):
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size

    def __await__(self):
        cdef Wait wait = Wait.__new__(Wait)
        wait.delivery = self
        return wait

    def done(self):
        """Return whether the record is acknowledged or has failed."""
        return (
            self._cancelled == CANCELLING
            or self._batch.outcome is not None
        )

    def cancelled(self):
        """Return whether `cancel()` was called and the record has no outcome yet."""
        return self._cancelled != 0 and self._batch.outcome is None

    def exception(self):
        """Return the error, or None when the record is acknowledged."""
        return None if self.succeed() else Twin.exception(self)

    def result(self):
        """Return the record's topic, partition, offset and timestamp."""
        cdef object receipt = self.succeed()
        return Twin.result(self) if receipt is None else (<Receipt> receipt).metadata(
            self, self._index
        )

    def add_done_callback(self, callback, *, context=None):
        """Call `callback(delivery)` from the loop, soon after the delivery is done."""
        cdef object batch = self._batch
        cdef dict listeners
        cdef Callbacks added, waiting
        if not is_plain_function(callback):
            check_done_callback(callback)
        added = Callbacks.__new__(Callbacks)
        added.delivery = self
        added.callback = callback
        added.context = PyContext_CopyCurrent() if context is None else context
        if (
            self._cancelled == CANCELLING
            or batch.outcome is not None
        ):
            added(self)
            return
        listeners = <dict?> batch.listeners
        waiting = listeners.get(self)
        if waiting is None:
            listeners[self] = added
        else:
            waiting.append(added)

    def remove_done_callback(self, callback):
        """Remove a callback; return how often it had been added."""
        cdef Callbacks waiting = self._batch.listeners.get(self)
        cdef object callbacks
        cdef Py_ssize_t removed = 0
        if waiting is None or self._cancelled == CANCELLING:
            return 0
        callbacks = waiting.take()
        self._batch.remove_listener(self)
        for known, context in callbacks:
            if known == callback:
                removed += 1
            else:
                self.add_done_callback(known, context=context)
        return removed

    cdef succeed(self):
        """Return the receipt of an acknowledged record; None before, and when it has failed."""
        cdef object batch = self._batch
        cdef object receipt = batch.receipt, outcome
        if type(receipt) is Receipt:
            return receipt
        outcome = batch.outcome
        if outcome is None or outcome.error is not None or batch.parts:
            return None
        receipt = Receipt(
            *batch.topic_partition, outcome.base_offset, outcome.log_append_time_ms
        )
        batch.receipt = receipt
        return receipt

    def __repr__(self):
        return Twin.__repr__(self)


@cython.final
@cython.freelist(256)
cdef class Callbacks:
    """A done-callback of one delivery, and those that follow it; see `_delivery_py.py`.

    Each is called together with the tasks that are due (`WakeUps`), without its own loop callback.
    """

    def __call__(self, delivery):
        """Make the callbacks due: the record has its outcome."""
        cdef Callbacks due = self, following
        cdef WakeUps wake_ups = (<Delivery?> delivery)._batch.owner
        if wake_ups.loop.is_closed():
            return
        while due is not None:
            following, due.following, due.last = due.following, None, None
            if due.callback is not None:
                wake_ups.push(due)
            due = following

    def take(self):
        cdef Callbacks each = self
        cdef list taken = []
        while each is not None:
            if each.callback is not None:
                taken.append((each.callback, each.context))
            each = each.following
        self.callback = self.context = self.following = self.last = None
        return taken

    cdef append(self, Callbacks added):
        if self.last is None:
            self.following = added
        else:
            self.last.following = added
        self.last = added

    cdef call_back(self):
        cdef object callback = self.callback, context = self.context
        cdef WakeUps wake_ups
        if callback is None:
            return  # after an interrupt the batch calls it twice
        self.callback = self.context = None
        try:
            PyContext_Enter(context)
            try:
                callback(self.delivery)
            finally:
                PyContext_Exit(context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            wake_ups = self.delivery._batch.owner
            wake_ups.loop.call_exception_handler({
                "message": f"Exception in callback {callback!r} of {self.delivery!r}",
                "exception": error,
            })


# -- waiting ---------------------------------------------------------------------------------------

@cython.final
@cython.freelist(256)
cdef class Wait:
    """One await of one delivery; it suspends at most once.

    The task waits for this object itself: to asyncio, an object with `_asyncio_future_blocking` is
    a future. A future of the loop would cost an object and a loop callback for each awaiter; with
    this one, all awaiters share one loop callback (`WakeUps`).
    """

    def __await__(self):
        # Without this method the type has no table of asynchronous slots for `set_am_send`.
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return resumed(self, None, wait_resume)

    def send(self, value):
        return resumed(self, value, wait_resume)

    def throw(self, kind, value=None, traceback=None, /):
        """Cancel this awaiter only."""
        self.close()
        raise thrown(kind, value, traceback)

    def close(self):
        """Stop waiting."""
        self.detach()
        self.state = OVER
        self.callback = self.context = None

    cdef bint suspend(self) except -1:
        """Begin to wait, unless the delivery is done; called in its loop only."""
        cdef object batch = self.delivery._batch
        if batch.outcome is not None:
            return False
        self.wake_ups = batch.owner
        # `add_listener`, without the call
        (<dict?> batch.listeners)[self] = wake
        self.state = WAITING
        self._asyncio_future_blocking = True
        return True

    cdef detach(self):
        if self.state == WAITING:
            self.delivery._batch.remove_listener(self)

    # The methods that asyncio calls of a future that a coroutine yields.

    @property
    @cython.nonecheck(True)  # `wake_ups` is None before the wait
    def get_loop(self):
        """A callable that returns the loop; not a method, as binding a method makes an object."""
        return self.wake_ups.loop_reference

    def done(self):
        """Return whether the awaiter is resumed, or about to be."""
        return self.state != WAITING

    def add_done_callback(self, callback, *, context=None):
        """Set the callback that resumes the only awaiter."""
        if self.callback is not None or self.state != WAITING:
            raise RuntimeError("a delivery's await has one awaiter: await the delivery again")
        self.callback = callback
        self.context = context

    def cancel(self, msg=None):
        """Resume the awaiter with a `CancelledError`, unless it is resumed anyway."""
        if self.state != WAITING:
            return False
        self.detach()
        self.state = CANCELLED
        self.cancel_message = msg
        if self.callback is not None:
            self.wake_ups.loop.call_soon(self.callback, self, context=self.context)
            self.callback = self.context = None
        return True

    def result(self):
        """Return None: the await itself has the result."""
        if self.state == CANCELLED:
            raise CancelledError() if self.cancel_message is None else CancelledError(
                self.cancel_message
            )
        if self.state == WAITING:
            raise InvalidStateError("the delivery is not done yet")

    cdef call_back(self):
        cdef object callback = self.callback, context = self.context
        cdef object told = self
        if self.state != DUE or callback is None:
            return
        self.callback = self.context = None
        if PyCFunction_Check(callback) and is_task(PyCFunction_GetSelf(callback)):
            # A task's own wake-up calls `result()` of a future, faster if that is one of asyncio's.
            told = self.wake_ups.done
        if context is None:
            callback(told)
            return
        PyContext_Enter(context)
        try:
            callback(told)
        finally:
            PyContext_Exit(context)

    def __repr__(self):
        return f"<await of {self.delivery!r}>"


cdef inline bint is_task(PyObject *owner) noexcept:
    return owner is not NULL and type(<object> owner) is Task


cdef int wait_resume(object self, object value, PyObject **result) except -1:
    cdef Wait wait = <Wait> self
    cdef Delivery delivery = wait.delivery
    cdef object batch, answer
    cdef int status = PYGEN_RETURN
    if delivery is None:
        raise RuntimeError("this await has no delivery")
    batch = delivery._batch
    answer = batch.receipt
    if type(answer) is Receipt:
        answer = (<Receipt> answer).metadata(delivery, delivery._index)
    elif batch.outcome is not None:
        answer = delivery.result()
    elif wait.state == FRESH:
        if not runs_here((<WakeUps?> batch.owner).loop):
            delivery._running_loop()  # raises
        wait.suspend()
        answer = wait
        status = PYGEN_NEXT
    else:
        raise RuntimeError("a delivery's await was resumed before it was done")
    Py_INCREF(answer)
    result[0] = <PyObject *> answer
    return status


set_am_send(Wait, wait_resume)


def wake(Wait wait not None):
    """Resume one awaiter, together with others that are due; a listener of its batch."""
    wait.state = DUE
    wait.wake_ups.push(wait)


@cython.final
cdef class WakeUps:
    """Resume all awaiters of a producer's deliveries that are due in one loop callback.

    The tasks run in their contexts and in the order of their awaits, as if the loop called each.
    Records that they send may leave before the last of many tasks is resumed.
    """

    def __cinit__(self, loop):
        self.loop = loop
        self.loop_reference = ref(loop)
        self.due = []
        self.done = loop.create_future()
        self.done.set_result(None)

    cdef push(self, object entry):
        """Make a `Wait` or a `Callbacks` due."""
        if not self.due and not self.held:
            self.loop.call_soon(self.run)
        self.due.append(entry)

    def run(self):
        """Resume the awaiters that are due, at most `AT_ONCE`; called by the loop."""
        cdef list due = self.due
        cdef Py_ssize_t number = 0, count = min(len(due), AT_ONCE)
        cdef object entry
        self.due = []
        if count > 1 and loops_nest():
            # The task that is resumed may run the loop until another one of them has ended.
            count, self.due = 1, due[1:]
            del due[1:]
            self.loop.call_soon(self.run)
        try:
            while number < count:
                entry = due[number]
                due[number] = None  # freed early, which keeps the garbage collector from running
                number += 1
                if type(entry) is Wait:
                    (<Wait> entry).call_back()
                else:
                    (<Callbacks?> entry).call_back()
        finally:
            # Also when an exception ends the loop (SystemExit, KeyboardInterrupt).
            if number < len(due):
                if not self.due:
                    self.loop.call_soon(self.run)
                self.due = due[number:] + self.due

    def run_now(self):
        """Resume the awaiters that are due after a response, without waiting for the loop's turn.

        Inside a task the loop is used instead: no other task may be resumed there. So it is where
        tasks may run the loop again: it could not call the caller, which reads from a socket.
        """
        self.held = False
        if not self.due:
            return
        if current_task(self.loop) is not None or loops_nest():
            self.loop.call_soon(self.run)
            return
        try:
            self.run()
        except BaseException as error:
            # The caller reads from a socket; an exception that ends the loop is raised by the loop.
            self.loop.call_soon(reraise, error)


cdef inline bint loops_nest():
    """Return whether tasks may run their own loop, as with nest_asyncio in notebooks."""
    return "_nest_patched" in asyncio_names


def reraise(error):
    """Raise an exception that was caught elsewhere."""
    raise error


# -- awaits in native code -------------------------------------------------------------------------

cdef object resumed(object iterator, object value, resume_function resume):
    """Resume an iterator and return or raise as `__next__` and `send` have to."""
    cdef PyObject *result = NULL
    cdef int status = resume(iterator, value, &result)
    cdef object answer = owned(result)
    if status == PYGEN_NEXT:
        return answer
    raise StopIteration(answer)


cdef inline object owned(PyObject *result):
    """Take over a new reference."""
    cdef object answer = <object> result
    Py_DECREF(answer)
    return answer


cdef object thrown(object kind, object value, object traceback):
    """Return the exception that was passed to `throw(kind[, value[, traceback]])`."""
    if value is None:
        value = kind if isinstance(kind, BaseException) else kind()
    return value if traceback is None else value.with_traceback(traceback)
