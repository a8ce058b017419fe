"""FindCoordinator (10): the broker that coordinates a group or a transactional id.

v1 adds the kind of key (0 group, 1 transaction, 2 share group), v4 asks for many keys at once
(KIP-699) and moves question and answer into lists.
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class Coordinator(Struct):
    """The coordinator of one key, or an error in its place."""

    key: str = f("string", "4+")
    node_id: int = f("int32", "4+")
    host: str = f("string", "4+")
    port: int = f("int32", "4+")
    error_code: int = f("int16", "4+")
    error_message: str | None = f("string", "4+", nullable="4+", ignorable=True)


@struct
class FindCoordinatorResponse(
    Message, api_key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible_from=3
):
    """The coordinator of the one key (v0-3), or of each key (v4+)."""

    throttle_time_ms: int = f("int32", "1+", ignorable=True)
    error_code: int = f("int16", "0-3")
    error_message: str | None = f("string", "1-3", nullable="1-3", ignorable=True)
    node_id: int = f("int32", "0-3")
    host: str = f("string", "0-3")
    port: int = f("int32", "0-3")
    coordinators: list[Coordinator] = f(array(Coordinator), "4+")


@struct
class FindCoordinatorRequest(Message, response=FindCoordinatorResponse):
    """Names one key (v0-3) or many (v4+) whose coordinator is wanted."""

    key: str = f("string", "0-3")
    key_type: int = f("int8", "1+")
    coordinator_keys: list[str] = f(array("string"), "4+")
