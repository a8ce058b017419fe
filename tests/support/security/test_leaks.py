"""The search for secrets finds what it is for."""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, field

import pytest

from aioproducer import KafkaError
from support.security import leaks
from support.security.leaks import collected, secret


@dataclass
class Hiding:
    """Shows no secret, and pickles it."""

    password: str = field(repr=False)


@pytest.fixture(autouse=True)
def only_our_secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(leaks, "_known", [])
    return secret("planted secret 1")


def test_a_secret_in_a_log_line_is_found(only_our_secret: str) -> None:
    with collected() as evidence:
        logging.getLogger("anything").debug("so %s", only_our_secret)
    assert evidence.found()


def test_a_secret_in_an_encoded_form_is_found(only_our_secret: str) -> None:
    with collected() as evidence:
        evidence.text(base64.b64encode(only_our_secret.encode()).decode())
    assert evidence.found()


def test_a_secret_in_an_error_or_its_cause_is_found(only_our_secret: str) -> None:
    error = KafkaError("nothing here")
    error.__cause__ = ValueError(only_our_secret)
    with collected() as evidence:
        evidence.add(error)
    assert evidence.found()


def test_a_secret_in_a_pickle_is_found(only_our_secret: str) -> None:
    with collected() as evidence:
        evidence.add(Hiding(only_our_secret))
    assert evidence.found() == [f"a pickle with {only_our_secret}"]


def test_where_there_is_none_none_is_found() -> None:
    with collected() as evidence:
        evidence.add(KafkaError("nothing here"))
    assert evidence.found() == []
