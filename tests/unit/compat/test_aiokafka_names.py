"""Names that programs import from aiokafka exist here as well, and mean the same."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pickle
import ssl
import subprocess
import sys
from collections import namedtuple
from types import ModuleType

import aiokafka
import aiokafka.abc
import aiokafka.helpers
import aiokafka.partitioner
import aiokafka.structs
import pytest

from aioproducer import errors as ours
from aioproducer.compat import aiokafka as compat
from aioproducer.compat.aiokafka import _errors as errors
from aioproducer.compat.aiokafka._error_base import shared_class
from aioproducer.compat.aiokafka._structs import RecordMetadata, shared_struct
from aioproducer.compat.aiokafka._translation import translated

ERROR_NAMES = sorted(
    name
    for name, value in vars(aiokafka.errors).items()
    if isinstance(value, type) and issubclass(value, Exception)
)


@pytest.mark.parametrize("name", ["abc", "errors", "helpers", "partitioner", "structs"])
def test_every_public_name_of_a_module_exists_here(name: str) -> None:
    theirs: ModuleType = importlib.import_module(f"aiokafka.{name}")
    here = importlib.import_module(f"aioproducer.compat.aiokafka.{name}")
    public = getattr(theirs, "__all__", None) or [
        key
        for key, value in vars(theirs).items()
        if getattr(value, "__module__", None) == theirs.__name__ and not key.startswith("_")
    ]
    assert [key for key in public if not hasattr(here, key)] == []


def test_the_package_offers_what_aiokafka_does_but_for_its_consumer_and_client() -> None:
    assert set(aiokafka.__all__) - set(compat.__all__) == {"AIOKafkaConsumer", "AIOKafkaClient"}


@pytest.mark.parametrize("name", ["AIOKafkaConsumer", "AIOKafkaClient", "admin", "coordinator"])
def test_what_is_not_here_is_aiokafkas_own(name: str) -> None:
    theirs = vars(aiokafka).get(name) or importlib.import_module(f"aiokafka.{name}")
    assert getattr(compat, name) is theirs


def test_programs_that_pick_options_by_the_constructors_arguments_find_them() -> None:
    theirs = inspect.getfullargspec(aiokafka.AIOKafkaProducer.__init__)
    here = inspect.getfullargspec(compat.AIOKafkaProducer.__init__)
    assert here.args == theirs.args
    assert here.varkw is here.varargs is None
    assert set(here.kwonlyargs) == set(theirs.kwonlyargs)


def test_the_version_is_that_of_the_installed_aiokafka() -> None:
    assert compat.__version__ == aiokafka.__version__


def test_a_name_that_neither_has_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"neither .* has 'AIOKafkaConsummer'"):
        _ = compat.AIOKafkaConsummer


def test_without_aiokafka_its_names_say_what_to_install() -> None:
    code = (
        "import sys; sys.modules['aiokafka'] = None\n"
        "from aioproducer.compat import aiokafka\n"
        "print(aiokafka.__version__, aiokafka.AIOKafkaProducer.__name__)\n"
        "aiokafka.AIOKafkaConsumer\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "0.14.0 AIOKafkaProducer\n"
    assert "ImportError" in done.stderr
    assert "install aiokafka to use its 'AIOKafkaConsumer'" in done.stderr


@pytest.mark.parametrize("method", ["__init__", "send", "send_and_wait", "send_batch"])
def test_parameters_have_the_same_names_order_and_defaults(method: str) -> None:
    def shape(owner: type) -> list[tuple[str, object, object]]:
        parameters = inspect.signature(getattr(owner, method)).parameters.values()
        return [
            (each.name, each.kind, each.default)
            for each in parameters
            if each.name not in {"acks", "partitioner"}  # objects of each package
        ]

    assert shape(compat.AIOKafkaProducer) == shape(aiokafka.AIOKafkaProducer)


@pytest.mark.parametrize("name", ERROR_NAMES)
def test_an_error_has_the_same_code_name_flags_and_text(name: str) -> None:
    theirs, here = getattr(aiokafka.errors, name), getattr(errors, name)
    assert here.__name__ == theirs.__name__
    for fact in ("errno", "message", "retriable", "invalid_metadata"):
        assert getattr(here, fact, None) == getattr(theirs, fact, getattr(here, fact, None))
    # Those with their own text, and a root that has none, cannot be compared.
    if "__init__" not in vars(theirs) and name != "BrokerResponseError":
        assert str(here("why")) == str(theirs("why"))
    assert [base.__name__ for base in here.__mro__] == [base.__name__ for base in theirs.__mro__]


@pytest.mark.parametrize("code", [-1, 0, 3, 10, 47, 79, 9999])
def test_a_code_finds_the_same_class(code: int) -> None:
    assert errors.for_code(code).__name__ == aiokafka.errors.for_code(code).__name__


def test_handlers_for_aiokafkas_classes_catch_ours() -> None:
    error = translated(ours.RecordTooLargeError("too large"))
    assert isinstance(error, errors.MessageSizeTooLargeError)
    assert isinstance(error, aiokafka.errors.MessageSizeTooLargeError)
    assert isinstance(error, aiokafka.errors.KafkaError)
    assert (error.errno, type(error).__name__) == (10, "MessageSizeTooLargeError")
    assert errors.for_code(10) is errors.MessageSizeTooLargeError
    assert errors.for_code(-1) is errors.UnknownError


def test_without_aiokafka_the_classes_are_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "aiokafka.errors")
    assert shared_class(errors.ProducerFenced) is errors.ProducerFenced


def test_aiokafka_is_not_imported() -> None:
    code = "import sys, aioproducer.compat.aiokafka; sys.exit('aiokafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_an_error_of_both_families_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(shared_class(errors.KafkaTimeoutError)("too late"))
    again = pickle.loads(pickled)
    assert isinstance(again, errors.KafkaTimeoutError)
    assert isinstance(again, aiokafka.errors.KafkaTimeoutError)
    monkeypatch.delitem(sys.modules, "aiokafka.errors")
    again = pickle.loads(pickled)
    assert type(again) is errors.KafkaTimeoutError
    assert str(again) == "KafkaTimeoutError: too late"


def _caused(error: ours.KafkaError, cause: ours.KafkaError) -> ours.KafkaError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ours.MetadataTimeoutError("m"), errors.UnknownTopicOrPartitionError),
        (ours.DeliveryTimeoutError("m"), errors.KafkaTimeoutError),
        (ours.BufferExhaustedError("m"), errors.KafkaTimeoutError),
        (ours.RequestTimeoutError("m"), errors.RequestTimedOutError),
        (ours.BootstrapError("m"), errors.KafkaConnectionError),
        (ours.TlsError("m"), errors.KafkaConnectionError),
        (ours.AuthenticationError("m"), errors.AuthenticationFailedError),
        (ours.SaslAuthenticationFailedError("m"), errors.SaslAuthenticationFailed),
        (ours.TopicAuthorizationFailedError("m"), errors.TopicAuthorizationFailedError),
        (ours.ProducerClosedError("m"), errors.ProducerClosed),
        (ours.WrongLoopError("m"), errors.IllegalStateError),
        (ours.IllegalStateError("m"), errors.IllegalOperation),
        (ours.InvalidProducerEpochError("m"), errors.ProducerFenced),
        (ours.ProducerFencedError("m"), errors.ProducerFenced),
        (ours.StaleMemberEpochError("m"), errors.UnknownError),
        (ours.ProducerFailedError("m"), errors.KafkaError),
        (ours.TransactionAbortableError("m"), errors.KafkaError),
        (
            _caused(ours.TransactionAbortableError("m"), ours.RecordTooLargeError("m")),
            errors.MessageSizeTooLargeError,
        ),
        (
            _caused(ours.FatalTransactionError("m"), ours.ClusterAuthorizationFailedError("m")),
            errors.ClusterAuthorizationFailedError,
        ),
    ],
)
def test_each_of_our_errors_becomes_one_of_theirs(
    error: ours.KafkaError, expected: type[Exception]
) -> None:
    result = translated(error)
    assert type(result).__name__ == expected.__name__
    assert isinstance(result, expected)
    assert result.__cause__ is error


def test_structs_have_the_same_fields_and_equal_aiokafkas() -> None:
    for name in ("TopicPartition", "OffsetAndMetadata", "RecordMetadata", "OffsetAndTimestamp"):
        assert getattr(compat.structs, name)._fields == getattr(aiokafka.structs, name)._fields
    assert compat.TopicPartition("t", 1) == aiokafka.TopicPartition("t", 1)
    assert list(compat.ConsumerRecord.__dataclass_fields__) == list(
        aiokafka.ConsumerRecord.__dataclass_fields__
    )


@pytest.mark.parametrize("key", [b"", b"a", b"key-1", bytes(range(256))])
def test_the_default_partitioner_chooses_as_aiokafkas(key: bytes) -> None:
    theirs, here = aiokafka.partitioner, compat.partitioner
    assert here.murmur2(key) == theirs.murmur2(key)
    partitions = [0, 1, 2, 3, 4, 5, 6]
    assert here.DefaultPartitioner()(key, partitions, []) == theirs.DefaultPartitioner()(
        key, partitions, []
    )


def test_the_default_partitioner_prefers_partitions_with_a_leader() -> None:
    choose = compat.partitioner.DefaultPartitioner()
    assert {choose(None, [0, 1, 2], [1]) for _ in range(20)} == {1}
    assert choose(None, [0, 1, 2], []) in {0, 1, 2}


def test_the_ssl_context_verifies_as_aiokafkas_does() -> None:
    here, theirs = compat.helpers.create_ssl_context(), aiokafka.helpers.create_ssl_context()
    assert here.check_hostname is theirs.check_hostname is True
    assert here.verify_mode is theirs.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(FileNotFoundError):
        compat.helpers.create_ssl_context(cafile="/nowhere/ca.pem")


def test_a_token_provider_has_no_extensions_unless_it_says_so() -> None:
    class Provider(compat.abc.AbstractTokenProvider):
        async def token(self) -> str:
            return "token"

    assert Provider().extensions() == {}
    assert asyncio.run(Provider().token()) == "token"


def test_results_are_tuples_of_the_imported_aiokafka_if_it_has_the_same_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shared_struct(RecordMetadata) is aiokafka.structs.RecordMetadata
    former = namedtuple("RecordMetadata", aiokafka.structs.RecordMetadata._fields[:-1])
    monkeypatch.setattr(aiokafka.structs, "RecordMetadata", former)
    assert shared_struct(RecordMetadata) is RecordMetadata
