"""Option values of subclasses, enumerations and numpy are kept as Python's own types."""

import math
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy
import pytest

from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError


class Text(str):
    """As libraries for settings make them."""

    def __str__(self) -> str:
        return "something else"


class Number(int):
    def __int__(self) -> int:
        return -7


class Real(float):
    pass


class OldEnum(str, Enum):  # noqa: UP042 - what most programs have
    ALL = "all"
    GZIP = "gzip"
    SSL = "ssl"
    SERVER = "broker:9092"
    MURMUR2 = "murmur2"
    PLAINTEXT = "PLAINTEXT"


class NewEnum(StrEnum):
    ALL = "all"
    SERVER = "broker:9092"


class Numbers(IntEnum):
    ONE = 1
    FIVE = 5


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig(**{"bootstrap_servers": "broker:9092"} | options)


PLAIN = [
    ("acks", OldEnum.ALL, "all"),
    ("acks", NewEnum.ALL, "all"),
    ("acks", Numbers.ONE, 1),
    ("acks", Text("1"), 1),
    ("acks", 1.0, 1),
    ("acks", numpy.int8(-1), "all"),
    ("batch_size", Number(5), 5),
    ("bootstrap_servers", NewEnum.SERVER, ("broker:9092",)),
    ("bootstrap_servers", [OldEnum.SERVER, Text("b:1")], ("broker:9092", "b:1")),
    ("bootstrap_servers", ["a:1, b:1", "c:1"], ("a:1", "b:1", "c:1")),
    ("client_id", Text("me"), "me"),
    ("compression_type", OldEnum.GZIP, "gzip"),
    ("compression_zstd_level", Numbers.FIVE, 5),
    ("enable_idempotence", numpy.True_, True),
    ("linger_ms", Numbers.FIVE, 5),
    ("linger_ms", 5.0, 5),
    ("linger_ms", Real(5.0), 5),
    ("linger_ms", numpy.int64(5), 5),
    ("linger_ms", Decimal("5.0"), 5),
    ("sasl_login_refresh_window_factor", Decimal("0.9"), 0.9),
    ("linger_ms", numpy.float32(5), 5),
    ("partitioner", OldEnum.MURMUR2, "murmur2"),
    ("sasl_login_refresh_window_factor", 1, 1.0),
    ("sasl_login_refresh_window_factor", numpy.float64(0.5), 0.5),
    ("security_protocol", OldEnum.SSL, "SSL"),
    ("transactional_id", numpy.str_("me"), "me"),
]


@pytest.mark.parametrize(("name", "given", "kept"), PLAIN)
def test_values_of_other_classes_are_kept_as_pythons_own(name: str, given: Any, kept: Any) -> None:
    base = {"bootstrap_servers": "broker:9092"}
    if name.startswith("sasl_"):
        base["security_protocol"] = "SSL"
    for read in (
        config(**base | {name: given}),
        config(**base).replace(**{name: given}),
        ProducerConfig.from_properties(base | {name: given}),
    ):
        value = getattr(read, name)
        assert value == kept
        assert type(value) is type(kept)
        if isinstance(value, tuple):
            assert [type(item) for item in value] == [str] * len(value)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("acks", True),
        ("acks", 1.5),
        ("linger_ms", True),
        ("linger_ms", numpy.True_),
        ("linger_ms", 5.5),
        ("linger_ms", math.nan),
        ("linger_ms", math.inf),
        ("linger_ms", Decimal("5.5")),
        ("linger_ms", Decimal("NaN")),
        ("linger_ms", Decimal("1e999999")),
        ("linger_ms", numpy.array([5])),
        ("linger_ms", OldEnum.ALL),
        ("sasl_login_refresh_window_factor", True),
        ("sasl_login_refresh_window_factor", math.nan),
        ("sasl_login_refresh_window_factor", 10**400),
        ("enable_idempotence", 1),
        ("enable_idempotence", Numbers.ONE),
        ("client_id", Numbers.ONE),
        ("bootstrap_servers", ["broker:9092", 5]),
    ],
)
def test_truth_values_are_no_numbers_and_numbers_are_finite_and_whole(
    name: str, given: Any
) -> None:
    with pytest.raises(ConfigError, match=name):
        config(**{name: given})


class Lazy:
    """Of the class of what it holds, as lazy objects of Django and of werkzeug are."""

    def __init__(self, held: Any) -> None:
        self.held = held

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.held)

    def __str__(self) -> str:
        return str(self.held)

    def __int__(self) -> int:
        return int(self.held)

    def __float__(self) -> float:
        return float(self.held)

    def __bool__(self) -> bool:
        return bool(self.held)


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("client_id", "me"),
        ("linger_ms", 7),
        ("enable_idempotence", False),
        ("sasl_login_refresh_window_factor", 0.5),
        ("sasl_password", "hidden"),
    ],
)
def test_what_a_lazy_object_holds_is_kept(name: str, held: Any) -> None:
    value = getattr(config(security_protocol="SSL", **{name: Lazy(held)}), name)
    assert value == held
    assert type(value) is type(held)


