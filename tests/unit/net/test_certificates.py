from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from support.security.certificates import Authority

from aioproducer.net.security.certificates import (
    Certificate,
    leaf_first,
    read_certificate,
    shown_chain,
)
from aioproducer.net.security.tls import TlsSettings, make_context

AUTHORITY = Authority()
IDENTITY = AUTHORITY.issue("broker", "kafka.example", "192.0.2.1", "2001:db8::1")
DER = IDENTITY.certificate.public_bytes(Encoding.DER)


def test_a_certificate_is_read_as_others_read_it() -> None:
    read = read_certificate(DER)
    assert (read.subject, read.issuer) == ("CN=broker", "CN=Test CA")
    assert read.names == ("kafka.example", "192.0.2.1", "2001:db8::1")
    assert read.not_before == IDENTITY.certificate.not_valid_before_utc.astimezone(UTC)
    assert read.not_after == IDENTITY.certificate.not_valid_after_utc.astimezone(UTC)


def test_an_authority_is_for_no_host() -> None:
    read = read_certificate(AUTHORITY.identity.certificate.public_bytes(Encoding.DER))
    assert (read.subject, read.issuer, read.names) == ("CN=Test CA", "CN=Test CA", ())


def test_the_systems_authorities_can_all_be_read() -> None:
    for der in ssl.create_default_context().get_ca_certs(binary_form=True):
        assert read_certificate(der).subject


@pytest.mark.parametrize(
    ("written", "year"), [("000101", 2000), ("491231", 2049), ("500101", 1950), ("991231", 1999)]
)
def test_a_year_of_two_digits_is_between_1950_and_2049(written: str, year: int) -> None:
    """RFC 5280, 4.1.2.5.1."""
    dated = re.sub(rb"\x17\x0d\d{12}Z", b"\x17\x0d" + written.encode() + b"123456Z", DER, count=1)
    expected = datetime(year, int(written[2:4]), int(written[4:]), 12, 34, 56, tzinfo=UTC)
    assert read_certificate(dated).not_before == expected


def test_only_the_first_twelve_hosts_of_a_certificate_are_shown() -> None:
    hosts = [f"kafka-{number}.example" for number in range(14)]
    der = AUTHORITY.issue("broker", *hosts).certificate.public_bytes(Encoding.DER)
    assert read_certificate(der).names == tuple(hosts[:12])


def test_a_long_host_name_of_a_certificate_is_shortened() -> None:
    host = ".".join(["x" * 60] * 3)
    der = AUTHORITY.issue("broker", host).certificate.public_bytes(Encoding.DER)
    assert read_certificate(der).names == (host[:120],)


@pytest.mark.parametrize("private", [False, True])
def test_the_whole_chain_that_a_peer_shows_is_read(private: bool) -> None:
    """Python 3.13 gives it in DER; before, a private object of `ssl` has it in PEM."""
    identities = (IDENTITY, AUTHORITY.identity)
    if private:
        pem = [SimpleNamespace(public_bytes=lambda it=it: it.certificate_pem) for it in identities]
        peer = SimpleNamespace(_sslobj=SimpleNamespace(get_unverified_chain=lambda: pem))
    else:
        der = [it.certificate.public_bytes(Encoding.DER) for it in identities]
        peer = SimpleNamespace(get_unverified_chain=lambda: der)
    assert [each.subject for each in shown_chain(peer)] == ["CN=broker", "CN=Test CA"]


@pytest.mark.parametrize(
    ("own", "subjects"),
    [(DER, ["CN=broker"]), (None, []), (b"?", [])],
    ids=["its own", "none", "not readable"],
)
def test_of_a_peer_without_a_chain_the_own_certificate_is_read(
    own: bytes | None, subjects: list[str]
) -> None:
    for peer in (
        SimpleNamespace(getpeercert=lambda binary_form: own if binary_form else {}),
        SimpleNamespace(
            getpeercert=lambda binary_form: own if binary_form else {},
            get_unverified_chain=lambda: None,
        ),
    ):
        assert [each.subject for each in shown_chain(peer)] == subjects


def test_a_certificate_that_cannot_be_read_does_not_hide_the_next() -> None:
    peer = SimpleNamespace(get_unverified_chain=lambda: [b"?", DER])
    assert [each.subject for each in shown_chain(peer)] == ["CN=broker"]


def test_a_time_of_an_unknown_kind_is_refused() -> None:
    dated = re.sub(rb"\x17\x0d\d{12}Z", b"\x16\x0d202611111111Z", DER, count=1)
    with pytest.raises(ValueError, match="time of an unknown kind"):
        read_certificate(dated)


def test_a_chain_without_end_is_shown_in_part() -> None:
    peer = SimpleNamespace(get_unverified_chain=lambda: [DER] * 11)
    assert len(shown_chain(peer)) == 10


@given(st.binary(max_size=200))
def test_whatever_it_is_it_is_a_certificate_or_none(data: bytes) -> None:
    try:
        assert isinstance(read_certificate(data), Certificate)
    except ValueError:
        pass


@given(at=st.integers(0, len(DER) - 1), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_certificate_is_a_certificate_or_none(at: int, byte: int, cut: bool) -> None:
    damaged = DER[:at] if cut else DER[:at] + bytes([byte]) + DER[at + 1 :]
    try:
        read = read_certificate(damaged)
    except ValueError:
        return
    assert str(read).isprintable()


def test_a_certificate_with_a_list_of_extensions_that_is_not_there_is_none() -> None:
    listed = re.search(rb"\xa3[\x00-\x7f]\x30[\x00-\x7f]\x30.\x06\x03\x55\x1d", DER, re.DOTALL)
    assert listed is not None
    length_at = listed.start() + 1
    with pytest.raises(ValueError, match="malformed"):
        read_certificate(DER[:length_at] + b"\0" + DER[length_at + 1 :])


def test_a_certificate_that_is_cut_off_is_none() -> None:
    for end in range(len(DER)):
        with pytest.raises(ValueError, match="the certificate "):
            read_certificate(DER[:end])


def test_nothing_is_no_certificate() -> None:
    with pytest.raises(ValueError, match="malformed"):
        read_certificate(b"")


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_chain_is_put_in_order(order: tuple[int, ...], tmp_path: Path) -> None:
    root = Authority("root")
    middle = Authority("middle", root)
    leaf = middle.issue("client")
    chain = [leaf.certificate_pem, middle.pem, root.pem]
    given = [chain[place] for place in order]
    assert leaf_first(given) == tuple(chain)
    path = tmp_path / "client.pem"
    path.write_text(leaf.key_pem() + "".join(given))
    make_context(TlsSettings(keystore_location=str(path)))


def test_certificates_without_an_order_stay_as_they_are() -> None:
    strangers = [Authority(name).issue(name).certificate_pem for name in ("one", "other")]
    assert leaf_first(strangers) == tuple(strangers)
    assert leaf_first(["no certificate"]) == ("no certificate",)
    assert leaf_first([]) == ()


def test_a_long_chain_is_put_in_order() -> None:
    root = Authority("root")
    upper = Authority("upper", root)
    lower = Authority("lower", upper)
    chain = [lower.issue("client").certificate_pem, lower.pem, upper.pem, root.pem]
    assert leaf_first(chain[::-1]) == tuple(chain)


def test_no_certificate_is_lost_when_two_sign_each_other() -> None:
    """They lead to no root, hence the walk from the client's certificate does not meet them."""
    pair = [Authority("a", Authority("b")).pem, Authority("b", Authority("a")).pem]
    leaf = Authority("other").issue("client").certificate_pem
    assert leaf_first([*pair, leaf]) == (leaf, *pair)
