"""Modules of the drop-ins that are the installed clients'."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import confluent_kafka.cimpl
import pytest

import aioproducer.compat.aiokafka

# Clients may warn when they are imported first.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
CLIENTS = {"aiokafka": "aiokafka", "confluent": "confluent_kafka", "kafka": "kafka"}

FORWARDED = [
    "aiokafka.admin",
    "aiokafka.admin.client",
    "aiokafka.client",
    "aiokafka.cluster",
    "aiokafka.codec",
    "aiokafka.conn",
    "aiokafka.consumer",
    "aiokafka.consumer.consumer",
    "aiokafka.coordinator",
    "aiokafka.coordinator.assignors",
    "aiokafka.coordinator.assignors.sticky.sticky_assignor",
    "aiokafka.producer.message_accumulator",
    "aiokafka.protocol.admin",
    "aiokafka.record",
    "aiokafka.record.default_records",
    "aiokafka.util",
    "confluent.admin",
    "confluent.admin._acl",
    "confluent.deserializing_consumer",
    "confluent.kafkatest.verifiable_client",
    "kafka.admin",
    "kafka.cluster",
    "kafka.consumer",
    "kafka.consumer.group",
    "kafka.metrics",
    "kafka.partitioner.default",
    "kafka.util",
]


def run(program: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", FORWARDED)
def test_module_that_is_not_here_is_that_of_the_client(module: str) -> None:
    name, _, rest = module.partition(".")
    ours = import_module(f"aioproducer.compat.{module}")
    assert ours is import_module(f"{CLIENTS[name]}.{rest}")
    assert ours.__spec__ is not None
    assert ours.__spec__.name == f"{CLIENTS[name]}.{rest}"


def test_every_form_of_import_gives_the_module_of_the_client() -> None:
    program = """
import aioproducer.compat.aiokafka as aiokafka
import aioproducer.compat.aiokafka.coordinator.assignors.range as ranges
from aioproducer.compat.aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aioproducer.compat.aiokafka.coordinator.assignors import range as named
from aioproducer.compat.aiokafka import admin
import aiokafka.admin as theirs
print(named is ranges, admin is theirs, AIOKafkaAdminClient is theirs.AIOKafkaAdminClient)
print(aiokafka.coordinator.assignors.range.__name__, admin.__spec__.name)
"""
    assert run(program).split() == [
        *["True"] * 3,
        "aiokafka.coordinator.assignors.range",
        "aiokafka.admin",
    ]


@pytest.mark.parametrize(
    ("module", "name", "ours"),
    [
        ("aiokafka.producer.producer", "AIOKafkaProducer", "aiokafka"),
        ("confluent.aio.producer", "AIOProducer", "confluent"),
        ("confluent.cimpl", "Producer", "confluent"),
        ("confluent.error", "KafkaException", "confluent"),
        ("confluent.serializing_producer", "SerializingProducer", "confluent"),
        ("kafka.producer.kafka", "KafkaProducer", "kafka"),
        ("kafka.producer.future", "FutureRecordMetadata", "kafka.future"),
    ],
)
def test_name_that_is_here_is_ours_in_every_module_that_has_it_there(
    module: str, name: str, ours: str
) -> None:
    found = getattr(import_module(f"aioproducer.compat.{module}"), name)
    assert found is getattr(import_module(f"aioproducer.compat.{ours}"), name)


def test_other_names_of_such_a_module_are_the_clients() -> None:
    cimpl = import_module("aioproducer.compat.confluent.cimpl")
    assert cimpl.NewTopic is confluent_kafka.cimpl.NewTopic
    future = import_module("aioproducer.compat.kafka.future")
    assert future.Future is import_module("kafka.future").Future


def test_module_that_neither_has_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"'aioproducer\.compat\.aiokafka\.nothing'"):
        import_module("aioproducer.compat.aiokafka.nothing")
    assert find_spec("aioproducer.compat.kafka.nothing") is None
    assert find_spec("aioproducer.compat.kafka.__main__") is None


@pytest.mark.parametrize("name", CLIENTS)
def test_without_the_client_the_error_says_what_to_install(name: str) -> None:
    program = f"""
import sys
sys.modules[{CLIENTS[name]!r}] = None
import aioproducer.compat.{name}
try:
    import aioproducer.compat.{name}.admin
except ModuleNotFoundError as error:
    print(error.name, error, sep="|")
"""
    failed, _, text = run(program).partition("|")
    assert failed == f"aioproducer.compat.{name}.admin"
    assert "which is not installed; install " in text


@pytest.mark.parametrize("name", CLIENTS)
def test_without_the_client_every_public_name_is_here(name: str) -> None:
    program = f"""
import sys
sys.modules[{CLIENTS[name]!r}] = None
import aioproducer.compat.{name} as ours
from aioproducer.compat.{name} import *
print(*(set(ours.__all__) - set(dir())), "none is left out")
"""
    assert run(program).strip() == "none is left out"


@pytest.mark.parametrize(
    ("name", "package", "module"),
    [
        ("aiokafka", "aiokafka", "producer"),
        ("confluent", "confluent_kafka", "aio"),
        ("kafka", "kafka", "producer"),
    ],
)
def test_drop_in_in_the_place_of_the_client_has_its_modules(
    name: str, package: str, module: str
) -> None:
    program = f"""
import sys
import aioproducer.compat.{name} as ours
sys.modules["{package}"] = ours
import {package}.admin as other
import {package}.{module} as named
print(named is ours.{module}, other.__name__, sys.modules["{package}"] is ours)
"""
    assert run(program).split() == ["True", f"{package}.admin", "True"]


def test_one_module_in_the_place_of_the_clients_forwards_the_clients_names() -> None:
    program = """
