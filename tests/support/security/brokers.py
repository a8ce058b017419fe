"""Real brokers with TLS and SASL listeners.

Owns: their configuration. Not here: the client under test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from aioproducer.testing.kafka import KafkaCluster
from support.security.certificates import Authority

_JAVA_MODULES = "org.apache.kafka.common.security"
_SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


@dataclass(frozen=True)
class SecureListener:
    """One listener: its protocol and what configures it."""

    name: str
    protocol: str
    settings: Mapping[str, str]

    @property
    def config(self) -> dict[str, str]:
        prefix = f"listener.name.{self.name.lower()}."
        return {prefix + name: value for name, value in self.settings.items()}


def plain_and_scram(users: Mapping[str, str], *, reauth_ms: int = 0) -> SecureListener:
    """SASL_SSL with PLAIN (these users) and both kinds of SCRAM."""
    entries = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    module = f"{_JAVA_MODULES}.plain.PlainLoginModule"
    return SecureListener(
        "PASSWORDS",
        "SASL_SSL",
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "plain.sasl.jaas.config": f"{module} required {entries};",
            "scram-sha-256.sasl.jaas.config": f"{_JAVA_MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512.sasl.jaas.config": f"{_JAVA_MODULES}.scram.ScramLoginModule required;",
            "plain.connections.max.reauth.ms": str(reauth_ms),
            "scram-sha-256.connections.max.reauth.ms": str(reauth_ms),
            "scram-sha-512.connections.max.reauth.ms": str(reauth_ms),
        },
    )


def tokens(keys_url: str, *, reauth_ms: int = 0) -> SecureListener:
    """SASL_SSL with OAUTHBEARER; tokens are checked with the keys at this URL."""
    handler = f"{_JAVA_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    module = f"{_JAVA_MODULES}.oauthbearer.OAuthBearerLoginModule"
    return SecureListener(
        "TOKENS",
        "SASL_SSL",
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys_url,
            "sasl.oauthbearer.expected.audience": "kafka",
            "oauthbearer.sasl.server.callback.handler.class": handler,
            "oauthbearer.sasl.jaas.config": f"{module} required;",
            "oauthbearer.connections.max.reauth.ms": str(reauth_ms),
        },
    )


def unsecured_tokens() -> SecureListener:
    """SASL_SSL with OAUTHBEARER and Kafka's own development tokens, which are not signed."""
    module = f"{_JAVA_MODULES}.oauthbearer.OAuthBearerLoginModule"
    return SecureListener(
        "UNSECURED",
        "SASL_SSL",
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": (
                f'{module} required unsecuredLoginStringClaim_sub="broker";'
            ),
        },
    )


def kerberos(keytab: Path, principal: str) -> SecureListener:
    """SASL_SSL with GSSAPI."""
    return SecureListener(
        "KERBEROS",
        "SASL_SSL",
        {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "gssapi.sasl.jaas.config": (
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
                f'storeKey=true keyTab="{keytab}" principal="{principal}";'
            ),
        },
    )


def mutual_tls() -> SecureListener:
    """TLS that wants a certificate of the client."""
    return SecureListener("MUTUAL", "SSL", {"ssl.client.auth": "required"})


def secure_cluster(
    authority: Authority,
    directory: Path,
    listeners: Sequence[SecureListener],
    *,
    jvm_options: Sequence[str] = (),
) -> KafkaCluster:
    """One broker with these listeners and a certificate for 127.0.0.1; not opened yet."""
    identity = authority.issue("broker", "127.0.0.1")
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.pem_file(directory / "broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        # Refusals come at once: the texts and their sources are tested, not the delay.
        "connection.failed.authentication.delay.ms": "0",
    }
    for listener in listeners:
        config |= listener.config
    return KafkaCluster(
        brokers=1,
        config=config,
        listeners={listener.name: listener.protocol for listener in listeners},
        jvm_options=jvm_options,
    )


def create_scram_user(cluster: KafkaCluster, name: str, password: str) -> None:
    """Gives a user credentials for both kinds of SCRAM."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for kind in _SCRAM:
        wanted = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(kind, 4096), password.encode()
        )
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(timeout=20)
