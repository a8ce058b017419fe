"""Connections of commands to single brokers."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from aioproducer import ProducerConfig
from aioproducer.cli.sessions import link_opener
from aioproducer.errors import AuthenticationError
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.security import ListenerSecurity

MECHANISM = "AWS_MSK_IAM"
"""Its error shows the name that is taken for the broker's."""


@pytest.mark.parametrize(("is_bootstrap", "name"), [(True, "broker.example"), (False, "127.0.0.1")])
async def test_canonical_names_are_those_of_bootstrap_servers(
    is_bootstrap: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getnameinfo", lambda *_: ("broker.example", "9092"))
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)
    async with EmbeddedCluster(1, security=ListenerSecurity(mechanisms=(MECHANISM,))) as cluster:
        place = cluster.bootstrap_servers
        options: dict[str, Any] = {
            "bootstrap_servers": place if is_bootstrap else "127.0.0.1:1",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": MECHANISM,
            "sasl_credentials": lambda: ("key", "secret"),
            "client_dns_lookup": "resolve_canonical_bootstrap_servers_only",
        }
        host, _, port = place.rpartition(":")
        with pytest.raises(AuthenticationError, match=f"region of {name} is not known"):
            await link_opener(ProducerConfig(**options))((host, int(port)))
