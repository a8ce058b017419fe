"""Faults of the next requests: error codes, and responses that are lost, late or malformed.

Owns: which codes are answered, before or after the work. Not here: how a broker answers
(`testing.broker.faults` does).
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Self
from uuid import UUID

from aioproducer.errors import RebootstrapRequiredError
from aioproducer.testing.broker.faults import ConnectionFault, ErrorAnswer
from aioproducer.testing.broker.faults import Fault as ScriptedFault
from aioproducer.testing.world.faults import Fault, Probe, Shape, World, node
from aioproducer.types import NO_LEADER, TopicPartition
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aioproducer.wire.messages.init_producer_id import InitProducerIdResponse
from aioproducer.wire.messages.metadata import MetadataResponse
from aioproducer.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from simulation.faults.brokers import amid_requests, move_leader, some_partition

_REFUSALS = (2, 3, 6, 7, 9, 13, 19, 56, 74, 76, 89, 100)
"""Retriable codes of the produce error table, answered without writing."""

_INVALID_RECORD = 87

_FINAL_REFUSALS = (-1, 10, 17, 29, 32, _INVALID_RECORD)
"""Codes after which a batch fails (or is split), answered without writing."""

_RETRIABLE_AFTER_WRITING = (7, 20, 6, 3, 56)
"""The last three are from brokers that lose leadership, topic or disk while followers fetch."""
_ERRORS_AFTER_WRITING = (-1, *_RETRIABLE_AFTER_WRITING)

_NOT_LEADER = 6
_UNKNOWN_ID = 49
"""INVALID_PRODUCER_ID_MAPPING, which Event Hubs answers."""

_NOT_ENOUGH_REPLICAS = 19
_DUPLICATE = 46

_METADATA_ERRORS = (3, 5, 9, 29)

_INIT_ERRORS = (7, 14, 15, 16, 51)

_LOST_AGAIN_AFTER_S = 5.0

_WRONG_ANSWER = (8).to_bytes(4, "big") + b"\x7f" * 8
"""A frame with a correlation id that no request has."""


class Ambush(ScriptedFault):
    """A scripted fault that reports to the world when it strikes, and then calls `then`."""

    world: World | None = None
    lasts_s: float = 0.0
    then: Callable[[], None] | None = None

    def strikes(self, api: ApiKey, node_id: int, topic: str | None, partition: int | None) -> bool:
        """See `ScriptedFault.strikes`."""
        struck = ScriptedFault.strikes(self, api, node_id, topic, partition)
        if struck and self.world is not None:
            self.world.disturb(self.lasts_s)
            if self.then is not None:
                self.world.later(0.0, self.then)
        return struck


@dataclass(frozen=True, slots=True)
class _Scripted(Fault):
    node_id: int
    times: int

    def strike(self, world: World) -> Probe:
        """Strike at the next requests to a broker."""
        ambush = self.scripted()
        ambush.world = world
        ambush.lasts_s = getattr(ambush.action, "delay_ms", 0) / 1000
        ambush.lasts_s += getattr(ambush.action, "throttle_ms", 0) / 1000
        world.cluster.faults.add(ambush)
        return lambda: ambush.struck

    @abstractmethod
    def scripted(self) -> Ambush:
        """The fault in the words of `testing.broker.faults`."""

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Once or a few times."""
        return cls(at, node(rng, shape), rng.choice((1, 1, 3)))

    def _produce(self, action: ErrorAnswer | ConnectionFault) -> Ambush:
        return Ambush(action, ApiKey.PRODUCE, self.node_id, times=self.times)


@dataclass(frozen=True, slots=True)
class _CodeAnswered(_Scripted):
    code: int


