"""The placement of new partitions' replicas."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from aioproducer import errors
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import ClusterSettings, TopicSpec

_MAX_PARTITIONS = 10_000
"""What a KRaft controller creates at once (Java: ReplicationControlManager)."""


class Placement:
    """Spreads partitions over brokers, up or down."""

    def __init__(self, node_ids: Collection[int], settings: ClusterSettings) -> None:
        """Place on these brokers; `node_ids` may be a live view."""
        self._node_ids = node_ids
        self._settings = settings
        self._topics = 0

    def next_topic(self) -> None:
        """Begin the next topic at the next broker, or all first partitions would share one."""
        self._topics += 1

    def spread(self, spec: TopicSpec) -> list[Sequence[int]]:
        """Return the replicas of each partition of a topic; refuse impossible counts."""
        count = self._settings.default_partitions if spec.partitions == -1 else spec.partitions
        if count < 1:
            raise RefusedError(
                errors.InvalidPartitionsError, "Number of partitions was set to an invalid value."
            )
        check_partition_count(count)
        brokers, factor = len(self._node_ids), spec.replication_factor
        if factor == -1:
            factor = min(self._settings.default_replication_factor, brokers)
        if not 1 <= factor <= brokers:
            raise RefusedError(
                errors.InvalidReplicationFactorError,
                f"Unable to replicate the partition {factor} time(s): the cluster has "
                f"{brokers} broker(s)",
            )
        return [self.replicas_for(index, factor) for index in range(count)]

    def replicas_for(self, index: int, factor: int) -> list[int]:
        """Return the replicas of one partition of the topic."""
        nodes = sorted(self._node_ids)
        first = self._topics + index
        return [nodes[(first + step) % len(nodes)] for step in range(factor)]

    def assigned(self, assignments: Mapping[int, Sequence[int]]) -> list[Sequence[int]]:
        """Return the replicas that a client chose for each partition; refuse impossible ones."""
        if sorted(assignments) != list(range(len(assignments))):
            raise RefusedError(
                errors.InvalidReplicaAssignmentError,
                "partitions should be a consecutive 0-based integer sequence",
            )
        for replicas in assignments.values():
            unknown = {*replicas} - {*self._node_ids}
            if not replicas or len({*replicas}) < len(replicas) or unknown:
                raise RefusedError(
                    errors.InvalidReplicaAssignmentError, f"impossible replicas {list(replicas)}"
                )
        return [assignments[index] for index in range(len(assignments))]


def check_partition_count(count: int) -> None:
    """Refuse more partitions than a controller creates at once (POLICY_VIOLATION)."""
    if count > _MAX_PARTITIONS:
        raise RefusedError(
            errors.PolicyViolationError, "Excessively large number of partitions per request."
        )
