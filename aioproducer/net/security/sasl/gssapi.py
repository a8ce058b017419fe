"""GSSAPI (RFC 4752): Kerberos, by the system's library through the `gssapi` package.

The last step of the exchange selects no security layer. The library renews tickets from a keytab.

Invariants: every call of the library runs in a separate thread, since it may send requests and wait
for a KDC that does not answer; the library is imported when a mechanism is created.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aioproducer._util.paths import version_of
from aioproducer._util.threads import OwnThreads
from aioproducer.errors import AuthenticationError, ConfigError, KafkaConnectionError
from aioproducer.net.security.sasl import UnansweredToken

_NO_LAYER = 1
_MOST_STEPS = 10
_PASSING = frozenset(
    code & 0xFFFF_FFFF for code in (-1765328228, -1765328230, -1765328363, -1765328351, -1765328350)
)
"""Codes after which a retry may help: MIT's KRB5_KDC_UNREACH and KRB5_REALM_CANT_RESOLVE, and what
Java retries, too (KerberosError): CLIENT_NOTYET, TKT_NYV (not yet valid) and REPEAT (a replay)."""
_EXPIRED = -1765328352 & 0xFFFF_FFFF
"""KRB5KRB_AP_ERR_TKT_EXPIRED: with a keytab, the tickets could not be renewed."""


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The service, and the tickets: of a keytab, of a ticket cache, or the default ones."""

    service_name: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


class Gssapi:
    """The mechanism GSSAPI."""

    name: str = "GSSAPI"

    def __init__(self, settings: KerberosSettings) -> None:
        self._settings = settings
        self._gssapi = _library()
        self._threads = OwnThreads()

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        """Exchange Kerberos tokens, then select no security layer."""
        gssapi, threads = self._gssapi, self._threads
        try:
            context = await threads.run(self._context, host)
            token = await threads.run(context.step)
            for _ in range(_MOST_STEPS):
                if context.complete:
                    break
                challenge = yield token or b""
                token = await threads.run(context.step, challenge)
            offer = yield token or b""
            # The broker offers layers and a size; Kafka's own protection is TLS.
            offered = context.unwrap(offer).message
            if len(offered) != 4 or not offered[0] & _NO_LAYER:
                raise AuthenticationError("the broker insists on a GSSAPI security layer")
            answer = context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message
        except gssapi.exceptions.GSSError as error:
            code = error.min_code & 0xFFFF_FFFF
            if code in _PASSING or (code == _EXPIRED and self._settings.keytab is not None):
                raise KafkaConnectionError(
                    f"Kerberos says: {error}",
                    advice="check that the KDC can be reached from here (krb5.conf), and the "
                    "clocks of both machines",
                ) from error
            raise AuthenticationError(
                f"Kerberos says: {error}",
                advice="check keytab or tickets (klist), sasl_kerberos_service_name, and that the "
                "brokers' names are those of their principals",
            ) from error
        yield UnansweredToken(answer)

    def _context(self, host: str) -> Any:
        gssapi, settings = self._gssapi, self._settings
        service = gssapi.Name(f"{settings.service_name}@{host}", gssapi.NameType.hostbased_service)
        name = None
        if settings.principal is not None:
            name = gssapi.Name(settings.principal, gssapi.NameType.kerberos_principal)
        store = {}
        if settings.keytab is not None:
            cache = _cache_of(settings.keytab, settings.principal)
            store = {"client_keytab": settings.keytab, "ccache": cache}
        elif settings.ticket_cache is not None:
            store = {"ccache": settings.ticket_cache}
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store or None)
        return gssapi.SecurityContext(
            name=service,
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
        )


def _cache_of(keytab: str, principal: str | None) -> str:
    """Return the name of a ticket cache for this keytab, as it is now, and this principal.

    The user's cache may have tickets of another principal. Caches in memory outlive this object, so
    the name must not be that of another keytab's cache.
    """
    version = version_of(keytab.removeprefix("FILE:"))  # of none, the library says what is wrong
    identity = repr((Path(keytab).absolute(), principal, version))
    return f"MEMORY:aioproducer-{hashlib.sha256(identity.encode()).hexdigest()}"


def _library() -> Any:
    try:
        import gssapi
    except ImportError as error:
        raise ConfigError(
            f"sasl_mechanism=GSSAPI needs the package gssapi: {error}",
            advice='install the system\'s Kerberos library, then pip install "aioproducer[gssapi]"',
        ) from None
    return gssapi
