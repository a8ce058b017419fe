"""The server's half of PLAIN, SCRAM and OAUTHBEARER.

Written apart from the client's half, from the RFCs, so that a mistake in one does not hide in the
other.

Each is a generator: it is sent the client's tokens and yields the responses; it returns when the
client has authenticated, with the milliseconds for which that is valid (None: for ever), and raises
`DeniedError` otherwise.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator, Mapping

Exchange = Generator[bytes, bytes, int | None]

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class DeniedError(Exception):
    """Authentication failed; the text is the broker's response."""


def plain(users: Mapping[str, str]) -> Exchange:
    """RFC 4616."""
    token = yield b""
    parts = token.split(b"\0")
    if len(parts) != 3:
        raise DeniedError("Invalid SASL/PLAIN response")
    name, password = parts[1].decode(), parts[2].decode()
    if name not in users or not secrets.compare_digest(users[name].encode(), password.encode()):
        raise DeniedError("Authentication failed: Invalid username or password")
    yield b""
    return None


def scram(mechanism: str, users: Mapping[str, str], iterations: int) -> Exchange:
    """RFC 5802; `users` holds passwords, from which the verifiers are made each time."""
    digest = SCRAM_HASHES[mechanism]
    denied = DeniedError(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )
    first = yield b""
    bare = first.removeprefix(b"n,,")
    fields = dict(part.split(b"=", 1) for part in bare.split(b","))
    name = fields[b"n"].decode().replace("=2C", ",").replace("=3D", "=")
    if name not in users:
        raise denied
    salt = secrets.token_bytes(16)
    nonce = fields[b"r"] + secrets.token_hex(12).encode()
    challenge = b"r=%b,s=%b,i=%d" % (nonce, base64.b64encode(salt), iterations)
    final = yield challenge
    without_proof, _, proof = final.rpartition(b",p=")
    if without_proof != b"c=biws,r=" + nonce:
        raise denied
    salted = hashlib.pbkdf2_hmac(digest, users[name].encode(), salt, iterations)
    stored = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    signed = b",".join([bare, challenge, without_proof])
    signature = hmac.digest(stored, signed, digest)
    shown = base64.b64decode(proof)
    key = bytes(a ^ b for a, b in zip(shown, signature, strict=True))
    if not hmac.compare_digest(hashlib.new(digest, key).digest(), stored):
        raise denied
    server_key = hmac.digest(salted, b"Server Key", digest)
    yield b"v=" + base64.b64encode(hmac.digest(server_key, signed, digest))
    return None


def oauthbearer(check_token: Callable[[str], int | None]) -> Exchange:
    """RFC 7628; `check_token` gives a token's remaining milliseconds, None where it is no good."""
    token = yield b""
    bearer = [part for part in token.split(b"\x01") if part.startswith(b"auth=Bearer ")]
    life_ms = check_token(bearer[0].removeprefix(b"auth=Bearer ").decode()) if bearer else None
    if life_ms is None:
        yield b'{"status":"invalid_token"}'
        raise DeniedError('{"status":"invalid_token"}')
    yield b""
    return life_ms
