"""AWS_MSK_IAM's signature against botocore's, and the exchange with a stub of a broker."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.hanging import Hanging
from support.security.leaks import Evidence, secret

from aioproducer.config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConfigError
from aioproducer.net.security.sasl import fixed
from aioproducer.net.security.sasl.aws_credentials import default_chain
from aioproducer.net.security.sasl.msk_iam import MskIam, signed_payload
from aioproducer.runtime.security_settings import sasl_mechanism
from aioproducer.types import SaslCredentials

KEY = secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
SESSION = "IQoJb3JpZ2luX2VjE==/+token"
HOST = "b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com"
NOW = 1_700_000_000.0


def botocores_signature(host: str, region: str, session: str | None) -> dict[str, str]:
    """The request that botocore presigns at the same moment."""
    auth = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    moment = datetime.datetime.fromtimestamp(NOW, datetime.UTC)

    class Frozen(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return moment

        @classmethod
        def utcnow(cls) -> Any:
            return moment.replace(tzinfo=None)

    with pytest.MonkeyPatch.context() as patch:
        if hasattr(auth, "get_current_datetime"):
            patch.setattr(
                auth, "get_current_datetime", lambda *_, **__: moment.replace(tzinfo=None)
            )
        else:
            patch.setattr(auth.datetime, "datetime", Frozen)
        request = AWSRequest("GET", f"https://{host}/?Action=kafka-cluster%3AConnect")
        signer = auth.SigV4QueryAuth(
            Credentials("AKIDEXAMPLE", KEY, session), "kafka-cluster", region, expires=900
        )
        signer.add_auth(request)
    return {name: values[0] for name, values in parse_qs(urlsplit(request.url).query).items()}


@pytest.mark.parametrize("session", [None, SESSION])
def test_the_signature_is_botocores(session: str | None) -> None:
    mine = json.loads(
        signed_payload(
            SaslCredentials("AKIDEXAMPLE", KEY, session_token=session), HOST, "eu-central-1", NOW
        )
    )
    theirs = botocores_signature(HOST, "eu-central-1", session)
    assert {name.lower(): value for name, value in theirs.items()} == {
        name: value for name, value in mine.items() if name in {n.lower() for n in theirs}
    }
    assert mine["x-amz-signature"] == theirs["X-Amz-Signature"]
    assert (mine["version"], mine["host"]) == ("2020_10_22", HOST)


async def test_one_message_is_answered_by_json(evidence: Evidence) -> None:
    mechanism = MskIam(fixed(SaslCredentials("AKIDEXAMPLE", KEY)), clock=lambda: NOW)
    exchange = mechanism.exchange(HOST)
    message = await anext(exchange)
    assert b"/20231114/eu-central-1/kafka-cluster/aws4_request" in message
    evidence.text(message.decode())
    with pytest.raises(StopAsyncIteration):
        await exchange.asend(b'{"version":"2020_10_22","request-id":"1"}')


async def test_an_answer_that_is_no_json_is_refused() -> None:
    exchange = MskIam(fixed(SaslCredentials("AKIDEXAMPLE", KEY))).exchange(HOST)
    await anext(exchange)
    with pytest.raises(AuthenticationError, match="no JSON"):
        await exchange.asend(b"")


async def test_the_region_comes_from_the_environment_where_the_name_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mechanism = MskIam(fixed(SaslCredentials("AKIDEXAMPLE", KEY)), clock=lambda: NOW)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AuthenticationError, match="AWS region of localhost is not known"):
        await anext(mechanism.exchange("localhost"))
    for name, region in (("AWS_DEFAULT_REGION", b"/us-west-1/"), ("AWS_REGION", b"/us-east-2/")):
        monkeypatch.setenv(name, region.decode().strip("/"))
        exchange = mechanism.exchange("localhost")
        assert region in await anext(exchange)
        await exchange.aclose()


async def test_the_region_comes_from_the_profile_where_neither_name_nor_environment_has_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("botocore")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "config"
    keys = f"aws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = {KEY}\n"
    file.write_text(f"[profile dev]\nregion = eu-west-3\n{keys}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    login = "software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName=dev;"
    config = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "localhost:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": login,
        },
        allow=["aws"],
    )
    mechanism = sasl_mechanism(config)
    assert mechanism is not None
    exchange = mechanism.exchange("localhost")
    assert b"/eu-west-3/" in await anext(exchange)
    await exchange.aclose()


async def test_credentials_are_found_as_the_aws_tools_find_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    found = await default_chain()()
    assert found == SaslCredentials("AKIDEXAMPLE", KEY, session_token=SESSION)


def test_without_botocore_the_credentials_have_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ConfigError, match=r"needs sasl_credentials, or the package botocore"):
        default_chain()


async def test_credentials_that_are_not_found_are_an_authentication_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiles: list[str | None] = []

    class Session:
        def __init__(self, profile: str | None) -> None:
            profiles.append(profile)

        def get_credentials(self) -> None:
            return None

    library: Any = ModuleType("botocore.session")
    library.Session = Session
    monkeypatch.setitem(sys.modules, "botocore.session", library)
    with pytest.raises(AuthenticationError, match="no AWS credentials were found"):
        await default_chain("dev")()
    assert profiles == ["dev"]


def test_a_loop_that_ends_does_not_wait_for_a_server_of_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging = Hanging()

    class Session:
        def __init__(self, profile: str | None) -> None:
            pass

        def get_credentials(self) -> None:
            hanging()

    library: Any = ModuleType("botocore.session")
    library.Session = Session
    monkeypatch.setitem(sys.modules, "botocore.session", library)
    hanging.check_that_the_loop_ends(default_chain())
