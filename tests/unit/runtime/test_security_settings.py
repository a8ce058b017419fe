"""TLS and SASL as the options ask for them, and the principal that errors name."""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.security.certificates import Authority
from support.security.issuer import Issuer, serving

from aioproducer import ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    ConfigError,
    KafkaConnectionError,
    SaslAuthenticationFailedError,
)
from aioproducer.runtime.security_settings import principal_of, sasl_mechanism, tls_contexts

SCRAM_LOGIN = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="bob" password="hunter2";'
)
OAUTH_LOGIN = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="me" clientSecret="hunter2" scope="a b";'
)
PLAIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="kafka:9092", **options)


@pytest.mark.parametrize(
    ("options", "principal"),
    [
        ({}, "User:ANONYMOUS (no SASL, no client certificate)"),
        ({"security_protocol": "SSL"}, "User:ANONYMOUS (no client certificate)"),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()},
            "the principal of this connection",
        ),
        ({**PLAIN, "sasl_username": "ann", "sasl_password": "hunter2"}, "User:ann"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_jaas_config": SCRAM_LOGIN,
            },
            "User:bob",
        ),
        (
            {**PLAIN, "sasl_credentials": lambda: ("ann", "hunter2")},
            "the user that sasl_credentials gives (PLAIN)",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token": lambda: "token",
            },
            "the token's subject (OAUTHBEARER)",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "GSSAPI",
                "sasl_kerberos_service_name": "kafka",
            },
            "the Kerberos principal (GSSAPI)",
        ),
    ],
)
def test_the_principal_is_named_as_far_as_the_options_give_it(
    options: dict[str, Any], principal: str
) -> None:
    assert principal_of(config(**options))() == principal


def test_the_principal_of_a_client_with_a_certificate_is_its_subject(tmp_path: Path) -> None:
    store = Authority().issue("ann").pem_file(tmp_path / "ann.pem")
    made = config(security_protocol="SSL", ssl_keystore_location=str(store))
    assert principal_of(made)() == "the client's certificate CN=ann"


def test_the_principal_is_described_if_the_certificate_cannot_be_read(tmp_path: Path) -> None:
    made = config(security_protocol="SSL", ssl_keystore_location=str(tmp_path / "missing.pem"))
    assert principal_of(made)() == "the subject of the client's certificate"


@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_sasl"),
    [
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_the_protocol_decides_on_tls_and_sasl(protocol: str, has_tls: bool, has_sasl: bool) -> None:
    login = {"sasl_username": "ann", "sasl_password": "hunter2", "sasl_mechanism": "PLAIN"}
    made = config(security_protocol=protocol, **(login if has_sasl else {}))
    assert (tls_contexts(made) is not None) is has_tls
    assert (sasl_mechanism(made) is not None) is has_sasl


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("PLAIN", {"sasl_username": "ann", "sasl_password": "hunter2"}),
        ("SCRAM-SHA-512", {"sasl_jaas_config": SCRAM_LOGIN}),
        ("OAUTHBEARER", {"sasl_oauthbearer_token": lambda: "token"}),
    ],
)
def test_the_mechanism_has_the_name_that_the_options_ask_for(
    name: str, options: dict[str, Any]
) -> None:
    made = config(security_protocol="SASL_PLAINTEXT", sasl_mechanism=name, **options)
    mechanism = sasl_mechanism(made)
    assert mechanism is not None
    assert mechanism.name == name


@pytest.mark.parametrize(("algorithm", "checks"), [("https", True), ("", False)])
async def test_host_names_are_checked_unless_the_option_is_empty(
    algorithm: str, checks: bool
) -> None:
    contexts = tls_contexts(
        config(security_protocol="SSL", ssl_endpoint_identification_algorithm=algorithm)
    )
    assert contexts is not None
    assert (await contexts.current()).check_hostname is checks


@pytest.mark.parametrize(
    ("enabled", "newest", "versions"),
    [
        ("TLSv1.2,TLSv1.3", "TLSv1.3", ("TLSv1_2", "TLSv1_3")),
        ("TLSv1.2,TLSv1.3", "TLSv1.2", ("TLSv1_2", "TLSv1_2")),
        ("TLSv1.3", "TLSv1.3", ("TLSv1_3", "TLSv1_3")),
    ],
)
async def test_tls_versions_are_the_enabled_ones_up_to_the_newest_allowed(
    enabled: str, newest: str, versions: tuple[str, str]
) -> None:
    contexts = tls_contexts(
        config(security_protocol="SSL", ssl_enabled_protocols=enabled, ssl_protocol=newest)
    )
    assert contexts is not None
    context = await contexts.current()
    assert (context.minimum_version.name, context.maximum_version.name) == versions


