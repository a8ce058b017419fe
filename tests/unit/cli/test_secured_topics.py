"""`aioproducer topics` reaches clusters as the producer does: TLS, SASL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from cli.secured_cluster import secured_cluster


def test_topics_of_a_secured_cluster_are_created_described_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with secured_cluster(tmp_path) as secured:

        def topics(*arguments: str) -> int:
            return main(["topics", *arguments, *secured])

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
