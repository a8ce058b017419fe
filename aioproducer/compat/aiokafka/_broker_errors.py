"""Errors of brokers by aiokafka's names: a class per code of aiokafka 0.14."""

from aioproducer.compat.aiokafka._error_base import BrokerResponseError

# ruff: noqa: N818 - the names are aiokafka's


class NoError(BrokerResponseError, errno=0, message="NO_ERROR"):
    """Nothing is wrong; the code 0."""


class UnknownError(BrokerResponseError, errno=-1):
    """A code without a class, or an internal failure of the broker."""


class OffsetOutOfRangeError(BrokerResponseError, errno=1):
    """The offset is outside the range the log holds."""


class CorruptRecordException(BrokerResponseError, errno=2, message="CORRUPT_MESSAGE"):
    """The records are corrupt: a wrong checksum or size, or no key on a compacted topic."""


class UnknownTopicOrPartitionError(BrokerResponseError, errno=3, stale=True):
    """The broker does not host this topic or partition."""


class InvalidFetchRequestError(BrokerResponseError, errno=4, message="INVALID_FETCH_SIZE"):
    """The fetch size is not valid."""


class LeaderNotAvailableError(BrokerResponseError, errno=5, stale=True):
    """The partition has no leader at the moment: an election is going on."""


class NotLeaderForPartitionError(BrokerResponseError, errno=6, stale=True):
    """The broker is not the leader (or not a replica) of the partition."""


class RequestTimedOutError(BrokerResponseError, errno=7, retriable=True):
    """The broker gave up waiting for the request's conditions, such as replication."""


class BrokerNotAvailableError(BrokerResponseError, errno=8):
    """The broker is not available."""


class ReplicaNotAvailableError(BrokerResponseError, errno=9):
    """The replica is not available for the partition."""


class MessageSizeTooLargeError(BrokerResponseError, errno=10):
    """The record is larger than what the topic, the broker or the client accepts."""


class StaleControllerEpochError(BrokerResponseError, errno=11):
    """The controller has moved to another broker."""


class OffsetMetadataTooLargeError(BrokerResponseError, errno=12):
    """The metadata string of the committed offset is too large."""


class StaleLeaderEpochCodeError(BrokerResponseError, errno=13):
    """The leader's epoch is out of date."""


class GroupLoadInProgressError(
    BrokerResponseError, errno=14, message="COORDINATOR_LOAD_IN_PROGRESS", retriable=True
):
    """The coordinator is still loading its state."""


class GroupCoordinatorNotAvailableError(
    BrokerResponseError, errno=15, message="COORDINATOR_NOT_AVAILABLE", retriable=True
):
    """The coordinator is not available."""


class NotCoordinatorForGroupError(
    BrokerResponseError, errno=16, message="NOT_COORDINATOR", retriable=True
):
    """The broker is not the coordinator asked for."""


class InvalidTopicError(BrokerResponseError, errno=17):
    """The topic's name is not valid, or clients may not use the topic this way."""


class RecordListTooLargeError(BrokerResponseError, errno=18):
    """The record batch is larger than the topic's log segments."""


class NotEnoughReplicasError(BrokerResponseError, errno=19, retriable=True):
    """Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."""


class NotEnoughReplicasAfterAppendError(BrokerResponseError, errno=20, retriable=True):
    """The records were written, but to fewer in-sync replicas than min.insync.replicas."""


class InvalidRequiredAcksError(BrokerResponseError, errno=21):
    """The request's acks value is not valid."""


class IllegalGenerationError(BrokerResponseError, errno=22):
    """The consumer group's generation is not the current one."""


class InconsistentGroupProtocolError(BrokerResponseError, errno=23):
    """The member's protocols do not fit those of its consumer group."""


class InvalidGroupIdError(BrokerResponseError, errno=24):
    """The group id is not valid."""


class UnknownMemberIdError(BrokerResponseError, errno=25):
    """The coordinator has no such group member."""


class InvalidSessionTimeoutError(BrokerResponseError, errno=26):
    """The session timeout is outside the range the broker allows."""


class RebalanceInProgressError(BrokerResponseError, errno=27):
    """The consumer group is rebalancing."""


class InvalidCommitOffsetSizeError(BrokerResponseError, errno=28):
    """The committed offset data is larger than the broker allows."""


class TopicAuthorizationFailedError(BrokerResponseError, errno=29):
    """The principal has no right to the topic."""


class GroupAuthorizationFailedError(BrokerResponseError, errno=30):
    """The principal has no right to the consumer group."""


class ClusterAuthorizationFailedError(BrokerResponseError, errno=31):
    """The principal has no right to this operation on the cluster."""


class InvalidTimestampError(BrokerResponseError, errno=32):
    """The record's timestamp is outside the range the topic accepts."""


