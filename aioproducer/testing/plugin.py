"""The pytest plugin: brokers, a mock and virtual time as fixtures.

Invariant: loading it imports nothing but pytest and the package's own names; a fixture imports
what it needs when a test asks for it.

    embedded_kafka           three brokers in a thread, fresh for each test
    embedded_kafka_session   the same, shared by the whole run
    mock_producer            a MockProducer
    run_virtual              runs a test's coroutine on virtual time
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aioproducer.testing.mock_producer import MockProducer
    from aioproducer.testing.threaded import ThreadedCluster

_MARKER = "embedded_kafka"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(**arguments): how the fixture embedded_kafka is made: brokers=1, "
        'topics={"orders": 3} and what else EmbeddedCluster takes',
    )


@pytest.fixture
def embedded_kafka(request: pytest.FixtureRequest) -> Iterator[ThreadedCluster]:
    """Yield three Kafka brokers for this test, on free ports; see the marker of the same name."""
    from aioproducer.testing.threaded import ThreadedCluster

    with ThreadedCluster(**_arguments_of(request.node.iter_markers(_MARKER))) as cluster:
        yield cluster


def _arguments_of(markers: Iterable[pytest.Mark]) -> dict[str, Any]:
    """Return the arguments of a test's markers, the nearest first."""
    arguments: dict[str, Any] = {}
    for marker in markers:
        if marker.args:
            raise pytest.UsageError(
                f"the marker {_MARKER} takes arguments with names, such as brokers=1, "
                f"not {marker.args!r}"
            )
        arguments = {**marker.kwargs, **arguments}
    return arguments


@pytest.fixture(scope="session")
def embedded_kafka_session() -> Iterator[ThreadedCluster]:
    """Yield three Kafka brokers for all tests: each test uses different topics."""
    from aioproducer.testing.threaded import ThreadedCluster

    with ThreadedCluster() as cluster:
        yield cluster


@pytest.fixture
def mock_producer() -> MockProducer:
    """Return a `MockProducer` that acknowledges at once; start and close it like any other."""
    from aioproducer.testing.mock_producer import MockProducer

    return MockProducer()


@pytest.fixture(name="run_virtual")
def run_virtual_fixture() -> Callable[..., Any]:
    """`aioproducer.testing.run_virtual`."""
    from aioproducer.testing.virtual import run_virtual

    return run_virtual
