"""kafka-python's producer here: TLS, SASL, fork, a full buffer. kafka-python's own is beside it."""

from __future__ import annotations

import os
import signal
import ssl
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from support.security.certificates import Authority

from aioproducer.compat.kafka import KafkaProducer, errors
from aioproducer.compat.kafka._connection import Connection
from aioproducer.testing import ThreadedCluster
from aioproducer.testing.security import ListenerSecurity

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, of how it reads its schemas
    import kafka
    import kafka.errors

WAIT_S = 20.0
CLIENTS = pytest.mark.parametrize(
    "client", [kafka.KafkaProducer, KafkaProducer], ids=["theirs", "ours"]
)
Make = Callable[..., Any]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Callable[..., ThreadedCluster]]:
    """Starts clusters with a certificate; its authority is in `ca.pem`."""
    running: list[ThreadedCluster] = []
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    client = authority.issue("client")
    (tmp_path / "client.pem").write_text(client.certificate_pem)
    (tmp_path / "client.key").write_text(client.key_pem("key password"))

    def start(host: str, *mechanisms: str, tls: bool = True, mutual: bool = False) -> Any:
        identity, client_ca = authority.issue("broker", host), authority.pem if mutual else None
        context = authority.server_context(identity, tmp_path, client_ca=client_ca)
        security = ListenerSecurity(context if tls else None, mechanisms, {"alice": "secret"})
        cluster = ThreadedCluster(brokers=1, topics={"t": 1}, security=security)
        cluster.start()
        running.append(cluster)
        return cluster

    yield start
    for cluster in running:
        cluster.stop()


def options(cluster: ThreadedCluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "bootstrap_timeout_ms": 5_000,
        "max_block_ms": 5_000,
        **more,
    }


def delivers(client: Any, given: dict[str, Any]) -> bool:
    producer = client(**given)
    try:
        return producer.send("t", b"v").get(WAIT_S).topic == "t"
    finally:
        producer.close(timeout=5)


# -- TLS -------------------------------------------------------------------------------------------


@CLIENTS
def test_certificate_is_verified_with_a_file_of_authorities(
    client: Any, secured: Make, tmp_path: Path
) -> None:
    given = options(secured("127.0.0.1"), security_protocol="SSL", ssl_cafile=f"{tmp_path}/ca.pem")
    assert delivers(client, given)


@CLIENTS
def test_file_may_be_a_path(client: Any, secured: Make, tmp_path: Path) -> None:
    given = options(secured("127.0.0.1"), security_protocol="SSL", ssl_cafile=tmp_path / "ca.pem")
    assert delivers(client, given)


@CLIENTS
def test_context_of_the_caller_is_used(client: Any, secured: Make, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=f"{tmp_path}/ca.pem")
    given = options(secured("127.0.0.1"), security_protocol="SSL", ssl_context=context)
    assert delivers(client, given)


@CLIENTS
def test_host_of_a_certificate_may_be_another_one_if_it_is_not_checked(
    client: Any, secured: Make, tmp_path: Path
) -> None:
    given = options(
        secured("another.example"),
        security_protocol="SSL",
        ssl_cafile=f"{tmp_path}/ca.pem",
        ssl_check_hostname=False,
    )
    assert delivers(client, given)


@CLIENTS
def test_client_has_a_certificate_with_an_encrypted_key(
    client: Any, secured: Make, tmp_path: Path
) -> None:
    given = options(
        secured("127.0.0.1", mutual=True),
        security_protocol="SSL",
        ssl_cafile=f"{tmp_path}/ca.pem",
        ssl_certfile=f"{tmp_path}/client.pem",
        ssl_keyfile=f"{tmp_path}/client.key",
        ssl_password="key password",
    )
    assert delivers(client, given)


def test_certificate_that_cannot_be_verified_ends_the_constructor(secured: Make) -> None:
    given = options(secured("127.0.0.1"), security_protocol="SSL", bootstrap_timeout_ms=2_000)
    with pytest.raises(kafka.errors.KafkaError) as caught:
        KafkaProducer(**given)
    assert isinstance(caught.value, (kafka.errors.KafkaConnectionError, errors.KafkaTimeoutError))


# -- SASL ------------------------------------------------------------------------------------------


