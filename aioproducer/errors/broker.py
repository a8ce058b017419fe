"""The broker codes a producer or a topic admin request can meet.

Names, codes and families follow Kafka 4.4's `org.apache.kafka.common.protocol.Errors` and its
exceptions (KIP-1050).
"""

from aioproducer.errors.base import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    InvalidMetadataError,
    RetriableBrokerError,
)


class UnknownServerError(BrokerError, code=-1, name="UNKNOWN_SERVER_ERROR", advice="broker-failed"):
    """The broker met an error it did not expect."""


class CorruptMessageError(RetriableBrokerError, code=2):
    """The records are corrupt: a wrong checksum or size, or no key on a compacted topic."""


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3, advice="topic-missing"):
    """The broker does not host this topic or partition."""


class LeaderNotAvailableError(InvalidMetadataError, code=5, advice="topic-unavailable"):
    """The partition has no leader at the moment: an election is going on."""


class NotLeaderOrFollowerError(InvalidMetadataError, code=6):
    """The broker is not the leader (or not a replica) of the partition."""


class RequestTimedOutError(RetriableBrokerError, code=7):
    """The broker gave up waiting for the request's conditions, such as replication."""


class BrokerNotAvailableError(BrokerError, code=8):
    """The broker is not available."""


class ReplicaNotAvailableError(InvalidMetadataError, code=9):
    """The replica is not available for the partition."""


class RecordTooLargeError(
    BrokerError, code=10, name="MESSAGE_TOO_LARGE", advice="record-too-large"
):
    """The record is larger than what the topic, the broker or the client accepts."""


class OffsetMetadataTooLargeError(BrokerError, code=12):
    """The metadata string of the committed offset is too large."""


class NetworkError(InvalidMetadataError, code=13, name="NETWORK_EXCEPTION"):
    """The connection ended before the response came."""


class CoordinatorLoadInProgressError(RetriableBrokerError, code=14):
    """The coordinator is still loading its state."""


class CoordinatorNotAvailableError(RetriableBrokerError, code=15, advice="coordinator-away"):
    """The coordinator is not available."""


class NotCoordinatorError(RetriableBrokerError, code=16):
    """The broker is not the coordinator asked for."""


class InvalidTopicError(
    BrokerError, code=17, name="INVALID_TOPIC_EXCEPTION", advice="topic-refused"
):
    """The topic's name is not valid, or clients may not use the topic this way."""


class RecordListTooLargeError(BrokerError, code=18, advice="batch-too-large"):
    """The record batch is larger than the topic's log segments."""


class NotEnoughReplicasError(RetriableBrokerError, code=19, advice="too-few-replicas"):
    """Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."""


class NotEnoughReplicasAfterAppendError(RetriableBrokerError, code=20, advice="too-few-replicas"):
    """The records were written, but to fewer in-sync replicas than min.insync.replicas."""


class InvalidRequiredAcksError(BrokerError, code=21, advice="acks-refused"):
    """The request's acks value is not valid."""


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


class InvalidTimestampError(BrokerError, code=32, advice="timestamp-refused"):
    """The record's timestamp is outside the range the topic accepts."""


class UnsupportedSaslMechanismError(
    BrokerError, AuthenticationError, code=33, advice="mechanism-not-offered"
):
    """The broker does not offer the SASL mechanism."""


class IllegalSaslStateError(BrokerError, AuthenticationError, code=34, advice="sasl-not-expected"):
    """The request does not fit the state of the SASL exchange."""


class UnsupportedVersionError(BrokerError, code=35, advice="versions-unsupported"):
    """No version of the request is understood by both sides."""


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


class UnsupportedForMessageFormatError(BrokerError, code=43, advice="format-unsupported"):
    """The broker's message format does not support the request."""


class PolicyViolationError(BrokerError, code=44, advice="policy-violated"):
    """The request breaks a policy of the cluster."""


class OutOfOrderSequenceNumberError(BrokerError, code=45):
    """The sequence number is not the one the broker expects next."""


class DuplicateSequenceNumberError(BrokerError, code=46):
    """The broker holds a batch with this sequence number already."""


class InvalidProducerEpochError(BrokerError, code=47):
    """The producer's epoch is older than the broker's."""


class InvalidTxnStateError(BrokerError, code=48):
    """The transactional operation does not fit the transaction's state, as after its timeout."""


class InvalidProducerIdMappingError(BrokerError, code=49, advice="producer-ended"):
    """The producer id is not the one assigned to the transactional id."""


class InvalidTransactionTimeoutError(BrokerError, code=50, advice="transaction-timeout-too-long"):
    """The transaction timeout is above the broker's transaction.max.timeout.ms."""


class ConcurrentTransactionsError(RetriableBrokerError, code=51):
    """Another operation on the same transaction is still going on."""


class TransactionalIdAuthorizationFailedError(AuthorizationError, code=53):
    """The principal has no right to the transactional id."""


class SecurityDisabledError(BrokerError, code=54, advice="feature-disabled"):
    """The cluster runs without the security feature asked for."""


class OperationNotAttemptedError(BrokerError, code=55):
    """The broker did not try this operation because another one of the request failed."""


class KafkaStorageError(
    InvalidMetadataError, code=56, name="KAFKA_STORAGE_ERROR", advice="storage-failed"
):
    """The broker's disk failed for this partition."""


class SaslAuthenticationFailedError(
    BrokerError, AuthenticationError, code=58, advice="credentials-refused"
):
    """The broker refused the credentials."""


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


class UnsupportedCompressionTypeError(BrokerError, code=76, advice="codec-unsupported"):
    """The broker or the topic does not support the compression codec."""


class FencedInstanceIdError(BrokerError, code=82):
    """Another member with the same group instance id has taken over."""


class InvalidRecordError(BrokerError, code=87, advice="record-refused"):
    """The broker refused the record."""


class ThrottlingQuotaExceededError(RetriableBrokerError, code=89, advice="over-quota"):
    """The client is over its quota."""


class ProducerFencedError(BrokerError, code=90, advice="fenced"):
    """A newer producer with the transactional id has taken over, or the transaction timed out."""


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


class TransactionAbortableError(BrokerError, code=120, advice="transaction-failed"):
    """The transaction has failed; aborting it lets the producer go on."""


class RebootstrapRequiredError(BrokerError, code=129):
    """The client's view of the cluster is out of date: it must bootstrap anew."""
