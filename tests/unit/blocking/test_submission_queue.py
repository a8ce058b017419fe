"""The hand-over of records by threads that signal handlers interrupt."""

from __future__ import annotations

from traceback import walk_stack
from types import FrameType

from support.signals import SignalAt

from aioproducer.blocking import Producer, submission_queue
from aioproducer.testing import ThreadedCluster


def is_inside(frame: FrameType) -> bool:
    return any(
        each.f_code.co_filename == submission_queue.__file__ for each, _ in walk_stack(frame)
    )


def test_signal_handler_may_flush_wherever_it_interrupts_a_send() -> None:
    handled: list[int] = []
    with (
        ThreadedCluster(brokers=1, topics={"t": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        producer.send_and_wait("t", b"first")
        for point in range(1, 100):
            signal = SignalAt(point, lambda: handled.append(producer.flush(5)), counts=is_inside)
            with signal:
                handle = producer.send("t", b"v")
            assert handle.result(5).offset == point
            if not signal.is_handled:
                break
    assert handled == [0] * (point - 1)
    assert len(handled) > 10