import sys
import kafka, kafka.errors
theirs = kafka.errors
import aioproducer.compat.kafka.errors as ours
sys.modules["kafka.errors"] = ours
from kafka.errors import CommitFailedError
print(CommitFailedError is theirs.CommitFailedError, hasattr(ours, "Nothing"))
"""
    assert run(program).split() == ["True", "False"]


def test_modules_are_found_after_the_package_was_imported_again() -> None:
    program = """
import sys
import aioproducer.compat.kafka.admin
for name in [name for name in sys.modules if name.startswith("aioproducer.compat")]:
    del sys.modules[name]
import aioproducer.compat.kafka.admin as again
print(again.__name__)
"""
    assert run(program).split() == ["kafka.admin"]


PREFERRED = [
    *(("aiokafka", "structs", name) for name in aioproducer.compat.aiokafka.structs.__all__),
    *(("aiokafka", "abc", name) for name in aioproducer.compat.aiokafka.abc.__all__),
    ("aiokafka", "errors", "CommitFailedError"),
    ("aiokafka", "errors", "ConsumerStoppedError"),
    ("aiokafka", "errors", "KafkaError"),
    ("kafka", "errors", "KafkaError"),
    ("kafka", "errors", "KafkaTimeoutError"),
    ("kafka", "structs", "OffsetAndMetadata"),
    ("kafka", "structs", "TopicPartition"),
]


@pytest.mark.parametrize(("name", "module", "each"), PREFERRED)
def test_class_that_a_consumer_checks_for_or_raises_is_that_of_the_installed_client(
    name: str, module: str, each: str
) -> None:
    ours = import_module(f"aioproducer.compat.{name}")
    theirs = getattr(import_module(f"{name}.{module}"), each)
    assert getattr(getattr(ours, module), each) is theirs
    assert each not in ours.__all__ or getattr(ours, each) is theirs


@pytest.mark.parametrize(("name", "module", "each"), PREFERRED)
def test_without_the_client_there_is_a_class_of_the_drop_in(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, each: str
) -> None:
    loaded_modules = [loaded for loaded in sys.modules if loaded.startswith(f"{name}.")]
    for loaded in (name, *loaded_modules):
        monkeypatch.setitem(sys.modules, loaded, None)
    ours = getattr(import_module(f"aioproducer.compat.{name}"), module)
    assert getattr(ours, each).__module__.startswith("aioproducer.")


def test_producer_alone_does_not_import_the_client() -> None:
    program = """
import sys
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.confluent import Producer
from aioproducer.compat.kafka import KafkaProducer
print(sorted({"aiokafka", "confluent_kafka", "kafka"} & set(sys.modules)))
"""
    assert run(program).strip() == "[]"


def test_error_of_a_drop_in_in_the_place_of_the_client_is_of_the_class_that_is_imported() -> None:
    program = """
import sys
import aioproducer.compat.aiokafka as ours
sys.modules["aiokafka"] = ours
from aiokafka.errors import KafkaError, ProducerClosed
from aioproducer.compat.aiokafka._error_base import shared_class
from aioproducer.compat.aiokafka._errors import ProducerClosed as own
print(ProducerClosed is own, issubclass(shared_class(own), ProducerClosed), KafkaError.__module__)
"""
    assert run(program).split() == ["False", "True", "aiokafka.errors"]


@pytest.mark.parametrize("name", ["aiokafka", "kafka"])
def test_all_errors_can_be_listed_and_imported_at_once(name: str) -> None:
    ours, theirs = (
        import_module(f"aioproducer.compat.{name}.errors"),
        import_module(f"{name}.errors"),
    )
    imported: dict[str, object] = {}
    exec(f"from aioproducer.compat.{name}.errors import *", imported)
    names = {each for each in dir(ours) if each.endswith("Error")}
    assert {"KafkaError", "KafkaTimeoutError", "for_code"} <= set(imported)
    assert len(names) > 50
    assert all(imported[each] is getattr(theirs, each, imported[each]) for each in names)


FAILING = [
    """
import asyncio
import aioproducer.compat.aiokafka as aiokafka
try:
    asyncio.run(aiokafka.AIOKafkaProducer(request_timeout_ms=50).send("t"))
except aiokafka.errors.KafkaError as error:
    print(isinstance(error, sys.modules["aiokafka"].errors.KafkaError))
""",
    """
import aioproducer.compat.confluent as confluent_kafka
try:
    confluent_kafka.Producer({"x": 1})
except confluent_kafka.KafkaException as error:
    print(isinstance(error, sys.modules["confluent_kafka"].KafkaException))
""",
    """
import aioproducer.compat.kafka as kafka
try:
    kafka.KafkaProducer(x=1)
except kafka.errors.KafkaError as error:
    print(isinstance(error, sys.modules["kafka"].errors.KafkaError))
""",
]


@pytest.mark.parametrize("program", FAILING, ids=["aiokafka", "confluent", "kafka"])
def test_handler_that_is_the_first_use_of_the_client_catches_the_error(program: str) -> None:
    assert run(f"import sys{program}").strip() == "True"


def test_client_whose_import_fails_does_not_replace_the_error() -> None:
    program = """
import sys
from importlib.abc import MetaPathFinder
class Broken(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == "kafka":
            raise DeprecationWarning(name)
sys.meta_path.insert(0, Broken())
from aioproducer.compat.kafka import KafkaProducer, _errors
try:
    KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=50)
except _errors.KafkaError as error:
    print(type(error) is _errors.NoBrokersAvailable)
"""
    assert run(program).strip() == "True"
