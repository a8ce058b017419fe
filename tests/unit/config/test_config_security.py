"""Security options: what goes together, what JAAS lines mean, what is kept secret."""

from __future__ import annotations

import json
import pickle
import ssl
import time
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.config import OPTIONS, ProducerConfig
from aioproducer.config.jaas import parse_jaas
from aioproducer.errors import ConfigError
from aioproducer.runtime.security_settings import _unsecured, sasl_mechanism, tls_contexts

SECRET = "s3cr3t-4711"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig(**{"bootstrap_servers": "broker:9092"} | options)


def with_sasl(mechanism: str, **options: Any) -> ProducerConfig:
    return config(security_protocol="SASL_SSL", sasl_mechanism=mechanism, **options)


async def some_credentials() -> tuple[str, str]:
    return "me", SECRET


async def some_token() -> str:
    return SECRET


# -- combinations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"sasl_mechanism": "plain", "sasl_username": "me", "sasl_password": SECRET},
        {"sasl_mechanism": "SCRAM-SHA-512", "sasl_credentials": some_credentials},
        {
            "sasl_mechanism": "scram-sha-256",
            "sasl_jaas_config": f'{SCRAM} required username="me" password="{SECRET}";',
        },
        {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token": some_token},
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://issuer/token",
            "sasl_jaas_config": f'{OAUTH} required clientId="me" clientSecret="{SECRET}";',
        },
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "file:///run/token",
        },
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://issuer/token",
            "sasl_oauthbearer_jwt_retriever_class": "jwt_bearer",
            "sasl_oauthbearer_assertion_private_key_file": "/run/key",
        },
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_jaas_config": f'{OAUTH} required unsecuredLoginStringClaim_sub="me";',
        },
        {"sasl_mechanism": "AWS_MSK_IAM", "sasl_credentials": some_credentials},
        {"sasl_mechanism": "AWS_MSK_IAM", "sasl_jaas_config": f"{IAM} required;"},
    ],
)
def test_what_a_mechanism_needs_makes_one(options: dict[str, Any]) -> None:
    made = config(security_protocol="SASL_PLAINTEXT", **options)
    mechanism = sasl_mechanism(made)
    assert mechanism is not None
    assert mechanism.name == made.sasl_mechanism == options["sasl_mechanism"].upper()
    assert SECRET not in repr(made)
    assert tls_contexts(made) is None


@pytest.mark.parametrize(
    ("mechanism", "options", "text"),
    [
        ("PLAIN", {}, "PLAIN needs credentials"),
        ("PLAIN", {"sasl_username": "me"}, "belong together"),
        ("PLAIN", {"sasl_password": SECRET}, "belong together"),
        (
            "SCRAM-SHA-256",
            {
                "sasl_username": "me",
                "sasl_password": SECRET,
                "sasl_credentials": some_credentials,
            },
            "sasl_username and sasl_credentials are too many",
        ),
        ("PLAIN", {"sasl_credentials": SECRET}, "must be a function"),
        ("PLAIN", {"sasl_jaas_config": f'{SCRAM} required username="x";'}, "is for SCRAM-SHA-256"),
        ("PLAIN", {"sasl_jaas_config": f'{PLAIN} required username="x";'}, "username and password"),
        ("OAUTHBEARER", {}, "OAUTHBEARER needs one of"),
        (
            "OAUTHBEARER",
            {
                "sasl_oauthbearer_token": some_token,
                "sasl_oauthbearer_token_endpoint_url": "https://issuer",
            },
            "are too many",
        ),
        (
            "OAUTHBEARER",
            {"sasl_oauthbearer_token_endpoint_url": "https://issuer"},
            "the token endpoint needs",
        ),
        (
            "OAUTHBEARER",
            {
                "sasl_oauthbearer_token_endpoint_url": "https://issuer",
                "sasl_oauthbearer_jwt_retriever_class": "jwt_bearer",
            },
            "jwt_bearer needs",
        ),
        (
            "OAUTHBEARER",
            {"sasl_oauthbearer_token_endpoint_url": "issuer"},
            "must be an https",
        ),
        ("DIGEST-MD5", {}, "sasl_mechanism must be one of"),
    ],
)
def test_what_could_not_work_is_refused(mechanism: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        with_sasl(mechanism, **options)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["sasl_username", "ssl_truststore_location", "ssl_key_password"])
def test_security_that_would_not_be_used_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} needs security_protocol"):
        config(**{name: SECRET})
    assert config(**{name: SECRET}, security_protocol="PLAINTEXT").security_protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ssl_context": "x"}, "must be an ssl.SSLContext"),
        (
            {"ssl_context": ssl.create_default_context(), "ssl_key_password": SECRET},
            "already says what ssl_key_password",
        ),
        (
            {"ssl_truststore_location": "a", "ssl_truststore_certificates": "b"},
            "exclude each other",
        ),
        ({"ssl_keystore_certificate_chain": "a"}, "needs ssl_keystore_key"),
        ({"ssl_key_location": "a"}, "needs the certificate"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "some of TLSv1.2 and TLSv1.3"),
        ({"ssl_enabled_protocols": ""}, "some of TLSv1.2 and TLSv1.3"),
        ({"ssl_truststore_type": "BKS"}, "must be one of"),
    ],
)
def test_tls_options_that_contradict_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        config(security_protocol="SSL", **options)


