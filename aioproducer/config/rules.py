"""The rules between options: what Kafka's producer checks and adjusts once all values are known.

In Java, `ProducerConfig.postProcessParsedConfig` and `KafkaProducer.configureDeliveryTimeout`.

Invariant: what the user set is never changed; a contradiction between two values the user set
raises, one with a default adjusts the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from aioproducer._checks.callables import makes_coroutines, parameters_of, refuse_coroutine_function
from aioproducer._util import log
from aioproducer.config.option import split_list
from aioproducer.config.properties import parse_servers
from aioproducer.config.proxy_url import parse_proxy_url
from aioproducer.config.rules_security import check_security
from aioproducer.errors import ConfigError

Values = dict[str, Any]
"""The value of every option, by name; rules adjust it in place."""

_INT_MAX: Final = 2**31 - 1
MAX_IN_FLIGHT_IDEMPOTENT: Final = 5
_PARTITIONERS: Final = (
    "default",
    "murmur2",
    "murmur2_random",
    "consistent",
    "consistent_random",
    "round_robin",
    "random",
    "java_string_hash",
    "java_bytes_hash",
)
_PARTITIONER_SYNONYMS: Final = {"crc32": "consistent"}
_SECONDS_UP_TO: Final = {
    "request_timeout_ms": 90,
    "delivery_timeout_ms": 360,
    "transaction_timeout_ms": 180,
    "metadata_max_age_ms": 900,
    "connections_max_idle_ms": 1620,
    "socket_connection_setup_timeout_ms": 30,
}
"""Values in ms that are probably meant as seconds: up to three times the default in seconds."""

_client_numbers = count(1)
_log = log.get("producer")


def acks_number(acks: str | int) -> int:
    """Return acks as it goes over the wire: -1, 0 or 1."""
    return -1 if acks == "all" else int(acks)


def idempotence_requested(values: Values, chosen: frozenset[str]) -> bool:
    """Return whether Kafka's producer would be idempotent with these options (KIP-679)."""
    asked = "enable_idempotence" in chosen
    if asked and not values["enable_idempotence"]:
        return False
    conflicts = _without_idempotence(values)
    if conflicts and asked:
        raise ConfigError(
            f"enable_idempotence=True contradicts {' and '.join(conflicts)}",
            advice="leave acks and retries at their defaults, or set enable_idempotence=False",
        )
    in_flight = values["max_in_flight_requests_per_connection"]
    if in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        raise ConfigError(
            f"max_in_flight_requests_per_connection={in_flight} excludes idempotence, which allows "
            f"at most {MAX_IN_FLIGHT_IDEMPOTENT}; set enable_idempotence=False to have more"
        )
    return not conflicts


def _without_idempotence(values: Values) -> list[str]:
    conflicts = []
    if values["retries"] == 0:
        conflicts.append("retries=0")
    if acks_number(values["acks"]) != -1:
        conflicts.append(f"acks={values['acks']!r}")
    return conflicts


def _check_transactions(values: Values, chosen: frozenset[str]) -> None:
    if "transactional_id" in chosen and not idempotence_requested(values, chosen):
        conflicts = _without_idempotence(values) or ["enable_idempotence=False"]
        raise ConfigError(
            f"transactional_id needs idempotence, which excludes {' and '.join(conflicts)}",
            advice="leave acks, retries and enable_idempotence at their defaults, or give no "
            "transactional_id",
        )
    if values["transaction_two_phase_commit_enable"] and "transaction_timeout_ms" in chosen:
        raise ConfigError(
            "transaction_two_phase_commit_enable=True contradicts transaction_timeout_ms"
        )


def _resolve_delivery_timeout(values: Values, chosen: frozenset[str]) -> None:
    linger = min(values["linger_ms"], _INT_MAX)
    needed = min(linger + values["request_timeout_ms"], _INT_MAX)
    if values["delivery_timeout_ms"] >= needed:
        return
    if "delivery_timeout_ms" in chosen:
        raise ConfigError(
            f"delivery_timeout_ms={values['delivery_timeout_ms']} must be at least linger_ms + "
            f"request_timeout_ms = {needed}",
            advice="raise it, or lower request_timeout_ms",
        )
    _log.warning("delivery_timeout_ms is raised to linger_ms + request_timeout_ms = %d", needed)
    values["delivery_timeout_ms"] = needed


