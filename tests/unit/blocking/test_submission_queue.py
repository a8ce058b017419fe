"""The hand-over of records by threads that signal handlers interrupt."""

from __future__ import annotations

import sys
import types
from traceback import walk_stack

from aioproducer.blocking import Producer, submission_queue
from aioproducer.testing import ThreadedCluster


def test_signal_handler_may_flush_wherever_it_interrupts_a_send() -> None:
    """CPython calls a handler at the begin of a function, and after a call of a built-in one."""
    at = 0

    def is_here(frame: types.FrameType) -> bool:
        return frame.f_code.co_filename == submission_queue.__file__

    def interrupt(frame: types.FrameType, event: str, argument: object) -> None:
        nonlocal at
        if event in ("call", "c_return") and any(is_here(each) for each, _ in walk_stack(frame)):
            at -= 1
            if not at:
                sys.setprofile(None)
                assert producer.flush(5) == 0

    with (
        ThreadedCluster(brokers=1, topics={"t": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        producer.send_and_wait("t", b"first")
        interrupted = 0
        for attempt in range(1, 100):
            at = attempt
            sys.setprofile(interrupt)
            try:
                handle = producer.send("t", b"v")
            finally:
                sys.setprofile(None)
            assert handle.result(5).offset == attempt
            if at > 0:
                break
            interrupted = attempt
        assert interrupted > 10
