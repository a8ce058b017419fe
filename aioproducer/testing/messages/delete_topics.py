"""DeleteTopics (20): deletes topics.

v5 explains errors and may answer THROTTLING_QUOTA_EXCEEDED (KIP-599), v6 deletes by name or by id
(KIP-516). Version 0 is for brokers before 0.11; 4.0 brokers refuse it.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class DeletableTopicResult(Struct):
    """The result for one topic."""

    name: str | None = f("string", "0+", nullable="6+")
    topic_id: UUID = f("uuid", "6+", ignorable=True)
    error_code: int = f("int16", "0+")
    error_message: str | None = f("string", "5+", nullable="5+", default=None, ignorable=True)


@struct
class DeleteTopicsResponse(Message, api_key=ApiKey.DELETE_TOPICS, versions=(0, 6), flexible_from=4):
    """The result for each topic. From v2 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "1+", ignorable=True)
    responses: list[DeletableTopicResult] = f(array(DeletableTopicResult), "0+")


@struct
class DeleteTopicState(Struct):
    """A topic to delete, by name or, with a null name, by id."""

    name: str | None = f("string", "6+", nullable="6+", default=None)
    topic_id: UUID = f("uuid", "6+")


@struct
class DeleteTopicsRequest(Message, response=DeleteTopicsResponse):
    """The topics to delete: names alone (v0-5), or names or ids (v6+)."""

    topics: list[DeleteTopicState] = f(array(DeleteTopicState), "6+")
    topic_names: list[str] = f(array("string"), "0-5", ignorable=True)
    timeout_ms: int = f("int32", "0+")
