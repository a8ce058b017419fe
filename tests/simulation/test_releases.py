"""Runs with brokers of two releases: which ones have them, and how brokers change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.spec import Chance
from aioproducer.testing.world.world import SimWorld
from aioproducer.wire.api_keys import ApiKey
from simulation.faults.brokers import ReleaseChange
from simulation.faults.processes import TransactionUpgrade
from simulation.releases import RELEASES, all_serve, serves, with_two_releases
from simulation.scenario import Scenario, draw_scenario
from simulation.simulation import run_seed
from simulation.transactions.plan import draw_plan

TWO_BROKERS, FIRST_WITH_IDS = (1, 2), 13


def _drawn(*, plans: bool) -> list[Scenario]:
    drawn = []
    for seed in range(1000):
        scenario, rng = draw_scenario(random.Random(seed)), random.Random(f"releases {seed}")
        if plans:
            scenario = replace(scenario, transactions=draw_plan(random.Random(f"plan {seed}")))
        drawn.append(with_two_releases(scenario, rng))
    return [each for each in drawn if each.releases is not None]


@contextmanager
def _world(older: str) -> Iterator[SimWorld]:
    chance = Chance(1)
    brokers = {"api_versions": RELEASES[older], "transaction_version": 1}
    scenario = replace(
        draw_scenario(random.Random(1)), nodes=TWO_BROKERS, topics={}, brokers=brokers
    )
    loop = VirtualLoop(chance.of("executor"))
    try:
        yield SimWorld(chance, loop, scenario)
    finally:
        loop.close()


def test_some_runs_have_two_neighbouring_releases() -> None:
    drawn = _drawn(plans=False)
    assert 90 < len(drawn) < 150
    assert {each.releases for each in drawn} == set(pairwise(RELEASES))
    assert all(each.brokers["api_versions"] == RELEASES[each.releases[0]] for each in drawn)


def test_a_theme_that_sets_versions_keeps_them() -> None:
    brokers = {"api_versions": RELEASES["2.8"]}
    scenario = replace(draw_scenario(random.Random(1)), brokers=brokers)
    for seed in range(50):
        assert with_two_releases(scenario, random.Random(seed)) is scenario


def test_transactions_of_a_run_begin_in_v1_where_a_broker_lacks_v2() -> None:
    drawn = [each for each in _drawn(plans=True) if each.transactions is not None]
    versions = {each.releases: set[int]() for each in drawn}
    for each in drawn:
        versions[each.releases].add(each.transactions.version)
    assert versions.pop(("4.0", "4.1")) == {1, 2}
    assert set.union(*versions.values()) == {1}
    assert ("2.4", "2.5") not in versions


def test_each_release_serves_at_least_the_versions_of_the_one_before() -> None:
    for older, newer in pairwise(RELEASES.values()):
        assert older != newer
        for api, versions in older.items():
            assert versions is None or serves(newer, api, versions[1])


def test_a_broker_comes_back_in_another_release() -> None:
    with _world("4.0") as world:
        assert not serves(world.cluster.settings.api_versions_of(2), ApiKey.PRODUCE, FIRST_WITH_IDS)
        probe = ReleaseChange(0.0, 2, 1.0, "4.1").strike(world)
        assert probe() == 1
        assert not world.cluster.is_live(2)
        assert serves(world.cluster.settings.api_versions_of(2), ApiKey.PRODUCE, FIRST_WITH_IDS)
        assert not all_serve(world.cluster, ApiKey.PRODUCE, FIRST_WITH_IDS)


def test_transaction_version_is_finalized_when_all_brokers_support_it() -> None:
    with _world("3.8") as world:
        for node_id in TWO_BROKERS:
            assert TransactionUpgrade(0.0).strike(world)() == 0
            ReleaseChange(0.0, node_id, 0.0, "4.0").strike(world)
        assert TransactionUpgrade(0.0).strike(world)() == 1
        assert world.cluster.transaction_version == 2


def test_a_broker_that_lacks_a_finalized_feature_does_not_start() -> None:
    with _world("4.0") as world:
        world.cluster.set_transaction_version(2)
        assert ReleaseChange(0.0, 1, 1.0, "3.8").strike(world)() == 0
        assert world.cluster.is_live(1)
        assert all_serve(world.cluster, ApiKey.END_TXN, 5)


@pytest.mark.parametrize("seed", [65, 156])
def test_brokers_of_a_run_change_one_after_the_other(seed: int) -> None:
    result = run_seed(seed)
    assert result.happened["release change"] > 1
    assert result.violations == []
