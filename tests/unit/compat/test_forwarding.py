"""Names of the drop-ins that come from the installed clients."""

from __future__ import annotations

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
