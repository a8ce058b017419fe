"""Kerberos with a stand-in for the package `gssapi`: what is asked, what its answers mean."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.hanging import Hanging

from aioproducer.errors import AuthenticationError, ConfigError, KafkaConnectionError, KafkaError
from aioproducer.net.security.sasl import UnansweredToken
from aioproducer.net.security.sasl.gssapi import Gssapi, KerberosSettings


class GSSError(Exception):
    def __init__(self, min_code: int) -> None:
        super().__init__("no luck")
        self.min_code = min_code


class RequirementFlag(enum.IntFlag):
    mutual_authentication = 2
    integrity = 32


class Library(ModuleType):
    """As much of `gssapi` as is needed; a context is complete after `steps` calls of `step`."""

    def __init__(self) -> None:
        super().__init__("gssapi")
        self.steps = 2
        self.offer = bytes([1, 0, 1, 0])
        self.error: Exception | None = None
        self.asked: dict[str, Any] = {}
        self.received: list[bytes | None] = []
        self.wrapped: list[tuple[bytes, bool]] = []
        self.exceptions = SimpleNamespace(GSSError=GSSError)
        self.NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
        self.MechType = SimpleNamespace(kerberos="kerberos")
        self.RequirementFlag = RequirementFlag
        self.Name = lambda text, kind: (text, kind)

    def Credentials(self, **asked: Any) -> str:  # noqa: N802 - as in gssapi
        self.credentials = asked
        return "credentials"

    def SecurityContext(self, **asked: Any) -> Library:  # noqa: N802 - as in gssapi
        self.asked = asked
        return self

    @property
    def complete(self) -> bool:
        return len(self.received) >= self.steps

    def step(self, token: bytes | None = None) -> bytes | None:
        if self.error is not None:
            raise self.error
        self.received.append(token)
        return None if self.complete else b"step %d" % len(self.received)

    def unwrap(self, data: bytes) -> Any:
        assert data == b"offer"
        return SimpleNamespace(message=self.offer)

    def wrap(self, data: bytes, encrypt: bool) -> Any:
        self.wrapped.append((data, encrypt))
        return SimpleNamespace(message=b"choice")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    library = Library()
    monkeypatch.setitem(sys.modules, "gssapi", library)
    yield library


async def login(*answers: bytes, **settings: str) -> list[bytes]:
    """The bytes that are sent to a broker with these answers."""
    exchange = Gssapi(KerberosSettings("kafka", **settings)).exchange("broker.example")
    sent = [await anext(exchange)]
    sent += [await exchange.asend(answer) for answer in answers]
    with pytest.raises(StopAsyncIteration):
        await exchange.asend(b"")
    return sent


async def refused(*answers: bytes) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await login(*answers)
    return caught.value


async def test_tokens_are_exchanged_then_no_layer_is_chosen(library: Library) -> None:
    sent = await login(b"challenge", b"offer")
    assert sent == [b"step 1", b"", b"choice"]
    assert [type(token) for token in sent] == [bytes, bytes, UnansweredToken]
    assert library.received == [None, b"challenge"]
    assert library.wrapped == [(bytes([1, 0, 0, 0]), False)]


async def test_the_broker_must_prove_itself_too(library: Library) -> None:
    await login(b"challenge", b"offer")
    assert library.asked == {
        "name": ("kafka@broker.example", "service"),
        "creds": "credentials",
        "usage": "initiate",
        "mech": "kerberos",
        "flags": RequirementFlag.mutual_authentication | RequirementFlag.integrity,
    }


async def test_without_a_keytab_the_tickets_of_the_user_are_used(library: Library) -> None:
    await login(b"challenge", b"offer")
    assert library.credentials == {"name": None, "usage": "initiate", "store": None}


async def test_tickets_may_come_from_a_cache(library: Library) -> None:
    await login(b"challenge", b"offer", ticket_cache="/tmp/tickets", principal="me@EXAMPLE")
    assert library.credentials == {
        "name": ("me@EXAMPLE", "principal"),
        "usage": "initiate",
        "store": {"ccache": "/tmp/tickets"},
    }


async def test_tickets_of_a_keytab_stay_apart_from_those_of_the_user(library: Library) -> None:
    await login(b"challenge", b"offer", keytab="/etc/me.keytab", ticket_cache="/tmp/tickets")
    store = library.credentials["store"]
    assert store["client_keytab"] == "/etc/me.keytab"
    assert store["ccache"].startswith("MEMORY:")


async def cache_of(library: Library, **settings: str) -> str:
    await login(b"challenge", b"offer", **settings)
    library.received.clear()
    name: str = library.credentials["store"]["ccache"]
    return name


@pytest.mark.parametrize("prefix", ["", "FILE:"])
async def test_tickets_of_a_keytab_are_not_those_of_another_producers_keytab(
    library: Library, tmp_path: Path, prefix: str
) -> None:
    """Caches in memory are never removed: a name that comes again has the tickets of before."""
    mine, yours = tmp_path / "mine", tmp_path / "yours"
    mine.write_bytes(b"keys")
    yours.write_bytes(b"keys")
    first = await cache_of(library, keytab=f"{prefix}{mine}")
    assert await cache_of(library, keytab=f"{prefix}{mine}") == first
    others = [
        await cache_of(library, keytab=f"{prefix}{yours}"),
        await cache_of(library, keytab=f"{prefix}{mine}", principal="me@EXAMPLE"),
        await cache_of(library, keytab=f"{prefix}{mine}", principal="you@EXAMPLE"),
    ]
    mine.write_bytes(b"other keys")
    others.append(await cache_of(library, keytab=f"{prefix}{mine}"))
    assert len({first, *others}) == 5


@pytest.mark.parametrize("keytab", ["/nonexistent", "with\0NUL"])
async def test_a_keytab_that_cannot_be_read_is_left_to_the_library(
    library: Library, keytab: str
) -> None:
    assert (await cache_of(library, keytab=keytab)).startswith("MEMORY:")


@pytest.mark.parametrize("offer", [bytes([6, 0, 1, 0]), bytes([1, 0, 1]), bytes(5), b""])
async def test_a_broker_that_insists_on_a_layer_is_refused(library: Library, offer: bytes) -> None:
    library.offer = offer
    error = await refused(b"challenge", b"offer")
    assert type(error) is AuthenticationError
    assert "insists on a GSSAPI security layer" in str(error)


async def test_a_broker_that_offers_a_choice_of_layers_is_accepted(library: Library) -> None:
    library.offer = bytes([7, 0, 1, 0])
    assert (await login(b"challenge", b"offer"))[-1] == b"choice"


async def test_an_exchange_without_end_is_given_up(library: Library) -> None:
    library.steps = 1_000_000
    library.offer = b""
    error = await refused(*[b"challenge"] * 10, b"offer")
    assert isinstance(error, AuthenticationError)
    assert len(library.received) == 11


def test_a_loop_that_ends_does_not_wait_for_a_key_server(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging()
    monkeypatch.setattr(library, "step", hanging)
    hanging.check_that_the_loop_ends(login)


@pytest.mark.parametrize(
    "code",
    [-1765328228, -1765328230, 2**32 - 1765328228, -1765328363, -1765328351, -1765328350],
)
async def test_what_may_pass_is_tried_again(library: Library, code: int) -> None:
    """The key server is not reached, the clocks differ, or a request counts as a replay."""
    library.error = GSSError(code)
    error = await refused()
    assert type(error) is KafkaConnectionError
    assert "Kerberos says: no luck -> check that the KDC can be reached" in str(error)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"keytab": "/etc/me.keytab"}, KafkaConnectionError),
        ({"ticket_cache": "/tmp/tickets"}, AuthenticationError),
        ({}, AuthenticationError),
    ],
)
async def test_expired_tickets_are_renewed_later_where_there_is_a_keytab(
    library: Library, settings: dict[str, str], kind: type[KafkaError]
) -> None:
    """The library has tried that; the key server was not reached."""
    library.error = GSSError(-1765328352)
    with pytest.raises(KafkaError) as caught:
        await login(**settings)
    assert type(caught.value) is kind


async def test_a_refusal_of_kerberos_is_final_and_has_advice(library: Library) -> None:
    library.error = GSSError(-1765328377)
    error = await refused()
    assert type(error) is AuthenticationError
    assert "Kerberos says: no luck -> check keytab or tickets (klist)" in str(error)


def test_without_the_package_the_mechanism_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"needs the package gssapi.*aioproducer\[gssapi\]"):
        Gssapi(KerberosSettings("kafka"))
