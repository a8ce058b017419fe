from __future__ import annotations

import time
from math import inf
from random import Random
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.metadata.cluster import MAX_BROKERS, ZERO_ID, check_topic_name
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.sending.reasons import Reason
from aioproducer.core.transactions import coordinator_queries
from aioproducer.errors import (
    AuthenticationError,
    InvalidPartitionError,
    InvalidTopicError,
    NodeDisconnectedError,
    ProtocolError,
    RequestTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.common import NodeEndpoint
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC, UNAUTHORIZED = 3, 5, 17, 29
REBOOTSTRAP_REQUIRED = 129
ID_A, ID_B = UUID(int=1), UUID(int=2)


def new_metadata(**overrides) -> Metadata:
    options = {
        "max_age_s": 300.0,
        "max_idle_s": 300.0,
        "backoff": ExponentialBackoff(0.1, 1.0, jitter=0),
        "allow_auto_create": True,
        "rng": Random(1),
    }
    return Metadata(**(options | overrides))


def topic(
    name: str = "t",
    *partitions: tuple[int, int],
    topic_id: UUID = ID_A,
    error: int = 0,
    partition_errors: dict[int, int] | None = None,
) -> MetadataResponseTopic:
    """`partitions` are (leader, epoch) pairs."""
    errors = partition_errors or {}
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=ZERO_ID if error else topic_id,
        partitions=[
            MetadataResponsePartition(
                error_code=errors.get(index, 0),
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[1, 2, 3],
                isr_nodes=[1, 2, 3],
            )
            for index, (leader, epoch) in enumerate(partitions)
        ],
    )


def response(*topics: MetadataResponseTopic, nodes=(1, 2, 3), **fields) -> MetadataResponse:
    facts = {"cluster_id": "cluster", "controller_id": 1} | fields
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n, host=f"host{n}", port=9092, rack=None) for n in nodes
        ],
        topics=list(topics),
        **facts,
    )


def answer(metadata: Metadata, now: float, *topics: MetadataResponseTopic, **fields) -> list[str]:
    """Lets the due request go out and answers it; returns what was asked for."""
    assert metadata.next_update_at(now) <= now
    asked = metadata.start_request(now).topics
    assert metadata.on_response(response(*topics, **fields), now)
    return asked


def ready(**overrides) -> Metadata:
    """Metadata that has topic `t` with two partitions led by 1 and 2, asked at time 0."""
    metadata = new_metadata(**overrides)
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", (1, 5), (2, 5)))
    return metadata


def node(node_id: int) -> NodeEndpoint:
    return NodeEndpoint(node_id=node_id, host=f"host{node_id}", port=9092, rack=None)


# -- what is asked for, and when ---------------------------------------------------------------


def test_the_first_request_is_due_at_once_and_asks_for_no_topic():
    metadata = new_metadata()
    assert metadata.next_update_at(17.0) == 17.0
    assert metadata.start_request(17.0).topics == []


def test_a_name_that_no_topic_has_is_refused_and_no_broker_is_asked_for_it():
    metadata = ready()
    with pytest.raises(InvalidTopicError, match="'a/b' is no topic name"):
        metadata.add_topic("a/b", 1)
    assert metadata.topics_in_use == {"t"}
    assert metadata.next_update_at(2) == 300


@pytest.mark.parametrize("name", [5, b"t", "a/b"])
def test_the_advice_for_a_bad_name_is_about_this_name(name):
    with pytest.raises(InvalidTopicError) as caught:
        check_topic_name(name)
    assert caught.value.advice in {"give the name as text", "correct the topic's name"}


def test_an_object_that_only_has_the_class_of_a_text_is_no_topic_name():
    class Lazy:
        __class__ = str

    with pytest.raises(InvalidTopicError, match="a topic's name is a str, not Lazy"):
        check_topic_name(Lazy())


def test_nothing_is_due_while_a_request_is_out():
    metadata = new_metadata()
    metadata.start_request(0)
    metadata.request_update()
    assert metadata.next_update_at(99) == inf


def test_an_update_that_is_requested_while_one_is_out_follows_its_answer():
    metadata = ready()
    metadata.request_update()
    fetch = metadata.start_request(1)
    metadata.request_update()  # the response may be older than what was seen now
    metadata.on_response(response(topic("t", (1, 5), (2, 5))), 1.02)
    assert not fetch.partial
    assert metadata.next_update_at(1.02) == pytest.approx(1.12)
    answer(metadata, 1.12, topic("t", (1, 5), (2, 5)))
    assert metadata.next_update_at(2) == pytest.approx(301.12)


def test_topic_that_is_requested_while_a_request_is_out_is_in_the_next_one():
    metadata = ready()
    metadata.request_topic("t", 1)
    metadata.start_request(1)
    metadata.request_topic("t", 1.01)  # its leader has refused a batch after it was asked
    metadata.on_response(response(topic("t", (1, 5), (2, 5))), 1.02)
    assert answer(metadata, 1.12, topic("t", (1, 5), (2, 5))) == ["t"]
    metadata.request_topic("t", 2)
    metadata.start_request(2)
    metadata.on_failure(NodeDisconnectedError("gone"), 2.01)
    assert answer(metadata, 2.11, topic("t", (1, 5), (2, 5))) == ["t"]
    assert metadata.next_update_at(3) == pytest.approx(300)


def test_a_full_update_that_fails_is_due_again_after_the_backoff():
    metadata = ready()
    metadata.request_update()
    metadata.start_request(1)
    metadata.on_failure(NodeDisconnectedError("gone"), 1.01)
    assert metadata.next_update_at(1.01) == pytest.approx(1.11)
    assert not metadata.start_request(1.11).partial


def test_everything_is_asked_for_again_when_the_last_full_answer_is_too_old():
    metadata = ready()
    assert metadata.next_update_at(1) == 300
    assert metadata.start_request(300).topics == ["t"]