def _check_way(values: Values) -> None:
    url, dialer = values["proxy_url"], values["dialer"]
    if dialer is not None and not callable(dialer):
        raise ConfigError("dialer must be an async function of a host and a port")
    if url is None and dialer is None:
        return
    if url is not None and dialer is not None:
        raise ConfigError("proxy_url and dialer exclude each other")
    resolved_elsewhere = dialer is not None or parse_proxy_url(url).resolves_names
    if resolved_elsewhere and values["client_dns_lookup"] != "use_all_dns_ips":
        way = "dialer" if url is None else "proxy_url"
        raise ConfigError(
            f"client_dns_lookup={values['client_dns_lookup']} has no effect with this {way}, which "
            "resolves names elsewhere"
        )


def _resolve_partitioner(values: Values) -> None:
    given = values["partitioner"]
    usable = callable(given) or callable(getattr(given, "partition", None))
    if isinstance(given, str):
        given = values["partitioner"] = _PARTITIONER_SYNONYMS.get(given, given)
        usable = given in _PARTITIONERS
    if not usable or isinstance(given, type):
        names = ", ".join((*_PARTITIONERS, *_PARTITIONER_SYNONYMS))
        raise ConfigError(
            f"partitioner must be a function, an object with a partition method or one of {names}, "
            f"not {given!r}"
        )
    if makes_coroutines(given) or makes_coroutines(getattr(given, "partition", None)):
        raise ConfigError(
            f"partitioner must be a plain function, not a coroutine function: {given!r}",
            advice="look up what it needs before send(), and pass it in the key or as partition=",
        )


def _check_callables(values: Values) -> None:
    for name in ("key_serializer", "value_serializer"):
        given = values[name]
        is_object = callable(getattr(given, "serialize", None))
        if isinstance(given, type) and is_object:
            raise ConfigError(f"{name} must be an instance of {given.__name__}, not the class")
        if given is not None and not callable(given) and not is_object:
            raise ConfigError(f"{name} must be a Serializer or callable, not {given!r}")
        first, *others = parameters_of(getattr(given, "serialize", None)) or [""]
        if first == "topic" and not {"context", "ctx"}.intersection(others):
            raise ConfigError(
                f"{name}: serialize() is called with (data, context), not with the topic first",
                advice="take (data, context); the topic is context.topic, the headers are "
                "context.headers",
            )
    for name in ("on_delivery_error", "on_data_loss"):
        given = values[name]
        if given is None:
            continue
        if not callable(given):
            raise ConfigError(f"{name} must be callable, not {given!r}")
        refuse_coroutine_function(name, given)


def _check_interceptors(values: Values) -> None:
    given = values["interceptor_classes"]
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"interceptor_classes must be a sequence of objects, not {given!r}")
    if given:
        # Imported only if there are some.
        from aioproducer.interceptors import check_interceptors

        check_interceptors(given)


def _resolve_reporters(values: Values) -> None:
    given = values["metric_reporters"]
    if not isinstance(given, Sequence):
        raise ConfigError(f"metric_reporters must be a sequence of objects or names, not {given!r}")
    if given != ():
        # Imported only if there are some.
        from aioproducer.config.reporters import reporters_of

        names = split_list(given) if isinstance(given, str) else given
        values["metric_reporters"] = reporters_of(names)


def _warn_of_seconds(values: Values, chosen: frozenset[str]) -> None:
    found = [
        f"{name}={values[name]}"
        for name, most in _SECONDS_UP_TO.items()
        if name in chosen and 0 < values[name] <= most
    ]
    if found:
        _log.warning("%s: looks like seconds; give milliseconds", ", ".join(found))


def apply_rules(values: Values, chosen: frozenset[str]) -> None:
    """Check all values against each other, and adjust those that the user has not chosen."""
    parse_servers(values["bootstrap_servers"])
    _check_way(values)
    _check_callables(values)
    _check_interceptors(values)
    _resolve_reporters(values)
    number = acks_number(values["acks"])
    values["acks"] = "all" if number == -1 else number
    values["batch_size"] = max(1, values["batch_size"])
    _resolve_partitioner(values)
    if "reconnect_backoff_ms" in chosen and "reconnect_backoff_max_ms" not in chosen:
        values["reconnect_backoff_max_ms"] = values["reconnect_backoff_ms"]
    _resolve_delivery_timeout(values, chosen)
    idempotence_requested(values, chosen)
    _check_transactions(values, chosen)
    if "client_id" not in chosen:
        values["client_id"] = f"producer-{values['transactional_id'] or next(_client_numbers)}"
    check_security(values, chosen)
    _warn_of_seconds(values, chosen)
