"""Assertions: signed JWTs in place of a client secret (RFC 7523; KIP-1139, KIP-1258).

Invariants: files are read again for each assertion, in a thread; the private key is never shown.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aioproducer._checks.extras import needed
from aioproducer._util.secrets import Unpicklable, hides_arguments
from aioproducer.errors import AuthenticationError

_EC_BYTES = 32


@dataclass(frozen=True, slots=True)
class AssertionSettings(Unpicklable):
    """Claims of an assertion; None omits a claim or uses the template's. Times in seconds."""

    private_key_file: str
    passphrase: str | None = field(default=None, repr=False)
    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    life_s: int = 300
    valid_before_s: int = 60
    with_id: bool = False
    template_file: str | None = None


def signed_assertions(settings: AssertionSettings) -> Callable[[], Awaitable[str]]:
    """Return a function that creates a new assertion on each call.

    Raises:
        ConfigError: `cryptography` is not installed.
    """
    with needed("cryptography", "to sign assertions", install="aioproducer[oauth]"):
        import cryptography  # noqa: F401

    async def make() -> str:
        return await asyncio.to_thread(make_assertion, settings, time.time())

    return make


def assertion_file(path: str) -> Callable[[], Awaitable[str]]:
    """Return a function that reads an assertion from a file, which another process renews."""

    async def read() -> str:
        return (await asyncio.to_thread(_read, path)).decode("ascii", "replace").strip()

    return read


@hides_arguments
def make_assertion(settings: AssertionSettings, now: float) -> str:
    """Return a signed JWT.

    Raises:
        AuthenticationError: a file cannot be used.
    """
    template = _template(settings.template_file)
    header = {"alg": settings.algorithm, "typ": "JWT", **template.get("header", {})}
    issued = int(now)
    claims: dict[str, Any] = {
        "iat": issued,
        "exp": issued + settings.life_s,
        "nbf": issued - settings.valid_before_s,
        **template.get("payload", {}),
    }
    given = {"aud": settings.audience, "iss": settings.issuer, "sub": settings.subject}
    claims |= {name: value for name, value in given.items() if value is not None}
    if settings.with_id:
        claims["jti"] = str(uuid.uuid4())
    signed = f"{_segment(header)}.{_segment(claims)}"
    return f"{signed}.{_base64(_sign(settings, signed.encode()))}"


def _sign(settings: AssertionSettings, data: bytes) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    passphrase = None if settings.passphrase is None else settings.passphrase.encode()
    pem = _read(settings.private_key_file)
    try:
        key = load_pem_private_key(pem, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise AuthenticationError(
            f"the private key in {settings.private_key_file} cannot be read",
            advice="it must be PEM; check sasl_oauthbearer_assertion_private_key_passphrase",
        ) from None
    if settings.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), SHA256())
    if settings.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
        return r.to_bytes(_EC_BYTES, "big") + s.to_bytes(_EC_BYTES, "big")
    raise AuthenticationError(
        f"the private key in {settings.private_key_file} is not one for {settings.algorithm}"
    )


def _template(path: str | None) -> dict[str, dict[str, Any]]:
    if path is None:
        return {}
    try:
        template = json.loads(_read(path))
        parts = [template.get("header", {}), template.get("payload", {})]
    except (ValueError, AttributeError, RecursionError):
        parts = [None]
    if not all(isinstance(part, dict) for part in parts):
        raise AuthenticationError(f"{path} must be a JSON object with header and payload objects")
    return template  # type: ignore[no-any-return]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise AuthenticationError(f"{path} cannot be read: {error.strerror or error}") from None


def _segment(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
