"""IncrementalAlterConfigs (44): changes single configuration values (KIP-339).

What is not named keeps its value, unlike with the older AlterConfigs, which is not declared here.
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class AlterConfigsResourceResponse(Struct):
    """The result of the changes for one resource."""

    error_code: int = f("int16", "0+")
    error_message: str | None = f("string", "0+", nullable="0+")
    resource_type: int = f("int8", "0+")
    resource_name: str = f("string", "0+")


@struct
class IncrementalAlterConfigsResponse(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible_from=1
):
    """The results of each resource's changes."""

    throttle_time_ms: int = f("int32", "0+")
    responses: list[AlterConfigsResourceResponse] = f(array(AlterConfigsResourceResponse), "0+")


@struct
class AlterableConfig(Struct):
    """One change: set (0), delete (1), append (2) or subtract (3)."""

    name: str = f("string", "0+")
    config_operation: int = f("int8", "0+")
    value: str | None = f("string", "0+", nullable="0+")


@struct
class AlterConfigsResource(Struct):
    """The changes for one resource."""

    resource_type: int = f("int8", "0+")
    resource_name: str = f("string", "0+")
    configs: list[AlterableConfig] = f(array(AlterableConfig), "0+")


@struct
class IncrementalAlterConfigsRequest(Message, response=IncrementalAlterConfigsResponse):
    """The changes for each resource."""

    resources: list[AlterConfigsResource] = f(array(AlterConfigsResource), "0+")
    validate_only: bool = f("bool", "0+")
