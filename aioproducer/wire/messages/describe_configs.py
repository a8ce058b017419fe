"""DescribeConfigs (32): the configuration of topics and brokers (KIP-133).

v1 has the source of a value (KIP-226), v3 its type and documentation (KIP-569). Version 0
is for brokers before 1.1; 4.0 brokers refuse it.
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class DescribeConfigsSynonym(Struct):
    """A less specific key the value would be taken from."""

    name: str = f("string", "1+")
    value: str | None = f("string", "1+", nullable="0+")
    source: int = f("int8", "1+")


@struct
class DescribeConfigsResourceResult(Struct):
    """One configuration value and where it comes from."""

    name: str = f("string", "0+")
    value: str | None = f("string", "0+", nullable="0+")
    read_only: bool = f("bool", "0+")
    is_default: bool = f("bool", "0")
    config_source: int = f("int8", "1+", default=-1, ignorable=True)
    is_sensitive: bool = f("bool", "0+")
    synonyms: list[DescribeConfigsSynonym] = f(array(DescribeConfigsSynonym), "1+", ignorable=True)
    config_type: int = f("int8", "3+", ignorable=True)
    documentation: str | None = f("string", "3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    """The configuration of one resource, or an error in its place."""

    error_code: int = f("int16", "0+")
    error_message: str | None = f("string", "0+", nullable="0+")
    resource_type: int = f("int8", "0+")
    resource_name: str = f("string", "0+")
    configs: list[DescribeConfigsResourceResult] = f(array(DescribeConfigsResourceResult), "0+")


@struct
class DescribeConfigsResponse(
    Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions=(0, 4), flexible_from=4
):
    """The configuration of each resource. From v2 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "0+")
    results: list[DescribeConfigsResult] = f(array(DescribeConfigsResult), "0+")


@struct
class DescribeConfigsResource(Struct):
    """A topic (2), broker (4), broker logger (8), ... and the keys wanted."""

    resource_type: int = f("int8", "0+")
    resource_name: str = f("string", "0+")
    configuration_keys: list[str] | None = f(array("string"), "0+", nullable="0+")


@struct
class DescribeConfigsRequest(Message, response=DescribeConfigsResponse):
    """The resources, and the keys wanted of each (null: all)."""

    resources: list[DescribeConfigsResource] = f(array(DescribeConfigsResource), "0+")
    include_synonyms: bool = f("bool", "1+")
    include_documentation: bool = f("bool", "3+")
