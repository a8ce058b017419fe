"""Versions, garbage and scripted connection faults."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.testing.broker import ClusterState, Reply, TelemetrySubscription, TopicSpec
from aioproducer.testing.broker.dispatch import SERVED
from aioproducer.testing.framing import REQUEST_TYPES, RequestHeader, decode_request_header
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import SIZE_BYTES, decode_response
from aioproducer.wire.messages.api_versions import ApiVersionsRequest
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest

from .support import NOW_MS, ask, header_of, make_batch, make_state, produce_request

SOFTWARE = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")


@pytest.fixture
def state() -> ClusterState:
    state = make_state()
    state.create_topic("t", TopicSpec(1, 3))
    state.telemetry.subscription = TelemetrySubscription()
    return state


@pytest.mark.parametrize("version", range(6))
def test_api_versions_list_what_is_served(state: ClusterState, version: int) -> None:
    response = ask(state, SOFTWARE, version)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert response.error_code == 0
    assert ranges[ApiKey.METADATA] == (0, 13)
    assert ranges[ApiKey.PRODUCE] == (0, 13)
    assert set(ranges) == {int(key) for key in SERVED}


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [("c", 1, 0), (None, -1, 0), (None, 2, 0), ("d", 1, 129), ("c", 2, 129)],
)
def test_the_intended_cluster_and_node_are_checked(
    cluster_id: str | None, node_id: int, code: int
) -> None:
    request = dataclasses.replace(SOFTWARE, cluster_id=cluster_id, node_id=node_id)
    assert ask(make_state(cluster_id="c"), request, 5, node_id=1).error_code == code


@pytest.mark.parametrize("key", SERVED)
def test_every_served_version_exists_on_the_wire(key: ApiKey) -> None:
    lowest, highest = REQUEST_TYPES[key].VALID_VERSIONS
    assert lowest <= SERVED[key].lowest <= SERVED[key].highest <= highest


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (key, version)
        for key, api in SERVED.items()
        for version in range(api.lowest, api.highest + 1)
    ],
)
def test_default_request_of_every_served_version_is_answered(
    state: ClusterState, key: ApiKey, version: int
) -> None:
    request_type = REQUEST_TYPES[key]
    request = dataclasses.replace(request_type())
    if key is ApiKey.PRODUCE:
        request = produce_request("nope", 0, make_batch())
    if key is ApiKey.API_VERSIONS:
        request = SOFTWARE
    assert isinstance(ask(state, request, version), request_type.RESPONSE)


def test_telemetry_is_offered_where_a_plugin_takes_it() -> None:
    offered = ask(make_state(), SOFTWARE, 4).api_keys
    assert not {71, 72} & {entry.api_key for entry in offered}


def test_api_versions_too_new_is_answered_in_v0_with_what_there_is(state: ClusterState) -> None:
    header = RequestHeader(int(ApiKey.API_VERSIONS), 99, 7, "x", memoryview(b"whatever"))
    frame = state.handle(1, header, NOW_MS)
    assert frame is not None
    correlation_id, response = decode_response(ApiVersionsRequest, 0, frame[SIZE_BYTES:])
    assert (correlation_id, response.error_code) == (7, 35)
    (only,) = response.api_keys
    assert (only.api_key, only.min_version, only.max_version) == (18, 0, 5)


@pytest.mark.parametrize("name", ["", "-x", "a b", "ä"])
def test_software_has_to_have_a_proper_name(state: ClusterState, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert ask(state, request, 3).error_code == 42


@pytest.mark.parametrize(
    ("api_key", "version"), [(0, 2), (0, 14), (3, 99), (3, -1), (11, 0), (9999, 0), (-1, 0)]
)
def test_unsupported_request_closes_the_connection(
    state: ClusterState, api_key: int, version: int
) -> None:
    reply = state.respond(1, RequestHeader(api_key, version, 1, None, memoryview(b"")), NOW_MS)
    assert reply.frame is None
    assert reply.close is not None


def test_versions_can_be_pinned_or_taken_away() -> None:
    pinned = {ApiKey.PRODUCE: (3, 6), ApiKey.INIT_PRODUCER_ID: None}
    state = make_state(api_versions=pinned)
    ranges = {
        each.api_key: (each.min_version, each.max_version)
        for each in ask(state, SOFTWARE, 3).api_keys
    }
    assert ranges[ApiKey.PRODUCE] == (3, 6)
    assert ApiKey.INIT_PRODUCER_ID not in ranges
    reply = state.respond(1, header_of(produce_request("t", 0, make_batch()), 7), NOW_MS)
    assert reply.close is not None


def test_versions_can_be_those_of_one_broker() -> None:
    of_all, of_one = {ApiKey.PRODUCE: (3, 9), ApiKey.METADATA: (0, 9)}, {ApiKey.PRODUCE: (3, 7)}
    state = make_state(api_versions=of_all, api_versions_by_broker={2: of_one})
    state.create_topic("t")
    served = [
        state.respond(node_id, header_of(request, version), NOW_MS).close is None
        for request, version in (
            (produce_request("t", 0, make_batch()), 9),
            (MetadataRequest(topics=[]), 12),
        )
        for node_id in (1, 2)
    ]
    assert served == [True, False, False, True]
    advertised = state.respond(2, header_of(SOFTWARE, 3), NOW_MS).frame
    assert advertised is not None
    response = decode_response(ApiVersionsRequest, 3, advertised[SIZE_BYTES:])[1]
    ranges = {each.api_key: each.max_version for each in response.api_keys}
    assert (ranges[ApiKey.PRODUCE], ranges[ApiKey.METADATA]) == (7, 13)


@given(
    key=st.sampled_from(sorted(SERVED)), version=st.integers(0, 17), body=st.binary(max_size=200)
)
def test_garbage_is_answered_or_ends_the_connection_but_never_raises(
    key: ApiKey, version: int, body: bytes
) -> None:
    state = make_state()
    state.create_topic("t")
    reply = state.respond(1, RequestHeader(int(key), version, 1, None, memoryview(body)), NOW_MS)
    assert (reply.frame is not None) or (reply.close is not None) or (reply.wait is not None)


@given(st.data())
def test_damaged_requests_never_raise(data: st.DataObject) -> None:
    state = make_state()
    state.create_topic("t")
    request = data.draw(
        st.sampled_from([produce_request("t", 0, make_batch()), MetadataRequest(topics=None)])
    )
    header = header_of(request, 9)
    body = bytearray(header.body)
    for _ in range(data.draw(st.integers(1, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = dataclasses.replace(header, body=memoryview(bytes(body)))
    reply = state.respond(1, damaged, NOW_MS)
    assert reply.wait is None


def test_header_cut_short_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(b"\0\3\0")


def test_scripted_drop_closes_before_or_after_the_write(state: ClusterState) -> None:
    log = state.topics["t"].partitions[0].log
    header = header_of(produce_request("t", 0, make_batch()), 9)
    state.faults.drop(ApiKey.PRODUCE)
    state.faults.drop(ApiKey.PRODUCE, apply=True)
    for written in (0, 1):
        reply = state.respond(1, header, NOW_MS)
        assert (reply.frame, reply.close) == (None, "scripted fault")
        assert log.end_offset == written
    assert state.respond(1, header, NOW_MS).close is None


def test_scripted_delay_throttle_swallow_cut_and_garbage(state: ClusterState) -> None:
    header = header_of(MetadataRequest(topics=[]), 9)
    whole = state.respond(1, header, NOW_MS).frame
    assert whole is not None
    state.faults.delay(70, ApiKey.METADATA)
    state.faults.throttle(90, ApiKey.METADATA)
    state.faults.swallow(ApiKey.METADATA)
    state.faults.cut(9, ApiKey.METADATA)
    state.faults.garble(b"\0\0\0\1x", ApiKey.METADATA)
    delayed, throttled, swallowed, cut, garbled = (
        state.respond(1, header, NOW_MS) for _ in range(5)
    )
    assert (delayed.frame, delayed.delay_ms) == (whole, 70)
    assert throttled.frame is not None
    response = decode_response(MetadataRequest, 9, throttled.frame[SIZE_BYTES:])[1]
    assert (response.throttle_time_ms, throttled.mute_ms) == (90, 90)
    assert (swallowed.frame, swallowed.close) == (None, None)
    assert (cut.frame, cut.close) == (whole[:9], "scripted fault")
    assert (garbled.frame, garbled.close) == (b"\0\0\0\1x", None)


def test_response_is_throttled_by_the_broker_itself_before_kip_219(state: ClusterState) -> None:
    state.faults.throttle(90, ApiKey.METADATA, times=2)
    old, new = (
        state.respond(1, header_of(MetadataRequest(topics=[]), version), NOW_MS)
        for version in (5, 6)
    )
    assert (old.delay_ms, old.mute_ms) == (90, 0)
    assert (new.delay_ms, new.mute_ms) == (0, 90)


def test_fault_strikes_where_and_as_often_as_scripted(state: ClusterState) -> None:
    header = header_of(MetadataRequest(topics=[]), 9)
    fault = state.faults.delay(5, ApiKey.METADATA, node_id=2, times=2, skip=1)
    delays = [[state.respond(node, header, NOW_MS).delay_ms for _ in range(4)] for node in (1, 2)]
    assert delays == [[0, 0, 0, 0], [0, 5, 5, 0]]
    assert fault.struck == 2


def test_fault_without_count_strikes_until_removed(state: ClusterState) -> None:
    header = header_of(produce_request("t", 0, make_batch()), 9)
    fault = state.throttle(40)
    assert [state.respond(1, header, NOW_MS).mute_ms for _ in range(3)] == [40] * 3
    state.faults.remove(fault)
    assert state.respond(1, header, NOW_MS).mute_ms == 0
    state.throttle(40)
    state.faults.clear()
    assert state.respond(1, header, NOW_MS).mute_ms == 0


def test_a_late_answer_of_the_gate_still_closes_the_connection(state: ClusterState) -> None:
    state.faults.delay(70)
    header = header_of(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    reply = state.respond(1, header, NOW_MS, gate=lambda: Reply(b"no", close="refused"))
    assert reply == Reply(b"no", delay_ms=70, close="refused")