@dataclass(frozen=True, slots=True)
class Refusal(_CodeAnswered):
    """Batches are refused with a retriable code."""

    kind = "retriable error"

    def scripted(self) -> Ambush:
        """Not written."""
        return self._produce(ErrorAnswer(self.code))

    def strike(self, world: World) -> Probe:
        """Register the code at the broker as one that is no complaint about the client."""
        world.brokers[self.node_id].scripted_codes.add(self.code)
        return _Scripted.strike(self, world)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any of them, once or a few times."""
        return cls(at, node(rng, shape), rng.choice((1, 2, 6)), rng.choice(_REFUSALS))


@dataclass(frozen=True, slots=True)
class FinalRefusal(Refusal):
    """Batches are refused with a code that ends them."""

    kind = "final error"

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any of them, once or twice."""
        return cls(at, node(rng, shape), rng.choice((1, 2)), rng.choice(_FINAL_REFUSALS))


@dataclass(frozen=True, slots=True)
class ErrorAfterWrite(_CodeAnswered):
    """Batches are written, and an error is answered."""

    kind = "error after write"

    def scripted(self) -> Ambush:
        """Written."""
        return self._produce(ErrorAnswer(self.code, apply=True))

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any of them, once or a few times."""
        return cls(at, node(rng, shape), rng.choice((1, 2, 4)), rng.choice(_ERRORS_AFTER_WRITING))


@dataclass(frozen=True, slots=True)
class KeysRequired(Fault):
    """A topic takes no records without a key for a while: batches are refused because of some."""

    kind = "keys required"
    topic: str
    seconds: float
    are_named: bool
    after_doubt: bool

    def strike(self, world: World) -> Probe:
        """As if the topic was compacted, from now on or from the next batch on."""
        cluster = world.cluster
        before = cluster.keyless_refused
        for broker in world.brokers.values():
            broker.scripted_codes.add(_INVALID_RECORD)

        def require() -> None:
            cluster.settings = replace(cluster.settings, names_bad_records=self.are_named)
            cluster.require_keys(self.topic, True)
            world.later(self.seconds, lambda: cluster.require_keys(self.topic, False))

        if self.after_doubt:
            code = _RETRIABLE_AFTER_WRITING[0]
            doubt = Ambush(ErrorAnswer(code, apply=True), ApiKey.PRODUCE, None, self.topic)
            doubt.world, doubt.then = world, require
            cluster.faults.add(doubt)
        else:
            require()
        return lambda: cluster.keyless_refused - before

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Brokers mostly name the records that have none."""
        seconds = round(rng.choice((1.0, 5.0)) * rng.uniform(0.5, 2.0), 3)
        topic = rng.choice(sorted(shape.topics))
        return cls(at, topic, seconds, rng.random() < 0.7, rng.random() < 0.5)


