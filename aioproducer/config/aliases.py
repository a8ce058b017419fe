"""Other clients' names of our options, and the conversion of their values.

`legacy_aliases` has those of Kafka 0.8's producer.

Invariant: a name that is one of ours, with dots or underscores, is not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from aioproducer.config.legacy_aliases import LEGACY_PROPERTIES
from aioproducer.config.option import bool_of, int_of, plain
from aioproducer.config.table_security import SUITES_OF_TLS_1_3
from aioproducer.config.verdicts import Alias

_INT_MAX: Final = 2**31 - 1
_NUMBER: Final = "an int"
_TRUTH: Final = "True or False"
_GRANTS: Final = {
    "client_credentials": "client_credentials",
    "urn:ietf:params:oauth:grant-type:jwt-bearer": "jwt_bearer",
}


def _zero_means(other: int) -> Callable[[Any], int]:
    """Convert 0, which has a special meaning in another client."""
    return lambda value: int_of(value) or other


def _grant(value: Any) -> str:
    if value not in _GRANTS:
        raise ValueError
    return _GRANTS[value]


def _extensions_line(value: Any) -> str:
    """Turn librdkafka's `name=value,...` into the JAAS line that says so."""
    options = []
    for pair in str(plain(value)).split(","):
        name, found, text = pair.strip().partition("=")
        if not found or not name.isalpha():
            raise ValueError
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        options.append(f'extension_{name}="{escaped}"')
    return f"OAuthBearerLoginModule required {' '.join(options)};"


def suites_of_openssl(value: Any) -> list[str]:
    """Turn OpenSSL's list, which leaves the suites of TLS 1.3 as they are, into one with them."""
    names = [name for name in re.split("[:, ]", str(plain(value))) if name]
    return [*names, *SUITES_OF_TLS_1_3] if names else []


_OF_0_8: Final = {
    name: Alias(row.option, row.convert, _NUMBER)
    for name, row in LEGACY_PROPERTIES.items()
    # Some of its words are Java's, and ours, to this day.
    if name.replace(".", "_") not in (row.option, "partitioner_class")
}

ALIASES: Final[dict[str, Alias]] = {
    **_OF_0_8,
    # librdkafka: its `metadata.max.age.ms` is the age at which its cache is no longer used.
    "topic.metadata.refresh.interval.ms": _OF_0_8["topic.metadata.refresh.interval.ms"]._replace(
        rank=1
    ),
    "queue.buffering.max.kbytes": Alias(
        "buffer_memory", lambda value: int_of(value) * 1024, _NUMBER
    ),
    "message.max.bytes": Alias("max_request_size"),
    "message.timeout.ms": Alias("delivery_timeout_ms", _zero_means(_INT_MAX), _NUMBER),
    "max.in.flight": Alias("max_in_flight_requests_per_connection"),
    # Besides it, librdkafka's `request.timeout.ms` is how long the broker may wait for replicas.
    "socket.timeout.ms": Alias("request_timeout_ms", rank=-1),
    "socket.send.buffer.bytes": Alias("send_buffer_bytes", _zero_means(-1), _NUMBER),
    "socket.receive.buffer.bytes": Alias("receive_buffer_bytes", _zero_means(-1), _NUMBER),
    "compression.level": Alias("compression_*_level", int_of, _NUMBER),
    "sasl.mechanisms": Alias("sasl_mechanism"),
    # `probe` finds the system's certificates, which are the default here.
    "ssl.ca.location": Alias(
        "ssl_truststore_location", lambda value: None if value == "probe" else value
    ),
    "ssl.ca.pem": Alias("ssl_truststore_certificates"),
    "ssl.certificate.location": Alias("ssl_keystore_location"),
    "ssl.certificate.pem": Alias("ssl_keystore_certificate_chain"),
    "ssl.key.pem": Alias("ssl_keystore_key"),
    "sasl.oauthbearer.client.id": Alias("sasl_oauthbearer_client_credentials_client_id"),
    "sasl.oauthbearer.client.secret": Alias("sasl_oauthbearer_client_credentials_client_secret"),
    "sasl.oauthbearer.assertion.jwt.template.file": Alias(
        "sasl_oauthbearer_assertion_template_file"
    ),
    "sasl.oauthbearer.grant.type": Alias(
        "sasl_oauthbearer_jwt_retriever_class", _grant, f"one of {', '.join(_GRANTS)}"
    ),
    "sasl.oauthbearer.extensions": Alias(
        "sasl_jaas_config", _extensions_line, "of the form name=value,..."
    ),
    # kafka-python (the first of its fork kafka-python-ng) and aiokafka.
    "connection_timeout_ms": Alias("socket_connection_setup_timeout_ms"),
    "max_batch_size": Alias("batch_size"),
    "sasl_plain_username": Alias("sasl_username"),
    "sasl_plain_password": Alias("sasl_password"),
    "socks5_proxy": Alias("proxy_url"),
    "ssl_cafile": Alias("ssl_truststore_location"),
    "ssl_certfile": Alias("ssl_keystore_location"),
    "ssl_keyfile": Alias("ssl_key_location"),
    "ssl_password": Alias("ssl_key_password"),
    "ssl_ciphers": Alias("ssl_cipher_suites", suites_of_openssl),
    "ssl_check_hostname": Alias(
        "ssl_endpoint_identification_algorithm",
        lambda value: "https" if bool_of(value) else "",
        _TRUTH,
    ),
    # Java's producer before 0.10 and 0.11.
    "metadata.fetch.timeout.ms": Alias("max_block_ms"),
    "timeout.ms": Alias("request_timeout_ms", rank=-1),
    "block.on.buffer.full": Alias(  # without bound, or not at all
        "enqueue_timeout_ms", lambda value: -1 if bool_of(value) else 0, _TRUTH
    ),
}
"""By the name that the other client documents."""
