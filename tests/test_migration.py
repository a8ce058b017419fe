"""The page for users of other clients says what is true: every line of its tables is run."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import re
import ssl
import textwrap
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from tools.site import clients

from aioproducer import Producer, ProducerConfig, blocking
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.confluent import Producer as ConfluentProducer
from aioproducer.compat.kafka import KafkaProducer
from aioproducer.errors import ConfigError, TransactionAbortableError
from aioproducer.testing import ClusterSettings, EmbeddedCluster, TopicSpec, read_topic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, of how it reads its schemas
    import kafka

DOCS = Path(__file__).parent.parent / "aioproducer" / "docs"
PAGE = DOCS / "migration.md"
COMPARED = "aioproducer | aiokafka | confluent-kafka | kafka-python"
Row = list[str]

QUIET = {"log_level": 0}


def tables(page: Path) -> Iterator[tuple[str, list[Row]]]:
    """Each table's first heading and its rows."""
    for text in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in text.splitlines()
        ]
        yield " | ".join(rows[0]), rows[2:]


TABLES = dict(tables(PAGE))
PAIRS = dict(tables(Path(__file__).with_name("option_pairs.md")))


def code(cell: str) -> str:
    assert cell[0] == cell[-1] == "`", cell
    return cell.strip("`")


async def run(cell: str, topic: str, scope: dict[str, Any]) -> None:
    """Run a cell, in a thread if nothing in it is awaited."""
    lines = code(cell).replace('"orders"', repr(topic)).replace("; ", "\n")
    body = textwrap.indent(lines, "    ")
    if "await " in lines:
        exec(f"async def snippet():\n{body}", scope)
        await scope["snippet"]()
    else:
        exec(f"def snippet():\n{body}", scope)
        await asyncio.to_thread(scope["snippet"])


async def stored(servers: str, topic: str, row: Row) -> list[tuple[Any, ...]]:
    """Return the records of the topic; partition and time only where the row gives them."""
    text = row[0]
    return [
        (
            record.key,
            record.value,
            tuple(record.headers),
            "partition=1" in text and partition,
            "1700000000000" in text and record.timestamp_ms,
        )
        for partition, records in (
            await read_topic(servers, topic, isolation_level="read_committed")
        ).items()
        for record in records
    ]


# -- calls ---------------------------------------------------------------------------------------

Enter = contextlib.AbstractAsyncContextManager[Any]


def transactional(row: Row, name: str) -> dict[str, Any]:
    return {"transactional_id": name} if "transaction" in row[0] else {}


@contextlib.asynccontextmanager
async def of_confluent(servers: str, row: Row) -> Any:
    options = {key.replace("_", "."): value for key, value in transactional(row, "theirs").items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 200} | options)
    try:
        yield producer
    finally:
        await asyncio.to_thread(producer.flush, 10)


@contextlib.asynccontextmanager
async def of_kafka_python(servers: str, row: Row) -> Any:
    producer = await asyncio.to_thread(
        lambda: kafka.KafkaProducer(bootstrap_servers=servers, **transactional(row, "theirs"))
    )
    try:
        yield producer
    finally:
        await asyncio.to_thread(producer.close, 10)


@contextlib.asynccontextmanager
async def of_blocking(servers: str, row: Row) -> Any:
    producer = blocking.Producer(bootstrap_servers=servers, **transactional(row, "ours"))
    await asyncio.to_thread(producer.start)
    try:
        yield producer
    finally:
        await asyncio.to_thread(producer.close)


def of_aiokafka(servers: str, row: Row) -> Enter:
    options = transactional(row, "theirs")
    return aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks="all", **options)


def of_ours(servers: str, row: Row) -> Enter:
    return Producer(bootstrap_servers=servers, **transactional(row, "ours"))


