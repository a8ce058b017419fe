"""ApiVersions (18): the APIs a broker supports, and their versions.

The first request on every connection. A broker that lacks the asked version answers v0 with
UNSUPPORTED_VERSION and, since KIP-511, the versions of ApiVersions it has; that is also why the
response header never has tagged fields. From v3 the client names its software (KIP-511), from v5
the cluster and node it means to talk to (KIP-1242).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class ApiVersion(Struct):
    """One API and the closed range of versions the broker accepts."""

    api_key: int = f("int16", "0+")
    min_version: int = f("int16", "0+")
    max_version: int = f("int16", "0+")


@struct
class SupportedFeatureKey(Struct):
    """A feature level range the broker supports; up to v3 those starting at 0 are left out."""

    name: str = f("string", "3+")
    min_version: int = f("int16", "3+")
    max_version: int = f("int16", "3+")


@struct
class FinalizedFeatureKey(Struct):
    """A feature level range the whole cluster has agreed on."""

    name: str = f("string", "3+")
    max_version_level: int = f("int16", "3+")
    min_version_level: int = f("int16", "3+")


@struct
class ApiVersionsResponse(Message, api_key=ApiKey.API_VERSIONS, versions=(0, 5), flexible_from=3):
    """The versions a broker accepts. From v2 it is sent before the quota delay (KIP-219)."""

    error_code: int = f("int16", "0+")
    api_keys: list[ApiVersion] = f(array(ApiVersion), "0+")
    throttle_time_ms: int = f("int32", "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = f(
        array(SupportedFeatureKey), "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = f("int64", "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = f(
        array(FinalizedFeatureKey), "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = f("bool", "3+", tag=3, ignorable=True)


@struct
class ApiVersionsRequest(Message, response=ApiVersionsResponse):
    """Requests the supported APIs, and names the client."""

    client_software_name: str = f("string", "3+", ignorable=True)
    client_software_version: str = f("string", "3+", ignorable=True)
    cluster_id: str | None = f("string", "5+", nullable="5+", default=None, ignorable=True)
    node_id: int = f("int32", "5+", default=-1, ignorable=True)
