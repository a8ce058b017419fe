"""Systems that cannot fork, such as Windows: nothing is registered, and all is imported."""

from __future__ import annotations

from pathlib import Path

from support.windows import output_without_posix

SENDING = """
from aioproducer import Producer
from aioproducer.blocking import Producer as BlockingProducer
from aioproducer.testing import EmbeddedCluster

async def main():
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"0")
        def send():
            with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                print(producer.send_and_wait("t", b"1").offset)
        await asyncio.to_thread(send)

asyncio.run(main())
"""

READING = """
import sys, threading
from aioproducer.compat import aiokafka, confluent, kafka
from aioproducer.loader.streams import open_input
print(open_input(sys.argv[1], threading.Event()).read())
"""


def test_producers_work_without_fork() -> None:
    assert output_without_posix(SENDING) == "1"


def test_a_file_is_opened_for_a_load_without_fork(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"a\r\n1\r\n")
    assert output_without_posix(READING, str(tmp_path / "rows.csv")) == r"b'a\r\n1\r\n'"