# -- Java's words ----------------------------------------------------------------------------------


def test_a_properties_file_of_java_is_understood() -> None:
    made = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "broker:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
            "sasl.oauthbearer.jwt.retriever.class": (
                "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
            ),
            "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
            "sasl.oauthbearer.assertion.private.key.file": "/run/key",
            "sasl.jaas.config": f"{OAUTH} required;",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.truststore.type": "PEM",
        },
        allow=["https://issuer/token", "file:/run"],
    )
    assert made.sasl_oauthbearer_token is None
    assert made.sasl_oauthbearer_jwt_retriever_class == "jwt_bearer"
    assert made.ssl_endpoint_identification_algorithm == ""


def test_librdkafkas_names_are_understood() -> None:
    made = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "broker:9092",
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "me",
            "sasl.password": SECRET,
            "ssl.ca.location": "/run/ca.pem",
            "ssl.certificate.location": "/run/me.pem",
            "ssl.key.location": "/run/me.key",
        }
    )
    assert (made.ssl_truststore_location, made.ssl_key_location) == ("/run/ca.pem", "/run/me.key")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f'{PLAIN} required username="a" password="b";', {"username": "a", "password": "b"}),
        (f"{PLAIN} required username=a password=b;", {"username": "a", "password": "b"}),
        (f"{PLAIN}  required\n username = 'a b'\n password='c;=' ;", {"username": "a b"}),
        (f'{PLAIN} required /* x */ username="a" // y\n ;', {"username": "a"}),
        (rf'{PLAIN} required username="a\"b\\c";', {"username": 'a"b\\c'}),
        (rf'{PLAIN} required username="\1018\7\400\v";', {"username": "A8\x07 0\x0b"}),
        (f"{PLAIN} optional;", {}),
        (f"{PLAIN} REQUIRED username=a;", {"username": "a"}),
    ],
)
def test_jaas_lines_are_read_as_java_does(line: str, expected: dict[str, str]) -> None:
    options = parse_jaas(line, "PLAIN").options
    assert {name: options[name] for name in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        PLAIN,
        f"{PLAIN} required",
        f'{PLAIN} required username="{SECRET}"',
        f'{PLAIN} required username="{SECRET};',
        f'{PLAIN} required username "{SECRET}";',
        f"{PLAIN} required {SECRET};",
        f'{PLAIN} needed username="{SECRET}";',
        f'com.example.Other required password="{SECRET}";',
        f'{PLAIN} required user="{SECRET}";',
        f'{PLAIN} required username="a"; {PLAIN} required username="{SECRET}";',
    ],
)
def test_a_jaas_line_that_is_none_is_refused_without_repeating_it(line: str) -> None:
    with pytest.raises(ConfigError, match="sasl_jaas_config") as caught:
        parse_jaas(line, "PLAIN")
    assert SECRET not in str(caught.value)


