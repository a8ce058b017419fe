from __future__ import annotations

import pytest

from aioproducer.cli.checkup.releases import guessed_release
from aioproducer.net.versions import BrokerVersions
from aioproducer.wire.api_keys import ApiKey

PRODUCE, FETCH, OFFSETS, METADATA = 0, 1, 2, 3
REAL = {
    "0.10.2": {PRODUCE: 2, FETCH: 3, OFFSETS: 1, METADATA: 2, 9: 2, 18: 0},
    "0.11": {PRODUCE: 3, FETCH: 5, OFFSETS: 2, METADATA: 4, 9: 3, 18: 1, 22: 0},
    "2.8": {PRODUCE: 9, FETCH: 12, OFFSETS: 6, METADATA: 11, 11: 7, 18: 3, 22: 4, 35: 2, 60: 0},
    "3.9": {PRODUCE: 11, FETCH: 17, OFFSETS: 9, METADATA: 12, 10: 6, 18: 4, 60: 1, 75: 0},
    "4.1": {PRODUCE: 13, FETCH: 18, OFFSETS: 11, METADATA: 13, 10: 6, 18: 4, 60: 2},
    "4.4": {PRODUCE: 13, FETCH: 18, OFFSETS: 11, METADATA: 13, 10: 6, 18: 5, 60: 2},
}
"""The highest versions that these releases' message definitions name."""


@pytest.mark.parametrize("release", REAL)
def test_a_release_is_recognized_by_the_newest_feature_it_has(release: str) -> None:
    highest = REAL[release]
    versions = BrokerVersions({key: (0, version) for key, version in highest.items()})
    assert guessed_release(versions) == release


def test_a_broker_that_reports_no_versions_is_an_old_one() -> None:
    assert guessed_release(BrokerVersions({ApiKey.METADATA: (0, 0)})) == "0.9"
