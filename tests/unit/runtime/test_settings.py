"""The settings that each package gets from the options."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from aioproducer import ProducerConfig
from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.batching.accumulator import AccumulatorSettings
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.sending.actions import NoBrokerReady, Rebootstrap
from aioproducer.core.sending.idempotence import Sequencer
from aioproducer.core.transactions.sequencer import TransactionalSequencer
from aioproducer.metrics.totals import Sampling
from aioproducer.net.dial.dialer import TcpDialer
from aioproducer.net.dial.user_dialer import OpenerDialer
from aioproducer.net.security.tls_dialer import TlsDialer
from aioproducer.runtime.settings import (
    accumulator_settings,
    make_dialer,
    make_encoder,
    make_metadata,
    make_metadata_requests,
    make_sequencer,
    make_transactions,
    net_settings,
    retry_backoff,
    sampling,
    sender_settings,
)
from aioproducer.wire.messages.metadata import MetadataResponse, MetadataResponseBroker


def config(**options: object) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="kafka:9092", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("idle_ms", "idle_s"), [(540_000, 540.0), (1, 0.001), (0, None), (-1, None)]
)
def test_the_idle_time_may_be_switched_off(idle_ms: int, idle_s: float | None) -> None:
    assert net_settings(config(connections_max_idle_ms=idle_ms)).connections_max_idle_s == idle_s


def test_canonical_names_are_asked_for_as_the_lookup_says() -> None:
    assert not net_settings(config(client_dns_lookup="use_all_dns_ips")).dns_canonical
    canonical = "resolve_canonical_bootstrap_servers_only"
    assert net_settings(config(client_dns_lookup=canonical)).dns_canonical


def test_tls_goes_on_top_of_every_way() -> None:
    async def dial(host: str, port: int) -> object:
        raise OSError

    for options, kind in (
        ({}, TcpDialer),
        ({"proxy_url": "http://proxy:3128"}, TcpDialer),
        ({"dialer": dial}, OpenerDialer),
    ):
        assert type(make_dialer(config(**options))) is kind
        secured = make_dialer(config(security_protocol="SSL", **options))
        assert type(secured) is TlsDialer
        assert type(secured._below) is kind


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("http://issuer.example/token?key=hunter2", True),
        ("HTTP://10.0.0.1:8080/token", True),
        ("http://localhost.example/token", True),
        ("http://localhost:8080/token", False),
        ("http://[::1]/token", False),
        ("https://issuer.example/token", False),
    ],
)
def test_a_token_endpoint_without_tls_is_warned_of(
    url: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    net_settings(
        config(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_oauthbearer_client_credentials_client_id="me",
            sasl_oauthbearer_client_credentials_client_secret="secret",
        )
    )
    assert ("can be read on the way to the token endpoint" in caplog.text) is warns
    assert "hunter2" not in caplog.text


# -- times in seconds ------------------------------------------------------------------------------


def test_retries_have_the_backoff_of_the_options_in_seconds() -> None:
    made = config(retry_backoff_ms=50, retry_backoff_max_ms=4_000, delivery_timeout_ms=90_000)
    assert retry_backoff(made) == ExponentialBackoff(0.05, 4.0)
    settings = sender_settings(made)
    assert settings.retry_backoff == ExponentialBackoff(0.05, 4.0)
    assert settings.delivery_timeout == 90.0


def test_metrics_have_the_samples_of_the_options_with_their_window_in_seconds() -> None:
    made = config(metrics_num_samples=3, metrics_sample_window_ms=5_000)
    assert sampling(made) == net_settings(made).sampling == Sampling(3, 5.0)


@pytest.mark.parametrize(
    ("options", "linger"),
    [
        ({"linger_ms": 7}, 0.007),
        ({"producer_type": "async", "linger_ms": 7}, 0.007),
        ({"producer_type": "sync", "linger_ms": 7}, 0.0),
    ],
)
def test_a_batch_waits_for_the_linger_unless_the_producer_is_synchronous(
    options: dict[str, Any], linger: float
) -> None:
    assert accumulator_settings(config(**options)).linger == linger


@pytest.mark.parametrize(("in_flight", "guarantees"), [(1, True), (2, False), (5, False)])
@pytest.mark.parametrize(("strategy", "grows"), [("full", False), ("incremental", True)])
def test_batches_are_bounded_and_ordered_as_the_options_say(
    in_flight: int, guarantees: bool, strategy: str, grows: bool
) -> None:
    made = config(
        batch_size=1_000,
        batch_max_records=10,
        max_request_size=2_000,
        linger_ms=0,
        delivery_timeout_ms=90_000,
        max_in_flight_requests_per_connection=in_flight,
        buffer_memory_allocation_strategy=strategy,
    )
    assert accumulator_settings(made) == AccumulatorSettings(
        1_000, 0.0, 90.0, 2_000, guarantees, batch_records=10, grows=grows
    )


def test_connections_have_the_times_of_the_options_in_seconds() -> None:
    settings = net_settings(
        config(
            request_timeout_ms=1_500,
            socket_connection_setup_timeout_ms=2_500,
            socket_connection_setup_timeout_max_ms=3_500,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=4_500,
        )
    )
    assert settings.request_timeout_s == 1.5
    assert settings.connection_setup_timeout_s == 2.5
    assert settings.connection_setup_timeout_max_s == 3.5
    assert (settings.reconnect_backoff_s, settings.reconnect_backoff_max_s) == (0.02, 4.5)


@pytest.mark.parametrize(
    ("options", "expects"), [({}, False), ({"broker_version_fallback": "0.8.2"}, True)]
)
def test_old_brokers_are_expected_if_the_options_name_their_version(
    options: dict[str, str], expects: bool
) -> None:
    assert net_settings(config(**options)).expects_old_brokers is expects


# -- metadata --------------------------------------------------------------------------------------


def answered(metadata: Metadata, now: float) -> Metadata:
    """Give the metadata a full response at this time."""
    metadata.start_request(now)
    metadata.on_response(MetadataResponse(brokers=[MetadataResponseBroker(1, "b", 9092)]), now)
    return metadata


@pytest.mark.parametrize(("age_ms", "due_after"), [(300_000, 300.0), (2_000, 2.0)])
def test_metadata_are_requested_again_at_their_age(age_ms: int, due_after: float) -> None:
    made = config(metadata_max_age_ms=age_ms, retry_backoff_ms=0, retry_backoff_max_ms=0)
    metadata = answered(make_metadata(made, Random(1)), 100.0)
    assert metadata.next_update_at(100.0) == 100.0 + due_after


def test_metadata_are_requested_again_after_an_age_of_1_ms() -> None:
    made = config(metadata_max_age_ms=1, retry_backoff_ms=0, retry_backoff_max_ms=0)
    metadata = answered(make_metadata(made, Random(1)), 100.0)
    assert metadata.next_update_at(100.0) == pytest.approx(100.001)


@pytest.mark.parametrize("age_ms", [0, -1])
def test_metadata_are_not_requested_again_for_their_age_without_one(age_ms: int) -> None:
    made = config(metadata_max_age_ms=age_ms, retry_backoff_ms=0, retry_backoff_max_ms=0)
    metadata = answered(make_metadata(made, Random(1)), 100.0)
    assert metadata.next_update_at(100.0) > 1e9


def test_topics_are_dropped_after_the_idle_time_of_the_options() -> None:
    metadata = make_metadata(config(metadata_max_idle_ms=6_000), Random(1))
    metadata.add_topic("t", 100.0)
    metadata.add_topic("u", 103.0)
    assert metadata.start_request(107.0).topics == ["u"]


class UnreachableNodes:
    """Brokers that are known, and not connected."""

    rebootstrap_required = None

    def least_loaded_node(self, now: float) -> int | None:
        return None

    def any_connected(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("strategy", "after_s"), [("rebootstrap", 20.0), ("none", None)], ids=["rebootstrap", "none"]
)
def test_a_client_starts_over_after_the_time_of_the_options(
    strategy: str, after_s: float | None
) -> None:
    made = config(
        metadata_recovery_strategy=strategy, metadata_recovery_rebootstrap_trigger_ms=20_000
    )
    metadata = answered(make_metadata(made, Random(1)), 0.0)
    metadata.request_update()
    requests: Any = make_metadata_requests(made, metadata)
    requests.on_answer()
    nodes = UnreachableNodes()
    kinds = [type(*requests.poll(now, nodes)) for now in (100.0, 119.0, 121.0)]
    assert kinds == [NoBrokerReady, NoBrokerReady, Rebootstrap if after_s else NoBrokerReady]
    assert net_settings(made).rebootstrap is (strategy == "rebootstrap")


# -- idempotence, transactions, compression --------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "is_idempotent"),
    [
        ({}, Sequencer, True),
        ({"enable_idempotence": True}, Sequencer, True),
        ({"enable_idempotence": False}, Sequencer, False),
        ({"acks": 1}, Sequencer, False),
        ({"transactional_id": "txn"}, TransactionalSequencer, True),
    ],
)
def test_batches_are_numbered_as_the_options_say(
    options: dict[str, Any], kind: type[Sequencer], is_idempotent: bool
) -> None:
    made = config(**options)
    transactions = make_transactions(made, dict)
    assert (transactions is not None) is ("transactional_id" in options)
    sequencer = make_sequencer(made, transactions)
    assert (type(sequencer), sequencer.is_idempotent) == (kind, is_idempotent)


@pytest.mark.parametrize(
    ("options", "version"),
    [({}, 0), ({"transactional_id": "txn"}, 3), ({"compression_type": "gzip"}, 0)],
)
def test_transactions_need_produce_requests_of_version_3(
    options: dict[str, Any], version: int
) -> None:
    encoder = make_encoder(config(**options))
    assert encoder.min_produce_version == version
    assert encoder.compresses is ("compression_type" in options)
