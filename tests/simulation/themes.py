"""Themes: faults that some of the runs have many of, besides their schedule.

Owns: faults that do harm at rare moments only, how much of them makes such a moment likely, and the
options under which it is one. Not here: what the faults do.

Invariant: a theme is drawn from its own source of chance; a run without one is not changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aioproducer.testing.broker import TopicSpec, UnknownProducers
from aioproducer.testing.world.faults import Fault, Shape
from aioproducer.testing.world.spec import Chance
from aioproducer.wire.api_keys import ApiKey
from simulation.faults.answers import (
    CutAnswer,
    DuplicateAnswer,
    ErrorAfterWrite,
    FirstRefused,
    InitProducerIdError,
    KeysRequired,
    LateAnswer,
    LateDescription,
    LeaderLosesProducers,
    LeaderWithoutProducers,
    LeftOutAnswer,
    LostAnswer,
    LostRequest,
    MetadataError,
    MixedErrors,
    OddDescription,
    Refusal,
    SwallowedRequest,
    Throttle,
    UnansweredInitProducerId,
)
from simulation.faults.brokers import (
    ClockJump,
    Crash,
    DeposedLeader,
    LeaderMove,
    PartitionGrowth,
    PowerLoss,
    ReplacedCluster,
    StaleMetadata,
    TopicCreation,
    TopicDeletion,
    TopicRecreation,
    UnawareBrokers,
    UncleanElection,
    UnlistedBroker,
    some_partition,
)
from simulation.faults.coordinators import (
    CoordinatorMovesAt,
    ErrorAfterWork,
    FinalCoordinatorError,
    LeftOutByCoordinator,
    LostAddition,
    SlowMarkers,
)
from simulation.faults.moments import (
    HeldEnd,
    HeldPositions,
    OvertakenRenewal,
    PositionsRefused,
    RecreationBeforeAnswer,
    RecreationBeforeEnd,
)
from simulation.faults.network import BlackHole, Reset
from simulation.faults.processes import Kill
from simulation.scenario import CHAOS_S, LOGIN, Pause, Scenario
from simulation.transactions.plan import OUTPUT_TOPIC, READ_TOPIC, Plan, draw_plan

_SHARE = 0.45
_SHARE_OF_MANY_TOPICS = 0.12
"""Of the runs without another theme."""
_SHARE_OF_IDLE_DAYS = 0.2
"""Of the runs that have no theme then."""
_SHARE_OF_TRANSACTIONAL = 0.4
_DOUBTED_ENDS, _NEXT_S = 8, 0.001
_SHARE_OF_READERS = 0.4
"""The share of the themes about positions, in runs with readers."""


Schedule = Callable[[random.Random, Shape, float, float], list[Fault]]
"""Draws the faults of a theme that strike between two virtual times."""


@dataclass(frozen=True, slots=True)
class Theme:
    """One subject.

    Attributes:
        schedule: Draws its faults.
        options: Options of the producer in place of those drawn.
        heals_at: When everything heals; the producers work on until the usual time.
        topics: The topics there are at first; those of the scenario when left out.
        parade: See `Scenario`.
        pauses: See `Scenario`.
        brokers: See `Scenario`.
        session_ms: See `Scenario`.
        alone: Whether only its faults strike.
    """

    schedule: Schedule
    options: Mapping[str, Any] = field(default_factory=dict)
    heals_at: float = CHAOS_S
    topics: Mapping[str, TopicSpec] = field(default_factory=dict)
    parade: Sequence[str] = ()
    pauses: Sequence[Pause] = ()
    brokers: Mapping[str, Any] = field(default_factory=dict)
    session_ms: int = 0
    alone: bool = False

    def applied_to(self, scenario: Scenario) -> Scenario:
        """The scenario with the theme's options; one that heals early ends in peace."""
        options = {**scenario.options, **self.options}
        scenario = replace(
            scenario,
            options=options,
            heals_at=self.heals_at,
            topics=self.topics or scenario.topics,
            parade=self.parade,
            pauses=self.pauses,
            brokers=self.brokers,
            session_ms=self.session_ms,
        )
        return scenario if self.heals_at == CHAOS_S else replace(scenario, closes_at=None)


