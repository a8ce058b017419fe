"""The broker codes a producer or a topic admin request can meet.

Names, codes and families follow Kafka 4.4's `org.apache.kafka.common.protocol.Errors` and its
exceptions (KIP-1050).
"""

from __future__ import annotations

from aioproducer.errors.advice import ADVICE
from aioproducer.errors.base import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    InvalidMetadataError,
    RetriableBrokerError,
)


class UnknownServerError(BrokerError, code=-1, name="UNKNOWN_SERVER_ERROR"):
    """The broker met an error it did not expect."""

    advice: str | None = ADVICE["broker-failed"]


class CorruptMessageError(RetriableBrokerError, code=2):
    """The records are corrupt: a wrong checksum or size, or no key on a compacted topic."""


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3):
    """The broker does not host this topic or partition."""

    advice: str | None = ADVICE["topic-missing"]


class LeaderNotAvailableError(InvalidMetadataError, code=5):
    """The partition has no leader at the moment: an election is going on."""

    advice: str | None = ADVICE["topic-unavailable"]


class NotLeaderOrFollowerError(InvalidMetadataError, code=6):
    """The broker is not the leader (or not a replica) of the partition."""


class RequestTimedOutError(RetriableBrokerError, code=7):
    """The broker gave up waiting for the request's conditions, such as replication."""


class BrokerNotAvailableError(BrokerError, code=8):
    """The broker is not available."""


class ReplicaNotAvailableError(InvalidMetadataError, code=9):
    """The replica is not available for the partition."""


class RecordTooLargeError(BrokerError, code=10, name="MESSAGE_TOO_LARGE"):
    """The record is larger than what the topic, the broker or the client accepts."""

    advice: str | None = ADVICE["record-too-large"]


class OffsetMetadataTooLargeError(BrokerError, code=12):
    """The metadata string of the committed offset is too large."""


class NetworkError(InvalidMetadataError, code=13, name="NETWORK_EXCEPTION"):
    """The connection ended before the response came."""


class CoordinatorLoadInProgressError(RetriableBrokerError, code=14):
    """The coordinator is still loading its state."""


class CoordinatorNotAvailableError(RetriableBrokerError, code=15):
    """The coordinator is not available."""

    advice: str | None = ADVICE["coordinator-away"]


class NotCoordinatorError(RetriableBrokerError, code=16):
    """The broker is not the coordinator asked for."""