@dataclass(frozen=True, slots=True)
class MixedErrors(Fault):
    """One batch of a partition after the other gets another error, some of them written."""

    kind = "mixed errors"
    topic: str
    partition: int
    answers: tuple[ErrorAnswer, ...]

    def strike(self, world: World) -> Probe:
        """Strike at the partition's next batches, at any broker."""
        ambushes = []
        for answer in self.answers:
            for broker in world.brokers.values():
                broker.scripted_codes.add(answer.code)
            ambush = Ambush(answer, ApiKey.PRODUCE, None, self.topic, self.partition)
            ambush.world = world
            world.cluster.faults.add(ambush)
            ambushes.append(ambush)
        return lambda: sum(ambush.struck for ambush in ambushes)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Two to five, mostly such that one is written or refused for good."""
        topic = rng.choice(sorted(shape.topics))
        answers = tuple(
            ErrorAnswer(rng.choice(codes), apply=codes is _ERRORS_AFTER_WRITING)
            for codes in rng.choices(
                (_ERRORS_AFTER_WRITING, _FINAL_REFUSALS, _REFUSALS), k=rng.randint(2, 5)
            )
        )
        return cls(at, topic, rng.randrange(shape.topics[topic]), answers)

    @classmethod
    def draw_doubt(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """One batch is written and to be sent again, and the next one is refused for good."""
        topic = rng.choice(sorted(shape.topics))
        written = ErrorAnswer(rng.choice(_RETRIABLE_AFTER_WRITING), apply=True)
        refused = ErrorAnswer(rng.choice(_FINAL_REFUSALS))
        return cls(at, topic, rng.randrange(shape.topics[topic]), (written, refused))

    @classmethod
    def draw_refused_id(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """The producer id of a batch is refused, in half of the cases after it was written."""
        topic, partition = some_partition(rng, shape)
        written = ErrorAnswer(rng.choice(_RETRIABLE_AFTER_WRITING), apply=True)
        return cls(
            at, topic, partition, (written,) * rng.randrange(2) + (ErrorAnswer(_UNKNOWN_ID),)
        )


@dataclass(frozen=True, slots=True)
class FirstRefused(Fault):
    """Of a partition's batches in flight the first is refused before the append, and no other."""

    kind = "first refused"
    topic: str
    partition: int
    skipped: int

    def strike(self, world: World) -> Probe:
        """Strike at one of the partition's next batches, at any broker."""
        for broker in world.brokers.values():
            broker.scripted_codes.add(_NOT_ENOUGH_REPLICAS)
        answer = ErrorAnswer(_NOT_ENOUGH_REPLICAS)
        ambush = Ambush(answer, ApiKey.PRODUCE, None, self.topic, self.partition, skip=self.skipped)
        ambush.world = world
        world.cluster.faults.add(ambush)
        return lambda: ambush.struck

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Mostly the very next batch."""
        topic, partition = some_partition(rng, shape)
        return cls(at, topic, partition, rng.choice((0, 0, 1, 5)))


@dataclass(frozen=True, slots=True)
class LeaderWithoutProducers(Fault):
    """A partition gets a leader that has expired its producers, and refuses at first."""

    kind = "leader without producers"
    topic: str
    partition: int
    skipped: int
    times: int

    def strike(self, world: World) -> Probe:
        """At a request to the leader; followers of its successor are not in sync at first."""
        cluster = world.cluster
        struck: list[Ambush] = []

        def succeed() -> None:
            if not self._comes(world):
                return
            cluster.lose_producers(self.topic, self.partition)
            successor = cluster.leader_of(self.topic, self.partition)
            answer = ErrorAnswer(_NOT_ENOUGH_REPLICAS)
            ambush = Ambush(
                answer, ApiKey.PRODUCE, successor, self.topic, self.partition, times=self.times
            )
            ambush.world = world
            cluster.faults.add(ambush)
            struck.append(ambush)

        for broker in world.brokers.values():
            broker.scripted_codes.add(_NOT_ENOUGH_REPLICAS)
        amid_requests(world, self.topic, self.partition, self.skipped, succeed)
        return lambda: sum(ambush.struck for ambush in struck)

    def _comes(self, world: World) -> bool:
        return move_leader(world, self.topic, self.partition) > 0

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any partition, mostly amid several requests."""
        topic, partition = some_partition(rng, shape)
        return cls(at, topic, partition, rng.randrange(3), rng.choice((1, 2, 3)))


@dataclass(frozen=True, slots=True)
class LeaderLosesProducers(LeaderWithoutProducers):
    """A leader expires its producers while their batches are under way, and refuses the first."""

    kind = "leader loses producers"

    def _comes(self, world: World) -> bool:
        """Not twice while a batch is in flight, whose retry would then be accepted out of order."""
        where, lost_at = TopicPartition(self.topic, self.partition), world.cluster.producers_lost_at
        if world.now() - lost_at.get(where, -inf) < _LOST_AGAIN_AFTER_S:
            return False
        lost_at[where] = world.now()
        return True


@dataclass(frozen=True, slots=True)
class MetadataError(_CodeAnswered):
    """Topics are answered with an error in Metadata."""

    kind = "metadata error"

    def scripted(self) -> Ambush:
        """For whole topics or their partitions."""
        return Ambush(ErrorAnswer(self.code), ApiKey.METADATA, None, times=self.times)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """By any broker."""
        return cls(at, node(rng, shape), rng.choice((1, 3, 8)), rng.choice(_METADATA_ERRORS))


@dataclass(frozen=True, slots=True)
class OddDescription(Fault):
    """A response to Metadata describes a topic as no other response does."""

    kind = "odd description"
    node_id: int
    how: str

    def strike(self, world: World) -> Probe:
        """The broker's next response that has a topic."""
        struck = 0

        def distort(response: MetadataResponse) -> bool:
            nonlocal struck
            if response.topics:
                _ODDITIES[self.how](response)
                struck += 1
                world.disturb(0)
            return struck > 0

        world.brokers[self.node_id].distort[ApiKey.METADATA] = distort
        return lambda: struck

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any way."""
        return cls(at, node(rng, shape), rng.choice(sorted(_ODDITIES)))


def _without_partitions(response: MetadataResponse) -> None:
    response.topics[0].partitions.clear()


def _without_the_topic(response: MetadataResponse) -> None:
    del response.topics[0]


def _twice(response: MetadataResponse) -> None:
    first = response.topics[0]
    response.topics.append(replace(first, error_code=_UNKNOWN_TOPIC, partitions=[]))


def _invalid_partition(response: MetadataResponse) -> None:
    for each in response.topics[0].partitions[:1]:
        each.partition_index = -1


def _without_addresses(response: MetadataResponse) -> None:
    for each in response.brokers:
        each.host = ""


def _unasked(response: MetadataResponse) -> None:
    first = response.topics[0]
    response.topics.insert(0, replace(first, name="not-asked-for", topic_id=UUID(int=1)))


def _unknown_leaders(response: MetadataResponse) -> None:
    for each in response.topics[0].partitions:
        each.leader_id = _NO_SUCH_BROKER


def _without_leaders(response: MetadataResponse) -> None:
    """No leaders of any topic, and no error that says so."""
    for topic in response.topics:
        for each in topic.partitions:
            each.leader_id, each.error_code = NO_LEADER, 0


_UNKNOWN_TOPIC, _NO_SUCH_BROKER = 3, 77
_ODDITIES: Mapping[str, Callable[[MetadataResponse], None]] = {
    "without partitions": _without_partitions,
    "without the topic": _without_the_topic,
    "twice": _twice,
    "invalid partition": _invalid_partition,
    "without addresses": _without_addresses,
    "unasked": _unasked,
    "unknown leaders": _unknown_leaders,
    "without leaders": _without_leaders,
}


@dataclass(frozen=True, slots=True)
class OddAnswer(Fault):
    """A success lacks what it is a success of, or a broker asks for a rebootstrap (KIP-1102)."""

    kind = "odd answer"
    api: ApiKey

    def strike(self, world: World) -> Probe:
        """The next success of any broker."""
        struck = 0

        def distort(response: Any) -> bool:
            nonlocal struck
            if not _ODD_ANSWERS[self.api](response):
                return False
            for broker in world.brokers.values():
                broker.distort.pop(self.api, None)
            struck += 1
            world.disturb(0)
            return True

        for broker in world.brokers.values():
            broker.distort[self.api] = distort
            if self.api is ApiKey.METADATA:
                broker.scripted_codes.add(RebootstrapRequiredError.code)
        return lambda: struck

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any of them; coordinators are asked for in runs with transactions only."""
        apis = [api for api in _ODD_ANSWERS if shape.seats or api != ApiKey.FIND_COORDINATOR]
        return cls(at, rng.choice(apis))


def _rebootstrap_required(response: MetadataResponse) -> bool:
    response.error_code = RebootstrapRequiredError.code
    return True


def _without_producer_id(response: InitProducerIdResponse) -> bool:
    if not response.error_code:
        response.producer_id = response.producer_epoch = -1
    return not response.error_code


def _without_coordinator(response: FindCoordinatorResponse) -> bool:
    answers: Sequence[Coordinator | FindCoordinatorResponse] = response.coordinators or [response]
    found = [each for each in answers if not each.error_code]
    for each in found:
        each.host, each.node_id = "", -1
    return bool(found)


_ODD_ANSWERS: Mapping[ApiKey, Callable[[Any], bool]] = {
    ApiKey.METADATA: _rebootstrap_required,
    ApiKey.INIT_PRODUCER_ID: _without_producer_id,
    ApiKey.FIND_COORDINATOR: _without_coordinator,
}


@dataclass(frozen=True, slots=True)
class InitProducerIdError(_CodeAnswered):
    """A producer id is refused for now."""

    kind = "init producer id error"

    def scripted(self) -> Ambush:
        """By any broker."""
        return Ambush(ErrorAnswer(self.code), ApiKey.INIT_PRODUCER_ID, None, times=self.times)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """From the beginning: the first request is the likeliest."""
        return cls(0.0, node(rng, shape), rng.choice((1, 2)), rng.choice(_INIT_ERRORS))


@dataclass(frozen=True, slots=True)
class UnansweredInitProducerId(_Scripted):
    """A request for a producer id is carried out and not answered; the connection stays or ends."""

    kind = "init producer id unanswered"
    closes: bool

    def scripted(self) -> Ambush:
        """By any broker."""
        action = ConnectionFault(answer=False, close=self.closes)
        return Ambush(action, ApiKey.INIT_PRODUCER_ID, None, times=self.times)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """From the beginning: the first request is the likeliest."""
        return cls(0.0, node(rng, shape), rng.choice((1, 2)), rng.random() < 0.5)


@dataclass(frozen=True, slots=True)
class LateDescription(_Scripted):
    """A broker answers late what any broker can answer: metadata, or a producer id."""

    kind = "late description"
    milliseconds: int
    api: ApiKey

    def scripted(self) -> Ambush:
        """By any broker."""
        return Ambush(ConnectionFault(delay_ms=self.milliseconds), self.api, None, times=self.times)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """The next one."""
        api = rng.choice((ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID))
        return cls(at, node(rng, shape), 1, rng.choice((300, 1000, 2500)), api)


@dataclass(frozen=True, slots=True)
class Throttle(_Scripted):
    """A broker asks for a pause and reads nothing meanwhile (KIP-219)."""

    kind = "throttle"
    milliseconds: int

    def scripted(self) -> Ambush:
        """Answered with a throttle time."""
        return self._produce(ConnectionFault(throttle_ms=self.milliseconds))

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Shorter and longer than the request timeout."""
        return cls(at, node(rng, shape), rng.choice((1, 3)), rng.choice((50, 500, 3000)))


@dataclass(frozen=True, slots=True)
class LateAnswer(_Scripted):
    """A broker answers late, and so do all responses after it on that connection."""

    kind = "late answer"
    milliseconds: int

    def scripted(self) -> Ambush:
        """Done, answered later."""
        return self._produce(ConnectionFault(delay_ms=self.milliseconds))

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Shorter and longer than the request timeout."""
        return cls(at, node(rng, shape), rng.choice((1, 2)), rng.choice((100, 1000, 5000)))


@dataclass(frozen=True, slots=True)
class LostRequest(_Scripted):
    """A broker closes the connection at a request that it did not carry out."""

    kind = "lost request"

    def scripted(self) -> Ambush:
        """Not done."""
        return self._produce(ConnectionFault(apply=False, answer=False, close=True))


@dataclass(frozen=True, slots=True)
class LostAnswer(_Scripted):
    """A broker carries a request out and closes the connection."""

    kind = "lost answer"

    def scripted(self) -> Ambush:
        """Done."""
        return self._produce(ConnectionFault(answer=False, close=True))