@pytest.mark.parametrize(
    ("table", "theirs", "ours"),
    [
        ("aiokafka | aioproducer", of_aiokafka, of_ours),
        ("confluent-kafka | aioproducer", of_confluent, of_ours),
        ("kafka-python | aioproducer.blocking", of_kafka_python, of_blocking),
    ],
)
async def test_each_call_does_the_same(
    table: str, theirs: Callable[[str, Row], Enter], ours: Callable[[str, Row], Enter]
) -> None:
    rows = TABLES[table]
    assert len(rows) > 5
    topics = {f"{whose}-{number}": 2 for whose in ("theirs", "ours") for number in range(len(rows))}
    async with EmbeddedCluster(brokers=1, topics=topics) as cluster:
        servers = cluster.bootstrap_servers
        for number, row in enumerate(rows):
            found = []
            for cell, whose, enter in zip(row, ("theirs", "ours"), (theirs, ours), strict=True):
                topic = f"{whose}-{number}"
                async with enter(servers, row) as producer:
                    place = aiokafka.TopicPartition(topic, 0)  # taken by both
                    await run(cell, topic, {"producer": producer, "place": place})
                found.append(await stored(servers, topic, row))
            assert found[0] == found[1], row
            sends = 'b"v"' in row[0] and "abort" not in row[0]
            assert len(found[0]) == sends, row


# -- options -------------------------------------------------------------------------------------


def options(cell: str, context: ssl.SSLContext) -> dict[str, Any]:
    return eval(f"dict({code(cell)})", {"context": context})


def value_of(config: ProducerConfig, name: str) -> Any:
    return config.acks_value if name == "acks" else getattr(config, name)


async def test_each_option_of_aiokafka_means_that_one_here() -> None:
    context = ssl.create_default_context()
    theirs_known = inspect.signature(aiokafka.AIOKafkaProducer.__init__).parameters
    for row in PAIRS["option of aiokafka | option of aioproducer"]:
        theirs, ours = (options(cell, context) for cell in row)
        assert theirs.keys() <= theirs_known.keys(), row
        producer = AIOKafkaProducer(**theirs)
        await producer.stop()
        ours_config = ProducerConfig(**({"bootstrap_servers": "broker:9092"} | ours))
        native = ProducerConfig(**({"bootstrap_servers": "broker:9092"} | theirs))
        for name in ours:
            assert value_of(producer._own_config, name) == value_of(ours_config, name), row
            assert value_of(native, name) == value_of(ours_config, name), row


def test_each_option_of_librdkafka_is_read_as_that_one_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "https://issuer/token")
    base = {"bootstrap.servers": "127.0.0.1:1"}
    for theirs_cell, ours_cell in PAIRS["option of librdkafka | option of aioproducer"]:
        theirs = eval("{" + code(theirs_cell) + "}")
        ours = eval(f"dict({code(ours_cell)})")
        confluent_kafka.Producer(QUIET | base | theirs)
        read = Producer(base | theirs).config
        expected = ProducerConfig(**({"bootstrap_servers": "127.0.0.1:1"} | ours))
        for name in ours:
            assert getattr(read, name) == getattr(expected, name), theirs_cell


def test_each_option_of_kafka_python_exists_there_and_here() -> None:
    for theirs_cell, ours_cell in PAIRS["option of kafka-python | option of aioproducer"]:
        theirs, ours = (eval(f"dict({code(cell)})") for cell in (theirs_cell, ours_cell))
        assert theirs.keys() <= kafka.KafkaProducer.DEFAULT_CONFIG.keys(), theirs_cell
        read, expected = (
            ProducerConfig(bootstrap_servers="broker:9092", **o) for o in (theirs, ours)
        )
        for name in ours:
            assert getattr(read, name) == getattr(expected, name), theirs_cell


def test_each_callback_of_confluent_kafka_is_refused_in_the_words_of_the_page() -> None:
    for name_cell, instead in TABLES["callback of confluent-kafka | instead"]:
        with pytest.raises(ConfigError, match=code(name_cell)) as error:
            Producer({"bootstrap.servers": "broker:9092", code(name_cell): print})
        assert error.value.advice == instead


def our_default(name: str) -> Any:
    config = ProducerConfig(bootstrap_servers="127.0.0.1:1")
    if name == "enable_idempotence":  # None in the table: on, unless another option forbids it
        return config.effective_idempotence
    return getattr(config, name)


async def test_the_defaults_are_those_of_aiokafka_and_ours() -> None:
    theirs = inspect.signature(aiokafka.AIOKafkaProducer.__init__).parameters
    producer = aiokafka.AIOKafkaProducer()
    acks = producer._sender._acks  # the signature does not show it
    await producer.stop()
    for name, their_cell, our_cell in TABLES["default of | aiokafka | aioproducer"]:
        default = acks if code(name) == "acks" else theirs[code(name)].default
        assert default == eval(code(their_cell)), name
        assert our_default(code(name)) == eval(code(our_cell)), name