@CLIENTS
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("tls", [False, True], ids=["text", "tls"])
def test_user_logs_in(
    client: Any, secured: Make, tmp_path: Path, mechanism: str, tls: bool
) -> None:
    given = options(
        secured("127.0.0.1", mechanism, tls=tls),
        security_protocol="SASL_SSL" if tls else "SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="secret",
        ssl_cafile=f"{tmp_path}/ca.pem" if tls else None,
    )
    assert delivers(client, given)


def test_wrong_password_ends_the_constructor_at_once_and_is_not_shown(secured: Make) -> None:
    given = options(
        secured("127.0.0.1", "PLAIN", tls=False),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password="not-her-password",
        bootstrap_timeout_ms=15_000,
    )
    began = time.monotonic()
    with pytest.raises(kafka.errors.SaslAuthenticationFailedError) as caught:
        KafkaProducer(**given)
    assert time.monotonic() - began < 10
    assert "not-her-password" not in str(caught.value)


# -- fork ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_is_refused_at_once_and_the_parent_goes_on() -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        producer = KafkaProducer(**options(cluster))
        future = producer.send("t", b"parent")
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: producer.send("t", b"child"), producer.flush):
                try:
                    call()
                except kafka.errors.IllegalStateError:
                    refused += 1
            producer.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert future.get(WAIT_S).offset == 0
        producer.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_makes_its_own_producer() -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        producer = KafkaProducer(**options(cluster))
        child = os.fork()
        if child == 0:
            own = KafkaProducer(**options(cluster))
            offset = own.send("t", b"child").get(WAIT_S).offset
            own.close()
            os._exit(offset)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send("t", b"parent").get(WAIT_S).offset == 1
        producer.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_forked_while_a_thread_starts_the_producer_starts_its_own() -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        cluster.freeze_broker(1)
        producer = KafkaProducer(**options(cluster, api_version=(4, 0)))
        sent = []
        is_starting, goes_on = threading.Event(), threading.Event()

        def pause(frame: FrameType, *_: object) -> None:
            """Stop where the thread has the lock."""
            if frame.f_code is KafkaProducer._own_started.__code__:
                sys.settrace(None)
                is_starting.set()
                goes_on.wait(WAIT_S)

        def send() -> None:
            sys.settrace(pause)
            sent.append(producer.send("t", b"parent"))

        thread = threading.Thread(target=send)
        thread.start()
        assert is_starting.wait(WAIT_S)
        child = os.fork()
        if child == 0:
            try:
                signal.setitimer(signal.ITIMER_REAL, WAIT_S)
                os._exit(producer.send("t", b"child").get(WAIT_S).offset)
            finally:
                os._exit(255)  # after an exception, too: the other tests are the parent's
        goes_on.set()
        cluster.thaw_broker(1)
        thread.join(WAIT_S)
        offsets = {sent[0].get(WAIT_S).offset, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}
        assert offsets == {0, 1}
        producer.close()


# -- a full buffer ---------------------------------------------------------------------------------


def test_send_waits_for_memory_and_gives_up_after_max_block_ms() -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as gone:
        producer = KafkaProducer(
            **options(gone, max_block_ms=300, buffer_memory=100_000, batch_size=16_384)
        )
        producer.send("t", b"v").get(WAIT_S)
    began = time.monotonic()
    with pytest.raises(kafka.errors.KafkaTimeoutError) as caught:
        for _ in range(400):
            producer.send("t", b"x" * 10_000)
    assert 0.25 < time.monotonic() - began < WAIT_S
    assert "max_block_ms=300" in str(caught.value)
    assert caught.value.__cause__ is not None
    producer.close(timeout=0)


def test_record_larger_than_the_request_is_refused_by_send() -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        for client in (kafka.KafkaProducer, KafkaProducer):
            producer = client(**options(cluster, max_request_size=1_000))
            with pytest.raises(kafka.errors.MessageSizeTooLargeError):
                producer.send("t", b"x" * 2_000)
            producer.close()


def test_topic_that_is_dropped_before_its_thread_goes_on_is_waited_for_again() -> None:
    found, waits = iter([None, None, "described"]), list[str]()
    connection: Any = SimpleNamespace(
        cluster=SimpleNamespace(topics=SimpleNamespace(get=lambda _: next(found))),
        partitions_for=waits.append,
    )
    assert Connection.topic(connection, "t") == "described"
    assert waits == ["t", "t"]
