"""Kafka releases, and runs with brokers of two of them, as during a rolling upgrade.

Owns: the versions that each release serves, and which runs have two. Not here: when brokers change.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from aioproducer.testing.broker.settings import ApiVersions, TopicSpec
from aioproducer.testing.broker.transactions.states import V2
from aioproducer.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from aioproducer.testing.world.cluster import SimCluster
    from simulation.scenario import Scenario


def _release(*highest: int) -> ApiVersions:
    versions = {api: (0, version) for api, version in zip(_APIS, highest, strict=True)}
    return versions | {ApiKey.PRODUCE: (3, highest[0])}


_APIS = (
    ApiKey.PRODUCE,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)
_BEFORE_IDS: Final[ApiVersions] = {
    **dict.fromkeys(_APIS),
    ApiKey.PRODUCE: (0, 2),
    ApiKey.METADATA: (0, 2),
    ApiKey.API_VERSIONS: (0, 0),
    ApiKey.LIST_OFFSETS: (0, 1),
}
RELEASES: Final[Mapping[str, ApiVersions]] = {
    "0.9": {
        **_BEFORE_IDS,
        ApiKey.PRODUCE: (0, 1),
        ApiKey.METADATA: (0, 0),
        ApiKey.API_VERSIONS: None,
        ApiKey.LIST_OFFSETS: (0, 0),
    },
    "0.10": _BEFORE_IDS,
    "0.11 without ids": {**_release(3, 4, 1, 1, 0, 0, 0, 0, 0), ApiKey.INIT_PRODUCER_ID: None},
    "0.11": _release(3, 4, 1, 1, 0, 0, 0, 0, 0),
    "2.3": _release(7, 8, 2, 2, 1, 1, 1, 1, 2),
    "2.4": _release(8, 9, 3, 3, 2, 1, 1, 1, 2),
    "2.5": _release(8, 9, 3, 3, 3, 1, 1, 1, 3),
    "2.7": _release(8, 9, 3, 3, 4, 2, 2, 2, 3),
    "2.8": _release(9, 11, 3, 3, 4, 3, 3, 3, 3),
    "3.1": _release(9, 12, 3, 4, 4, 3, 3, 3, 3),
    "3.7": _release(10, 12, 3, 4, 4, 3, 3, 3, 3),
    "3.8": _release(11, 12, 3, 5, 5, 3, 4, 4, 4),
    "4.0": _release(12, 13, 4, 6, 5, 3, 4, 5, 5),
    "4.1": {},
}
"""From the oldest to the newest. Those of 0.9 close the connection on ApiVersions, as 0.8 does.

One takes batches and gives no producer ids, as some do that are not quite Kafka. With a producer id
no record can be sent to brokers of 0.10.
"""

_SHARE = 0.12
"""Of the runs whose theme leaves the versions open."""
_SHARE_OF_OLDEST, _OLDEST = 0.4, 3
"""Of these runs, and how many releases are among the oldest, which change most."""
_WITHOUT_VERSIONS, _WITH_VERSIONS = "0.9", "0.10"
WITHOUT_IDS, _FIRST_WITH_IDS = "0.11 without ids", "0.11"
_FIRST_WITH_ZSTD = "2.3"
_FIRST_WITH_NEXT_EPOCHS = "2.5"
_FIRST_OF_V2: Final = {ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
_SHARE_LOWERED = 0.3
_SHARE_EXPECTED = 0.5
"""Of the runs with brokers that report no versions: the producer has an option that says so."""
_NOT_IDEMPOTENT = ("enable_idempotence", "retries")
"""With these options no producer id is requested."""


def with_two_releases(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the runs with brokers of the older of two releases at first."""
    if rng.random() >= _SHARE or "api_versions" in scenario.brokers:
        return scenario
    names, plan, options = list(RELEASES), scenario.transactions, dict[str, Any](scenario.options)
    first = _WITH_VERSIONS if scenario.session_ms else _WITHOUT_VERSIONS
    if plan is not None:
        first = _FIRST_WITH_NEXT_EPOCHS
    elif options.get("enable_idempotence") or not options.get("allow_auto_create_topics", True):
        first = _FIRST_WITH_IDS
    older = rng.randrange(names.index(first), len(names) - 1)
    if names.index(first) < _OLDEST and rng.random() < _SHARE_OF_OLDEST:
        older = rng.randrange(names.index(first), _OLDEST)
    if older < names.index(_FIRST_WITH_IDS):
        options = {name: each for name, each in options.items() if name not in _NOT_IDEMPOTENT}
        options["acks"] = "all"
    if names[older] == _WITHOUT_VERSIONS:
        scenario = replace(scenario, topics=_with_timestamps_of_clients(scenario.topics))
        if options["compression_type"] == "lz4":  # frames of then have another checksum
            options["compression_type"] = "gzip"
        if rng.random() < _SHARE_EXPECTED:
            options["broker_version_fallback"] = "0.9.0"
    if options["compression_type"] == "zstd" and older < names.index(_FIRST_WITH_ZSTD):
        options["compression_type"] = "gzip"
    versions, releases = RELEASES[names[older]], (names[older], names[older + 1])
    brokers = {**scenario.brokers, "api_versions": versions}
    if not has_v2(versions):
        brokers["transaction_version"] = 1
        plan = plan and replace(plan, version=1)
    return replace(scenario, options=options, brokers=brokers, releases=releases, transactions=plan)


def with_lowered_broker(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the V2 runs with a proxy that lowers the versions of one broker.

    The feature stays finalized.
    """
    plan = scenario.transactions
    if plan is None or plan.version != V2 or scenario.brokers or scenario.releases is not None:
        return scenario
    if rng.random() >= _SHARE_LOWERED:
        return scenario
    api, first = rng.choice([*_FIRST_OF_V2.items()])
    by_broker = {rng.choice(scenario.nodes): {api: (3 if api is ApiKey.PRODUCE else 0, first - 1)}}
    return replace(scenario, brokers={"api_versions_by_broker": by_broker})


def _with_timestamps_of_clients(topics: Mapping[str, TopicSpec]) -> Mapping[str, TopicSpec]:
    """Return the topics without an option that brokers before 0.10 do not have."""
    return {
        name: replace(
            spec,
            configs={
                option: value
                for option, value in spec.configs.items()
                if option != "message.timestamp.type"
            },
        )
        for name, spec in topics.items()
    }


def serves(versions: ApiVersions, api: ApiKey, version: int) -> bool:
    """Return whether a broker with these versions serves this one."""
    found = versions.get(api, (0, version))
    return found is not None and version <= found[1]


def all_serve(cluster: SimCluster, api: ApiKey, version: int) -> bool:
    """Return whether all brokers do."""
    settings = cluster.settings
    return all(serves(settings.api_versions_of(each), api, version) for each in cluster.brokers)


def has_v2(versions: ApiVersions) -> bool:
    """Return whether a broker supports transactions V2 (KIP-890)."""
    return all(serves(versions, api, first) for api, first in _FIRST_OF_V2.items())


def all_have_v2(cluster: SimCluster) -> bool:
    """Return whether all brokers do."""
    return all(has_v2(cluster.settings.api_versions_of(each)) for each in cluster.brokers)
