"""TLS contexts: created from the TLS options, and again when a file changes.

Invariants: certificates are verified, host names as well unless that is switched off; a private key
is never written to a disk if the system can avoid it; a password is never requested on a terminal;
if a changed store cannot be read, the last good context stays in use.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aioproducer._util import log
from aioproducer._util.paths import version_of
from aioproducer._util.secrets import Unpicklable, hides_arguments
from aioproducer._util.threads import in_thread
from aioproducer.config.table_security import SUITES_OF_TLS_1_3
from aioproducer.errors import ConfigError
from aioproducer.errors.advice import ADVICE
from aioproducer.net.security.certificates import leaf_first, read_certificate
from aioproducer.net.security.pem import PemStore, parse_pem, read_store

_logger = log.get("net")

_SHOWN_SUITES: Final = 5
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.[0-9]+")
"""Names of certificate files in a directory for OpenSSL."""
_WEAK: Final = ("_TOO_SMALL", "_TOO_WEAK")
"""Ends of OpenSSL's reasons against keys and signatures."""
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_13: Final = frozenset(SUITES_OF_TLS_1_3)


@dataclass(frozen=True, slots=True)
class TlsSettings(Unpicklable):
    """The values of the TLS options; texts are PEM, kinds are configured store types."""

    context: ssl.SSLContext | None = None
    """A context of the user; it replaces all other options and has its own host name check."""
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    truststore_kind: str | None = None
    truststore_certificates: str | None = field(default=None, repr=False)
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    keystore_kind: str | None = None
    keystore_certificate_chain: str | None = field(default=None, repr=False)
    keystore_key: str | None = field(default=None, repr=False)
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_host_name: bool = True
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files from which the context is created."""
        named = [self.truststore_location, self.keystore_location, self.key_location]
        if self.trusts_the_system:
            named.append(ssl.get_default_verify_paths().cafile)
        return tuple(path for path in named if path is not None)

    @property
    def trusts_the_system(self) -> bool:
        """Whether the authorities are those of OpenSSL's defaults, such as `SSL_CERT_FILE`."""
        given = (self.context, self.truststore_location, self.truststore_certificates)
        return all(each is None for each in given)


class TlsContexts:
    """The context of the next connection; reads the files again when they changed."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._seen = tuple(map(version_of, settings.files))
        self._context = make_context(settings)
        self._lock = asyncio.Lock()

    async def current(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        async with self._lock:
            seen = tuple(map(version_of, self._settings.files))
            if seen != self._seen:
                await self._reload()
                self._seen = seen  # only now: the connection's time may have ended before
        return self._context

    async def _reload(self) -> None:
        try:
            self._context = await in_thread(make_context, self._settings)
        except ConfigError as error:
            _logger.warning("keeping the TLS certificates as they were: %s", error)
        else:
            _logger.info("read the TLS certificates again")


@hides_arguments
def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Create an `ssl.SSLContext` for these settings; reads files."""
    if settings.context is not None:
        return settings.context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verify_host_name
    context.hostname_checks_common_name = False  # deprecated since RFC 2818; Java and browsers too
    versions = sorted(_VERSIONS[name] for name in settings.versions)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    _set_cipher_suites(context, settings.cipher_suites)
    if context.minimum_version > context.maximum_version:
        raise ConfigError(
            f"ssl_cipher_suites has none of {', '.join(settings.versions)}",
            advice="name suites of these versions, or change ssl_enabled_protocols or ssl_protocol",
        )
    _load_trust(context, settings)
    _load_identity(context, settings)
    return context


# -- trust ---------------------------------------------------------------------------------------


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    location = settings.truststore_location
    if settings.trusts_the_system:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    # As in Java, each certificate of the store is trusted: an intermediate one without its root,
    # and the broker's own.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if location is not None and os.path.isdir(location):  # noqa: PTH112 - no error of long names
        _check_directory(location)
        context.load_verify_locations(capath=location)
        return
    if location is not None:
        store = read_store(location, settings.truststore_password, settings.truststore_kind)
    else:
        location = "ssl_truststore_certificates"
        store = parse_pem(settings.truststore_certificates or "")
    if not store.certificates:
        raise ConfigError(f"{location} holds no certificate", advice=ADVICE["certificate-missing"])
    try:
        context.load_verify_locations(cadata="".join(store.certificates))
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{location} holds a malformed certificate") from None


def _check_directory(location: str) -> None:
    try:
        names = [path.name for path in Path(location).iterdir()]
    except OSError as error:
        raise ConfigError(
            f"{location} cannot be read: {error.strerror or error}",
            advice=ADVICE["file-unreadable"],
        ) from None
    if not any(map(_HASHED.fullmatch, names)):
        raise ConfigError(
            f"{location} is a directory without certificates that OpenSSL finds",
            advice="run openssl rehash on it, or give the path of a file",
        )


# -- identity ------------------------------------------------------------------------------------


