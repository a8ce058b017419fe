"""Rack-aware choice of partitions on a cluster with racks (KIP-1123)."""

from __future__ import annotations

import pytest

from aioproducer import Producer
from aioproducer.testing.embedded import EmbeddedCluster


@pytest.mark.parametrize(("aware", "leaders"), [(True, {2}), (False, {1, 2, 3})])
async def test_records_without_a_key_go_to_leaders_in_the_own_rack_if_asked_for(
    aware: bool, leaders: set[int]
) -> None:
    async with (
        EmbeddedCluster(racks=["a", "b", "c"], topics={"t": 6}) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            client_rack="b",
            partitioner_rack_aware=aware,
            batch_size=100,
        ) as producer,
    ):
        sent = [await producer.send("t", b"v" * 40) for _ in range(200)]
        used = {(await delivery).partition for delivery in sent}
        partitions = await producer.partitions_for("t")
        keyed = {(await producer.send_and_wait("t", b"", b"%d" % n)).partition for n in range(50)}
    assert {partition.leader for partition in partitions if partition.partition in used} == leaders
    assert keyed == set(range(6))
