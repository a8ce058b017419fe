"""Errors of failed batches: their texts, causes and context."""

from __future__ import annotations

import pytest

from aioproducer.core.batching.batch import NO_PARTITION, ProducerBatch
from aioproducer.core.sending.failures import (
    expiry_of,
    failure_outcome,
    no_longer_retried,
    overtaken,
    refused_because_of_others,
)
from aioproducer.core.sending.reasons import NO_REASON, Obstacle, Reason, Wait, all_of
from aioproducer.errors import (
    BatchRefusedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaError,
    NodeDisconnectedError,
    OutOfOrderSequenceNumberError,
)
from aioproducer.types import Persistence, TopicPartition

from ..support import Core

GONE = NodeDisconnectedError("gone", node_id=4, advice="start it")


def waiting(partition: int = 0, records: int = 2) -> tuple[Core, ProducerBatch]:
    core = Core()
    for _ in range(records):
        batch = core.append(partition)
    core.now += 2.5
    return core, batch


def expiry(core: Core, batch: ProducerBatch, wait: Wait) -> DeliveryTimeoutError:
    return expiry_of(batch, wait, core.metadata, timeout=2.0, now=core.now)


def test_an_expiry_says_what_was_waited_for_and_for_how_long() -> None:
    core, batch = waiting()
    error = expiry(core, batch, Wait(Obstacle.RESPONSE))
    assert error.message == (
        "2 record(s) not acknowledged within delivery_timeout_ms=2000 after 0 attempt(s), "
        "waiting for the broker's response"
    )
    assert (error.elapsed_ms, error.advice, error.__cause__) == (2500, None, None)


def test_an_expiry_names_the_last_error_and_its_advice() -> None:
    core, batch = waiting()
    error = expiry(core, batch, Wait(Obstacle.RETRY, GONE))
    assert error.message.endswith("waiting to be sent again; last cause: gone [node 4]")
    assert (error.advice, error.__cause__) == ("start it", GONE)


def test_an_expiry_of_a_batch_that_waits_for_its_leader_says_why_it_cannot_be_reached() -> None:
    core, batch = waiting()
    core.metadata.explain_connections = lambda: Reason("node 4 refuses", "open the port")
    error = expiry(core, batch, Wait(Obstacle.CONNECTION, GONE))
    assert error.message.endswith("; last cause: gone [node 4]; node 4 refuses")
    assert (error.advice, error.__cause__) == ("start it; open the port", GONE)


def test_an_expiry_of_a_batch_whose_partition_is_gone_says_so_beside_the_last_error() -> None:
    core, batch = waiting(4)
    core.learn((1, 2, 3))
    error = expiry(core, batch, Wait(Obstacle.LEADER, GONE))
    assert error.message.endswith("; last cause: gone [node 4]; the topic has 3 partition(s)")
    assert (error.advice or "").startswith("start it; choose a partition that exists")


def test_an_expiry_without_an_error_has_the_reason_of_the_topic() -> None:
    core, batch = waiting(1)
    core.learn((1, -1, 3), epoch=2)
    error = expiry(core, batch, Wait(Obstacle.LEADER))
    _, _, cause = error.message.partition("; last cause: ")
    assert cause == core.metadata.explain("t", 1).text != ""


def test_the_end_of_retries_names_the_option_beside_other_advice() -> None:
    _, batch = waiting()
    batch.attempts = 3
    error = no_longer_retried(batch, GONE, "retries=2")
    assert type(error) is NodeDisconnectedError
    assert error.advice is not None
    assert "start it" in error.advice
    assert "to retry for longer, raise retries=2, which ended after 3 attempt(s)" in error.advice


@pytest.mark.parametrize(
    ("last", "kind"), [(GONE, NodeDisconnectedError), (None, OutOfOrderSequenceNumberError)]
)
def test_an_overtaken_batch_has_its_last_error(
    last: KafkaError | None, kind: type[KafkaError]
) -> None:
    _, batch = waiting()
    batch.last_error = last
    error = overtaken(batch)
    assert type(error) is kind
    assert error.advice is not None
    assert "its records are not written and can be sent anew" in error.advice


@pytest.mark.parametrize("written", [False, True])
def test_errors_of_a_batch_say_where_and_whether_it_may_be_written(written: bool) -> None:
    core, batch = waiting(2)
    batch.possibly_persisted = written
    outcome = failure_outcome(batch, GONE, None, core.now)
    error = outcome.error
    assert error is not None
    assert (error.topic, error.partition, error.node_id, error.elapsed_ms) == ("t", 2, 4, 2500)
    known = (Persistence.NOT_PERSISTED, Persistence.POSSIBLY_PERSISTED)
    assert error.persistence is known[written]
    assert outcome.record_errors == {}
    unknown = failure_outcome(batch, GONE, None, None).error
    assert unknown is not None
    assert unknown.elapsed_ms is None


def test_records_of_an_early_batch_have_no_partition() -> None:
    batch = ProducerBatch(TopicPartition("t", NO_PARTITION), bytearray(99), 99, now=0.0)
    error = failure_outcome(batch, GONE, None, 1.0).error
    assert error is not None
    assert (error.topic, error.partition) == ("t", None)


def test_records_that_are_not_blamed_get_another_error() -> None:
    core, batch = waiting(records=3)
    bad = InvalidRecordError("bad", node_id=2)
    outcome = failure_outcome(batch, bad, {1: bad}, core.now)
    assert isinstance(outcome.error, BatchRefusedError)
    assert "because of other records in it: INVALID_RECORD (87): bad" in outcome.error.message
    assert outcome.error.__cause__ is bad
    named = outcome.record_errors[1]
    assert type(named) is InvalidRecordError
    assert (named.topic, named.partition, named.elapsed_ms) == ("t", 0, 2500)


def test_where_all_records_are_blamed_the_batch_has_their_error() -> None:
    core, batch = waiting(records=2)
    bad = InvalidRecordError("bad")
    outcome = failure_outcome(batch, bad, {0: bad, 1: bad}, core.now)
    assert type(outcome.error) is InvalidRecordError
    assert list(outcome.record_errors) == [0, 1]


@pytest.mark.parametrize(
    ("are_named", "words"),
    [(True, "because of other records in it"), (False, "without naming the bad records")],
)
def test_a_refusal_says_whether_records_were_named(are_named: bool, words: str) -> None:
    error = refused_because_of_others(GONE, are_named=are_named)
    assert error.message == f"the broker refused the batch {words}: gone [node 4]"


def test_reasons_are_joined_where_there_are_several() -> None:
    assert all_of() == NO_REASON == all_of(NO_REASON, NO_REASON)
    one, two = Reason("one", "do this"), Reason("two", None)
    assert all_of(NO_REASON, one) == one
    assert all_of(one, two) == Reason("one; two", "do this")
    assert str(Wait(Obstacle.TURN)) == "waiting to be sent"
    assert str(Wait(Obstacle.RETRY, GONE)) == f"waiting to be sent again: {GONE}"
