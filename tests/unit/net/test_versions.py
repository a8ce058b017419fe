"""The choice of versions, and the side that obeys a throttle time."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import UnsupportedVersionError
from aioproducer.net.responses import BareFrame
from aioproducer.net.versions import BrokerVersions, client_obeys_throttle
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.messages.produce import ProduceRequest

version = st.integers(0, 20)


@given(a=version, b=version, lowest=version, highest=st.none() | version)
def test_the_choice_is_the_highest_common_version_or_none(
    a: int, b: int, lowest: int, highest: int | None
) -> None:
    low, high = min(a, b), max(a, b)
    ours = range(MetadataRequest.VALID_VERSIONS[0], MetadataRequest.VALID_VERSIONS[1] + 1)
    common = {v for v in ours if low <= v <= high and v >= lowest}
    common = {v for v in common if highest is None or v <= highest}
    versions = BrokerVersions({ApiKey.METADATA: (low, high)})
    if common:
        assert versions.choose(MetadataRequest, lowest, highest) == max(common)
    else:
        with pytest.raises(UnsupportedVersionError, match=f"versions {low} to {high}"):
            versions.choose(MetadataRequest, lowest, highest)


def test_without_bounds_the_choice_is_any_version_of_the_client() -> None:
    for only in MetadataRequest.VALID_VERSIONS:
        assert BrokerVersions({ApiKey.METADATA: (only, only)}).choose(MetadataRequest) == only


def test_a_message_without_an_api_key_has_no_version() -> None:
    versions = BrokerVersions(dict.fromkeys((-2, -1, 0, 1), (0, 99)))
    with pytest.raises(UnsupportedVersionError, match=r"version of BareFrame: .* supports nothing"):
        versions.choose(BareFrame)


@pytest.mark.parametrize("lowest", [0, 2])
def test_the_highest_version_of_a_broker_is_minus_one_for_an_api_that_it_lacks(lowest: int) -> None:
    versions = BrokerVersions({ApiKey.METADATA: (lowest, 99)})
    assert versions.highest(ApiKey.METADATA) == 99
    assert versions.highest(ApiKey.PRODUCE) == -1


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 5)])
def test_a_range_of_one_version_is_valid(low: int, high: int) -> None:
    assert BrokerVersions({ApiKey.METADATA: (low, high)}).ranges == {ApiKey.METADATA: (low, high)}


def test_versions_without_features_are_older_than_those_of_any_epoch() -> None:
    versions = BrokerVersions({})
    assert (versions.features, versions.features_epoch) == ({}, -1)


@pytest.mark.parametrize(("low", "high"), [(3, 2), (14, 99), (-2, -1), (0, -1)])
def test_an_impossible_range_has_no_version_and_concerns_no_other_api(low: int, high: int) -> None:
    versions = BrokerVersions({ApiKey.METADATA: (low, high), ApiKey.PRODUCE: (3, 9)})
    assert versions.choose(ProduceRequest) == 9
    with pytest.raises(UnsupportedVersionError, match=f"METADATA: .* versions {low} to {high}"):
        versions.choose(MetadataRequest)


@pytest.mark.parametrize(
    ("key", "first"),
    [
        (ApiKey.PRODUCE, 6),
        (ApiKey.FETCH, 8),
        (ApiKey.LIST_OFFSETS, 3),
        (ApiKey.METADATA, 6),
        (ApiKey.OFFSET_COMMIT, 4),
        (ApiKey.OFFSET_FETCH, 4),
        (ApiKey.FIND_COORDINATOR, 2),
        (ApiKey.API_VERSIONS, 2),
        (ApiKey.CREATE_TOPICS, 3),
        (ApiKey.DELETE_TOPICS, 2),
        (ApiKey.INIT_PRODUCER_ID, 1),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 1),
        (ApiKey.ADD_OFFSETS_TO_TXN, 1),
        (ApiKey.END_TXN, 1),
        (ApiKey.TXN_OFFSET_COMMIT, 1),
        (ApiKey.DESCRIBE_CONFIGS, 2),
        (ApiKey.CREATE_PARTITIONS, 1),
        (ApiKey.DESCRIBE_CLUSTER, 0),
    ],
)
def test_the_client_waits_from_the_version_on_that_brokers_do_not(key: ApiKey, first: int) -> None:
    assert client_obeys_throttle(key, first)
    assert not client_obeys_throttle(key, first - 1)


def test_the_versions_of_a_broker_import_no_message() -> None:
    loaded = f"""
        import sys
        from {BrokerVersions.__module__} import BrokerVersions
        messages = {{name for name in sys.modules if ".wire.messages." in name}}
        BrokerVersions(dict.fromkeys(range(100), (0, 9)))
        print({{name for name in sys.modules if ".wire.messages." in name}} - messages)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(loaded)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"
