"""One record written as an application would write it, if that is wanted.

Invariants: nothing is written unless asked for; with a transactional id the record's transaction is
aborted, and a producer that has the id is shut out (as by every start of one).
"""

from __future__ import annotations

import asyncio
import time

from aioproducer.cli.checkup import clock
from aioproducer.cli.checkup.findings import CheckFailedError, Finding
from aioproducer.cli.exit_codes import exit_code_for
from aioproducer.client.producer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.config.rules import acks_number
from aioproducer.errors import AuthorizationError, InvalidTimestampError, KafkaError
from aioproducer.types import RecordMetadata, TimestampType

_VALUE = b"written by aioproducer doctor"


async def write_one(config: ProducerConfig, topic: str, within_s: float) -> list[Finding]:
    """Write a record; find out whether that works, and what the clocks say."""
    sent_ms = _now_ms()
    try:
        async with asyncio.timeout(within_s):
            written = await _write(config, topic)
    except TimeoutError as error:
        reason = str(error) or f"no acknowledgement within {within_s:g} s"
        return [CheckFailedError("write-failed", reason).finding("write", topic)]
    except KafkaError as error:
        return [_failure_of(error).finding("write", topic)]
    acknowledged_ms = _now_ms()
    findings = [
        Finding.good(
            "write",
            topic,
            f"acknowledged after {acknowledged_ms - sent_ms:,} ms: partition {written.partition}, "
            f"offset {written.offset}",
        )
    ]
    if written.timestamp_type is TimestampType.LOG_APPEND_TIME:
        findings.append(clock.by_append_time(topic, sent_ms, acknowledged_ms, written.timestamp_ms))
    return findings


async def _write(config: ProducerConfig, topic: str) -> RecordMetadata:
    # With acks=0 no broker would say whether it has taken the record.
    producer = Producer(config if acks_number(config.acks) else config.replace(acks="1"))
    try:
        await producer.start()
        if config.transactional_id is None:
            return await producer.send_and_wait(topic, _VALUE)
        await producer.begin_transaction()
        delivery = await producer.send(topic, _VALUE)
        await producer.flush()
        written = await delivery
        await producer.abort_transaction()
        return written
    finally:
        await producer.close(timeout=0)


def _failure_of(error: KafkaError) -> CheckFailedError:
    code = "write-failed"
    if isinstance(error, AuthorizationError):
        code = "write-unauthorized"
    elif isinstance(error, InvalidTimestampError):
        code = "clock-skewed"
    return CheckFailedError(
        code,
        " ".join(error.without_advice().split()),
        error.advice if code == "write-failed" else None,
        exit_code=exit_code_for(error),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
