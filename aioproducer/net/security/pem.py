"""Readers of keys and certificates: PEM and PKCS12, distinguished by content.

PKCS12 needs the `cryptography` library. Invariant: errors never contain a key or a password.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from aioproducer._util.secrets import Unpicklable, hides_arguments
from aioproducer.errors import ConfigError
from aioproducer.errors.advice import ADVICE

_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,60})-----")
_MOST_LABELS = 20
_TRUSTED = "-----BEGIN TRUSTED CERTIFICATE-----"
_LINE = 64
_LONGEST_STORE = 16 * 1024 * 1024
"""Limit of a store's size in bytes: an endless file such as `/dev/zero` must not use all memory."""
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE = b"\x30"


@dataclass(frozen=True, slots=True)
class PemStore(Unpicklable):
    """Content of a key or trust store: certificates and an optional private key."""

    certificates: tuple[str, ...] = ()
    private_key: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    """The password of the private key, if it is encrypted."""


@hides_arguments
def parse_pem(text: str, password: str | None = None) -> PemStore:
    """Return the certificates and the first private key of a text; other content is ignored.

    Line ends may be missing or escaped (backslash and n), as in properties files and environment
    variables. OpenSSL's TRUSTED CERTIFICATE blocks are refused.
    """
    text = text.replace("\\r", "").replace("\\n", "\n")
    if _TRUSTED in text:
        raise ConfigError(
            "the certificates are TRUSTED CERTIFICATE blocks, which only OpenSSL reads",
            advice="convert each: openssl x509 -in OLD.pem -out NEW.pem",
        )
    blocks = list(_blocks(text))
    key = next((each for each in blocks if each[0].endswith("PRIVATE KEY")), None)
    return PemStore(
        tuple(_block(label, body) for label, body in blocks if label == "CERTIFICATE"),
        None if key is None else _block(*key),
        password,
    )


@hides_arguments
def read_store(path: str, password: str | None, kind: str | None = None) -> PemStore:
    """Return the content of a PEM or PKCS12 file; `kind` is the configured type.

    As in Java, a file of the type JKS may be PKCS12: keytool has made these since Java 9.
    """
    try:
        # A pipe without a writer would otherwise block the thread that opens it.
        with open(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:  # noqa: PTH123
            if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} is not a keystore: it is a pipe")
            data = file.read(_LONGEST_STORE + 1) or b""  # nothing of a terminal
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}", advice=ADVICE["file-unreadable"]
        ) from None
    if len(data) > _LONGEST_STORE:
        raise ConfigError(f"{path} is not a keystore: it has more than {_LONGEST_STORE} bytes")
    if data.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{path} is a JKS store, which only Java reads",
            advice="convert it: keytool -importkeystore -srckeystore ... -deststoretype PKCS12",
        )
    found = "PEM" if b"-----BEGIN " in data else "PKCS12" if data[:1] == _DER_SEQUENCE else None
    if found is None:
        raise ConfigError(f"{path} is neither PEM nor PKCS12")
    if kind not in {None, found} and (kind, found) != ("JKS", "PKCS12"):
        raise ConfigError(f"{path} is {found}, not {kind}")
    if found == "PEM":
        return parse_pem(data.decode("utf-8", "replace"), password)
    return _read_pkcs12(path, data, password)


def _read_pkcs12(path: str, data: bytes, password: str | None) -> PemStore:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise ConfigError(
            f"{path} is PKCS12, which takes the package cryptography to read",
            advice='pip install "aioproducer[crypto]", or convert the store to PEM',
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        if _is_der_certificate(data):
            raise ConfigError(
                f"{path} is a certificate in DER, not a store",
                advice="convert it: openssl x509 -inform DER -in OLD -out NEW.pem",
            ) from None
        how = "without a password" if password is None else "with the password given for it"
        raise ConfigError(
            f"{path} cannot be read {how}",
            advice="give the store's password, as ssl_truststore_password or "
            "ssl_keystore_password; where it is right, the file is damaged",
        ) from None
    except UnsupportedAlgorithm as error:
        raise ConfigError(
            f"{path} cannot be read by the package cryptography: {error}",
            advice="convert the store to PEM: openssl pkcs12 -in OLD -out NEW.pem",
        ) from None
    own = [] if store.cert is None else [store.cert]
    certificates = [entry.certificate for entry in (*own, *store.additional_certs)]
    key = None
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return PemStore(tuple(c.public_bytes(Encoding.PEM).decode() for c in certificates), key)


def _is_der_certificate(data: bytes) -> bool:
    from cryptography.x509 import load_der_x509_certificate

    try:
        load_der_x509_certificate(data)
    except ValueError:
        return False
    return True


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the labels and bodies of certificates and private keys, in linear time."""
    at = 0
    without_end: set[str] = set()
    while (begin := _BEGIN.search(text, at)) is not None:
        label, at = begin[1], begin.end()
        is_wanted = label == "CERTIFICATE" or label.endswith("PRIVATE KEY")
        if not is_wanted or label in without_end:
            continue
        mark = f"-----END {label}-----"
        end = text.find(mark, at)
        if end < 0:
            without_end.add(label)  # no later block with this label has an end
            if len(without_end) > _MOST_LABELS:
                return
            continue
        yield label, text[at:end]
        at = end + len(mark)


def _block(label: str, body: str) -> str:
    """Return one PEM block with normal line ends and unchanged headers (`Proc-Type` ...)."""
    if not body.isascii():
        raise ConfigError(
            f"a block {label} has characters that are not ASCII",
            advice="copy it anew from its file: some of them are invisible",
        )
    if ":" not in body:
        joined = "".join(body.split())
        body = "\n".join(joined[at : at + _LINE] for at in range(0, len(joined), _LINE))
    return f"-----BEGIN {label}-----\n{body.strip()}\n-----END {label}-----\n"
