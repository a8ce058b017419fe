"""Assertions: signed JWTs in place of a client secret (RFC 7523; KIP-1139, KIP-1258).

Invariants: files are read again for each assertion, in a thread; the private key is never shown.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aioproducer._checks.extras import needed
from aioproducer._util.secrets import Unpicklable, hides_arguments
from aioproducer._util.threads import in_thread
from aioproducer.errors import AuthenticationError


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
    """Return a function that creates a new assertion on each call."""
    with needed("PyJWT", "to sign assertions", install="aioproducer[oauth]"):
        import jwt  # noqa: F401
    with needed("cryptography", "to sign assertions", install="aioproducer[oauth]"):
        import cryptography  # noqa: F401

    async def make() -> str:
        return await in_thread(make_assertion, settings, time.time())

    return make


def assertion_file(path: str) -> Callable[[], Awaitable[str]]:
    """Return a function that reads an assertion from a file, which another process renews."""

    async def read() -> str:
        return (await in_thread(_read, path)).decode("ascii", "replace").strip()

    return read


@hides_arguments
def make_assertion(settings: AssertionSettings, now: float) -> str:
    """Return a signed JWT."""
    template = _template(settings.template_file)
    header = {"typ": "JWT", **template.get("header", {}), "alg": settings.algorithm}
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
    return _signed(settings, header, claims)


def _signed(settings: AssertionSettings, header: dict[str, Any], claims: dict[str, Any]) -> str:
    import jwt
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    passphrase = None if settings.passphrase is None else settings.passphrase.encode()
    pem = _read(settings.private_key_file)
    try:
        key: Any = load_pem_private_key(pem, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise AuthenticationError(
            f"the private key in {settings.private_key_file} cannot be read",
            advice="it must be PEM; check sasl_oauthbearer_assertion_private_key_passphrase",
        ) from None
    try:
        jwt.get_algorithm_by_name(settings.algorithm).prepare_key(key)
    except (TypeError, jwt.InvalidKeyError):
        raise AuthenticationError(
            f"the private key in {settings.private_key_file} is not one for {settings.algorithm}"
        ) from None
    try:
        return jwt.encode(claims, key, settings.algorithm, header)
    except (TypeError, ValueError, jwt.PyJWTError) as error:
        raise AuthenticationError(f"the assertion cannot be signed: {error}") from None


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
