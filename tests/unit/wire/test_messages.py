"""Properties every declared message has in every version, on generated values and broken bytes."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.wire import messages
from aioproducer.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from aioproducer.wire.schema import Message

from .generated import MESSAGES, VERSIONS, by_name, instances


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=by_name)
@settings(max_examples=8)
@given(data=st.data())
def test_any_message_survives_encoding_and_decoding(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    message = data.draw(instances(cls, version))
    encoded = message.encode(version)
    assert cls.decode(encoded, version) == message
    assert cls.decode(memoryview(encoded), version) == message


def broken(data: st.DataObject, encoded: bytes) -> bytes:
    """Truncated, with bytes overwritten, inserted or removed, or noise from the start."""
    raw = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        match data.draw(st.sampled_from(["cut", "poke", "insert", "remove", "length", "noise"])):
            case "cut":
                del raw[at:]
            case "poke":
                raw[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
            case "insert":
                raw[at:at] = data.draw(st.binary(max_size=5))
            case "remove":
                del raw[at : at + 2]
            case "length":
                huge = [b"\x7f\xff\xff\xff", b"\x7f\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\x3f"]
                raw[at : at + 1] = data.draw(st.sampled_from(huge))
            case _:
                raw[:] = data.draw(st.binary(max_size=60))
    return bytes(raw)


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=by_name)
@settings(max_examples=8)
@given(data=st.data())
def test_broken_bytes_are_decoded_or_refused_with_a_protocol_error(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    message = data.draw(instances(cls, version))
    raw = broken(data, message.encode(version))
    try:
        decoded = cls.decode(raw, version)
    except ProtocolError:
        return
    assert cls.decode(decoded.encode(version), version) == decoded


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=by_name)
def test_a_huge_length_anywhere_costs_no_memory(cls: type[Message], version: int) -> None:
    encoded = cls().encode(version) + bytes(40)
    huge = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x89\x7a", b"\x00\x0f\x42\x40"]
    attacks = [
        encoded[:at] + length + encoded[at + len(length) :]
        for at in range(len(encoded))
        for length in huge
    ]
    cls.decode(cls().encode(version), version)
    tracemalloc.start()
    try:
        for attack in attacks:
            try:
                cls.decode(attack, version)
            except ProtocolError:
                continue
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize("cls", MESSAGES, ids=by_name)
def test_a_message_at_its_defaults_is_encoded_in_every_version(cls: type[Message]) -> None:
    lowest, highest = cls.VALID_VERSIONS
    for version in range(lowest, highest + 1):
        assert cls.decode(cls().encode(version), version) == cls()


def test_every_module_of_the_package_is_listed() -> None:
    modules = {path.stem for path in Path(messages.__file__).parent.glob("*.py")}
    listed = {kind.__module__.rpartition(".")[2] for kind in MESSAGES}
    assert modules - listed == {"__init__", "common"}


def test_loading_the_wire_package_loads_no_message() -> None:
    script = """
import sys, types
package = types.ModuleType("aioproducer")
package.__path__ = [sys.argv[1]]
sys.modules["aioproducer"] = package
import aioproducer.wire.framing, aioproducer.wire.schema
loaded = [name for name in sys.modules if name.startswith("aioproducer.wire.messages.")]
assert loaded == [], loaded
"""
    package = Path(messages.__file__).parents[2]
    subprocess.run([sys.executable, "-c", script, str(package)], check=True, timeout=60)


def test_the_lifetime_of_a_session_is_left_out_where_the_version_lacks_it() -> None:
    response = SaslAuthenticateResponse(session_lifetime_ms=5)
    for version, lifetime_ms in ((0, 0), (1, 5), (2, 5)):
        decoded = SaslAuthenticateResponse.decode(response.encode(version), version)
        assert decoded.session_lifetime_ms == lifetime_ms
