"""A cluster with TLS and SASL, and the options with which the command line reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.security.certificates import Authority

from aioproducer.testing import ThreadedCluster
from aioproducer.testing.security import ListenerSecurity


@contextmanager
def secured_cluster(folder: Path) -> Iterator[list[str]]:
    """Run two brokers; yield the arguments of commands. The password is `secret`."""
    authority = Authority()
    context = authority.server_context(authority.issue("broker", "127.0.0.1"), folder)
    security = ListenerSecurity(context, ("SCRAM-SHA-256",), {"alice": "secret"})
    (folder / "ca.pem").write_text(authority.pem)
    options = folder / "client.properties"
    with ThreadedCluster(brokers=2, security=security) as cluster:
        options.write_text(
            f"bootstrap.servers={cluster.bootstrap_servers}\n"
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            "sasl.username=alice\nsasl.password=secret\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={folder}/ca.pem\n"
        )
        yield ["--config", str(options)]
