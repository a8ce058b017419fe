"""From options to settings: where milliseconds become seconds and names become objects.

Owns: the translation of `ProducerConfig` into what each room is told. Must not know: what the rooms
do with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._version import __version__
from aioproducer.backoff import ExponentialBackoff
from aioproducer.core.accumulator import AccumulatorSettings
from aioproducer.core.idempotence import IdempotentSequencer, Sequencer
from aioproducer.core.metadata import Metadata
from aioproducer.core.sender import SenderSettings
from aioproducer.net.client import NetSettings
from aioproducer.net.dialer import TcpDialer
from aioproducer.records.codecs import codec_for
from aioproducer.runtime.appender import AppenderSettings
from aioproducer.runtime.encoder import BatchEncoder

if TYPE_CHECKING:
    from random import Random

    from aioproducer.config import ProducerConfig


def retry_backoff(config: ProducerConfig) -> ExponentialBackoff:
    """The pause before something is tried again (KIP-580)."""
    return ExponentialBackoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)


def accumulator_settings(config: ProducerConfig) -> AccumulatorSettings:
    """What the accumulator is told."""
    return AccumulatorSettings(
        batch_size=config.batch_size,
        linger=config.linger_ms / 1000,
        delivery_timeout=config.delivery_timeout_ms / 1000,
        max_request_size=config.max_request_size,
        guarantee_order=config.max_in_flight_requests_per_connection == 1,
    )


def sender_settings(config: ProducerConfig) -> SenderSettings:
    """What the sender is told."""
    return SenderSettings(
        retries=config.retries,
        retry_backoff=retry_backoff(config),
        delivery_timeout=config.delivery_timeout_ms / 1000,
    )


def appender_settings(config: ProducerConfig) -> AppenderSettings:
    """What the general lane of `send()` is told."""
    return AppenderSettings(
        max_block=config.max_block_ms / 1000,
        batch_size=config.batch_size,
        max_request_size=config.max_request_size,
    )


def net_settings(config: ProducerConfig) -> NetSettings:
    """What the network room is told."""
    idle_ms = config.connections_max_idle_ms
    return NetSettings(
        client_id=config.client_id,
        request_timeout_s=config.request_timeout_ms / 1000,
        connection_setup_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
        connection_setup_timeout_max_s=config.socket_connection_setup_timeout_max_ms / 1000,
        reconnect_backoff_s=config.reconnect_backoff_ms / 1000,
        reconnect_backoff_max_s=config.reconnect_backoff_max_ms / 1000,
        max_in_flight=config.max_in_flight_requests_per_connection,
        connections_max_idle_s=None if idle_ms < 0 else idle_ms / 1000,
        dns_canonical=config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only",
        rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
        software_version=__version__,
    )


def make_dialer(config: ProducerConfig) -> TcpDialer:
    """How connections are made."""
    return TcpDialer(
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
    )


def make_metadata(config: ProducerConfig, rng: Random) -> Metadata:
    """The metadata state machine."""
    return Metadata(
        max_age_s=config.metadata_max_age_ms / 1000,
        max_idle_s=config.metadata_max_idle_ms / 1000,
        backoff=retry_backoff(config),
        allow_auto_create=config.allow_auto_create_topics,
        rng=rng,
    )


def make_sequencer(config: ProducerConfig) -> Sequencer:
    """Who numbers batches, if they are numbered."""
    if config.effective_idempotence:
        return IdempotentSequencer(config.max_in_flight_requests_per_connection)
    return Sequencer()


def make_encoder(config: ProducerConfig) -> BatchEncoder:
    """Who makes bytes of batches.

    Raises:
        UnsupportedCodecError: the compression's library cannot be imported.
    """
    codec = None
    if config.compression_type != "none":
        codec = codec_for(config.compression_type, config.compression_level)
    return BatchEncoder(codec, config.compression_threads_threshold_bytes)
