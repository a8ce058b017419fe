"""Whatever producers, brokers and clients of old do: a committed read shows whole commits alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aioproducer.records.batch import read_batches
from aioproducer.testing.broker import TopicSpec

from .support import NOW_MS, make_state
from .transactional import V1_VERSIONS, V2_VERSIONS, TransactionalProducer, fetch

PARTITIONS = 2
BROKERS = (1, 2, 3)
TIMEOUT_MS = 60_000


@dataclass
class Client:
    """One incarnation: what it wrote to its running transaction."""

    producer: TransactionalProducer
    is_ready: bool = False
    needs_bump: bool = False
    """Between its last transaction of V1 and its first of V2 a producer has to ask for an epoch, or
    a late marker of the one would end what it writes for the other (KIP-890)."""
    open: list[bytes] = field(default_factory=list)


class Transactions(RuleBasedStateMachine):
    """Two transactional ids, several incarnations of each, brokers that stop and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.state = make_state(marker_delay_ms=3, coordinator_load_ms=7)
        self.state.create_topic("t", TopicSpec(PARTITIONS, 3))
        self.now_ms = NOW_MS
        self.clients = [self._client(name) for name in ("a", "a", "b")]
        self.committed: set[bytes] = set()
        self.written = 0

    @rule(index=st.integers(0, 2), resume=st.booleans())
    def initialize(self, index: int, resume: bool) -> None:
        """A producer starts, or asks for its next epoch."""
        client = self._at(index)
        code = client.producer.initialize(resume=resume and client.is_ready, timeout_ms=TIMEOUT_MS)
        if not code:
            client.is_ready, client.needs_bump, client.open = True, False, []

    @rule(index=st.integers(0, 2), partition=st.integers(0, PARTITIONS - 1))
    def write(self, index: int, partition: int) -> None:
        client = self._at(index)
        if client.needs_bump:
            self.initialize(index, resume=True)
        if not client.is_ready or client.needs_bump:
            return
        value = b"%d" % self.written
        self.written += 1
        producer = client.producer
        if not producer.is_v2 and producer.add(partition) != [0]:
            return
        if producer.produce(partition, (value,)) == 0:
            client.open.append(value)

    @rule(index=st.integers(0, 2), commit=st.booleans())
    def end(self, index: int, commit: bool) -> None:
        client = self._at(index)
        if not client.is_ready or not client.open:
            return
        if client.producer.end(commit=commit) == 0:
            if commit:
                self.committed.update(client.open)
            client.open = []

    @rule(later_ms=st.sampled_from([1, 5, 50, TIMEOUT_MS]))
    def wait(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.state.advance(self.now_ms)

    @precondition(lambda self: len(self.state.live_brokers) > 1)
    @rule(node_id=st.sampled_from(BROKERS))
    def stop(self, node_id: int) -> None:
        self.state.set_broker_down(node_id)

    @rule(node_id=st.sampled_from(BROKERS))
    def start(self, node_id: int) -> None:
        self.state.set_broker_up(node_id)

    @rule(level=st.sampled_from([1, 2]))
    def change_version(self, level: int) -> None:
        self.state.set_transaction_version(level)
        for client in self.clients:
            if not client.open:
                was_v1 = not client.producer.is_v2
                client.producer.versions = V2_VERSIONS if level == 2 else V1_VERSIONS
                client.needs_bump |= was_v1 and client.producer.is_v2

    @invariant()
    def nothing_else_is_ever_seen(self) -> None:
        assert self._seen() <= self.committed

    def teardown(self) -> None:
        for node_id in BROKERS:
            self.state.set_broker_up(node_id)
        for _ in range(100):
            self.now_ms += TIMEOUT_MS
            self.state.advance(self.now_ms)
            if self.state.next_wakeup_ms is None:
                break
        assert self.state.next_wakeup_ms is None, "every transaction ends"
        assert self._seen() == self.committed
        for partition in self.state.topics["t"].partitions:
            assert partition.last_stable_offset == partition.log.end_offset

    def _client(self, name: str) -> Client:
        return Client(TransactionalProducer(self.state, V2_VERSIONS, name))

    def _at(self, index: int) -> Client:
        client = self.clients[index]
        client.producer.now_ms = self.now_ms
        return client

    def _seen(self) -> set[bytes]:
        seen: set[bytes] = set()
        for index in range(PARTITIONS):
            data = fetch(self.state, index)
            aborted = sorted(
                (each.first_offset, each.producer_id) for each in data.aborted_transactions or []
            )
            hidden: set[int] = set()
            for batch in read_batches(data.records or b""):
                while aborted and aborted[0][0] <= batch.last_offset:
                    hidden.add(aborted.pop(0)[1])
                if batch.is_control:
                    hidden.discard(batch.producer_id)
                elif batch.producer_id not in hidden:
                    values = [record.value or b"" for record in batch.records()]
                    assert seen.isdisjoint(values), "no record twice"
                    seen.update(values)
        return seen


Transactions.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTransactions = Transactions.TestCase
