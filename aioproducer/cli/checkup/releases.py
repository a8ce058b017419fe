"""The release of Kafka that a broker seems to be, by the versions it offers.

Brokers do not report their release. Each release raised the highest version of some request, or
brought a new one; the newest such version a broker offers is the release it has at least (comments
in Java's messages name the KIP of each change).
"""

from __future__ import annotations

from aioproducer.net.versions import BrokerVersions
from aioproducer.wire.api_keys import ApiKey

_MARKS: tuple[tuple[str, ApiKey, int], ...] = (
    ("4.4", ApiKey.API_VERSIONS, 5),
    ("4.1", ApiKey.PRODUCE, 13),
    ("4.0", ApiKey.PRODUCE, 12),
    ("3.9", ApiKey.LIST_OFFSETS, 9),
    ("3.8", ApiKey.FIND_COORDINATOR, 5),
    ("3.7", ApiKey.FETCH, 16),
    ("3.6", ApiKey.LIST_OFFSETS, 8),
    ("3.5", ApiKey.FETCH, 15),
    ("3.3", ApiKey.DESCRIBE_LOG_DIRS, 4),
    ("3.2", ApiKey.JOIN_GROUP, 8),
    ("3.1", ApiKey.FETCH, 13),
    ("3.0", ApiKey.LIST_OFFSETS, 7),
    ("2.8", ApiKey.DESCRIBE_CLUSTER, 0),
    ("2.7", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0),
    ("2.6", ApiKey.DESCRIBE_CLIENT_QUOTAS, 0),
    ("2.5", ApiKey.INIT_PRODUCER_ID, 3),
    ("2.4", ApiKey.METADATA, 9),
    ("2.3", ApiKey.FETCH, 11),
    ("2.2", ApiKey.ELECT_LEADERS, 0),
    ("2.1", ApiKey.FETCH, 10),
    ("2.0", ApiKey.FETCH, 8),
    ("1.1", ApiKey.FETCH, 7),
    ("1.0", ApiKey.METADATA, 5),
    ("0.11", ApiKey.METADATA, 4),
    ("0.10.2", ApiKey.OFFSET_FETCH, 2),
    ("0.10.1", ApiKey.METADATA, 2),
    ("0.10.0", ApiKey.API_VERSIONS, 0),
)


def guessed_release(versions: BrokerVersions) -> str:
    """Return the newest release that the broker is known to be at least."""
    for release, api, at_least in _MARKS:
        if versions.highest(api) >= at_least:
            return release
    return "0.9"
