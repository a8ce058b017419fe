"""Properties read no file and fetch no token, unless the application allows it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aioproducer
from aioproducer import ProducerConfig, blocking
from aioproducer.cli.options import Connection
from aioproducer.cli.registry_login import registry_options
from aioproducer.config.permissions import Permissions, pass_on
from aioproducer.config.providers import with_values
from aioproducer.errors import ConfigError
from aioproducer.spark.options import SourceOptions

EVIL = {"bootstrap.servers": "evil.example:9092"}
OAUTH = {
    **EVIL,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "x",
}


class Reporter:
    """Code that properties name."""

    def init(self, metrics: object) -> None:
        """See `MetricsReporter`."""


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2-4711")
    monkeypatch.delenv("AIOPRODUCER_ALLOW", raising=False)
    (tmp_path / "secret").write_text("password=hunter2-4711\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    return tmp_path


def hostile(folder: Path) -> dict[str, dict[str, str]]:
    java = "org.apache.kafka.common.config.provider"
    file = f"{folder}/secret"
    return {
        "env": {**EVIL, "config.providers": "env", "client.id": "${env:DATABASE_PASSWORD}"},
        "env with underscores": {
            **EVIL,
            "config_providers": "env",
            "client_id": "${env:DATABASE_PASSWORD}",
        },
        "env of Java": {
            **EVIL,
            "config.providers": "e",
            "config.providers.e.class": f"{java}.EnvVarConfigProvider",
            "config.providers.e.param.allowlist.pattern": ".*",
            "client.id": "${e:DATABASE_PASSWORD}",
        },
        "file": {**EVIL, "config.providers": "file", "client.id": f"${{file:{file}:password}}"},
        "dir": {**EVIL, "config.providers": "dir", "client.id": f"${{dir:{folder}:secret}}"},
        "a path that properties allow": {
            **EVIL,
            "config.providers": "dir",
            "config.providers.dir.param.allowed.paths": str(folder),
            "client.id": f"${{dir:{folder}:secret}}",
        },
        "reporter": {**EVIL, "metric.reporters": f"{__name__}.Reporter"},
        "reporter by underscores": {**EVIL, "metric_reporters": f"JmxReporter,{__name__}.Reporter"},
        "token file": {**OAUTH, "sasl.oauthbearer.token.endpoint.url": f"file://{file}"},
        "token file in capitals": {
            **OAUTH,
            "sasl.oauthbearer.token.endpoint.url": f"FILE://{file}",
        },
        "metadata service": {
            **OAUTH,
            "sasl.oauthbearer.token.endpoint.url": "http://169.254.169.254/latest/token",
        },
        "internal": {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "http://localhost:8080/x"},
        "https": {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token"},
        "url by underscores": {
            **OAUTH,
            "sasl_oauthbearer_token_endpoint_url": "https://issuer.example/token",
        },
        "assertion": {**OAUTH, "sasl.oauthbearer.assertion.file": file},
        "key": {**OAUTH, "sasl.oauthbearer.assertion.private.key.file": file},
        "template": {**OAUTH, "sasl.oauthbearer.assertion.template.file": file},
        "template of librdkafka": {
            **OAUTH,
            "sasl.oauthbearer.assertion.jwt.template.file": file,
        },
    }


NAMES = list(hostile(Path("/x")))


def by_file(properties: dict[str, str], folder: Path) -> object:
    path = folder / "properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return ProducerConfig.from_file(path)


def by_command_line(properties: dict[str, str], folder: Path) -> object:
    by_file_path = folder / "properties"
    by_file_path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return Connection(config_file=by_file_path).config()


WAYS: dict[str, Callable[[dict[str, str], Path], object]] = {
    "properties": lambda given, _: ProducerConfig.from_properties(given),
    "producer": lambda given, _: aioproducer.Producer(given),
    "blocking": lambda given, _: blocking.Producer(given),
    "file": by_file,
    "environment": lambda given, _: ProducerConfig.from_env(
        environ={f"AIOPRODUCER_{k.replace('.', '_').upper()}": v for k, v in given.items()}
    ),
    "command line": by_command_line,
    "spark": lambda given, _: SourceOptions.parse(
        {"topic": "t", **{f"kafka.{name}": value for name, value in given.items()}}, "write"
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_read_or_asked_by_default(way: str, name: str, secrets: Path) -> None:
    if way == "environment" and "Java" in name:
        pytest.skip("the names of variables have no dots")
    with pytest.raises(ConfigError) as raised:
        WAYS[way](hostile(secrets)[name], secrets)
    assert "hunter2" not in str(raised.value)
    if way == "properties":
        assert "allow=[" in str(raised.value)
        assert "--allow" in str(raised.value)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_application_allows_is_read(name: str, secrets: Path) -> None:
    given = hostile(secrets)[name]
    if name in ("assertion", "key", "template", "template of librdkafka"):
        given["sasl.oauthbearer.token.endpoint.url"] = "https://issuer.example/token"
    config = ProducerConfig.from_properties(given, allow=("env", "file", "url", "class"))
    if "${" in str(given):
        assert "hunter2-4711" in config.client_id


@pytest.mark.parametrize(
    ("allow", "name"),
    [
        ("env:DATABASE_*", "env"),
        ("file:{folder}", "file"),
        ("file:{folder}/secret", "dir"),
        ("file://{folder}", "token file"),
        ("https://issuer.example/token", "https"),
        ("HTTPS://Issuer.Example:443/token", "https"),
        ("https://issuer.example", "https"),
        ("env:X,https://issuer.example/", "https"),
        (f"class:{__name__}.*", "reporter"),
    ],
)
def test_a_permission_can_be_narrow(allow: str, name: str, secrets: Path) -> None:
    allowed = allow.format(folder=secrets)
    for given in (allowed, allowed.split(",")):
        assert ProducerConfig.from_properties(hostile(secrets)[name], allow=given)


@pytest.mark.parametrize(
    ("allow", "name"),
    [
        ("env:KAFKA_*", "env"),
        ("env:database_*", "env"),
        ("file:{folder}/other", "file"),
        ("file:{folder}/sec", "dir"),
        ("env", "file"),
        ("file", "env"),
        (f"class:{__name__}", "reporter"),
        ("class:ours.*", "reporter by underscores"),
        ("file", "reporter"),
        ("url", "token file"),
        ("file", "https"),
        ("http://issuer.example/token", "https"),
        ("https://issuer.example:8443/token", "https"),
        ("https://issuer.example/tok", "https"),
        ("https://issuer.example.evil/token", "https"),
        ("https://example/token", "https"),
    ],
)
def test_a_narrow_permission_allows_nothing_else(allow: str, name: str, secrets: Path) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig.from_properties(hostile(secrets)[name], allow=[allow.format(folder=secrets)])


@pytest.mark.parametrize("path", ["{0}/ok/../secret", "{0}/ok/link", "{0}/ok/./../link"])
def test_a_path_does_not_lead_out_of_what_is_allowed(path: str, secrets: Path) -> None:
    (secrets / "ok").mkdir()
    (secrets / "ok" / "link").symlink_to(secrets / "secret")
    given = {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "file://" + path.format(secrets)}
    with pytest.raises(ConfigError, match="allow"):
        ProducerConfig.from_properties(given, allow=[f"file:{secrets}/ok"])


@pytest.mark.parametrize(
    "url",
    [
        "https://issuer.example@evil.example/token",
        "https://evil.example/https://issuer.example/token",
        "https://issuer.example\\@evil.example/token",
        "https://evil.example#@issuer.example/token",
        "https://evil.example?https://issuer.example/token",
        "https://issuer.example/token/../admin",
        "https://issuer.example:port/token",
    ],
)
def test_no_url_pretends_to_be_the_one_that_is_allowed(url: str) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig.from_properties(
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": url},
            allow=["https://issuer.example/token"],
        )


def test_what_code_says_by_keyword_needs_no_permission(secrets: Path) -> None:
    url = "https://issuer.example/token"
    config = ProducerConfig(
        **{name.replace(".", "_"): value for name, value in OAUTH.items()},
        sasl_oauthbearer_token_endpoint_url=url,
    )
    assert config.replace(linger_ms=1).sasl_oauthbearer_token_endpoint_url == url
    assert aioproducer.Producer(OAUTH, sasl_oauthbearer_token_endpoint_url=url)


@pytest.mark.parametrize("name", ["env with underscores", "https", "token file"])
def test_the_processs_own_environment_is_trusted(
    name: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in hostile(secrets)[name].items():
        monkeypatch.setenv(f"AIOPRODUCER_{key.replace('.', '_').upper()}", value)
    assert ProducerConfig.from_env()
    with pytest.raises(ConfigError, match="allow"):
        ProducerConfig.from_env(allow=["env:NOTHING"])


def test_the_environment_gives_permissions_too(
    secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:DATABASE_*, https://issuer.example/token")
    monkeypatch.setenv("AIOPRODUCER_BOOTSTRAP_SERVERS", "b:1")
    assert ProducerConfig.from_env()
    for way in ("properties", "producer", "spark", "command line"):
        WAYS[way](hostile(secrets)["env"], secrets)
        WAYS[way](hostile(secrets)["https"], secrets)


def test_credentials_of_this_machine_have_to_be_allowed() -> None:
    properties = {"bootstrap.servers": "b:9098", "security.protocol": "SASL_SSL"}
    properties["sasl.mechanism"] = "AWS_MSK_IAM"
    with pytest.raises(ConfigError, match=r"AWS credentials .* allow=\['aws'\]"):
        ProducerConfig.from_properties(properties)
    config = ProducerConfig.from_properties(properties, allow=["aws"])
    assert config.sasl_mechanism == "AWS_MSK_IAM"
    code = {name.replace(".", "_"): value for name, value in properties.items()}
    assert ProducerConfig(**code).sasl_mechanism == "AWS_MSK_IAM"


def test_a_permission_of_no_kind_is_refused() -> None:
    for entry in ("everything", "", "ftp://x", "*", "file:", "env:", "url:x"):
        with pytest.raises(ConfigError, match="nothing that can be allowed"):
            ProducerConfig.from_properties(EVIL, allow=[entry])


def test_the_command_line_allows_its_file_by_a_flag(secrets: Path) -> None:
    given = hostile(secrets)
    path = secrets / "properties"
    for name, allow in (("env", ["env:DATABASE_PASSWORD"]), ("https", ["url"]), ("file", ["file"])):
        path.write_text("".join(f"{name}={value}\n" for name, value in given[name].items()))
        assert Connection(config_file=path, allow=allow).config()


def test_what_arguments_say_themselves_is_allowed(secrets: Path) -> None:
    for properties in hostile(secrets).values():
        arguments = [f"{name}={value}" for name, value in properties.items()]
        if "assertion" in str(properties):
            arguments.append("sasl.oauthbearer.token.endpoint.url=https://issuer.example/token")
        assert Connection(properties=arguments).config()


def test_processes_that_are_started_are_allowed_the_same(
    secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "file:/etc")
    pass_on([])
    assert os.environ["AIOPRODUCER_ALLOW"] == "file:/etc"
    pass_on(["env:DATABASE_*"])
    assert WAYS["spark"](hostile(secrets)["env"], secrets)


@pytest.mark.parametrize(
    "text", ["${" * 200_000, "${a:" * 100_000, "${env:" + ":" * 200_000, "${a" + "$" * 200_000]
)
def test_placeholders_are_parsed_in_linear_time(text: str) -> None:
    began = time.process_time()
    found: dict[str, Any] = with_values(
        {"config.providers": "env", "x": text}, Permissions(["env"])
    )
    assert found["x"] == text
    assert time.process_time() - began < 1


PLAIN_BY_VARIABLE = {
    "kafka.bootstrap.servers": "evil.example:9092",
    "topic": "t",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "me",
    "kafka.sasl.password.env": "DATABASE_PASSWORD",
}


@pytest.mark.parametrize("option", ["kafka.sasl.password.env", "kafka.client.id.env"])
def test_spark_options_read_only_variables_that_are_allowed(
    option: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**PLAIN_BY_VARIABLE, "kafka.sasl.password.env": "KAFKA_PASSWORD"}
    monkeypatch.setenv("KAFKA_PASSWORD", "x")
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:KAFKA_*")
    assert SourceOptions.parse(given, "write").config().sasl_password == "x"
    given[option] = "DATABASE_PASSWORD"
    with pytest.raises(ConfigError, match="AIOPRODUCER_ALLOW=env:NAME") as raised:
        SourceOptions.parse(given, "write")
    assert "hunter2" not in str(raised.value)
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:DATABASE_*,env:KAFKA_*")
    assert SourceOptions.parse(given, "write").config()


def test_a_registry_of_spark_options_gets_no_variable_that_is_not_allowed(
    secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "kafka.bootstrap.servers": "evil.example:9092",
        "topic": "t",
        "value.format": "avro",
        "schema.registry.url": "http://evil.example",
        "schema.registry.user.info.env": "DATABASE_URL",
    }
    monkeypatch.setenv("DATABASE_URL", "postgres://me:hunter2-4711@db")
    options = SourceOptions.parse(given, "write")
    with pytest.raises(ConfigError, match="AIOPRODUCER_ALLOW=env:NAME"):
        options.registry()
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:DATABASE_URL")
    assert options.registry()["basic_auth"]


def test_the_registry_of_a_file_gets_no_credentials_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "properties"
    file.write_text("schema.registry.url=http://evil.example\n")
    own = "http://own"
    for kind in ("USER_INFO", "TOKEN"):
        name = f"AIOPRODUCER_SCHEMA_REGISTRY_{kind}"
        environ = {name: "me:hunter2-4711"}
        with pytest.raises(ConfigError, match=f"--allow|{name}") as raised:
            registry_options(None, Connection(config_file=file).registry(), environ)
        assert "hunter2" not in str(raised.value)
        assert registry_options(own, Connection(config_file=file).registry(), environ)[1]
        named = Connection(config_file=file, properties=[f"schema.registry.url={own}"])
        assert registry_options(None, named.registry(), environ)[1]
        allowed = Connection(config_file=file, allow=[f"env:{name}"])
        assert registry_options(None, allowed.registry(), environ)[1]


def test_a_reporter_that_the_command_line_names_is_allowed() -> None:
    name = f"{__name__}.Reporter"
    connection = Connection(properties=[f"metric.reporters=JmxReporter, {name}"])
    assert connection.allowed() == [f"class:{name}"]
    (made,) = connection.config().metric_reporters
    assert type(made).__name__ == "Reporter"
