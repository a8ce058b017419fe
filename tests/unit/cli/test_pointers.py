"""Every failed start points to `aioproducer doctor` with the same options, and shows no secret."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.security.certificates import Authority

from aioproducer import errors
from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.options import Connection
from aioproducer.cli.pointers import doctor_command, pointed_to_doctor
from aioproducer.testing import ThreadedCluster
from aioproducer.testing.security import ListenerSecurity

COMMANDS = [
    ["produce", "-t", "t"],
    ["load", "rows.csv", "-t", "t", "--quiet"],
    ["load", "rows.csv", "-t", "t", "--quiet", "--exactly-once"],
    ["perf", "-t", "t", "--quiet"],
    ["topics", "list"],
    ["topics", "create", "t"],
    ["topics", "describe", "t"],
    ["topics", "delete", "t"],
    ["topics", "read", "t"],
]
COMMAND = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
NOTE = "to find the cause step by step: "


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ThreadedCluster, str]]:
    """A cluster with TLS and SASL, and the file with its authority."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority()
    context = authority.server_context(authority.issue("broker", "127.0.0.1"), folder)
    (folder / "ca.pem").write_text(authority.pem)
    security = ListenerSecurity(context, ("SCRAM-SHA-256",), {"alice": "secret"})
    with ThreadedCluster(brokers=1, security=security) as cluster:
        yield cluster, str(folder / "ca.pem")


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    monkeypatch.chdir(tmp_path)


def pointer(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words of the one command that the message points to."""
    said = capsys.readouterr().err
    (line,) = (line for line in said.splitlines() if NOTE in line)
    return shlex.split(line.partition(NOTE)[2])


@COMMAND
def test_a_refused_login_points_to_doctor_without_the_password(
    command: list[str],
    secured: tuple[ThreadedCluster, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, authority = secured
    shown = [
        *("-b", cluster.bootstrap_servers),
        *("-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=SCRAM-SHA-256"),
        *("-X", "sasl.username=alice", "-X", f"ssl.truststore.location={authority}"),
        *("-X", "ssl.truststore.type=PEM"),
    ]
    code = main([*command, *shown, "-X", "sasl.password=hunter2"])
    assert code == ExitCode.REFUSED
    assert pointer(capsys) == ["aioproducer", "doctor", *shown, "-X", "sasl.password=***"]


@COMMAND
def test_an_unknown_authority_points_to_doctor(
    command: list[str],
    secured: tuple[ThreadedCluster, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["-b", secured[0].bootstrap_servers, "-X", "security.protocol=SSL"]
    assert main([*command, *options]) == ExitCode.REFUSED
    assert pointer(capsys) == ["aioproducer", "doctor", *options]


@pytest.mark.slow
@pytest.mark.parametrize("command", [COMMANDS[0], COMMANDS[4]], ids=" ".join)
def test_a_closed_port_points_to_doctor(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{held.getsockname()[1]}"
        monkeypatch.setenv("AIOPRODUCER_BOOTSTRAP_SERVERS", server)
        assert main(command) == ExitCode.UNREACHABLE
    assert pointer(capsys) == ["aioproducer", "doctor", "-b", server]


def test_the_file_of_options_is_named_and_not_shown(
    secured: tuple[ThreadedCluster, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, authority = secured
    file = tmp_path / "client options.properties"
    file.write_text(
        f"bootstrap.servers={cluster.bootstrap_servers}\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\nsasl.password=hunter2\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
    )
    assert main(["topics", "list", "--config", str(file)]) == ExitCode.REFUSED
    assert pointer(capsys) == ["aioproducer", "doctor", "--config", str(file)]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("sasl_plain_password=s3cret", "sasl_plain_password=***"),
        ("sasl.jaas.config=x password=s3cret;", "sasl.jaas.config=***"),
        ("proxy.url=socks5://u:s3cret@p:1", "proxy.url=***"),
        ("ssl.key.password=s3cret", "ssl.key.password=***"),
        ("sasl.oauthbearer.client.secret=s3cret", "sasl.oauthbearer.client.secret=***"),
        ("sasl.oauthbearer.token.endpoint.url=https://u:s3cret@h/", None),
        ("schema.registry.basic.auth.user.info=u:s3cret", None),
        ("linger.ms=5", "linger.ms=5"),
        ("compression.level=3", "compression.level=3"),
        ("sasl.username=a=b", "sasl.username=a=b"),
    ],
)
def test_secrets_are_hidden_under_every_clients_name(given: str, shown: str | None) -> None:
    words = shlex.split(doctor_command(Connection(properties=[given])))
    assert words[:3] == ["aioproducer", "doctor", "-X"]
    assert words[3] == (shown or f"{given.partition('=')[0]}=***")


@pytest.mark.parametrize(
    ("error", "is_pointed"),
    [
        (errors.BootstrapError(), True),
        (errors.TlsError(), True),
        (errors.SaslAuthenticationFailedError(), True),
        (errors.TopicAuthorizationFailedError(), True),
        (errors.NodeDisconnectedError(), True),
        (errors.KafkaTimeoutError("no success within 30 s"), True),
        (errors.ConfigError(), False),
        (errors.RecordTooLargeError(), False),
        (errors.BufferExhaustedError(), False),
        (errors.UnknownTopicOrPartitionError(), False),
    ],
)
def test_only_errors_on_the_way_to_the_cluster_point_to_doctor(
    error: errors.KafkaError, is_pointed: bool
) -> None:
    for _ in range(2):
        pointed_to_doctor(error, "aioproducer doctor")
    notes = getattr(error, "__notes__", [])
    assert notes == ["to find the cause step by step: aioproducer doctor"] * is_pointed
