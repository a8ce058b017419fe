"""The error hierarchy: facts, text, pickling, and the table of broker codes."""

import copy
import pickle
import re

import pytest

from aioproducer import errors
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    SerializationError,
    UnknownBrokerError,
    error_for_code,
    error_from_code,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.errors.base import raise_for_code
from aioproducer.runtime.bulk.result import (
    FailedRecord,
    SendManyInterruptedError,
    SendManyResult,
)
from aioproducer.types import Persistence, TopicPartition

CODES = [-1, *range(1, 137)]
"""Every code of Kafka 4.4 but 0, which is no error."""

# Facts of org.apache.kafka.common.protocol.Errors in kafka-clients 4.4.0.
RETRIABLE = {2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80}
RETRIABLE |= {83, 84, 88, 89, 100, 103, 106, 122, 123, 133}
REFRESHING = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
AUTHORIZATION = {29, 30, 31, 53, 65}
AUTHENTICATION = {33, 34, 58}

ALL_CLASSES = sorted(
    {
        member
        for member in vars(errors).values()
        if isinstance(member, type) and issubclass(member, KafkaError)
    },
    key=lambda cls: cls.__name__,
)


def codes_where(holds) -> set[int]:
    return {code for code in CODES if holds(error_for_code(code))}


def test_every_code_of_kafka_4_4_has_a_separate_class():
    classes = {error_for_code(code) for code in CODES}
    assert len(classes) == len(CODES)
    assert UnknownBrokerError not in classes
    assert all(error_for_code(code).code == code for code in CODES)


def test_names_on_the_wire_follow_the_class_names_except_where_kafka_repeats_itself():
    irregular = {
        -1: "UNKNOWN_SERVER_ERROR",
        10: "MESSAGE_TOO_LARGE",
        13: "NETWORK_EXCEPTION",
        17: "INVALID_TOPIC_EXCEPTION",
        56: "KAFKA_STORAGE_ERROR",
        106: "FETCH_SESSION_TOPIC_ID_ERROR",
    }
    for code in CODES:
        row = error_for_code(code)
        words = re.findall("[A-Z][a-z]*", row.__name__.removesuffix("Error"))
        assert row.error_name == irregular.get(code, "_".join(words).upper())
    assert error_for_code(6).error_name == "NOT_LEADER_OR_FOLLOWER"
    assert error_for_code(45).error_name == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_the_families_are_those_of_the_java_client():
    assert codes_where(lambda row: row.retriable) == RETRIABLE
    assert codes_where(lambda row: row.refreshes_metadata) == REFRESHING
    assert codes_where(lambda row: issubclass(row, errors.AuthorizationError)) == AUTHORIZATION
    assert codes_where(lambda row: issubclass(row, errors.AuthenticationError)) == AUTHENTICATION
    assert issubclass(errors.UnknownProducerIdError, errors.OutOfOrderSequenceNumberError)


def test_code_zero_is_no_error():
    with pytest.raises(ValueError, match="no error"):
        error_for_code(0)


def test_a_code_newer_than_this_client_keeps_its_number():
    error = error_from_code(4711, topic="t")
    assert type(error) is UnknownBrokerError
    assert (error.code, error.topic, error.retriable) == (4711, "t", False)
    assert "4711" in str(error)
    assert pickle.loads(pickle.dumps(error)).code == 4711
    assert UnknownBrokerError.code != 4711


def test_a_message_from_the_broker_replaces_the_default_one_and_an_empty_one_does_not():
    assert error_from_code(87, "no key").message == "no key"
    assert error_from_code(87, "").message == errors.InvalidRecordError.default_message
    assert error_from_code(87).message


def test_only_a_code_of_an_error_is_raised():
    raise_for_code(0, "no error", topic="t")
    with pytest.raises(errors.InvalidRecordError, match="no key") as caught:
        raise_for_code(87, "no key", topic="t")
    assert caught.value.topic == "t"


def test_a_class_names_its_advice():
    class _ForkedError(KafkaError, advice="forked"):
        pass

    assert _ForkedError("text").advice == ADVICE["forked"]


def test_one_code_cannot_have_two_classes():
    with pytest.raises(TypeError, match="code 3 has a class already"):
        type("SecondError", (BrokerError,), {}, code=3)


