"""aiokafka's errors by their names: `from aioproducer.compat.aiokafka import errors`.

Errors of the client are defined here, errors of brokers in `_broker_errors`. `_translation` raises
them.
"""

from __future__ import annotations

from typing import ClassVar

# The star form is what makes these names part of this module for type checkers (PEP 561).
from aioproducer.compat.aiokafka._broker_errors import *  # noqa: F403
from aioproducer.compat.aiokafka._error_base import *  # noqa: F403
from aioproducer.compat.aiokafka._error_base import KafkaError

# ruff: noqa: N818 - the names are aiokafka's


class IllegalStateError(KafkaError):
    """The call does not fit what the client is doing."""


class IllegalArgumentError(KafkaError):
    """An argument cannot be used."""


class NoBrokersAvailable(KafkaError):
    """No broker is known that could be asked."""

    retriable: ClassVar[bool] = True
    invalid_metadata: ClassVar[bool] = True


class NodeNotReadyError(KafkaError):
    """The broker is not connected."""

    retriable: ClassVar[bool] = True


class KafkaProtocolError(KafkaError):
    """A peer sent bytes that are not Kafka's protocol."""

    retriable: ClassVar[bool] = True


class CorrelationIdError(KafkaProtocolError):
    """An answer belongs to another request."""

    retriable: ClassVar[bool] = True


class Cancelled(KafkaError):
    """The request was given up."""

    retriable: ClassVar[bool] = True


class TooManyInFlightRequests(KafkaError):
    """The broker has as many unanswered requests as it may have."""

    retriable: ClassVar[bool] = True


class StaleMetadata(KafkaError):
    """The view of the cluster is out of date."""

    retriable: ClassVar[bool] = True
    invalid_metadata: ClassVar[bool] = True


class MetadataEmptyBrokerList(KafkaError):
    """The cluster described itself without any broker."""

    retriable: ClassVar[bool] = True


class UnrecognizedBrokerVersion(KafkaError):
    """The broker supports no known version of the protocol."""


class IncompatibleBrokerVersion(KafkaError):
    """The broker is too old for what was asked."""


class CommitFailedError(KafkaError):
    """A consumer's positions were not committed: its group has given its partitions away."""


class AuthenticationMethodNotSupported(KafkaError):
    """The client cannot authenticate in the way asked for."""


class AuthenticationFailedError(KafkaError):
    """The broker refused the client's identity, or the client the broker's."""


class KafkaUnavailableError(KafkaError):
    """The cluster cannot be reached."""


class KafkaTimeoutError(KafkaError):
    """A wait reached its bound."""


class KafkaConnectionError(KafkaError):
    """A broker cannot be reached, or the connection to it broke."""

    retriable: ClassVar[bool] = True
    invalid_metadata: ClassVar[bool] = True


class UnsupportedCodecError(KafkaError):
    """The library of a compression codec cannot be imported."""


class KafkaConfigurationError(KafkaError):
    """An option has a wrong value."""


class QuotaViolationError(KafkaError):
    """A quota is used up."""


class ConsumerStoppedError(Exception):
    """The consumer was stopped."""


class IllegalOperation(Exception):
    """The call is not possible in the state of the transaction, or without transactions."""


class NoOffsetForPartitionError(KafkaError):
    """A partition has no committed position, and no rule says where to begin."""


class RecordTooLargeError(KafkaError):
    """A consumer met a record that is larger than it may fetch."""


class ProducerClosed(KafkaError):
    """The producer is stopped."""


class ProducerFenced(KafkaError):
    """A newer producer uses the same transactional id, or the transaction timed out."""