def test_the_comparison_has_the_defaults_of_each_client() -> None:
    rows = {row[0]: row[1:] for row in dict(tables(DOCS / "comparison.md"))[COMPARED]}
    librdkafka = [librdkafka_default(name) for name in ("acks", "enable.idempotence", "linger.ms")]
    assert librdkafka == ["-1", "false", "5"]
    python = kafka.KafkaProducer.DEFAULT_CONFIG
    theirs = inspect.signature(aiokafka.AIOKafkaProducer).parameters
    for name, cell in (("acks", "`all`"), ("enable_idempotence", "True"), ("linger_ms", "0")):
        assert rows[f"default `{name}`"][3] == cell
        assert python[name] == {"`all`": -1, "True": True, "0": 0}[cell]
    assert rows["default `enable_idempotence`"][:3] == ["True", "False", "False"]
    assert rows["default `linger_ms`"][:3] == ["5", "0", "5"]
    assert (our_default("enable_idempotence"), our_default("linger_ms")) == (True, 5)
    assert (theirs["enable_idempotence"].default, theirs["linger_ms"].default) == (False, 0)


def librdkafka_default(name: str) -> str:
    """Return librdkafka's values from its C interface; Python's has no call for it."""
    (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob(
        "librdkafka*"
    )
    library, text, size = ctypes.CDLL(str(path)), ctypes.create_string_buffer(512), ctypes.c_size_t
    for kind in ("rd_kafka_conf", "rd_kafka_topic_conf"):
        new, get = getattr(library, f"{kind}_new"), getattr(library, f"{kind}_get")
        new.restype, get.argtypes = (
            ctypes.c_void_p,
            [ctypes.c_void_p, ctypes.c_char_p] + 2 * [ctypes.c_void_p],
        )
        length = size(len(text))
        if get(new(), name.encode(), text, ctypes.byref(length)) == 0:
            return text.value.decode()
    raise LookupError(name)


def test_the_defaults_are_those_of_librdkafka_and_ours() -> None:
    ours = {"message.timeout.ms": "delivery_timeout_ms"}
    for name_cell, their_cell, our_cell in TABLES["default of | confluent-kafka | aioproducer"]:
        name = code(name_cell)
        assert librdkafka_default(name) == code(their_cell), name
        assert our_default(ours.get(name, name.replace(".", "_"))) == eval(code(our_cell)), name


# -- errors --------------------------------------------------------------------------------------

Provocation = Callable[[str, str], Awaitable[object]]


async def name_of(call: Awaitable[object]) -> str:
    try:
        await call
    except (Exception, confluent_kafka.KafkaException) as error:
        if isinstance(error, confluent_kafka.KafkaException):
            return str(error.args[0].name())
        return type(error).__name__
    return "nothing"


REFUSED = {
    "the record is larger than `max_request_size`": ("orders", b"v" * 2_000_000),
    "the record is larger than the topic's `max.message.bytes`": ("small", b"v" * 5_000),
    "the topic does not exist": ("absent", b"v"),
    "the topic's name cannot be one": ("no name", b"v"),
}
"""Records that provoke an error by themselves, by the page's words for it."""


async def with_aiokafka(servers: str, what: str) -> None:
    options = {} if "transaction" not in what else {"transactional_id": "aiokafka"}
    timeout = 1_500 if "topic" in what and "larger" not in what else 20_000
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, request_timeout_ms=timeout, **options
    )
    try:
        await producer.start()
        match what:
            case _ if what in REFUSED:
                await producer.send_and_wait(*REFUSED[what])
            case "another producer has taken the transactional id":
                newer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, **options)
                async with newer, producer.transaction():
                    await producer.send_and_wait("orders", b"v")
            case "`begin_transaction` twice":
                await producer.begin_transaction()
                await producer.begin_transaction()
    finally:
        with contextlib.suppress(Exception):
            await producer.stop()


