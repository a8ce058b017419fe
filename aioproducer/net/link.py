"""BrokerLink: the connections to one broker, with dials, backoff, timeouts and throttling.

    state         event                                    next          effect
    ------------  ---------------------------------------  ------------  --------------------------
    DISCONNECTED  connect(), backoff over                  CONNECTING    one dial task
    CONNECTING    an address accepted                      HANDSHAKING   setup timeout reset
    CONNECTING    no address left, or setup timeout        DISCONNECTED  backoff, setup timeout grow
    HANDSHAKING   all steps done                           READY         requests may be sent
    HANDSHAKING   refused, lost, request timeout           DISCONNECTED  backoff grows
    READY         end of stream, reset, garbage, timeout   DISCONNECTED  requests fail, backoff
    READY         idle for too long                        DISCONNECTED  no backoff
    READY         closed after use, nothing in flight      DISCONNECTED  backoff, no error
    READY         connect(), the session ends soon         HANDSHAKING   no new requests meanwhile
    READY         throttle_time_ms (KIP-219)               READY         muted, deadlines extended
    any           close()                                  CLOSED        everything ended

Invariants: at most one dial and one connection at a time; `on_event` is called after every change
that may unblock a caller; only a useful connection (a response, or a lifetime above the maximum
backoff) resets the reconnect backoff.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf

from aioproducer._util import log
from aioproducer._util.backoff import ExponentialBackoff
from aioproducer._util.hosts import host_and_port
from aioproducer._util.printable import repr_of
from aioproducer._util.tasks import start_later
from aioproducer.errors import (
    AuthenticationError,
    KafkaConnectionError,
    KafkaError,
    NodeDisconnectedError,
    NotKafkaError,
    ProtocolError,
    RequestTimeoutError,
)
from aioproducer.net.advice import advised
from aioproducer.net.connection import Connection, IdleConnectionError
from aioproducer.net.context import LinkContext, NodeState
from aioproducer.net.dial.attempt import Streams, open_stream
from aioproducer.net.dial.dialer import Address
from aioproducer.net.foreign_services import ANSWERS_TO_BE_SURE
from aioproducer.net.handshake import shake_hands
from aioproducer.net.legacy_brokers import API_VERSIONS_TIMEOUT_S, BrokerAge, BrokerGeneration
from aioproducer.net.security.disconnect_hints import on_first_request
from aioproducer.net.security.sasl.authentication import authenticate, exposed_to
from aioproducer.net.security.tls_failures import tls_required_error
from aioproducer.net.session import Session
from aioproducer.net.versions import BrokerVersions, client_obeys_throttle
from aioproducer.types import Node
from aioproducer.wire.schema import Message

DIAL_TIMEOUT_S = 1.0
"""Seconds after which a dial counts as slow: other nodes are dialed as well."""

RESERVE = 1
"""Requests in flight beyond the limit, for all but Produce requests.

Otherwise a producer that always has a batch to send would never fetch metadata. (Java sends no
Produce request while metadata is due.)
"""

LONGEST_THROTTLE_S = 300.0
"""Limit of throttle times in seconds: int32 milliseconds could pause the producer for weeks."""

_NOT_DIALING = frozenset({NodeState.READY, NodeState.DISCONNECTED})
_CLOSE_GRACE_S = 1.0

_EARLIEST_RENEWAL, _RENEWAL_SPREAD = 0.85, 0.10
"""Fraction of its lifetime after which a session is renewed (Java: SaslClientAuthenticator's
pctWindowFactorToTakeNetworkLatencyAndClockDriftIntoAccount and pctWindowJitter...)."""


class BrokerLink:
    """The state machine of one broker; observer of its connection."""

    def __init__(self, node: Node, around: LinkContext) -> None:
        self.node = node
        self.last_error: KafkaError | None = None
        self.last_attempt_at: float = -inf
        self.throttled_until: float = -inf
        self.versions: BrokerVersions | None = None
        self.last_versions: BrokerVersions | None = None
        """The versions of the last connection, also after its end."""
        self._around = around
        settings = around.settings
        self._setup_timeout = ExponentialBackoff(
            settings.connection_setup_timeout_s, settings.connection_setup_timeout_max_s
        )
        self._reconnect_backoff = ExponentialBackoff(
            settings.reconnect_backoff_s, settings.reconnect_backoff_max_s
        )
        self._state = NodeState.DISCONNECTED
        self._connection: Connection | None = None  # the last one; usable only while READY
        self._opened: list[Streams] = []  # by the last dial
        self._session: Session | None = None  # of that connection
        self._age = BrokerAge(
            BrokerGeneration.SUSPECTED if settings.expects_old_brokers else BrokerGeneration.UNKNOWN
        )
        self._renew_at = inf
        self._unproven_address: Address | None = None  # the last one dialed, until a response
        self._dial_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._dial_timer: asyncio.TimerHandle | None = None
        self._retiring = False
        self._retry_at = -inf
        self._failures = 0
        self._setup_failures = 0
        self.ready_since: float = -inf
        self._proved_useful = False
        self._may_want_sasl = False
        self._tried_tls = False
        self._foreign_answers = 0  # in a row
        self.lost_at: float = -inf
        """Loop time at which the last connection ended, unless it was idle for too long."""

    # -- questions --------------------------------------------------------------------------------

    @property
    def is_healthy(self) -> bool:
        """Whether it was ready before without an error since: a dial will probably succeed."""
        return self.ready_since > -inf and self.last_error is None

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return 0 if self._connection is None else self._connection.in_flight

    @property
    def is_dialing(self) -> bool:
        """Whether a dial or a handshake is in progress."""
        return self._dial_task is not None

    @property
    def is_over(self) -> bool:
        """Whether the link is closed and has no task or transport left."""
        over = self._connection is None or self._connection.is_over
        return self._state is NodeState.CLOSED and not self._tasks and over

    @property
    def _place(self) -> str:
        """Rate limit key of warnings: a broker may be a bootstrap server as well."""
        return host_and_port(self.node.host, self.node.port)

    def state(self, now: float) -> NodeState:
        """Return the state, including backoff and throttling."""
        if self._state is NodeState.DISCONNECTED and now < self._retry_at:
            return NodeState.BACKING_OFF
        if self._state is NodeState.READY and now < self.throttled_until:
            return NodeState.THROTTLED
        return self._state

    def is_ready(self, now: float) -> bool:
        """Return whether a Produce request may be sent now."""
        return self.ready_connection(now) is not None

    def can_ask(self, now: float) -> bool:
        """Return whether a request other than Produce may be sent now."""
        return self.ready_connection(now, RESERVE) is not None

    def ready_connection(self, now: float, reserve: int = 0) -> Connection | None:
        """Return the connection if it accepts a request now, with `reserve` above the limit."""
        connection = self._connection
        if (
            self._state is NodeState.READY
            and connection is not None
            and connection.error is None
            and not self._retiring
            and self.throttled_until <= now < self._renew_at
            and connection.takes_more(self._around.settings.max_in_flight + reserve)
        ):
            return connection
        return None

    def can_connect(self, now: float) -> bool:
        """Return whether a dial, or the renewal of the session, may start now."""
        if self._is_connected:
            return now >= max(self._renew_at, self.throttled_until)
        return self._state in _NOT_DIALING and now >= self._retry_at

    def ready_at(self, now: float) -> float:
        """Return the loop time of the next check; inf while only an event can change the state."""
        if self._is_connected:
            if now < self.throttled_until:
                return self.throttled_until
            return now if self.is_ready(now) else inf
        if self._state in _NOT_DIALING:
            return max(now, self._retry_at)
        return inf

    @property
    def _is_connected(self) -> bool:
        """Whether the connection is usable; checks it, since an exception may interrupt events."""
        connection = self._connection
        return self._state is NodeState.READY and connection is not None and connection.is_open

    @property
    def _state_without_connection(self) -> NodeState:
        return NodeState.CLOSED if self._retiring else NodeState.DISCONNECTED

    def dial_is_promising(self, now: float) -> bool:
        """Return whether a dial is in progress and not slow."""
        # The same sum as the timer's: a difference of these times could be rounded down.
        return self.is_dialing and now < self.last_attempt_at + DIAL_TIMEOUT_S

    # -- calls of the client ----------------------------------------------------------------------

    def connect(self, now: float) -> None:
        """Start a dial in the background if none is in progress and the backoff is over.

        A connection whose session ends soon is authenticated again instead (KIP-368): as in Java,
        only when it is needed, so that an idle one can be closed.
        """
        if not self.can_connect(now):
            return
        connected = self._is_connected
        self._state = NodeState.HANDSHAKING if connected else NodeState.CONNECTING
        self.last_attempt_at = now
        loop = asyncio.get_running_loop()
        self._dial_timer = loop.call_at(now + DIAL_TIMEOUT_S, self._around.on_event)
        work = self._renew if connected else self._establish
        self._dial_task = start_later(
            loop,
            self._dial(work),
            name=f"aioproducer-dial-{self.node.id}",
            context=self._around.context.copy(),
        )
        self._tasks.add(self._dial_task)
        self._dial_task.add_done_callback(self._dial_ended)

    def _dial_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # an interrupt, which the loop has raised already

    def throttle(self, until: float) -> None:
        """Mute the broker until then."""
        self.throttled_until = max(self.throttled_until, until)

    def retire(self) -> None:
        """Close as soon as nothing is in flight: the broker has left the cluster or moved."""
        self._retiring = True
        if self.versions is None or self.in_flight == 0:
            self._close_now(self._disconnect_error("the broker left the cluster"))

    async def close(self, timeout_s: float) -> None:
        """End dial and connection, after written acks=0 requests have left the process."""
        try:
            if self._connection is not None:
                await _within(self._connection.finish(), timeout_s)
        finally:
            self._close_now(self._disconnect_error("the client was closed"))
        # Cancelled tasks and aborted transports need one or two loop iterations, but no network.
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_CLOSE_GRACE_S)
        if self._connection is not None:
            await _within(self._connection.wait_closed(), _CLOSE_GRACE_S)

    def drop(self) -> None:
        """Close the socket after the loop was closed."""
        self._state = NodeState.CLOSED
        if self._connection is not None:
            self._connection.drop()

    # -- events from the connection (ConnectionObserver) ------------------------------------------

    def response_received(
        self, request_type: type[Message], version: int, response: Message
    ) -> None:
        """Obey a throttle time (KIP-219)."""
        if not self._proved_useful and self._state is NodeState.READY:
            self._proved_useful = True
            self._unproven_address = None
            self._around.answered.add((self.node.host, self.node.port))
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms <= 0:
            return
        key = request_type.API_KEY
        if key is not None and client_obeys_throttle(key, version):
            self._obey_throttle(throttle_ms / 1000)

    def _obey_throttle(self, asked_s: float) -> None:
        now = self._around.loop_time()
        seconds = min(asked_s, LONGEST_THROTTLE_S)
        if seconds < asked_s:
            self._around.warnings.warning(
                now,
                None,
                f"throttle time of {self.node.id}",
                "%s asks for a throttle time of %.0f s; the producer pauses for %.0f s",
                _called(self.node),
                asked_s,
                seconds,
            )
        self.throttle(now + seconds)
        if self._connection is not None:
            self._connection.extend_deadlines(seconds)

    def capacity_freed(self) -> None:
        """Notify the client that more requests may be accepted."""
        if self._retiring and self.in_flight == 0:
            self._close_now(self._disconnect_error("the broker left the cluster"))
        self._around.on_event()

    def connection_failed(self, connection: Connection, error: KafkaError, lost: int) -> None:
        """Go back to DISCONNECTED; the dial task reports failures during the handshake."""
        self._around.io_stats.on_closed(self._around.loop_time())
        if connection is not self._connection or self._state is not NodeState.READY:
            return
        around = self._around
        now = around.loop_time()
        self.versions = None
        self._state = self._state_without_connection
        lasted = now - self.ready_since >= around.settings.reconnect_backoff_max_s
        if self._proved_useful or lasted:
            self._failures = 0
        had_answered = self._has_answered()
        if isinstance(error, IdleConnectionError):
            # A request may be waiting for this node, which was throttled: the dial can begin now.
            around.on_event()
            return
        self.lost_at = now
        if self._age.generation is BrokerGeneration.OLD:
            self._age.generation = BrokerGeneration.SUSPECTED
        if around.settings.sasl is None and lost > 0 and not had_answered:
            error = on_first_request(error)
            self._may_want_sasl = True
        # An idle close and a shutdown of a broker or load balancer cannot be distinguished.
        quietly = isinstance(error, NodeDisconnectedError) and lost == 0
        self._failed(
            error,
            now,
            "connection to %s lost: %s",
            worth_a_warning=lost > 0,
            is_healthy=quietly and lasted and self._proved_useful,
        )

    def _has_answered(self) -> bool:
        """Return whether any request after a handshake was answered at this address."""
        return (self.node.host, self.node.port) in self._around.answered

    # -- dialing ----------------------------------------------------------------------------------

    async def _dial(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the dial task: ends READY or DISCONNECTED, raises only cancellation or interrupts."""
        try:
            await work()
        except asyncio.CancelledError:
            # By `close`, or the loop is shutting down.
            self._setup_failed(self._disconnect_error("the dial was cancelled"), is_news=False)
            raise
        except KafkaError as error:
            if isinstance(error, AuthenticationError):
                around = self._around
                around.io_stats.on_refused(around.loop_time(), renewal=work == self._renew)
            self._setup_failed(self._judged(error))
        except Exception as error:  # a bug, here or in a dialer, must end in a visible state
            log.get("net").exception("connecting to %s failed unexpectedly", _called(self.node))
            failure = KafkaConnectionError(
                f"connecting failed: {repr_of(error)}", node_id=self.node.id
            )
            failure.__cause__ = error
            self._setup_failed(failure)
        except BaseException as interrupt:  # such as KeyboardInterrupt
            self._setup_failed(
                self._disconnect_error(f"interrupted by {repr_of(interrupt)}"), is_news=False
            )
            raise

    def _judged(self, error: KafkaError) -> KafkaError:
        """Return the error, or NotKafkaError once it is certain that the peer is not a broker.

        A broker that starts or shuts down may close a connection or not answer, but it never sends
        invalid bytes.
        """
        session = self._session
        foreign = session is not None and session.versions is None and session.connection.is_foreign
        if not isinstance(error, ProtocolError) or not foreign or self._has_answered():
            self._foreign_answers = 0
            return error
        self._foreign_answers += 1
        if self._foreign_answers < ANSWERS_TO_BE_SURE:
            return error
        return NotKafkaError(
            "a server with another binary protocol answers there, not a Kafka broker: "
            f"{self._foreign_answers} answers in a row were none of Kafka's; the last: "
            f"{error.message}",
            node_id=self.node.id,
        )

    async def _establish(self) -> None:
        self._opened.clear()
        try:
            await self._open_stream()
            if self._state is NodeState.CLOSED:  # the user's dialer has suppressed the cancellation
                raise asyncio.CancelledError
            await self._establish_on(*self._opened[-1])
        except BaseException:
            # The exception may come before the `Connection` exists, or after all steps.
            self._end_connection(self._disconnect_error("the dial failed"))
            raise

    async def _establish_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        around, node = self._around, self.node
        self._state = NodeState.HANDSHAKING
        self._setup_failures = 0
        self._proved_useful = False
        self._connection = connection = Connection(
            reader,
            writer,
            node_id=node.id,
            observer=self,
            loop_time=around.loop_time,
            max_idle_s=around.settings.connections_max_idle_s,
            io_stats=around.io_stats.of(node.id),
        )
        around.io_stats.on_connected(around.loop_time())
        address = self._unproven_address
        host = (address and address.canonical_name) or node.host
        self._session = Session(
            connection,
            around.settings,
            around.check,
            host,
            self._handshake_deadline(),
            self._age.generation,
            may_want_sasl=self._may_want_sasl,
            had_answered=self._has_answered(),
        )
        self._warn_of_exposure(connection, host)
        self._may_want_sasl = False
        try:
            await self._agree(self._session, shake_hands)
        except NodeDisconnectedError as error:
            await self._check_plaintext(self._session, error)
            raise
        finally:
            self._age.update(self._session.generation)
        if connection.uses_tls or around.settings.sasl is not None:
            endless = self._session.lifetime_s is None
            around.io_stats.on_authenticated(around.loop_time(), endless=endless)

    def _warn_of_exposure(self, connection: Connection, host: str) -> None:
        around = self._around
        way = self._unproven_address and self._unproven_address.via
        exposed = exposed_to(around.settings.sasl, host, uses_tls=connection.uses_tls, via=way)
        if exposed is not None:
            around.warnings.warning(
                around.loop_time(),
                None,
                "exposed credentials",
                "%s can be read on the way to %s, since the connection is not encrypted: use "
                "security_protocol=SASL_SSL, or a SCRAM mechanism",
                exposed,
                _called(self.node),
            )

    async def _check_plaintext(self, session: Session, error: NodeDisconnectedError) -> None:
        """Check once per bootstrap server whether its port requires TLS; raise if it does."""
        address = self._unproven_address
        if (
            address is None
            or self._tried_tls
            or self.node.id >= 0
            or self._around.settings.expects_old_brokers
            or session.connection.uses_tls
            or session.versions is not None
            or session.had_answered
            or isinstance(error.__cause__, RequestTimeoutError)
        ):
            return
        self._tried_tls = True
        from aioproducer.net.security.tls_probe import uses_tls

        try:
            async with asyncio.timeout(self._around.settings.connection_setup_timeout_s):
                found = await uses_tls(self._around.dialer, address, session.host)
        except TimeoutError:
            return
        if found:
            raise tls_required_error(session.host).with_context(node_id=self.node.id) from error

    async def _renew(self) -> None:
        """Authenticate again on the current connection."""
        session = self._session
        if session is None:
            raise TypeError("there is no session to renew")
        session.deadline = self._handshake_deadline()
        session.had_answered = True  # it has accepted such a login
        began = self._around.loop_time()
        try:
            await self._agree(session, authenticate)
        except BaseException:
            self.lost_at = self._around.loop_time()
            if self._proved_useful:
                self._failures = 0
            raise
        now = self._around.loop_time()
        self._around.io_stats.on_renewed(now - began, now)

    async def _agree(self, session: Session, steps: Callable[[Session], Awaitable[object]]) -> None:
        """Run the steps and become READY; abort the connection if they fail."""
        connection = session.connection
        connection.in_handshake = True
        try:
            await steps(session)
            if connection.error is not None:
                raise connection.error
        except BaseException:
            connection.abort(self._disconnect_error("the handshake failed"))
            raise
        connection.in_handshake = False
        self._setup_succeeded(session)

    def _handshake_deadline(self) -> float:
        settings = self._around.settings
        allowed = settings.request_timeout_s
        if (
            settings.old_broker_versions is not None
            and self._age.generation is BrokerGeneration.UNKNOWN
        ):
            allowed = min(allowed, API_VERSIONS_TIMEOUT_S)
        return self._around.loop_time() + allowed

    async def _open_stream(self) -> None:
        around, settings = self._around, self._around.settings
        allowed = self._setup_timeout.delay(self._setup_failures, around.rng)
        tried: list[Address] = []
        try:
            await open_stream(
                around.dialer,
                self.node,
                # Only for the names of bootstrap servers, as in Java's ClientUtils.
                canonical=settings.dns_canonical and self.node.id < 0,
                timeout_s=allowed,
                loop_time=around.loop_time,
                opened=self._opened,
                tried=tried,
                unproven=self._unproven_address,
            )
        finally:
            if tried:
                self._unproven_address = tried[-1]

    def _setup_succeeded(self, session: Session) -> None:
        self._end_dial()
        self.versions = self.last_versions = session.versions
        self._state = NodeState.READY
        self.ready_since = now = self._around.loop_time()
        self._renew_at = inf
        if session.lifetime_s is not None:
            part = _EARLIEST_RENEWAL + _RENEWAL_SPREAD * self._around.rng.random()
            self._renew_at = now + session.lifetime_s * part
        self.last_error = None
        self._around.warnings.recovered(
            now, self._place, f"{_called(self.node)} is reachable again"
        )
        self._around.on_event()

    def _setup_failed(self, error: KafkaError, *, is_news: bool = True) -> None:
        if self._state is NodeState.CLOSED:
            return
        if self._state is NodeState.CONNECTING:
            self._setup_failures += 1
        self._end_dial()
        self.versions = None
        self._state = self._state_without_connection
        # The steps that detect a broker without ApiVersions are not worth a warning.
        learning = self._age.generation is not BrokerGeneration.UNKNOWN
        self._failed(
            error,
            self._around.loop_time(),
            "%s is not reachable: %s",
            worth_a_warning=is_news and not learning,
        )

    def _end_dial(self) -> None:
        self._dial_task = None
        if self._dial_timer is not None:
            self._dial_timer.cancel()
            self._dial_timer = None

    def _failed(
        self,
        error: KafkaError,
        now: float,
        text: str,
        *,
        worth_a_warning: bool = True,
        is_healthy: bool = False,
    ) -> None:
        around, node = self._around, self.node
        answered = self._has_answered()
        error = advised(error, node, around.bootstrap_places, answered=answered)
        delay = self._reconnect_backoff.delay(self._failures, around.rng)
        self._failures += 1
        self._retry_at = now + delay
        self.last_error = None if is_healthy else error
        if worth_a_warning:
            kind = type(error).__name__
            around.warnings.warning(now, self._place, kind, text, _called(node), error)
        else:
            log.get("net").debug(text, _called(node), error)
        around.on_event()

    def _close_now(self, error: KafkaError) -> None:
        self._state = NodeState.CLOSED
        if self._dial_task is not None:
            self._dial_task.cancel()
            self._end_dial()
        self._end_connection(error)

    def _end_connection(self, error: KafkaError) -> None:
        """Close everything that the last dial opened; may be called again."""
        if self._connection is not None:
            self._connection.abort(error)
        for _, writer in self._opened:
            writer.transport.abort()

    def _disconnect_error(self, reason: str) -> NodeDisconnectedError:
        return NodeDisconnectedError(reason, node_id=self.node.id)


def _called(node: Node) -> str:
    """Return the name of a broker for log lines."""
    where = host_and_port(node.host, node.port)
    return f"node {node.id} ({where})" if node.id >= 0 else f"bootstrap server {where}"


async def _within(work: Awaitable[None], timeout_s: float) -> None:
    """Wait for the work, at most `timeout_s`; ignore its timeout and OSError."""
    try:
        async with asyncio.timeout(timeout_s):
            await work
    except OSError:
        pass
