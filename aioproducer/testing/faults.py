"""`FaultScript`: faults that a test sets for an embedded or simulated cluster.

Invariant: a fault strikes what it names and nothing else, as often as it says; `struck` counts.
"""

from __future__ import annotations

import difflib

from aioproducer.errors import BrokerError, error_for_code
from aioproducer.testing.broker.faults import Fault, Faults, Where
from aioproducer.wire.api_keys import ApiKey

Request = str | ApiKey
"""A kind of request: `produce`, `metadata`, `init_producer_id`, ... as Kafka calls them."""

ErrorName = str | int | type[BrokerError]
"""An error: Kafka's name (`NOT_LEADER_OR_FOLLOWER`), its code, or the class."""

_OLD_NAMES = {
    "NOT_LEADER": "NOT_LEADER_OR_FOLLOWER",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "COORDINATOR_LOADING": "COORDINATOR_LOAD_IN_PROGRESS",
}
_MOST_CODES = 1000


class FaultScript:
    """The faults of a cluster, as `cluster.faults`.

    Examples:
        >>> cluster.faults.next("produce", partition=0).answers("NOT_LEADER_OR_FOLLOWER")
        >>> fault = cluster.faults.every("produce", node_id=2).drops_the_connection()
        >>> fault.struck
        0
        >>> cluster.faults.clear()
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def next(
        self,
        request: Request | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        node_id: int | None = None,
        times: int = 1,
        after: int = 0,
    ) -> Opportunity:
        """Match the next request of a kind, or the next `times` ones.

        Args:
            request: the kind; any when left out.
            topic: only this topic; for coordinators' requests, this transactional id or group.
            partition: only this partition.
            node_id: only at this broker.
            times: how many.
            after: how many pass unharmed before.

        Raises:
            ValueError: there is no such kind of request.
        """
        where = Where(node_id=node_id, times=times, skip=after)
        return Opportunity(self._faults, _api(request), topic, partition, where)

    def every(
        self,
        request: Request | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        node_id: int | None = None,
        after: int = 0,
    ) -> Opportunity:
        """Match every request of a kind, until the fault is removed; arguments as of `next`."""
        where = Where(node_id=node_id, times=None, skip=after)
        return Opportunity(self._faults, _api(request), topic, partition, where)

    def remove(self, fault: Fault) -> None:
        """End a fault early."""
        self._faults.remove(fault)

    def clear(self) -> None:
        """End all faults."""
        self._faults.clear()


class Opportunity:
    """The target of a fault; the method called sets the effect and returns the `Fault`."""

    def __init__(
        self,
        faults: Faults,
        api: ApiKey | None,
        topic: str | None,
        partition: int | None,
        where: Where,
    ) -> None:
        self._faults = faults
        self._api = api
        self._topic = topic
        self._partition = partition
        self._where = where

    def answers(
        self, error: ErrorName, *, after_the_work: bool = False, message: str | None = None
    ) -> Fault:
        """Answer with an error for the topic or partition, or for all in the request.

        Args:
            error: which one.
            after_the_work: whether the request is carried out first: the records are written, and
                the response says that they are not.
            message: the text beside the code, where the answer has room for one.

        Raises:
            ValueError: there is no such error, or it cannot be answered to that kind of request, or
                for a single topic or partition of it.
        """
        if self._api is None:
            raise ValueError("say which kind of request is to be answered with an error")
        return self._faults.error(
            self._api,
            _code(error),
            topic=self._topic,
            partition=self._partition,
            apply=after_the_work,
            message=message,
            **self._where,
        )

    def drops_the_connection(self, *, after_the_work: bool = False) -> Fault:
        """Close the connection instead of responding."""
        return self._faults.drop(self._whole(), apply=after_the_work, **self._where)

    def is_never_answered(self, *, after_the_work: bool = False) -> Fault:
        """Never respond; the connection stays open."""
        return self._faults.swallow(self._whole(), apply=after_the_work, **self._where)

    def is_answered_late(self, delay_ms: int) -> Fault:
        """Apply the request at once, and delay its response and those after it."""
        return self._faults.delay(delay_ms, self._whole(), **self._where)

    def is_throttled(self, throttle_ms: int) -> Fault:
        """Throttle the client (KIP-219)."""
        return self._faults.throttle(throttle_ms, self._whole(), **self._where)

    def answers_garbage(self, frame: bytes = b"\x00\x00\x00\x03\xff\xff\xff") -> Fault:
        """Send bytes that are no response, size prefix included."""
        return self._faults.garble(frame, self._whole(), **self._where)

    def is_cut_off(self, size: int) -> Fault:
        """Send only the first `size` bytes of the response, then close the connection."""
        return self._faults.cut(size, self._whole(), **self._where)

    def _whole(self) -> ApiKey | None:
        if self._topic is not None or self._partition is not None:
            raise ValueError("this happens to a whole request: give no topic and no partition")
        return self._api


def _api(request: Request | None) -> ApiKey | None:
    if request is None or isinstance(request, ApiKey):
        return request
    names = {key.name: key for key in ApiKey}
    name = request.upper().replace("-", "_").replace(" ", "_")
    if name not in names:
        raise ValueError(f"there is no request {request!r}{_nearest(name, names)}")
    return names[name]


def _code(error: ErrorName) -> int:
    if isinstance(error, int):
        return error
    if isinstance(error, type):
        return error.code
    names = {
        found.error_name: code
        for code in range(-1, _MOST_CODES)
        if code != 0 and (found := error_for_code(code)).code == code
    }
    name = _OLD_NAMES.get(error.upper(), error.upper())
    if name not in names:
        raise ValueError(f"there is no error {error!r}{_nearest(name, names)}")
    return names[name]


def _nearest(name: str, known: dict[str, int] | dict[str, ApiKey]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
