"""Logger names and the rate limit on warnings."""

import logging
import subprocess
import sys

import pytest

from aioproducer.log import RateLimitedLog, get


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="aioproducer")
    return lambda: [record.getMessage() for record in caplog.records]


def test_loggers_are_named_after_their_layer():
    parent = logging.getLogger("aioproducer")
    assert get("net").name == "aioproducer.net"
    assert get("producer").parent is parent


def test_without_any_configuration_warnings_reach_standard_error():
    program = "from aioproducer import log; log.get('net').warning('a broker is away')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "a broker is away\n"


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
    for now in (0.0, 0.1, 0.2, 1.0, 3.5):
        log.warning(now, 1, "reset", "lost %d%%", 5)
    assert lines() == ["lost 5%", "lost 5% (2 more like this were not logged)", "lost 5%"]


def test_the_interval_doubles_up_to_a_minute(lines):
    log = RateLimitedLog(get("net"))
    written = [now for now in range(400) if log.warning(now, 1, "reset", "lost")]
    assert written == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]


def test_what_failed_again_after_two_quiet_minutes_is_news(lines):
    log = RateLimitedLog(get("net"))
    for now in (0, 1, 3, 4):
        log.warning(now, 1, "reset", "lost")
    assert [log.warning(now, 1, "reset", "lost") for now in (124.0, 124.5, 125.0)] == [
        True,
        False,
        True,
    ]


def test_a_recovery_is_one_line_that_says_how_long_it_took(lines):
    log = RateLimitedLog(get("net"))
    log.recovered(0.0, 1, "node 1 is reachable again")
    log.warning(1.0, 1, "refused", "refused")
    log.warning(1.5, 1, "refused", "refused")
    log.warning(2.5, 1, "reset", "reset")
    log.warning(2.5, 2, "reset", "another node")
    log.recovered(8.25, 1, "node 1 is reachable again")
    log.recovered(9.0, 1, "node 1 is reachable again")
    assert lines()[-1] == (
        "node 1 is reachable again after 7.2 s (1 more warning(s) were not logged)"
    )
    assert len(lines()) == 4


def test_a_broker_that_comes_and_goes_does_not_escape_the_limit(lines):
    log = RateLimitedLog(get("net"))
    for tick in range(6000):  # ten minutes, up and down ten times a second
        log.warning(tick / 10, 1, "reset", "lost")
        log.recovered(tick / 10 + 0.05, 1, "reachable again")
    assert len(lines()) <= 2 * 16


def test_after_a_stable_time_the_next_failure_is_written_at_once(lines):
    log = RateLimitedLog(get("net"))
    for now in (0, 1, 3, 7):
        log.warning(now, 1, "reset", "lost")
    log.recovered(8, 1, "reachable again")
    assert log.warning(24, 1, "reset", "lost")
    assert not log.warning(24.5, 1, "reset", "lost")
    assert log.warning(25, 1, "reset", "lost")


def test_flush_writes_what_was_left_out_and_only_once(lines):
    log = RateLimitedLog(get("net"))
    for number in range(4):
        log.warning(0.0, 1, "reset", "lost %d", number)
    log.warning(0.0, 2, "reset", "another")
    log.flush()
    log.flush()
    assert lines() == ["lost 0", "another", "lost 3 (2 more like this were not logged)"]


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


def test_the_memory_of_causes_is_bounded_and_what_is_forgotten_is_told(lines):
    log = RateLimitedLog(get("net"))
    for node in range(1000):
        for _ in range(3):
            log.warning(0.0, node, "reset", "node %d is down", node)
    assert lines().count("node 0 is down (1 more like this were not logged)") == 1
    log.flush()
    told = [line for line in lines() if line.endswith("(1 more like this were not logged)")]
    assert len(told) == 1000
