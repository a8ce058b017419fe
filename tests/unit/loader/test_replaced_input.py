"""An unfinished load is resumed only where its last row is still the one that was loaded."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from aioproducer.errors import DeliveryTimeoutError, KafkaError
from aioproducer.loader import (
    FileSource,
    Loader,
    LoadOptions,
    RecordMapping,
    StateError,
)
from loader.fakes import FakeProducer

MAPPING = RecordMapping(key=("key",), value="value")
REPLACED = "the row there is not the one that was loaded.* -> restore the file"


def csv_of(rows: Sequence[str]) -> bytes:
    return "".join(["key,value\n", *(f"k,{row}\n" for row in rows)]).encode()


def table_of(rows: Sequence[str]) -> pa.Table:
    text = pa.string()
    return pa.table({"key": pa.array(["k"] * len(rows), text), "value": pa.array(rows, text)})


def ndjson_of(rows: Sequence[str]) -> bytes:
    return b"".join(json.dumps({"key": "k", "value": row}).encode() + b"\n" for row in rows)


def parquet_of(rows: Sequence[str]) -> bytes:
    out = io.BytesIO()
    parquet.write_table(table_of(rows), out, row_group_size=1)
    return out.getvalue()


def orc_of(rows: Sequence[str]) -> bytes:
    out = io.BytesIO()
    orc.write_table(table_of(rows), out)
    return out.getvalue()


def avro_of(rows: Sequence[str]) -> bytes:
    fields = [{"name": name, "type": "string"} for name in ("key", "value")]
    schema = {"type": "record", "name": "r", "fields": fields}
    out = io.BytesIO()
    fastavro.writer(out, schema, [{"key": "k", "value": row} for row in rows])
    return out.getvalue()


def zip_of(rows: Sequence[str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("one.csv", csv_of(["a"]))
        archive.writestr("two.csv", csv_of(rows))
    return out.getvalue()


FORMATS: dict[str, Callable[[Sequence[str]], bytes]] = {
    "rows.csv": csv_of,
    "rows.csv.gz": lambda rows: gzip.compress(csv_of(rows)),
    "rows.zip": zip_of,
    "rows.ndjson": ndjson_of,
    "rows.parquet": parquet_of,
    "rows.orc": orc_of,
    "rows.avro": avro_of,
}


@pytest.fixture(params=list(FORMATS))
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


class Load:
    """A load of a file whose row `lost` is never acknowledged, as often as it is run."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / name
        self.options = LoadOptions(
            MAPPING, state=folder / "state", dead_letter=folder / "dead", resume=True
        )
        self.of = FORMATS[name]

    async def run(self, *rows: str) -> list[bytes | None]:
        self.file.write_bytes(self.of(rows))
        producer = FakeProducer(hold=True)
        producer.fail[b"lost"] = DeliveryTimeoutError()
        await Loader(producer, FileSource(self.file), "t", self.options).run()
        return producer.values

    async def interrupted(self, *rows: str) -> None:
        with pytest.raises(DeliveryTimeoutError):
            await self.run(*rows)


async def test_a_load_is_not_resumed_in_a_file_that_was_replaced(tmp_path: Path, name: str) -> None:
    load = Load(tmp_path, name)
    await load.interrupted("one", "two", "lost", "four")
    with pytest.raises(StateError, match=rf"{name}\S* row 2: {REPLACED}"):
        await load.run("new", "newer", "newest")


async def test_a_complete_load_is_not_resumed_in_another_file_of_the_same_size(
    tmp_path: Path, name: str
) -> None:
    load = Load(tmp_path, name)
    await load.run("one", "two")
    assert await load.run("one", "two") == []
    state = json.loads((tmp_path / "state").read_text())
    state["input_bytes"] = len(load.of(["six", "ten"]))  # as packed ones may differ
    (tmp_path / "state").write_text(json.dumps(state))
    with pytest.raises(StateError, match=rf"{name}\S* row 2: {REPLACED}"):
        await load.run("six", "ten")


@pytest.mark.parametrize("rows", [["one"], []])
async def test_a_load_is_not_resumed_in_a_file_with_fewer_rows(
    tmp_path: Path, name: str, rows: list[str]
) -> None:
    load = Load(tmp_path, name)
    await load.interrupted("one", "two", "lost")
    with pytest.raises(KafkaError, match="-> restore the file"):
        await load.run(*rows)


async def test_a_load_is_resumed_in_a_file_with_other_rows_after_its_position(
    tmp_path: Path, name: str
) -> None:
    load = Load(tmp_path, name)
    await load.interrupted("one", "two", "lost", "four")
    assert await load.run("one", "two", "corrected", "four", "more") == [
        b"corrected",
        b"four",
        b"more",
    ]


@pytest.mark.parametrize("name", ["rows.csv"])
async def test_a_load_after_its_first_row_and_one_at_the_end_of_its_file_are_resumed(
    tmp_path: Path, name: str
) -> None:
    load = Load(tmp_path, name)
    await load.interrupted("one", "lost")
    await load.interrupted("one", "two", "lost")
    assert await load.run("one", "two") == []


@pytest.mark.parametrize("name", ["rows.zip"])
async def test_a_load_is_not_resumed_in_an_archive_with_other_members_before_its_position(
    tmp_path: Path, name: str
) -> None:
    def archive(rows: Sequence[str]) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as made:
            for member, row in before.items():
                made.writestr(f"{member}.csv", csv_of([row]))
            made.writestr("last.csv", csv_of(rows))
        return out.getvalue()

    load, before = Load(tmp_path, name), {"one": "a"}
    load.of = archive
    await load.interrupted("b", "lost")
    for others in ({"one": "a", "new": "n"}, {"one": "changed"}, {}):
        before = others
        with pytest.raises(StateError, match="or the archive's members before it are not -> res"):
            await load.run("b", "c")
    before = {"one": "a"}
    assert await load.run("b", "c") == [b"c"]


@pytest.mark.parametrize("name", ["rows.ndjson"])
async def test_a_rejected_row_that_was_corrected_is_not_left_out(tmp_path: Path, name: str) -> None:
    load = Load(tmp_path, name)
    load.of = lambda rows: "".join(f"{row}\n" for row in rows).encode()
    lost = '{"key": "k", "value": "lost"}'
    await load.interrupted("{}", lost)  # without the columns: a dead letter
    await load.interrupted("{}", lost)
    with pytest.raises(StateError, match=REPLACED):
        await load.run('{"key": "k", "value": "v"}', lost)


@pytest.mark.parametrize("name", ["rows.csv"])
async def test_a_state_of_earlier_versions_has_no_checksum_of_a_row(
    tmp_path: Path, name: str
) -> None:
    load = Load(tmp_path, name)
    await load.interrupted("one", "two", "lost")
    state = json.loads((tmp_path / "state").read_text())
    assert state.pop("row_checksum")
    (tmp_path / "state").write_text(json.dumps(state))
    assert await load.run("new", "newer", "newest") == [b"newest"]
