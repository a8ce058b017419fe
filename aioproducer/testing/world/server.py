"""A simulated broker's side of its connections: frames in, answers out, on virtual time.

    bytes -> frame -> service time -> respond -> [wait for replicas] -> [delay] -> write -> [mute]

Invariants:
- One request per session at a time, answered in order, as with a real broker, which reads no
  further meanwhile.
- A frozen broker does nothing; what it would have done happens when it thaws.
- A request that was received whole is carried out even if its sender has gone since; later ones
  maybe.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from aioproducer.errors import InvalidTimestampError, ProtocolError
from aioproducer.testing.broker import Reply, RequestWait
from aioproducer.testing.framing import (
    REQUEST_TYPES,
    RequestHeader,
    decode_request_header,
    encode_response,
)
from aioproducer.testing.security import ListenerSecurity, SaslGate
from aioproducer.testing.world.cluster import SimCluster
from aioproducer.testing.world.network import SimConnection
from aioproducer.testing.world.trace import Trace
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import decode_response, frame_size
from aioproducer.wire.messages.produce import ProduceRequest, ProduceResponse

_LONGEST_SERVICE_S = 0.004
_EXPECTED_CLOSES = (
    "scripted fault",
    "is down",
    "with acks=0",
    # Whether a broker that closed on ApiVersions predates it (`net.legacy_brokers`).
    "LIST_OFFSETS v0 is not served",
    # What brokers before 0.10 do.
    "API 18 is not served",
    # The request was late, as on a slow network.
    "the session has ended",
    # A fault; a client with a wrong password delivers nothing.
    "authentication failed",
)
_ACCUSING = frozenset({2, 42, 43, 87})
"""Codes no honest producer is ever answered: corrupt message, invalid request, unsupported format,
invalid record."""


class Moment(Enum):
    """The moments of a request at which something happens to a broker."""

    BEFORE = "before"
    AFTER = "after"


Hold = Callable[[RequestHeader, Callable[[], None]], None]
"""Keeps a request for a while and then lets it be carried out, by the second argument."""


class SimBroker:
    """One broker on the network.

    Attributes:
        is_off: Whether its machine is off: nothing answers, nothing refuses.
        ambushes: What happens at which moment of the next request of an API.
        held_back: By API, a function that decides when its next request is processed.
        scripted_codes: Codes that faults make it answer.
        distort: By API, what a fault does to the next answer; returns whether it did.
        complaints: The producer's protocol errors that the broker found.
        security: What clients have to prove.
    """

    def __init__(
        self,
        node_id: int,
        cluster: SimCluster,
        rng: random.Random,
        trace: Trace,
        clock_ms: Callable[[], int],
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.loop: asyncio.AbstractEventLoop = cluster.loop
        self.rng = rng
        self.trace = trace
        self.clock_ms = clock_ms
        self.is_off: bool = False
        self.is_frozen: bool = False
        self.ambushes: dict[tuple[ApiKey, Moment], Callable[[], None]] = {}
        self.held_back: dict[ApiKey, Hold] = {}
        self.complaints: list[str] = []
        self.scripted_codes: set[int] = set()
        self.distort: dict[ApiKey, Callable[[Any], bool]] = {}
        self.security: ListenerSecurity = ListenerSecurity()
        self.sessions: dict[Session, None] = {}
        self._waiting: dict[TopicPartition, dict[Session, None]] = {}
        cluster.subscribe(self._changed)

    def accept(self, connection: SimConnection) -> Session | None:
        """Take a connection, unless the process is down."""
        if not self.cluster.is_live(self.node_id):
            return None
        session = Session(self, connection)
        self.sessions[session] = None
        return session

    def freeze(self) -> None:
        """Do nothing until `thaw`."""
        self.is_frozen = True
        for session in self.sessions:
            session.connection.stop_reading()

    def thaw(self) -> None:
        """Go on with what was interrupted."""
        self.is_frozen = False
        for session in list(self.sessions):
            session.thaw()

    def die(self, *, silent: bool) -> None:
        """End the process; with `silent` the whole machine, so that no connection is closed."""
        self.is_off = silent
        self.is_frozen = False
        for session in list(self.sessions):
            session.kill()
            if silent:
                session.connection.vanish()
            else:
                session.connection.reset()

    def wait_for(self, session: Session, partitions: frozenset[TopicPartition]) -> None:
        """Call `session.look_again` when one of the partitions changes."""
        for where in partitions:
            self._waiting.setdefault(where, {})[session] = None

    def stop_waiting(self, session: Session, partitions: frozenset[TopicPartition]) -> None:
        """Remove what `wait_for` noted."""
        for where in partitions:
            self._waiting.get(where, {}).pop(session, None)

    def _changed(self, where: TopicPartition) -> None:
        for session in self._waiting.get(where, {}):
            session.check_again_soon()


class Session:
    """One client connection at a broker."""

    def __init__(self, broker: SimBroker, connection: SimConnection) -> None:
        self.connection = connection
        self._broker = broker
        self._received = bytearray()
        self._busy = False
        self._dead = False
        self._gone = False
        self._interrupted: Callable[[], None] | None = None
        self._header: RequestHeader | None = None
        self._wait: RequestWait | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._checking = False
        self._gate = SaslGate(broker.security)

    # -- from the network -------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Handle bytes from the producer."""
        self._received += data
        if not self._busy:
            self._next()

    def peer_gone(self) -> None:
        """End the session; whole requests after the current one may still be carried out."""
        self._gone = True
        if self._broker.rng.random() < 0.5:
            self._received.clear()
        if not self._busy:
            self._end()

    # -- from the broker --------------------------------------------------------------------------

    def thaw(self) -> None:
        """Go on after a freeze."""
        step, self._interrupted = self._interrupted, None
        if step is not None:
            step()
        elif not self._busy:
            self.connection.start_reading()

    def kill(self) -> None:
        """End the process."""
        self._end()

    @property
    def awaits_replicas(self) -> bool:
        """Whether a response waits for other brokers."""
        return self._wait is not None

    def check_again_soon(self) -> None:
        """Check again soon a response that waits for a partition: it has changed."""
        if not self._checking:
            self._checking = True
            self._broker.loop.call_soon(self._when_running, self._check_again)

    # -- one request ------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._dead:
            return
        self._busy = False
        try:
            size = frame_size(bytes(self._received[:4])) if len(self._received) >= 4 else None
            if size is None or len(self._received) < 4 + size:
                self._idle()
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            header = decode_request_header(frame)
        except ProtocolError as error:
            self._complain(f"unreadable: {error}")
            self._close()
            return
        self._busy = True
        self.connection.stop_reading()
        service = self._broker.rng.uniform(0, _LONGEST_SERVICE_S)
        hold = self._broker.held_back.pop(ApiKey(header.api_key), None)
        if hold is not None:
            hold(header, lambda: self._when_running(lambda: self._carry_out(header)))
            return
        self._later(service, lambda: self._carry_out(header))

    def _idle(self) -> None:
        if self._gone:
            self._end()
        elif not self._broker.is_frozen:
            self.connection.start_reading()

    def _carry_out(self, header: RequestHeader) -> None:
        broker = self._broker
        self._come_to(Moment.BEFORE, header)
        if self._dead:
            return
        broker.cluster.transactions.sender_is_gone = self.connection.is_left
        reply = self._gate.take_request(header, broker.clock_ms())
        if reply is None:
            reply = broker.cluster.respond(broker.node_id, header, broker.clock_ms())
        self._come_to(Moment.AFTER, header)
        if self._dead:
            return
        self._header = header
        self._handle_reply(reply)

    def _come_to(self, moment: Moment, header: RequestHeader) -> None:
        """Run what is planned for this moment; it may be the broker's crash."""
        key = (ApiKey(header.api_key), moment)
        if key in self._broker.ambushes:
            self._broker.ambushes.pop(key)()

    def _handle_reply(self, reply: Reply) -> None:
        broker = self._broker
        if reply.wait is not None:
            self._wait = reply.wait
            broker.wait_for(self, reply.wait.poll.watching)
            left = (reply.wait.deadline_ms - broker.clock_ms()) / 1000
            self._later(max(0.0, left), self._check_again)
            return
        if reply.close is not None and not reply.close.endswith(_EXPECTED_CLOSES):
            self._complain(reply.close)
        self._later(reply.delay_ms / 1000, lambda: self._answer(reply))

    def _check_again(self) -> None:
        self._checking = False
        wait, header = self._wait, self._header
        if wait is None or header is None or self._dead:
            return
        self._stop_waiting()
        broker = self._broker
        self._handle_reply(
            broker.cluster.respond(broker.node_id, header, broker.clock_ms(), wait=wait)
        )

    def _answer(self, reply: Reply) -> None:
        reply = self._distorted(reply)
        self._trace_reply(reply)
        if reply.frame is not None and not self._gone:
            self.connection.write(reply.frame, reply.mute_ms / 1000)
        if reply.close is not None:
            self._close()
        else:
            self._later(reply.mute_ms / 1000, self._next)

    def _distorted(self, reply: Reply) -> Reply:
        broker, header = self._broker, self._header
        if header is None or reply.frame is None or reply.close is not None:
            return reply
        api = ApiKey(header.api_key)
        distort = broker.distort.get(api)
        if distort is None:
            return reply
        try:
            _, response = decode_response(REQUEST_TYPES[api], header.api_version, reply.frame[4:])
        except ProtocolError:  # garbled already
            return reply
        if not distort(response):
            return reply
        broker.distort.pop(api, None)
        frame = encode_response(response, header.api_version, header.correlation_id)
        return replace(reply, frame=frame)

    # -- helpers ----------------------------------------------------------------------------------

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        if seconds <= 0:
            self._when_running(step)
            return
        self._timer = self._broker.loop.call_later(seconds, self._when_running, step)

    def _when_running(self, step: Callable[[], None]) -> None:
        if self._dead:
            return
        if self._broker.is_frozen:
            self._interrupted = step
        else:
            step()

    def _stop_waiting(self) -> None:
        if self._wait is not None:
            self._broker.stop_waiting(self, self._wait.poll.watching)
            self._wait = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self.connection.close()
        self._end()

    def _end(self) -> None:
        self._dead = True
        self._stop_waiting()
        self._broker.sessions.pop(self, None)

    def _complain(self, text: str) -> None:
        self._broker.complaints.append(f"b{self._broker.node_id} {self.connection}: {text}")

    def _trace_reply(self, reply: Reply) -> None:
        header = self._header
        if header is None:
            return
        answers = ""
        whole = reply.frame is not None and reply.close is None
        if header.api_key == ApiKey.PRODUCE and reply.frame is not None and whole:
            answers = self._answers_of(header, reply.frame)
        closes = f" closes: {reply.close}" if reply.close else ""
        name = ApiKey(header.api_key).name.lower()
        self._broker.trace(
            f"{self.connection} {name} #{header.correlation_id}{answers}{closes}"
            + ("" if reply.frame is not None else " unanswered")
        )

    def _answers_of(self, header: RequestHeader, frame: bytes) -> str:
        try:
            _, response = decode_response(ProduceRequest, header.api_version, frame[4:])
        except ProtocolError:
            return " garbled"
        if not isinstance(response, ProduceResponse):
            return ""
        outcomes = []
        for topic in response.responses:
            for each in topic.partition_responses:
                cluster = self._broker.cluster
                cluster.keyless_refused += "without key" in (each.error_message or "")
                if each.error_code == InvalidTimestampError.code:
                    cluster.untimely_refused.append(cluster.loop.time())
                if each.error_code in _ACCUSING and not self._is_scripted(each.error_code):
                    self._complain(f"code {each.error_code}: {each.error_message}")
                outcome = f"@{each.base_offset}" if not each.error_code else f"E{each.error_code}"
                outcomes.append(f"{topic.name or topic.topic_id.hex[:4]}-{each.index}{outcome}")
        return " " + " ".join(outcomes)

    def _is_scripted(self, code: int) -> bool:
        return code in self._broker.scripted_codes
