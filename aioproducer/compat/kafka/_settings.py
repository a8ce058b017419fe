"""From kafka-python's options to those of this producer.

`DEFAULT_CONFIG` has kafka-python's names and defaults. Its other values are read by the table of
all clients' names; what only kafka-python takes (its objects, `None`, infinity) is turned here.
"""

from __future__ import annotations

import inspect
import itertools
import math
import selectors
import socket
from collections.abc import Awaitable, Callable, Mapping
from os import PathLike, fspath
from typing import Any, Final

from aioproducer._util.threads import OwnThreads
from aioproducer.compat._idempotence import excludes_idempotence
from aioproducer.compat._servers import servers_option
from aioproducer.compat.kafka.partitioner import DefaultPartitioner
from aioproducer.config import Kind, ProducerConfig
from aioproducer.config.option import plain
from aioproducer.config.reading import option_set_by
from aioproducer.errors import ConfigError, UnsupportedCodecError
from aioproducer.records.codecs import codec_for
from aioproducer.types import OAuthToken

DEFAULT_CONFIG: Final[dict[str, Any]] = {
    "bootstrap_servers": "localhost",
    "client_id": None,
    "key_serializer": None,
    "value_serializer": None,
    "enable_idempotence": True,
    "transactional_id": None,
    "transaction_timeout_ms": 60000,
    "delivery_timeout_ms": 120000,
    "acks": -1,
    "compression_type": None,
    "retries": float("inf"),
    "batch_size": 16384,
    "linger_ms": 0,
    "partitioner": DefaultPartitioner(),
    "connections_max_idle_ms": 540000,
    "max_block_ms": 60000,
    "max_request_size": 1048576,
    "allow_auto_create_topics": True,
    "metadata_max_age_ms": 300000,
    "client_dns_lookup": "use_all_dns_ips",
    "retry_backoff_ms": 100,
    "request_timeout_ms": 30000,
    "receive_message_max_bytes": 100_000_000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30000,
    "max_in_flight_requests_per_connection": 5,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_crlfile": None,
    "ssl_password": None,
    "ssl_ciphers": None,
    "api_version": None,
    "bootstrap_timeout_ms": 30000,
    "metric_reporters": [],
    "metrics_enabled": True,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30000,
    "selector": selectors.DefaultSelector,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "kafka_client": None,
}
"""kafka-python's options with their defaults."""

_HERE: Final = {
    "api_version",
    "api_version_auto_timeout_ms",
    "bootstrap_timeout_ms",
    "key_serializer",
    "metrics_enabled",
    "partitioner",
    "sasl_oauth_token_provider",
    "value_serializer",
}
"""Options that `KafkaProducer` or this module sees to."""

_DIFFERENT: Final = ("acks", "linger_ms", "reconnect_backoff_max_ms")
"""Options whose defaults differ from this producer's, where nothing else follows from them."""

_FILES: Final = {"ssl_cafile", "ssl_certfile", "ssl_crlfile"}
"""Options of which kafka-python takes an empty text for none."""

_LEFT_OUT: Final = {
    "metric_reporters",
    "sasl_kerberos_service_name",
    "selector",
    "socket_options",
    "ssl_check_hostname",
}
"""Options whose default has another form here, or would ask for `security_protocol`."""

_BESIDE_CONTEXT: Final = (
    "ssl_check_hostname",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_crlfile",
    "ssl_password",
    "ssl_ciphers",
)
"""Options that kafka-python ignores where there is an `ssl_context`."""

_RESOLVE: Final = "bootstrap_resolve_timeout_ms"
_INT_MAX: Final = 2**31 - 1
_OLD: Final = (0, 10)
_numbers = itertools.count(1)


