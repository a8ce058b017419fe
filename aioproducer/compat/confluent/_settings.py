"""From confluent-kafka's configuration to the options of this producer."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from aioproducer._util import log
from aioproducer._util.threads import OwnThreads
from aioproducer.compat.confluent import _errors as errors
from aioproducer.compat.confluent._errors import KafkaError
from aioproducer.compat.confluent._properties import as_ours, truth_of, verbatim
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.runtime.security_settings import sasl_mechanism, tls_contexts
from aioproducer.types import OAuthToken

_log = log.get("producer")

_CALLABLES: Final = ("error_cb", "stats_cb", "oauth_cb", "on_delivery", "dr_cb")
_ONLY_ERRORS: Final = "delivery.report.only.error"
_HERE: Final = {
    *_CALLABLES,
    _ONLY_ERRORS,
    "default.topic.config",
    "logger",
    "statistics.interval.ms",
    "throttle_cb",
}
_DEFAULTS: Final = {
    "batch_max_records": 10_000,
    "batch_size": 131_072,  # librdkafka has 1,000,000; here each batch's memory is allocated whole
    "buffer_memory": 1_048_576 * 1024,
}
_MAX_RECORDS: Final = 100_000
_CRC32: Final = "consistent_random"
_KERBEROS_SERVICE: Final = "kafka"
_MESSAGE_TIMEOUT_MS: Final = 300_000
"""librdkafka's defaults, where they differ from this producer's."""
_SERVERS: Final = "bootstrap.servers"
_TIME_LIMITS: Final = ("message.timeout.ms", "delivery.timeout.ms", "delivery_timeout_ms")


class Credentials:
    """A user name and a password that can be changed."""

    def __init__(self, read: ProducerConfig) -> None:
        self._given = (read.sasl_username or "", read.sasl_password or "")
        self.options: dict[str, Any] = {}
        """What to replace, so that each authentication asks for what is in force."""
        if read.sasl_username is not None and read.sasl_password is not None:
            self.options = {
                "sasl_username": None,
                "sasl_password": None,
                "sasl_credentials": lambda: self._given,
            }

    def change(self, username: str, password: str) -> None:
        """Use these from the next authentication on."""
        for number, text in enumerate((username, password), 1):
            if not isinstance(text, str):
                kind = "None" if text is None else type(text).__name__
                raise TypeError(f"argument {number} must be str, not {kind}")
        self._given = (username, password)


class Settings(NamedTuple):
    """The parsed configuration.

    Attributes:
        config: The options of this producer.
        max_records: How many records may be without an outcome that was served.
        max_bytes: How many bytes of them.
        statistics_s: Seconds between two calls of `stats_cb`; 0 calls it never.
        crc32_keys: Whether keys go where librdkafka's default puts them; records without a key go
            to one partition per batch, there as here.
        has_servers: Whether there is anything to connect to.
        credentials: The user name and password.
        only_errors: Whether delivery callbacks get failed records alone.
    """

    config: ProducerConfig
    max_records: int
    max_bytes: int
    on_delivery: Any
    error_cb: Any
    stats_cb: Any
    statistics_s: float
    crc32_keys: bool
    has_servers: bool
    credentials: Credentials
    only_errors: bool


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Read a configuration; raise `KafkaException` (`_INVALID_ARG`) for what it cannot have."""
    if not isinstance(given, Mapping):
        raise TypeError("expected configuration dict")
    _check_callbacks(given)
    rest = {name: value for name, value in given.items() if name not in _HERE}
    rest |= given.get("default.topic.config") or {}
    if given.get("oauth_cb") is not None:
        text = str(rest.pop("sasl.oauthbearer.config", ""))
        rest["sasl_oauthbearer_token"] = _token_source(given["oauth_cb"], text)
    try:
        rest = as_ours(rest)
        has_servers = bool(rest.get(_SERVERS))
        if not has_servers:
            rest[_SERVERS] = "nowhere.invalid:9092"
        times: dict[str, Any] = {name: rest.pop(name) for name in _TIME_LIMITS if name in rest}
        read = _config_of(rest)
        options: dict[str, Any] = {
            name: value for name, value in _DEFAULTS.items() if name not in read.explicitly_set
        }
        memory = options.get("buffer_memory", read.buffer_memory)
        if "batch_size" in options:
            options["batch_size"] = min(options["batch_size"], memory)
        options |= _time_limits(read, times)
        crc32_keys = read.partitioner == _CRC32 or "partitioner" not in read.explicitly_set
        if crc32_keys:
            options["partitioner"] = "default"  # for records without a key
        # What is handed over is counted here, so that `produce()` reports a full queue.
        records = read.buffer_max_records or _MAX_RECORDS
        options["buffer_max_records"] = None
        credentials = Credentials(read)
        options |= credentials.options | _kerberos(read)
        config = read.replace(**options)
        # Here, as in librdkafka: the loop would try again and again.
        tls_contexts(config)
        sasl_mechanism(config)
        interval = _interval(given.get("statistics.interval.ms", 0))
        only_errors = truth_of(_ONLY_ERRORS, given.get(_ONLY_ERRORS, False))
    except (ConfigError, ValueError) as error:
        raise errors.exception(KafkaError._INVALID_ARG, str(error)) from error
    return Settings(
        config,
        records,
        config.buffer_memory,
        given.get("dr_cb") if given.get("on_delivery") is None else given["on_delivery"],
        given.get("error_cb"),
        given.get("stats_cb"),
        interval / 1000,
        crc32_keys,
        has_servers,
        credentials,
        only_errors,
    )


