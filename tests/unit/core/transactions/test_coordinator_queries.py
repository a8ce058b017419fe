"""The requests of queries in each version, and the results they read from the responses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aioproducer.core.metadata.cluster import MAX_BROKERS
from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions import coordinator_queries as queries
from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorKind
from aioproducer.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    InvalidProducerEpochError,
    KafkaError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aioproducer.types import (
    Node,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
    TransactionDescription,
)
from aioproducer.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aioproducer.wire.messages.init_producer_id import InitProducerIdResponse
from aioproducer.wire.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnResponse,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    TopicData,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

GROUP, TRANSACTION = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOT_AVAILABLE, NO_EPOCH, UNKNOWN_TOPIC = 15, 47, 3
NO_TOPIC, NO_GROUP, NO_ID, ID_NOT_FOUND = 29, 30, 53, 105
SEVEN = OffsetAndMetadata(7)
OFFSETS = {
    T0: OffsetAndMetadata(7, "seven", 3),
    U0: OffsetAndMetadata(9),
    T1: OffsetAndMetadata(8, None, None),
}


def versions_of(query: CoordinatorQuery[Any]) -> range:
    last = query.request_type.VALID_VERSIONS[1]
    return range(query.min_version, (last if query.max_version is None else query.max_version) + 1)


def sent(query: CoordinatorQuery[Any], version: int) -> Any:
    """The request as a broker reads it."""
    return query.request_type.decode(query.make(version).encode(version), version)


def prepared(version: int = 1) -> PreparedTransaction:
    return PreparedTransaction("job", 4711, 3, version)


def described(**fields: Any) -> DescribeTransactionsTransactionState:
    return DescribeTransactionsTransactionState(
        error_code=fields.get("error_code", 0),
        transactional_id=fields.get("name", "job"),
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=17,
        producer_id=4711,
        producer_epoch=3,
        topics=[TopicData("t", [0, 1]), TopicData("u", [0])],
    )


# -- the cluster -------------------------------------------------------------------------------


def metadata(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(topics=list(topics))


def test_brokers_are_those_that_can_be_dialled() -> None:
    query = queries.brokers()
    found = [
        MetadataResponseBroker(node_id, "host", port)
        for node_id, port in ((1, 9092), (2, 0), (-1, 1))
    ]
    assert query.read(MetadataResponse(brokers=found)) == {1: Node(1, "host", 9092, None)}
    assert query.coordinator is None
    assert versions_of(query) == range(1, 10)
    for version in versions_of(query):
        assert sent(query, version).topics == []


def test_a_cluster_of_too_many_brokers_is_refused() -> None:
    one = MetadataResponseBroker(1, "host", 9092)
    assert queries.brokers().read(MetadataResponse(brokers=[one] * MAX_BROKERS))
    with pytest.raises(ProtocolError, match=str(MAX_BROKERS + 1)):
        queries.brokers().read(MetadataResponse(brokers=[one] * (MAX_BROKERS + 1)))


def test_topic_names_are_asked_for_in_the_form_of_each_version() -> None:
    query = queries.topic_names()
    assert versions_of(query) == range(10)
    for version in versions_of(query):
        request = sent(query, version)
        assert request.topics == ([] if version == 0 else None)
        assert request.allow_auto_topic_creation
    named = [MetadataResponseTopic(name=name) for name in ("b", None, "a")]
    assert query.read(metadata(*named)) == ["b", "a"]


@pytest.mark.parametrize("may_create", [False, True])
def test_partition_count_is_that_of_the_topic_asked_for(may_create: bool) -> None:
    topics = [
        MetadataResponseTopic(name=name, partitions=[MetadataResponsePartition()] * count)
        for name, count in (("other", 1), ("t", 3))
    ]
    query = queries.partition_count("t", may_create=may_create)
    assert query.read(metadata(*topics)) == 3
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        query.read(metadata(topics[0]))
    assert caught.value.topic == "t"
    with pytest.raises(TopicAuthorizationFailedError):
        query.read(metadata(MetadataResponseTopic(name="t", error_code=NO_TOPIC)))
    assert versions_of(query) == range(4, 10)
    for version in versions_of(query):
        request = sent(query, version)
        assert request.topics == [MetadataRequestTopic(name="t")]
        assert request.allow_auto_topic_creation is may_create


# -- coordinators ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CoordinatorKind)
def test_a_coordinator_is_asked_for_by_kind_and_name(kind: CoordinatorKind) -> None:
    query = queries.find_coordinator(CoordinatorKey(kind, "job"))
    assert query.coordinator is None
    assert versions_of(query) == range(1, 7)
    for version in versions_of(query):
        request = sent(query, version)
        assert request.key_type == kind
        assert (request.coordinator_keys or [request.key]) == ["job"]


@pytest.mark.parametrize("many", [False, True])
def test_the_coordinator_of_an_answer_has_its_own_address(many: bool) -> None:
    query = queries.find_coordinator(CoordinatorKey(GROUP, "job"))
    one = FindCoordinatorResponse(node_id=2, host="two", port=9092)
    if many:
        others = [Coordinator("other", 1, "one", 9091, 0), Coordinator("job", 2, "two", 9092, 0)]
        one = FindCoordinatorResponse(coordinators=others)
    assert query.read(one) == Node(2, "two", 9092)


def test_a_coordinator_that_is_refused_is_an_error() -> None:
    query = queries.find_coordinator(CoordinatorKey(GROUP, "job"))
    with pytest.raises(CoordinatorNotAvailableError, match="soon"):
        query.read(FindCoordinatorResponse(error_code=NOT_AVAILABLE, error_message="soon"))
    refused = Coordinator("job", -1, "", -1, NOT_AVAILABLE, "soon")
    with pytest.raises(CoordinatorNotAvailableError, match="soon"):
        query.read(FindCoordinatorResponse(coordinators=[refused]))


@pytest.mark.parametrize(("node_id", "host", "port"), [(-1, "h", 1), (0, "a\r\n", 1), (0, "h", 0)])
def test_a_coordinator_that_cannot_be_dialled_is_an_error(
    node_id: int, host: str, port: int
) -> None:
    one = FindCoordinatorResponse(node_id=node_id, host=host, port=port)
    with pytest.raises(ProtocolError, match="named a coordinator") as caught:
        queries.find_coordinator(CoordinatorKey(GROUP, "job")).read(one)
    assert "\r" not in str(caught.value)
    many = FindCoordinatorResponse(coordinators=[Coordinator("job", node_id, host, port, 0)])
    with pytest.raises(ProtocolError, match="named a coordinator"):
        queries.find_coordinators(GROUP, ["job"]).read(many)
    assert queries.find_coordinator(CoordinatorKey(GROUP, "job")).read(
        FindCoordinatorResponse(node_id=0, host="h", port=1)
    ) == Node(0, "h", 1)


def test_many_coordinators_are_found_with_one_request() -> None:
    query = queries.find_coordinators(TRANSACTION, ["a", "b"])
    assert query.coordinator is None
    assert versions_of(query) == range(4, 7)
    for version in versions_of(query):
        request = sent(query, version)
        assert (request.key_type, request.coordinator_keys) == (TRANSACTION, ["a", "b"])
    found = [Coordinator("a", 1, "one", 9091, 0), Coordinator("b", 2, "two", 9092, 0)]
    answer = FindCoordinatorResponse(coordinators=found)
    assert query.read(answer) == {"a": Node(1, "one", 9091), "b": Node(2, "two", 9092)}
    found[1] = Coordinator("b", -1, "", -1, NOT_AVAILABLE, "soon")
    with pytest.raises(CoordinatorNotAvailableError, match="soon"):
        query.read(answer)


# -- transactions ------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize(("transactions", "versions"), [(1, range(5)), (2, range(5, 6))])
def test_a_prepared_transaction_ends_in_its_own_protocol(
    commit: bool, transactions: int, versions: range
) -> None:
    query = queries.end(prepared(transactions), commit=commit)
    assert query.coordinator == CoordinatorKey(TRANSACTION, "job")
    assert versions_of(query) == versions
    for version in versions:
        request = sent(query, version)
        assert (request.transactional_id, request.committed) == ("job", commit)
        assert (request.producer_id, request.producer_epoch) == (4711, 3)
    query.read(EndTxnResponse())
    with pytest.raises(InvalidProducerEpochError):
        query.read(EndTxnResponse(error_code=NO_EPOCH))


def test_fencing_renews_the_id_and_epoch_that_were_found() -> None:
    query = queries.fence(TransactionDescription("job", "Ongoing", 4711, 3, 60_000, 1))
    assert query.coordinator == CoordinatorKey(TRANSACTION, "job")
    assert versions_of(query) == range(3, 6)
    for version in versions_of(query):
        request = sent(query, version)
        assert (request.transactional_id, request.transaction_timeout_ms) == ("job", 60_000)
        assert (request.producer_id, request.producer_epoch) == (4711, 3)
    query.read(InitProducerIdResponse())
    with pytest.raises(InvalidProducerEpochError):
        query.read(InitProducerIdResponse(error_code=NO_EPOCH))


@pytest.mark.parametrize(
    ("identity", "versions"),
    [(None, range(6)), (ProducerIdentity(4711, 3), range(3, 6))],
)
def test_taking_over_gives_the_next_epoch(
    identity: ProducerIdentity | None, versions: range
) -> None:
    query = queries.take_over("job", 60_000, identity)
    assert query.coordinator == CoordinatorKey(TRANSACTION, "job")
    assert versions_of(query) == versions
    for version in versions:
        request = sent(query, version)
        assert (request.transactional_id, request.transaction_timeout_ms) == ("job", 60_000)
        assert (request.producer_id, request.producer_epoch) == (identity or (-1, -1))
        assert request.enable2_pc is False
    answer = InitProducerIdResponse(producer_id=4712, producer_epoch=4)
    assert query.read(answer) == ProducerIdentity(4712, 4)
    with pytest.raises(InvalidProducerEpochError):
        query.read(InitProducerIdResponse(error_code=NO_EPOCH))


def test_a_group_is_added_to_a_transaction_of_the_first_protocol() -> None:
    query = queries.add_group(prepared(), "group")
    assert query.coordinator == CoordinatorKey(TRANSACTION, "job")
    for version in versions_of(query):
        request = sent(query, version)
        assert (request.transactional_id, request.group_id) == ("job", "group")
        assert (request.producer_id, request.producer_epoch) == (4711, 3)
    query.read(AddOffsetsToTxnResponse())
    with pytest.raises(GroupAuthorizationFailedError):
        query.read(AddOffsetsToTxnResponse(error_code=NO_GROUP))


@pytest.mark.parametrize(("transactions", "versions"), [(1, range(5)), (2, range(5, 6))])
def test_offsets_are_committed_in_the_protocol_of_the_transaction(
    transactions: int, versions: range
) -> None:
    query = queries.commit_in_transaction(prepared(transactions), "group", OFFSETS)
    assert query.coordinator == CoordinatorKey(GROUP, "group")
    assert versions_of(query) == versions
    for version in versions:
        request = sent(query, version)
        assert (request.transactional_id, request.group_id) == ("job", "group")
        assert (request.producer_id, request.producer_epoch) == (4711, 3)
        written = {
            (topic.name, each.partition_index): (
                each.committed_offset,
                each.committed_metadata,
                each.committed_leader_epoch,
            )
            for topic in request.topics
            for each in topic.partitions
        }
        epoch = 3 if version >= 2 else -1
        assert written == {T0: (7, "seven", epoch), T1: (8, "", -1), U0: (9, "", -1)}


def test_an_offset_that_is_refused_in_a_transaction_names_its_partition() -> None:
    def answer(code: int) -> TxnOffsetCommitResponse:
        parts = [TxnOffsetCommitResponsePartition(0, 0), TxnOffsetCommitResponsePartition(1, code)]
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("t", partitions=parts)])

    query = queries.commit_in_transaction(prepared(), "group", {T0: SEVEN, T1: SEVEN})
    query.read(answer(0))
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        query.read(answer(UNKNOWN_TOPIC))
    assert (caught.value.topic, caught.value.partition) == T1


def test_a_description_has_all_fields_of_the_coordinator() -> None:
    query = queries.describe("job")
    assert query.coordinator == CoordinatorKey(TRANSACTION, "job")
    assert sent(query, 0).transactional_ids == ["job"]
    answer = DescribeTransactionsResponse(transaction_states=[described(name="a"), described()])
    assert query.read(answer) == TransactionDescription(
        "job", "Ongoing", 4711, 3, 60_000, 17, (T0, T1, U0)
    )


def test_an_unknown_transactional_id_has_no_description() -> None:
    unknown = described(error_code=ID_NOT_FOUND, name="none")
    answer = DescribeTransactionsResponse(transaction_states=[unknown, described()])
    assert queries.describe("none").read(answer) is None
    query = queries.describe_each(["none", "job"])
    assert query.coordinator is None
    assert sent(query, 0).transactional_ids == ["none", "job"]
    assert list(query.read(answer)) == ["job"]


def test_a_description_that_is_refused_is_an_error() -> None:
    answer = DescribeTransactionsResponse(transaction_states=[described(error_code=NO_ID)])
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        queries.describe_each(["job"]).read(answer)


# -- lists of transactions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "version", "pattern"),
    [("a.b", 2, "a\\.b.*"), ("a.b", 1, None), ("", 2, None)],
)
def test_brokers_filter_by_prefix_from_version_2_on(
    prefix: str, version: int, pattern: str | None
) -> None:
    query = queries.list_open(prefix, None)
    request = query.make(version)
    assert isinstance(request, ListTransactionsRequest)
    assert request.transactional_id_pattern == pattern
    assert sent(query, version).transactional_id_pattern == pattern


@pytest.mark.parametrize(("older_than_ms", "versions"), [(None, range(3)), (0, range(1, 3))])
def test_filter_by_age_needs_version_1(older_than_ms: int | None, versions: range) -> None:
    query = queries.list_open("", older_than_ms)
    assert query.coordinator is None
    assert versions_of(query) == versions
    for version in versions:
        expected = -1 if older_than_ms is None else older_than_ms
        assert cast(ListTransactionsRequest, query.make(version)).duration_filter == expected


@pytest.mark.parametrize(("idle", "states"), [(False, ["Ongoing"]), (True, ["Ongoing", "Empty"])])
def test_only_open_transactions_are_listed(idle: bool, states: list[str]) -> None:
    assert sent(queries.list_open("", None, idle=idle), 0).state_filters == states


def test_transactions_that_have_not_begun_are_listed_on_demand_only() -> None:
    assert sent(queries.list_open("", None), 0).state_filters == ["Ongoing"]


def test_names_without_the_prefix_are_left_out_of_a_list() -> None:
    found = [ListTransactionsTransactionState(name, 1, "Ongoing") for name in ("a-1", "b", "a-2")]
    query = queries.list_open("a-", None)
    assert query.read(ListTransactionsResponse(transaction_states=found)) == ["a-1", "a-2"]
    with pytest.raises(CoordinatorNotAvailableError):
        query.read(ListTransactionsResponse(error_code=NOT_AVAILABLE))


# -- offsets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "topics"),
    [(None, None), ([], []), ([T0, U0, T1], [("t", [0, 1]), ("u", [0])])],
)
def test_stable_offsets_are_asked_for_in_the_form_of_each_version(
    partitions: list[TopicPartition] | None, topics: list[tuple[str, list[int]]] | None
) -> None:
    query = queries.committed("group", partitions)
    assert query.coordinator == CoordinatorKey(GROUP, "group")
    assert versions_of(query) == range(7, 10)
    for version in versions_of(query):
        request = sent(query, version)
        assert request.require_stable
        (asked,) = request.groups or [request]
        assert asked.group_id == "group"
        found = asked.topics
        named = None if found is None else [(each.name, each.partition_indexes) for each in found]
        assert named == topics


def fetched(*entries: tuple[TopicPartition, int, int, str | None, int]) -> list[Any]:
    """Responses to version 7 and to later ones."""
    older = [
        OffsetFetchResponseTopic(topic, [OffsetFetchResponsePartition(partition, *rest)])
        for (topic, partition), *rest in entries
    ]
    newer = [
        OffsetFetchResponseTopics(
            name=topic, partitions=[OffsetFetchResponsePartitions(partition, *rest)]
        )
        for (topic, partition), *rest in entries
    ]
    group = OffsetFetchResponseGroup(group_id="group", topics=newer)
    return [OffsetFetchResponse(topics=older), OffsetFetchResponse(groups=[group])]


def test_offsets_have_metadata_and_epoch_where_the_group_has_them() -> None:
    for answer in fetched((T0, 0, 0, "seven", 0), (T1, 8, -1, "", 0), (U0, -1, -1, None, 0)):
        assert queries.committed("group", None).read(answer) == {
            T0: OffsetAndMetadata(0, "seven", 0),
            T1: OffsetAndMetadata(8, None, None),
        }


def test_an_offset_that_cannot_be_read_names_its_partition() -> None:
    for answer in fetched((T0, 1, -1, "", 0), (T1, -1, -1, "", UNKNOWN_TOPIC)):
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            queries.committed("group", None).read(answer)
        assert (caught.value.topic, caught.value.partition) == T1


def test_a_group_that_is_refused_is_an_error() -> None:
    group = OffsetFetchResponseGroup(group_id="group", error_code=NO_GROUP)
    for answer in (
        OffsetFetchResponse(error_code=NO_GROUP),
        OffsetFetchResponse(groups=[group]),
    ):
        with pytest.raises(GroupAuthorizationFailedError):
            queries.committed("group", None).read(answer)


def test_offsets_are_committed_for_a_group_without_members() -> None:
    query = queries.commit("group", OFFSETS)
    assert query.coordinator == CoordinatorKey(GROUP, "group")
    assert versions_of(query) == range(10)
    for version in versions_of(query):
        request = sent(query, version)
        assert (request.group_id, request.member_id) == ("group", "")
        assert request.generation_id_or_member_epoch == -1
        written = {
            (topic.name, each.partition_index): (each.committed_offset, each.committed_metadata)
            for topic in request.topics
            for each in topic.partitions
        }
        assert written == {T0: (7, "seven"), T1: (8, None), U0: (9, None)}


def test_an_offset_that_is_refused_names_its_partition() -> None:
    def answer(code: int) -> OffsetCommitResponse:
        parts = [OffsetCommitResponsePartition(0, 0), OffsetCommitResponsePartition(1, code)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=parts)])

    query = queries.commit("group", {T0: SEVEN, T1: SEVEN})
    query.read(answer(0))
    with pytest.raises(KafkaError) as caught:
        query.read(answer(UNKNOWN_TOPIC))
    assert (caught.value.topic, caught.value.partition) == T1


# -- responses that leave something out --------------------------------------------------------


def test_an_offset_that_a_response_leaves_out_is_not_in_the_transaction() -> None:
    query = queries.commit_in_transaction(prepared(), "group", {T0: SEVEN, U0: SEVEN})
    part = TxnOffsetCommitResponsePartition(0, 0)
    answer = TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("t", partitions=[part])])
    with pytest.raises(ProtocolError, match="topic='u'"):
        query.read(answer)


def test_an_offset_that_a_response_leaves_out_is_not_committed() -> None:
    query = queries.commit("group", {T0: SEVEN, U0: SEVEN})
    part = OffsetCommitResponsePartition(0, 0)
    answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[part])])
    with pytest.raises(ProtocolError, match="topic='u'"):
        query.read(answer)


def test_a_partition_that_a_response_leaves_out_is_not_one_without_an_offset() -> None:
    query = queries.committed("group", [T0, U0])
    for answer in (*fetched((T0, 7, -1, "", 0)), OffsetFetchResponse(groups=[])):
        with pytest.raises(ProtocolError, match="out of the offsets"):
            query.read(answer)


@pytest.mark.parametrize("groups", [[], [OffsetFetchResponseGroup(group_id="another")]])
def test_a_group_that_a_response_leaves_out_is_not_one_without_offsets(
    groups: list[OffsetFetchResponseGroup],
) -> None:
    query = queries.committed("group", None)
    query.make(8)
    with pytest.raises(ProtocolError, match="'group'"):
        query.read(OffsetFetchResponse(groups=groups))
    query.make(7)
    assert query.read(OffsetFetchResponse()) == {}


def test_a_transactional_id_that_a_response_leaves_out_is_not_unknown() -> None:
    with pytest.raises(ProtocolError, match="'job'"):
        queries.describe("job").read(DescribeTransactionsResponse(transaction_states=[]))


def test_taking_over_without_a_producer_id_fails() -> None:
    answer = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    with pytest.raises(ProtocolError, match="no producer id"):
        queries.take_over("job", 60_000).read(answer)
