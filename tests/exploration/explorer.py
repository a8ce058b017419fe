"""Every interleaving of a configuration, breadth first, so that what is found first is shortest.

A state is expanded once: states are recognized by their fingerprints. Liveness is judged on the
graph: from each state a scheduler that is fair and adds no fault follows one edge, and must come
to an end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from exploration.checks import check
from exploration.records import tiny_records
from exploration.state import IGNORED, fingerprint, restore, snapshot
from exploration.transactions import TransactionalWorld, check_transactions
from exploration.world import Config, Event, ViolationError, World

LONGEST_S = 12.0
"""After that long without a fault everything has ended."""

IGNORED["World"] = IGNORED["TransactionalWorld"] = frozenset(  # type: ignore[index]
    {"batches", "config", "faults", "now", "routes_version"}
)


@dataclass
class Result:
    """The results of an exploration."""

    name: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    is_complete: bool = False
    schedule: list[Event] = field(default_factory=list)
    """The shortest one that leads to `violation`."""
    violation: str | None = None

    def __str__(self) -> str:
        end = "all" if self.is_complete else "not all"
        line = (
            f"{self.name:<24} {self.states:>9,} states ({end}), "
            f"{self.transitions:>10,} transitions, depth {self.depth:>3}, {self.seconds:6.1f} s"
        )
        if self.violation is None:
            return line
        return f"{line}\n  {self.violation}\n  {write_schedule(self.schedule)}"


def write_schedule(schedule: Iterable[Event]) -> str:
    """A schedule as one line of text."""
    return " ".join(":".join(map(str, event)) for event in schedule)


def read_schedule(line: str) -> list[Event]:
    """Return what `write_schedule` has written."""
    schedule: list[Event] = []
    for word in line.split():
        name, _, argument = word.partition(":")
        schedule.append((name, int(argument)) if argument else (name,))
    return schedule


def key_of(world: World) -> int:
    """The fingerprint of a state."""
    faults = min(world.faults, world.config.faults)
    are_known = world.routes_version == world.metadata.version
    return fingerprint(world.now, faults, are_known, world)


def options(world: World) -> tuple[list[Event], int]:
    """The events to try, and how many of them a fair scheduler may choose, the first one first."""
    if world.is_over:
        return world.side_events(), 0
    events = world.events()
    for event in events:
        if event[0] in world.config.at_once:
            return [event], 1
    if not events and world.timed_out:
        # What is left may be close to its own expiry.
        events = [("expire",)] if world.next_expiry < float("inf") else []
    fair = len(events)
    events += world.side_events()
    if world.faults < world.config.faults:
        events += [event for event in world.fault_events() if event not in events]
    return events, fair


def step(world: World, event: Event) -> str | None:
    """Let an event happen; what is wrong afterwards, if anything."""
    try:
        world.apply(event)
        check(world)
        if isinstance(world, TransactionalWorld):
            check_transactions(world)
    except ViolationError as violation:
        return str(violation)
    except Exception as error:
        return f"raised {error!r}"
    return None


def make_world(config: Config) -> World:
    """The first state."""
    return TransactionalWorld(config) if config.script else World(config)


class Explorer:
    """One exploration.

    Args:
        config: what is explored.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.result = Result(config.name)
        self._parents: dict[int, tuple[int, Event] | None] = {}
        self._fair: dict[int, tuple[int, float]] = {}

    def run(self, *, seconds: float = 1e9, states: int = 1 << 60) -> Result:
        """Explore until all is seen, something is found, or the time is over."""
        began = time.process_time()
        with tiny_records():
            self._run(began + seconds, states)
        self.result.seconds = time.process_time() - began
        return self.result

    def _run(self, end: float, most: int) -> None:
        result = self.result
        world = make_world(self._config)
        key = key_of(world)
        self._parents[key] = None
        level = [(key, snapshot(world))]
        while level and result.violation is None:
            following: list[tuple[int, bytes]] = []
            for key, data in level:
                if time.process_time() > end or len(self._parents) > most:
                    result.states = len(self._parents)
                    self._judge_liveness()
                    return
                self._expand(key, data, following)
                if result.violation is not None:
                    break
            else:
                result.depth += bool(following)
            level = following
        result.states = len(self._parents)
        result.is_complete = result.violation is None
        if result.is_complete:
            self._judge_liveness()

    def _expand(self, key: int, data: bytes, following: list[tuple[int, bytes]]) -> None:
        result = self.result
        world: World = restore(data)
        events, fair = options(world)
        if not fair and not world.is_over:
            self._found(key, None, "nothing happens any more, and not everything has an outcome")
            return
        for number, event in enumerate(events):
            if number:
                world = restore(data)
            before = world.now
            violation = step(world, event)
            result.transitions += 1
            if violation is not None:
                self._found(key, event, violation)
                return
            child = key_of(world)
            if not number and fair:
                self._fair[key] = child, world.now - before
            if child not in self._parents:
                self._parents[child] = key, event
                following.append((child, snapshot(world)))

    def _found(self, key: int, event: Event | None, violation: str) -> None:
        self.result.violation = violation
        schedule = [] if event is None else [event]
        parent = self._parents[key]
        while parent is not None:
            key, before = parent
            schedule.append(before)
            parent = self._parents[key]
        self.result.schedule = schedule[::-1]

    def _judge_liveness(self) -> None:
        """From each state the fair edges lead to an end, soon."""
        took: dict[int, float] = {}
        for start in self._parents:
            path: list[int] = []
            key = start
            on_path: set[int] = set()
            while key in self._fair and key not in took and key not in on_path:
                path.append(key)
                on_path.add(key)
                key = self._fair[key][0]
            if key in on_path:
                self._found(start, None, "goes on for ever without coming to an end")
                return
            seconds = took.get(key, 0.0)
            for each in reversed(path):
                seconds += self._fair[each][1]
                took[each] = seconds
            if seconds > LONGEST_S and path:
                self._found(start, None, f"takes {seconds} s to come to an end")
                return


def explore_for(config: Config, seconds: float) -> Result:
    """Explore one configuration for so many seconds of CPU time at most."""
    return Explorer(config).run(seconds=seconds)


def replay(config: Config, schedule: Sequence[Event]) -> str | None:
    """Follow a schedule, then let all come to a fair end; what is wrong, if anything.

    An event that cannot happen any more is passed over: the core has changed since.
    """
    with tiny_records():
        world = make_world(config)
        for event in schedule:
            possible = [*options(world)[0], *world.fault_events()]
            if event not in possible:
                continue
            violation = step(world, event)
            if violation is not None:
                return violation
        for _ in range(1000):
            events, fair = options(world)
            if not fair:
                return None if world.is_over else "nothing happens any more"
            violation = step(world, events[0])
            if violation is not None:
                return violation
    return "goes on for ever without coming to an end"
