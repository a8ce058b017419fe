"""The unmodified producer on virtual time, while its cluster goes away, moves or is swapped."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest
from net.virtual import MemoryDialer, black_hole, virtual_time
from support.dialed import DialedProducer
from support.hostile import Behaviour, Peer

from aioproducer import Producer
from aioproducer.errors import DeliveryTimeoutError, UnknownTopicIdError
from aioproducer.records.reader import read_batches
from aioproducer.runtime.send.fast_path import wall_clock_ms
from aioproducer.testing.broker import BrokerSpec, ClusterSettings, ClusterState, TopicSpec
from aioproducer.testing.broker.producers import ProducerBatchKey
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.api_versions import ApiVersionsRequest
from aioproducer.wire.messages.metadata import MetadataResponse


def producer_at(dialer: MemoryDialer, **options: Any) -> DialedProducer:
    return DialedProducer(dialer, bootstrap_servers="boot:9092", **options)


class Site:
    """A cluster of three brokers at separate ports, and the requests of its connections."""

    def __init__(
        self, first_port: int, *, cluster_id: str = "a", seed: int = 1, **settings: Any
    ) -> None:
        specs = [BrokerSpec(node, f"b{node}", first_port + node) for node in (1, 2, 3)]
        self.state = ClusterState(
            specs,
            settings=ClusterSettings(cluster_id=cluster_id, **settings),
            rng=random.Random(seed),
        )
        self.asked: list[tuple[int, str]] = []
        self.sends_away = False

    def create_topic(self, partitions: int = 1) -> None:
        self.state.create_topic("t", TopicSpec(partitions, 3))

    def broker(self, node_id: int) -> Behaviour:
        async def behave(peer: Peer) -> None:
            while True:
                header = await peer.request()
                key = ApiKey(header.api_key)
                self.asked.append((node_id, key.name))
                if key is ApiKey.API_VERSIONS:
                    request = ApiVersionsRequest.decode(header.body, header.api_version)
                    if request.cluster_id is not None:
                        self.asked[-1] = (node_id, f"are you {request.node_id}?")
                if key is ApiKey.METADATA and self.sends_away:
                    peer.respond(header, MetadataResponse(error_code=129))
                    continue
                frame = self.state.respond(node_id, header, wall_clock_ms()).frame
                if frame is not None:
                    peer.raw(frame)

        return behave

    def move(self, first_port: int) -> None:
        for node in (1, 2, 3):
            self.state.set_broker_address(node, f"b{node}", first_port + node)

    def put_up(self, dialer: MemoryDialer, boot_address: str) -> None:
        """Opens the brokers' ports, and the bootstrap name leads to one of them."""
        for spec in self.state.brokers.values():
            dialer.servers[f"{spec.host}:{spec.port}"] = self.broker(spec.node_id)
        dialer.servers[boot_address] = self.broker(1)
        dialer.names["boot"] = [boot_address]

    def values(self) -> list[bytes]:
        """The records of the topic, in the order of each partition."""
        return [
            record.value or b""
            for partition in self.state.topics["t"].partitions
            for stored in partition.log.batches
            for batch in read_batches(stored.data)
            for record in batch.records()
        ]


def numbered(numbers: range) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def send_twice_a_second(producer: Producer, numbers: range) -> list[Any]:
    """The deliveries of numbered records."""
    deliveries = []
    for value in numbered(numbers):
        deliveries.append(await producer.send("t", value))
        await asyncio.sleep(0.5)
    return deliveries


async def vanish(dialer: MemoryDialer, *, swallowed: bool) -> None:
    """All that listens is gone: its addresses refuse, or nothing answers there at all."""
    gone = list(dialer.servers) if swallowed else []
    dialer.servers = dict.fromkeys(gone, black_hole)
    await dialer.close_connections()


@pytest.mark.parametrize("swallowed", [False, True], ids=["refused", "swallowed"])
def test_all_brokers_gone_for_a_minute_and_back_at_other_ports_cost_no_record(
    swallowed: bool,
) -> None:
    @virtual_time
    async def run() -> None:
        site, dialer = Site(9000), MemoryDialer({})
        site.create_topic()
        site.put_up(dialer, "10.0.0.1")

        async def disaster() -> None:
            await asyncio.sleep(10)
            await vanish(dialer, swallowed=swallowed)
            await asyncio.sleep(60)
            site.move(19_000)
            site.put_up(dialer, "10.0.0.2")

        async with producer_at(dialer) as producer:
            happening = asyncio.create_task(disaster())
            deliveries = await send_twice_a_second(producer, range(200))
            metadata = await asyncio.gather(*deliveries)
            await happening
        assert [each.offset for each in metadata] == list(range(200))
        assert site.values() == numbered(range(200))
        await dialer.shut_down()

    run()


