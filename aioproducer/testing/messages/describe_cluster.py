"""DescribeCluster (60): brokers, controller and id of the cluster (KIP-700).

v1 can ask about controllers (KIP-919), v2 about fenced brokers (KIP-1073).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class DescribeClusterBroker(Struct):
    """A broker and the address clients reach it at."""

    broker_id: int = f("int32", "0+")
    host: str = f("string", "0+")
    port: int = f("int32", "0+")
    rack: str | None = f("string", "0+", nullable="0+", default=None)
    is_fenced: bool = f("bool", "2+")


@struct
class DescribeClusterResponse(
    Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_from=0
):
    """The cluster in the metadata of the answering broker."""

    throttle_time_ms: int = f("int32", "0+")
    error_code: int = f("int16", "0+")
    error_message: str | None = f("string", "0+", nullable="0+", default=None)
    endpoint_type: int = f("int8", "1+", default=1)
    cluster_id: str = f("string", "0+")
    controller_id: int = f("int32", "0+", default=-1)
    brokers: list[DescribeClusterBroker] = f(array(DescribeClusterBroker), "0+")
    cluster_authorized_operations: int = f("int32", "0+", default=-(2**31))


@struct
class DescribeClusterRequest(Message, response=DescribeClusterResponse):
    """Asks about the cluster."""

    include_cluster_authorized_operations: bool = f("bool", "0+")
    endpoint_type: int = f("int8", "1+", default=1)
    include_fenced_brokers: bool = f("bool", "2+")
