"""Errors of a login carry no secret: not in their text, chain or frames, nor in what is logged.

Every test in `net/security` searches frames as well, by `support.security.leaks`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.frames import shown_by

from aioproducer import Producer
from aioproducer.cli import main
from aioproducer.errors import AuthenticationError, ConfigError, KafkaError, SchemaRegistryError
from aioproducer.serializers import SchemaRegistry
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.security import ListenerSecurity

SECRET = "hunter2-4711"


class Frames(logging.Handler):
    """Keeps all that a log's records show, frames of exceptions included."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{record.getMessage()}\n{record.args!r}\n"
        if record.exc_info and record.exc_info[1]:
            self.text += shown_by(record.exc_info[1])


@pytest.fixture
def frames() -> Any:
    handler = Frames()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)


async def outcome(mechanism: str, **options: Any) -> KafkaError:
    security = ListenerSecurity(mechanisms=("PLAIN", "SCRAM-SHA-256"), users={"me": "other"})
    async with EmbeddedCluster(1, security=security) as cluster:
        producer = Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            max_block_ms=2_000,
            **options,
        )
        try:
            with pytest.raises(KafkaError) as raised:
                await producer.start()
        finally:
            await producer.close()
    return raised.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_refused_login_shows_no_password(mechanism: str, frames: Frames) -> None:
    error = await outcome(mechanism, sasl_username="me", sasl_password=SECRET)
    assert isinstance(error, AuthenticationError)
    assert SECRET not in shown_by(error) + frames.text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_password_that_is_no_text_is_final_and_not_shown(
    mechanism: str, frames: Frames
) -> None:
    error = await outcome(mechanism, sasl_credentials=lambda: ("me", f"{SECRET}\udcff"))
    assert isinstance(error, AuthenticationError)
    assert not error.retriable
    assert SECRET not in shown_by(error) + frames.text


def _fails(password: str) -> tuple[str, str]:
    raise RuntimeError("the vault is sealed")


def _no_text(password: str) -> tuple[str, str]:
    return "me", password.encode().decode("utf-16-be" if len(password) % 2 else "ascii") + str(
        b"\xff" + password.encode(), "utf-8"
    )


@pytest.mark.parametrize("make", [_fails, _no_text])
async def test_a_function_that_raises_is_logged_without_its_locals(
    make: Callable[[str], tuple[str, str]], frames: Frames
) -> None:
    error = await outcome("PLAIN", sasl_credentials=lambda: make(SECRET))
    # The frames of the function are the test's: search all of them.
    assert SECRET not in shown_by(error) + frames.text
    current: BaseException | None = error.__cause__
    while current is not None:
        traceback = current.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code.co_name in ("_fails", "_no_text", "<lambda>"):
                assert traceback.tb_frame.f_locals == {}
            traceback = traceback.tb_next
        current = current.__cause__


# -- schema registry -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"bearer_token": f"{SECRET}\n"},
        {"bearer_token": f" {SECRET}"},
        {"bearer_token": f"{SECRET}\u00e4"},
        {"headers": {"X-Key": f"{SECRET}\n"}},
        {"headers": {"X-Key": f"{SECRET}\r\nHost: evil"}},
        {"headers": {f"{SECRET}\n": "x"}},
        {"basic_auth": ("me", SECRET), "bearer_token": SECRET},
        {"url": f"http://me:{SECRET}@[::1"},
        {"url": f"http://me:{SECRET}@host:port"},
        {"url": f"ftp://me:{SECRET}@host"},
        {"basic_auth": ("me", SECRET), "retries": -1},
        *({"url": f"http://me:9{mark}{SECRET}@registry:8081"} for mark in "/,?#"),
        *({"url": f"http://me:{SECRET}{mark}9@registry:8081"} for mark in "/,?#"),
    ],
)
def test_a_registry_is_refused_without_showing_what_it_was_given(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        SchemaRegistry(**{"url": "http://registry:8081", **options})
    assert SECRET not in shown_by(raised.value)


@pytest.mark.parametrize("token", [f"{SECRET}\n", f"{SECRET}\u00e4", SECRET.encode(), ""])
async def test_a_token_that_cannot_be_sent_is_final_and_not_shown(token: Any) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={})

    async with SchemaRegistry(
        "http://registry", bearer_token=lambda: token, transport=httpx.MockTransport(answer)
    ) as registry:
        with pytest.raises(SchemaRegistryError, match="bearer token") as raised:
            await registry.latest("s")
    assert not asked
    assert not raised.value.retriable
    assert SECRET not in shown_by(raised.value)


@pytest.mark.parametrize("status", [401, 500])
async def test_an_error_of_a_registry_has_no_credentials_in_its_frames(status: int) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(status))
    for options in ({"bearer_token": SECRET}, {"basic_auth": ("me", SECRET)}):
        async with SchemaRegistry(
            "http://registry", transport=transport, retries=0, headers={"K": SECRET}, **options
        ) as registry:
            with pytest.raises(SchemaRegistryError) as raised:
                await registry.latest("s")
        text = shown_by(raised.value)
        assert SECRET not in text
        assert "bWU6aHVudGVyMi00NzEx" not in text  # base64


async def test_a_registry_out_of_reach_has_no_credentials_in_its_frames() -> None:
    async with SchemaRegistry("http://127.0.0.1:9", retries=0, bearer_token=SECRET) as registry:
        with pytest.raises(SchemaRegistryError) as raised:
            await registry.latest("s")
    assert raised.value.retriable
    assert SECRET not in shown_by(raised.value)


# -- the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["-X", f"sasl.password:{SECRET}"],
        ["-X", f"sasl.password {SECRET}"],
        ["-X", f"={SECRET}"],
        ["-X", SECRET],
        ["-X", f"sasl.pasword={SECRET}"],
        ["-X", f"sasl.jaas.config=PlainLoginModule required password={SECRET}"],
        ["-X", f"proxy.url=http://me:{SECRET}@proxy:x"],
        ["-X", f"sasl.password={SECRET}", "-X", "linger.ms=soon"],
    ],
)
def test_the_command_line_repeats_no_secret(arguments: list[str], capfd: Any) -> None:
    assert main(["produce", "-t", "topic", *arguments]) == 2
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err


def test_the_option_of_a_malformed_argument_is_named(capfd: Any) -> None:
    main(["produce", "-t", "topic", "-X", f"sasl.password:{SECRET}"])
    assert "sasl.password has no =" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({"url": f"http://me:{SECRET}@registry.example"}, True),
        ({"url": "http://registry.example", "basic_auth": ("me", SECRET)}, True),
        ({"url": "http://registry.example", "bearer_token": SECRET}, True),
        ({"url": "http://registry.example", "headers": {"X-Api-Key": SECRET}}, True),
        ({"url": ["https://a.example", "http://b.example"], "bearer_token": SECRET}, True),
        ({"url": "http://registry.example"}, False),
        ({"url": "http://localhost:8081", "bearer_token": SECRET}, False),
        ({"url": "https://registry.example", "bearer_token": SECRET}, False),
    ],
)
def test_credentials_for_a_registry_without_tls_are_warned_of(
    options: dict[str, Any], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    SchemaRegistry(**options)
    assert ("can be read on the way to http://" in caplog.text) is warns
    assert SECRET not in caplog.text
