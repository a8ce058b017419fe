"""Checks of options that brokers before 0.11, or before 2.1, do not support.

Invariants
- Only an option that the user has set refuses a broker, never the default of an option.
- While a connected broker is old, all records take the slow path, which checks their headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.errors import UnsupportedVersionError
from aioproducer.records.layout import MAGIC
from aioproducer.records.message_set import magic_for

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

FIRST_PRODUCE_WITH_ZSTD = 7


def are_old(produce_version: int | None) -> bool:
    """Return whether brokers with this highest version of Produce lack RecordBatch v2."""
    return produce_version is not None and magic_for(produce_version) < MAGIC


def refuse_what_they_lack(config: ProducerConfig, produce_version: int | None) -> None:
    """Raise if the connected brokers do not support an option.

    `produce_version` is the highest version they support; None if not known.
    """
    if produce_version is None:
        return
    if are_old(produce_version):
        if config.transactional_id is not None:
            raise UnsupportedVersionError(
                "the brokers are older than Kafka 0.11 and do not support transactions "
                "(transactional_id)",
                advice="leave the option out, or upgrade the brokers",
            )
        if config.effective_idempotence and "enable_idempotence" in config.explicitly_set:
            raise without_producer_ids()
    if config.compression_type == "zstd" and produce_version < FIRST_PRODUCE_WITH_ZSTD:
        raise UnsupportedVersionError(
            "the brokers are older than Kafka 2.1 and do not support zstd (compression_type)",
            advice="choose another compression_type, or upgrade the brokers",
        )


def without_producer_ids() -> UnsupportedVersionError:
    """Return the error for brokers without idempotence."""
    return UnsupportedVersionError(
        "the brokers do not support INIT_PRODUCER_ID (older than Kafka 0.11, or not quite Kafka), "
        "which idempotence needs (enable_idempotence)",
        advice="leave the option out, or upgrade the brokers",
    )
