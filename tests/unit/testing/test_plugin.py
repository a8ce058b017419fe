"""The marker of the pytest plugin; other tests use its fixtures."""

from __future__ import annotations

import pytest

from aioproducer.testing.plugin import _arguments_of


def test_the_nearest_marker_has_the_last_word() -> None:
    of_test = pytest.mark.embedded_kafka(brokers=1).mark
    of_module = pytest.mark.embedded_kafka(brokers=5, topics={"orders": 3}).mark
    assert _arguments_of([of_test, of_module]) == {"brokers": 1, "topics": {"orders": 3}}
    assert _arguments_of([]) == {}


def test_an_argument_without_a_name_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match=r"such as brokers=1, not \(1,\)"):
        _arguments_of([pytest.mark.embedded_kafka(1).mark])