class InvalidTopicError(BrokerError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    """The topic's name is not valid, or clients may not use the topic this way."""

    advice: str | None = ADVICE["topic-refused"]


class RecordListTooLargeError(BrokerError, code=18):
    """The record batch is larger than the topic's log segments."""

    advice: str | None = ADVICE["batch-too-large"]


class NotEnoughReplicasError(RetriableBrokerError, code=19):
    """Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."""

    advice: str | None = ADVICE["too-few-replicas"]


class NotEnoughReplicasAfterAppendError(RetriableBrokerError, code=20):
    """The records were written, but to fewer in-sync replicas than min.insync.replicas."""

    advice: str | None = ADVICE["too-few-replicas"]


class InvalidRequiredAcksError(BrokerError, code=21):
    """The request's acks value is not valid."""

    advice: str | None = ADVICE["acks-refused"]


class IllegalGenerationError(BrokerError, code=22):
    """The consumer group's generation is not the current one."""


class UnknownMemberIdError(BrokerError, code=25):
    """The coordinator has no such group member."""


class InvalidCommitOffsetSizeError(BrokerError, code=28):
    """The committed offset data is larger than the broker allows."""


class TopicAuthorizationFailedError(AuthorizationError, code=29):
    """The principal has no right to the topic."""


class GroupAuthorizationFailedError(AuthorizationError, code=30):
    """The principal has no right to the consumer group."""


class ClusterAuthorizationFailedError(AuthorizationError, code=31):
    """The principal has no right to this operation on the cluster."""


class InvalidTimestampError(BrokerError, code=32):
    """The record's timestamp is outside the range the topic accepts."""

    advice: str | None = ADVICE["timestamp-refused"]


class UnsupportedSaslMechanismError(BrokerError, AuthenticationError, code=33):
    """The broker does not offer the SASL mechanism."""

    advice: str | None = ADVICE["mechanism-not-offered"]


class IllegalSaslStateError(BrokerError, AuthenticationError, code=34):
    """The request does not fit the state of the SASL exchange."""

    advice: str | None = ADVICE["sasl-not-expected"]


class UnsupportedVersionError(BrokerError, code=35):
    """No version of the request is understood by both sides."""

    advice: str | None = ADVICE["versions-unsupported"]


class TopicAlreadyExistsError(BrokerError, code=36):
    """A topic of this name exists already."""


class InvalidPartitionsError(BrokerError, code=37):
    """The number of partitions is not valid."""


class InvalidReplicationFactorError(BrokerError, code=38):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignmentError(BrokerError, code=39):
    """The replica assignment is not valid."""


class InvalidConfigError(BrokerError, code=40):
    """The configuration is not valid."""


class NotControllerError(RetriableBrokerError, code=41):
    """The broker is not the controller."""


class InvalidRequestError(BrokerError, code=42):
    """The broker could not make sense of the request; its log says more."""


class UnsupportedForMessageFormatError(BrokerError, code=43):
    """The broker's message format does not support the request."""

    advice: str | None = ADVICE["format-unsupported"]


class PolicyViolationError(BrokerError, code=44):
    """The request breaks a policy of the cluster."""

    advice: str | None = ADVICE["policy-violated"]


class OutOfOrderSequenceNumberError(BrokerError, code=45):
    """The sequence number is not the one the broker expects next."""


class DuplicateSequenceNumberError(BrokerError, code=46):
    """The broker holds a batch with this sequence number already."""


class InvalidProducerEpochError(BrokerError, code=47):
    """The producer's epoch is older than the broker's."""


class InvalidTxnStateError(BrokerError, code=48):
    """The transactional operation does not fit the transaction's state, as after its timeout."""


class InvalidProducerIdMappingError(BrokerError, code=49):
    """The producer id is not the one assigned to the transactional id."""

    advice: str | None = ADVICE["producer-ended"]


class InvalidTransactionTimeoutError(BrokerError, code=50):
    """The transaction timeout is above the broker's transaction.max.timeout.ms."""

    advice: str | None = ADVICE["transaction-timeout-too-long"]


class ConcurrentTransactionsError(RetriableBrokerError, code=51):
    """Another operation on the same transaction is still going on."""


class TransactionalIdAuthorizationFailedError(AuthorizationError, code=53):
    """The principal has no right to the transactional id."""


class SecurityDisabledError(BrokerError, code=54):
    """The cluster runs without the security feature asked for."""

    advice: str | None = ADVICE["feature-disabled"]


class OperationNotAttemptedError(BrokerError, code=55):
    """The broker did not try this operation because another one of the request failed."""


class KafkaStorageError(InvalidMetadataError, code=56, name="KAFKA_STORAGE_ERROR"):
    """The broker's disk failed for this partition."""

    advice: str | None = ADVICE["storage-failed"]


class SaslAuthenticationFailedError(BrokerError, AuthenticationError, code=58):
    """The broker refused the credentials."""

    advice: str | None = ADVICE["credentials-refused"]


class UnknownProducerIdError(OutOfOrderSequenceNumberError, code=59):
    """The broker has no state of this producer id; its records may have been deleted."""


class DelegationTokenNotFoundError(BrokerError, code=62):
    """The broker has no such delegation token."""


class DelegationTokenExpiredError(BrokerError, code=66):
    """The delegation token has expired."""


class GroupIdNotFoundError(BrokerError, code=69):
    """The group does not exist."""


class ListenerNotFoundError(InvalidMetadataError, code=72):
    """The leader has no listener of the kind the metadata was asked on."""


class TopicDeletionDisabledError(BrokerError, code=73):
    """The cluster does not allow topics to be deleted."""


class FencedLeaderEpochError(InvalidMetadataError, code=74):
    """The leader epoch of the request is older than the broker's."""


class UnknownLeaderEpochError(RetriableBrokerError, code=75):
    """The leader epoch of the request is newer than the broker's."""


class UnsupportedCompressionTypeError(BrokerError, code=76):
    """The broker or the topic does not support the compression codec."""

    advice: str | None = ADVICE["codec-unsupported"]


class FencedInstanceIdError(BrokerError, code=82):
    """Another member with the same group instance id has taken over."""


class InvalidRecordError(BrokerError, code=87):
    """The broker refused the record."""

    advice: str | None = ADVICE["record-refused"]


class ThrottlingQuotaExceededError(RetriableBrokerError, code=89):
    """The client is over its quota."""

    advice: str | None = ADVICE["over-quota"]


class ProducerFencedError(BrokerError, code=90):
    """A newer producer with the transactional id has taken over, or the transaction timed out."""

    advice: str | None = ADVICE["fenced"]


class ResourceNotFoundError(BrokerError, code=91):
    """The resource does not exist."""


class DuplicateResourceError(BrokerError, code=92):
    """The request names a resource twice."""


class UnacceptableCredentialError(BrokerError, code=93):
    """The credential does not meet the cluster's rules."""


class UnknownTopicIdError(InvalidMetadataError, code=100):
    """The broker does not host this topic id."""


class InconsistentTopicIdError(InvalidMetadataError, code=103):
    """The log's topic id differs from the request's."""


class InconsistentClusterIdError(BrokerError, code=104):
    """The cluster id of the request is not this cluster's."""


class TransactionalIdNotFoundError(BrokerError, code=105):
    """The transactional id does not exist."""


class StaleMemberEpochError(BrokerError, code=113):
    """The member's epoch is out of date."""


class MismatchedEndpointTypeError(BrokerError, code=114):
    """The request went to an endpoint of the wrong kind."""


class UnsupportedEndpointTypeError(BrokerError, code=115):
    """The kind of endpoint is not supported."""


class UnknownSubscriptionIdError(BrokerError, code=117):
    """The telemetry subscription id is not valid or out of date."""


class TelemetryTooLargeError(BrokerError, code=118):
    """The telemetry push is larger than the broker accepts."""


class TransactionAbortableError(BrokerError, code=120):
    """The transaction has failed; aborting it lets the producer go on."""

    advice: str | None = ADVICE["transaction-failed"]


class RebootstrapRequiredError(BrokerError, code=129):
    """The client's view of the cluster is out of date: it must bootstrap anew."""
