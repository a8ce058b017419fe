"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; KIP-84), delegation tokens (KIP-48).

Invariants: the broker has to prove that it has the password's verifier, compared in constant time;
the number of iterations has a minimum, below which the exchange is cheap to crack, and a maximum,
above which a broker could keep the processor busy; hashing runs in a thread.

Names and passwords are sent as UTF-8 without SASLprep, as in Java's client and broker
(ScramFormatter.normalize); otherwise they would not match.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncGenerator, Callable
from functools import partial

from aioproducer._util.threads import in_thread
from aioproducer.errors import AuthenticationError
from aioproducer.net.security.sasl import CredentialsSource
from aioproducer.types import SaslCredentials

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1_000_000

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_GS2_HEADER = "n,,"
_new_nonce = partial(secrets.token_urlsafe, 24)
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<count>[0-9]{1,10})(?:,.*)?"
)
_SERVER_FINAL = re.compile(r"(?:e=(?P<error>[^,]*)|v=(?P<signature>[A-Za-z0-9+/=]+))(?:,.*)?")


class Scram:
    """The mechanisms SCRAM-SHA-256 and SCRAM-SHA-512.

    The credentials are user name and password, or token id and HMAC.
    """

    def __init__(
        self, name: str, credentials: CredentialsSource, new_nonce: Callable[[], str] = _new_nonce
    ) -> None:
        self.name: str = name
        self._hash = _HASHES[name]
        self._credentials = credentials
        self._new_nonce = new_nonce

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        """Exchange two messages."""
        given = await self._credentials()
        nonce = self._new_nonce()
        extensions = "".join(f",{key}={value}" for key, value in given.extensions.items())
        first = f"n={_escaped(given.username)},r={nonce}{extensions}"
        challenge = yield (_GS2_HEADER + first).encode()

        their_nonce, salt, iterations = _parse_first(challenge, nonce)
        channel = base64.b64encode(_GS2_HEADER.encode()).decode()
        final = f"c={channel},r={their_nonce}"
        signed = b",".join([first.encode(), challenge, final.encode()])
        proof, signature = await in_thread(
            _prove, self._hash, given, salt, iterations=iterations, signed=signed
        )
        answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
        _check_final(answer, signature)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _prove(
    algorithm: str, given: SaslCredentials, salt: bytes, *, iterations: int, signed: bytes
) -> tuple[bytes, bytes]:
    """Return the client's proof, and the signature that the server must send."""

    def keyed(key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, algorithm)

    salted = hashlib.pbkdf2_hmac(algorithm, given.password.encode(), salt, iterations)
    client_key = keyed(salted, b"Client Key")
    client_signature = keyed(hashlib.new(algorithm, client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
    return proof, keyed(keyed(salted, b"Server Key"), signed)


def _parse_first(challenge: bytes, nonce: str) -> tuple[str, bytes, int]:
    found = _SERVER_FIRST.fullmatch(challenge.decode("utf-8", "replace"))
    if found is None:
        raise AuthenticationError("the broker's first SCRAM message is malformed")
    if not found["nonce"].startswith(nonce) or len(found["nonce"]) == len(nonce):
        raise AuthenticationError("the broker's SCRAM nonce does not extend ours")
    iterations = int(found["count"])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise AuthenticationError(
            f"the broker asks for {iterations} SCRAM iterations; "
            f"{MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted",
            advice="create the user's SCRAM credentials anew with iterations in that range",
        )
    return found["nonce"], _decoded(found["salt"]), iterations


def _check_final(answer: bytes, signature: bytes) -> None:
    found = _SERVER_FINAL.fullmatch(answer.decode("utf-8", "replace"))
    if found is None:
        raise AuthenticationError("the broker's last SCRAM message is malformed")
    if found["error"] is not None:
        raise AuthenticationError(f"the broker refused the SCRAM proof: {found['error'][:200]}")
    if not hmac.compare_digest(_decoded(found["signature"]), signature):
        raise AuthenticationError(
            "the broker could not prove that it has the password (SCRAM server signature)",
            advice="another server may pretend to be the broker: check the address and TLS",
        )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationError("the broker's SCRAM message is not proper base64") from None