def _check_callbacks(given: Mapping[str, Any]) -> None:
    if given.get("throttle_cb") is not None:
        if not callable(given["throttle_cb"]):
            raise ValueError("expected throttle_cb property as a callable function")
        _log.warning("throttle_cb is never called; read the metric produce-throttle-time-avg")
    for name in _CALLABLES:
        if given.get(name) is not None and not callable(given[name]):
            raise TypeError(f"expected {name} property as a callable function")


def _config_of(properties: Mapping[str, Any]) -> ProducerConfig:
    # A configuration dict is code here, as with confluent-kafka.
    read = ProducerConfig.from_properties(properties, allow=("url", "file", "aws"))
    credentials_with_space = verbatim(properties)
    return read.replace(**credentials_with_space) if credentials_with_space else read


def _interval(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"statistics.interval.ms must be a number, not {value!r}") from None


def _time_limits(read: ProducerConfig, times: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the time limits: librdkafka's for a message shortens the others where it is short."""
    if not times:
        is_transactional = read.transactional_id is not None
        limit = read.transaction_timeout_ms if is_transactional else _MESSAGE_TIMEOUT_MS
    else:
        alone = {"bootstrap.servers": "any:1", "linger.ms": 0, "request.timeout.ms": 0}
        limit = ProducerConfig.from_properties({**alone, **times}).delivery_timeout_ms
    request = min(read.request_timeout_ms, max(1, limit // 2))
    return {
        "delivery_timeout_ms": limit,
        "request_timeout_ms": request,
        "linger_ms": min(read.linger_ms, max(0, limit - request)),
    }


def _kerberos(read: ProducerConfig) -> dict[str, str]:
    """Return librdkafka's default for the name of the brokers' service."""
    if "SASL" not in read.security_protocol or read.sasl_mechanism != "GSSAPI":
        return {}
    if read.sasl_kerberos_service_name is not None or read.sasl_jaas_config is not None:
        return {}
    return {"sasl_kerberos_service_name": _KERBEROS_SERVICE}


def _token_source(callback: Any, text: str) -> Callable[[], Awaitable[OAuthToken]]:
    threads = OwnThreads()

    async def token() -> OAuthToken:
        given = await threads.run(callback, text)
        value, expires_at, *more = await given if inspect.isawaitable(given) else given
        extensions = more[1] if len(more) > 1 else {}
        return OAuthToken(value, float(expires_at), dict(extensions or {}))

    return token
