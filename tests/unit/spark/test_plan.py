"""Names of transactions, and what the driver refuses before it asks a cluster."""

from __future__ import annotations

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark import batch_writer
from aioproducer.spark.plan import SinkPlan

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
FIELDS = [("value", "binary")]
EXACTLY_ONCE = {"delivery.guarantee": "exactly-once"}


def test_a_stream_is_named_by_its_checkpoint_or_by_the_user() -> None:
    def prefix(**options: str) -> str | None:
        given = SERVERS | EXACTLY_ONCE | options
        return SinkPlan.of_stream(given, FIELDS).prefix

    assert prefix(checkpointLocation="/a") == prefix(checkpointLocation="/a/")
    assert prefix(checkpointLocation="/a") != prefix(checkpointLocation="/b")
    named = SERVERS | EXACTLY_ONCE | {"transactional.id.prefix": "orders"}
    assert SinkPlan.of_stream(named, FIELDS).prefix == "orders"


def test_a_job_is_named_by_its_id() -> None:
    def prefix(**options: str) -> str | None:
        given = SERVERS | EXACTLY_ONCE | {name.replace("_", "."): v for name, v in options.items()}
        return SinkPlan.of_batch(given, FIELDS, overwrite=False).prefix

    assert prefix(job_id="monday") == prefix(job_id="monday")
    assert prefix(job_id="monday") != prefix(job_id="tuesday")
    assert prefix() != prefix()


@pytest.mark.parametrize("guarantee", ["exactly-once", "task-transactions"])
def test_without_a_checkpoint_a_stream_has_no_transactions(guarantee: str) -> None:
    with pytest.raises(ConfigError, match="checkpointLocation"):
        SinkPlan.of_stream(SERVERS | {"delivery.guarantee": guarantee}, FIELDS)


def test_exactly_once_needs_a_topic_to_keep_its_decisions_for() -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", **EXACTLY_ONCE}
    fields = [*FIELDS, ("topic", "string")]
    with pytest.raises(ConfigError, match=r"marker\.topic"):
        SinkPlan.of_batch(given, fields, overwrite=False)
    assert SinkPlan.of_batch(given | {"marker.topic": "m"}, fields, overwrite=False).prefix


def test_overwriting_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        SinkPlan.of_batch(SERVERS, FIELDS, overwrite=True)


def test_prepared_transactions_may_stay_open_for_long_unless_the_user_says() -> None:
    plan = SinkPlan.of_batch(SERVERS | EXACTLY_ONCE, FIELDS, overwrite=False)
    assert plan.config().transaction_timeout_ms == 900_000
    chosen = SERVERS | EXACTLY_ONCE | {"kafka.transaction.timeout.ms": "60000"}
    plan = SinkPlan.of_batch(chosen, FIELDS, overwrite=False)
    assert plan.config().transaction_timeout_ms == 60_000


def test_prepared_transactions_that_brokers_never_end_have_no_timeout() -> None:
    chosen = SERVERS | EXACTLY_ONCE | {"kafka.transaction.two.phase.commit.enable": "true"}
    config = SinkPlan.of_batch(chosen, FIELDS, overwrite=False).config()
    assert config.transaction_two_phase_commit_enable
    assert "transaction_timeout_ms" not in config.explicitly_set


def test_a_function_for_foreach_batch_needs_a_name_to_be_exactly_once() -> None:
    with pytest.raises(ConfigError, match="query"):
        batch_writer(SERVERS | EXACTLY_ONCE)
    with pytest.raises(ConfigError, match=r"job\.id"):
        batch_writer(SERVERS | {"job.id": "x"})
    assert callable(batch_writer(SERVERS | EXACTLY_ONCE, query="counts"))
