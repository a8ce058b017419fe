"""Tests of `orders_app.py`, without Kafka: run `pytest` in this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from orders_app import LARGEST_BODY, app

from aioproducer.errors import DeliveryTimeoutError, MetadataTimeoutError
from aioproducer.fastapi import producer_of
from aioproducer.testing import MockProducer

ORDER = {"customer": "ada", "amount": 3}


@pytest.fixture
def producer() -> Iterator[MockProducer]:
    mock = MockProducer(topics={"orders": 6})
    app.dependency_overrides[producer_of] = lambda: mock
    yield mock
    app.dependency_overrides.clear()


@pytest.fixture
def client(producer: MockProducer) -> Iterator[TestClient]:
    with TestClient(app) as client:  # the override replaces the producer
        yield client


def test_an_order_is_published_under_its_customer(
    client: TestClient, producer: MockProducer
) -> None:
    answer = client.post("/orders", json=ORDER)
    assert answer.status_code == 201
    (record,) = producer.history
    assert answer.json() == {"partition": record.partition, "offset": record.offset}
    assert (record.topic, record.key) == ("orders", b"ada")
    assert json.loads(record.value or b"") == ORDER


def test_orders_of_a_customer_keep_their_order(client: TestClient, producer: MockProducer) -> None:
    for amount in range(3):
        assert client.post("/orders", json={**ORDER, "amount": amount}).status_code == 201
    assert len({record.partition for record in producer.history}) == 1
    assert [record.offset for record in producer.history] == [0, 1, 2]


@pytest.mark.parametrize("error", [DeliveryTimeoutError("late"), MetadataTimeoutError("late")])
def test_kafka_error_is_answered_with_503_and_retry_after(
    client: TestClient, producer: MockProducer, error: Exception
) -> None:
    producer.errors["send"] = error
    answer = client.post("/orders", json=ORDER)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert producer.history == []


def test_invalid_order_is_not_published(client: TestClient, producer: MockProducer) -> None:
    assert client.post("/orders", json={"customer": "ada"}).status_code == 422
    assert producer.history == []


def test_a_body_above_the_limit_is_refused_unread(
    client: TestClient, producer: MockProducer
) -> None:
    body = (b" " * 1024 for _ in range(LARGEST_BODY // 1024 + 1))
    answer = client.post("/orders", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert producer.history == []