def _load_identity(context: ssl.SSLContext, settings: TlsSettings) -> None:
    store = _identity(settings)
    if store is None:
        return
    if not store.certificates or store.private_key is None:
        missing = "private key" if store.certificates else "certificate"
        named = _key_option(settings) if store.certificates else _keystore_option(settings)
        raise ConfigError(
            f"{named} holds no {missing}", advice=ADVICE["client-certificate-missing"]
        )
    password = store.password

    def get_password() -> str:
        # Without this function OpenSSL would ask on the terminal.
        if password is None:
            raise ConfigError(
                "the client's private key is encrypted", advice=ADVICE["client-key-encrypted"]
            )
        return password

    chain = leaf_first(store.certificates)
    with _temporary_file(store.private_key + "".join(chain)) as path:
        try:
            context.load_cert_chain(path, password=get_password)
        except ConfigError:
            raise
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", "") or ""
            if "MISMATCH" in reason:
                raise ConfigError(
                    "the client's private key is not the certificate's",
                    advice=ADVICE["client-key-mismatch"],
                ) from None
            if reason.endswith(_WEAK):
                raise ConfigError(
                    "OpenSSL refuses the client's certificate: " + reason.lower().replace("_", " "),
                    advice=ADVICE["certificate-weak"],
                ) from None
            raise ConfigError(
                "the client's private key or certificate cannot be read"
                + (" with ssl_key_password" if password is not None else "")
            ) from None


def _keystore_option(settings: TlsSettings) -> str:
    given = settings.keystore_location is not None
    return "ssl_keystore_location" if given else "ssl_keystore_certificate_chain"


def _key_option(settings: TlsSettings) -> str:
    if settings.keystore_key is not None:
        return "ssl_keystore_key"
    return "ssl_key_location" if settings.key_location else _keystore_option(settings)


def _identity(settings: TlsSettings) -> PemStore | None:
    """Return the client's certificates and key, from text or files."""
    if settings.keystore_location is not None:
        # PKCS12: one password for all, which Java allows to be given as either.
        password = settings.keystore_password or settings.key_password
        store = read_store(settings.keystore_location, password, settings.keystore_kind)
    elif settings.keystore_certificate_chain is not None:
        store = parse_pem(settings.keystore_certificate_chain)
    else:
        return None
    key = store.private_key
    if settings.keystore_key is not None:
        key = parse_pem(settings.keystore_key).private_key
    elif settings.key_location is not None:
        key = read_store(settings.key_location, settings.key_password).private_key
    return PemStore(store.certificates, key, settings.key_password)


def client_subject(settings: TlsSettings) -> str | None:
    """Return the subject of the client's certificate; None without one. Reads files."""
    store = _identity(settings)
    if store is None or not store.certificates:
        return None
    return read_certificate(ssl.PEM_cert_to_DER_cert(leaf_first(store.certificates)[0])).subject


@contextmanager
def _temporary_file(text: str) -> Iterator[str]:
    """Create a temporary file for OpenSSL: in memory on Linux with /proc, otherwise private."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
        descriptor = os.memfd_create("aioproducer", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "identity.pem")
            path.write_text(text, encoding="ascii")  # closed: Windows opens no open one again
            yield str(path)


# -- cipher suites -------------------------------------------------------------------------------


def _set_cipher_suites(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    """Allow only these suites, in Java's (IANA's) or OpenSSL's names."""
    if not names:
        return
    newest = [name for name in names if name in _SUITES_13]
    older = [_openssl_name(name) for name in names if name not in _SUITES_13]
    if newest and set(newest) != _SUITES_13:
        choose = getattr(context, "set_ciphersuites", None)  # Python 3.15
        if choose is None:
            raise ConfigError(
                "ssl_cipher_suites: this Python cannot choose among the suites of TLS 1.3; name "
                f"all of them or none: {', '.join(sorted(_SUITES_13))}"
            )
        choose(":".join(newest))
    if not newest:
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    if any("@" in name for name in older):
        raise ConfigError("ssl_cipher_suites: '@' lowers OpenSSL's security level; name suites")
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise ConfigError(
            f"ssl_cipher_suites: none is known among {', '.join(names)}",
            advice="name suites that `openssl ciphers` lists, or leave the option out",
        ) from None
    open_to_all = [
        suite["name"]
        for suite in context.get_ciphers()
        if suite["strength_bits"] == 0 or suite["auth"] == "auth-null"
    ]
    if open_to_all:
        raise ConfigError(
            "ssl_cipher_suites: these do not encrypt, or do not authenticate the broker: "
            + ", ".join(open_to_all[:_SHOWN_SUITES]),
            advice="name suites with encryption and authentication, or leave the option out",
        )


def _openssl_name(name: str) -> str:
    if not name.startswith("TLS_"):
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"(AES|CAMELLIA|ARIA)_(128|256)", r"\1\2", cipher).replace("_CBC_", "_")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return parts.replace("_", "-")
