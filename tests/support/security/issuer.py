"""A token issuer on loopback: a token endpoint, and the keys that brokers check tokens with.

Owns: an HTTP server in a thread, an RSA key, what clients may present. Not here: the client
under test; it checks assertions with the `cryptography` library alone.
"""

from __future__ import annotations

import base64
import functools
import http.server
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

ClientKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@functools.cache
def _rsa_key(_owner: str) -> rsa.RSAPrivateKey:
    """One per owner and run: making them is slow."""
    return rsa.generate_private_key(65537, 2048)


def encoded(data: bytes) -> str:
    """Base64 as JWTs have it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Issuer:
    """Issues tokens to one client, by its secret or by assertions signed with its key.

    `failures` holds HTTP statuses to answer first; `requests` what was asked for.
    """

    def __init__(self, client_id: str, client_secret: str, life_s: int = 3600) -> None:
        self.client_id = client_id
        self.client_secret = client_secret
        self.life_s = life_s
        self.key = _rsa_key("issuer")
        self.client_key: ClientKey = _rsa_key("client")
        self.failures: list[int] = []
        self.requests: list[dict[str, str]] = []
        self.issued: list[str] = []
        self.url = ""

    def token(self, subject: str = "alice", *, life_s: int | None = None, **claims: Any) -> str:
        """A signed token."""
        now = int(time.time())
        life_s = self.life_s if life_s is None else life_s
        body = {"sub": subject, "aud": "kafka", "iss": "tests", "scope": "produce", "iat": now}
        body |= {"exp": now + life_s} | claims
        header = {"alg": "RS256", "kid": "key-1", "typ": "JWT"}
        signed = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(body).encode())}"
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        token = f"{signed}.{encoded(signature)}"
        self.issued.append(token)
        return token

    @property
    def keys(self) -> dict[str, Any]:
        """The JSON Web Key Set."""
        numbers = self.key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": "key-1",
            "use": "sig",
            "alg": "RS256",
            "n": encoded(numbers.n.to_bytes(256, "big")),
            "e": encoded(numbers.e.to_bytes(3, "big")),
        }
        return {"keys": [key]}

    def client_key_pem(self, password: str | None = None) -> bytes:
        encryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        )
        return self.client_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def answer(self, headers: Mapping[str, str], form: dict[str, str]) -> tuple[int, object]:
        """HTTP status and JSON for a request at the token endpoint."""
        self.requests.append(form)
        if self.failures:
            return self.failures.pop(0), {"error": "temporarily_unavailable"}
        if not self._accepts(headers, form):
            text = {"error": "invalid_client", "error_description": "unknown client"}
            return 401, text
        return 200, {"access_token": self.token(), "expires_in": self.life_s}

    def _accepts(self, headers: Mapping[str, str], form: dict[str, str]) -> bool:
        assertion = form.get("client_assertion") or form.get("assertion")
        if assertion is not None:
            return self._is_signed(assertion)
        pair = f"{self.client_id}:{self.client_secret}".encode()
        expected = "Basic " + base64.b64encode(pair).decode()
        grant = form.get("grant_type") == "client_credentials"
        return grant and headers.get("Authorization") == expected

    def _is_signed(self, assertion: str) -> bool:
        signed, _, signature = assertion.rpartition(".")
        claims = json.loads(decoded(signed.partition(".")[2]))
        key, given = self.client_key.public_key(), decoded(signature)
        try:
            if isinstance(key, rsa.RSAPublicKey):
                key.verify(given, signed.encode(), padding.PKCS1v15(), SHA256())
            else:
                r, s = int.from_bytes(given[:32], "big"), int.from_bytes(given[32:], "big")
                key.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        now = time.time()
        return bool(claims["nbf"] <= now < claims["exp"] and claims["aud"] == "issuer")


@contextmanager
def serving(issuer: Issuer) -> Iterator[Issuer]:
    """Serves `/token` and `/keys` while the block runs."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, issuer.keys)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._send(*issuer.answer(dict(self.headers), form))

        def _send(self, status: int, content: object) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
