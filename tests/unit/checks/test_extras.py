"""An error names the extra that is missing, and no other module imports what it brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Importing what no extra was installed for; the finder comes before those that would find it.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
OTHERS = (
    "cryptography",
    "fastapi",
    "fastavro",
    "httpx",
    "jsonschema",
    "msgspec",
    "opentelemetry",
    "orjson",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pyspark",
    "regex",
    "rich",
    "starlette",
    "typer",
    "uvloop",
)


def reported(statement: str) -> str:
    """The last line of what Python says of a statement where no extra is installed."""
    return run(WITHOUT.format(names=OTHERS) + statement)


def run(code: str) -> str:
    """The last line of what Python says of a program."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    last = (done.stderr.strip() or "nothing").splitlines()[-1]
    return last.partition(". Did you mean:")[0]  # Python 3.15 adds it


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("aioproducer.fastapi", "fastapi", "fastapi"),
        ("aioproducer.starlette", "starlette", "starlette"),
        ("aioproducer.metrics.prometheus", "prometheus_client", "metrics"),
        ("aioproducer.metrics.opentelemetry", "opentelemetry", "otel"),
        ("aioproducer.spark.source", "pyspark", "spark"),
    ],
)
def test_a_module_says_which_extra_it_needs(module: str, package: str, extra: str) -> None:
    assert reported(f"import {module}") == (
        f"ModuleNotFoundError: {module} needs the package {package}: "
        f"pip install 'aioproducer[{extra}]'"
    )


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [
        ("SchemaRegistry('http://registry')", "httpx", "aioproducer[schema-registry]"),
        ("AvroSerializer(None, 'string')", "fastavro", "aioproducer[schema-registry]"),
        ("JsonSchemaSerializer(None, {})", "jsonschema", "aioproducer[schema-registry]"),
        ("PydanticSerializer(int)", "pydantic", "pydantic>=2"),
    ],
)
def test_a_serializer_says_which_package_it_needs(make: str, package: str, extra: str) -> None:
    line = reported(f"from aioproducer.serializers import *; {make}")
    assert line.startswith(f"aioproducer.errors.ConfigError: the package {package} is needed ")
    assert line.endswith(f"-> pip install '{extra}'")


def test_everything_else_is_imported_without_any_extra() -> None:
    modules = "aioproducer, aioproducer.blocking, aioproducer.compat.aiokafka, aioproducer.loader"
    modules += ", aioproducer.serializers, aioproducer.spark, aioproducer.testing"
    assert reported(f"import {modules}") == "nothing"


@pytest.mark.parametrize(
    ("content", "module", "reason"),
    [
        ("sql/__init__.py", "aioproducer.spark.source", "No module named 'pyspark.sql.datasource'"),
        (
            "sql/datasource.py",
            "aioproducer.spark.writers",
            "cannot import name 'DataSourceArrowWriter' from 'pyspark.sql.datasource'",
        ),
    ],
)
def test_the_error_of_an_older_package_asks_for_a_newer_one(
    tmp_path: Path, content: str, module: str, reason: str
) -> None:
    file = tmp_path / "pyspark" / content
    file.parent.mkdir(parents=True)
    for each in (tmp_path / "pyspark" / "__init__.py", file.with_name("__init__.py"), file):
        each.touch()
    last = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {module}")
    beginning = (
        f"Error: {module} needs a newer version of pyspark: pip install 'aioproducer[spark]'"
    )
    assert f"{beginning} ({reason}" in last
