"""What brokers before 0.11, or before 2.1, cannot do, found before a record is lost to it.

Owns: the refusal of options, at the start, and of records, in the general lane. Must not know: how
brokers tell their versions, the old formats.

Invariants: the default of an option never refuses a broker, only what the user asked for does;
while a connected broker is old, records keep to the general lane, which looks at their headers.
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
    """Whether brokers that speak up to this version of Produce lack RecordBatch v2."""
    return produce_version is not None and magic_for(produce_version) < MAGIC


def refuse_what_they_lack(config: ProducerConfig, produce_version: int | None) -> None:
    """Compares the options with what the connected brokers speak, None if that is not known.

    Raises:
        UnsupportedVersionError: an option asks for what they cannot carry.
    """
    if produce_version is None:
        return
    if are_old(produce_version):
        if config.transactional_id is not None:
            raise _before_0_11("transactions (transactional_id)")
        if config.effective_idempotence and "enable_idempotence" in config.explicitly_set:
            raise without_producer_ids()
    if config.compression_type == "zstd" and produce_version < FIRST_PRODUCE_WITH_ZSTD:
        raise UnsupportedVersionError(
            "the brokers are older than Kafka 2.1 and do not know zstd (compression_type)",
            advice="choose another compression_type, or upgrade the brokers",
        )


def without_producer_ids() -> UnsupportedVersionError:
    """Says that the brokers know no idempotence."""
    return UnsupportedVersionError(
        "the brokers speak no INIT_PRODUCER_ID (older than Kafka 0.11, or not quite Kafka), which "
        "idempotence needs (enable_idempotence)",
        advice="leave the option out, or upgrade the brokers",
    )


def _before_0_11(what: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"the brokers are older than Kafka 0.11 and do not know {what}",
        advice="leave the option out, or upgrade the brokers",
    )
