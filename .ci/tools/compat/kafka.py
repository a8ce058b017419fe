"""The brokers that the tests use: plain, with TLS, and with users, as aiokafka's container has."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from tools.compat.sources import ROOT, WORK

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.security.certificates import Authority  # noqa: E402

from aioproducer.testing.kafka import DEFAULT_VERSION, KafkaCluster  # noqa: E402

_MODULES = "org.apache.kafka.common.security"
_USERS = " ".join(f'user_{name}="{name}"' for name in ("admin", "test", "test2"))
_KEY_PASSWORD = "abcdefgh"


@contextlib.contextmanager
def brokers() -> Iterator[dict[str, str]]:
    """Real Kafka; returns the variables with its address for the tests."""
    folder = WORK / "certificates"
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority()
    client = authority.issue("client")
    (folder / "ca.crt").write_text(authority.pem, encoding="utf-8")
    (folder / "client.crt").write_text(client.certificate_pem, encoding="utf-8")
    (folder / "client.key").write_text(client.key_pem(_KEY_PASSWORD), encoding="utf-8")
    broker = authority.issue("broker", "127.0.0.1").pem_file(folder / "broker.pem")
    users = "listener.name.users"
    config = {
        "num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:admin;User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        f"{users}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{users}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {_USERS};",
        **{
            f"{users}.{mechanism}.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;"
            for mechanism in ("scram-sha-256", "scram-sha-512")
        },
    }
    listeners = {"USERS": "SASL_PLAINTEXT", "TLS": "SSL"}
    with KafkaCluster(brokers=1, config=config, listeners=listeners) as cluster:
        print(f"brokers: {cluster.description}", flush=True)
        yield {
            "AIOPRODUCER_COMPAT_BOOTSTRAP": cluster.bootstrap_servers,
            "AIOPRODUCER_COMPAT_CERTIFICATES": str(folder),
            "AIOPRODUCER_COMPAT_KAFKA": DEFAULT_VERSION,
            "AIOPRODUCER_COMPAT_TLS": cluster.listener("TLS"),
            "AIOPRODUCER_COMPAT_USERS": cluster.listener("USERS"),
            "KAFKA_URI": f"kafka://{cluster.bootstrap_servers}",
            "KAFKA_VERSION": DEFAULT_VERSION,
        }
