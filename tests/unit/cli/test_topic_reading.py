"""`aioproducer topics read` on an embedded cluster."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.topic_reading import _text
from aioproducer.testing import ThreadedCluster, TopicSpec
from cli.secured_cluster import secured_cluster

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    """A topic `t` of two partitions: ten records of values 0 to 9 in each, a second apart."""
    topics = {
        "t": TopicSpec(2, 1),
        "odd": TopicSpec(1, 1),
        "empty": TopicSpec(3, 1),
        "later": TopicSpec(1, 1),
    }
    with ThreadedCluster(brokers=2, topics=topics) as cluster:
        asyncio.run(fill(cluster.bootstrap_servers))
        yield cluster


async def fill(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            for partition in range(2):
                await producer.send(
                    "t",
                    b"%d" % number,
                    b"k%d" % number,
                    partition=partition,
                    timestamp_ms=FIRST_MS + number * 1000,
                )
        await producer.send("odd", b"\xff\x00", b"\xfe", headers=[("h", b"\xfd"), ("h", None)])
        await producer.send("odd", None, None)
        await producer.send("odd", "Zoë\nline".encode(), "é".encode())
        await producer.flush()


Read = tuple[int, list[str], str]


def read(
    cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str], topic: str, *arguments: str
) -> Read:
    code = main(["topics", "read", topic, "-b", cluster.bootstrap_servers, *arguments])
    shown = capsys.readouterr()
    return code, shown.out.splitlines(), shown.err


def test_without_options_every_record_is_a_line(
    cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, said = read(cluster, capsys, "t")
    assert (code, said) == (0, "")
    assert sorted(lines) == sorted(f"{number}" for number in range(10) for _ in range(2))


def test_a_file_or_program_gets_the_bytes_of_a_record_as_they_are(
    cluster: ThreadedCluster, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    main(["topics", "read", "odd", "-b", cluster.bootstrap_servers, "-K", ":"])
    assert capsysbinary.readouterr().out == b"\xfe:\xff\x00\n:\n\xc3\xa9:Zo\xc3\xab\nline\n"


def test_one_partition_comes_in_the_order_of_its_offsets(
    cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines, _ = read(cluster, capsys, "t", "--partition", "1", "--format", "json")
    found = [json.loads(line) for line in lines]
    assert [each["offset"] for each in found] == list(range(10))
    assert found[3] == {
        "topic": "t",
        "partition": 1,
        "offset": 3,
        "timestamp_ms": FIRST_MS + 3000,
        "key": "k3",
        "value": "3",
        "headers": [],
    }


@pytest.mark.parametrize("most", [1, 3, 10])
def test_max_ends_the_reading_after_so_many_records(
    most: int, cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, _ = read(cluster, capsys, "t", "-p", "0", "--max", f"{most}")
    assert (code, lines) == (0, [f"{number}" for number in range(most)])


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("beginning", range(10)),
        ("earliest", range(10)),
        ("0", range(10)),
        ("7", range(7, 10)),
        ("-2", range(8, 10)),
        ("-100", range(10)),
        ("@1700000005000", range(5, 10)),
        ("@1700000004001", range(5, 10)),
        ("2023-11-14T22:13:28Z", range(8, 10)),
        ("2023-11-14T22:13:28", range(8, 10)),
        ("2023-11-14T23:13:28+01:00", range(8, 10)),
        ("2023-11-14", range(10)),
    ],
)
def test_reading_begins_where_from_says(
    place: str, values: range, cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, _ = read(cluster, capsys, "t", "-p", "1", "--from", place)
    assert (code, lines) == (0, [f"{value}" for value in values])


@pytest.mark.parametrize("place", ["end", "latest", "10", "999", "2100-01-01"])
def test_a_place_after_the_last_record_ends_at_once_and_says_so(
    place: str, cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, said = read(cluster, capsys, "t", "--from", place)
    assert (code, lines) == (0, [])
    assert said == f"aioproducer: no record in t from {place} on\n"


def test_an_empty_topic_has_no_records(
    cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, said = read(cluster, capsys, "empty", "--format", "json")
    assert (code, lines, said) == (0, [], "aioproducer: no record in empty from beginning on\n")


def test_text_is_what_produce_takes(
    cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines, _ = read(cluster, capsys, "t", "-p", "0", "-n", "2", "-K", ":")
    assert lines == ["k0:0", "k1:1"]


def test_a_null_is_printed_as_the_given_text(
    cluster: ThreadedCluster, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    main(["topics", "read", "odd", "-b", cluster.bootstrap_servers, "-K", ":", "--null", "NULL"])
    assert capsysbinary.readouterr().out.splitlines()[1] == b"NULL:NULL"


def test_a_terminal_shows_all_of_a_value_with_characters_that_it_would_obey(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert _text(b"\x1b[0m" * 1000) == "\\x1b[0m" * 1000
    assert _text(b'{\n\t"a": 1\n}') == '{\\n\\t"a": 1\\n}'
    assert _text("\U000e0001".encode() * 9) == "\\U000e0001" * 9


def test_bytes_and_nulls_are_distinguished_in_json(
    cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines, _ = read(cluster, capsys, "odd", "--json")
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    binary, null, text = found
    assert (binary["key_base64"], binary["value_base64"]) == ("/g==", "/wA=")
    assert binary["headers"] == [
        {"name": "h", "value_base64": "/Q=="},
        {"name": "h", "value": None},
    ]
    assert "key" not in binary
    assert (null["key"], null["value"]) == (None, None)
    assert (text["key"], text["value"]) == ("é", "Zoë\nline")


def test_follow_waits_for_records_that_arrive_later(
    cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    is_over = threading.Event()

    async def send_now_and_then() -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            while not is_over.is_set():
                await (await producer.send("later", b"news"))
                await asyncio.to_thread(is_over.wait, 0.02)

    sending = threading.Thread(target=lambda: asyncio.run(send_now_and_then()))
    sending.start()
    try:
        found = read(cluster, capsys, "later", "--from", "end", "--follow", "--max", "2")
    finally:
        is_over.set()
        sending.join()
    assert found == (0, ["news", "news"], "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing"], ExitCode.REFUSED, "missing"),
        (["t", "-p", "2"], ExitCode.REFUSED, "there is no partition 2: the topic has 2, from 0"),
        (["t", "--from", "yesterday"], ExitCode.USAGE, "--from takes beginning, end, an offset"),
        (["t", "--from", "@soon"], ExitCode.USAGE, "--from takes beginning, end, an offset"),
        (["t", "--from", "1969-12-31"], ExitCode.USAGE, "no time before 1970"),
        (["t", "--from", f"@{2**63}"], ExitCode.USAGE, "later than Kafka can store"),
        (["t", "--format", "avro"], ExitCode.USAGE, "--format takes one of text, json"),
        (["t", "--max", "0"], ExitCode.USAGE, "--max"),
    ],
)
def test_what_cannot_be_read_is_explained(
    arguments: list[str],
    code: int,
    message: str,
    cluster: ThreadedCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, lines, said = read(cluster, capsys, *arguments)
    assert (found, lines) == (code, [])
    assert message in said


def test_a_secured_cluster_is_read_with_the_producers_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with secured_cluster(tmp_path) as secured:
        assert main(["topics", "create", "t", "-p", "4", *secured]) == 0
        lines = tmp_path / "lines.txt"
        lines.write_text("a\nb\nc\n")
        assert main(["load", str(lines), "-t", "t", "-f", "lines", "--raw", "-q", *secured]) == 0
        capsys.readouterr()
        assert main(["topics", "read", "t", *secured]) == 0
        assert sorted(capsys.readouterr().out.split()) == ["a", "b", "c"]
        assert main(["topics", "read", "t", *secured, "-X", "sasl.password=no"]) == ExitCode.REFUSED
    assert "SASL_AUTHENTICATION_FAILED" in capsys.readouterr().err
