"""OAuth tokens as the options ask for them: where they come from, and what they carry."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.security.issuer import Issuer, decoded, serving

from aioproducer import ProducerConfig
from aioproducer.errors import AuthenticationError, ConfigError, KafkaConnectionError
from aioproducer.net.security.assertions import AssertionSettings, make_assertion
from aioproducer.net.security.sasl import Mechanism
from aioproducer.runtime.security_settings import sasl_mechanism

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SECRET = {
    "sasl_oauthbearer_client_credentials_client_id": "me",
    "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
}


def mechanism_of(**options: Any) -> Mechanism:
    mechanism = sasl_mechanism(
        ProducerConfig(
            bootstrap_servers="kafka:9092",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            **options,
        )
    )
    assert mechanism is not None
    return mechanism


async def first_message(**options: Any) -> str:
    """Return the message that logs in, with its separators as bars."""
    exchange = mechanism_of(**options).exchange("broker")
    message = await anext(exchange)
    await exchange.aclose()
    return message.decode().replace("\x01", "|")


def test_a_token_endpoint_to_whose_host_no_request_can_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match="the host in sasl_oauthbearer_token_endpoint_url"):
        mechanism_of(sasl_oauthbearer_token_endpoint_url="https://300.1.1.1/token", **SECRET)


# -- the user's function, and unsigned tokens ------------------------------------------------------


async def test_a_token_of_the_users_function_is_sent_with_the_extensions_of_the_login() -> None:
    message = await first_message(
        sasl_oauthbearer_token=lambda: "abc.def",
        sasl_jaas_config=f'{MODULE} extension_cluster="lkc-1";',
    )
    assert message == "n,,|auth=Bearer abc.def|cluster=lkc-1||"


async def test_a_token_of_another_type_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="must be a str or an OAuthToken, not int"):
        await first_message(sasl_oauthbearer_token=lambda: 4711)


@pytest.mark.parametrize(
    ("option", "life_s"), [("", 3600), (' unsecuredLoginLifetimeSeconds="60"', 60)]
)
async def test_an_unsigned_token_has_the_claims_and_the_life_of_the_login(
    option: str, life_s: int
) -> None:
    began = time.time()
    message = await first_message(
        sasl_jaas_config=f'{MODULE} unsecuredLoginStringClaim_sub="me" '
        f'unsecuredLoginExtension_cluster="lkc-1"{option};'
    )
    token, _, extensions = message.removeprefix("n,,|auth=Bearer ").partition("|")
    header, body, signature = token.split(".")
    claims = json.loads(decoded(body))
    assert json.loads(decoded(header)) == {"alg": "none"}
    assert signature == ""
    assert claims == {
        "sub": "me",
        "iat": claims["iat"],
        "exp": pytest.approx(claims["iat"] + life_s),
    }
    assert began - 0.001 <= claims["iat"] <= time.time()
    assert extensions == "cluster=lkc-1||"


@pytest.mark.parametrize("life", ["", "-1", "1.5", "an hour"])
def test_a_life_of_unsigned_tokens_that_is_no_number_of_seconds_is_refused(life: str) -> None:
    line = f'{MODULE} unsecuredLoginStringClaim_sub="me" unsecuredLoginLifetimeSeconds="{life}";'
    with pytest.raises(ConfigError, match="must be a number of seconds"):
        mechanism_of(sasl_jaas_config=line)


# -- the token endpoint ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, httpx.Timeout(10.0)),
        ({"sasl_login_connect_timeout_ms": 2_000}, httpx.Timeout(10.0, connect=2.0)),
        ({"sasl_login_read_timeout_ms": 3_000}, httpx.Timeout(3.0, connect=10.0)),
        (
            {"sasl_login_connect_timeout_ms": 0, "sasl_login_read_timeout_ms": 0},
            httpx.Timeout(10.0, connect=10.0),
        ),
    ],
)
async def test_the_token_endpoint_has_the_time_of_the_options_or_10_seconds(
    options: dict[str, int], expected: httpx.Timeout, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[object] = []

    class Client(httpx.AsyncClient):
        def __init__(self, **arguments: Any) -> None:
            used.append(arguments["timeout"])
            super().__init__(**arguments)

    monkeypatch.setattr(httpx, "AsyncClient", Client)
    with serving(Issuer("me", "hunter2")) as issuer:
        url = f"{issuer.url}/token"
        await first_message(sasl_oauthbearer_token_endpoint_url=url, **SECRET, **options)
    assert used == [expected]


async def test_a_token_endpoint_that_fails_for_longer_than_the_options_allow_is_given_up() -> None:
    with serving(Issuer("me", "hunter2")) as issuer:
        issuer.failures = [503]
        with pytest.raises(KafkaConnectionError, match="no token after 1 attempt"):
            await first_message(
                sasl_oauthbearer_token_endpoint_url=f"{issuer.url}/token",
                sasl_login_retry_backoff_ms=1,
                sasl_login_retry_backoff_max_ms=1,
                **SECRET,
            )
        assert len(issuer.requests) == 1


@pytest.mark.parametrize(
    ("options", "grant", "field"),
    [
        ({}, "client_credentials", "client_assertion"),
        (
            {"sasl_oauthbearer_jwt_retriever_class": "jwt_bearer"},
            "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion",
        ),
    ],
)
@pytest.mark.parametrize("ready", [True, False])
async def test_an_assertion_is_read_from_a_file_or_signed_with_a_key(
    ready: bool, options: dict[str, str], grant: str, field: str, tmp_path: Path
) -> None:
    issuer = Issuer("me", "hunter2")
    issuer.client_key = ec.generate_private_key(ec.SECP256R1())
    key = tmp_path / "key.pem"
    key.write_bytes(issuer.client_key_pem())
    if ready:
        settings = AssertionSettings(str(key), algorithm="ES256", audience="issuer", subject="me")
        assertion = tmp_path / "assertion"
        assertion.write_text(make_assertion(settings, time.time()))
        how: dict[str, Any] = {"sasl_oauthbearer_assertion_file": str(assertion)}
    else:
        how = {
            "sasl_oauthbearer_assertion_private_key_file": str(key),
            "sasl_oauthbearer_assertion_algorithm": "ES256",
            "sasl_oauthbearer_assertion_claim_aud": "issuer",
            "sasl_oauthbearer_assertion_claim_sub": "me",
        }
    with serving(issuer):
        url = f"{issuer.url}/token"
        message = await first_message(sasl_oauthbearer_token_endpoint_url=url, **how, **options)
    assert issuer.issued[-1] in message
    (form,) = issuer.requests
    assert form["grant_type"] == grant
    claims = json.loads(decoded(form[field].split(".")[1]))
    assert (claims["aud"], claims["sub"]) == ("issuer", "me")
