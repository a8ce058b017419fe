"""Two programs written for aiokafka run with one import changed, and leave the same in Kafka.

And the loop of the guide to transactions, which needs a group that real brokers keep.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import aiokafka
import pytest
from support import aiokafka_programs
from support.clusters import ClusterUnderTest, unique_topic
from support.confluent import read_all_confluent
from support.pages import blocks, definitions, page

from aioproducer import Producer
from aioproducer.compat.aiokafka import AIOKafkaProducer

pytestmark = pytest.mark.kafka

PROGRAMS = Path(aiokafka_programs.__file__).parent
HERE = "from aioproducer.compat.aiokafka import AIOKafkaProducer\n"


def program(name: str, *, changed: bool) -> ModuleType:
    """The unchanged program, or with the producer imported from here."""
    path = PROGRAMS / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    if changed:
        (line,) = (
            line
            for line in source.splitlines(keepends=True)
            if line.startswith("from aiokafka import ")
        )
        others = line.replace("AIOKafkaProducer, ", "").replace("AIOKafkaProducer", "")
        source = source.replace(line, (others if others.split()[3:] else "") + HERE)
    module = ModuleType(f"{name}_{'changed' if changed else 'unchanged'}")
    # Dataclasses look their module up.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        exec(compile(source, str(path), "exec"), module.__dict__)
    expected = AIOKafkaProducer if changed else aiokafka.AIOKafkaProducer
    assert module.AIOKafkaProducer is expected
    return module


# -- counting words, in transactions -------------------------------------------------------------

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "and",
    "the",
    "dog",
    "sleeps",
]
LINES = [" ".join(WORDS[(n * k) % len(WORDS)] for k in range(1, 6)) for n in range(1, 41)]


class PulledThePlugError(Exception):
    """Ends a program in the middle of a transaction."""


def pull_the_plug(transaction: int) -> None:
    if transaction == 3:
        raise PulledThePlugError


async def counted(kafka: ClusterUnderTest, *, changed: bool) -> Any:
    """Count the lines with an interruption; return the program's outcome as Kafka has it."""
    module = program("word_count", changed=changed)
    source, sink, group = await kafka.create_topic(2), await kafka.create_topic(2), unique_topic()
    servers = kafka.bootstrap_servers
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True
    ) as writer:
        for number, line in enumerate(LINES):
            await writer.send(source, line.encode(), partition=number % 2)
        await writer.flush()
    with pytest.raises(PulledThePlugError):
        await module.count_words(
            servers, source, sink, group, until=len(LINES), before_commit=pull_the_plug
        )
    await module.count_words(servers, source, sink, group, until=len(LINES))
    counts: defaultdict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
    for record in await read_all_confluent(servers, sink):
        counts[record.key].append((record.partition, record.value))
    aborted = len(await read_all_confluent(servers, sink, "read_uncommitted"))
    return dict(counts), aborted > sum(map(len, counts.values()))


async def test_a_word_count_in_transactions_counts_each_word_once_on_either_client(
    kafka: ClusterUnderTest,
) -> None:
    on_aiokafka = await counted(kafka, changed=False)
    on_ours = await counted(kafka, changed=True)
    assert on_ours == on_aiokafka
    counts, _ = on_ours
    expected = Counter(word for line in LINES for word in line.split())
    assert {word.decode(): [int(value) for _, value in rows] for word, rows in counts.items()} == {
        word: list(range(1, count + 1)) for word, count in expected.items()
    }


# -- publishing JSON, singly and in batches ------------------------------------------------------

START = 1_700_000_000_000
EVENTS = [
    {
        "id": number,
        "at": START + number,
        "customer": f"customer-{number % 7}",
        # What does not compress is too large for the topic.
        "note": random.Random(number).randbytes(5_000 if number in {17, 42} else number).hex(),
    }
    for number in range(120)
]


async def published(kafka: ClusterUnderTest, *, changed: bool, **options: Any) -> Any:
    """Publish on new topics; what the program reports, and what Kafka holds.

    Without idempotence a batch whose answer is lost is sent again: either client may store a record
    twice. So each record counts once, where it is first; and no batch is given up for being
    late while the test may run.
    """
    module = program("json_publisher", changed=changed)
    events = await kafka.create_topic(3, configs={"max.message.bytes": "4000"})
    rejects, store = await kafka.create_topic(1), await kafka.create_topic(2)
    producer = await module.connected(
        kafka.bootstrap_servers, max_batch_size=12_000, request_timeout_ms=120_000, **options
    )
    try:
        singly = await module.publish(producer, events, rejects, EVENTS)
        in_batches = await module.archive(producer, store, EVENTS)
    finally:
        await producer.stop()
    contents = []
    for topic in (events, rejects, store):
        records = await read_all_confluent(kafka.bootstrap_servers, topic)
        contents.append(
            sorted({(r.partition, r.key, r.value, r.timestamp, r.headers) for r in records})
        )
    rejected = sorted({row[:3] for row in contents[1]})  # their time is that of the run
    in_order = sorted(records, key=lambda each: each.partition)
    order = list(dict.fromkeys(record.value for record in in_order))
    return (
        (singly.stored, len(singly.failed), singly.reasons.keys()),
        (in_batches.stored, in_batches.batches),
        (contents[0], rejected, contents[2], order),
    )


async def test_a_publisher_of_events_and_batches_leaves_the_same_on_either_client(
    kafka: ClusterUnderTest,
) -> None:
    on_aiokafka = await published(kafka, changed=False)
    on_ours = await published(kafka, changed=True)
    assert on_ours[:2] == on_aiokafka[:2]
    names = ("events", "rejects", "archive", "order of the archive")
    for name, ours, theirs in zip(names, on_ours[2], on_aiokafka[2], strict=True):
        assert ours == theirs, name
    (stored, failed, reasons), (archived, batches), (events, rejected, _, _) = on_ours
    assert (sum(stored.values()), failed, set(reasons)) == (118, 2, {"MessageSizeTooLargeError"})
    assert (sum(archived.values()), len(events), len(rejected)) == (120, 118, 2)
    assert batches > 2


async def test_a_refused_record_costs_an_idempotent_publisher_nothing_else(
    kafka: ClusterUnderTest,
) -> None:
    # On aiokafka every later batch of the partition fails, out of order.
    (stored, failed, reasons), *_ = await published(kafka, changed=True, enable_idempotence=True)
    assert (sum(stored.values()), failed, set(reasons)) == (118, 2, {"MessageSizeTooLargeError"})


# -- the guide -----------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_loop_in_the_guide_to_transactions_copies_each_record_once(
    kafka: ClusterUnderTest,
) -> None:
    source, target = await kafka.create_topic(2), await kafka.create_topic(1)
    program = next(each for each in blocks(page("transactions")) if "AIOKafkaConsumer(" in each)
    for name, unique in {'"carts"': repr(source), '"orders"': repr(target)}.items():
        program = program.replace(name, unique)
    program = program.replace("copier", unique_topic())
    main = definitions(program, kafka.bootstrap_servers)["main"]
    for values in ([b"a", b"b", b"c"], [b"d"]):  # the second run begins at the group's offsets
        async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            await producer.send_many(source, values)
        await main()
    copied = await read_all_confluent(kafka.bootstrap_servers, target)
    assert sorted(record.value for record in copied) == [b"A", b"B", b"C", b"D"]
