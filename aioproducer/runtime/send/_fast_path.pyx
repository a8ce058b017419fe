# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False, auto_pickle=False
"""The fast path of `send()` in native code: from arguments to an appended record.

`_fast_path_py.py` is the pure-Python implementation and has the contract and the docstrings. Also
here: the object that `producer.send(...)` returns (`SendCall`). Of other native code only
`aioproducer.records._native` and `_delivery.pyx` are used.

Ownership and lifetime
- A builder in `TopicState.builders` may outlive its batch. Closing a batch closes its builder, which
  then has no room and no `owner`. So the fast path keeps no batch alive, and never writes to a
  buffer that was given back.
- `spare` is the builder of a batch that no queue has until its first record calls `send_spare`.
  When the batch is given up, its builder is closed, too.
- Every `object` field is a counted reference; nothing here is borrowed across a call into Python.
  The result returned through `am_send` is the only reference counted by hand.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact
from cpython.list cimport PyList_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from aioproducer.records._native cimport (
    HEADER_SIZE,
    MAX_RECORD_OVERHEAD,
    RecordBatchBuilder,
    blob_size,
    headers_size,
    integer_of,
    murmur2_of,
)
from aioproducer.runtime.delivery._delivery cimport (
    PYGEN_NEXT,
    PYGEN_RETURN,
    Delivery,
    PyIter_Send,
    Wait,
    found_in_slot,
    in_slot,
    resume_function,
    resumed,
    runs_here,
    set_am_send,
    slot_offset,
    thrown,
)

from collections.abc import Coroutine
from sys import version_info
from types import CoroutineType
from warnings import warn

from aioproducer.runtime.send.validation import SECONDS

cdef extern from "Python.h":
    object PyMethod_New(object function, object instance)
    object PyObject_Vectorcall(object called, PyObject *const *args, size_t flags, PyObject *names)
    Py_ssize_t PyVectorcall_NARGS(size_t flags) noexcept
    unsigned long PyThread_get_thread_ident()

cdef extern from *:
    """
    #include <time.h>

    static int64_t utc_ms(void) {
        struct timespec now;
        timespec_get(&now, TIME_UTC);
        return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    """
    int64_t utc_ms() noexcept

cdef extern from *:
    """
    /* Cython has no name for calls of an object without a tuple of their arguments (PEP 590),
       nor for what is called with the instance instead of being bound to it. */
    static void set_vectorcall(PyObject *type, Py_ssize_t offset) {
        ((PyTypeObject *) type)->tp_vectorcall_offset = offset;
        ((PyTypeObject *) type)->tp_call = PyVectorcall_Call;
        ((PyTypeObject *) type)->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
        ((PyTypeObject *) type)->tp_flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
        PyType_Modified((PyTypeObject *) type);
    }
    """
    ctypedef object (*vectorcallfunc)(object, PyObject *const *, size_t, PyObject *)
    void set_vectorcall(object type, Py_ssize_t offset)


cdef int64_t SECONDS_START = SECONDS.start, SECONDS_END = SECONDS.stop


def wall_clock_ms():
    return utc_ms()


# -- records ---------------------------------------------------------------------------------------

cdef class TopicState:
    """State of one topic: its open builders, its sticky partition."""

    cdef object name  # the object its last caller gave, found again without a hash table
    cdef object version  # of the metadata in which `meta` was last seen; compared as an object
    cdef object meta
    cdef list builders  # by partition; None, or a builder that may be closed by now
    # Bytes for the built-in partitioner are counted here until `count_sticky_bytes`.
    cdef object sticky
    cdef Py_ssize_t sticky_partition  # -1: unknown
    cdef int64_t sticky_room  # bytes the partition may still get before another one is chosen
    cdef int64_t sticky_used

    cdef Py_ssize_t partition_number(self, number) except -2:
        """Return a partition of the topic as a C number; -1 if it is none."""
        cdef int64_t found = integer_of(number)
        return found if found < len(self.builders) else -1

    cdef use_sticky_partition(self):
        if self.sticky is not None:
            self.sticky_partition = self.partition_number(self.sticky.peek(self.meta))
            self.sticky_room = self.sticky.room

    cdef count_sticky_bytes(self):
        if self.sticky_used:
            self.sticky.update(self.sticky_partition, self.sticky_used, self.meta, False)
            self.sticky_used = 0
        self.sticky_partition = -1


@cython.final
cdef class FastPath:
    """See `_fast_path_py.py`."""

    cdef public Py_ssize_t waiting
    cdef public Py_ssize_t records_this_turn
    cdef public int64_t appended
    cdef public int64_t ceiling
    cdef public object check_transaction
    cdef readonly bint open
    cdef object loop
    cdef object is_running  # None: `runs_here` is fast with this loop
    cdef unsigned long thread  # in which the loop ran when `use_batch` was called last
    cdef object metadata
    cdef Py_ssize_t version_at  # its slot in `metadata`
    cdef object wall_ms  # None: the wall clock
    cdef object choice
    cdef object on_full_turn
    cdef object open_batch
    cdef Py_ssize_t records_per_turn
    cdef Py_ssize_t size_limit
    cdef bint hashes_keys
    cdef bint sticks
    cdef dict topics
    cdef TopicState recent  # the topic found last, or None
    cdef object send_spare
    cdef RecordBatchBuilder spare

    def __init__(self, batches, records_per_turn, *, metadata, loop, wall_ms, choice):
        self.loop = loop
        self.metadata = metadata
        self.version_at = slot_offset(type(metadata), "version")
        self.wall_ms = None if wall_ms is wall_clock_ms else wall_ms
        self.choice = choice
        self.on_full_turn = batches.count_till_next_turn
        self.open_batch = batches.append_checked
        self.send_spare = batches.send_spare
        self.records_per_turn = records_per_turn
        self.size_limit = batches.size_limit
        self.hashes_keys = batches.hashes_keys
        self.sticks = batches.sticks
        self.topics = {}
        self.ceiling = INT64_MAX
        self.open = True
        if version_info < (3, 12) and not hasattr(loop, "_thread_id"):
            self.is_running = loop.is_running

    def append(
        self, topic, value, key, headers, partition, timestamp_ms, bint awaited=False, /
    ):
        return self.try_append(
            topic, value, key, headers, partition, timestamp_ms, True, awaited
        )

    def append_nowait(self, topic, value, key, headers, partition, timestamp_ms, /):
        return self.try_append(
            topic, value, key, headers, partition, timestamp_ms, False, False
        )

    cdef try_append(self, topic, value, key, headers, partition, timestamp_ms, bint may_pause,
                    bint awaited):
        cdef TopicState state
        cdef Py_ssize_t contents, number
        cdef int64_t timestamp
        cdef bint is_sticky = False, is_chosen = False
        cdef object delivery
        if (
            not self.has_room()
            or (may_pause and self.records_this_turn >= self.records_per_turn)
            or not self.is_in_loop()
            or not (key is None or PyBytes_CheckExact(key))
            or not (value is None or PyBytes_CheckExact(value))
            or not PyUnicode_CheckExact(topic)
        ):
            return None
        if self.check_transaction is not None:
            self.check_transaction()
        state = self.topic_state(topic)
        if state is None:
            return None

        if headers is None:
            headers = ()
        elif PyList_CheckExact(headers):
            headers = tuple(headers)
        elif not PyTuple_CheckExact(headers):
            return None
        try:
            contents = blob_size(key) + blob_size(value) + headers_size(headers)
        except (TypeError, ValueError):
            return None  # the slow path raises the error
        if HEADER_SIZE + MAX_RECORD_OVERHEAD + contents > self.size_limit:
            return None

        if partition is not None:
            number = state.partition_number(partition)
            if number < 0:
                return None
        elif key is not None and self.hashes_keys:
            number = (murmur2_of(key) & 0x7FFFFFFF) % len(state.builders)
        elif not self.sticks:
            is_chosen = True
            number = -1
        else:
            is_sticky = True
            number = state.sticky_partition
            if state.sticky_used + MAX_RECORD_OVERHEAD + contents >= state.sticky_room:
                number = -1

        if timestamp_ms is None:
            timestamp = utc_ms() if self.wall_ms is None else self.wall_ms()
        else:
            timestamp = integer_of(timestamp_ms)
            if timestamp < 0 or SECONDS_START <= timestamp < SECONDS_END:
                return None
        if is_chosen:
            number = self.chosen_partition(state, key, value)
            if number < 0:
                return None
        if number >= 0:
            delivery = self.put(
                state, number, is_sticky, timestamp, key, value, headers, contents
            )
            if delivery is not None:
                return delivery
        delivery = self.open_batch(
            state.meta, None if is_sticky else number, timestamp, key, value, headers,
            HEADER_SIZE + MAX_RECORD_OVERHEAD + contents, awaited,
        )
        if delivery is None and is_chosen:
            self.choice.keep(key, value, state.meta, number)
        return delivery

    cdef Py_ssize_t chosen_partition(self, TopicState state, key, value) except -2:
        """Return the partition that the partitioner chooses; -1 if the slow path has to take it.

        The partitioner is the application's: it may have sent records, or closed the producer.
        """
        cdef object chosen = self.choice(state.meta.name, key, value, state.meta)
        cdef Py_ssize_t number = state.partition_number(chosen) if self.has_room() else -1
        if number < 0:
            self.choice.keep(key, value, state.meta, chosen)
        return number

    cdef bint has_room(self) noexcept:
        return self.open and not self.waiting and self.appended < self.ceiling

    cdef bint is_in_loop(self) except -1:
        """Return whether the caller runs in the loop, without a system call: see `runs_here`."""
        if self.is_running is None:
            return runs_here(self.loop)
        return self.thread == PyThread_get_thread_ident() and self.is_running()

    cdef put(self, TopicState state, Py_ssize_t partition, bint is_sticky, int64_t timestamp,
             key, value, headers, Py_ssize_t contents):
        """Write a checked record to the partition's open batch, if that has room."""
        cdef object found = state.builders[partition], batch
        cdef RecordBatchBuilder builder
        cdef int32_t index
        if found is None:
            return None
        builder = <RecordBatchBuilder> found
        if builder is self.spare and MAX_RECORD_OVERHEAD + contents > builder.capacity:
            return None  # a batch for this record would be larger
        index = builder.put(timestamp, key, value, headers, contents)
        if index < 0:
            return None
        batch = builder.owner
        if is_sticky:
            state.sticky_used += MAX_RECORD_OVERHEAD + contents
        if builder is self.spare:
            if is_sticky:
                state.sticky_used += HEADER_SIZE
            self.spare = None
            self.send_spare()
        return self.delivery(
            batch, index, timestamp,
            -1 if key is None else <int32_t> len(<bytes> key),
            -1 if value is None else <int32_t> len(<bytes> value),
        )

    cpdef delivery(self, batch, int32_t index, int64_t timestamp_ms, int32_t key_size,
                   int32_t value_size):
        cdef Delivery delivery = Delivery.__new__(Delivery)
        self.appended += 1
        self.records_this_turn += 1
        if self.records_this_turn == self.records_per_turn:
            self.on_full_turn()
        delivery._batch = batch
        delivery._index = index
        delivery._timestamp_ms = timestamp_ms
        delivery._key_size = key_size
        delivery._value_size = value_size
        return delivery

    cdef TopicState topic_state(self, topic):
        """Return the state of a topic, or None if its metadata has changed."""
        cdef TopicState state = self.recent
        cdef object version = in_slot(self.metadata, type(self.metadata), self.version_at)
        if state is None or state.name is not topic:
            self.recent = state = self.topics.get(topic)
            if state is not None:
                state.name = topic
        if state is not None and state.version is not version:
            if self.metadata.topic(topic) is not state.meta:
                self.drop_topic(topic)
                return None
            state.version = version
        return state

    def use_batch(self, meta, batch, sticky, /):
        cdef TopicState state = self.topics.get(meta.name)
        cdef RecordBatchBuilder builder
        cdef Py_ssize_t partition
        if not self.open:
            return
        if state is None or state.meta is not meta:
            self.drop_topic(meta.name)
            state = self.topics[meta.name] = TopicState.__new__(TopicState)
            state.version = self.metadata.version
            state.meta = meta
            state.builders = [None] * len(meta.partitions)
            state.sticky_partition = -1
        self.thread = PyThread_get_thread_ident()
        builder = None if batch.full else batch.builder
        if builder is not None:
            builder.owner = batch  # before a record can find the builder
        partition = state.partition_number(batch.topic_partition.partition)
        if partition < 0:
            raise IndexError(batch.topic_partition)
        state.builders[partition] = builder
        if sticky is not None and self.sticks:
            state.count_sticky_bytes()
            state.sticky = sticky
            state.use_sticky_partition()

    def use_spare(self, batch, /):
        cdef object place = batch.topic_partition
        cdef TopicState state = self.topics.get(place.topic)
        cdef RecordBatchBuilder builder = batch.builder
        cdef Py_ssize_t partition = place.partition
        if state is None or partition >= len(state.builders) or builder is None:
            return
        if state.sticky_partition < 0:
            state.use_sticky_partition()
        if state.sticky_room - state.sticky_used <= <int64_t> batch.size:
            state.count_sticky_bytes()
        self.spare = builder
        builder.owner = batch
        state.builders[partition] = builder

    def count_sticky_bytes(self, topic):
        cdef TopicState state = self.topics.get(topic)
        if state is not None:
            state.count_sticky_bytes()

    def drop_topic(self, topic):
        self.count_sticky_bytes(topic)
        self.topics.pop(topic, None)
        self.recent = None

    def retain(self, topics):
        for topic in list(self.topics):
            if topic not in topics:
                self.drop_topic(topic)

    def close(self):
        self.open = False
        self.topics.clear()
        self.recent = self.spare = None


# -- calls -----------------------------------------------------------------------------------------

@cython.final
cdef class SendMethod:
    """`Producer.send` or `Producer.send_and_wait`; `inspect` sees the coroutine function."""

    cdef object __weakref__
    cdef object function
    cdef bint waits
    cdef object owner
    cdef Py_ssize_t fast_path_at  # offset of the slot `_fast_path` in a producer
    cdef vectorcallfunc vectorcall  # `called`; the interpreter reads it here

    def __cinit__(self):
        self.vectorcall = called

    def __get__(self, producer, owner):
        return self if producer is None else PyMethod_New(self, producer)

    def __getattr__(self, name):
        return getattr(self.function, name)

    @property
    def __class__(self):
        return type(self.function)  # for `inspect` and `unittest.mock`

    @property
    def __doc__(self):
        return self.function.__doc__


def install_native_send(cls, str name, function, bint waits, /):
    cdef SendMethod method
    if getattr(cls, name) is function:
        method = SendMethod.__new__(SendMethod)
        method.function = function
        method.waits = waits
        method.owner = cls
        method.fast_path_at = slot_offset(cls, "_fast_path")
        setattr(cls, name, method)


cdef object called(object self, PyObject *const *args, size_t flags, PyObject *names):
    """Handle a vectorcall; unusual arguments are passed on to the method."""
    cdef SendMethod method = <SendMethod> self
    cdef Py_ssize_t count = PyVectorcall_NARGS(flags)
    cdef PyObject *fast_path
    cdef SendCall call
    if 2 <= count <= 4:
        fast_path = found_in_slot(<object> args[0], method.owner, method.fast_path_at)
        if fast_path is not NULL and type(<object> fast_path) is FastPath:
            call = SendCall.__new__(SendCall)
            call.method = method
            call.fast_path = <FastPath> fast_path
            call.producer = <object> args[0]
            call.topic = <object> args[1]
            if count > 2:
                call.value = <object> args[2]
            if count > 3:
                call.key = <object> args[3]
            if names is NULL or call.takes(<tuple> names, args + count, count):
                return call
            call.state = OVER
    return PyObject_Vectorcall(method.function, args, flags, names)


cdef void use_vectorcall():
    cdef SendMethod method = SendMethod.__new__(SendMethod)
    set_vectorcall(SendMethod, <char *> &method.vectorcall - <char *> <PyObject *> method)


use_vectorcall()


cdef enum CallState:
    NEW
    DELEGATED
    OVER


@cython.final
@cython.freelist(16)
cdef class SendCall:
    """Coroutine of one `send`: it does nothing before it is awaited, and is awaited once."""

    cdef SendMethod method
    cdef FastPath fast_path
    cdef object producer  # alive as long as a call is pending, as with any bound method
    cdef object topic
    cdef object value
    cdef object key
    cdef object headers
    cdef object partition
    cdef object timestamp_ms
    cdef object inner  # what it waits for: the method's coroutine, or a delivery's await
    cdef CallState state

    def __dealloc__(self):
        # All object fields may be cleared: read `state` only.
        if self.state == NEW:
            warn("a coroutine of Producer.send() was never awaited", RuntimeWarning)

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return resumed(self, None, call_resume)

    def send(self, value):
        return resumed(self, value, call_resume)

    def throw(self, kind, value=None, traceback=None, /):
        if self.state != DELEGATED:
            self.state = OVER
            raise thrown(kind, value, traceback)
        try:
            return self.inner.throw(thrown(kind, value, traceback))
        except BaseException:
            self.state = OVER
            self.inner = None
            raise

    def close(self):
        if self.state == DELEGATED:
            self.inner.close()
            self.inner = None
        self.state = OVER

    def __getattr__(self, name):
        # `__name__` and `__qualname__`, for the repr of a task.
        return getattr(self.method, name)

    # `inspect.iscoroutine` asks for the class, and `inspect.getcoroutinestate` for some of the
    # others; task groups of anyio call both. Frame and await are those of the method's coroutine.

    @property
    def __class__(self):
        return CoroutineType

    @property
    def cr_running(self):
        return False

    @property
    def cr_suspended(self):
        return self.state == DELEGATED

    @property
    def cr_state(self):  # since Python 3.15; one that has not begun has no frame either
        return "CORO_SUSPENDED" if self.state == DELEGATED else "CORO_CLOSED"

    @property
    def cr_frame(self):
        return getattr(self.inner, "cr_frame", None)

    @property
    def cr_await(self):
        return self.inner.cr_await  # no attribute if it waits for a delivery: there is no frame

    cdef bint takes(self, tuple names, PyObject *const *args, Py_ssize_t count) except -1:
        """Store arguments given by name after `count` others; return False for unexpected names."""
        cdef Py_ssize_t place
        cdef str name
        for place in range(len(names)):
            name = names[place]
            given = <object> args[place]
            if name == "headers":
                self.headers = given
            elif name == "partition":
                self.partition = given
            elif name == "timestamp_ms":
                self.timestamp_ms = given
            elif name == "key" and count < 4:
                self.key = given
            elif name == "value" and count < 3:
                self.value = given
            else:
                return False
        return True

    cdef begin(self):
        """Return the delivery, or an await of it if the method waits, or None.

        An await is in `inner`, too. None: `inner` has to be resumed at once.
        """
        cdef SendMethod method = self.method
        cdef Wait wait
        cdef Delivery delivery = self.fast_path.try_append(
            self.topic, self.value, self.key, self.headers, self.partition, self.timestamp_ms, True,
            method.waits,
        )
        if delivery is None:
            self.inner = method.function(
                self.producer, self.topic, self.value, self.key, headers=self.headers,
                partition=self.partition, timestamp_ms=self.timestamp_ms,
            )
        elif method.waits:
            self.inner = wait = Wait.__new__(Wait)
            wait.delivery = delivery
            if not wait.suspend():  # cannot raise: this loop has just appended it
                return None  # it was sent and has failed already
            return wait
        return delivery


cdef int call_resume(object self, object value, PyObject **result) except -1:
    cdef SendCall call = <SendCall> self
    cdef object answer
    cdef int status
    if call.state == NEW and call.method is not None:
        call.state = OVER  # also when the next line raises
        answer = call.begin()
        if answer is not None:
            Py_INCREF(answer)
            result[0] = <PyObject *> answer
            if call.inner is None:
                return PYGEN_RETURN
            call.state = DELEGATED
            return PYGEN_NEXT
    elif call.state != DELEGATED:
        raise RuntimeError("cannot reuse already awaited coroutine")
    call.state = OVER
    status = PyIter_Send(call.inner, value, result)
    if status == PYGEN_NEXT:
        call.state = DELEGATED
    else:
        call.inner = None
    return status


set_am_send(SendCall, call_resume)
Coroutine.register(SendCall)