def test_tls_without_a_version_that_is_allowed_is_refused() -> None:
    made = config(security_protocol="SSL", ssl_enabled_protocols="TLSv1.3", ssl_protocol="TLSv1.2")
    with pytest.raises(ConfigError, match="ssl_protocol is below every version"):
        tls_contexts(made)


@pytest.mark.parametrize("kind", ["truststore", "keystore"])
def test_the_kind_of_a_store_is_found_unless_an_option_says_it(kind: str, tmp_path: Path) -> None:
    authority, path = Authority(), tmp_path / "store"
    if kind == "truststore":
        authority.pkcs12_file(path, "hunter2")
    else:
        authority.issue("ann").pkcs12_file(path, "hunter2")
    store = {f"ssl_{kind}_location": str(path), f"ssl_{kind}_password": "hunter2"}
    assert tls_contexts(config(security_protocol="SSL", **store)) is not None
    assert tls_contexts(config(security_protocol="SSL", **store, **{f"ssl_{kind}_type": "PKCS12"}))
    with pytest.raises(ConfigError):
        tls_contexts(config(security_protocol="SSL", **store, **{f"ssl_{kind}_type": "PEM"}))


@pytest.mark.parametrize("give", ["function", "options", "coroutine"])
async def test_credentials_come_from_the_options_or_from_the_users_function(give: str) -> None:
    async def later() -> tuple[str, str]:
        return "ann", "hunter2"

    given: dict[str, Any] = {
        "function": {"sasl_credentials": lambda: ("ann", "hunter2")},
        "coroutine": {"sasl_credentials": later},
        "options": {"sasl_username": "ann", "sasl_password": "hunter2"},
    }[give]
    mechanism: Any = sasl_mechanism(config(**PLAIN, **given))
    credentials = await mechanism._credentials()
    assert (credentials.username, credentials.password) == ("ann", "hunter2")


@pytest.mark.parametrize(
    ("option", "extensions"),
    [
        ("", {}),
        (' tokenauth="true"', {"tokenauth": "true"}),
        (' tokenauth="TRUE"', {"tokenauth": "true"}),
        (' tokenauth="false"', {}),
    ],
)
async def test_a_login_says_whether_its_name_is_that_of_a_delegation_token(
    option: str, extensions: dict[str, str]
) -> None:
    login = SCRAM_LOGIN.replace(";", f"{option};")
    mechanism: Any = sasl_mechanism(
        config(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_jaas_config=login,
        )
    )
    assert (await mechanism._credentials()).extensions == extensions


@pytest.mark.parametrize(
    ("option", "keytab"),
    [('useKeyTab="true" ', "/me.keytab"), ('useKeyTab="false" ', None), ("", None)],
)
def test_the_keytab_of_a_login_is_used_if_the_login_says_so(
    option: str, keytab: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))
    mechanism: Any = sasl_mechanism(
        config(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name="kafka",
            sasl_jaas_config="com.sun.security.auth.module.Krb5LoginModule required "
            f'{option}keyTab="/me.keytab";',
        )
    )
    assert mechanism._settings.keytab == keytab


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("", "needs sasl_kerberos_service_name"),
        ('useKeyTab="true" serviceName="kafka"', "useKeyTab=true needs keyTab"),
    ],
)
def test_kerberos_without_a_service_or_without_its_keytab_is_refused(
    options: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))
    made = config(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_jaas_config=f"com.sun.security.auth.module.Krb5LoginModule required {options};",
    )
    with pytest.raises(ConfigError, match=text):
        sasl_mechanism(made)