@dataclass(frozen=True, slots=True)
class SwallowedRequest(_Scripted):
    """A broker carries a request out or not, never answers and stays connected."""

    kind = "no answer"
    applied: bool

    def scripted(self) -> Ambush:
        """Nothing is answered."""
        return self._produce(ConnectionFault(apply=self.applied, answer=False))

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Done or not."""
        return cls(at, node(rng, shape), 1, rng.random() < 0.5)


@dataclass(frozen=True, slots=True)
class CutAnswer(_Scripted):
    """A request is carried out, and its answer breaks off."""

    kind = "cut answer"
    size: int

    def scripted(self) -> Ambush:
        """Some bytes, then the end."""
        return self._produce(ConnectionFault(cut_at=self.size, close=True))

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Within the size, the header or the body."""
        return cls(at, node(rng, shape), 1, rng.choice((2, 6, 20)))


@dataclass(frozen=True, slots=True)
class WrongAnswer(_Scripted):
    """A request is carried out, and something else is answered."""

    kind = "wrong answer"

    def scripted(self) -> Ambush:
        """A frame with a correlation id that no request has."""
        return self._produce(ConnectionFault(apply=False, frame=_WRONG_ANSWER))


@dataclass(frozen=True, slots=True)
class _Distorted(Fault):
    node_id: int

    def strike(self, world: World) -> Probe:
        """Strike at the next responses to Produce."""
        struck = 0

        def distort(response: ProduceResponse) -> bool:
            nonlocal struck
            struck += self.distort(response)
            world.disturb(0)
            return struck > 0

        world.brokers[self.node_id].distort[ApiKey.PRODUCE] = distort
        return lambda: struck

    @abstractmethod
    def distort(self, response: ProduceResponse) -> bool:
        """Changes the answer; returns whether it could."""

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """One broker's."""
        return cls(at, node(rng, shape))


@dataclass(frozen=True, slots=True)
class LeftOutAnswer(_Distorted):
    """An answer leaves a partition out, which was written or not."""

    kind = "partition left out"
    written: bool

    def strike(self, world: World) -> Probe:
        """Refuses a partition first if it shall not be written."""
        if not self.written:
            refusal = Ambush(ErrorAnswer(_NOT_LEADER), ApiKey.PRODUCE, self.node_id)
            world.cluster.faults.add(refusal)
        return _Distorted.strike(self, world)

    def distort(self, response: ProduceResponse) -> bool:
        """Takes the first such partition away."""
        for topic in response.responses:
            for answer in topic.partition_responses:
                if self.written is (answer.error_code == 0):
                    topic.partition_responses.remove(answer)
                    return True
        return False

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Written or not."""
        return cls(at, node(rng, shape), rng.random() < 0.5)


@dataclass(frozen=True, slots=True)
class DuplicateAnswer(_Distorted):
    """A batch is written, and is answered as a duplicate whose offset the broker has not kept."""

    kind = "answered as a duplicate"

    def distort(self, response: ProduceResponse) -> bool:
        """Answers the first written partition as old brokers do."""
        for topic in response.responses:
            for answer in topic.partition_responses:
                if not answer.error_code:
                    answer.error_code, answer.base_offset = _DUPLICATE, -1
                    return True
        return False


@dataclass(frozen=True, slots=True)
class InventedAnswer(_Distorted):
    """A request is carried out, and its response has partitions that were not asked for as well."""

    kind = "partition invented"

    def distort(self, response: ProduceResponse) -> bool:
        """Adds a success, a failure, and a repetition that contradicts the first answer."""
        for topic in response.responses:
            first = topic.partition_responses[0]
            topic.partition_responses += [
                PartitionProduceResponse(index=999, base_offset=0),
                PartitionProduceResponse(index=998, error_code=29, base_offset=-1),
                PartitionProduceResponse(index=first.index, error_code=29, base_offset=-1),
            ]
        return bool(response.responses)
