"""Logger names and the rate limit on warnings."""

import logging

import pytest

from aioproducer.log import RateLimitedLog, get


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="aioproducer")
    return lambda: [record.getMessage() for record in caplog.records]


def test_loggers_are_named_after_their_layer():
    assert get("net").name == "aioproducer.net"
    assert get("producer").parent is logging.getLogger("aioproducer")


def test_the_library_adds_no_handler_that_writes():
    handlers = logging.getLogger("aioproducer").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]


def test_one_line_per_node_and_cause_and_second(lines):
    log = RateLimitedLog(get("net"))
    assert [log.warning(now, 1, "reset", "lost %s", "x") for now in (10.0, 10.5, 10.999)] == [
        True,
        False,
        False,
    ]
    assert lines() == ["lost x"]


def test_the_next_line_tells_how_many_were_left_out(lines):
    log = RateLimitedLog(get("net"))
    for now in (0.0, 0.1, 0.2, 1.0, 2.5):
        log.warning(now, 1, "reset", "lost %d%%", 5)
    assert lines() == ["lost 5%", "lost 5% (2 more like this were not logged)", "lost 5%"]


def test_other_nodes_and_other_causes_are_not_held_back(lines):
    log = RateLimitedLog(get("net"))
    log.warning(0.0, 1, "reset", "a")
    log.warning(0.0, 2, "reset", "b")
    log.warning(0.0, 1, "refused", "c")
    log.warning(0.0, None, "refused", "d")
    assert lines() == ["a", "b", "c", "d"]


def test_the_clock_may_start_anywhere_even_below_zero(lines):
    log = RateLimitedLog(get("net"))
    log.warning(-5.0, 1, "reset", "a")
    log.warning(-4.0, 1, "reset", "b")
    assert lines() == ["a", "b"]


def test_the_memory_of_causes_is_bounded_and_forgets_the_oldest(lines):
    log = RateLimitedLog(get("net"))
    for node in range(1000):
        log.warning(0.0, node, "reset", "down")
    assert len(log._recent) == 256
    assert not log.warning(0.5, 999, "reset", "down")
    assert log.warning(0.5, 0, "reset", "down")
