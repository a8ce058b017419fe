"""A comparison of this machine's clock with the cluster's.

Kafka has no request for its time. Two things show it: a record's append time on a LogAppendTime
topic, which is between the moments before the send and after the response; and any record with a
timestamp in this machine's future, so that one of the clocks is wrong.
"""

from __future__ import annotations

from aioproducer.cli.checkup.findings import CheckFailedError, Finding, Status

TOLERATED_S = 5.0
"""NTP keeps machines within far less; a slow answer costs no more than its own delay."""
_REFUSED_FROM_S = 3600.0
"""The default of `message.timestamp.after.max.ms`: brokers refuse what is further ahead."""


def by_append_time(topic: str, sent_ms: int, acknowledged_ms: int, appended_ms: int) -> Finding:
    """Compare the clocks by the time at which the broker appended our record."""
    how = "by the append time of the record that was written"
    if appended_ms < sent_ms:
        return _judged(topic, (sent_ms - appended_ms) / 1000, "ahead of", how)
    if appended_ms > acknowledged_ms:
        return _judged(topic, (appended_ms - acknowledged_ms) / 1000, "behind", how)
    return Finding.good("clock", topic, f"agrees with the broker's, {how}")


def by_newest_record(topic: str, now_ms: int, newest_ms: int | None) -> Finding:
    """Compare the clocks by the topic's largest timestamp; -1: no record, None: unavailable."""
    if newest_ms is None or newest_ms < 0:
        why = "no record there to compare with"
        if newest_ms is None:
            why = "no leader returned its newest record's time (brokers before 3.0 cannot)"
        return Finding.skipped("clock", topic, why)
    ahead_s = (newest_ms - now_ms) / 1000
    if ahead_s > TOLERATED_S:
        return _judged(
            topic,
            ahead_s,
            "behind",
            "by the newest record's timestamp; or the clock of its producer is ahead",
        )
    return Finding.good("clock", topic, "no sign of a skew: no record comes from the future")


def _judged(topic: str, skew_s: float, direction: str, how: str) -> Finding:
    found = f"this machine's clock is {skew_s:,.1f} s {direction} the broker's, {how}"
    if skew_s <= TOLERATED_S:
        return Finding.good("clock", topic, found)
    status = Status.FAIL if skew_s >= _REFUSED_FROM_S else Status.WARN
    return CheckFailedError("clock-skewed", found, status=status).finding("clock", topic)