class UnsupportedSaslMechanismError(BrokerResponseError, errno=33):
    """The broker does not offer the SASL mechanism."""


class IllegalSaslStateError(BrokerResponseError, errno=34):
    """The request does not fit the state of the SASL exchange."""


class UnsupportedVersionError(BrokerResponseError, errno=35):
    """No version of the request is understood by both sides."""


class TopicAlreadyExistsError(BrokerResponseError, errno=36):
    """A topic of this name exists already."""


class InvalidPartitionsError(BrokerResponseError, errno=37):
    """The number of partitions is not valid."""


class InvalidReplicationFactorError(BrokerResponseError, errno=38):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicationAssignmentError(BrokerResponseError, errno=39):
    """The replica assignment is not valid."""


class InvalidConfigurationError(BrokerResponseError, errno=40, message="INVALID_CONFIG"):
    """The configuration is not valid."""


class NotControllerError(BrokerResponseError, errno=41, retriable=True):
    """The broker is not the controller."""


class InvalidRequestError(BrokerResponseError, errno=42):
    """The broker could not make sense of the request; its log says more."""


class UnsupportedForMessageFormatError(BrokerResponseError, errno=43):
    """The broker's message format does not support the request."""


class PolicyViolationError(BrokerResponseError, errno=44):
    """The request breaks a policy of the cluster."""


class OutOfOrderSequenceNumber(BrokerResponseError, errno=45):
    """The sequence number is not the one the broker expects next."""


class DuplicateSequenceNumber(BrokerResponseError, errno=46):
    """The broker holds a batch with this sequence number already."""


class InvalidProducerEpoch(BrokerResponseError, errno=47):
    """The producer's epoch is older than the broker's."""


class InvalidTxnState(BrokerResponseError, errno=48):
    """The transactional operation does not fit the transaction's state, as after its timeout."""


class InvalidProducerIdMapping(BrokerResponseError, errno=49):
    """The producer id is not the one assigned to the transactional id."""


class InvalidTransactionTimeout(BrokerResponseError, errno=50):
    """The transaction timeout is above the broker's transaction.max.timeout.ms."""


class ConcurrentTransactions(BrokerResponseError, errno=51):
    """Another operation on the same transaction is still going on."""


class TransactionCoordinatorFenced(BrokerResponseError, errno=52):
    """The transaction coordinator has been replaced by a newer one."""


class TransactionalIdAuthorizationFailed(BrokerResponseError, errno=53):
    """The principal has no right to the transactional id."""


class SecurityDisabled(BrokerResponseError, errno=54):
    """The cluster runs without the security feature asked for."""


class OperationNotAttempted(BrokerResponseError, errno=55):
    """The broker did not try this operation because another one of the request failed."""


class KafkaStorageError(BrokerResponseError, errno=56, message="KAFKA_STORAGE_ERROR", stale=True):
    """The broker's disk failed for this partition."""


class LogDirNotFound(BrokerResponseError, errno=57):
    """The broker has no such log directory."""


class SaslAuthenticationFailed(BrokerResponseError, errno=58):
    """The broker refused the credentials."""


class UnknownProducerId(BrokerResponseError, errno=59):
    """The broker has no such producer id; its records may have been deleted."""


class ReassignmentInProgress(BrokerResponseError, errno=60):
    """A reassignment of the partition is going on."""


class DelegationTokenAuthDisabled(BrokerResponseError, errno=61):
    """Delegation tokens are switched off on the cluster."""


class DelegationTokenNotFound(BrokerResponseError, errno=62):
    """The broker has no such delegation token."""


class DelegationTokenOwnerMismatch(BrokerResponseError, errno=63):
    """The principal neither owns nor may renew the delegation token."""


class DelegationTokenRequestNotAllowed(BrokerResponseError, errno=64):
    """Delegation tokens may not be asked for over this kind of connection."""


class DelegationTokenAuthorizationFailed(BrokerResponseError, errno=65):
    """The principal has no right to delegation tokens."""


class DelegationTokenExpired(BrokerResponseError, errno=66):
    """The delegation token has expired."""


class InvalidPrincipalType(BrokerResponseError, errno=67):
    """The principal type is not supported."""


class NonEmptyGroup(BrokerResponseError, errno=68):
    """The group still has members."""


class GroupIdNotFound(BrokerResponseError, errno=69):
    """The group does not exist."""


class FetchSessionIdNotFound(BrokerResponseError, errno=70):
    """The fetch session is not known to the broker."""


class InvalidFetchSessionEpoch(BrokerResponseError, errno=71):
    """The epoch of the fetch session is not valid."""


class ListenerNotFound(BrokerResponseError, errno=72):
    """The leader has no listener of the kind the metadata was asked on."""


class MemberIdRequired(BrokerResponseError, errno=79):
    """The member must join with an id given by the coordinator."""


InvalidMessageError = CorruptRecordException
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError
