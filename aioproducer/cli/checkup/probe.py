"""One broker checked step by step: name, port, TLS, versions, SASL.

Invariants: a step needs those before it; each ends within its bound and either finds something
(`Finding`) or raises `CheckFailedError`; `close` leaves nothing open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from aioproducer._util.hosts import host_and_port, name_for_tls
from aioproducer.cli.checkup import handshake_failures as failures
from aioproducer.cli.checkup import requests
from aioproducer.cli.checkup.findings import CheckFailedError, Finding, Status
from aioproducer.cli.checkup.probe_context import READ_AHEAD_BYTES, ProbeContext
from aioproducer.cli.checkup.releases import guessed_release
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.sessions import abort_stream, end, session_on
from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.errors import KafkaError
from aioproducer.net.dial.attempt import Streams
from aioproducer.net.dial.dialer import Address, Dialer, reason_of
from aioproducer.net.dial.proxies import ProxyFailedError
from aioproducer.net.dial.rejected import RefusedDialError
from aioproducer.net.handshake import negotiate_versions
from aioproducer.net.security.certificates import Certificate, shown_chain
from aioproducer.net.security.sasl.authentication import authenticate, exposed_to
from aioproducer.net.security.tls_failures import tls_error_of
from aioproducer.net.session import Session
from aioproducer.wire.schema import Message

_EXPIRES_SOON = timedelta(days=21)
_T = TypeVar("_T")


class BrokerProbe:
    """The checks of one broker, in the order in which a producer connects.

    The name for TLS and SASL is `host`, or with `canonical` that of the address.
    """

    def __init__(
        self, context: ProbeContext, host: str, port: int, *, canonical: bool = False
    ) -> None:
        self.place: str = host_and_port(host, port)
        self._context = context
        self._host = host
        self._port = port
        self._canonical = canonical
        self._addresses: list[Address] = []
        self._stream: Streams | None = None
        self._session: Session | None = None

    def steps(self) -> Iterator[tuple[str, Callable[[], Awaitable[Finding]]]]:
        """Yield the steps to take, in order, each with its name."""
        yield "name", self.resolve
        yield "port", self.connect
        if self._context.uses_tls:
            yield "tls", self.encrypt
        yield "versions", self.request_versions
        if self._context.settings.sasl is not None:
            yield "sasl", self.authenticate

    async def close(self) -> None:
        """End the connection, if there is one."""
        if self._session is not None:
            await end(self._session)
        elif self._stream is not None:
            await abort_stream(self._stream[1])
        self._session = self._stream = None

    # -- the steps -------------------------------------------------------------------------------

    async def resolve(self) -> Finding:
        """Turn the name into addresses."""
        try:
            self._addresses = await self._bounded(
                self._context.plain.resolve(self._host, self._port, canonical=self._canonical)
            )
        except TimeoutError:
            raise self._unreachable(
                "name-slow", f"no answer about the name {self._host} within {self._bound}"
            ) from None
        except ProxyFailedError as error:
            raise self._unreachable("proxy-failed", str(error)) from None
        except OSError as error:
            raise self._unreachable(
                "name-unresolved",
                f"the name {self._host} has no address ({error.strerror or error})",
            ) from None
        return self._good("name", ", ".join(str(each) for each in self._addresses))

    async def connect(self) -> Finding:
        """Connect to every address; the later steps use the first that accepts."""
        outcomes = await asyncio.gather(*map(self._connect, self._addresses))
        reasons = dict(zip(self._addresses, outcomes, strict=True))
        accepting = [address for address, error in reasons.items() if error is None]
        failed = {address: error for address, error in reasons.items() if error is not None}
        failures = "; ".join(f"{at}: {reason_of(error)}" for at, error in failed.items())
        if not accepting:
            raise _port_failure(list(failed.values()), failures)
        self._addresses = accepting
        silent = [error for error in failed.values() if isinstance(error, TimeoutError)]
        if silent:
            raise CheckFailedError(
                "address-silent", f"{accepting[0]} accepts, but {failures}", status=Status.WARN
            )
        return self._good("port", f"{accepting[0]} accepts" + (failures and f" ({failures})"))

    async def encrypt(self) -> Finding:
        """Connect with TLS as the producer does; certificates and host name are verified."""
        ssl_object = await self._encrypt()
        chain = shown_chain(ssl_object)
        soon = [each for each in chain if each.not_after < datetime.now(UTC) + _EXPIRES_SOON]
        if soon:
            raise CheckFailedError(
                "certificate-expires-soon",
                f"the certificate of {soon[0].subject} ends on {soon[0].not_after:%Y-%m-%d}",
                None,
                *map(str, chain),
                status=Status.WARN,
            )
        found = ", ".join([ssl_object.version(), (ssl_object.cipher() or ("?",))[0]])
        return Finding.good("tls", self.place, found, *map(str, chain))

    async def request_versions(self) -> Finding:
        """Request the versions that the broker supports."""
        session = await self._open_session()
        try:
            await negotiate_versions(session)
        except KafkaError as error:
            refused = tls_error_of(error.__cause__, self._name)
            if refused is not None:
                raise failures.of_tls_error(refused, ()) from None
            context = self._context
            if not context.uses_tls and await context.answers_with_tls(
                self._addresses[0], self._name
            ):
                raise CheckFailedError(
                    "tls-expected", f"the port {self._port} expects TLS, and we sent none"
                ) from None
            raise failures.of_first_exchange(error, uses_tls=self._context.uses_tls) from None
        if session.versions is None:
            raise CheckFailedError("not-kafka", "the broker named no versions")
        features = [f"{name} {level}" for name, level in sorted(session.versions.features.items())]
        release = guessed_release(session.versions)
        found = f"offers the versions of Kafka {release} or later"
        return self._good("versions", f"{found} ({', '.join(features)})" if features else found)

    async def authenticate(self) -> Finding:
        """Authenticate by SASL as the producer does."""
        mechanism = self._context.settings.sasl
        name = "nothing" if mechanism is None else mechanism.name
        session = self._renewed_session()
        try:
            await authenticate(session)
        except KafkaError as error:
            raise failures.of_sasl(error, name) from None
        exposed = exposed_to(
            mechanism, self._name, uses_tls=self._context.uses_tls, via=self._addresses[0].via
        )
        if exposed is not None:
            raise CheckFailedError(
                "credentials-exposed",
                f"{name}: accepted, but {exposed} can be read in transit, as there is no TLS",
                status=Status.WARN,
            )
        lasts = f" for {session.lifetime_s:,.0f} s" if session.lifetime_s is not None else ""
        return self._good("sasl", f"{name}: accepted{lasts}")

    # -- questions -------------------------------------------------------------------------------

    async def ask(self, query: CoordinatorQuery[_T]) -> _T:
        """Return the broker's answer to a query."""
        session = self._renewed_session()
        if session.versions is None:
            raise TypeError("a question comes after the versions")
        version = session.versions.choose(query.request_type, query.min_version, query.max_version)
        try:
            answer = await session.request(query.make(version), version, Message)
        except KafkaError as error:
            raise failures.of_exchange(error) from None
        return query.read(answer)

    async def offered_mechanisms(self) -> list[str]:
        """Return the listener's SASL mechanisms; none if it uses no SASL or does not answer."""
        again = BrokerProbe(self._context, self._host, self._port)
        again._addresses = self._addresses
        try:
            if self._context.uses_tls:
                await again._encrypt()
            await again.request_versions()
            return await again.ask(requests.offered_mechanisms())
        except (CheckFailedError, KafkaError):
            return []
        finally:
            await again.close()

    # -- in between ------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._addresses[0].canonical_name or self._host

    @property
    def _bound(self) -> str:
        return f"{self._context.step_s:g} s"

    def _good(self, check: str, found: str) -> Finding:
        return Finding.good(check, self.place, found)

    @staticmethod
    def _unreachable(code: str, found: str) -> CheckFailedError:
        return CheckFailedError(code, found, exit_code=ExitCode.UNREACHABLE)

    async def _bounded(self, work: Awaitable[_T]) -> _T:
        async with asyncio.timeout(self._context.step_s):
            return await work

    async def _connected(self, dialer: Dialer, address: Address) -> Streams:
        connecting = dialer.connect(address, server_hostname=self._name, limit=READ_AHEAD_BYTES)
        return await self._bounded(connecting)

    async def _connect(self, address: Address) -> OSError | None:
        try:
            _, writer = await self._connected(self._context.plain, address)
        except OSError as error:
            return error
        await abort_stream(writer)
        return None

    async def _encrypt(self) -> Any:
        """Connect with TLS; return the `ssl` object."""
        address, name = self._addresses[0], name_for_tls(self._name)
        try:
            self._stream = await self._connected(self._context.dialer, address)
        except TimeoutError:
            raise self._unreachable(
                "no-answer", f"no answer to the TLS handshake within {self._bound}"
            ) from None
        except OSError as error:
            chain = await self._unverified_chain(address, name)
            raise failures.of_tls(error, chain) from None
        return self._stream[1].get_extra_info("ssl_object")

    async def _unverified_chain(self, address: Address, name: str) -> list[Certificate]:
        try:
            async with self._context.unverified(address, name) as ssl_object:
                return shown_chain(ssl_object)
        except OSError:
            return []

    async def _open_session(self) -> Session:
        if self._stream is None:
            try:
                self._stream = await self._connected(self._context.plain, self._addresses[0])
            except OSError as error:
                raise _port_failure([error], reason_of(error)) from None
        self._session = session_on(
            self._stream, self._context.settings, self._name, self._context.step_s
        )
        return self._session

    def _renewed_session(self) -> Session:
        if self._session is None:
            raise TypeError("there is no session yet")
        self._session.deadline = asyncio.get_running_loop().time() + self._context.step_s
        return self._session


_PORT_CODES = {
    TimeoutError: "port-silent",
    ProxyFailedError: "proxy-failed",
    ConnectionRefusedError: "port-refused",
    OSError: "port-unreachable",
}
"""By the errors of a port's addresses; the first one counts that any of them is."""


def _port_failure(errors: list[OSError], found: str) -> CheckFailedError:
    """Return the failure of a port whose addresses all failed."""
    if any(isinstance(error, RefusedDialError) for error in errors):  # before TLS, by a proxy
        return CheckFailedError("proxy-credentials-refused", found)
    code = next(
        code for kind, code in _PORT_CODES.items() if any(isinstance(each, kind) for each in errors)
    )
    return BrokerProbe._unreachable(code, found)