@virtual_time
async def test_with_the_strategy_none_the_client_does_not_go_back_to_the_bootstrap_servers() -> (
    None
):
    site, dialer = Site(9000), MemoryDialer({})
    site.create_topic()
    site.put_up(dialer, "10.0.0.1")
    async with producer_at(
        dialer,
        metadata_recovery_strategy="none",
        metadata_recovery_rebootstrap_trigger_ms=1000,
        metadata_max_age_ms=5000,
    ) as producer:
        await producer.send_and_wait("t", b"before")
        await vanish(dialer, swallowed=False)
        site.move(19_000)
        site.put_up(dialer, "10.0.0.2")
        delivery = await producer.send("t", b"after")
        with pytest.raises(DeliveryTimeoutError):
            await delivery
    assert "10.0.0.2" not in {host for _, host in dialer.dials}
    assert site.values() == [b"before"]
    await dialer.shut_down()


@virtual_time
async def test_a_server_that_asks_to_start_over_is_left_for_where_its_name_leads_now() -> None:
    old, new, dialer = Site(9000), Site(19_000, cluster_id="b", seed=2), MemoryDialer({})
    for site in (new, old):
        site.create_topic()
        site.put_up(dialer, "10.0.0.2" if site is new else "10.0.0.1")
    async with producer_at(dialer, metadata_max_age_ms=5000) as producer:
        await producer.send_and_wait("t", b"old")
        # The old cluster is up and its connections stay open, that of the bootstrap server too.
        old.sends_away = True
        dialer.names["boot"] = ["10.0.0.2"]
        await asyncio.sleep(10)
        await producer.send_and_wait("t", b"new")
    assert (old.values(), new.values()) == ([b"old"], [b"new"])
    await dialer.shut_down()


