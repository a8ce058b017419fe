"""Tables and views of the data source: `CREATE TABLE ... USING aioproducer`, `INSERT INTO`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from support.spark import EmbeddedKafka

from aioproducer.spark import register
from aioproducer.spark.session import local_session

pytestmark = pytest.mark.slow  # Spark starts


@pytest.fixture(autouse=True, scope="module")
def _registered(spark: Any) -> None:
    register(spark)


@pytest.fixture
def table(spark: Any) -> Iterator[str]:
    name = f"t_{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def options(kafka: EmbeddedKafka, topic: str) -> str:
    return f"OPTIONS ('kafka.bootstrap.servers' = '{kafka.servers}', Topic = '{topic}')"


def test_a_table_is_written_and_read(spark: Any, embedded: EmbeddedKafka, table: str) -> None:
    topic = embedded.topic()
    spark.sql(
        f"CREATE TABLE {table} USING aioproducer {options(embedded, topic)} "
        "COMMENT 'orders' TBLPROPERTIES ('team' = 'sales')"
    )
    spark.sql(f"INSERT INTO {table} (key, value) VALUES (encode('k', 'utf-8'), X'31')")
    values = "SELECT CAST(CAST(id AS STRING) AS BINARY) AS value FROM range(2, 5)"
    spark.sql(f"INSERT INTO {table} (value) {values}")
    assert embedded.numbers(topic) == [1, 2, 3, 4]
    rows = spark.sql(f"SELECT key, CAST(value AS STRING) AS value FROM {table}").collect()
    assert {row.value: row.key for row in rows} == {"1": b"k", "2": None, "3": None, "4": None}
    with pytest.raises(Exception, match="cannot be overwritten"):
        spark.sql(f"INSERT OVERWRITE {table} (value) VALUES (X'35')")


def test_a_table_with_columns_takes_its_options_from_the_insert_or_the_session(
    spark: Any, embedded: EmbeddedKafka, table: str
) -> None:
    topic = embedded.topic()
    spark.sql(
        f"CREATE TABLE {table} (key STRING, value STRING) USING aioproducer "
        f"{options(embedded, topic)}"
    )
    with pytest.raises(Exception, match=r"INSERT INTO t WITH .*register\(spark, options="):
        spark.sql(f"INSERT INTO {table} VALUES ('k', '1')")
    servers = f"'kafka.bootstrap.servers' = '{embedded.servers}'"
    spark.sql(f"INSERT INTO {table} WITH ({servers}, topic = '{topic}') VALUES ('k', '1')")
    register(spark, options={"kafka.bootstrap.servers": embedded.servers, "topic": topic})
    try:
        spark.sql(f"INSERT INTO {table} SELECT 'k' AS key, '2' AS value")
        spark.sql("SELECT 'k' AS key, '3' AS value").write.insertInto(table)
        spark.sql("SELECT 'k' AS key, '4' AS value").writeTo(table).append()
    finally:
        register(spark)
    assert embedded.numbers(topic) == [1, 2, 3, 4]


def test_a_view_is_written(spark: Any, embedded: EmbeddedKafka, table: str) -> None:
    topic = embedded.topic()
    spark.sql(
        f"CREATE TEMPORARY VIEW {table}_v (key STRING, value STRING) USING aioproducer "
        f"{options(embedded, topic)}"
    )
    spark.sql(f"INSERT INTO {table}_v VALUES ('k', '1')")
    assert embedded.numbers(topic) == [1]


def test_a_new_table_by_a_select_or_a_frame(
    spark: Any, embedded: EmbeddedKafka, table: str
) -> None:
    topic = embedded.topic()
    writer = spark.sql("SELECT 'k' AS key, '1' AS value").write.format("aioproducer")
    writer = writer.option("kafka.bootstrap.servers", embedded.servers).option("topic", topic)
    writer.mode("append").saveAsTable(table)
    assert embedded.numbers(topic) == [1]


def test_a_secret_does_not_go_into_the_catalog(
    spark: Any, embedded: EmbeddedKafka, table: str
) -> None:
    secret = "'kafka.sasl.password' = 'hunter2-sEcret'"
    with pytest.raises(Exception, match=r"kafka\.sasl\.password is a secret") as caught:
        spark.sql(
            f"CREATE TABLE {table} USING aioproducer OPTIONS ('kafka.bootstrap.servers' = 'a:1', "
            f"'kafka.security.protocol' = 'SASL_SSL', 'kafka.sasl.username' = 'a', {secret}, "
            "'kafka.sasl.mechanism' = 'PLAIN', topic = 't')"
        )
    assert "hunter2" not in str(caught.value)


def test_a_session_that_is_asked_for_again_keeps_the_options_of_register(
    spark: Any, embedded: EmbeddedKafka
) -> None:
    topic = embedded.topic()
    register(spark, options={"kafka.bootstrap.servers": embedded.servers, "topic": topic})
    try:
        assert local_session("again", master="local[2]") is spark
        spark.sql("SELECT '1' AS value").write.format("aioproducer").mode("append").save()
    finally:
        register(spark)
    assert embedded.numbers(topic) == [1]
