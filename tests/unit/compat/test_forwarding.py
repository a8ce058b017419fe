"""Names of the drop-ins that come from the installed clients."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from aioproducer.compat._forwarding import forwarded

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, of how it reads its schemas
    import kafka

CLIENTS = pytest.mark.parametrize(
    ("name", "theirs"),
    [("aiokafka", aiokafka), ("confluent", confluent_kafka), ("kafka", kafka)],
    ids=["aiokafka", "confluent", "kafka"],
)


@CLIENTS
def test_version_is_that_of_the_installed_client(name: str, theirs: object) -> None:
    drop_in = import_module(f"aioproducer.compat.{name}")
    assert drop_in.__version__ == vars(theirs)["__version__"]


@CLIENTS
def test_without_the_client_the_version_is_that_of_its_interface(
    monkeypatch: pytest.MonkeyPatch, name: str, theirs: object
) -> None:
    monkeypatch.setitem(sys.modules, vars(theirs)["__name__"], None)
    drop_in = import_module(f"aioproducer.compat.{name}")
    assert drop_in.__version__ == drop_in._INTERFACE_VERSION


REPLACED = """
import sys
import aioproducer.compat.{name} as ours
sys.modules["{package}"] = ours
import {package}
from {package} import {consumer}, {producer}
assert {consumer}.__module__.partition(".")[0] in ("{package}", "cimpl")
assert {producer} is ours.{producer}
assert {package} is ours
assert {package}.__version__[0].isdigit()
"""


@pytest.mark.parametrize(
    ("name", "package", "consumer", "producer"),
    [
        ("aiokafka", "aiokafka", "AIOKafkaConsumer", "AIOKafkaProducer"),
        ("confluent", "confluent_kafka", "Consumer", "Producer"),
        ("kafka", "kafka", "KafkaConsumer", "KafkaProducer"),
    ],
)
def test_drop_in_in_the_place_of_the_client_in_sys_modules_forwards_its_names(
    name: str, package: str, consumer: str, producer: str
) -> None:
    program = REPLACED.format(name=name, package=package, consumer=consumer, producer=producer)
    command = [sys.executable, "-W", "ignore", "-c", program]
    subprocess.run(command, check=True, timeout=60)


def test_submodule_that_needs_what_is_not_installed_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "a_client_of_kafka"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "registry.py").write_text("import what_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'what_it_needs'"):
        forwarded("registry", "here", "a_client_of_kafka", "a-client-of-kafka")
    with pytest.raises(AttributeError, match=r"neither 'here' nor .* has 'nothing'"):
        forwarded("nothing", "here", "a_client_of_kafka", "a-client-of-kafka")
