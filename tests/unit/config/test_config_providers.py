"""Placeholders in properties are looked up where providers are declared, and nowhere else."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError

JAVAS = "org.apache.kafka.common.config.provider."


def read(**properties: str) -> ProducerConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return ProducerConfig.from_properties(
        {"bootstrap.servers": "localhost:9092", **named}, allow=("env", "file")
    )


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KAFKA_NAME", "s3cret ${env:HOME}")
    return "s3cret ${env:HOME}"


def test_variables_are_looked_up_once_amid_other_text(secret: str) -> None:
    config = read(config_providers="env", client_id="a-${env:KAFKA_NAME}-${other:KAFKA_NAME}")
    assert config.client_id == f"a-{secret}-${{other:KAFKA_NAME}}"
    assert "config_providers" not in config.explicitly_set


def test_without_providers_a_placeholder_is_text(secret: str) -> None:
    assert read(client_id="${env:KAFKA_NAME}").client_id == "${env:KAFKA_NAME}"


def test_variables_of_the_process_may_have_placeholders(secret: str) -> None:
    config = ProducerConfig.from_env(
        environ={
            "AIOPRODUCER_BOOTSTRAP_SERVERS": "localhost:9092",
            "AIOPRODUCER_CONFIG_PROVIDERS": "env",
            "AIOPRODUCER_CLIENT_ID": "${env:KAFKA_NAME}",
        },
        allow=["env:KAFKA_*"],
    )
    assert config.client_id == secret


@pytest.mark.parametrize("shape", [list, tuple])
def test_providers_and_values_may_be_in_a_sequence(
    shape: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BROKER", "one")
    config = ProducerConfig.from_properties(
        {
            "config.providers": shape(["file", " env "]),
            "bootstrap.servers": shape(["${env:KAFKA_BROKER}:1", "two:2"]),
        },
        allow=("env",),
    )
    assert config.bootstrap_servers == ("one:1", "two:2")


def test_name_that_is_no_text_is_refused_beside_providers() -> None:
    with pytest.raises(ConfigError, match="must be a str, not 1"):
        ProducerConfig.from_properties({1: "x", "config.providers": "env"})  # type: ignore[dict-item]


def test_no_providers_are_none() -> None:
    properties = {"bootstrap.servers": "one:1", "config.providers": None, "client.id": "${env:A}"}
    assert ProducerConfig.from_properties(properties).client_id == "${env:A}"


def test_file_of_entries_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("user = jane\n", encoding="utf-8-sig")
    config = read(config_providers="file", client_id=f"${{file:{tmp_path}/a.properties:user}}")
    assert config.client_id == "jane"


@pytest.mark.parametrize("provider", ["file", "dir"])
def test_file_that_is_not_utf_8_is_named_as_the_reason(provider: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"user=\xff")
    place = {"file": f"{tmp_path}/a:user", "dir": f"{tmp_path}:a"}[provider]
    with pytest.raises(ConfigError, match="the file is not UTF-8"):
        read(config_providers=provider, client_id=f"${{{provider}:{place}}}")


def test_entries_of_files_and_whole_files_are_looked_up(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("user = jane\n", encoding="utf-8")
    (tmp_path / "b").write_text("doe", encoding="utf-8")
    config = read(
        **{
            "config.providers": "f, dir",
            "config.providers.f.class": f"{JAVAS}FileConfigProvider",
            "client.id": f"${{f:{tmp_path}/a.properties:user}}.${{dir:{tmp_path}:b}}",
        }
    )
    assert config.client_id == "jane.doe"


def test_a_properties_file_may_name_providers(tmp_path: Path, secret: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=localhost:9092\nconfig.providers=e\n"
        f"config.providers.e.class={JAVAS}EnvVarConfigProvider\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=u\n"
        "sasl.password=${e:KAFKA_NAME}\n",
        encoding="utf-8",
    )
    config = ProducerConfig.from_file(path, allow=["env:KAFKA_NAME"])
    assert config.sasl_password == secret
    assert secret not in repr(config)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("${env:NO_SUCH_NAME}", "no such variable"),
        ("${env:path:KAFKA_NAME}", "have no path"),
        ("${file:KAFKA_NAME}", "the file is not named"),
        ("${file:/no/such/file:x}", "No such file"),
        ("${dir:/etc:..}", "name of a file"),
        ("${dir:/etc:a/b}", "name of a file"),
    ],
)
def test_what_cannot_be_looked_up_is_an_error(value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        read(config_providers="env,file,dir", client_id=value)
    assert caught.value.__cause__ is None


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ConfigError, match="vault is none of env, file, dir"):
        read(config_providers="vault", client_id="${vault:a}")
    with pytest.raises(ConfigError, match="left out in Python"):
        ProducerConfig(bootstrap_servers="localhost:9092", config_providers=["env"])


def test_what_may_be_looked_up_can_be_limited(tmp_path: Path, secret: str) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "x").write_text("kept", encoding="utf-8")
    limits = {
        "config.providers": "dir,env",
        "config.providers.dir.param.allowed.paths": str(inside),
        "config.providers.env.param.allowlist.pattern": "KAFKA_.*",
    }
    assert read(**limits, client_id=f"${{dir:{inside}:x}}").client_id == "kept"
    assert read(**limits, client_id="${env:KAFKA_NAME}").client_id == secret
    for path in (outside, inside / ".." / "out"):
        with pytest.raises(ConfigError, match="leaves it out"):
            read(**limits, client_id=f"${{dir:{path}:x}}")
    with pytest.raises(ConfigError, match="leaves it out"):
        read(**limits, client_id="${env:PATH}")


def test_a_value_that_was_looked_up_is_in_no_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"s3cret\xff")
    with pytest.raises(ConfigError) as caught:
        read(config_providers="dir", client_id=f"${{dir:{tmp_path}:x}}")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
