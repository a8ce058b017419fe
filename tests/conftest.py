"""Shared parts of all tests: the event loop, the clusters, the watch over leaks.

    AIOPRODUCER_TEST_LOOP=asyncio|uvloop   the event loop of async tests
    AIOPRODUCER_TEST_PROFILE=dev|ci        how thoroughly hypothesis searches (ci where CI is set)
    PYTHONASYNCIODEBUG=1                   asyncio's debug mode, in every test's loop

`aioproducer.testing.kafka.backends` names the variables that choose the real cluster.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Literal

import hypothesis
import pytest
import pytest_asyncio
from support.clusters import ClusterUnderTest, embedded_cluster, real_cluster
from support.leaks import no_leaks

from aioproducer.testing.kafka import ClusterError, KafkaBackend, choose_backend

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LoopScope = Literal["function", "class", "module", "session"]

_BACKEND = pytest.StashKey[KafkaBackend]()
_LOOP_VARIABLE = "AIOPRODUCER_TEST_LOOP"

# The user's own options, such as AIOPRODUCER_BOOTSTRAP_SERVERS, must not reach the tests.
for _name in [each for each in os.environ if each.startswith("AIOPRODUCER_")]:
    if not _name.startswith(("AIOPRODUCER_IMPL", "AIOPRODUCER_TEST_")):
        del os.environ[_name]

hypothesis.settings.register_profile("dev", max_examples=50, deadline=None)
hypothesis.settings.register_profile(
    "ci", max_examples=200, deadline=None, derandomize=True, print_blob=True
)
hypothesis.settings.load_profile(
    os.environ.get("AIOPRODUCER_TEST_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


def pytest_configure(config: pytest.Config) -> None:
    _loop_name()  # a wrong name is refused before anything runs
    if os.environ.get("PYTHONASYNCIODEBUG"):
        # pytest-asyncio sets each loop's debug mode from its own option alone.
        config.option.asyncio_debug = True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Tests with Spark go to one process: a session costs more than all of them."""
    from xdist.scheduler import LoadFileScheduling

    class OneSparkSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else super()._split_scope(nodeid)

    return OneSparkSession(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Leave what collecting has made, a million objects, out of all later collections."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    return f"event loop: {_loop_name()}"


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> str:
    """Say which real cluster the tests get, where any test wants one."""
    if not any(item.get_closest_marker("kafka") for item in items):
        return "real Kafka: not needed"
    try:
        config.stash[_BACKEND] = backend = choose_backend()
    except ClusterError as error:
        raise pytest.UsageError(
            f"tests need real Kafka (`-m 'not kafka'` leaves them out): {error}"
        ) from error
    return f"real Kafka: {backend.backend}: {backend.description}"


def pytest_asyncio_loop_factories() -> Mapping[str, LoopFactory]:
    if _loop_name() == "uvloop":
        import uvloop

        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


def _loop_name() -> str:
    name = os.environ.get(_LOOP_VARIABLE) or "asyncio"
    if name not in {"asyncio", "uvloop"}:
        raise pytest.UsageError(f"{_LOOP_VARIABLE} must be asyncio or uvloop, not {name!r}")
    return name


@pytest.fixture(scope="session")
def kafka_cluster(pytestconfig: pytest.Config) -> Iterator[KafkaBackend]:
    """Three real Kafka brokers, started once, at the first test that wants them."""
    backend = pytestconfig.stash.get(_BACKEND, None) or choose_backend()
    with backend:
        yield backend


@pytest.fixture
def kafka(kafka_cluster: KafkaBackend) -> ClusterUnderTest:
    """The real brokers, with the same interface as `cluster`."""
    return real_cluster(kafka_cluster)


@pytest_asyncio.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[ClusterUnderTest]:
    """A cluster of three brokers: each test that asks for it runs on both kinds."""
    if request.param == "kafka":
        yield real_cluster(request.getfixturevalue("kafka_cluster"))
    else:
        async with embedded_cluster() as embedded:
            yield embedded


@pytest.fixture(autouse=True)
def _leak_watch(request: pytest.FixtureRequest) -> None:
    """Watch the loop of every async test; set up before, so ended after, its other fixtures."""
    if pytest_asyncio.is_async_test(request.node):
        marker = request.node.get_closest_marker("asyncio")
        scope = (marker.kwargs.get("loop_scope") if marker else None) or "function"
        request.getfixturevalue(f"_no_leaks_in_{scope}_loop")


def _leak_watch_in(scope: LoopScope) -> object:
    """The watch has to run on the loop of the test."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_no_leaks_in_{scope}_loop")
    async def watch() -> AsyncIterator[None]:
        async with no_leaks():
            yield

    return watch


_function_watch = _leak_watch_in("function")
_class_watch = _leak_watch_in("class")
_module_watch = _leak_watch_in("module")
_session_watch = _leak_watch_in("session")


@pytest.fixture(scope="module", autouse=True)
def _unclosed_resources() -> Iterator[None]:
    """Collect garbage once a module, so that a ResourceWarning names the module it came from.

    What is left belongs to the whole session: later collections need not walk it again.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C interrupts, even where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