def test_a_requested_update_waits_for_the_backoff_after_the_last_answer():
    metadata = ready()
    metadata.request_update()
    assert metadata.next_update_at(0.02) == pytest.approx(0.1)
    assert metadata.next_update_at(5) == 5


def test_a_new_topic_is_asked_for_at_once_and_alone():
    metadata = ready()
    metadata.add_topic("u", 0.01)
    assert metadata.next_update_at(0.01) == 0.01
    fetch = metadata.start_request(0.01)
    assert (fetch.topics, fetch.partial) == (["u"], True)


def test_backoff_doubles_with_every_answer_that_changes_nothing_since_a_topic_was_added():
    metadata = ready()
    for now in (1.0, 2.0, 3.0):
        metadata.request_update()
        answer(metadata, now, topic("t", (1, 5), (2, 5)))
    now, waits = 10.0, []
    metadata.add_topic("absent", now)
    for _ in range(3):
        answer(metadata, now, topic("absent", error=UNKNOWN_TOPIC))
        metadata.request_topic("absent", now)
        waits.append(metadata.next_update_at(now) - now)
        now += 5
    assert waits == pytest.approx([0.1, 0.2, 0.4])


@pytest.mark.parametrize("partition", [-1, 2])
def test_partition_that_the_topic_does_not_have_is_explained_by_their_number(partition: int):
    assert "the topic has 2 partition(s)" in ready().explain("t", partition).text


def test_no_answer_is_full_before_the_first():
    metadata = new_metadata()
    assert not metadata.last_answer_is_full
    assert metadata.cluster.controller_id == -1
    answer(metadata, 0)
    assert metadata.last_answer_is_full


def test_a_new_topic_is_asked_for_at_once_and_the_others_keep_their_backoff():
    metadata = ready()
    metadata.add_topic("x", 1)
    answer(metadata, 1, topic("x", error=UNKNOWN_TOPIC))
    assert metadata.next_update_at(1) == pytest.approx(1.1)
    for number in range(4):
        now = 1.01 + number / 100
        metadata.add_topic(f"u{number}", now)
        assert metadata.next_update_at(now) == now
        assert answer(metadata, now, topic(f"u{number}", (1, 0))) == [f"u{number}"]
    assert metadata.next_update_at(1.05) == pytest.approx(1.1)
    assert answer(metadata, 1.1, topic("x", (1, 0))) == ["x"]


def test_a_new_topic_does_not_bring_a_requested_update_forward():
    metadata = ready()
    metadata.request_update()
    metadata.add_topic("u", 0.02)
    assert answer(metadata, 0.02, topic("u", (1, 0))) == ["u"]
    assert metadata.next_update_at(0.03) == pytest.approx(0.1)
    assert answer(metadata, 0.1, topic("t", (1, 5), (2, 5)), topic("u", (1, 0))) == ["t", "u"]


def test_a_new_topic_whose_first_answer_decides_nothing_backs_off_with_the_others():
    metadata = ready()
    metadata.add_topic("u", 0.02)
    assert answer(metadata, 0.02, topic("u", error=UNKNOWN_TOPIC)) == ["u"]
    assert metadata.next_update_at(0.02) == pytest.approx(0.1)
    answer(metadata, 0.1, topic("u", error=UNKNOWN_TOPIC))
    assert metadata.next_update_at(0.1) == pytest.approx(0.2)


def test_an_answer_for_a_new_topic_alone_is_merged_and_does_not_count_as_a_full_refresh():
    metadata = ready()
    metadata.add_topic("u", 10)
    before = metadata.topic("t")
    answer(metadata, 10, topic("u", (1, 0), topic_id=ID_B))
    assert metadata.topic("t") is before
    assert metadata.cluster.leader("u", 0) == 1
    assert metadata.next_update_at(11) == 300


def test_a_topic_added_while_a_request_is_out_causes_a_second_one_right_away():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    metadata.start_request(0)
    metadata.add_topic("u", 0.5)
    assert metadata.on_response(response(topic("t", (1, 0))), 1)
    assert metadata.next_update_at(1) == 1
    assert metadata.start_request(1).topics == ["u"]


def test_a_topic_the_answer_left_out_is_asked_for_again_after_a_backoff():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    assert answer(metadata, 0) == ["t"]
    assert metadata.next_update_at(0) == pytest.approx(0.1)
    assert answer(metadata, 1) == ["t"]
    assert "no answer has described it" in metadata.explain("t", None).text


def test_only_topics_in_use_are_asked_for_and_idle_ones_leave_the_snapshot():
    metadata = new_metadata(max_idle_s=10)
    names = [f"t{i}" for i in range(1000)]
    for name in names:
        metadata.add_topic(name, 0)
    answer(metadata, 0, *(topic(name, (1, 0)) for name in names))
    metadata.add_topic("t7", 9)
    metadata.request_update()
    assert metadata.start_request(15).topics == ["t7"]
    assert metadata.on_response(response(topic("t7", (1, 0))), 15)
    assert list(metadata.cluster.topics) == ["t7"]


def test_an_expired_topic_that_is_used_again_is_a_new_one():
    metadata = ready(max_idle_s=10)
    metadata.request_update()
    answer(metadata, 20)
    assert metadata.topic("t") is None
    metadata.add_topic("t", 21)
    assert metadata.next_update_at(21) == 21
    answer(metadata, 21, topic("t", (1, 0)))
    assert metadata.leader_epoch("t", 0) == 0


def test_an_unknown_topic_expires_too_and_is_no_longer_asked_for():
    metadata = new_metadata(max_idle_s=10)
    metadata.add_topic("x", 0)
    answer(metadata, 0, topic("x", error=UNKNOWN_TOPIC))
    assert metadata.start_request(11).topics == []


def test_answers_that_bring_nothing_new_are_followed_by_longer_and_longer_pauses():
    metadata = new_metadata()
    metadata.add_topic("x", 0)
    now, pauses = 0.0, []
    for _ in range(7):
        answer(metadata, now, topic("x", error=UNKNOWN_TOPIC))
        pauses.append(round(metadata.next_update_at(now) - now, 3))
        now = metadata.next_update_at(now)
    # The first answer brought the brokers.
    assert pauses == [0.1, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_an_answer_with_news_makes_the_pause_short_again():
    metadata = ready()
    for now in (1, 2, 3, 4):
        metadata.request_update()
        answer(metadata, now, topic("t", (1, 5), (2, 5)))
    metadata.request_update()
    assert metadata.next_update_at(4) == pytest.approx(4.8)
    answer(metadata, 5, topic("t", (1, 5), (3, 6)))
    metadata.request_update()
    assert metadata.next_update_at(5) == pytest.approx(5.1)


def test_a_refresh_for_its_age_begins_with_short_pauses_again():
    metadata = ready()
    now, pauses = 1.0, []
    for _ in range(4):
        metadata.request_update()
        answer(metadata, now, topic("t", (1, 5), (2, 5)))
        metadata.request_update()
        pauses.append(round(metadata.next_update_at(now) - now, 3))
        now = metadata.next_update_at(now)
    assert pauses == [0.1, 0.2, 0.4, 0.8]
    now += 400
    metadata.add_topic("t", now)  # it is still in use
    for pause in (0.1, 0.2):
        answer(metadata, now, topic("t", (1, 5), (2, 5)))
        metadata.request_update()
        assert metadata.next_update_at(now) == pytest.approx(now + pause)
        now += pause


def test_the_flag_for_automatic_creation_is_passed_on():
    assert new_metadata(allow_auto_create=True).start_request(0).allow_auto_create
    assert not new_metadata(allow_auto_create=False).start_request(0).allow_auto_create


def test_listeners_are_called_once_for_each_request():
    metadata = ready()
    heard: list[str] = []
    metadata.on_event = lambda: heard.append("wanted")
    metadata.request_update()
    metadata.request_update()
    assert len(heard) == 1
    metadata.add_topic("u", 1)
    metadata.add_topic("u", 2)
    metadata.request_topic("u", 2)
    assert len(heard) == 2
    metadata.request_topic("t", 2)
    metadata.request_topic("t", 2)
    assert len(heard) == 3
    metadata.rebootstrap()
    assert len(heard) == 4


def test_an_answer_that_is_made_outdated_is_followed_by_a_full_request_at_once():
    metadata = ready()
    heard: list[str] = []
    metadata.on_event = lambda: heard.append("wanted")
    assert metadata.next_update_at(50) > 50
    metadata.invalidate()
    assert (heard, metadata.next_update_at(50)) == (["wanted"], 50)
    fetch = metadata.start_request(50)
    assert (fetch.topics, fetch.partial) == (["t"], False)


# -- failures ----------------------------------------------------------------------------------


def test_failures_back_off_exponentially_and_an_answer_ends_that():
    metadata = new_metadata()
    pauses = []
    now = 0.0
    for _ in range(6):
        metadata.start_request(now)
        metadata.on_failure(RequestTimeoutError("slow"), now)
        pauses.append(round(metadata.next_update_at(now) - now, 3))
        now = metadata.next_update_at(now)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    answer(metadata, now)
    metadata.request_update()
    assert metadata.next_update_at(now) == pytest.approx(now + 0.1)


def test_metadata_that_are_invalidated_are_due_and_call_for_a_turn():
    metadata = ready(max_age_s=1e6)
    events: list[None] = []
    metadata.on_event = lambda: events.append(None)
    assert metadata.next_update_at(1.0) > 1.0
    metadata.invalidate()
    assert metadata.next_update_at(1.0) == 1.0
    assert events == [None]


def test_pauses_begin_short_again_after_a_failure():
    metadata = ready()
    now = 1.0

    def pauses() -> list[float]:
        nonlocal now
        found = []
        for _ in range(3):
            metadata.request_update()
            answer(metadata, now, topic("t", (1, 5), (2, 5)))
            metadata.request_update()
            found.append(round(metadata.next_update_at(now) - now, 3))
            now = metadata.next_update_at(now)
        return found

    assert pauses() == [0.1, 0.2, 0.4]
    metadata.start_request(now)
    metadata.on_failure(RequestTimeoutError("slow"), now)
    now += 1
    assert pauses() == [0.1, 0.2, 0.4]


def test_a_new_topic_does_not_break_the_backoff_after_a_failure():
    metadata = new_metadata()
    metadata.start_request(0)
    metadata.on_failure(RequestTimeoutError("slow"), 0)
    metadata.add_topic("t", 0.01)
    assert metadata.next_update_at(0.01) == pytest.approx(0.1)


def test_an_empty_broker_list_is_a_failed_update():
    metadata = ready()
    metadata.request_update()
    metadata.start_request(1)
    assert not metadata.on_response(response(topic("t", (3, 9)), nodes=()), 1)
    assert (metadata.version, metadata.cluster.leader("t", 0)) == (1, 1)
    assert metadata.next_update_at(1) == pytest.approx(1.1)
    assert "empty broker list" in metadata.explain("t", 7).text


def test_brokers_that_cannot_be_dialled_count_as_none():
    metadata = new_metadata()
    metadata.start_request(0)
    bad = response(nodes=(1,))
    bad.brokers[0].port = 0
    assert not metadata.on_response(bad, 0)
    assert metadata.version == 0


@pytest.mark.parametrize("host", ["", "fe80::1%\r\nX: y", "a\x1b[2J", "a b", "h" * 30_000])
def test_a_broker_whose_host_is_none_is_left_out(host: str):
    metadata = new_metadata()
    metadata.start_request(0)
    mixed = response(nodes=(1, 2))
    mixed.brokers[0].host = host
    assert metadata.on_response(mixed, 0)
    assert list(metadata.cluster.nodes) == [2]
    bad = response(nodes=(1,))
    bad.brokers[0].host = host
    metadata.request_update()
    metadata.start_request(1)
    assert not metadata.on_response(bad, 1)
    assert "none of the 1 brokers in an answer has a valid" in metadata.explain_failures().text


def test_an_answer_with_more_brokers_than_any_cluster_has_is_a_failed_update():
    metadata = ready()
    known = metadata.cluster.nodes
    metadata.request_update()
    metadata.start_request(1)
    assert not metadata.on_response(response(nodes=range(MAX_BROKERS + 1)), 1)
    assert metadata.cluster.nodes is known
    assert "10001 brokers, more than 10000" in metadata.explain_failures().text


def test_of_a_topic_that_is_described_many_times_the_first_entry_counts():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    recreated = []
    metadata.on_recreated = recreated.append
    whole = topic("t", *[(1, 5)] * 20_000)
    others = [topic("t", (2, 6), topic_id=each) for each in (ID_A, ID_B) * 5_000]
    begun = time.process_time()
    answer(metadata, 0, whole, *others)  # each merged with 20,000 partitions
    assert time.process_time() - begun < 10
    assert len(metadata.topic("t").partitions) == 20_000
    assert metadata.leader_of(TopicPartition("t", 0)) == 1
    assert recreated == []


def test_a_list_of_brokers_for_another_purpose_has_the_same_bound():
    answered = response(nodes=range(MAX_BROKERS + 1))
    with pytest.raises(ProtocolError, match="10001 brokers, more than 10000"):
        coordinator_queries.brokers().read(answered)


@pytest.mark.parametrize("host", ["\ufdfa" * 250, "b\u00fccher.example"])
def test_host_names_of_brokers_are_ascii(host):
    metadata = ready()
    metadata.request_update()
    metadata.start_request(1)
    hostile = response(nodes=())
    hostile.brokers = [
        MetadataResponseBroker(node_id=n, host=host, port=9092, rack=None) for n in range(9000)
    ]
    began = time.process_time()
    assert not metadata.on_response(hostile, 1)
    assert time.process_time() - began < 1


def test_an_error_for_the_whole_answer_is_a_failed_update():
    metadata = ready()
    version = metadata.version
    metadata.request_update()
    metadata.start_request(1)
    assert not metadata.on_response(response(error_code=REBOOTSTRAP_REQUIRED), 1)
    assert metadata.version == version
    assert "rebootstrap" in metadata.explain_failures().text.lower()


@pytest.mark.parametrize("error", [AuthenticationError("no"), UnsupportedVersionError("old")])
def test_a_fatal_error_stays_until_the_next_good_answer(error):
    metadata = new_metadata()
    metadata.start_request(0)
    metadata.on_failure(error, 0)
    assert metadata.fatal_error is error
    answer(metadata, 1)
    assert metadata.fatal_error is None


def test_other_failures_are_not_fatal():
    metadata = new_metadata()
    metadata.start_request(0)
    metadata.on_failure(NodeDisconnectedError("gone"), 0)
    assert metadata.fatal_error is None


def test_a_rebootstrap_keeps_what_is_known_and_asks_for_everything():
    metadata = ready()
    metadata.add_topic("u", 1)
    metadata.start_request(1)
    metadata.rebootstrap()
    assert metadata.cluster.leader("t", 0) == 1
    assert sorted(metadata.start_request(1).topics) == ["t", "u"]


# -- versions, epochs, ids ---------------------------------------------------------------------


def test_every_answer_bumps_the_version_and_failures_do_not():
    metadata = new_metadata()
    answer(metadata, 0)
    metadata.request_update()
    metadata.start_request(1)
    metadata.on_failure(RequestTimeoutError("slow"), 1)
    assert metadata.version == 1
    answer(metadata, 2)
    assert metadata.version == 2


def test_an_answer_with_nothing_new_leaves_topics_and_nodes_the_same_objects():
    metadata = ready()
    known, nodes = metadata.topic("t"), metadata.cluster.nodes
    metadata.request_update()
    answer(metadata, 1, topic("t", (1, 5), (2, 5)))
    assert metadata.topic("t") is known
    assert metadata.cluster.nodes is nodes


def test_an_older_leader_epoch_is_refused_per_partition():
    metadata = ready()
    metadata.request_update()
    answer(metadata, 1, topic("t", (3, 4), (3, 6)))
    assert [metadata.cluster.leader("t", p) for p in (0, 1)] == [1, 3]
    assert [metadata.leader_epoch("t", p) for p in (0, 1)] == [5, 6]


def test_epochs_survive_an_answer_that_denies_the_topic():
    metadata = ready()
    metadata.request_update()
    answer(metadata, 1, topic("t", error=UNKNOWN_TOPIC))
    assert metadata.topic("t") is None
    answer(metadata, 2, topic("t", (3, 4), (2, 5)))
    assert metadata.cluster.leader("t", 0) == 1


def test_a_topic_created_anew_starts_with_its_own_epochs():
    metadata = ready()
    metadata.request_update()
    answer(metadata, 1, topic("t", (3, 0), topic_id=ID_B))
    known = metadata.topic("t")
    assert known is not None
    assert (known.topic_id, len(known.partitions)) == (ID_B, 1)
    assert (metadata.cluster.leader("t", 0), metadata.leader_epoch("t", 0)) == (3, 0)


def test_without_topic_ids_a_denied_topic_is_believed_to_be_created_anew():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", (1, 5), topic_id=ZERO_ID))
    metadata.request_update()
    answer(metadata, 1, topic("t", error=UNKNOWN_TOPIC))
    answer(metadata, 2, topic("t", (2, 0), topic_id=ZERO_ID))
    assert (metadata.cluster.leader("t", 0), metadata.leader_epoch("t", 0)) == (2, 0)


@pytest.mark.parametrize("newer_between", [False, True])
def test_without_topic_ids_lower_epochs_are_believed_after_five_answers_in_a_row(newer_between):
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", (1, 5), (1, 1), topic_id=ZERO_ID))
    leaders = []
    for now in range(2, 18, 2):
        if now == 8 and newer_between:
            metadata.request_update()
            answer(metadata, now - 1, topic("t", (1, 5), (1, 1), topic_id=ZERO_ID))
        metadata.request_update()
        answer(metadata, now, topic("t", (2, 0), (2, 1), topic_id=ZERO_ID))
        leaders.append(metadata.cluster.leader("t", 0))
    assert leaders == ([1] * 7 + [2] if newer_between else [1] * 4 + [2] * 4)
    metadata.request_update()
    answer(metadata, 20, topic("t", (3, 6), (2, 1), topic_id=ZERO_ID))
    assert (metadata.cluster.leader("t", 0), metadata.leader_epoch("t", 0)) == (3, 6)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_leader_that_a_deleted_topic_may_have_had_is_given_up(by_name):
    metadata = ready()
    seen = recreations(metadata)
    metadata.request_update()
    answer(metadata, 1, topic("t", (3, 0), topic_id=ID_B))
    late_hint = {TopicPartition("t", 0): (2, 9)}
    assert metadata.on_leader_hints(late_hint, (), by_name=by_name)
    for now in range(2, 7):
        assert metadata.cluster.leader("t", 0) == 2
        metadata.request_update()
        answer(metadata, now, topic("t", (3, 0), topic_id=ID_B))
    assert metadata.cluster.leader("t", 0) == (3 if by_name else 2)
    assert seen == ["t"]


def test_answers_before_a_leader_hint_do_not_count_against_it():
    metadata = ready()
    for now in range(1, 6):
        metadata.request_update()
        answer(metadata, now, topic("t", (3, 4), (2, 5)))
    assert metadata.on_leader_hints({TopicPartition("t", 0): (2, 9)}, (), by_name=True)
    metadata.request_update()
    answer(metadata, 6, topic("t", (1, 5), (2, 5)))
    assert metadata.cluster.leader("t", 0) == 2


def test_leader_hint_is_not_given_up_for_epochs_before_the_last_confirmed_one():
    metadata = ready()
    for epoch in (8, 9):
        hint = {TopicPartition("t", 0): (2, epoch)}
        assert metadata.on_leader_hints(hint, (), by_name=True)
    for now in range(1, 10):
        metadata.request_update()
        answer(metadata, now, topic("t", (3, 4), (2, 5)))
        assert metadata.cluster.leader("t", 0) == 2
    for now in range(10, 15):
        assert metadata.cluster.leader("t", 0) == 2
        metadata.request_update()
        answer(metadata, now, topic("t", (1, 5), (2, 5)))
    assert metadata.cluster.leader("t", 0) == 1


def test_a_leader_that_metadata_have_confirmed_is_not_given_up():
    metadata = ready()
    assert metadata.on_leader_hints({TopicPartition("t", 0): (2, 9)}, (), by_name=True)
    metadata.request_update()
    answer(metadata, 1, topic("t", (2, 9), (2, 5)))
    for now in range(2, 40, 2):
        metadata.request_update()
        answer(metadata, now, topic("t", (3, 4), (2, 5)))
        assert metadata.cluster.leader("t", 0) == 2


def recreations(metadata: Metadata) -> list[str]:
    seen: list[str] = []
    metadata.on_recreated = seen.append
    return seen


def test_a_topic_with_another_id_is_reported_once():
    metadata = ready()
    seen = recreations(metadata)
    for now, topic_id in enumerate((ID_A, ID_B, ID_B), start=1):
        metadata.request_update()
        answer(metadata, now, topic("t", (1, 0), (2, 0), topic_id=topic_id))
    assert seen == ["t"]


def test_a_topic_created_anew_while_it_was_denied_or_dropped_is_reported():
    for pause, denial in ((1, [topic("t", error=UNKNOWN_TOPIC)]), (400, [])):
        metadata = ready()
        seen = recreations(metadata)
        metadata.request_update()
        answer(metadata, pause, *denial)
        assert metadata.topic("t") is None
        metadata.add_topic("t", pause + 1)
        answer(metadata, pause + 1, topic("t", (1, 0), topic_id=ID_B))
        assert seen == ["t"]


def test_without_topic_ids_no_topic_counts_as_created_anew():
    metadata = ready()
    seen = recreations(metadata)
    for now, topic_id in enumerate((ZERO_ID, ID_A, ZERO_ID), start=1):
        metadata.request_update()
        answer(metadata, now, topic("t", (1, 5), (2, 5), topic_id=topic_id))
    assert seen == []


@pytest.mark.parametrize(("before", "after", "leader"), [(ZERO_ID, ID_A, 2), (ID_A, ZERO_ID, 1)])
def test_older_epoch_is_believed_with_the_first_id_and_refused_without_one(
    before: UUID, after: UUID, leader: int
):
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", (1, 5), topic_id=before))
    metadata.request_update()
    answer(metadata, 1, topic("t", (2, 4), topic_id=after))
    assert metadata.cluster.leader("t", 0) == leader
    metadata.request_update()
    answer(metadata, 2, topic("t", (3, 6), topic_id=after))
    assert metadata.cluster.leader("t", 0) == 3


def test_another_cluster_at_the_same_addresses_is_taken_as_it_is():
    metadata = ready()
    reported, anew = [], recreations(metadata)
    metadata.on_other_cluster = lambda: reported.append(metadata.cluster.cluster_id)
    metadata.request_update()
    answer(metadata, 1, topic("t", (3, 0), (3, 0), topic_id=ID_B), cluster_id="another")
    assert metadata.leader_epoch("t", 0) == 0
    assert metadata.cluster.cluster_id == "another"
    assert (reported, anew) == (["cluster"], [])


def test_in_another_cluster_topics_are_unknown_until_it_describes_them():
    metadata = ready()
    metadata.add_topic("u", 1)
    assert answer(metadata, 1, topic("u", (1, 0)), cluster_id="another") == ["u"]
    assert metadata.topic("t") is None
    assert answer(metadata, 2, topic("t", (1, 0)), cluster_id="another") == ["t"]
    assert metadata.cluster.leader("t", 0) == 1


def test_an_answer_without_a_cluster_id_is_of_the_same_cluster():
    metadata = ready()
    reported: list[str | None] = []
    metadata.on_other_cluster = lambda: reported.append(metadata.cluster.cluster_id)
    for now, cluster_id in enumerate((None, "cluster", "another"), start=1):
        metadata.request_update()
        answer(metadata, now, topic("t", (1, 5), (2, 5)), cluster_id=cluster_id)
    assert reported == ["cluster"]


def test_epochs_below_version_9_are_ignored():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    metadata.start_request(0)
    assert metadata.on_response(response(topic("t", (1, 5))), 0, reliable_epochs=False)
    assert metadata.leader_epoch("t", 0) == -1
    metadata.request_update()
    metadata.start_request(1)
    assert metadata.on_response(response(topic("t", (2, 3))), 1, reliable_epochs=False)
    assert metadata.cluster.leader("t", 0) == 2


def test_a_leader_the_answer_does_not_describe_is_no_leader():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", (9, 5), (1, 5)))
    known = metadata.topic("t")
    assert known is not None
    assert (metadata.cluster.leader("t", 0), known.available) == (None, (1,))
    assert "node 9, is not a known broker" in metadata.explain("t", 0).text


@pytest.mark.parametrize(
    ("host", "port", "shown"),
    [("${HOST}", 9092, "'${HOST}', port 9092"), ("", 9092, "''"), ("host1", 0, "port 0")],
)
def test_a_leader_that_advertises_no_address_is_explained(host: str, port: int, shown: str):
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    described = response(topic("t", (1, 5)), nodes=(2, 3))
    described.brokers.append(MetadataResponseBroker(node_id=1, host=host, port=port, rack=None))
    metadata.start_request(0)
    assert metadata.on_response(described, 0)
    reason = metadata.explain("t", 0)
    assert "its leader, node 1, advertises" in reason.text
    assert shown in reason.text
    assert "advertised.listeners" in (reason.advice or "")


def test_an_answer_whose_brokers_advertise_no_address_is_a_failure_that_shows_one():
    metadata = new_metadata()
    described = response(nodes=())
    described.brokers.append(MetadataResponseBroker(1, "${HOST}", 9092, None))
    metadata.start_request(0)
    assert not metadata.on_response(described, 0)
    reason = metadata.explain_failures()
    assert "node 1 advertises '${HOST}', port 9092" in reason.text
    assert "advertised.listeners" in (reason.advice or "")


def test_topics_that_were_not_asked_for_are_passed_over():
    metadata = ready()
    metadata.request_update()
    answer(metadata, 1, topic("secret", (1, 0)), topic("t", (3, 6), (2, 5)))
    assert list(metadata.cluster.topics) == ["t"]
    assert metadata.leader_of(TopicPartition("t", 0)) == 3


def test_a_malformed_topic_leaves_the_others_of_the_answer_alone():
    metadata = ready()
    metadata.add_topic("u", 1)
    bad = topic("t", (1, 9))
    bad.partitions[0].partition_index = -4
    metadata.request_update()
    answer(metadata, 1, bad, topic("u", (3, 0)))
    assert metadata.leader_epoch("t", 0) == 5
    assert metadata.cluster.leader("u", 0) == 3
    assert metadata.start_request(2).topics == ["t"]


# -- missing topics and partitions -------------------------------------------------------------


def test_a_topic_without_a_leader_is_asked_for_again():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    errors = {0: LEADER_NOT_AVAILABLE}
    answer(metadata, 0, topic("t", (-1, 5), (1, 5), partition_errors=errors))
    assert metadata.next_update_at(0) == pytest.approx(0.1)
    assert metadata.explain("t", 0).text == "partition 0 has no leader (LEADER_NOT_AVAILABLE)"
    assert metadata.explain("t", 1).text == ""
    answer(metadata, 1, topic("t", (2, 6), (1, 5)))
    assert metadata.next_update_at(1) == 300


def test_a_topic_without_partitions_is_not_there_yet():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t"))
    assert metadata.topic("t") is None
    assert "no partitions yet" in metadata.explain("t", None).text
    assert metadata.next_update_at(0) < 1


@pytest.mark.parametrize(
    ("code", "error"),
    [(INVALID_TOPIC, InvalidTopicError), (UNAUTHORIZED, TopicAuthorizationFailedError)],
)
def test_permanent_reasons_are_topic_failures_until_a_good_answer(code, error):
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", error=code))
    failure = metadata.topic_failure("t")
    assert isinstance(failure, error)
    assert failure.topic == "t"
    assert metadata.next_update_at(0) == 300
    metadata.request_update()
    answer(metadata, 1, topic("t", (1, 0)))
    assert metadata.topic_failure("t") is None


def test_asking_for_a_forbidden_topic_again_clears_the_refusal():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", error=UNAUTHORIZED))
    metadata.request_topic("t", 1)
    assert metadata.topic_failure("t") is None
    assert metadata.start_request(1).topics == ["t"]


def test_a_passing_error_is_no_topic_failure_but_an_explanation():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", error=UNKNOWN_TOPIC))
    assert metadata.topic_failure("t") is None
    assert "a broker answered" in metadata.explain("t", None).text


def test_the_explanation_names_the_option_that_forbids_creating_the_topic():
    metadata = new_metadata(allow_auto_create=False)
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", error=UNKNOWN_TOPIC))
    assert "allow_auto_create_topics" in (metadata.explain("t", None).advice or "")


def test_a_partition_is_absent_where_the_topic_has_fewer_and_a_topic_with_its_error():
    metadata = ready()
    assert metadata.absence("t", None) is None
    assert metadata.absence("t", 1) is None
    error = metadata.absence("t", 2)
    assert isinstance(error, InvalidPartitionError)
    assert (error.topic, error.message) == ("t", "the topic has 2 partition(s)")
    assert metadata.absence("other", 0) is None
    metadata.add_topic("other", 1)
    answer(metadata, 1, topic("other", error=UNKNOWN_TOPIC))
    assert isinstance(metadata.absence("other", 0), UnknownTopicOrPartitionError)
    assert metadata.absence("other", 0) is metadata.topic_error("other")


def test_the_explanation_of_a_partition_out_of_range_has_the_count():
    assert ready().explain("t", 2).text == "the topic has 2 partition(s)"


def test_the_explanation_names_brokers_that_were_asked_and_that_could_not_be_reached():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    metadata.explain_connections = lambda: Reason("connection failures: broker 1 a:9092: refused")
    assert metadata.explain("t", None).text == (
        "no broker could be asked yet; connection failures: broker 1 a:9092: refused"
    )
    metadata.explain_connections = None
    metadata.start_request(0)
    assert metadata.explain("t", None).text == "the request for it is not answered yet"
    for now, words in ((1, "failed: slow"), (2, "failed (2 in a row): slow")):
        metadata.on_failure(RequestTimeoutError("slow"), now)
        assert f"the last metadata request {words}" in metadata.explain("t", None).text
        metadata.start_request(now)


def test_nothing_is_explained_where_nothing_is_wrong():
    metadata = ready()
    assert metadata.explain("t", None).text == ""
    assert metadata.explain("t", 1).text == ""
    assert "not among those asked for" in metadata.explain("other", None).text


# -- leader hints (KIP-951) --------------------------------------------------------------------


def test_a_newer_leader_of_a_known_node_moves_the_partition_at_once():
    metadata = ready()
    version = metadata.version
    moved = metadata.on_leader_hints({TopicPartition("t", 0): (3, 6)}, [])
    assert moved
    assert (metadata.cluster.leader("t", 0), metadata.leader_epoch("t", 0)) == (3, 6)
    assert metadata.cluster.leader("t", 1) == 2
    assert metadata.version == version + 1


@pytest.mark.parametrize("hint", [(3, 5), (3, 4), (1, 5), (9, 6), (-1, 6)])
def test_equal_or_older_epochs_and_unknown_nodes_are_ignored(hint):
    metadata = ready()
    assert not metadata.on_leader_hints({TopicPartition("t", 0): hint}, [])
    assert (metadata.version, metadata.cluster.leader("t", 0)) == (1, 1)


def test_a_node_described_beside_the_hint_becomes_known():
    metadata = ready()
    heard: list[object] = []
    metadata.on_event = lambda: heard.append(metadata.cluster.nodes.get(9))
    assert metadata.on_leader_hints({TopicPartition("t", 0): (9, 6)}, [node(9)])
    assert metadata.cluster.leader("t", 0) == 9
    assert metadata.topic("t").available == (0, 1)
    assert heard == [metadata.cluster.nodes[9]]


def test_of_the_nodes_beside_a_hint_only_those_that_lead_become_known():
    metadata = ready()
    described = [node(n) for n in range(9, 99)]
    assert metadata.on_leader_hints({TopicPartition("t", 0): (9, 6)}, described)
    assert sorted(metadata.cluster.nodes) == [1, 2, 3, 9]


def test_hints_do_not_add_brokers_without_end():
    metadata = new_metadata()
    metadata.add_topic("t", 0)
    answer(metadata, 0, topic("t", (1, 5), (2, 5)), nodes=range(MAX_BROKERS))
    hint = {TopicPartition("t", 0): (MAX_BROKERS, 6)}
    assert not metadata.on_leader_hints(hint, [node(MAX_BROKERS)])
    assert len(metadata.cluster.nodes) == MAX_BROKERS


def test_hints_for_unknown_partitions_are_ignored():
    metadata = ready()
    hints = {TopicPartition("t", 7): (3, 9), TopicPartition("u", 0): (3, 9)}
    assert not metadata.on_leader_hints(hints, [])


def test_hints_that_are_ignored_do_not_take_others_with_them():
    metadata = ready()
    hints = {
        TopicPartition("t", 9): (3, 9),  # unknown
        TopicPartition("t", 1): (1, 5),  # not newer
        TopicPartition("t", 0): (3, 6),
    }
    assert metadata.on_leader_hints(hints, [])
    assert [metadata.cluster.leader("t", number) for number in (0, 1)] == [3, 2]
    hints = {TopicPartition("t", 0): (77, 9), TopicPartition("t", 1): (3, 6)}  # 77 is unknown
    assert metadata.on_leader_hints(hints, [])
    assert [metadata.cluster.leader("t", number) for number in (0, 1)] == [3, 3]


def test_an_answer_older_than_a_hint_does_not_undo_it():
    metadata = ready()
    metadata.on_leader_hints({TopicPartition("t", 0): (3, 6)}, [])
    metadata.request_update()
    answer(metadata, 1, topic("t", (1, 5), (2, 5)))
    assert metadata.cluster.leader("t", 0) == 3


# -- any order of events -----------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])


def test_a_leader_that_moved_in_an_answer_about_some_topics_asks_about_all():
    metadata = ready()
    metadata.add_topic("u", 1)
    answer(metadata, 1, topic("u", (1, 1)))
    metadata.request_topic("t", 2)
    assert answer(metadata, 2, topic("t", (3, 6), (2, 5))) == ["t"]
    assert answer(metadata, 4, topic("t", (3, 6), (2, 5)), topic("u", (1, 1))) == ["t", "u"]
    assert metadata.next_update_at(5) > 100


@pytest.mark.parametrize(
    "described",
    [
        topic("t", (1, 5), (2, 5)),
        topic("t", (1, 6), (2, 5)),
        topic("t", (1, 5), (2, 5), (3, 1)),
        topic("t", (3, 0), (3, 0), topic_id=ID_B),
        topic("t", error=UNAUTHORIZED),
    ],
    ids=["the same", "elected again", "more partitions", "created anew", "refused"],
)
def test_an_answer_about_some_topics_in_which_no_leader_moved_asks_for_nothing_more(described):
    metadata = ready()
    metadata.add_topic("u", 1)
    answer(metadata, 1, topic("u", (-1, 0)))
    metadata.request_topic("t", 2)
    answer(metadata, 2, described, topic("u", (2, 1)))
    assert metadata.next_update_at(3) > 100


class MetadataMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.metadata = new_metadata(max_idle_s=20, max_age_s=30)
        self.now = 0.0
        self.asked: list[str] | None = None
        self.seen = dict(self.metadata.cluster.topics)
        self.version = 0
        self.leaders: dict[str, list[int | None]] = {}

    def _leaders(self) -> dict[str, list[int | None]]:
        cluster = self.metadata.cluster
        return {
            name: [cluster.leader(name, p.partition) for p in known.partitions]
            for name, known in cluster.topics.items()
        }

    @rule(seconds=st.floats(0, 25))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=NAMES)
    def topic_used(self, name: str) -> None:
        self.metadata.add_topic(name, self.now)

    @rule(name=NAMES)
    def topic_wanted(self, name: str) -> None:
        self.metadata.request_topic(name, self.now)
        if self.asked is None:
            assert self.metadata.next_update_at(self.now) <= self.now + 1.0

    @rule()
    def update_wanted(self) -> None:
        self.metadata.request_update()
        if self.asked is None:
            assert self.metadata.next_update_at(self.now) <= self.now + 1.0

    @rule()
    def request_sent(self) -> None:
        if self.asked is None and self.metadata.next_update_at(self.now) <= self.now:
            self.asked = self.metadata.start_request(self.now).topics

    @rule()
    def request_failed(self) -> None:
        if self.asked is not None:
            self.asked = None
            self.metadata.on_failure(RequestTimeoutError("slow"), self.now)
            assert self.metadata.next_update_at(self.now) > self.now

    @rule(data=st.data(), name=NAMES)
    def topic_refreshed(self, data: st.DataObject, name: str) -> None:
        self.now += 2
        self.metadata.request_topic(name, self.now)
        self.request_sent()
        self.request_answered(data)

    @rule(data=st.data())
    def request_answered(self, data: st.DataObject) -> None:
        if self.asked is None:
            return
        topics = []
        for name in self.asked:
            kind = data.draw(st.sampled_from(["fine", "unknown", "forbidden", "left out"]))
            if kind == "fine":
                topic_id = data.draw(st.sampled_from([ID_A, ID_B]))
                leaders = st.tuples(st.integers(-1, 4), st.integers(0, 6))
                partitions = data.draw(st.lists(leaders, min_size=1, max_size=3))
                topics.append(topic(name, *partitions, topic_id=topic_id))
            elif kind != "left out":
                topics.append(topic(name, error={"unknown": 3, "forbidden": 29}[kind]))
        nodes = data.draw(st.sets(st.integers(1, 4), min_size=1))
        self.asked = None
        assert self.metadata.on_response(response(*topics, nodes=tuple(nodes)), self.now)
        self.version += 1

    @rule(name=NAMES, leader=st.integers(1, 6), epoch=st.integers(0, 8))
    def hint_came(self, name: str, leader: int, epoch: int) -> None:
        known = self.metadata.leader_epoch(name, 0)
        moved = self.metadata.on_leader_hints({TopicPartition(name, 0): (leader, epoch)}, [])
        if moved:
            self.version += 1
            assert epoch > known
            assert self.metadata.cluster.leader(name, 0) == leader

    @invariant()
    def cluster_is_sound(self) -> None:
        cluster = self.metadata.cluster
        assert self.metadata.version == self.version
        for name, known in cluster.topics.items():
            assert [p.partition for p in known.partitions] == list(range(len(known.partitions)))
            assert known.available == tuple(
                p.partition for p in known.partitions if p.leader in cluster.nodes
            )
            assert self.metadata.topic_failure(name) is None

    @invariant()
    def epochs_of_one_incarnation_never_go_back(self) -> None:
        before, self.seen = self.seen, dict(self.metadata.cluster.topics)
        for name, known in self.seen.items():
            old = before.get(name)
            if old is not None and old.topic_id == known.topic_id:
                assert len(known.partitions) >= len(old.partitions)
                for was, is_now in zip(old.partitions, known.partitions, strict=False):
                    assert is_now.leader_epoch >= was.leader_epoch

    @invariant()
    def leaders_are_what_they_were_unless_the_topic_is_said_to_have_changed(self) -> None:
        changed = self.metadata.cluster.pop_changed_topics()
        before, self.leaders = self.leaders, self._leaders()
        for name in before.keys() | self.leaders.keys():
            assert name in changed or before.get(name) == self.leaders.get(name)

    @invariant()
    def one_request_at_a_time(self) -> None:
        assert (self.metadata.next_update_at(self.now) == inf) == (self.asked is not None)


MetadataMachine.TestCase.settings = settings(stateful_step_count=40, deadline=None)
TestMetadataMachine = MetadataMachine.TestCase
