"""`aioproducer topics` reaches clusters as the producer does: TLS, SASL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.security.certificates import Authority

from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.testing import ThreadedCluster
from aioproducer.testing.security import ListenerSecurity


def test_topics_of_a_secured_cluster_are_created_described_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority()
    context = authority.server_context(authority.issue("broker", "127.0.0.1"), tmp_path)
    security = ListenerSecurity(context, ("SCRAM-SHA-256",), {"alice": "secret"})
    (tmp_path / "ca.pem").write_text(authority.pem)
    options = tmp_path / "client.properties"
    with ThreadedCluster(brokers=2, security=security) as cluster:
        options.write_text(
            f"bootstrap.servers={cluster.bootstrap_servers}\n"
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            "sasl.username=alice\nsasl.password=secret\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={tmp_path}/ca.pem\n"
        )

        def topics(*arguments: str) -> int:
            return main(["topics", *arguments, "--config", str(options)])

        assert topics("create", "t", "-p", "2", "--json") == 0
        assert topics("list") == 0
        assert topics("delete", "t") == 0
        created, listed = capsys.readouterr().out.splitlines()
        assert len(json.loads(created)["partitions"]) == 2
        assert listed == "t"
        assert topics("list", "-X", "sasl.password=wrong") == ExitCode.REFUSED
    said = capsys.readouterr().err
    assert "SASL_AUTHENTICATION_FAILED" in said
    assert "secret" not in said
