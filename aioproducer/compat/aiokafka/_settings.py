"""Conversion of aiokafka's constructor arguments to the options of `Producer`.

Arguments are checked with aiokafka's types and texts. Values that aiokafka accepts but cannot use
(a negative timeout, an address without a host) are refused by `ProducerConfig`, whose `ConfigError`
is a ValueError.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from numbers import Real
from ssl import SSLContext
from typing import Any, Final

from aioproducer.compat.aiokafka._abc import AbstractTokenProvider
from aioproducer.config.option import plain
from aioproducer.errors import UnsupportedCodecError
from aioproducer.records.codecs import codec_for
from aioproducer.types import OAuthToken

_PLAIN_DELIVERY_MS: Final = 120_000
_BUFFER_MEMORY: Final = 33_554_432
_LONGEST_BACKOFF_MS: Final = 1_000
_MECHANISMS: Final = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_numbers = itertools.count(1)


def acks_option(acks: Any, *, given: bool, idempotent: bool) -> int:
    """Return `acks` as a number; 1 unless given, or all for an idempotent producer."""
    if not given:
        return -1 if idempotent else 1
    acks = plain(acks)
    if acks not in (0, 1, -1, "all"):
        raise ValueError("Invalid ACKS parameter")
    if idempotent and acks not in ("all", -1):
        raise ValueError(f"acks={acks} not supported if enable_idempotence=True")
    return -1 if acks == "all" else int(acks)


def compression_option(compression_type: str | None) -> str:
    """Return the codec's name, after its library was imported."""
    if compression_type is None:
        return "none"
    compression_type = str(plain(compression_type))
    if compression_type not in ("gzip", "snappy", "lz4", "zstd"):
        raise ValueError("Invalid compression type!")
    try:
        codec_for(compression_type)
    except UnsupportedCodecError as error:
        raise RuntimeError(f"Compression library for {compression_type} not found") from error
    return compression_type


def client_id_option(client_id: Any) -> str:
    """Return the client's name, by default one that no other producer of this process has."""
    return f"aiokafka-producer-{next(_numbers)}" if client_id is None else str(plain(client_id))


def time_options(
    *,
    idempotent: bool,
    request_timeout_ms: float,
    linger_ms: float,
    retry_backoff_ms: float,
    metadata_max_age_ms: float,
    connections_max_idle_ms: float | None,
    transaction_timeout_ms: int | None,
    is_transactional: bool,
) -> dict[str, Any]:
    """Return the time limits: every wait is bounded.

    aiokafka gives a batch `request_timeout_ms` and one request more, an idempotent one any time;
    here the latter has Kafka's own two minutes, or more if that is shorter. Without transactions,
    their timeout may be None.
    """
    if _milliseconds(metadata_max_age_ms) < 0:
        raise ValueError("metadata_max_age_ms must not be negative")
    request, linger = _milliseconds(request_timeout_ms), _milliseconds(linger_ms)
    backoff = _milliseconds(retry_backoff_ms)
    delivery = linger + 2 * request
    idle = connections_max_idle_ms
    is_given = is_transactional or transaction_timeout_ms is not None
    return {
        "request_timeout_ms": request,
        "max_block_ms": request,
        "linger_ms": linger,
        "delivery_timeout_ms": max(_PLAIN_DELIVERY_MS, delivery) if idempotent else delivery,
        "retry_backoff_ms": backoff,
        "retry_backoff_max_ms": max(_LONGEST_BACKOFF_MS, backoff),
        "metadata_max_age_ms": _milliseconds(metadata_max_age_ms),
        "connections_max_idle_ms": -1 if idle is None else _milliseconds(idle),
        **({"transaction_timeout_ms": transaction_timeout_ms} if is_given else {}),
    }


def size_options(max_batch_size: int, max_request_size: int) -> dict[str, Any]:
    """Sizes; the memory always holds the largest record."""
    return {
        "batch_size": max_batch_size,
        "max_request_size": max_request_size,
        "buffer_memory": max(_BUFFER_MEMORY, 2 * max_request_size, 2 * max_batch_size),
    }


def security_options(
    *,
    security_protocol: str,
    ssl_context: SSLContext | None,
    sasl_mechanism: str,
    username: str | None,
    password: str | None,
    kerberos_service: str,
    kerberos_domain: str | None,
    token_provider: AbstractTokenProvider | None,
) -> dict[str, Any]:
    """Return the security options; raise ValueError if they contradict each other."""
    if security_protocol not in ("SSL", "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT")
    options: dict[str, Any] = {"security_protocol": security_protocol}
    if security_protocol in ("SSL", "SASL_SSL"):
        if ssl_context is None:
            raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
        options["ssl_context"] = ssl_context
    if not security_protocol.startswith("SASL_"):
        return options
    if sasl_mechanism not in _MECHANISMS:
        raise ValueError(
            "only `PLAIN`, `GSSAPI`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and `OAUTHBEARER`"
            "sasl_mechanism are supported at the moment"
        )
    options["sasl_mechanism"] = sasl_mechanism
    if sasl_mechanism == "OAUTHBEARER":
        if token_provider is None:
            raise ValueError("sasl_oauth_token_provider required for OAUTHBEARER sasl")
        options["sasl_oauthbearer_token"] = _token_source(token_provider)
    elif sasl_mechanism == "GSSAPI":
        if kerberos_domain is not None:
            raise ValueError("sasl_kerberos_domain_name is not supported: brokers go by their host")
        options["sasl_kerberos_service_name"] = kerberos_service
    else:
        if username is None or password is None:
            raise ValueError(
                f"sasl_plain_username and sasl_plain_password required for {sasl_mechanism} sasl"
            )
        options |= {"sasl_username": username, "sasl_password": password}
    return options


def _milliseconds(value: float) -> int:
    if not isinstance(value, Real):
        raise TypeError(f"unsupported operand type(s) for /: {type(value).__name__!r} and 'int'")
    if not isfinite(value):
        raise ValueError(f"a number of ms must be finite, not {value!r}")
    return int(value)


def _token_source(provider: AbstractTokenProvider) -> Callable[[], Awaitable[OAuthToken]]:
    async def token() -> OAuthToken:
        value = await provider.token()
        extensions = getattr(provider, "extensions", None)  # a provider may have `token()` alone
        found: Mapping[str, str] = extensions() if callable(extensions) else {}
        return OAuthToken(value, extensions=found)

    return token
