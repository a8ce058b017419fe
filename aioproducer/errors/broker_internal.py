"""The broker codes that consumers, cluster tools and brokers meet among themselves.

A producer never meets them, yet any code a peer sends finds its class.

Names, codes and families follow Kafka 4.4's `org.apache.kafka.common.protocol.Errors` and its
exceptions (KIP-1050).
"""

from aioproducer.errors.base import (
    AuthorizationError,
    BrokerError,
    InvalidMetadataError,
    RetriableBrokerError,
)


class OffsetOutOfRangeError(BrokerError, code=1):
    """The offset is outside the range the log holds."""


class InvalidFetchSizeError(BrokerError, code=4):
    """The fetch size is not valid."""


class StaleControllerEpochError(BrokerError, code=11):
    """The controller has moved to another broker."""


class InconsistentGroupProtocolError(BrokerError, code=23):
    """The member's protocols do not fit those of its consumer group."""


class InvalidGroupIdError(BrokerError, code=24):
    """The group id is not valid."""


class InvalidSessionTimeoutError(BrokerError, code=26):
    """The session timeout is outside the range the broker allows."""


class RebalanceInProgressError(BrokerError, code=27):
    """The consumer group is rebalancing."""


class TransactionCoordinatorFencedError(BrokerError, code=52):
    """The transaction coordinator has been replaced by a newer one."""


class LogDirNotFoundError(BrokerError, code=57):
    """The broker has no such log directory."""


class ReassignmentInProgressError(BrokerError, code=60):
    """A reassignment of the partition is going on."""


class DelegationTokenAuthDisabledError(BrokerError, code=61):
    """Delegation tokens are switched off on the cluster."""


class DelegationTokenOwnerMismatchError(BrokerError, code=63):
    """The principal neither owns nor may renew the delegation token."""


class DelegationTokenRequestNotAllowedError(BrokerError, code=64):
    """Delegation tokens may not be asked for over this kind of connection."""


class DelegationTokenAuthorizationFailedError(AuthorizationError, code=65):
    """The principal has no right to delegation tokens."""


class InvalidPrincipalTypeError(BrokerError, code=67):
    """The principal type is not supported."""


class NonEmptyGroupError(BrokerError, code=68):
    """The group still has members."""


class FetchSessionIdNotFoundError(RetriableBrokerError, code=70):
    """The fetch session is not known to the broker."""


class InvalidFetchSessionEpochError(RetriableBrokerError, code=71):
    """The epoch of the fetch session is not valid."""


class StaleBrokerEpochError(BrokerError, code=77):
    """The broker's epoch has changed."""


class OffsetNotAvailableError(RetriableBrokerError, code=78):
    """The new leader does not have the offset yet."""


class MemberIdRequiredError(BrokerError, code=79):
    """The member must join with an id given by the coordinator."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, code=80):
    """The preferred leader is not available."""


class GroupMaxSizeReachedError(BrokerError, code=81):
    """The group has reached its maximum size."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, code=83):
    """No replica of the partition may become its leader."""


class ElectionNotNeededError(InvalidMetadataError, code=84):
    """The partition needs no leader election."""


class NoReassignmentInProgressError(BrokerError, code=85):
    """No reassignment of the partition is going on."""


class GroupSubscribedToTopicError(BrokerError, code=86):
    """The group is still subscribed to the topic."""


class UnstableOffsetCommitError(RetriableBrokerError, code=88):
    """Transactions on these offsets are still open."""


class InconsistentVoterSetError(BrokerError, code=94):
    """The sender or the receiver does not belong to the voters."""


class InvalidUpdateVersionError(BrokerError, code=95):
    """The feature update's version is not valid."""


class FeatureUpdateFailedError(BrokerError, code=96):
    """The broker could not update the finalized features."""


class PrincipalDeserializationFailureError(BrokerError, code=97):
    """The controller could not read the forwarded principal."""


class SnapshotNotFoundError(BrokerError, code=98):
    """The snapshot does not exist."""


class PositionOutOfRangeError(BrokerError, code=99):
    """The position is outside the snapshot."""


class DuplicateBrokerRegistrationError(BrokerError, code=101):
    """The broker id is already in use."""


class BrokerIdNotRegisteredError(BrokerError, code=102):
    """The broker id is not registered."""


class FetchSessionTopicIdError(RetriableBrokerError, code=106, name="FETCH_SESSION_TOPIC_ID_ERROR"):
    """The fetch session mixed requests with and without topic ids."""


class IneligibleReplicaError(BrokerError, code=107):
    """The new in-sync set names a replica that may not join it."""


class NewLeaderElectedError(BrokerError, code=108):
    """The partition was changed, but its leader has moved."""


class OffsetMovedToTieredStorageError(BrokerError, code=109):
    """The offset has moved to tiered storage."""


class FencedMemberEpochError(BrokerError, code=110):
    """The coordinator has fenced this member's epoch."""


class UnreleasedInstanceIdError(BrokerError, code=111):
    """Another member still uses the group instance id."""


class UnsupportedAssignorError(BrokerError, code=112):
    """The group does not support the assignor."""


class UnknownControllerIdError(BrokerError, code=116):
    """The controller id is not known."""


class InvalidRegistrationError(BrokerError, code=119):
    """The controller refused the broker's registration."""


class InvalidRecordStateError(BrokerError, code=121):
    """The record's acknowledgement does not fit its state."""


class ShareSessionNotFoundError(RetriableBrokerError, code=122):
    """The share session is not known to the broker."""


class InvalidShareSessionEpochError(RetriableBrokerError, code=123):
    """The epoch of the share session is not valid."""


class FencedStateEpochError(BrokerError, code=124):
    """The state epoch does not match the coordinator's."""


class InvalidVoterKeyError(BrokerError, code=125):
    """The voter key does not match the replica's."""


class DuplicateVoterError(BrokerError, code=126):
    """The voter is in the voter set already."""


class VoterNotFoundError(BrokerError, code=127):
    """The voter is not in the voter set."""


class InvalidRegularExpressionError(BrokerError, code=128):
    """The regular expression is not valid."""


class StreamsInvalidTopologyError(BrokerError, code=130):
    """The streams topology is not valid."""


class StreamsInvalidTopologyEpochError(BrokerError, code=131):
    """The epoch of the streams topology is not valid."""


class StreamsTopologyFencedError(BrokerError, code=132):
    """The epoch of the streams topology is out of date."""


class ShareSessionLimitReachedError(RetriableBrokerError, code=133):
    """The broker holds as many share sessions as it allows."""


class GroupDeletionFailedError(BrokerError, code=134):
    """The group could not be deleted; the message of its result says why."""


class StreamsTopologyDescriptionUpdateFailedError(BrokerError, code=135):
    """The broker could not update the description of the streams topology."""


class ControllerIdNotRegisteredError(BrokerError, code=136):
    """The controller id is not registered."""