class AwsSession:
    """Stands for the session of botocore: its access key is the name of its profile."""

    def __init__(self, profile: str | None) -> None:
        self.access_key = f"KEY-OF-{profile}"
        self.secret_key = "hunter2"
        self.token = None

    def get_credentials(self) -> AwsSession:
        return self

    def get_frozen_credentials(self) -> AwsSession:
        return self


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"sasl_credentials": lambda: ("GIVEN", "hunter2")}, b'"GIVEN/'),
        ({}, b'"KEY-OF-None/'),
        (
            {
                "sasl_jaas_config": "software.amazon.msk.auth.iam.IAMLoginModule required "
                'awsProfileName="dev";'
            },
            b'"KEY-OF-dev/',
        ),
    ],
)
async def test_a_login_at_aws_uses_the_given_credentials_or_those_of_a_profile(
    options: dict[str, Any], key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    library: Any = ModuleType("botocore.session")
    library.Session = AwsSession
    monkeypatch.setitem(sys.modules, "botocore.session", library)
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    mechanism = sasl_mechanism(
        config(security_protocol="SASL_PLAINTEXT", sasl_mechanism="AWS_MSK_IAM", **options)
    )
    assert mechanism is not None
    exchange = mechanism.exchange("broker")
    assert key in await anext(exchange)
    await exchange.aclose()


@pytest.mark.parametrize(
    "given", [None, "ann", ["ann", "hunter2"], ("a", "b", "c"), ("ann", None), (b"ann", "hunter2")]
)
async def test_credentials_of_another_form_are_refused(given: object) -> None:
    mechanism: Any = sasl_mechanism(config(**PLAIN, sasl_credentials=lambda: given))
    with pytest.raises(AuthenticationError, match="must return") as caught:
        await mechanism._credentials()
    assert "hunter2" not in str(caught.value)


async def test_an_error_of_this_library_in_the_users_function_is_raised_as_it_is() -> None:
    error = SaslAuthenticationFailedError("no such user")
    mechanism: Any = sasl_mechanism(config(**PLAIN, sasl_credentials=raising(error)))
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        await mechanism._credentials()
    assert caught.value is error


def raising(error: Exception) -> Callable[[], object]:
    def give() -> object:
        raise error

    return give


async def test_an_os_error_of_the_users_function_may_pass() -> None:
    mechanism: Any = sasl_mechanism(config(**PLAIN, sasl_credentials=raising(TimeoutError("slow"))))
    with pytest.raises(KafkaConnectionError, match="sasl_credentials raised") as caught:
        await mechanism._credentials()
    assert caught.value.retriable
    assert isinstance(caught.value.__cause__, TimeoutError)


async def test_another_error_of_the_users_function_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mechanism: Any = sasl_mechanism(config(**PLAIN, sasl_credentials=raising(LookupError("no"))))
    with caplog.at_level(logging.ERROR, "aioproducer.runtime"):
        for _ in range(3):
            with pytest.raises(AuthenticationError, match="sasl_credentials raised"):
                await mechanism._credentials()
    assert caplog.text.count("sasl_credentials raised an exception") == 1


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({"sasl_jaas_config": OAUTH_LOGIN}, {"scope": "a b"}),
        ({"sasl_jaas_config": OAUTH_LOGIN, "sasl_oauthbearer_scope": "c"}, {"scope": "c"}),
        (
            {
                "sasl_oauthbearer_client_credentials_client_id": "me",
                "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
            },
            {},
        ),
        (
            {
                "sasl_oauthbearer_client_credentials_client_id": "me",
                "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
                "sasl_oauthbearer_scope": "c",
            },
            {"scope": "c"},
        ),
    ],
)
async def test_the_token_endpoint_is_asked_with_what_the_options_or_the_login_have(
    options: dict[str, Any], form: dict[str, str]
) -> None:
    with serving(Issuer("me", "hunter2")) as issuer:
        mechanism = sasl_mechanism(
            config(
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url=f"{issuer.url}/token",
                **options,
            )
        )
        assert mechanism is not None
        first = await anext(mechanism.exchange("broker"))
        assert issuer.issued[-1].encode() in first
        assert issuer.requests == [{"grant_type": "client_credentials", **form}]


async def test_a_token_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("abc.def\n")
    mechanism = sasl_mechanism(
        config(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=path.as_uri(),
        )
    )
    assert mechanism is not None
    assert b"abc.def" in await anext(mechanism.exchange("broker"))


async def test_a_failing_token_endpoint_is_asked_again_after_the_backoff_of_the_options() -> None:
    with serving(Issuer("me", "hunter2")) as issuer:
        issuer.failures = [503, 503]
        mechanism = sasl_mechanism(
            config(
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url=f"{issuer.url}/token",
                sasl_jaas_config=OAUTH_LOGIN,
                sasl_login_retry_backoff_ms=1,
                sasl_login_retry_backoff_max_ms=10_000,
            )
        )
        assert mechanism is not None
        first = await anext(mechanism.exchange("broker"))
        assert issuer.issued[-1].encode() in first
        assert len(issuer.requests) == 3