def test_the_text_gives_name_code_facts_and_advice():
    error = NotLeaderOrFollowerError(
        "moved",
        topic="orders",
        partition=3,
        node_id=2,
        elapsed_ms=120,
        persistence=Persistence.POSSIBLY_PERSISTED,
        advice="wait",
    )
    assert str(error) == (
        "NOT_LEADER_OR_FOLLOWER (6): moved "
        "[topic orders, partition 3, node 2, after 120 ms, possibly persisted] -> wait"
    )


def test_facts_that_are_zero_are_shown():
    text = str(KafkaTimeoutError("late", partition=0, node_id=0, elapsed_ms=0))
    assert text == "late [partition 0, node 0, after 0 ms]"


def test_an_error_without_message_shows_its_class():
    assert str(KafkaError()) == "KafkaError"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_the_error_of_a_bulk_call_survives_every_protocol_of_pickle(protocol):
    result = SendManyResult(
        2, 1, [FailedRecord(1, KafkaError("m"))], {TopicPartition("t", 0): (0, 0)}
    )
    error = SendManyInterruptedError("stopped", result=result)
    copied = pickle.loads(pickle.dumps(error, protocol)).result
    assert (copied.count, copied.delivered, copied.offsets) == (2, 1, result.offsets)
    assert copied.failed[0].error.message == "m"


@pytest.mark.parametrize("error_class", ALL_CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_survive_copying_and_pickling(error_class, duplicate):
    facts = {
        "topic": "t",
        "partition": 1,
        "node_id": 2,
        "elapsed_ms": 3,
        "persistence": Persistence.NOT_PERSISTED,
        "advice": "act",
    }
    error = error_class("boom", **facts)
    try:
        raise error from ValueError("cause")
    except KafkaError as raised:
        copied = duplicate(raised)
    assert type(copied) is error_class
    assert error_class.__module__ == "aioproducer.errors"
    assert str(copied) == str(error)
    assert {name: getattr(copied, name) for name in facts} == facts
    assert copied.__cause__ is None


def test_every_error_class_says_what_it_means():
    assert [cls.__name__ for cls in ALL_CLASSES if not cls.__doc__] == []


def test_context_is_added_to_a_copy_of_the_same_type_that_keeps_the_cause():
    cause = OSError("reset")
    error = NotLeaderOrFollowerError(topic="a", elapsed_ms=5)
    error.__cause__ = cause
    filled = error.with_context(topic="b", partition=1, elapsed_ms=None)
    assert type(filled) is NotLeaderOrFollowerError
    assert (filled.topic, filled.partition, filled.elapsed_ms) == ("b", 1, 5)
    assert filled.__cause__ is cause
    assert (error.topic, error.partition) == ("a", None)


def test_an_unknown_fact_is_refused():
    with pytest.raises(TypeError, match="topik"):
        KafkaError("x", topik="t")
    with pytest.raises(TypeError, match="topik"):
        KafkaError("x").with_context(topik="t")


def test_client_side_errors_are_also_what_python_calls_them():
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.IllegalStateError, RuntimeError)
    for timeout in (
        errors.BufferExhaustedError,
        errors.MetadataTimeoutError,
        errors.DeliveryTimeoutError,
        errors.RequestTimeoutError,
    ):
        assert issubclass(timeout, KafkaTimeoutError)
        assert issubclass(timeout, TimeoutError)
        assert timeout.retriable
    assert issubclass(errors.BootstrapError, errors.KafkaConnectionError)
    assert issubclass(errors.ProducerClosedError, errors.IllegalStateError)


def test_user_mistakes_that_brokers_know_too_are_rows_of_the_table():
    assert errors.RecordTooLargeError.code == 10
    assert errors.InvalidTopicError.code == 17
    assert errors.UnsupportedVersionError.code == 35


class FieldError(SerializationError):
    """An error of an application, whose constructor has other arguments."""

    def __init__(self, field: str, problem: str, *, code: int) -> None:
        super().__init__(f"{field}: {problem}")
        self.code = code


class LateFieldError(KafkaTimeoutError):
    """The same, of a class that is an `OSError` as well."""

    def __init__(self, *, code: int) -> None:
        super().__init__("too late")
        self.code = code


@pytest.mark.parametrize("error", [FieldError("a", "missing", code=3), LateFieldError(code=3)])
def test_an_error_whose_constructor_has_other_arguments_can_be_copied(error):
    made = error.with_context(topic="t")
    assert type(made) is type(error)
    assert (made.message, made.topic, made.code) == (error.message, "t", 3)
    assert (error.topic, str(copy.copy(error))) == (None, str(error))
