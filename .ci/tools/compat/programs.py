"""Programs whose tests are run, and the places of these tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    """A project whose tests use a producer.

    Attributes:
        name: Its distribution, with extras where the tests need them.
        version: The release whose tests are run.
        repository: Where its tests are, if the source distribution has none.
        tag: The tag of the release there.
        tests: The files, or folders of them, relative to the sources.
        needs: What the tests import.
        marked: An expression for pytest's `-m`.
        stand_ins: Files of this folder that take a place in the sources.
        kept: Where a file goes whose place a stand-in takes.
    """

    name: str
    version: str
    repository: str
    tag: str
    tests: tuple[str, ...]
    needs: tuple[str, ...]
    marked: str = ""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """The name of its distribution."""
        return self.name.partition("[")[0]

    @property
    def package(self) -> str:
        """The folder of its code in the sources."""
        return {"kafka-python": "kafka", "confluent-kafka": "src"}.get(self.short, self.short)


_PYTEST = ("pytest>=9,<9.1", "pytest-asyncio==1.3.0", "pytest-timeout>=2.4")

PROGRAMS = (
    Program(
        "aiokafka",
        "0.14.0",
        "https://github.com/aio-libs/aiokafka",
        "v0.14.0",
        (
            "tests/test_producer.py",
            "tests/test_transactional_producer.py",
            "tests/test_transactional_consumer.py",
            "tests/test_message_accumulator.py",
            "tests/test_partitioner.py",
            "tests/test_pep492.py",
            "tests/test_admin.py",
            "tests/test_sasl.py",
            "tests/test_consumer.py",
        ),
        (*_PYTEST, "confluent-kafka", "docker", "pytest-mock"),
        stand_ins={"aiokafka_conftest.py": "tests/conftest.py"},
        kept={"tests/conftest.py": "tests/their_conftest.py"},
    ),
    Program(
        "kafka-python",
        "3.0.12",
        "https://github.com/dpkp/kafka-python",
        "3.0.12",
        ("test/integration/test_producer_integration.py",),
        (*_PYTEST, "py", "pytest-mock"),
        stand_ins={
            "kafka_python_package.py": "test/__init__.py",
            "kafka_python_service.py": "test/service.py",
        },
    ),
    Program(
        "kstreams",
        "0.33.1",
        "https://github.com/kpn/kstreams",
        "0.33.1",
        ("tests",),
        (
            *_PYTEST,
            "pytest-httpserver",
            "pytest-benchmark",
            "aiorun",
            "fastapi",
            "starlette-prometheus",
            "uvicorn",
        ),
    ),
    Program(
        "faststream[kafka,cli,otel,prometheus]",
        "0.7.4",
        "https://github.com/ag2ai/faststream",
        "0.7.4",
        ("tests/brokers/kafka",),
        (
            *_PYTEST,
            "dirty-equals",
            "email-validator",
            "fastapi",
            "freezegun",
            "httpx",
            "msgspec",
            "opentelemetry-sdk",
            "psutil",
            "pydantic-settings",
            "pytest-rerunfailures",
            "python-multipart",
            "PyYAML",
            "uvicorn",
        ),
        marked="kafka",
    ),
    # Left out: `test_AIOProducer.py`, each of whose tests puts mocks in the place of the private
    # producer and buffer of theirs; `test_log.py`, which reads librdkafka's own log; and
    # `test_Wakeable.py`, where a test that fails leaves its SIGINT to the next ones.
    Program(
        "confluent-kafka[avro,schemaregistry]",
        "2.15.0",
        "https://github.com/confluentinc/confluent-kafka-python",
        "v2.15.0",
        (
            "tests/test_Producer.py",
            "tests/test_kafka_error.py",
            "tests/test_misc.py",
            "tests/test_threads.py",
        ),
        _PYTEST,
    ),
)
