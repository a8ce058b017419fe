"""Structs that more than one message contains.

Kafka's schemas declare them once per message, in equal shape; the versions that have them are those
of the field that holds them.
"""

from __future__ import annotations

from aioproducer.wire.schema import Struct, f, struct


@struct
class LeaderIdAndEpoch(Struct):
    """The leader of a partition in the broker's metadata, -1 if it has none (KIP-951)."""

    leader_id: int = f("int32", "0+", default=-1)
    leader_epoch: int = f("int32", "0+", default=-1)


@struct
class NodeEndpoint(Struct):
    """The address of a leader named in the same response (KIP-951)."""

    node_id: int = f("int32", "0+")
    host: str = f("string", "0+")
    port: int = f("int32", "0+")
    rack: str | None = f("string", "0+", nullable="0+", default=None)
