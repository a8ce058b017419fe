"""Version ranges of a broker, and the choice of the highest common version.

Invariants: a chosen version is in the range of the client, the broker and the caller; an error
names all ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer.errors import UnsupportedVersionError
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.schema import Message

_MUTED_FROM: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.CREATE_PARTITIONS: 1,
}
"""KIP-219: before these versions the broker itself delays the response, so the client must not wait
as well. For an API that is not listed, the client obeys every throttle time
(Java: AbstractResponse.shouldClientThrottle)."""


_FIRST_OF_TRANSACTIONS_V2: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 12,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}
"""The first versions of the requests of transactions V2 (KIP-890)."""


def client_obeys_throttle(api_key: ApiKey, version: int) -> bool:
    """Return whether the client has to obey a throttle time in this response (KIP-219)."""
    return version >= _MUTED_FROM.get(api_key, 0)


class BrokerVersions:
    """The version ranges one broker advertised on one connection.

    `features` are the finalized levels of the cluster (KIP-584), as of `features_epoch`.
    """

    __slots__ = ("features", "features_epoch", "ranges")

    def __init__(
        self,
        ranges: Mapping[int, tuple[int, int]],
        *,
        features: Mapping[str, int] = MappingProxyType({}),
        features_epoch: int = -1,
    ) -> None:
        """Create it from `{api key: (lowest, highest)}` and `{feature: level}`.

        An impossible range, such as 3 to 2, has no version; the other APIs can be used.
        """
        self.ranges: Mapping[int, tuple[int, int]] = ranges
        self.features: Mapping[str, int] = features
        self.features_epoch: int = features_epoch

    def highest(self, api: ApiKey) -> int:
        """Return the highest version of the broker, even if the client lacks it; -1 for none."""
        return self.ranges[api][1] if api in self.ranges else -1

    @property
    def has_transactions_v2(self) -> bool:
        """Whether the broker supports the requests of transactions V2."""
        return all(self.highest(api) >= v for api, v in _FIRST_OF_TRANSACTIONS_V2.items())

    def choose(
        self,
        request_type: type[Message],
        lowest: int = 0,
        highest: int | None = None,
        *,
        node_id: int | None = None,
    ) -> int:
        """Return the highest version that the broker, the client and the caller support."""
        key = request_type.API_KEY
        ours_low, ours_high = request_type.VALID_VERSIONS
        low = max(ours_low, lowest)
        high = ours_high if highest is None else min(ours_high, highest)
        theirs = None if key is None else self.ranges.get(key)
        if theirs is not None:
            version = min(high, theirs[1])
            if version >= max(low, theirs[0]):
                return version
        name = request_type.__name__ if key is None else key.name
        offer = "nothing" if theirs is None else f"versions {theirs[0]} to {theirs[1]}"
        raise UnsupportedVersionError(
            f"no common version of {name}: the broker supports {offer}, "
            f"this client needs versions {low} to {high}",
            node_id=node_id,
        )