def test_another_cluster_gets_no_batch_taken_for_one_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There our producer id belongs to another producer, whose last sequences we would use."""

    @virtual_time
    async def run() -> None:
        one, other, dialer = Site(9000), Site(19_000, cluster_id="b", seed=2), MemoryDialer({})
        for site in (one, other):
            site.create_topic()
        one.put_up(dialer, "10.0.0.1")
        assert other.state.new_producer_id() == 0
        for sequence in range(10, 15):
            other.state.topics["t"].partitions[0].producers.remember(
                ProducerBatchKey(0, 0, sequence, sequence), 1000 + sequence, -1
            )
        async with producer_at(dialer) as producer:
            first = await send_twice_a_second(producer, range(10))
            await asyncio.gather(*first)
            await vanish(dialer, swallowed=False)
            other.put_up(dialer, "10.0.0.2")
            second = await send_twice_a_second(producer, range(10, 30))
            metadata = await asyncio.gather(*second)
        assert [each.offset for each in metadata] == list(range(20))
        assert one.values() == numbered(range(10))
        assert other.values() == numbered(range(10, 30))
        await dialer.shut_down()

    with caplog.at_level(logging.WARNING, "aioproducer.runtime"):
        run()
    assert [
        r for r in caplog.records if "another cluster answers now: b instead of a" in r.getMessage()
    ]


def swap(site: Site, dialer: MemoryDialer) -> None:
    """Brokers 1 and 2 come back each at the port the other one had."""
    one, two = site.state.brokers[1], site.state.brokers[2]
    dialer.servers |= {"b1:9001": site.broker(2), "b2:9002": site.broker(1)}
    site.state.set_broker_address(1, two.host, two.port)
    site.state.set_broker_address(2, one.host, one.port)


@pytest.mark.parametrize("check", [True, False])
def test_swapped_brokers_are_noticed_before_a_record_goes_astray(check: bool) -> None:
    # Which broker is dialed first after the swap is a matter of chance, hence the seeds.
    misled = [misled_after_a_swap(seed, check=check) for seed in range(6)]
    assert any(misled) is check


def misled_after_a_swap(seed: int, *, check: bool) -> set[tuple[int, str]]:
    """The brokers that were asked whether they are the other one; every record arrives once."""
    misled: set[tuple[int, str]] = set()

    @virtual_time
    async def run() -> None:
        site, dialer = Site(9000), MemoryDialer({})
        site.create_topic(3)
        site.put_up(dialer, "10.0.0.1")
        options = {"seed": seed, "metadata_cluster_check_enable": check}
        async with producer_at(dialer, **options) as producer:
            await asyncio.gather(*await send_twice_a_second(producer, range(20)))
            site.asked.clear()
            await dialer.close_connections()
            swap(site, dialer)
            metadata = await asyncio.gather(*await send_twice_a_second(producer, range(20, 60)))
        assert len(metadata) == 40
        assert sorted(site.values()) == sorted(numbered(range(60)))
        misled.update({(1, "are you 2?"), (2, "are you 1?")} & set(site.asked))
        await dialer.shut_down()

    run()
    return misled


@virtual_time
async def test_a_topic_created_anew_gets_new_sequences() -> None:
    site, dialer = Site(9000), MemoryDialer({})
    site.create_topic()
    site.put_up(dialer, "10.0.0.1")
    async with producer_at(dialer, allow_auto_create_topics=False) as producer:
        await asyncio.gather(*await send_twice_a_second(producer, range(10)))
        partition = site.state.topics["t"].partitions[0]
        for _ in range(7):
            site.state.move_leader("t", 0)
        assert partition.leader_epoch == 7
        site.state.delete_topic("t")
        sending = asyncio.create_task(send_twice_a_second(producer, range(10, 40)))
        await asyncio.sleep(5)
        site.create_topic()
        metadata = await asyncio.gather(*await sending)
    assert [each.offset for each in metadata] == list(range(30))
    assert site.values() == numbered(range(10, 40))
    stored = site.state.topics["t"].partitions[0].log.batches
    headers = [header for each in stored for header in read_batches(each.data)]
    assert (headers[0].producer_epoch, headers[0].base_sequence) == (1, 0)
    await dialer.shut_down()


@virtual_time
async def test_without_topic_ids_a_topic_created_anew_between_two_requests_is_written_to() -> None:
    of_2_7 = {ApiKey.METADATA: (0, 9), ApiKey.PRODUCE: (0, 8)}
    site, dialer = Site(9000, api_versions=of_2_7), MemoryDialer({})
    site.create_topic()
    site.put_up(dialer, "10.0.0.1")
    async with producer_at(dialer) as producer:
        for _ in range(7):
            site.state.move_leader("t", 0)
        assert (await producer.send_and_wait("t", b"before")).offset == 0
        leader = site.state.topics["t"].partitions[0].leader
        site.state.delete_topic("t")
        site.state.create_topic("t", assignments={0: [leader % 3 + 1]})
        began = asyncio.get_running_loop().time()
        assert (await producer.send_and_wait("t", b"after")).offset == 0
        assert asyncio.get_running_loop().time() - began < 10
    assert site.values() == [b"after"]
    await dialer.shut_down()


@virtual_time
async def test_brokers_swapped_for_good_are_dialed_with_pauses() -> None:
    site, dialer = Site(9000), MemoryDialer({})
    site.create_topic(3)
    site.put_up(dialer, "10.0.0.1")
    dialer.servers |= {"b1:9001": site.broker(2), "b2:9002": site.broker(3)}
    dialer.servers["b3:9003"] = site.broker(1)
    async with producer_at(dialer) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(DeliveryTimeoutError):
            await delivery
    assert 100 < len(dialer.dials) < 1000
    assert site.values() == []
    await dialer.shut_down()


@virtual_time
async def test_records_of_a_deleted_topic_fail_with_their_time_and_the_reason() -> None:
    site, dialer = Site(9000), MemoryDialer({})
    site.create_topic()
    site.put_up(dialer, "10.0.0.1")
    loop = asyncio.get_running_loop()
    async with producer_at(dialer, allow_auto_create_topics=False, linger_ms=1000) as producer:
        sent_at = loop.time()
        waiting = await producer.send("t", b"v")
        site.state.delete_topic("t")
        with pytest.raises(DeliveryTimeoutError, match="UNKNOWN_TOPIC") as caught:
            await waiting
        assert loop.time() - sent_at == pytest.approx(120, abs=1)
        assert isinstance(caught.value.__cause__, UnknownTopicIdError)
        site.create_topic()
        assert (await producer.send_and_wait("t", b"v")).offset == 0
    await dialer.shut_down()


@virtual_time
async def test_records_for_partitions_that_a_new_topic_lacks_fail_in_time() -> None:
    site, dialer = Site(9000), MemoryDialer({})
    site.create_topic(3)
    site.put_up(dialer, "10.0.0.1")
    options = {"linger_ms": 60_000, "metadata_max_age_ms": 1000}
    async with producer_at(dialer, **options) as producer:
        waiting = [await producer.send("t", b"v", partition=index) for index in range(3)]
        site.state.delete_topic("t")
        site.create_topic(1)
        await asyncio.sleep(10)
        assert (await waiting[0]).offset == 0
        for delivery in waiting[1:]:
            with pytest.raises(DeliveryTimeoutError, match=r"the topic has 1 partition\(s\)"):
                await delivery
    assert site.values() == [b"v"]
    await dialer.shut_down()
