"""Test of an installed wheel: run in an environment that has nothing but the wheel.

Native code, embedded brokers, each codec, a transaction; every record read back.
"""

from __future__ import annotations

import asyncio

from aioproducer import Producer
from aioproducer.records import IMPLEMENTATION
from aioproducer.testing import EmbeddedCluster, read_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def main() -> None:
    """Send by each codec and in a transaction; complain if anything is missing."""
    async with EmbeddedCluster(brokers=1, topics={"smoke": 1}) as cluster:
        servers = cluster.bootstrap_servers
        for codec in CODECS:
            async with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
                metadata = await producer.send_and_wait("smoke", codec.encode() * 100)
                if metadata.partition != 0:
                    raise SystemExit(f"stored where nothing is: {metadata}")
        last = Producer(bootstrap_servers=servers, transactional_id="smoke")
        async with last as producer, producer.transaction():
            await producer.send("smoke", b"committed")
        records = (await read_topic(servers, "smoke", isolation_level="read_committed"))[0]
    expected = [codec.encode() * 100 for codec in CODECS] + [b"committed"]
    if [record.value for record in records] != expected:
        raise SystemExit(f"read back: {records}")
    if IMPLEMENTATION != "native":
        raise SystemExit("the native core is missing")


if __name__ == "__main__":
    asyncio.run(main())
