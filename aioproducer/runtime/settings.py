"""Conversion of `ProducerConfig` to the settings and objects of each package.

Here milliseconds become seconds and names become objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aioproducer._util import log
from aioproducer._util.backoff import ExponentialBackoff
from aioproducer._version import __version__
from aioproducer.config.proxy_url import parse_proxy_url
from aioproducer.core.batching.accumulator import AccumulatorSettings
from aioproducer.core.metadata.metadata import NEVER_S, Metadata
from aioproducer.core.metadata.requests import MetadataRequests
from aioproducer.core.sending.idempotence import Sequencer
from aioproducer.core.sending.sender import SenderSettings
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.sequencer import TransactionalSequencer
from aioproducer.metrics.totals import Sampling
from aioproducer.net.dial.dialer import Dialer, TcpDialer
from aioproducer.net.legacy_brokers import ranges_of_old_broker
from aioproducer.net.settings import NetSettings, software_label
from aioproducer.records.codecs import codec_for
from aioproducer.runtime.security_settings import principal_of, sasl_mechanism, tls_contexts
from aioproducer.runtime.tasks.encoder import BatchEncoder

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

    from aioproducer.config import ProducerConfig


_log = log.get("runtime")


def retry_backoff(config: ProducerConfig) -> ExponentialBackoff:
    """Return the backoff of retries (KIP-580)."""
    return ExponentialBackoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)


def sampling(config: ProducerConfig) -> Sampling:
    """Return the sampling of rates and peaks of metrics."""
    return Sampling(config.metrics_num_samples, config.metrics_sample_window_ms / 1000)


def accumulator_settings(config: ProducerConfig) -> AccumulatorSettings:
    """Return the settings of the accumulator."""
    return AccumulatorSettings(
        batch_size=config.batch_size,
        linger=0.0 if config.producer_type == "sync" else config.linger_ms / 1000,
        delivery_timeout=config.delivery_timeout_ms / 1000,
        max_request_size=config.max_request_size,
        guarantee_order=config.max_in_flight_requests_per_connection == 1,
        batch_records=config.batch_max_records,
        grows=config.buffer_memory_allocation_strategy == "incremental",
    )


def sender_settings(config: ProducerConfig) -> SenderSettings:
    """Return the settings of the sender."""
    return SenderSettings(
        retries=config.retries,
        retry_backoff=retry_backoff(config),
        delivery_timeout=config.delivery_timeout_ms / 1000,
        principal=principal_of(config),
    )


def net_settings(config: ProducerConfig) -> NetSettings:
    """Return the settings of `net`."""
    idle_ms = config.connections_max_idle_ms
    return NetSettings(
        client_id=config.client_id,
        request_timeout_s=config.request_timeout_ms / 1000,
        connection_setup_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
        connection_setup_timeout_max_s=config.socket_connection_setup_timeout_max_ms / 1000,
        reconnect_backoff_s=config.reconnect_backoff_ms / 1000,
        reconnect_backoff_max_s=config.reconnect_backoff_max_ms / 1000,
        max_in_flight=config.max_in_flight_requests_per_connection,
        connections_max_idle_s=idle_ms / 1000 if idle_ms > 0 else None,
        dns_canonical=config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only",
        rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
        check_cluster=config.metadata_cluster_check_enable,
        old_broker_versions=ranges_of_old_broker(config.broker_version_fallback),
        expects_old_brokers="broker_version_fallback" in config.explicitly_set,
        sasl=sasl_mechanism(config),
        principal=principal_of(config),
        sampling=sampling(config),
        software_version=software_label(__version__),
    )


def make_plain_dialer(config: ProducerConfig) -> Dialer:
    """Return the dialer below TLS."""
    if config.dialer is not None:
        from aioproducer.net.dial.user_dialer import OpenerDialer

        return OpenerDialer(config.dialer)
    proxy = None if config.proxy_url is None else parse_proxy_url(config.proxy_url)
    return TcpDialer(config.send_buffer_bytes, config.receive_buffer_bytes, proxy=proxy)


def make_dialer(config: ProducerConfig) -> Dialer:
    """Return the dialer, with TLS if the options ask for it."""
    dialer = make_plain_dialer(config)
    contexts = tls_contexts(config)
    if contexts is None:
        return dialer
    from aioproducer.net.security.tls_dialer import TlsDialer

    return TlsDialer(dialer, contexts)


def make_metadata(config: ProducerConfig, rng: Random) -> Metadata:
    """Make the metadata state machine."""
    return Metadata(
        max_age_s=config.metadata_max_age_ms / 1000 if config.metadata_max_age_ms > 0 else NEVER_S,
        max_idle_s=config.metadata_max_idle_ms / 1000,
        backoff=retry_backoff(config),
        allow_auto_create=config.allow_auto_create_topics,
        rng=rng,
        principal=principal_of(config),
    )


def make_metadata_requests(config: ProducerConfig, metadata: Metadata) -> MetadataRequests:
    """Make the state machine of metadata requests."""
    rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
    after_ms = config.metadata_recovery_rebootstrap_trigger_ms
    return MetadataRequests(metadata, after_ms / 1000 if rebootstraps else None)


def make_transactions(
    config: ProducerConfig, topic_ids: Callable[[], Mapping[str, UUID]]
) -> TransactionManager | None:
    """Make the state machine of the transactions; None without `transactional_id`."""
    if config.transactional_id is None:
        return None
    return TransactionManager(
        config.transactional_id,
        config.transaction_timeout_ms,
        two_phase=config.transaction_two_phase_commit_enable,
        topic_ids=topic_ids,
    )


def make_sequencer(config: ProducerConfig, transactions: TransactionManager | None) -> Sequencer:
    """Make the sequencer of batches."""
    in_flight = config.max_in_flight_requests_per_connection
    if transactions is not None:
        return TransactionalSequencer(in_flight, transactions)
    asked_for = "enable_idempotence" in config.explicitly_set
    return Sequencer(
        in_flight,
        None if asked_for else _warn_without_idempotence,
        idempotent=config.effective_idempotence,
    )


def _warn_without_idempotence() -> None:
    _log.warning(
        "the brokers give no producer ids (older than Kafka 0.11, or not quite Kafka): going on "
        "without idempotence, so that a retried batch may be written twice or after later ones; "
        "set enable_idempotence=True to rather fail"
    )


def make_encoder(config: ProducerConfig) -> BatchEncoder:
    """Make the encoder of batches."""
    codec = None
    if config.compression_type != "none":
        codec = codec_for(config.compression_type, config.compression_level)
    return BatchEncoder(
        codec,
        config.compression_threads_threshold_bytes,
        transactional=config.transactional_id is not None,
        topics=frozenset(config.compressed_topics) or None,
    )
