"""Whole runs in which something that changes at the brokers shows a planted fault."""

from __future__ import annotations

import pytest

from aioproducer.core.batching.partitioners import RackPreference
from aioproducer.core.metadata import live_topic
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.errors import UnknownTopicOrPartitionError
from aioproducer.net.link import BrokerLink
from aioproducer.types import TopicMetadata
from simulation.simulation import run_seed


def _found_by(seed: int) -> str:
    return " ".join(violation.text for violation in run_seed(seed).violations)


def test_a_call_that_waits_for_no_topic_to_appear_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    permanent = (*live_topic._PERMANENT, UnknownTopicOrPartitionError)
    monkeypatch.setattr(live_topic, "_PERMANENT", permanent)
    assert "->zz-appearing: UNKNOWN_TOPIC_OR_PARTITION" in _found_by(2)


def test_a_throttle_time_that_is_shortened_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def throttle(self: BrokerLink, until: float) -> None:
        self.throttled_until = until

    monkeypatch.setattr(BrokerLink, "throttle", throttle)
    assert ", and was until" in _found_by(16)


def test_a_rack_that_is_not_looked_up_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions_of = RackPreference.partitions_of

    def partitions_of_same(self: RackPreference, topic: TopicMetadata) -> tuple[int, ...]:
        is_same = self._seen is not None and self._seen[0] is topic
        return self._partitions if is_same else partitions_of(self, topic)

    monkeypatch.setattr(RackPreference, "partitions_of", partitions_of_same)
    assert "are in the client's rack" in _found_by(37)


def test_a_leader_hint_that_is_not_used_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Metadata, "on_leader_hints", lambda *_, **__: False)
    assert "with a leader hint" in _found_by(38)
