"""Rules about a topic's health, by its description."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from aioproducer import errors
from aioproducer.cli.checkup.findings import CheckFailedError, Finding, Status
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.errors.authorization import this_principal, with_access
from aioproducer.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

MIN_IN_SYNC = "min.insync.replicas"

_NUMBER = re.compile("[0-9]{1,10}")
_WRITE = 4
"""Its number in Java's AclOperation."""
_NOT_RETURNED = -(2**31)
_NO_LEADER = -1
_MOST_NAMED = 8

_BY_CODE: Mapping[int, str] = {
    errors.UnknownTopicOrPartitionError.code: "topic-missing",
    errors.InvalidTopicError.code: "topic-name-invalid",
    errors.TopicAuthorizationFailedError.code: "topic-unauthorized",
}


def topic_findings(
    name: str,
    topic: MetadataResponseTopic | None,
    configs: Mapping[str, str] | None,
    *,
    acks: str,
    principal: str = this_principal(),
) -> Iterator[Finding]:
    """Yield the findings about a topic; `configs` are None if reading them is not allowed."""
    code = errors.UnknownTopicOrPartitionError.code if topic is None else topic.error_code
    if topic is None or (code and code != errors.LeaderNotAvailableError.code):
        yield _missing(name, code, principal).finding("topic", name)
        return
    failures = list(_failures(topic, configs or {}, acks=acks))
    for failure in failures:
        yield failure.finding("topic", name)
    if not failures:
        yield Finding.good("topic", name, _summary(topic, configs))


def write_permission(
    name: str, topic: MetadataResponseTopic, principal: str = this_principal()
) -> Finding:
    """Check whether this principal may write, according to the broker (KIP-430)."""
    allowed = topic.topic_authorized_operations
    if allowed == _NOT_RETURNED:
        return Finding.skipped(
            "authorization",
            name,
            "brokers before 2.3 do not say what one may do",
            "try it with --write",
        )
    if not allowed & 1 << _WRITE:
        found = f"{principal} may not WRITE to the topic"
        return CheckFailedError("write-unauthorized", found).finding("authorization", name)
    return Finding.good("authorization", name, f"{principal} may WRITE to the topic")


def _missing(name: str, code: int, principal: str) -> CheckFailedError:
    error = with_access(errors.error_from_code(code), "Metadata", lambda: principal)
    known = _BY_CODE.get(code, "topic-unavailable")
    advice = f"create it: aioproducer topics create {name}" if known == "topic-missing" else None
    return CheckFailedError(known, error.without_advice(), advice)


def _failures(
    topic: MetadataResponseTopic, configs: Mapping[str, str], *, acks: str
) -> Iterator[CheckFailedError]:
    headless = [each for each in topic.partitions if each.leader_id == _NO_LEADER]
    if headless:
        yield CheckFailedError(
            "partition-without-leader",
            f"{_named(headless)} without a leader: nothing can be written there",
            exit_code=ExitCode.UNREACHABLE,
        )
    configured = configs.get(MIN_IN_SYNC, "")
    needed = int(configured) if _NUMBER.fullmatch(configured) else 0
    scarce = [each for each in topic.partitions if len(each.isr_nodes) < needed]
    if scarce:
        yield CheckFailedError(
            "too-few-in-sync",
            f"{_named(scarce)} with fewer replicas in sync than {MIN_IN_SYNC}={needed}",
            status=Status.FAIL if acks == "all" else Status.WARN,
        )
    lagging = [
        each for each in topic.partitions if needed <= len(each.isr_nodes) < len(each.replica_nodes)
    ]
    if lagging:
        yield CheckFailedError(
            "under-replicated", f"{_named(lagging)} with replicas out of sync", status=Status.WARN
        )


def _named(partitions: Iterable[MetadataResponsePartition]) -> str:
    numbers = sorted(each.partition_index for each in partitions)
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
    return f"partition{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _summary(topic: MetadataResponseTopic, configs: Mapping[str, str] | None) -> str:
    replicas = {len(each.replica_nodes) for each in topic.partitions}
    parts = [
        f"{len(topic.partitions)} partition(s)",
        f"{'/'.join(map(str, sorted(replicas)))} replica(s), all in sync",
    ]
    if configs is None:
        parts.append(f"{MIN_IN_SYNC} may not be seen")
    elif MIN_IN_SYNC in configs:
        parts.append(f"{MIN_IN_SYNC}={configs[MIN_IN_SYNC]}")
    return ", ".join(parts)
