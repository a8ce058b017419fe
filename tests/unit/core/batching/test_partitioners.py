from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.config import ProducerConfig
from aioproducer.core.batching.partitioners import (
    BuiltInPartitioner,
    NodeLatencies,
    RackPreference,
    key_partition,
    partition_load,
    uniform_partition,
)
from aioproducer.core.metadata.cluster import ZERO_ID
from aioproducer.errors import ConfigError
from aioproducer.partitioners import (
    NAMED_PARTITIONERS,
    Crc32Partitioner,
    Murmur2Partitioner,
    Partitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    partition_chooser,
)
from aioproducer.types import Node, PartitionMetadata, TopicMetadata


def topic(*leaders: int, name: str = "t") -> TopicMetadata:
    partitions = tuple(PartitionMetadata(i, leader) for i, leader in enumerate(leaders))
    return TopicMetadata(name, ZERO_ID, partitions)


class Counting(Random):
    """Draws 0, 1, 2, ... (modulo the range), as Java's tests replace its random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = 0

    def randrange(self, start: int, *_: int) -> int:  # type: ignore[override]
        self.drawn += 1
        return (self.drawn - 1) % start


def sticky(size: int, *, adaptive: bool = True, rng: Random | None = None) -> BuiltInPartitioner:
    return BuiltInPartitioner(size, adaptive, rng or Counting())


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # The vectors of Java's UtilsTest, masked to 31 bits.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_go_where_java_sends_them(key: bytes, hashed: int):
    assert key_partition(key, topic(*[1] * 100)) == (hashed & 0x7FFFFFFF) % 100


def test_a_key_keeps_its_partition_when_that_has_no_leader():
    key = b"foobar"
    assert key_partition(key, topic(1, 1, 1)) == key_partition(key, topic(-1, -1, -1))


# -- sticky (KIP-480, KIP-794) -----------------------------------------------------------------


def test_the_partition_is_kept_until_the_sticky_batch_size_is_reached():
    partitioner, three = sticky(3), topic(0, 1, 2)
    first = partitioner.peek(three)
    for _ in range(2):
        partitioner.update(first, 1, three, enable_switch=True)
        assert partitioner.peek(three) == first
    partitioner.update(first, 1, three, enable_switch=True)
    assert partitioner.peek(three) != first


def test_a_topic_with_one_partition_switches_to_itself_for_ever():
    partitioner, one = sticky(1), topic(0)
    for _ in range(10):
        assert partitioner.peek(one) == 0
        partitioner.update(0, 1, one, enable_switch=True)


def test_an_unfinished_batch_puts_the_switch_off_until_twice_the_size():
    partitioner, two = sticky(10), topic(0, 1)
    partitioner.peek(two)
    partitioner.update(0, 19, two, enable_switch=False)
    assert partitioner.peek(two) == 0
    partitioner.update(0, 1, two, enable_switch=False)
    assert partitioner.peek(two) == 1


def test_a_finished_batch_makes_up_for_a_switch_put_off():
    partitioner, two = sticky(10), topic(0, 1)
    partitioner.peek(two)
    partitioner.update(0, 15, two, enable_switch=False)
    partitioner.update(0, 0, two, enable_switch=True)
    assert partitioner.peek(two) == 1


def test_bytes_for_a_partition_that_is_not_current_any_more_are_not_counted():
    partitioner, two = sticky(10), topic(0, 1)
    assert partitioner.peek(two) == 0
    partitioner.update(1, 100, two, enable_switch=True)
    assert partitioner.peek(two) == 0


def test_partitions_without_a_leader_are_left_out_unless_there_is_no_other():
    partitioner = sticky(1, rng=Random(5))
    chosen = set()
    for _ in range(100):
        chosen.add(partitioner.peek(topic(0, -1, 2)))
        partitioner.update(partitioner.peek(topic(0, -1, 2)), 1, topic(0, -1, 2), True)
    assert chosen == {0, 2}
    assert sticky(1).peek(topic(-1, 0)) == 1
    assert sticky(1).peek(topic(-1)) == 0


def test_a_sticky_batch_size_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        sticky(0)


def test_with_the_smallest_size_every_record_makes_progress():
    """KAFKA-14303, KAFKA-14553: batch.size=0 and a switch must not go round for ever."""
    partitioner, four = sticky(max(1, 0)), topic(0, 1, 2, 3)
    seen = []
    for _ in range(8):
        seen.append(partitioner.peek(four))
        partitioner.update(seen[-1], 1, four, enable_switch=True)
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_topic_that_came_back_with_fewer_partitions_gets_a_new_choice():
    partitioner = sticky(10, rng=Random(1))
    partitioner.update_load([9, 9, 0], [0, 1, 2], 3)
    for _ in range(50):
        partitioner.update(partitioner.peek(topic(0, 0, 0)), 10, topic(0, 0, 0), True)
        assert partitioner.peek(topic(0)) == 0


@given(sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=300), seed=st.integers(0, 10**6))
def test_a_partition_gets_between_one_and_two_batches_in_a_row(sizes: list[int], seed: int):
    partitioner, rng, five = sticky(1000, rng=Random(seed)), Random(seed), topic(*range(5))
    produced = 0
    for size in sizes:
        partition = partitioner.peek(five)
        produced += size
        enable_switch = rng.random() < 0.3
        done = produced >= (1000 if enable_switch else 2000)
        partitioner.update(partition, size, five, enable_switch)
        assert 0 <= partitioner.peek(five) < 5
        if done:
            produced = 0
        else:
            assert partitioner.peek(five) == partition


# -- adaptive ----------------------------------------------------------------------------------


def test_queue_sizes_become_a_cumulative_frequency_table():
    partitioner = sticky(1)
    partitioner.update_load([0, 3, 1], [0, 1, 2], 3)
    assert partitioner.cumulative_weights == (4, 5, 8)


def test_partitions_are_chosen_in_reverse_proportion_to_their_queues():
    partitioner, sizes = sticky(1), [5, 0, 3, 0, 1]
    five = topic(*range(5))
    partitioner.update_load(sizes, range(5), 5)
    cycles = 2
    draws = partitioner.cumulative_weights[-1] * cycles
    chosen: Counter[int] = Counter()
    for _ in range(draws):
        partition = partitioner.peek(five)
        chosen[partition] += 1
        partitioner.update(partition, 1, five, enable_switch=True)
    assert [chosen[p] for p in range(5)] == [(6 - size) * cycles for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "length"),
    [(None, 0), ([2, 2, 2], 3), ([1], 1), ([1, 2], 0), ([], 0)],
    ids=["no figures", "all equal", "one partition", "all taken out", "no partition"],
)
def test_the_choice_stays_uniform_where_queues_say_nothing(sizes: list[int] | None, length: int):
    partitioner = sticky(1)
    partitioner.update_load([0, 5], [0, 1], 2)
    partitioner.update_load(sizes, range(len(sizes or [])), length)
    assert partitioner.cumulative_weights == ()


def test_equal_queues_still_count_when_a_partition_is_taken_out():
    partitioner = sticky(1)
    partitioner.update_load([2, 2, 2], [0, 1, 2], 2)
    assert partitioner.cumulative_weights == (1, 2)
    chosen = set()
    for _ in range(10):
        chosen.add(partitioner.peek(topic(0, 0, 0)))
        partitioner.update(partitioner.peek(topic(0, 0, 0)), 1, topic(0, 0, 0), True)
    assert chosen == {0, 1}


def test_the_one_partition_that_is_not_taken_out_is_always_chosen():
    partitioner = sticky(1)
    three = topic(1, 1, 1)
    partitioner.update_load([3, 5, 0], [2, 0, 1], 1)
    chosen = set()
    for _ in range(10):
        partition = partitioner.peek(three)
        chosen.add(partition)
        partitioner.update(partition, 1, three, enable_switch=True)
    assert chosen == {2}


def test_a_partition_that_lost_its_leader_after_the_weights_is_not_chosen():
    partitioner = sticky(1)
    partitioner.update_load([9, 0], [0, 1], 2)
    assert {partitioner.move_on(topic(0, -1)) for _ in range(20)} == {0}


def test_without_adaptive_partitioning_queues_do_not_count():
    partitioner = sticky(1, adaptive=False)
    partitioner.update_load([0, 3, 1], [0, 1, 2], 3)
    assert partitioner.cumulative_weights == ()


# -- slow nodes --------------------------------------------------------------------------------


def test_a_node_that_takes_no_data_for_too_long_is_unavailable_until_it_does():
    latencies = NodeLatencies(timeout_s=5)
    assert latencies.is_available(1)
    latencies.update(1, 0, can_drain=True)
    latencies.update(1, 5, can_drain=False)
    assert latencies.is_available(1)
    latencies.update(1, 5.1, can_drain=False)
    assert not latencies.is_available(1)
    latencies.update(1, 9, can_drain=True)
    assert latencies.is_available(1)


def test_a_node_seen_for_the_first_time_starts_its_clock_then():
    latencies = NodeLatencies(timeout_s=5)
    latencies.update(1, 100, can_drain=False)
    latencies.update(1, 104, can_drain=False)
    assert latencies.is_available(1)


def test_a_timeout_of_zero_turns_the_figures_off():
    latencies = NodeLatencies(timeout_s=0)
    latencies.update(1, 0, can_drain=True)
    latencies.update(1, 999, can_drain=False)
    assert latencies.is_available(1)


@pytest.mark.parametrize("timeout_s", [0.001, 0.5, 1])
def test_a_short_timeout_counts_like_a_long_one(timeout_s: float):
    latencies = NodeLatencies(timeout_s)
    latencies.update(1, 0, can_drain=True)
    latencies.update(1, timeout_s, can_drain=False)
    assert latencies.is_available(1)
    latencies.update(1, timeout_s + 0.001, can_drain=False)
    assert not latencies.is_available(1)


def test_nodes_that_left_are_removed():
    latencies = NodeLatencies(timeout_s=5)
    latencies.update(1, 0, can_drain=True)
    latencies.update(1, 9, can_drain=False)
    latencies.retain({2: object()})
    assert latencies.is_available(1)


def slow_nodes(*node_ids: int) -> NodeLatencies:
    latencies = NodeLatencies(timeout_s=5)
    for node_id in node_ids:
        latencies.update(node_id, 0, can_drain=True)
        latencies.update(node_id, 9, can_drain=False)
    return latencies


def test_no_node_is_too_slow_without_a_limit():
    latencies = NodeLatencies(timeout_s=0)
    latencies.update(1, 0, can_drain=True)
    latencies.update(1, 9, can_drain=False)
    assert latencies.is_available(1)


def test_queues_count_only_once_every_partition_has_had_a_batch():
    assert partition_load({0: 1}, topic(1, 2), slow_nodes()) is None
    assert partition_load({0: 1, 1: 0}, topic(1, 2), slow_nodes()) == ([1, 0], [0, 1], 2)


def test_slow_and_leaderless_partitions_follow_those_that_count():
    load = partition_load({0: 4, 1: 1, 2: 2, 3: 3}, topic(1, -1, 2, 3), slow_nodes(1))
    assert load == ([2, 3, 4, 1], [2, 3, 0, 1], 2)
    partitioner = sticky(1)
    partitioner.update_load(*load)
    assert partitioner.cumulative_weights == (2, 3)


def test_partition_of_a_slow_node_is_left_out_from_its_first_batch_on() -> None:
    assert partition_load({0: 1, 1: 3}, topic(1, 2), slow_nodes(1)) == ([3, 1], [1, 0], 1)


def test_a_slow_node_without_data_is_tried_again():
    load = partition_load({0: 0, 1: 3}, topic(1, 2), slow_nodes(1))
    assert load == ([0, 3], [0, 1], 2)


@pytest.mark.parametrize(
    ("sizes", "counted", "weights"),
    [([3, 0], 2, (1, 5)), ([0, 3], 2, (4, 5)), ([3, 0], 1, (1,)), ([3, 3], 2, ()), ([3], 1, ())],
)
def test_two_partitions_are_enough_to_prefer_one(sizes, counted, weights):
    partitioner = sticky(1)
    partitioner.update_load(sizes, list(range(len(sizes))), counted)
    assert partitioner.cumulative_weights == weights


def test_a_partition_that_never_had_a_leader_does_not_keep_the_queues_from_counting():
    load = partition_load({0: 1, 2: 3}, topic(1, -1, 2), slow_nodes(1))
    assert load == ([3, 1, 0], [2, 0, 1], 1)
    assert partition_load({0: 1}, topic(1, -1, 2), slow_nodes(1)) is None


@pytest.mark.parametrize("slow", [(), (2,)])
def test_a_partition_without_an_entry_has_an_empty_queue(slow):
    # The other entry is of a partition that the topic had before it was created anew.
    load = partition_load({0: 4, 7: 1}, topic(1, 2), slow_nodes(*slow))
    assert load == ([4, 0], [0, 1], 2)


# -- racks (KIP-1123) --------------------------------------------------------------------------


def rack_of(letters: str, rack: str = "a") -> RackPreference:
    """Brokers 0, 1, ... are in the racks of these letters; a dash is no rack."""
    nodes = {
        i: Node(i, "h", 1, None if letter == "-" else letter) for i, letter in enumerate(letters)
    }
    return RackPreference(rack, lambda: nodes)


def test_partitions_led_in_the_own_rack_are_the_only_choice_while_there_are_any():
    partitioner = BuiltInPartitioner(1, True, Random(5), rack_of("aba-"))
    seen = set()
    for _ in range(100):
        seen.add(partitioner.peek(topic(0, 1, 2, 3)))
        partitioner.update(partitioner.peek(topic(0, 1, 2, 3)), 1, topic(0, 1, 2, 3), True)
    assert seen == {0, 2}


@pytest.mark.parametrize("leaders", [(1, 1, 3), (-1, 1, 3)], ids=["none led", "one leaderless"])
def test_without_a_partition_in_the_own_rack_all_are_the_choice(leaders: tuple[int, ...]):
    partitioner = BuiltInPartitioner(1, True, Random(5), rack_of("aba-"))
    seen = set()
    for _ in range(100):
        seen.add(partitioner.peek(topic(*leaders)))
        partitioner.update(partitioner.peek(topic(*leaders)), 1, topic(*leaders), True)
    assert seen == {index for index, leader in enumerate(leaders) if leader >= 0}


def test_a_leader_that_moves_out_of_the_rack_takes_its_partition_out_of_the_choice():
    near = rack_of("ab")
    assert near.partitions_of(topic(0, 0, 1)) == (0, 1)
    assert near.partitions_of(topic(0, 1, 1)) == (0,)


def test_a_client_without_a_rack_has_no_neighbours():
    assert rack_of("a-", rack="").partitions_of(topic(0, 1)) == ()


def test_queues_count_in_the_same_rack_and_slow_brokers_there_are_no_choice():
    queues, four = {0: 4, 1: 0, 2: 2, 3: 0}, topic(0, 1, 2, 3)
    assert partition_load(queues, four, slow_nodes(), (0, 2)) == ([4, 2, 0, 0], [0, 2, 1, 3], 2)
    assert partition_load(queues, four, slow_nodes(0), (0, 2)) == ([2, 4, 0, 0], [2, 0, 1, 3], 1)
    all_of_them = partition_load(queues, four, slow_nodes(0, 2))
    assert partition_load(queues, four, slow_nodes(0, 2), (0, 2)) == all_of_them


def test_queues_in_the_same_rack_count_although_the_others_have_had_no_record():
    queues, four = {0: 4, 2: 2}, topic(0, 1, 2, 3)
    assert partition_load(queues, four, slow_nodes(), (0, 2)) == ([4, 2, 0, 0], [0, 2, 1, 3], 2)
    assert partition_load(queues, four, slow_nodes(0), (0, 2)) == ([2, 4, 0, 0], [2, 0, 1, 3], 1)
    # If all of them are slow, the others are the choice.
    others = ([0, 0, 4, 2], [1, 3, 0, 2], 2)
    assert partition_load(queues, four, slow_nodes(0, 2), (0, 2)) == others
    assert partition_load({0: 4}, four, slow_nodes(), (0, 2)) is None


# -- public partitioners -----------------------------------------------------------------------


def test_round_robin_takes_each_partition_in_turn_per_topic():
    partitioner = RoundRobinPartitioner()
    a, b = topic(1, 1, 1, name="a"), topic(1, 1, name="b")
    assert [partitioner.partition("a", b"k", b"", a) for _ in range(4)] == [0, 1, 2, 0]
    assert [partitioner.partition("b", None, b"", b) for _ in range(3)] == [0, 1, 0]
    assert partitioner.partition("a", None, b"", a) == 1


def test_round_robin_passes_over_partitions_without_a_leader_unless_there_is_no_other():
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", None, b"", topic(1, -1, 2)) for _ in range(4)] == [0, 2] * 2
    assert [partitioner.partition("t", None, b"", topic(-1, -1)) for _ in range(2)] == [0, 1]


def test_random_reaches_every_partition_that_has_a_leader():
    partitioner = RandomPartitioner(Random(1))
    chosen = {partitioner.partition("t", b"k", b"", topic(1, -1, 2, 3)) for _ in range(200)}
    assert chosen == {0, 2, 3}
    assert uniform_partition(topic(-1, -1), Counting()) == 0


@given(key=st.binary(min_size=1), count=st.integers(1, 50))
def test_crc32_is_librdkafkas_consistent_partitioner(key: bytes, count: int):
    chosen = Crc32Partitioner(Random(1)).partition("t", key, None, topic(*[1] * count))
    assert chosen == crc32(key) % count


@pytest.mark.parametrize("key", [None, b""])
def test_crc32_draws_for_null_and_empty_keys_or_hashes_them_without_an_rng(key: bytes | None):
    ten = topic(*[1] * 10)
    assert Crc32Partitioner().partition("t", key, None, ten) == 0
    drawing = Crc32Partitioner(Random(1))
    assert len({drawing.partition("t", key, None, ten) for _ in range(200)}) == 10


def test_murmur2_draws_for_a_null_key_but_hashes_an_empty_one():
    ten = topic(*[1] * 10)
    drawing = Murmur2Partitioner(Random(1))
    assert len({drawing.partition("t", None, None, ten) for _ in range(200)}) == 10
    assert {drawing.partition("t", b"", None, ten) for _ in range(20)} == {key_partition(b"", ten)}
    assert Murmur2Partitioner().partition("t", None, None, ten) == key_partition(b"", ten)


def chooser(**options):
    config = ProducerConfig(bootstrap_servers="a:1", **options)
    return partition_chooser(
        config.partitioner, Random(1), ignore_keys=config.partitioner_ignore_keys
    )


def test_the_default_hashes_keys_and_leaves_the_rest_to_the_sticky_partitioner():
    choose, ten = chooser(), topic(*[1] * 10)
    assert choose("t", b"foobar", b"", ten) == key_partition(b"foobar", ten)
    assert choose("t", b"", b"", ten) == key_partition(b"", ten)
    assert choose("t", None, b"", ten) is None


def test_keys_can_be_ignored():
    assert chooser(partitioner_ignore_keys=True)("t", b"foobar", b"", topic(1, 1)) is None


@pytest.mark.parametrize("name", NAMED_PARTITIONERS)
def test_every_named_partitioner_can_be_configured_and_chooses_a_partition(name: str):
    choose, three = chooser(partitioner=name), topic(1, 1, 1)
    without_key = {None} if name.startswith("java") else {0, 1, 2}
    assert choose("t", None, b"", three) in without_key
    assert {choose("t", key, b"", three) in {0, 1, 2} for key in (b"", b"k")} == {True}
    assert isinstance(NAMED_PARTITIONERS[name](Random(1)), Partitioner)


def test_a_function_or_an_object_of_the_user_is_asked():
    asked = []

    def choose(topic_name, key, value, cluster):
        asked.append((topic_name, key, value, len(cluster.partitions)))
        return 1

    two = topic(1, 1)
    assert chooser(partitioner=choose)("t", b"k", b"v", two) == 1
    assert chooser(partitioner=SimpleNamespace(partition=choose))("t", None, b"v", two) == 1
    assert asked == [("t", b"k", b"v", 2), ("t", None, b"v", 2)]


def test_unknown_names_are_refused_by_the_configuration():
    with pytest.raises(ConfigError, match="partitioner"):
        chooser(partitioner="by_moonlight")


def test_near_partitions_are_found_again_when_the_topic_or_the_brokers_change() -> None:
    racks = {1: Node(1, "h", 1, "a"), 2: Node(2, "h", 2, "b")}
    known = [racks]
    near = RackPreference("a", lambda: known[0])
    first, second = topic(1, 2), topic(2, 1)
    assert near.partitions_of(first) == (0,)
    assert near.partitions_of(second) == (1,)
    known[0] = {1: racks[1]._replace(rack="b"), 2: racks[2]._replace(rack="a")}
    assert near.partitions_of(second) == (0,)
    # The same brokers and topic are not searched again.
    racks_before, known[0][1] = known[0][1], racks[1]
    assert near.partitions_of(second) == (0,)
    known[0][1] = racks_before
    assert RackPreference("", lambda: known[0]).partitions_of(first) == ()
