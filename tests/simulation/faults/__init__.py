"""Everything that can go wrong in a run.

Owns: the list of the kinds, and how a schedule is drawn. Not here: what a kind does.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from aioproducer.testing.world.faults import Fault, Shape
from simulation.faults.answers import (
    CutAnswer,
    DuplicateAnswer,
    ErrorAfterWrite,
    FinalRefusal,
    FirstRefused,
    InitProducerIdError,
    InventedAnswer,
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
    OddAnswer,
    OddDescription,
    Refusal,
    SwallowedRequest,
    Throttle,
    UnansweredInitProducerId,
    WrongAnswer,
)
from simulation.faults.brokers import (
    ClockJump,
    ControllerAway,
    Crash,
    CrashAfterAppend,
    CrashBeforeAppend,
    DeposedLeader,
    Freeze,
    LeaderMove,
    PartitionGrowth,
    PowerLoss,
    RefusedLogins,
    ReleaseChange,
    ReplacedCluster,
    ReplicaLag,
    StaleMetadata,
    TopicCreation,
    TopicDeletion,
    TopicRecreation,
    UnawareBrokers,
    UnlistedBroker,
    UnseenGrowth,
)
from simulation.faults.coordinators import (
    CoordinatorDiesAfter,
    CoordinatorDiesBefore,
    CoordinatorError,
    CoordinatorMove,
    CoordinatorMovesAt,
    ErrorAfterWork,
    FinalCoordinatorError,
    HeldRequest,
    LateCoordinatorAnswer,
    LeftOutByCoordinator,
    LostAddition,
    LostByCoordinator,
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
from simulation.faults.network import (
    BlackHole,
    HalfClose,
    NarrowLink,
    NoName,
    Refuse,
    Reset,
    SlowAccept,
    SlowLink,
)
from simulation.faults.processes import (
    EpochsUsedUp,
    Kill,
    Rebalance,
    TransactionUpgrade,
    Usurpation,
)
from simulation.releases import WITHOUT_IDS

__all__ = [
    "KINDS",
    "THEMATIC_KINDS",
    "TRANSACTIONAL_KINDS",
    "draw_changes",
    "draw_odd_answers",
    "draw_refused_logins",
    "draw_release_changes",
    "draw_schedule",
]

_FEWEST, _MOST = 3, 16
_STORM_S = 2.0
_SHARE_OF_ODD_ANSWERS, _ODD_ANSWERS = 0.12, 12
_SHARE_OF_CHANGES, _CHANGES = 0.08, 8
_LATE_MS, _GONE_AFTER_S = 1500, 0.3
_RELEASE_PASSES, _SECONDS_OF_CHANGE, _MOVES_AFTER_S = (1, 1, 2, 3), (0.1, 2.0), (0.1, 3.0)
_LOST_IDS = 8
_REFUSALS_OF_LOGINS, _SECONDS_OF_REFUSAL = 5, (0.5, 3.0)

KINDS: Final[tuple[type[Fault], ...]] = (
    BlackHole,
    SlowLink,
    NarrowLink,
    Refuse,
    SlowAccept,
    NoName,
    Reset,
    HalfClose,
    Crash,
    PowerLoss,
    CrashBeforeAppend,
    CrashAfterAppend,
    Freeze,
    LeaderMove,
    DeposedLeader,
    StaleMetadata,
    ReplicaLag,
    ControllerAway,
    PartitionGrowth,
    ClockJump,
    Refusal,
    FinalRefusal,
    ErrorAfterWrite,
    MixedErrors,
    KeysRequired,
    MetadataError,
    Throttle,
    LateAnswer,
    LostRequest,
    LostAnswer,
    SwallowedRequest,
    CutAnswer,
    WrongAnswer,
    LeftOutAnswer,
    InventedAnswer,
    InitProducerIdError,
)
"""Every kind of fault; a kind that never happens in many seeds fails the run."""

TRANSACTIONAL_KINDS: Final[tuple[type[Fault], ...]] = (
    CoordinatorError,
    FinalCoordinatorError,
    ErrorAfterWork,
    LostByCoordinator,
    LateCoordinatorAnswer,
    HeldRequest,
    HeldEnd,
    HeldEnd,
    CoordinatorDiesBefore,
    CoordinatorDiesAfter,
    CoordinatorMove,
    SlowMarkers,
    TransactionUpgrade,
    EpochsUsedUp,
    Kill,
    Kill,
    Usurpation,
    Usurpation,
    Rebalance,
)
"""What strikes transactional runs besides everything else; some more often."""

THEMATIC_KINDS: Final[tuple[type[Fault], ...]] = (
    CoordinatorMovesAt,
    LostAddition,
    LeftOutByCoordinator,
    HeldPositions,
    OvertakenRenewal,
    PositionsRefused,
    UnansweredInitProducerId,
    TopicCreation,
    TopicDeletion,
    TopicRecreation,
    RecreationBeforeAnswer,
    LeaderLosesProducers,
    RecreationBeforeEnd,
    LeaderWithoutProducers,
    OddAnswer,
    OddDescription,
    ReplacedCluster,
    UnlistedBroker,
    UnawareBrokers,
    UnseenGrowth,
    RefusedLogins,
    ReleaseChange,
    LateDescription,
    FirstRefused,
    DuplicateAnswer,
)
"""What only themes and the functions below for odd answers, changes, logins and releases bring."""


def draw_schedule(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Some faults between two virtual times, in their order.

    In half of the schedules most of them come in a few storms, on top of each other and around one
    broker.
    """
    count = rng.randint(_FEWEST, _MOST)
    calm = rng.choice((0.25, 1.0))
    storms = [
        (rng.uniform(start, end - _STORM_S), shape._replace(nodes=(rng.choice(shape.nodes),)))
        for _ in range(rng.randint(1, 3))
    ]
    # Where there are transactions, half of what happens is about them.
    kinds = KINDS + TRANSACTIONAL_KINDS * 2 if shape.seats else KINDS
    faults = []
    for _ in range(count):
        at, aim = rng.uniform(start, end), shape
        if rng.random() >= calm:
            begins, aim = rng.choice(storms)
            at = begins + rng.uniform(0, _STORM_S)
        faults.append(rng.choice(kinds).draw(rng, round(at, 3), aim))
    return sorted(faults, key=lambda fault: fault.at)


