"""From librdkafka's properties to values that this producer's options take.

librdkafka ignores case, takes `1` and `t` as true, fractions of a millisecond, and levels of
compression beyond those of the codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from aioproducer.compat._idempotence import excludes_idempotence
from aioproducer.config import OPTIONS, Kind, Option
from aioproducer.config.aliases import suites_of_openssl
from aioproducer.config.option import int_of, plain
from aioproducer.config.other_clients import TRUTHS
from aioproducer.config.reading import option_set_by
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from aioproducer.types import TopicMetadata

_SERVERS: Final = "bootstrap.servers"
_LEVEL: Final = "compression.level"
_LEVELS: Final = {"gzip": (1, 9), "lz4": (1, 12), "zstd": (1, 22)}
"""The levels of librdkafka's codecs that are levels here; its 0 is the lowest."""
_UNSET_IF_EMPTY: Final = frozenset(
    [
        "https.ca.location",
        "plugin.library.paths",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.crl.location",
        "ssl.curves.list",
        "ssl.engine.location",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.providers",
        "ssl.sigalgs.list",
        "transactional.id",
    ]
)
"""Properties of which librdkafka takes an empty text for none."""

_UNSET_IF_NONE: Final = frozenset({"client_id", "client_rack", "ssl_cipher_suites"})
"""Options that are text here, of which confluent-kafka takes None for none."""

_PROBED: Final = ("https.ca.location", "probe")
"""The system's certificates, as without it."""

_TOPIC: Final = "topic."
_OF_TOPICS: Final = frozenset(
    [
        "acks",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "message.timeout.ms",
        "partitioner",
        "produce.offset.report",
        "queuing.strategy",
        "request.required.acks",
        "request.timeout.ms",
    ]
)
"""Properties that librdkafka also takes with the prefix `topic.`."""

_FNV1A: Final = ("fnv1a", "fnv1a_random")
_WORDS: Final = ("acks", "compression_type")
_UNLIMITED: Final = 2**31 - 1
"""What librdkafka's 0 means for some properties."""
_WITHOUT_LIMIT: Final = ("buffer_max_records", "delivery_timeout_ms")


def as_ours(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return properties with the values of this producer.

    A value that is wrong for librdkafka, too, is left as it is; reading it raises.
    """
    read: dict[str, Any] = {}
    by_option: dict[str, Any] = {}
    for full_name, value in given.items():
        short = str(full_name).removeprefix(_TOPIC)
        name: Any = short if short in _OF_TOPICS else full_name
        if (value == "" and name in _UNSET_IF_EMPTY) or (name, value) == _PROBED:
            continue
        row = option_set_by(name) if isinstance(name, str) else None
        if row is None:
            read[name] = value
        elif row.name == "bootstrap_servers":
            # Under one name the last one counts, and none means Kafka 0.8's producer.
            read[_SERVERS] = _servers(value)
        elif row.name not in _UNSET_IF_NONE or value is not None:
            read[name] = by_option[row.name] = _value(row, value)
    _clamp_level(read, by_option)
    in_flight = _number(by_option.get("max_in_flight_requests_per_connection"))
    if excludes_idempotence(by_option, in_flight):
        read["enable_idempotence"] = False
    return read


def verbatim(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are credentials with white space, which librdkafka sends as it is."""
    rows = ((option_set_by(name), value) for name, value in given.items())
    return {
        row.name: value
        for row, value in rows
        if row is not None
        and (row.secret or row.name == "sasl_username")
        and isinstance(value, str)
        and value != value.strip()
    }


def truth_of(name: str, value: Any) -> bool:
    """Return a property that is true or false; raise `ConfigError` for other values."""
    truth = TRUTHS.get(str(plain(value)).strip().lower())
    if truth is None:
        raise ConfigError(f"{name} must be true or false, not {value!r}")
    return truth


def _fnv1a_of(value: Any) -> Any:
    """Return a partitioner of this producer for one that hashes keys with FNV-1a."""
    name = str(plain(value)).strip().lower()
    if name not in _FNV1A:
        return value

    def choose(topic: str, key: bytes | None, value: bytes | None, meta: TopicMetadata) -> Any:
        if key is None and name == "fnv1a_random":
            return None  # one partition per batch, as for the other partitioners there
        return fnv1a(key or b"") % len(meta.partitions)

    return choose


def fnv1a(key: bytes) -> int:
    """Return librdkafka's FNV-1a hash, which is that of the Go client Sarama."""
    number = 0x811C9DC5
    for byte in key:
        number = (number ^ byte) * 0x01000193 & 0xFFFFFFFF
    return number if number < 1 << 31 else (1 << 32) - number


def _value(row: Option, value: Any) -> Any:
    if row.name == "linger_ms":
        return _rounded_up(value)
    if row.name == "partitioner":
        return _fnv1a_of(value)
    if row.name == "ssl_cipher_suites" and value is not None:
        return suites_of_openssl(value)
    if row.name in _WITHOUT_LIMIT and _number(value) == 0:
        return _UNLIMITED
    if row.name in _WORDS and isinstance(value, str):
        return value.strip().lower()
    if row.kind in (Kind.STRING, Kind.PASSWORD):
        return _text(value)
    if row.kind is Kind.BOOLEAN:
        return TRUTHS.get(str(plain(value)).strip().lower(), value)
    return value


def _text(value: Any) -> Any:
    """Return a value of a property that is text, such as a `Path`, as confluent-kafka reads it."""
    value = plain(value)
    if value is None or isinstance(value, str) or hasattr(value, "get_secret_value"):
        return value  # pydantic's SecretStr is refused, as its text is "**********"
    return value.decode() if isinstance(value, bytes) else str(value)


def _servers(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode()
    if not isinstance(value, str):
        return value
    return ",".join(map(_with_port, value.split(",")))


def _with_port(server: str) -> str:
    """Return an address as host:port; librdkafka takes one with a protocol or without a port."""
    address = server.strip().rpartition("://")[2]
    has_port = "]:" in address if address.startswith("[") else ":" in address
    return address if has_port or not address else f"{address}:9092"


def _rounded_up(value: Any) -> Any:
    """Return a time in whole ms; a fraction is a wait as well."""
    try:
        return ceil(float(value))
    except (TypeError, ValueError, OverflowError):
        return value


def _number(value: Any) -> int | None:
    try:
        return int_of(value)
    except (TypeError, ValueError):
        return None


def _clamp_level(read: dict[str, Any], by_option: Mapping[str, Any]) -> None:
    """Bring the level into the codec's range; drop it for a codec without levels."""
    level = _number(read.get(_LEVEL))
    if level is None or level < 0:
        return
    codec = by_option.get("compression_type", OPTIONS["compression_type"].default)
    if codec in _LEVELS:
        lowest, highest = _LEVELS[codec]
        read[_LEVEL] = max(lowest, min(level, highest))
    else:
        del read[_LEVEL]
