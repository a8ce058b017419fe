"""The security rows of the option table, and all rows by their names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from ssl import SSLContext
from types import MappingProxyType
from typing import Final

from aioproducer.config.option import (
    METADATA_KEY,
    Constraint,
    Kind,
    Option,
    at_least,
    between,
    long_option,
    one_of_ignoring_case,
    option,
    secret_option,
    sendable,
)
from aioproducer.config.rules_security import MECHANISMS
from aioproducer.config.table import CoreOptions
from aioproducer.types import OAuthToken, SaslCredentials

_OIDC: Final = "KIP-768"
_ASSERTION: Final = "KIP-1258"
_PEM: Final = "KIP-651"
_STORES: Final = one_of_ignoring_case("JKS", "PKCS12", "PEM")
_TLS: Final = ("TLSv1.2", "TLSv1.3")
SUITES_OF_TLS_1_3: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
_HIGHEST: Final = one_of_ignoring_case(*_TLS)
_VERSIONS: Final = Constraint(
    "some of TLSv1.2 and TLSv1.3",
    lambda names: bool(names) and set(names) <= set(_TLS),
    # Java's default before Kafka 2.6 is TLSv1.2,TLSv1.1,TLSv1.
    lambda names: tuple(each for each in names if each not in {"TLSv1", "TLSv1.1"}) or names,
)


@dataclass(frozen=True, slots=True, kw_only=True, init=False, eq=False, repr=False)
class SecurityOptions(CoreOptions):
    """The options of a producer, security included."""

    security_protocol: str = option(
        "PLAINTEXT",
        "Whether connections use TLS, SASL, both or neither.",
        one_of_ignoring_case("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )

    # -- SASL --------------------------------------------------------------------------------
    sasl_mechanism: str = option("GSSAPI", "The SASL mechanism.", one_of_ignoring_case(*MECHANISMS))
    sasl_username: str | None = option(
        None, "The user name for PLAIN and SCRAM.", sendable(), source="librdkafka"
    )
    sasl_password: str | None = secret_option(
        "The password for PLAIN and SCRAM.", sendable(), source="librdkafka"
    )
    sasl_jaas_config: str | None = secret_option(
        "Java's JAAS line: the login module with its options."
    )
    sasl_credentials: (
        Callable[
            [], tuple[str, str] | SaslCredentials | Awaitable[tuple[str, str] | SaslCredentials]
        ]
        | None
    ) = option(
        None,
        "A function, async or not, that returns user name and password; called before each login.",
        kind=Kind.OBJECT,
        source="KIP-86",
        kafka_name="sasl.client.callback.handler.class",
    )
    sasl_oauthbearer_token: Callable[[], str | OAuthToken | Awaitable[str | OAuthToken]] | None = (
        option(
            None,
            "A function, async or not, that returns a token; called when a new one is due.",
            kind=Kind.OBJECT,
            source="KIP-86",
            kafka_name="sasl.login.callback.handler.class",
        )
    )
    sasl_kerberos_service_name: str | None = option(None, "The brokers' Kerberos service name.")
    sasl_login_connect_timeout_ms: int | None = option(
        None,
        "Time limit of a connection to the token endpoint, in ms. Default, and 0: 10 s.",
        at_least(0),
        kind=Kind.INT,
        source=_OIDC,
    )
    sasl_login_read_timeout_ms: int | None = option(
        None,
        "Time limit of a response of the token endpoint, in ms. Default, and 0: 10 s.",
        at_least(0),
        kind=Kind.INT,
        source=_OIDC,
    )
    sasl_login_refresh_buffer_seconds: int = option(
        300,
        "A credential is refreshed at least this long before it expires, in s.",
        between(0, 3600),
        kind=Kind.SHORT,
    )
    sasl_login_refresh_min_period_seconds: int = option(
        60,
        "The shortest time between two refreshes of a credential, in s.",
        between(0, 900),
        kind=Kind.SHORT,
    )
    sasl_login_refresh_window_factor: float = option(
        0.8, "The share of its lifetime after which a credential is refreshed.", between(0.5, 1.0)
    )
    sasl_login_refresh_window_jitter: float = option(
        0.05,
        "The largest random share of the lifetime that is added to the time of a refresh.",
        between(0.0, 0.25),
    )
    sasl_login_retry_backoff_ms: int = long_option(
        100, "The first wait before a login is tried again, in ms.", source=_OIDC
    )
    sasl_login_retry_backoff_max_ms: int = long_option(
        10_000, "The longest wait before a login is tried again, in ms.", source=_OIDC
    )
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None, "The URL of the token endpoint.", source=_OIDC, is_url=True
    )
    https_ca_location: str | None = option(
        None,
        "The file of the authorities that sign the token endpoint's certificate. Default: "
        "the system's.",
        source="librdkafka",
    )
    sasl_oauthbearer_scope: str | None = option(None, "The scope of the token.", source=_OIDC)
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        None, "The client id at the token endpoint.", source=_OIDC
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = secret_option(
        "The client secret at the token endpoint.", source=_OIDC
    )
    sasl_oauthbearer_header_urlencode: bool = option(
        False, "Whether id and secret are URL-encoded in the header.", source=_OIDC
    )
    sasl_oauthbearer_assertion_algorithm: str = option(
        "RS256",
        "The algorithm that signs assertions.",
        one_of_ignoring_case("RS256", "ES256"),
        source=_ASSERTION,
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = option(
        None, "The assertion's audience.", source=_ASSERTION
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(
        300, "The lifetime of an assertion, in s.", between(0, 86_400), source=_ASSERTION
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = option(
        None, "The assertion's issuer.", source=_ASSERTION
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = option(
        False, "Whether an assertion has an id.", source=_ASSERTION
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = option(
        60,
        "How long before its creation an assertion is valid, in s.",
        between(0, 3600),
        source=_ASSERTION,
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = option(
        None, "The assertion's subject.", source=_ASSERTION
    )
    sasl_oauthbearer_assertion_file: str | None = option(
        None, "A file with a ready assertion.", source=_ASSERTION
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        None, "The file of the key that signs assertions.", source=_ASSERTION
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = secret_option(
        "The passphrase of that key.", source=_ASSERTION
    )
    sasl_oauthbearer_assertion_template_file: str | None = option(
        None, "A file with static claims and headers of assertions.", source=_ASSERTION
    )
    sasl_oauthbearer_jwt_retriever_class: str | None = option(
        None,
        "The source of tokens: client_credentials, jwt_bearer or file. Default: by the URL.",
        kind=Kind.OBJECT,
        source="KIP-1139",
    )

    # -- TLS ---------------------------------------------------------------------------------
    ssl_truststore_certificates: str | None = secret_option(
        "The trusted certificates in PEM.", source=_PEM
    )
    ssl_truststore_location: str | None = option(None, "The file of the trusted certificates.")
    ssl_truststore_password: str | None = secret_option("The password of that file.")
    ssl_truststore_type: str = option("JKS", "The format of that file. Default: detected.", _STORES)
    ssl_keystore_certificate_chain: str | None = secret_option(
        "The client's certificates in PEM.", source=_PEM
    )
    ssl_keystore_key: str | None = secret_option("The client's private key in PEM.", source=_PEM)
    ssl_keystore_location: str | None = option(
        None, "The file of the client's key and certificates."
    )
    ssl_keystore_password: str | None = secret_option("The password of that file.")
    ssl_keystore_type: str = option("JKS", "The format of that file. Default: detected.", _STORES)
    ssl_key_location: str | None = option(
        None,
        "The file of the client's private key, if it is not in the file of the certificates.",
        source="librdkafka",
    )
    ssl_key_password: str | None = secret_option("The password of the client's private key.")
    ssl_endpoint_identification_algorithm: str = option(
        "https",
        "How host names are verified; the empty string disables it.",
        one_of_ignoring_case("https", "", "none"),
    )
    ssl_enabled_protocols: Sequence[str] = option(
        ("TLSv1.2", "TLSv1.3"),
        "The allowed TLS versions; TLSv1 and TLSv1.1 are ignored.",
        _VERSIONS,
    )
    ssl_protocol: str = option(
        "TLSv1.3",
        "The highest TLS version.",
        # Java's default before Kafka 2.6 names no version.
        _HIGHEST._replace(
            canonical=lambda value: _TLS[-1] if value == "TLS" else _HIGHEST.canonical(value)
        ),
    )
    ssl_cipher_suites: Sequence[str] = option(
        (), "The allowed cipher suites, by Java's names or OpenSSL's."
    )
    ssl_context: SSLContext | None = option(
        None,
        "A ready `ssl.SSLContext`, instead of all other options of TLS.",
        kind=Kind.OBJECT,
        source="KIP-519",
        kafka_name="ssl.engine.factory.class",
    )


OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        declared.name: declared.metadata[METADATA_KEY].named(declared.name)
        for declared in fields(SecurityOptions)
    }
)
"""Every option by its name here: the fields of `SecurityOptions`."""

ROWS: Final[Mapping[str, Option]] = MappingProxyType(
    {**{row.kafka_name.replace(".", "_"): row for row in OPTIONS.values()}, **OPTIONS}
)
"""Every option by each of its names, with underscores."""