def test_servers_may_be_lazy_texts() -> None:
    assert config(bootstrap_servers=[Lazy("a:1"), "b:2"]).bootstrap_servers == ("a:1", "b:2")
    assert config(bootstrap_servers=Lazy("a:1,b:2")).bootstrap_servers == ("a:1", "b:2")


def test_names_of_properties_may_be_members_of_enumerations() -> None:
    class Names(str, Enum):  # noqa: UP042
        SERVERS = "bootstrap.servers"
        LINGER = "linger.ms"

    read = ProducerConfig.from_properties({Names.SERVERS: "a:1", Names.LINGER: "7"})
    assert (read.bootstrap_servers, read.linger_ms) == (("a:1",), 7)


@pytest.mark.parametrize("text", ["5", " 5 ", "5.0", "5e0"])
def test_whole_numbers_may_have_a_decimal_point_in_text(text: str) -> None:
    read = ProducerConfig.from_properties({"bootstrap.servers": "a:1", "linger.ms": text})
    assert type(read.linger_ms) is int
    assert read.linger_ms == 5


@pytest.mark.parametrize("text", ["5.5", "nan", "inf", "1e400", "1_0e1_0_"])
def test_text_of_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="linger_ms must be a 64-bit int"):
        ProducerConfig.from_properties({"bootstrap.servers": "a:1", "linger.ms": text})


def test_a_secret_of_the_wrong_type_is_refused_by_its_type() -> None:
    class SecretStr:
        def __repr__(self) -> str:
            return "hunter2"

    with pytest.raises(ConfigError, match="sasl_password must be a str, not a SecretStr"):
        config(sasl_password=SecretStr())


# -- aiokafka's options ------------------------------------------------------------------------


async def drop_in(**options: Any) -> ProducerConfig:
    producer = AIOKafkaProducer(**options)
    await producer.stop()
    return producer._own_config


@pytest.mark.parametrize(
    ("name", "given", "ours", "kept"),
    [
        ("acks", OldEnum.ALL, "acks", "all"),
        ("acks", Numbers.ONE, "acks", 1),
        ("acks", numpy.int64(1), "acks", 1),
        ("acks", True, "acks", 1),  # as aiokafka takes it
        ("bootstrap_servers", OldEnum.SERVER, "bootstrap_servers", ("broker:9092",)),
        ("bootstrap_servers", [Text("a"), NewEnum.SERVER], "bootstrap_servers", None),
        ("client_id", OldEnum.ALL, "client_id", "all"),
        ("compression_type", OldEnum.GZIP, "compression_type", "gzip"),
        ("linger_ms", Numbers.FIVE, "linger_ms", 5),
        ("linger_ms", 5.7, "linger_ms", 5),
        ("max_batch_size", numpy.int32(4096), "batch_size", 4096),
        ("max_batch_size", 4096.0, "batch_size", 4096),
        ("max_request_size", Number(2**20), "max_request_size", 2**20),
        ("request_timeout_ms", numpy.float64(5000), "request_timeout_ms", 5000),
        ("retry_backoff_ms", numpy.int16(7), "retry_backoff_ms", 7),
        ("security_protocol", OldEnum.PLAINTEXT, "security_protocol", "PLAINTEXT"),
        ("transactional_id", OldEnum.ALL, "transactional_id", "all"),
        ("transaction_timeout_ms", 7000.0, "transaction_timeout_ms", 7000),
    ],
)
async def test_the_drop_in_keeps_values_of_other_classes_as_pythons_own(
    name: str, given: Any, ours: str, kept: Any
) -> None:
    value = getattr(await drop_in(**{name: given}), ours)
    if kept is None:
        kept = ("a:9092", "broker:9092")
    assert value == kept
    assert type(value) is type(kept)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("acks", math.nan),
        ("linger_ms", math.nan),
        ("linger_ms", math.inf),
        ("connections_max_idle_ms", math.nan),
        ("max_batch_size", True),
        ("max_batch_size", 4096.5),
        ("max_request_size", math.nan),
        ("transaction_timeout_ms", math.nan),
    ],
)
async def test_the_drop_in_refuses_nan_and_fractions_of_bytes(name: str, given: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        await drop_in(**{name: given})


class _Acks(Enum):
    ALL = "all"


class _Hidden:
    """A value as pydantic's `SecretStr` wraps it."""

    def get_secret_value(self) -> str:
        return "password"


class _Text:
    """A value as Starlette's `Secret` and yarl's `URL` have it."""

    def __str__(self) -> str:
        return "http://proxy:3128"


@pytest.mark.parametrize(
    ("option", "value", "advice"),
    [
        ("acks", _Acks.ALL, "give its value: member.value"),
        ("proxy_url", _Text(), "give its text: str(value)"),
        ("sasl_password", _Text(), "give its text: str(value)"),
        (
            "sasl_password",
            _Hidden(),
            "give its text: value.get_secret_value(), decoded if that is bytes",
        ),
        ("client_id", b"name", "give text: value.decode()"),
        ("ssl_truststore_location", Path("ca.pem"), "give the path as text, as str(path) is"),
    ],
)
def test_a_wrapped_value_is_refused_with_the_way_to_its_content(
    option: str, value: object, advice: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        ProducerConfig(bootstrap_servers="h:9092", **{option: value})  # type: ignore[arg-type]
    assert refused.value.advice == advice
