"""kafka-python's errors by their names: `from aioproducer.compat.kafka import errors`.

Where kafka-python is installed, what is raised is an instance of kafka-python's class of the
same name as well. Errors of brokers are rows of a table; type checkers take them for `Any`.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from aioproducer.compat._shared_classes import shared_class as _shared_class


class KafkaError(Exception):
    """The root of the errors.

    More details of this producer (whether the record may be written, which broker, what to do) are
    in `__cause__`, an `aioproducer.KafkaError`.

    Attributes:
        retriable: Whether the same call may succeed when it is made again.
        invalid_metadata: Whether the client's view of the cluster was out of date.
    """

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {Exception.__str__(self)}" if self.args else name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return Exception.__hash__(self)


class RetriableError(KafkaError):
    """The same call may succeed when it is made again."""

    retriable: ClassVar[bool] = True


class InvalidMetadataError(RetriableError):
    """The client's view of the cluster was out of date."""

    invalid_metadata: ClassVar[bool] = True


class IllegalArgumentError(KafkaError):
    """An argument cannot be used."""


class IllegalStateError(KafkaError):
    """The call does not fit what the producer is doing."""


class KafkaConfigurationError(KafkaError, ValueError):
    """An option has a wrong value, or contradicts another one."""


class KafkaConnectionError(InvalidMetadataError):
    """A broker cannot be reached, or the connection to it broke."""


class KafkaProtocolError(KafkaError):
    """A peer sent bytes that are not Kafka's protocol."""


class KafkaTimeoutError(RetriableError):
    """A wait reached its limit."""


class NoBrokersAvailable(KafkaTimeoutError):  # noqa: N818 - its name there
    """The constructor reached no broker; of kafka-python 2, where 3 has a `KafkaTimeoutError`."""


class UnsupportedCodecError(KafkaError):
    """The library of a compression codec cannot be imported."""


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted before the record was sent (KIP-654)."""


class BrokerResponseError(KafkaError):
    """An error code that a broker answered; `errno` is the number on the wire."""

    errno: ClassVar[int | None] = None
    message: ClassVar[str | None] = None
    description: ClassVar[str | None] = None

    def __str__(self) -> str:
        return f"[Error {self.errno}] {KafkaError.__str__(self)}"


class AuthorizationError(BrokerResponseError):
    """The broker has authenticated the client and does not allow its request."""


_PLAIN: Final = """
    0 No NO_ERROR, -1 Unknown, 1 OffsetOutOfRange, 2 CorruptRecord CORRUPT_MESSAGE, 4
    InvalidFetchRequest INVALID_FETCH_SIZE, 8 BrokerNotAvailable, 10 MessageSizeTooLarge, 11
    StaleControllerEpoch, 12 OffsetMetadataTooLarge, 17 InvalidTopic, 18 RecordListTooLarge, 21
    InvalidRequiredAcks, 22 IllegalGeneration, 23 InconsistentGroupProtocol, 24 InvalidGroupId,
    25 UnknownMemberId, 26 InvalidSessionTimeout, 27 RebalanceInProgress, 28
    InvalidCommitOffsetSize, 32 InvalidTimestamp, 33 UnsupportedSaslMechanism, 34
    IllegalSaslState, 35 UnsupportedVersion, 36 TopicAlreadyExists, 37 InvalidPartitions, 38
    InvalidReplicationFactor, 39 InvalidReplicationAssignment, 40 InvalidConfiguration
    INVALID_CONFIG, 42 InvalidRequest, 43 UnsupportedForMessageFormat, 44 PolicyViolation, 45
    OutOfOrderSequenceNumber, 46 DuplicateSequenceNumber, 47 InvalidProducerEpoch, 48
    InvalidTxnState, 49 InvalidProducerIdMapping, 50 InvalidTransactionTimeout, 52
    TransactionCoordinatorFenced, 54 SecurityDisabled, 55 OperationNotAttempted, 57
    LogDirNotFound, 58 SaslAuthenticationFailed, 59 UnknownProducerId, 60
    ReassignmentInProgress, 61 DelegationTokenAuthDisabled, 62 DelegationTokenNotFound, 63
    DelegationTokenOwnerMismatch, 64 DelegationTokenRequestNotAllowed, 66
    DelegationTokenExpired, 67 InvalidPrincipalType, 68 NonEmptyGroup, 69 GroupIdNotFound, 73
    TopicDeletionDisabled, 76 UnsupportedCompressionType, 77 StaleBrokerEpoch, 79
    MemberIdRequired, 81 GroupMaxSizeReached, 82 FencedInstanceId, 85 NoReassignmentInProgress,
    86 GroupSubscribedToTopic, 87 InvalidRecord, 90 ProducerFenced, 91 ResourceNotFound, 92
    DuplicateResource, 93 UnacceptableCredential, 94 InconsistentVoterSet, 95
    InvalidUpdateVersion, 96 FeatureUpdateFailed, 97 PrincipalDeserializationFailure, 98
    SnapshotNotFound, 99 PositionOutOfRange, 101 DuplicateBrokerRegistration, 102
    BrokerIdNotRegistered, 104 InconsistentClusterId, 105 TransactionalIdNotFound, 107
    IneligibleReplica, 108 NewLeaderElected, 109 OffsetMovedToTieredStorage, 110
    FencedMemberEpoch, 111 UnreleasedInstanceId, 112 UnsupportedAssignor, 113 StaleMemberEpoch,
    114 MismatchedEndpointType, 115 UnsupportedEndpointType, 116 UnknownControllerId, 117
    UnknownSubscriptionId, 118 TelemetryTooLarge, 119 InvalidRegistration, 120
    TransactionAbortable, 121 InvalidRecordState, 124 FencedStateEpoch, 125 InvalidVoterKey, 126
    DuplicateVoter, 127 VoterNotFound
