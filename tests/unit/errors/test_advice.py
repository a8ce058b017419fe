"""One table says what to do, for errors, `aioproducer doctor` and the page of errors."""

from __future__ import annotations

import copy
import pickle

import pytest

from aioproducer import errors
from aioproducer.config import OPTIONS
from aioproducer.errors import (
    AuthorizationError,
    ClusterAuthorizationFailedError,
    FatalTransactionError,
    GroupAuthorizationFailedError,
    InvalidTransactionTimeoutError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from aioproducer.errors.advice import ADVICE, ANSWERS, CHECKS, joined
from aioproducer.errors.authorization import with_access


def test_the_two_parts_of_the_table_have_no_code_in_common() -> None:
    assert not CHECKS.keys() & ANSWERS.keys()


@pytest.mark.parametrize("code", ADVICE)
def test_an_advice_is_a_clause(code: str) -> None:
    assert ADVICE[code][0].islower()
    assert not ADVICE[code].endswith(".")


@pytest.mark.parametrize(
    "kind",
    [
        errors.UnknownServerError,
        errors.UnknownTopicOrPartitionError,
        errors.LeaderNotAvailableError,
        errors.CoordinatorNotAvailableError,
        errors.InvalidProducerIdMappingError,
        errors.InvalidPartitionError,
        errors.TopicAuthorizationFailedError,
        errors.ThrottlingQuotaExceededError,
        errors.RecordTooLargeError,
        errors.NotEnoughReplicasError,
        errors.NotEnoughReplicasAfterAppendError,
        errors.UnsupportedVersionError,
        errors.UnsupportedCompressionTypeError,
        errors.InvalidTransactionTimeoutError,
        errors.SaslAuthenticationFailedError,
        errors.UnsupportedSaslMechanismError,
        errors.IllegalSaslStateError,
        errors.ProducerFencedError,
        errors.ProxyError,
        errors.NotKafkaError,
    ],
)
def test_the_most_common_errors_have_an_advice_of_the_table(kind: type[KafkaError]) -> None:
    assert kind.advice in ADVICE.values()


def test_advices_are_joined_once_each() -> None:
    assert joined(None, "do it", "do it", "and that.") == "do it; and that"
    assert joined(None, "") is None


# -- authorization ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "request_name", "needs"),
    [
        (TopicAuthorizationFailedError(topic="t"), "Metadata", "DESCRIBE on topic 't'"),
        (TopicAuthorizationFailedError(topic="t"), "Produce", "WRITE on topic 't'"),
        (TopicAuthorizationFailedError(), "AddPartitionsToTxn", "WRITE on a topic"),
        (TopicAuthorizationFailedError(topic="t"), "CreateTopics", "CREATE on topic 't'"),
        (GroupAuthorizationFailedError(), "TxnOffsetCommit", "READ on group 'g'"),
        (GroupAuthorizationFailedError(), "AddOffsetsToTxn", "READ on group 'g'"),
        (GroupAuthorizationFailedError(), "OffsetFetch", "DESCRIBE on group 'g'"),
        (
            TransactionalIdAuthorizationFailedError(),
            "InitProducerId",
            "WRITE on transactional id 'x'",
        ),
        (
            TransactionalIdAuthorizationFailedError(),
            "FindCoordinator",
            "DESCRIBE on transactional id 'x'",
        ),
        (
            ClusterAuthorizationFailedError(),
            "InitProducerId",
            "IDEMPOTENT_WRITE on the cluster or, since Kafka 2.8, WRITE on a topic",
        ),
        (ClusterAuthorizationFailedError(), "CreateTopics", "CREATE on the cluster"),
    ],
)
def test_a_refusal_names_principal_operation_and_resource(
    error: AuthorizationError, request_name: str, needs: str
) -> None:
    reported = with_access(error, request_name, lambda: "User:app", group="g", transactional_id="x")
    assert f": User:app needs {needs}" in str(reported)
    assert reported.principal == "User:app"
    assert f"{reported.operation} on {reported.resource}".startswith(needs)
    assert error.principal is None


def test_other_errors_are_unchanged_and_the_first_advice_counts() -> None:
    other = KafkaError("x")
    assert with_access(other, "Produce", lambda: "User:app") is other
    known = with_access(TopicAuthorizationFailedError(topic="t"), "Produce", lambda: "User:app")
    assert with_access(known, "Metadata", lambda: "User:other") is known


@pytest.mark.parametrize("duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_what_is_lacking_survives_copying(duplicate) -> None:  # type: ignore[no-untyped-def]
    error = with_access(TopicAuthorizationFailedError(topic="t"), "Produce", lambda: "User:app")
    assert str(duplicate(error)) == str(error)
    assert duplicate(error).operation == "WRITE"


# -- errors of errors ------------------------------------------------------------------------------


def test_an_error_because_of_another_keeps_the_advice_of_both() -> None:
    cause = InvalidTransactionTimeoutError("too long", node_id=1)
    error = FatalTransactionError("the producer cannot go on").because_of(cause)
    assert str(error) == (
        "the producer cannot go on: INVALID_TRANSACTION_TIMEOUT (50): too long [node 1] -> "
        f"{ADVICE['transaction-timeout-too-long']}; {ADVICE['producer-ended']}"
    )
    assert error.__cause__ is cause


def test_options_in_advices_exist() -> None:
    from aioproducer.cli.checkup.findings import as_typed

    assert as_typed("set security_protocol or ssl_truststore_location, see partitions_for") == (
        "set security.protocol or ssl.truststore.location, see partitions_for"
    )
    assert "security_protocol" in OPTIONS
