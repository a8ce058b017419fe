"""Faults in words become the faults of the brokers."""

from __future__ import annotations

import pytest

from aioproducer import Producer
from aioproducer.errors import NotLeaderOrFollowerError, RecordTooLargeError
from aioproducer.testing.broker.faults import ConnectionFault, ErrorAnswer, Faults
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.faults import FaultScript
from aioproducer.testing.security import ListenerSecurity
from aioproducer.types import Persistence
from aioproducer.wire.api_keys import ApiKey


@pytest.mark.parametrize(
    "error", ["NOT_LEADER_OR_FOLLOWER", "not_leader", 6, NotLeaderOrFollowerError]
)
@pytest.mark.parametrize("request_", ["produce", "PRODUCE", ApiKey.PRODUCE])
def test_requests_and_errors_have_names(request_: str, error: str) -> None:
    fault = FaultScript(Faults()).next(request_, topic="t", partition=0).answers(error)
    assert fault.action == ErrorAnswer(6)
    assert (fault.api, fault.topic, fault.partition) == (ApiKey.PRODUCE, "t", 0)
    assert (fault.times, fault.skip) == (1, 0)


def test_wrong_names_are_refused_with_the_nearest() -> None:
    script = FaultScript(Faults())
    with pytest.raises(ValueError, match="no request 'prodice'; did you mean PRODUCE"):
        script.next("prodice")
    with pytest.raises(ValueError, match="did you mean REQUEST_TIMED_OUT"):
        script.next("produce").answers("REQUEST_TIMEDOUT")
    with pytest.raises(ValueError, match="which kind of request"):
        script.next().answers(6)
    with pytest.raises(ValueError, match="a whole request"):
        script.next("produce", partition=0).drops_the_connection()


def test_errors_that_would_never_be_answered_are_refused() -> None:
    script = FaultScript(Faults())
    with pytest.raises(ValueError, match="no errors can be scripted for API_VERSIONS"):
        script.next("api_versions").answers("UNSUPPORTED_VERSION")
    with pytest.raises(ValueError, match="END_TXN is not answered by partition"):
        script.next("end_txn", partition=0).answers("INVALID_TXN_STATE")
    with pytest.raises(ValueError, match="LIST_TRANSACTIONS is not answered by topic"):
        script.next("list_transactions", topic="t").answers("NOT_COORDINATOR")


def test_every_sentence_has_its_fault() -> None:
    faults = Faults()
    script = FaultScript(faults)
    whole = script.every("init-producer-id", node_id=2, after=3)
    fault = whole.drops_the_connection(after_the_work=True)
    assert (fault.api, fault.node_id, fault.times, fault.skip) == (
        ApiKey.INIT_PRODUCER_ID,
        2,
        None,
        3,
    )
    assert fault.action == ConnectionFault(answer=False, close=True)
    once = script.next()
    assert once.is_never_answered().action == ConnectionFault(apply=False, answer=False)
    assert once.is_answered_late(70).action == ConnectionFault(delay_ms=70)
    assert once.is_throttled(80).action == ConnectionFault(throttle_ms=80)
    assert once.is_cut_off(3).action == ConnectionFault(cut_at=3, close=True)
    assert once.answers_garbage(b"x").action == ConnectionFault(apply=False, frame=b"x")
    assert (
        script.next(after=2).is_cut_off(3).skip == script.next(after=2).answers_garbage().skip == 2
    )
    script.remove(fault)
    script.clear()
    assert faults.take_connection_fault(ApiKey.PRODUCE, 1) is None


async def test_a_scripted_fault_strikes_what_it_names() -> None:
    async with EmbeddedCluster(1, topics={"orders": 2}) as cluster:
        servers = cluster.bootstrap_servers
        async with Producer(bootstrap_servers=servers, retry_backoff_ms=1) as producer:
            moved = cluster.faults.next("produce", partition=0).answers("NOT_LEADER_OR_FOLLOWER")
            await producer.send_and_wait("orders", b"v", partition=1)
            assert moved.struck == 0
            assert (await producer.send_and_wait("orders", b"v", partition=0)).offset == 0
            assert moved.struck == 1
            cluster.faults.next("produce").answers("MESSAGE_TOO_LARGE", message="no more")
            with pytest.raises(RecordTooLargeError) as caught:
                await producer.send_and_wait("orders", b"v", partition=0)
            assert caught.value.persistence is Persistence.NOT_PERSISTED


@pytest.mark.parametrize("request_", ["init_producer_id", "end_txn"])
async def test_a_fault_of_one_transactional_id_strikes_that_one(request_: str) -> None:
    async with EmbeddedCluster(1, topics={"orders": 1}) as cluster:
        fault = cluster.faults.next(request_, topic="one").answers("COORDINATOR_LOAD_IN_PROGRESS")
        for name, struck in (("other", 0), ("one", 1)):
            async with (
                Producer(
                    bootstrap_servers=cluster.bootstrap_servers,
                    transactional_id=name,
                    retry_backoff_ms=1,
                ) as producer,
                producer.transaction(),
            ):
                await producer.send("orders", b"v")
            assert fault.struck == struck


@pytest.mark.parametrize("request_", ["sasl_handshake", "sasl_authenticate"])
async def test_faults_strike_requests_of_authentication(request_: str) -> None:
    security = ListenerSecurity(mechanisms=("PLAIN",), users={"me": "pw"})
    async with EmbeddedCluster(1, security=security, topics={"orders": 1}) as cluster:
        lost = cluster.faults.next(request_).drops_the_connection()
        late = cluster.faults.next(request_).is_answered_late(1)
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="me",
            sasl_plain_password="pw",
            reconnect_backoff_ms=1,
        ) as producer:
            await producer.send_and_wait("orders", b"v")
        assert (lost.struck, late.struck) == (1, 1)
