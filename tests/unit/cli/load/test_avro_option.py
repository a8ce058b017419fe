"""`--value-avro`: which schema it means, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.load import avro
from aioproducer.cli.load.avro import avro_encoder
from aioproducer.errors import ConfigError, SchemaRegistryError
from aioproducer.serializers import SchemaRegistry
from aioproducer.testing import StubSchemaRegistry

SCHEMA = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]},
)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--schema-registry", "http://x"], "go with --value-avro"),
        (["--register-schema"], "go with --value-avro"),
        (["--ignore-schema-rules"], "go with --value-avro"),
        (["--value-avro", "latest"], "needs --schema-registry"),
        (["--value-avro", "latest", "--register-schema", "--schema-registry", "http://x"], "FILE"),
        (["--value-avro", "none.avsc", "--schema-registry", "http://x"], "No such file"),
        (["--value-json", "--raw"], "--value-json excludes"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(
    arguments: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_text("{}\n")
    assert main(["load", str(file), "--topic", "t", *arguments]) == ExitCode.USAGE
    assert reason in capsys.readouterr().err


def test_a_file_and_the_newest_schema_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = StubSchemaRegistry()

    def registry(url: str, **options: Any) -> SchemaRegistry:
        return SchemaRegistry(url, transport=stub.transport, **options)

    monkeypatch.setattr(avro, "SchemaRegistry", registry)
    file = tmp_path / "row.avsc"
    file.write_text(SCHEMA)
    made = avro_encoder(str(file), "http://stub", "t", register=True)
    assert made is not None
    assert made({"a": "5"}) == b"\0" + made.schema_id.to_bytes(4, "big") + b"\x0a"
    assert avro_encoder("latest", "http://stub", "t", register=False) == made
    file.write_text('"string"')
    with pytest.raises(ConfigError):
        avro_encoder(str(file), "http://stub", "other", register=True)


def test_rules_for_writers_are_ignored_only_with_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stub = StubSchemaRegistry()
    rules = {"encodingRules": [{"name": "protect", "type": "ENCRYPT_PAYLOAD", "mode": "WRITE"}]}
    stub.register("t-value", SCHEMA, ruleSet=rules)
    monkeypatch.setattr(
        avro, "SchemaRegistry", lambda url: SchemaRegistry(url, transport=stub.transport)
    )
    with pytest.raises(SchemaRegistryError, match="--ignore-schema-rules"):
        avro_encoder("latest", "http://stub", "t", register=False)
    assert avro_encoder("latest", "http://stub", "t", register=False, ignore_rules=True)
