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
from support.security.issuer import Issuer, serving

from aioproducer import ProducerConfig
from aioproducer.errors import AuthenticationError, KafkaConnectionError
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