def producer_config(given: Mapping[str, Any], config: dict[str, Any]) -> ProducerConfig:
    """Return the options of this producer; `given` are those of the caller.

    `config` has kafka-python's defaults as well; `client_id`, `acks`, `api_version`,
    `bootstrap_timeout_ms` and `enable_idempotence` are completed in it.
    """
    former = given.get("api_version_auto_timeout_ms")  # its name before kafka-python 3
    if former is not None and "bootstrap_timeout_ms" not in given:
        config["bootstrap_timeout_ms"] = former
    if config["client_id"] is None:
        config["client_id"] = f"kafka-python-producer-{next(_numbers)}"
    if config["acks"] == "all":
        config["acks"] = -1
    config["api_version"] = _version(config["api_version"])
    ignored = _HERE.union(_BESIDE_CONTEXT if config["ssl_context"] is not None else ())
    options: dict[str, Any] = {
        name: _whole(name, value)
        for name, value in given.items()
        if value is not None and name not in ignored and not _is_default(name, value)
    }
    for name in _DIFFERENT:
        if name != "acks" or name in given:
            options[name] = _whole(name, config[name])
    # For names that cannot be resolved yet; `Connection` ends the start a second earlier.
    limit = float(config["bootstrap_timeout_ms"]) + 1000
    options[_RESOLVE] = _whole(_RESOLVE, limit)
    if config["sasl_mechanism"] == "GSSAPI":
        options["sasl_kerberos_service_name"] = config["sasl_kerberos_service_name"]
    in_flight = plain(options.get("max_in_flight_requests_per_connection"))
    if excludes_idempotence(options, in_flight if isinstance(in_flight, int) else None):
        options["enable_idempotence"] = False
    options["bootstrap_servers"] = servers_option(config["bootstrap_servers"], ignores_schemes=True)
    options["client_id"] = config["client_id"]
    if "connections_max_idle_ms" in given and given["connections_max_idle_ms"] is None:
        options["connections_max_idle_ms"] = -1
    if config["sasl_oauth_token_provider"] is not None:
        options["sasl_oauthbearer_token"] = _token_source(config["sasl_oauth_token_provider"])
    if config["api_version"] is not None and config["api_version"] < _OLD:
        old = (*config["api_version"], 0)[:3]
        options["broker_version_fallback"] = ".".join(map(str, old))
    _check_codec(options.get("compression_type"))
    read = ProducerConfig(**options)
    config["enable_idempotence"] = read.effective_idempotence
    return read


def _is_default(name: str, value: Any) -> bool:
    """Return whether a value is kafka-python's default, and the option may be left out."""
    if name in _FILES and value == "":
        return True
    return name in _LEFT_OUT and value == DEFAULT_CONFIG[name]


def _whole(name: str, value: Any) -> Any:
    """Return a path as text, a float as an int (rounded up, infinity is the longest), 1 as True."""
    if isinstance(value, PathLike):
        return fspath(value)
    row = option_set_by(name)
    if row is not None and row.kind is Kind.BOOLEAN and isinstance(plain(value), int):
        return bool(value)
    if type(value) is not float or math.isnan(value) or row is None or row.kind is Kind.DOUBLE:
        return value
    return math.ceil(max(-_INT_MAX, min(value, _INT_MAX)))


def _check_codec(name: Any) -> None:
    if name is None:
        return
    if name not in ("gzip", "snappy", "lz4", "zstd"):
        raise ConfigError(f"Not supported codec: {name}")
    try:
        codec_for(name)
    except UnsupportedCodecError as error:
        raise RuntimeError(f"Libraries for {name} compression codec not found") from error


def _version(value: Any) -> tuple[int, ...] | None:
    """Return a release of Kafka as numbers, also from the older form as text."""
    if value is None or value == "auto":
        return None
    try:
        return tuple(map(int, value.split(".") if isinstance(value, str) else value))
    except (TypeError, ValueError):
        raise ConfigError(f"`api_version` must be a tuple such as (3, 9), not {value!r}") from None


def _token_source(provider: Any) -> Callable[[], Awaitable[OAuthToken]]:
    threads = OwnThreads()

    async def token() -> OAuthToken:
        value = await threads.run(provider.token)
        extensions: Any = getattr(provider, "extensions", dict)()
        if inspect.isawaitable(extensions):
            extensions = await extensions
        return OAuthToken(value, extensions=dict(extensions or {}))

    return token
