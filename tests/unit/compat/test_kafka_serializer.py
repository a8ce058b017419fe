"""kafka-python's serializers here, which its consumers take as well."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest

from aioproducer.compat.kafka.serializer import DefaultSerializer, JsonSerializer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, of how it reads its schemas
    import kafka
    import kafka.serializer


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("name", ["DefaultSerializer", "JsonSerializer"])
def test_values_go_there_and_back_as_with_kafka_python(name: str, encoding: str) -> None:
    own: Any = {"DefaultSerializer": DefaultSerializer, "JsonSerializer": JsonSerializer}[name]
    here, theirs = own(encoding), getattr(kafka.serializer, name)(encoding)
    values = ["é", None] if name == "DefaultSerializer" else [{"a": "é"}, [1], None]
    for value in values:
        data = theirs.serialize("t", [], value)
        assert here.serialize("t", [], value) == data
        assert here.deserialize("t", [], data) == theirs.deserialize("t", [], data) == value


@pytest.mark.parametrize("own", [DefaultSerializer, JsonSerializer])
def test_a_consumer_takes_them_for_deserializers(own: type[DefaultSerializer]) -> None:
    assert isinstance(own(), kafka.serializer.Deserializer)


def test_one_that_was_made_before_the_consumer_was_imported_is_called() -> None:
    program = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from aioproducer.compat import kafka\n"
        "made = kafka.JsonSerializer()\n"
        "wrapped = kafka.serializer.DeserializeWrapper(made)\n"
        "print(wrapped.deserialize('t', [], b'[1]'))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout == "[1]\n"