"""
_RETRIABLE: Final = """
    7 RequestTimedOut, 14 CoordinatorLoadInProgress, 15 CoordinatorNotAvailable, 16
    NotCoordinator, 19 NotEnoughReplicas, 20 NotEnoughReplicasAfterAppend, 41 NotController, 51
    ConcurrentTransactions, 70 FetchSessionIdNotFound, 71 InvalidFetchSessionEpoch, 78
    OffsetNotAvailable, 88 UnstableOffsetCommit, 89 ThrottlingQuotaExceeded, 106
    FetchSessionTopicId FETCH_SESSION_TOPIC_ID_ERROR, 122 ShareSessionNotFound, 123
    InvalidShareSessionEpoch
"""
_OF_METADATA: Final = """
    3 UnknownTopicOrPartition, 5 LeaderNotAvailable, 6 NotLeaderForPartition, 9
    ReplicaNotAvailable, 13 NetworkException, 56 KafkaStorage KAFKA_STORAGE_ERROR, 72
    ListenerNotFound, 74 FencedLeaderEpoch, 75 UnknownLeaderEpoch, 80
    PreferredLeaderNotAvailable, 83 EligibleLeadersNotAvailable, 84 ElectionNotNeeded, 100
    UnknownTopicId, 103 InconsistentTopicId
"""
_OF_AUTHORIZATION: Final = """
    29 TopicAuthorizationFailed, 30 GroupAuthorizationFailed, 31 ClusterAuthorizationFailed, 53
    TransactionalIdAuthorizationFailed, 65 DelegationTokenAuthorizationFailed
"""

_ROW: Final = re.compile(r"(-?\d+)\s+(\w+)(?:\s+(\w+))?")
_BY_CODE: Final[dict[int, type[BrokerResponseError]]] = {}


def _define(rows: str, *bases: type[KafkaError]) -> None:
    """Define a class per row: code, name without `Error`, and Kafka's name if that differs."""
    for code, stem, message in _ROW.findall(rows):
        names = {
            "__module__": __name__,
            "__doc__": f"Error {code} of brokers.",
            "errno": int(code),
            "message": message or re.sub(r"(?<!^)(?=[A-Z])", "_", stem).upper(),
        }
        defined = type(f"{stem}Error", bases, names)
        globals()[f"{stem}Error"] = _BY_CODE[int(code)] = defined


_define(_PLAIN, BrokerResponseError)
_define(_RETRIABLE, RetriableError, BrokerResponseError)
_define(_OF_METADATA, InvalidMetadataError, BrokerResponseError)
_define(_OF_AUTHORIZATION, AuthorizationError)


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of a broker's code; of an unknown code a subclass of `UnknownError`."""
    known = _BY_CODE.get(error_code)
    if known is not None:
        return known
    return type("UnrecognizedBrokerError", (_BY_CODE[-1],), {"errno": error_code})


def shared_class(error_class: type[Exception]) -> type[Exception]:
    """Return the class to raise for one of ours: also kafka-python's, where that is installed."""
    return _shared_class(error_class, "kafka.errors")