async def with_ours(servers: str, what: str) -> None:
    options = {} if "transaction" not in what else {"transactional_id": "ours"}
    short = {"max_block_ms": 1_500} if "larger" not in what and not options else {}
    async with Producer(bootstrap_servers=servers, **options, **short) as producer:
        match what:
            case _ if what in REFUSED:
                await producer.send_and_wait(*REFUSED[what])
            case "another producer has taken the transactional id":
                async with Producer(bootstrap_servers=servers, **options):
                    with contextlib.suppress(TransactionAbortableError):
                        async with producer.transaction():
                            await producer.send("orders", b"v")
                    await producer.begin_transaction()
            case "`begin_transaction` twice":
                await producer.begin_transaction()
                await producer.begin_transaction()


def with_confluent(servers: str, what: str) -> None:
    options: dict[str, Any] = QUIET | {
        "bootstrap.servers": servers,
        "message.timeout.ms": 1_000 if "no broker" in what else 20_000,
        "topic.metadata.propagation.max.ms": 100,
    }
    failures: list[confluent_kafka.KafkaError] = []

    def send(topic: str, value: bytes) -> None:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.extend([error] if error else [])
        )
        producer.flush(20)
        if failures:
            raise confluent_kafka.KafkaException(failures[0])

    if "transaction" in what:
        options |= {"transactional.id": "confluent"}
    producer = confluent_kafka.Producer(options)
    match what:
        case "the record is larger than `max_request_size`":
            send("orders", b"v" * 2_000_000)
        case "the record is larger than the topic's `max.message.bytes`":
            send("small", b"v" * 5_000)
        case "the topic does not exist":
            send("absent", b"v")
        case "the topic's name cannot be one":
            send("no name", b"v")
        case "no broker answers":
            send("orders", b"v")
        case "another producer has taken the transactional id":
            producer.init_transactions(20)
            other = confluent_kafka.Producer(options)
            other.init_transactions(20)
            producer.begin_transaction()
            producer.produce("orders", b"v")
            producer.commit_transaction(20)
        case "`begin_transaction` twice":
            producer.init_transactions(20)
            producer.begin_transaction()
            producer.begin_transaction()


async def test_each_error_is_the_one_that_the_table_names() -> None:
    (rows,) = (rows for heading, rows in TABLES.items() if heading.startswith("what happens"))
    settings = ClusterSettings(auto_create_topics=False)
    async with EmbeddedCluster(brokers=1, topics={"orders": 1}, settings=settings) as cluster:
        cluster.create_topic("small", TopicSpec(1, configs={"max.message.bytes": "2000"}))
        for what, theirs, confluents, ours in rows:
            servers = "127.0.0.1:1" if "no broker" in what else cluster.bootstrap_servers
            found = await asyncio.gather(
                # In a separate loop: it may leave futures whose errors are not retrieved.
                name_of(asyncio.to_thread(asyncio.run, with_aiokafka(servers, what))),
                name_of(asyncio.to_thread(with_confluent, servers, what)),
                name_of(with_ours(servers, what)),
            )
            assert found == list(map(code, (theirs, confluents, ours))), what


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_table_of_options_is_made_of_the_table_that_the_producer_reads(client: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert clients.with_tables(text) == text, "run python -m tools.site.clients with PYTHONPATH=.ci"
    rows = TABLES[f"options of {client} | here"]
    named = {name for names, _ in rows for name in re.findall(r"`([^`]+)`", names)}
    assert named == set(clients.CLIENTS[client]())
    assert not [row for row in rows if "unknown" in row]


def test_every_table_of_the_page_has_its_test() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    for heading in TABLES:
        if heading.startswith(("options of ", "you use ")):
            continue
        assert f'"{heading}"' in source or heading.startswith("what happens"), heading


def test_one_import_is_all_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka, "AIOKafkaProducer", aiokafka.AIOKafkaProducer)
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if "asyncio.run(" not in block:  # test_snippets.py runs programs
            exec(block, scope)
    assert scope["AIOKafkaProducer"] is aiokafka.AIOKafkaProducer is AIOKafkaProducer
    assert scope["AIOKafkaConsumer"] is aiokafka.AIOKafkaConsumer
    assert scope["KafkaProducer"] is KafkaProducer
    assert scope["Producer"] is ConfluentProducer
