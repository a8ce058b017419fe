"""Credentials of a schema registry come from the configuration's file or from variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aioproducer.cli import main
from aioproducer.cli.load import avro
from aioproducer.cli.options import Connection
from aioproducer.cli.registry_login import registry_options
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError

SECRET = "hunter2-4711"
URL = "https://registry:8081"


@pytest.mark.parametrize(
    "keys",
    [
        f"schema.registry.url={URL}\nschema.registry.basic.auth.user.info=me:{SECRET}:x\n",
        f"schema.registry.url={URL}\nbasic.auth.credentials.source=USER_INFO\n"
        f"basic.auth.user.info=me:{SECRET}:x\n",
    ],
)
def test_a_file_has_address_and_credentials(keys: str, tmp_path: Path, caplog: Any) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers=b:1\n{keys}")
    connection = Connection(config_file=file)
    assert registry_options(None, connection.registry(), {}) == (
        URL,
        {"basic_auth": ("me", f"{SECRET}:x")},
    )
    assert "registry" not in str(connection.given())
    connection.config()
    assert not caplog.records


def test_a_token_and_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", SECRET)
    file = tmp_path / "client.properties"
    file.write_text(
        "config.providers=env\nschema.registry.bearer.auth.token=${env:REGISTRY_TOKEN}\n"
    )
    allowed = Connection(config_file=file, allow=["env:REGISTRY_*"]).registry()
    assert registry_options(URL, allowed, {}) == (URL, {"bearer_token": SECRET})
    with pytest.raises(ConfigError, match="--allow"):
        Connection(config_file=file).registry()


def test_variables_serve_where_nothing_else_is_given() -> None:
    environ = {
        "AIOPRODUCER_SCHEMA_REGISTRY_URL": URL,
        "AIOPRODUCER_SCHEMA_REGISTRY_USER_INFO": f"me:{SECRET}",
    }
    assert registry_options(None, {}, environ) == (URL, {"basic_auth": ("me", SECRET)})
    given = {"schema.registry.url": "http://other", "schema.registry.bearer.auth.token": "t"}
    assert registry_options(None, given, environ) == ("http://other", {"bearer_token": "t"})
    assert registry_options("http://third", given, environ)[0] == "http://third"
    token = {"AIOPRODUCER_SCHEMA_REGISTRY_TOKEN": SECRET}
    assert registry_options(None, {}, token) == (None, {"bearer_token": SECRET})


def test_variables_of_a_registry_are_no_options_of_a_producer() -> None:
    environ = {
        "AIOPRODUCER_BOOTSTRAP_SERVERS": "b:1",
        "AIOPRODUCER_SCHEMA_REGISTRY_USER_INFO": f"me:{SECRET}",
    }
    assert ProducerConfig.from_env(environ=environ)


def test_malformed_user_info_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="USER:PASSWORD") as raised:
        registry_options(URL, {"schema.registry.basic.auth.user.info": SECRET}, {})
    assert SECRET not in str(raised.value)


def test_a_load_uses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[tuple[str, dict[str, Any]]] = []

    def registry(url: str, **options: Any) -> Any:
        made.append((url, options))
        raise ConfigError("enough")

    monkeypatch.setattr(avro, "SchemaRegistry", registry)
    monkeypatch.setenv("AIOPRODUCER_SCHEMA_REGISTRY_URL", URL)
    monkeypatch.setenv("AIOPRODUCER_SCHEMA_REGISTRY_USER_INFO", f"me:{SECRET}")
    file = tmp_path / "rows.ndjson"
    file.write_text("{}\n")
    assert main(["load", str(file), "--topic", "t", "--value-avro", "latest"]) == 2
    assert made == [(URL, {"basic_auth": ("me", SECRET)})]
    assert SECRET not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "warns"),
    [
        ("0.0.0.0", True),
        ("::", True),
        ("", True),
        ("192.0.2.1", True),
        ("kafka.example", True),
        ("127.0.0.1", False),
        ("127.0.0.2", False),
        ("::1", False),
        ("localhost", False),
    ],
)
def test_a_cluster_that_others_reach_is_warned_of(
    host: str, warns: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from aioproducer.cli import cluster

    monkeypatch.setattr(cluster, "run_command", lambda _: 0)
    assert main(["cluster", "--host", host]) == 0
    assert ("warning: brokers at" in capsys.readouterr().err) is warns
