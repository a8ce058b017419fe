"""Text for options whose values are objects: Java's class names, and keywords."""

from __future__ import annotations

from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.serializers import primitives

_TAKES_WORDS: Final = ("partitioner", "acks", "sasl_oauthbearer_jwt_retriever_class")

_SERIALIZATION: Final = "org.apache.kafka.common.serialization"
_SERIALIZERS: Final = {
    f"{_SERIALIZATION}.ByteArraySerializer": None,
    f"{_SERIALIZATION}.BytesSerializer": None,
    f"{_SERIALIZATION}.ByteBufferSerializer": None,
    f"{_SERIALIZATION}.StringSerializer": primitives.StringSerializer(),
    f"{_SERIALIZATION}.UUIDSerializer": primitives.UuidSerializer(),
    f"{_SERIALIZATION}.BooleanSerializer": primitives.BooleanSerializer(),
    f"{_SERIALIZATION}.ShortSerializer": primitives.ShortSerializer(),
    f"{_SERIALIZATION}.IntegerSerializer": primitives.IntegerSerializer(),
    f"{_SERIALIZATION}.LongSerializer": primitives.LongSerializer(),
    f"{_SERIALIZATION}.FloatSerializer": primitives.FloatSerializer(),
    f"{_SERIALIZATION}.DoubleSerializer": primitives.DoubleSerializer(),
    "kafka.serializer.DefaultEncoder": None,
    "kafka.serializer.StringEncoder": primitives.StringSerializer(),
    "kafka.serializer.NullEncoder": lambda _: None,
}
_PARTITIONERS: Final = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "default",
    "kafka.producer.DefaultPartitioner": "java_string_hash",
    "kafka.producer.ByteArrayPartitioner": "java_bytes_hash",
}
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_RETRIEVERS: Final = {
    f"{_OAUTH}.DefaultJwtRetriever": None,
    f"{_OAUTH}.ClientCredentialsJwtRetriever": "client_credentials",
    f"{_OAUTH}.JwtBearerJwtRetriever": "jwt_bearer",
    f"{_OAUTH}.FileJwtRetriever": "file",
}
# What they do follows from the other options here.
_LOGIN_HANDLERS: Final = {
    f"{_OAUTH}.OAuthBearerLoginCallbackHandler": None,
    f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler": None,
    f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler": None,
}
_JAVA_CLASSES: Final[dict[str, dict[str, Any]]] = {
    "key_serializer": _SERIALIZERS,
    "value_serializer": _SERIALIZERS,
    "partitioner": _PARTITIONERS,
    "sasl_oauthbearer_jwt_retriever_class": _RETRIEVERS,
    "sasl_oauthbearer_token": _LOGIN_HANDLERS,
    "sasl_credentials": {"software.amazon.msk.auth.iam.IAMClientCallbackHandler": None},
}


def object_from_text(name: str, text: str) -> object:
    """Return what text means for an option whose value is an object."""
    # `metric_reporters` takes names of Python's classes, which the option itself looks up.
    if name == "metric_reporters" or (name in _TAKES_WORDS and "." not in text):
        return text
    if name == "interceptor_classes" and not text:  # Java's default
        return ()
    known = _JAVA_CLASSES.get(name)
    if known is None:
        raise ConfigError(f"{name} cannot be given as text; pass the object in code")
    if text not in known:
        raise ConfigError(
            f"{name}: the class {text!r} has no counterpart here; known are {', '.join(known)}",
            advice="Pass a callable in code.",
        )
    return known[text]