def _times(count: int, draw: Callable[[random.Random, float, Shape], Fault]) -> Schedule:
    """A schedule of so many faults of one kind, at any time."""

    def schedule(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
        return [draw(rng, round(rng.uniform(start, end), 3), shape) for _ in range(count)]

    return schedule


def _doubts(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Batches that are written are to be sent again, or are answered as duplicates."""
    faults = _times(16, MixedErrors.draw_doubt)(rng, shape, start, end)
    return faults + _times(6, DuplicateAnswer.draw)(rng, shape, start, end)


_LAGGING, _LAGS_S, _LEARNED_S, _UNKNOWN_TOPIC = 6, 3.0, 0.7, 3
_ONE_AT_A_TIME = {
    "enable_idempotence": False,
    "max_in_flight_requests_per_connection": 1,
    "metadata_max_age_ms": 300,
}
"""Only waiting keeps the order, and a new leader is found before a request times out."""

LOST_ENDS = Theme(_times(8, UncleanElection.draw))
"""What every run has besides whose cluster may lose committed records."""
DOUBTS = Theme(_doubts)


def _depositions(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Leaders are deposed; some move while most brokers lag, and their topics are unknown then."""
    faults = _times(6, DeposedLeader.draw)(rng, shape, start, end)
    for _ in range(_LAGGING):
        at, (topic, partition) = round(rng.uniform(start, end), 3), some_partition(rng, shape)
        lagging = rng.sample(shape.nodes, len(shape.nodes) - 1)
        faults += [StaleMetadata(at, each, _LAGS_S, topic, partition) for each in lagging]
        unknown_at = round(at + _LEARNED_S, 3)
        faults.append(MetadataError(unknown_at, lagging[0], len(shape.topics), _UNKNOWN_TOPIC))
    return faults


DEPOSITIONS = Theme(_depositions, _ONE_AT_A_TIME)


def _doubted_ends(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Ends are carried out and answered by an error, and refused when they are requested again."""
    faults: list[Fault] = []
    for _ in range(_DOUBTED_ENDS):
        at = round(rng.uniform(start, end), 3)
        faults.append(ErrorAfterWork(at, ApiKey.END_TXN, 1, rng.choice((7, 14, 15, 16))))
        then = round(at + _NEXT_S, 3)
        faults.append(FinalCoordinatorError(then, ApiKey.END_TXN, 1, rng.choice((48, 59, 120))))
    return faults


_REFUSED_INITS = 10
_INIT_REFUSALS = (31, 50, 53, 120, -1)


def _refused_inits(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Producer ids and epochs are refused for good, to new processes and after lost requests."""
    faults: list[Fault] = []
    for number in range(_REFUSED_INITS):
        at = round(rng.uniform(start, end), 3)
        code = rng.choice(_INIT_REFUSALS)
        faults.append(FinalCoordinatorError(at, ApiKey.INIT_PRODUCER_ID, 1, code))
        kind = Kill if number % 2 else LostAddition
        faults.append(kind.draw(rng, at, shape))
    return faults


_SHORT_BLOCK = {"max_block_ms": 1500}
"""A short limit for position calls; the user then ends the transaction, which has to wait."""
_SLOW_TO_REPEAT = {"retry_backoff_ms": 1000, "retry_backoff_max_ms": 2000}
"""An abort comes before the lost request is sent again."""

OLD_COORDINATORS = Theme(
    _times(40, Refusal.draw),
    {**_SLOW_TO_REPEAT, "delivery_timeout_ms": 120_000},
    brokers={"api_versions": {ApiKey.INIT_PRODUCER_ID: (0, 2)}},
    alone=True,
)
"""Brokers before 2.5 give no next epoch: a transaction that is aborted may leave no gap.

Nor can one be prepared there: a late end of it could end the next one.
"""
LATE_ENDS = Theme(_times(8, HeldEnd.draw))
OVERTAKINGS = Theme(_times(8, OvertakenRenewal.draw))
LOST_ADDITIONS = Theme(_times(12, LostAddition.draw), _SLOW_TO_REPEAT)
LEFT_OUT = Theme(_times(16, LeftOutByCoordinator.draw), _SLOW_TO_REPEAT)
REFUSED_INITS = Theme(_refused_inits)
DOUBTED_ENDS = Theme(_doubted_ends, {"retry_backoff_ms": 10})
COORDINATOR_MOVES = Theme(_times(24, CoordinatorMovesAt.draw))
SLOW_ENDS = Theme(_times(8, SlowMarkers.draw))
POSITIONS = Theme(_times(8, PositionsRefused.draw), _SHORT_BLOCK)
LATE_POSITIONS = Theme(_times(8, HeldPositions.draw))

_EARLY_S = 10.0
_LONG_DELIVERY = {"delivery_timeout_ms": 120_000, "metadata_max_age_ms": 300_000}
"""A timeout that is long enough for a wait without effect to be seen."""
_IDEMPOTENT = {
    "enable_idempotence": True,
    "acks": "all",
    "retries": 2**31 - 1,
    "max_in_flight_requests_per_connection": 5,
}


def _flapping(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Coordinators load while a producer starts, and every broker dies within its first second."""
    faults: list[Fault] = [InitProducerIdError(0.0, 1, rng.choice((3, 100)), rng.choice((14, 15)))]
    at, down = rng.uniform(0.2, 1.5), rng.uniform(1.0, 4.0)
    return faults + [
        Crash(round(at + rng.uniform(0, 0.1), 3), node_id, round(down, 3))
        for node_id in shape.nodes
    ]


def _everything_dead(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Every broker dies at about the same time, with or without a word, and all come back."""
    at, down = rng.uniform(start, end - 3.0), rng.uniform(1.0, 6.0)
    return [
        rng.choice((Crash, PowerLoss))(
            round(at + rng.uniform(0, 0.3), 3), node_id, round(down * rng.uniform(0.8, 1.2), 3)
        )
        for node_id in shape.nodes
    ]


def _identity_trouble(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Producer ids are refused or requests for them lost, while connections come and go."""
    faults: list[Fault] = [InitProducerIdError.draw(rng, 0.0, shape) for _ in range(3)]
    faults += [UnansweredInitProducerId.draw(rng, 0.0, shape) for _ in range(3)]
    kinds = rng.choices((Crash, Reset, MixedErrors, BlackHole), k=4)
    return faults + [kind.draw(rng, round(rng.uniform(0.05, end), 3), shape) for kind in kinds]


FLAPPING = Theme(_flapping, {**_LONG_DELIVERY, **_IDEMPOTENT}, _EARLY_S)
EVERYTHING_DEAD = Theme(_everything_dead, _LONG_DELIVERY, _EARLY_S)
EARLY_HEALING = Theme(lambda *_: [], _LONG_DELIVERY, _EARLY_S)
"""The usual faults of a run, all in its first seconds."""
IDENTITY_TROUBLE = Theme(_identity_trouble, {**_LONG_DELIVERY, **_IDEMPOTENT}, _EARLY_S)
CLOCK_JUMPS = Theme(_times(12, ClockJump.draw))

_PARADE = tuple(f"m{number:03}" for number in range(240))
_CREATED, _DELETED = 6, 4
"""Topics that come and go at a time."""


def _comings_and_goings(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Topics are created about when they are first used, and some are deleted while or after."""
    pace = CHAOS_S / len(_PARADE)
    absent = [name for name in _PARADE if name not in shape.topics]
    faults: list[Fault] = []
    for first in range(0, len(absent), _CREATED):
        names = absent[first : first + _CREATED]
        at = _PARADE.index(names[0]) * pace + rng.uniform(-6.0, 1.0)
        faults.append(TopicCreation(round(max(at, start), 3), tuple(names)))
    for first in rng.sample(range(0, len(_PARADE), _DELETED), 15):
        at = first * pace + rng.uniform(-1.0, 15.0)
        gone = _PARADE[first : first + _DELETED]
        faults.append(TopicDeletion(round(min(max(at, start), end), 3), gone))
    return faults


MANY_TOPICS = Theme(
    _comings_and_goings,
    {
        "allow_auto_create_topics": False,
        "max_block_ms": 3000,
        "metadata_max_age_ms": 2000,
        "metadata_max_idle_ms": 5000,
    },
    topics={name: TopicSpec(1, 3) for name in _PARADE[::2]},
    parade=_PARADE,
)
"""Every topic is used for some seconds only, so that most expire during the run."""


_A_DAY_S = 86_400.0
_IDLE_TIMES = (Pause(15.0, 1.1 * _A_DAY_S), Pause(30.0, 0.5 * _A_DAY_S), Pause(45.0, 3 * _A_DAY_S))
_REFUSED_LATER = 6
_SMALL_BATCHES = {"linger_ms": 0, "batch_size": 200, "buffer_memory": 64 * 1024}
"""Bursts of records are several batches of a partition."""


def _refusals_after_pauses(
    rng: random.Random, shape: Shape, start: float, end: float
) -> list[Fault]:
    """The first batches after a pause are refused, and some later ones."""
    faults: list[Fault] = [
        FirstRefused(pause.begins_at, topic, partition, rng.choice((0, 0, 0, 1)))
        for pause in _IDLE_TIMES
        for topic, count in sorted(shape.topics.items())
        for partition in range(count)
    ]
    return faults + [
        FirstRefused.draw(rng, round(rng.uniform(start, end), 3), shape)
        for _ in range(_REFUSED_LATER)
    ]


IDLE_DAYS = Theme(
    _refusals_after_pauses,
    {**_LONG_DELIVERY, **_IDEMPOTENT, **_SMALL_BATCHES},
    pauses=_IDLE_TIMES,
)
"""Brokers expire the producer's state while no task sends, and its sequences go on."""
IDLE_DAYS_REDPANDA = replace(
    IDLE_DAYS, brokers={"unknown_producers": UnknownProducers.OUT_OF_ORDER}
)
IDLE_DAYS_OLD_KAFKA = replace(
    IDLE_DAYS, brokers={"unknown_producers": UnknownProducers.UNKNOWN_PRODUCER_ID}
)
_IDLE_THEMES = (IDLE_DAYS, IDLE_DAYS, IDLE_DAYS_REDPANDA, IDLE_DAYS_OLD_KAFKA)

_LARGE_BATCHES = {"linger_ms": 50, "batch_size": 16384, "buffer_memory": 1 << 20}
BAD_RECORDS = Theme(_times(10, KeysRequired.draw), {**_LONG_DELIVERY, **_LARGE_BATCHES})


_GROWN_BEFORE_S = 2.0
_RECREATIONS, _REPLACEMENTS, _MOVES, _UNLISTED = 6, 3, 40, 10
_MOVES_TOGETHER = 20
_LONG_THROTTLE_MS = 2000
_HINTED_S = (0.5, 1.0)
"""So long after metadata began to leave a broker out, others are succeeded as leaders."""


def _recreations(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Topics are created anew after their leaders have changed, and first batches are refused."""
    faults: list[Fault] = []
    for _ in range(_RECREATIONS):
        recreation = TopicRecreation.draw(rng, round(rng.uniform(start, end - 2.0), 3), shape)
        topic, at = recreation.topic, recreation.at
        faults.append(recreation)
        if round(at * 1000) % 2:
            # The topic created anew is as large as this one was at first.
            faults.append(PartitionGrowth(round(max(0.0, at - _GROWN_BEFORE_S), 3), topic))
        for partition in range(shape.topics[topic]):
            before = round(max(0.0, at - rng.uniform(0.1, 1.0)), 3)
            after = round(at + rng.uniform(0.0, 1.0), 3)
            faults.append(LeaderMove(before, topic, partition))
            faults.append(FirstRefused(after, topic, partition, rng.choice((0, 0, 1))))
        # The new topic is seen before the last answers about the deleted one.
        late = round(max(0.0, at - rng.uniform(0.0, 0.5)), 3)
        faults += [LateAnswer(late, node_id, 1, 1000) for node_id in shape.nodes]
    return faults


def _recreations_before_answers(
    rng: random.Random, shape: Shape, start: float, end: float
) -> list[Fault]:
    """Recreations, some between a batch and its acknowledgement."""
    amid = _times(_RECREATIONS, RecreationBeforeAnswer.draw)
    return _recreations(rng, shape, start, end) + amid(rng, shape, start, end - 2.0)


_REFUSED_RENEWALS, _NOT_AUTHORIZED = 8, 31
_SHARE_OF_SAME_LEADERS = 0.7


def _unread_recreations(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Recreations, but not of the topic that seats read: its positions go with it.

    The new topics mostly have the same leaders and leader epochs.
    """
    topics = dict(shape.topics)
    if OUTPUT_TOPIC in topics:
        del topics[READ_TOPIC]
    faults = _recreations(rng, shape._replace(topics=topics), start, end)
    return [
        replace(fault, same_leaders=rng.random() < _SHARE_OF_SAME_LEADERS)
        if isinstance(fault, TopicRecreation)
        else fault
        for fault in faults
        if not isinstance(fault, LeaderMove)
    ]


def _unread_recreations_amid_ends(
    rng: random.Random, shape: Shape, start: float, end: float
) -> list[Fault]:
    """Recreations, some between the end of a transaction and its response."""
    faults = _unread_recreations(rng, shape, start, end)
    topics = dict(shape.topics)
    if OUTPUT_TOPIC in topics:
        del topics[READ_TOPIC]
    amid = _times(_RECREATIONS, RecreationBeforeEnd.draw)
    return faults + amid(rng, shape._replace(topics=topics), start, end - 2.0)


def _replacements(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Clusters are replaced, and again while a producer id is awaited; metadata may come late.

    Not at first: before its first response no client has seen which cluster it uses.
    """
    faults: list[Fault] = []
    for _ in range(_REPLACEMENTS):
        at = round(rng.uniform(start + 4.0, end - 3.0), 3)
        before, again = round(at - rng.uniform(0.0, 0.7), 3), round(at + rng.uniform(0.8, 2.4), 3)
        if rng.random() < 0.5:
            faults.append(LateDescription(before, 1, 1, rng.choice((500, 2500)), ApiKey.METADATA))
        faults.append(ReplacedCluster.draw(rng, at, shape))
        faults.append(LateDescription(at, 1, 1, 2500, ApiKey.INIT_PRODUCER_ID))
        faults.append(ReplacedCluster.draw(rng, again, shape))
    return faults


_IN_ORDER = {**_IDEMPOTENT, **_SMALL_BATCHES, "delivery_timeout_ms": 30_000}
_ONE_PARTITION = {"t1": TopicSpec(1, 3)}
"""Where several requests are under way for every burst."""
RECREATIONS = Theme(_recreations, _IN_ORDER, topics=_ONE_PARTITION)
RECREATIONS_SEEN_EARLY = Theme(
    _recreations_before_answers,
    topics=_ONE_PARTITION,
    options={**_IN_ORDER, "metadata_max_age_ms": 300, "request_timeout_ms": 3000, "linger_ms": 0},
)
_SEVERAL = {**_SMALL_BATCHES, "max_in_flight_requests_per_connection": 5}
TRANSACTIONAL_RECREATIONS = Theme(_unread_recreations, {**_SEVERAL, "metadata_max_age_ms": 300_000})
TRANSACTIONAL_RECREATIONS_SEEN_EARLY = Theme(
    _unread_recreations_amid_ends, {**_SEVERAL, "metadata_max_age_ms": 300}
)
LEADERS_WITHOUT_PRODUCERS = Theme(
    _times(_MOVES, LeaderWithoutProducers.draw),
    {**_IN_ORDER, "retry_backoff_ms": 100},
    topics=_ONE_PARTITION,
)
LOST_STATES = Theme(
    _times(_MOVES, LeaderLosesProducers.draw),
    {**_IN_ORDER, "retry_backoff_ms": 100, "request_timeout_ms": 3000},
    topics=_ONE_PARTITION,
    alone=True,
)
"""No answer is lost: what follows an unanswered batch may be written before it is written again."""


def _refused_renewals(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Producer ids are refused, and so is the request for another one (authorization)."""
    faults: list[Fault] = [InitProducerIdError(0.0, 1, 1, _NOT_AUTHORIZED)]
    for _ in range(_REFUSED_RENEWALS):
        at = round(rng.uniform(start, end), 3)
        faults.append(MixedErrors.draw_refused_id(rng, at, shape))
        faults.append(InitProducerIdError(at, 1, rng.choice((1, 2)), _NOT_AUTHORIZED))
    return faults


REFUSED_RENEWALS = Theme(_refused_renewals, _IDEMPOTENT)
ODD_DESCRIPTIONS = Theme(_times(24, OddDescription.draw), {"metadata_max_age_ms": 500})
REPLACEMENTS = Theme(_replacements, {**_IDEMPOTENT, "metadata_max_age_ms": 500})
_SHARE_BY_NAME = 0.5
REPLACEMENTS_BY_NAME = replace(
    REPLACEMENTS, brokers={"api_versions": {ApiKey.METADATA: (0, 9), ApiKey.PRODUCE: (3, 9)}}
)
"""Brokers without topic ids: only the id of the cluster shows that it is another one."""
_REFUSED_ADDITIONS, _REFUSALS_OF_ADDITIONS = 24, (3, 29, 29)


def _replacements_amid_refusals(
    rng: random.Random, shape: Shape, start: float, end: float
) -> list[Fault]:
    """Replacements; and additions of several partitions are refused because of one (V1)."""
    faults = _replacements(rng, shape, start, end)
    for _ in range(_REFUSED_ADDITIONS):
        at, code = round(rng.uniform(start, end), 3), rng.choice(_REFUSALS_OF_ADDITIONS)
        faults.append(FinalCoordinatorError(at, ApiKey.ADD_PARTITIONS_TO_TXN, 1, code))
    return faults


TRANSACTIONAL_REPLACEMENTS = Theme(_replacements_amid_refusals, {"metadata_max_age_ms": 500})
"""Coordinators and leaders have no state of the transactions in flight.

Not with seats that read: their positions go with the cluster.
"""


def _unlisted(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Metadata leave brokers out, one or all, and are asked for since connections end."""
    faults: list[Fault] = []
    for number in range(_UNLISTED):
        kind = UnawareBrokers if number % 5 == 0 else UnlistedBroker
        fault = kind.draw(rng, round(rng.uniform(start, end), 3), shape)
        faults += [fault, Reset(round(fault.at + 0.1, 3), rng.choice(list(shape.nodes)))]
        if isinstance(fault, UnlistedBroker) and number % 2:
            # Its records wait for it when an answer about another topic lacks its address.
            topic = rng.choice(sorted(shape.topics))
            before, after = round(max(0.0, fault.at - 0.2), 3), round(fault.at + 0.1, 3)
            faults.append(Throttle(before, fault.node_id, 1, _LONG_THROTTLE_MS))
            faults += [LeaderMove(after, topic, each) for each in range(shape.topics[topic])]
        if isinstance(fault, UnlistedBroker):
            # Former leaders name it as the next one (KIP-951), and metadata did not list it.
            for topic, count in sorted(shape.topics.items()):
                times = [round(fault.at + seconds, 3) for seconds in _HINTED_S]
                faults += [LeaderMove(at, topic, each) for at in times for each in range(count)]
    return faults


_TWO_TOPICS = {"t1": TopicSpec(2, 3), "t2": TopicSpec(2, 3)}
UNLISTED = Theme(_unlisted, {"metadata_max_age_ms": 300_000}, topics=_TWO_TOPICS)
SESSIONS = Theme(_times(4, Reset.draw), LOGIN, session_ms=5000)
LAST_EPOCHS = replace(DOUBTS, options=_IDEMPOTENT, brokers={"first_epoch": 2**15 - 3})

_UNANSWERED = (LostAnswer, LostRequest, CutAnswer, LeftOutAnswer, ErrorAfterWrite, SwallowedRequest)


def _lost_outcomes(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Requests get no answer, an incomplete one, or an error although they are carried out."""
    kinds = rng.choices(_UNANSWERED, k=24)
    return [kind.draw(rng, round(rng.uniform(start, end), 3), shape) for kind in kinds]


UNREPEATED = Theme(_lost_outcomes, {"enable_idempotence": False, "acks": "all", "retries": 0})
"""What is known of a batch after its first request decides what its records are said to be."""
REFUSED_IDS = Theme(_times(12, MixedErrors.draw_refused_id), _IDEMPOTENT)


def _moves_together(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """All partitions get other leaders at once, most of them while no record is sent to them."""
    return [
        LeaderMove(at, topic, partition)
        for at in [round(rng.uniform(start, end), 3) for _ in range(_MOVES_TOGETHER)]
        for topic, count in sorted(shape.topics.items())
        for partition in range(count)
    ]


OLD_BROKERS = Theme(
    _moves_together,
    {"acks": "all", "compression_type": "none", "linger_ms": 0, **_LONG_DELIVERY},
    brokers={"api_versions": {ApiKey.METADATA: (0, 9), ApiKey.PRODUCE: (3, 9)}},
)
"""Brokers without topic ids, which do not name the new leader in their errors."""

_SHARE_OF_LATER = 0.7
"""Of the runs that have no theme then."""
_LATER_THEMES = (
    REPLACEMENTS,
    RECREATIONS,
    RECREATIONS_SEEN_EARLY,
    LEADERS_WITHOUT_PRODUCERS,
    REPLACEMENTS,
    LEADERS_WITHOUT_PRODUCERS,
    UNLISTED,
    SESSIONS,
    LAST_EPOCHS,
    UNREPEATED,
    REFUSED_IDS,
    OLD_BROKERS,
)
_NOT_LEADER, _ERRORS_AFTER_WRITES = 6, 4


def _recreations_after_errors(
    rng: random.Random, shape: Shape, start: float, end: float
) -> list[Fault]:
    """Recreations, amid batches that are written and answered by an error."""
    times = rng.choice((1, 2))
    faults = [
        fault for _ in range(times) for fault in _recreations_before_answers(rng, shape, start, end)
    ]
    for fault in list(faults):
        if isinstance(fault, TopicRecreation):
            before = round(max(0.0, fault.at - rng.uniform(0.0, 0.2)), 3)
            for node_id in shape.nodes:
                error = ErrorAfterWrite(before, node_id, _ERRORS_AFTER_WRITES, _NOT_LEADER)
                faults.append(error)
    return faults


RECREATIONS_BY_NAME = replace(
    RECREATIONS_SEEN_EARLY,
    schedule=_recreations_after_errors,
    brokers={"api_versions": {ApiKey.PRODUCE: (3, 12)}},
)
"""Before the producer has seen a topic created anew, brokers may have a batch in it."""

_SHRINKS, _GROWTHS = 10, 4


def _shrinks(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Topics that have grown are created anew, as small as they were at first."""
    faults: list[Fault] = []
    for _ in range(_SHRINKS):
        at = round(rng.uniform(start + _GROWN_BEFORE_S, end - 2.0), 3)
        recreation = TopicRecreation.draw(rng, at, shape)
        before = round(at - _GROWN_BEFORE_S, 3)
        faults += [recreation, *[PartitionGrowth(before, recreation.topic)] * _GROWTHS]
    return faults


SHRUNKEN_TOPICS = Theme(
    _shrinks,
    topics=_ONE_PARTITION,
    options={
        **_SMALL_BATCHES,
        "metadata_max_age_ms": 500,
        "max_in_flight_requests_per_connection": 1,
        "partitioner": "default",
        "partitioner_adaptive_partitioning_enable": True,
    },
)
"""Queues of different lengths make weights, also of partitions that the new topic lacks."""

_SHARE_OF_NEWER = 0.15
_SHARE_OF_REPLACEMENTS = 0.3
"""Of the transactional runs without seats that read."""
_SHARE_OF_OLD_COORDINATORS = 0.1
"""Of the other V1 runs in which none is prepared."""
_NEWER_THEMES = (RECREATIONS_BY_NAME, RECREATIONS_BY_NAME, SHRUNKEN_TOPICS)

_SHARE_OF_LAST = 0.8
"""Of the runs that have none of these either."""
_LAST_THEMES = (LOST_STATES, ODD_DESCRIPTIONS, REFUSED_RENEWALS)

_THEMES = (
    BAD_RECORDS,
    BAD_RECORDS,
    DOUBTS,
    DOUBTS,
    DEPOSITIONS,
    DEPOSITIONS,
    FLAPPING,
    EVERYTHING_DEAD,
    EARLY_HEALING,
    EARLY_HEALING,
    IDENTITY_TROUBLE,
    CLOCK_JUMPS,
)


_LATER_TRANSACTIONAL = (
    UNLISTED,
    COORDINATOR_MOVES,
    DOUBTED_ENDS,
    TRANSACTIONAL_RECREATIONS,
    TRANSACTIONAL_RECREATIONS_SEEN_EARLY,
    None,
)
"""Of the transactional runs that have no theme then."""


def draw_theme(rng: random.Random, newer: random.Random | None) -> Theme | None:
    """A theme of a run without transactions, or None for a run like most.

    Args:
        newer: The source of a theme in place of the one drawn, in a share of the runs; None for
            none.
    """
    theme = _draw_older_theme(rng)  # even if it is replaced: the theme's faults are drawn from rng
    if newer is not None and newer.random() < _SHARE_OF_NEWER:
        return newer.choice(_NEWER_THEMES)
    return theme


def with_older_brokers(theme: Theme | None, rng: random.Random) -> Theme | None:
    """Return the theme; replaced clusters have no topic ids in a share of the runs."""
    is_older = theme is REPLACEMENTS and rng.random() < _SHARE_BY_NAME
    return REPLACEMENTS_BY_NAME if is_older else theme


def _draw_older_theme(rng: random.Random) -> Theme | None:
    if rng.random() < _SHARE:
        return rng.choice(_THEMES)
    if rng.random() < _SHARE_OF_MANY_TOPICS:
        return MANY_TOPICS
    if rng.random() < _SHARE_OF_IDLE_DAYS:
        return rng.choice(_IDLE_THEMES)
    if rng.random() < _SHARE_OF_LATER:
        return rng.choice(_LATER_THEMES)
    return rng.choice(_LAST_THEMES) if rng.random() < _SHARE_OF_LAST else None


def draw_transactional_theme(
    rng: random.Random, plan: Plan, newer: random.Random | None = None
) -> Theme | None:
    """A theme of a transactional run, or None for a run like most.

    Args:
        rng: The source of the theme.
        plan: The parameters of the run.
        newer: As in `draw_theme`.
    """
    theme = _draw_older_transactional_theme(rng, plan)
    makes_up = all(seat.reads is None for seat in plan.seats)
    if makes_up and newer is not None and newer.random() < _SHARE_OF_REPLACEMENTS:
        return TRANSACTIONAL_REPLACEMENTS
    may_be_old = plan.version == 1 and not plan.share_prepared
    if may_be_old and newer is not None and newer.random() < _SHARE_OF_OLD_COORDINATORS:
        return OLD_COORDINATORS
    return theme


def _draw_older_transactional_theme(rng: random.Random, plan: Plan) -> Theme | None:
    reads = any(seat.reads is not None for seat in plan.seats)
    if rng.random() >= _SHARE_OF_TRANSACTIONAL:
        # V2 adds positions, but no partitions.
        left_out = [LEFT_OUT] * (reads or plan.version == 1)
        theme = rng.choice([*_LATER_TRANSACTIONAL, *left_out])
        return theme or rng.choice((REFUSED_INITS, LOST_STATES, None))
    if reads and rng.random() < _SHARE_OF_READERS:
        return rng.choice((POSITIONS, LATE_POSITIONS))
    # V2 sends no requests to add partitions.
    additions = [LOST_ADDITIONS] * (plan.version == 1)
    return rng.choice([LATE_ENDS, OVERTAKINGS, EARLY_HEALING, SLOW_ENDS, BAD_RECORDS, *additions])


def seeds_of(theme: Theme) -> Iterator[int]:
    """The first seeds whose runs have the theme and no transactions."""
    for seed in range(1, 1000):
        chance = Chance(seed)
        if (
            draw_plan(chance.of("transactions")) is None
            and draw_theme(chance.of("theme"), chance.of("newer theme")) is theme
        ):
            yield seed
