"""Logger names and the rate limit on warnings."""

import asyncio
import contextlib
import io
import logging
import subprocess
import sys
from collections import Counter

import pytest
from support.stage import Stage, play

from aioproducer._util.log import RateLimitedLog, get
from aioproducer.testing import run_virtual


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="aioproducer")
    return lambda: [record.getMessage() for record in caplog.records]


def test_loggers_are_named_after_their_layer():
    parent = logging.getLogger("aioproducer")
    assert get("net").name == "aioproducer.net"
    assert get("producer").parent is parent


def test_without_any_configuration_warnings_reach_standard_error():
    program = "from aioproducer._util import log; log.get('net').warning('a broker is away')"
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


def test_the_next_line_says_how_many_were_left_out(lines):
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
    log.flush(31.0)
    log.flush(32.0)
    assert lines() == [
        "lost 0",
        "another",
        "3 line(s) like this were not logged, the last one 31 s ago: lost 3",
    ]


def test_what_is_left_out_of_a_trouble_that_is_over_does_not_read_as_if_it_lasted(lines):
    log = RateLimitedLog(get("net"))
    log.warning(0.0, 1, "refused", "node 1 is not reachable")
    log.recovered(0.5, 1, "node 1 is reachable again")
    log.warning(0.6, 1, "refused", "node 1 is not reachable")
    log.recovered(0.7, 1, "node 1 is reachable again")
    log.flush(10.6)
    assert lines() == [
        "node 1 is not reachable",
        "node 1 is reachable again after 0.5 s",
        "1 line(s) like this were not logged, the last one 10 s ago, and it has worked since: "
        "node 1 is not reachable",
    ]


def test_a_trouble_after_a_recovery_is_over_only_when_it_has_recovered_again(lines):
    log = RateLimitedLog(get("net"))
    log.warning(0.0, 1, "refused", "refused")
    log.recovered(0.5, 1, "reachable again")
    log.warning(0.6, 1, "refused", "refused")  # left out
    log.warning(1.0, 1, "refused", "refused")
    log.recovered(4.6, 1, "reachable again")
    assert lines()[2:] == [
        "refused (1 more like this were not logged)",
        "reachable again after 4.0 s",
    ]


def test_lines_of_another_level_are_limited_as_well(caplog):
    log = RateLimitedLog(get("starlette"), logging.ERROR)
    for now in (0.0, 0.5):
        log.warning(now, "t", "lost", "lost")
    log.flush(1.0)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


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


def test_the_memory_of_causes_is_bounded_and_dropped_ones_are_reported(lines):
    log = RateLimitedLog(get("net"))
    for node in range(11_000):
        for _ in range(3):
            log.warning(0.0, node, "reset", "node %d is down", node)
    left_out = "2 line(s) like this were not logged, the last one 0 s ago: node %d is down"
    assert lines().count(left_out % 0) == 1
    log.flush(0.0)
    written = Counter(lines())
    assert all(written[left_out % node] == 1 for node in range(11_000))


def test_the_lines_about_a_thousand_brokers_are_limited_as_those_about_one(lines):
    log = RateLimitedLog(get("net"))
    for now in range(60):
        for node in range(1000):
            log.warning(now, node, "reset", "node %d is down", node)
    assert len(lines()) == 6 * 1000


@pytest.mark.slow
@pytest.mark.parametrize("brokers", [1, 3, 10])
def test_an_outage_of_an_hour_is_a_line_a_minute_and_broker(lines, brokers):
    async def outage(kafka):
        async with kafka.producer() as producer:
            await producer.send_and_wait("t", b"v")
            for node in range(1, brokers + 1):
                kafka.stop_broker(node)
            await asyncio.sleep(3600)
            for node in range(1, brokers + 1):
                kafka.start_broker(node)
            await asyncio.sleep(30)
            await producer.send_and_wait("t", b"v")
            return len(lines())

    before_close = run_virtual(outage, brokers=brokers, topics={"t": brokers})
    written = lines()[:before_close]
    again = [line for line in written if "is reachable again after 3" in line]
    assert 1 <= len(again) <= brokers
    assert len(written) - len(again) <= brokers * 70
    for line in lines()[before_close:]:  # no broker is away any more
        assert "the last one 3" in line


class RaisingHandler(logging.Handler):
    """A handler without the `handleError()` that handlers call."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the service for log lines is down")


@pytest.fixture
def raising_handler():
    handler = RaisingHandler()
    logging.getLogger("aioproducer").addHandler(handler)
    yield
    logging.getLogger("aioproducer").removeHandler(handler)


def test_an_exception_of_a_handler_is_printed_and_not_raised(raising_handler, capsys):
    get("net").error("a broker is away")
    printed = capsys.readouterr().err
    assert "ConnectionError: the service for log lines is down" in printed
    assert "a broker is away" in printed


def test_nothing_is_raised_if_standard_error_is_closed(raising_handler):
    closed = io.StringIO()
    closed.close()
    with contextlib.redirect_stderr(closed):
        get("net").error("a broker is away")


@pytest.mark.parametrize("kind", [LookupError, asyncio.CancelledError])
def test_an_exception_of_a_filter_is_printed_and_not_raised(
    kind: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise kind("no tenant")

    logger = get("net")
    logger.addFilter(refuse)
    try:
        logger.error("a broker is away")
    finally:
        logger.removeFilter(refuse)
    assert f"{kind.__name__}: no tenant" in capsys.readouterr().err


def test_records_are_delivered_although_a_log_handler_raises(raising_handler):
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"before")
        stage.broker.freeze()
        delivery = await stage.producer.send("t", b"during")
        await asyncio.sleep(20)
        stage.broker.thaw()
        await delivery
        await stage.producer.close()

    play(act, request_timeout_ms=1000, metadata_max_age_ms=2000)
