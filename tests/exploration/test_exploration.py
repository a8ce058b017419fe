"""Small explorations find nothing, find what is planted, and remember what they have found."""

from __future__ import annotations

from pathlib import Path

import pytest

from exploration.checks import check
from exploration.configs import LARGE, SMALL, SMALL_STATES
from exploration.defects import DEFECTS, OWN, PACKAGE, Defect, hunt
from exploration.explorer import (
    Explorer,
    key_of,
    options,
    read_schedule,
    replay,
    write_schedule,
)
from exploration.records import tiny_records
from exploration.state import restore, snapshot
from exploration.world import Config, World

SCHEDULES = Path(__file__).with_name("schedules.txt")
QUICKLY_FOUND = ("sleep over a response", "skip a sequence after each batch")
CONFIGS = {config.name: config for config in (*SMALL, *LARGE)}


def _is_slow(config: Config) -> bool:
    return config.faults > 1 and bool(config.script)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(config, id=config.name, marks=pytest.mark.slow if _is_slow(config) else ())
        for config in SMALL
    ],
)
def test_nothing_is_wrong_in_a_small_configuration(config: Config) -> None:
    result = Explorer(config).run(states=SMALL_STATES)
    assert result.violation is None, str(result)


def _schedules() -> list[tuple[str, str]]:
    lines = SCHEDULES.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return [(name, schedule) for name, _, schedule in pairs]


@pytest.mark.parametrize(("name", "schedule"), _schedules())
def test_a_schedule_that_once_went_wrong_comes_to_a_good_end(name: str, schedule: str) -> None:
    assert replay(CONFIGS[name], read_schedule(schedule)) is None


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_every_defect_still_has_its_place(defect: Defect) -> None:
    source = PACKAGE / defect.file
    assert source.read_text(encoding="utf-8").count(defect.old) == 1


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_planted_defect_is_found(name: str) -> None:
    (defect,) = (each for each in OWN if each.name == name)
    assert hunt(defect) is not None


def test_a_restored_state_goes_on_like_the_one_it_was_made_of() -> None:
    (config,) = (each for each in SMALL if each.name == "large batches")
    with tiny_records():
        world = World(config)
        while not world.is_over:
            copy: World = restore(snapshot(world))
            assert key_of(copy) == key_of(world)
            event = options(world)[0][0]
            for each in (world, copy):
                each.apply(event)
                check(each)
            assert key_of(copy) == key_of(world)


def test_the_order_of_independent_events_makes_no_other_state() -> None:
    config = Config("two nodes", (0, 1), 0, frozenset(), nodes=2)
    begin = read_schedule("turn send send turn")
    with tiny_records():
        keys = set()
        for end in ("execute:0 execute:1", "execute:1 execute:0"):
            world = World(config)
            for event in (*begin, *read_schedule(end)):
                if event in options(world)[0]:
                    world.apply(event)
            keys.add(key_of(world))
    assert len(keys) == 1


def test_a_schedule_reads_as_it_was_written() -> None:
    schedule = read_schedule("turn send execute:1 tick")
    assert schedule == [("turn",), ("send",), ("execute", 1), ("tick",)]
    assert write_schedule(schedule) == "turn send execute:1 tick"