def draw_odd_answers(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Odd answers, in a share of the runs."""
    if rng.random() >= _SHARE_OF_ODD_ANSWERS:
        return []
    return [
        OddAnswer.draw(rng, round(rng.uniform(start, end), 3), shape) for _ in range(_ODD_ANSWERS)
    ]


def draw_changes(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Partitions that a broker's metadata lack, or brokers that leave, in a share of the runs.

    A broker that leaves has yet to answer, and metadata are requested since a connection ends.
    """
    share = rng.random()
    faults: list[Fault] = []
    for _ in range(_CHANGES):
        at, node_id = round(rng.uniform(start, end), 3), rng.choice(list(shape.nodes))
        if share < _SHARE_OF_CHANGES:
            faults.append(UnseenGrowth.draw(rng, at, shape))
        elif share > 1 - _SHARE_OF_CHANGES:
            faults.append(LateAnswer(at, node_id, 2, _LATE_MS))
            faults.append(UnlistedBroker(at, node_id, _LATE_MS / 1000))
            others = [each for each in shape.nodes if each != node_id]
            faults.append(Reset(round(at + _GONE_AFTER_S, 3), rng.choice(others)))
    return faults


def draw_refused_logins(rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
    """Brokers that refuse logins, one or all, and end connections, so that some are tried."""
    faults: list[Fault] = []
    for number in range(_REFUSALS_OF_LOGINS):
        seconds = rng.choice(_SECONDS_OF_REFUSAL)
        at = round(rng.uniform(start, end - seconds), 3)
        nodes = list(shape.nodes) if number == 0 else [rng.choice(list(shape.nodes))]
        for node_id in nodes:
            faults += [RefusedLogins(at, node_id, seconds), Reset(at, node_id)]
    return faults


def draw_release_changes(
    rng: random.Random, shape: Shape, start: float, end: float, releases: tuple[str, str]
) -> list[Fault]:
    """Brokers that are upgraded one after the other, and maybe back again; some are at first.

    After each of them leaders and coordinators move. The feature is tried to be finalized.
    """
    older, newer = releases
    moves: list[type[Fault]] = [LeaderMove]
    if shape.seats:
        moves += CoordinatorMove, TransactionUpgrade
    is_before_ids = older == WITHOUT_IDS
    most = len(shape.nodes) - 1
    begun = rng.sample(list(shape.nodes), most if is_before_ids else rng.randint(0, most))
    faults: list[Fault] = [ReleaseChange(0.0, each, 0.0, newer) for each in begun]
    if is_before_ids:  # requests are refused or lost, records wait, and then an older one is asked
        faults.append(InitProducerIdError.draw(rng, 0.0, shape))
        lost = UnansweredInitProducerId.draw(rng, 0.0, shape)
        faults.append(replace(lost, times=_LOST_IDS, closes=True))  # another broker is asked next
    steps = [(each, newer) for each in shape.nodes if each not in begun]
    rng.shuffle(steps)
    for number in range(1, rng.choice(_RELEASE_PASSES)):
        order = rng.sample(list(shape.nodes), len(shape.nodes))
        steps += [(each, older if number % 2 else newer) for each in order]
    steps = steps[: rng.randint(1, len(steps))]
    for at, (node_id, release) in zip(
        sorted(rng.uniform(start, end) for _ in steps), steps, strict=True
    ):
        seconds = round(rng.uniform(*_SECONDS_OF_CHANGE), 3)
        faults.append(ReleaseChange(round(at, 3), node_id, seconds, release))
        for kind in moves:
            then = min(at + seconds + rng.uniform(*_MOVES_AFTER_S), end)
            faults.append(kind.draw(rng, round(then, 3), shape))
    return faults