@given(st.text())
def test_any_password_survives_being_quoted(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    line = f'{PLAIN} required username="me" password="{quoted}";'
    assert parse_jaas(line, "PLAIN").options["password"] == password


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_jaas(text, "PLAIN")
    except ConfigError:
        pass


# -- secrets ---------------------------------------------------------------------------------------


def test_a_config_with_a_secret_is_not_pickled() -> None:
    made = with_sasl("PLAIN", sasl_username="me", sasl_password=SECRET)
    with pytest.raises(TypeError, match="sasl_password is not pickled") as caught:
        pickle.dumps(made)
    assert SECRET not in str(caught.value)


def test_every_option_that_holds_a_secret_is_a_password() -> None:
    named = {name for name in OPTIONS if "password" in name or "secret" in name}
    assert {name for name in named if not OPTIONS[name].secret} == set()


async def test_an_unsigned_token_is_never_from_the_future_of_a_broker_that_counts_in_ms() -> None:
    line = f'{OAUTH} required unsecuredLoginStringClaim_sub="me";'
    make = _unsecured(parse_jaas(line, "OAUTHBEARER"))
    for _ in range(50):
        body = (await make()).value.split(".")[1]
        issued = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))["iat"]
        assert issued == round(issued, 3)
        assert issued * 1000 < time.time_ns() // 1_000_000 + 0.5


@pytest.mark.parametrize(
    ("option", "protocol"),
    [
        ({"sasl_username": "u", "sasl_password": "p"}, "SASL_SSL"),
        ({"ssl_truststore_location": "ca.pem"}, "SSL"),
    ],
)
def test_security_without_a_protocol_advises_the_one_that_fits(
    option: dict[str, str], protocol: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**option)
    assert f"set security_protocol to {protocol}" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "ssl_truststore_location",
        "ssl_keystore_location",
        "ssl_key_location",
        "sasl_oauthbearer_assertion_file",
        "sasl_oauthbearer_assertion_private_key_file",
        "sasl_oauthbearer_assertion_template_file",
    ],
)
@pytest.mark.parametrize(
    "content",
    [
        "-----BEGIN PRIVATE KEY-----\nMIIEsecret\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\\nMIIEsecret\\n-----END PRIVATE KEY-----",
        "MIIEsecret\n" * 9,
        "MIIEsecret" * 1000,
        "secret\0.pem",
    ],
)
def test_a_secret_in_place_of_a_path_is_refused_and_not_shown(name: str, content: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(bootstrap_servers="b:1", security_protocol="SASL_SSL", **{name: content})
    assert f"{name} must be the path of a file" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["ssl_truststore_location", "https_ca_location", "sasl_oauthbearer_assertion_file"],
)
def test_an_empty_path_is_refused_by_the_name_of_its_option(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is empty -> give a path"):
        ProducerConfig(bootstrap_servers="a:1", security_protocol="SASL_SSL", **{name: ""})


def test_the_versions_of_tls_that_java_enabled_before_kafka_2_6_are_taken_but_for_the_old_ones():
    made = config(security_protocol="SSL", ssl_enabled_protocols="TLSv1.2,TLSv1.1,TLSv1")
    assert made.ssl_enabled_protocols == ("TLSv1.2",)


@pytest.mark.parametrize(("given", "kept"), [("TLS", "TLSv1.3"), ("tlsv1.2", "TLSv1.2")])
def test_the_highest_version_of_tls_may_be_javas_old_default(given: str, kept: str) -> None:
    config = ProducerConfig(bootstrap_servers="a:1", security_protocol="SSL", ssl_protocol=given)
    assert config.ssl_protocol == kept
