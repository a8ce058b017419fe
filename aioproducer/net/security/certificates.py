"""Reader of certificates: subject, issuer, validity and host names (DER, X.509, RFC 5280).

Python's `ssl` describes only certificates that it accepted; this module is for refused ones. Trust
is decided by `ssl`. Invariant: any bytes give either a `Certificate` or a ValueError.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_UTC_TIME, _GENERALIZED_TIME, _OBJECT_ID, _BMP_STRING = 0x17, 0x18, 0x06, 0x1E
_VERSION, _EXTENSIONS, _DNS_NAME, _IP_ADDRESS = 0xA0, 0xA3, 0x82, 0x87
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")
_LABELS = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("550406"): "C",
}
_LONGEST_TEXT = 120
_MOST_NAMES = 12
_MOST_CERTIFICATES = 10

_Element = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Displayed fields of a certificate; times are UTC."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        hosts = f", for {', '.join(self.names)}" if self.names else ""
        return (
            f"{self.subject}{hosts}; issued by {self.issuer}; "
            f"valid {self.not_before:%Y-%m-%d %H:%M} to {self.not_after:%Y-%m-%d %H:%M} UTC"
        )


def read_certificate(der: bytes) -> Certificate:
    """Read a certificate."""
    try:
        return _read(der)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("the certificate is malformed") from error


def leaf_first(certificates: Sequence[str]) -> tuple[str, ...]:
    """Return a chain of PEM certificates in TLS's order: each is followed by its issuer.

    The chain is unchanged if the order cannot be determined.
    """
    try:
        read = [read_certificate(ssl.PEM_cert_to_DER_cert(each)) for each in certificates]
    except ValueError:
        return tuple(certificates)
    signers = {each.issuer for each in read if each.issuer != each.subject}
    places = {each.subject: place for place, each in enumerate(read)}
    leaves = [place for place, each in enumerate(read) if each.subject not in signers]
    if len(leaves) != 1 or len(places) != len(read):
        return tuple(certificates)
    order = leaves
    while (signer := places.get(read[order[-1]].issuer)) is not None and signer not in order:
        order.append(signer)
    order += [place for place in range(len(read)) if place not in order]
    return tuple(certificates[place] for place in order)


def shown_chain(ssl_object: Any) -> list[Certificate]:
    """Return the readable certificates of the peer, its own first.

    Python before 3.13 has the whole chain only in a private attribute; without that, only the first
    certificate is returned.
    """
    chain: list[bytes] = []
    if hasattr(ssl_object, "get_unverified_chain"):
        chain = list(ssl_object.get_unverified_chain() or ())
    else:
        below: Any = getattr(ssl_object, "_sslobj", None)
        shown: Any = getattr(below, "get_unverified_chain", tuple)() or ()
        chain = [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in shown]
    if not chain:
        own = ssl_object.getpeercert(binary_form=True)
        chain = [own] if own else []
    return list(_readable(chain[:_MOST_CERTIFICATES]))


def _readable(chain: list[bytes]) -> Iterator[Certificate]:
    for der in chain:
        try:
            yield read_certificate(der)
        except ValueError:
            continue


def _read(der: bytes) -> Certificate:
    signed = _first(_first(der))
    fields = list(_elements(signed))
    if fields[0][0] == _VERSION:
        fields = fields[1:]
    _serial, _algorithm, issuer, validity, subject, _key, *rest = fields
    not_before, not_after = (_time(each) for each in _elements(validity[1]))
    return Certificate(
        _name(subject[1]), _name(issuer[1]), not_before, not_after, tuple(_hosts(rest))
    )


def _elements(data: bytes) -> Iterator[_Element]:
    """Yield tag and content of each element."""
    at = 0
    while at < len(data):
        tag, length, start = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[start : start + size], "big")
            start += size
        if start + length > len(data):
            raise ValueError("the certificate is cut off")
        yield tag, data[start : start + length]
        at = start + length


def _first(data: bytes) -> bytes:
    """Return the content of the first element."""
    for _, content in _elements(data):
        return content
    raise ValueError("the certificate is malformed")


def _name(data: bytes) -> str:
    """Return a distinguished name as text such as `CN=broker, O=Acme`."""
    parts = []
    for _, attributes in _elements(data):
        for _, attribute in _elements(attributes):
            (_, kind), (tag, value), *_ = _elements(attribute)
            if kind in _LABELS:
                coding = "utf-16-be" if tag == _BMP_STRING else "utf-8"
                parts.append(f"{_LABELS[kind]}={_printable(value.decode(coding, 'replace'))}")
    return ", ".join(parts) or "(no name)"


def _time(element: _Element) -> datetime:
    tag, content = element
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280: two digits below 50 are of this century.
        text = ("20" if text[:2] < "50" else "19") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("the certificate has a time of an unknown kind")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _hosts(fields: list[_Element]) -> Iterator[str]:
    """Yield the host names and addresses of the certificate."""
    extensions = next((content for tag, content in fields if tag == _EXTENSIONS), None)
    if extensions is None:
        return
    for _, extension in _elements(_first(extensions)):
        kind, *_, (_, value) = _elements(extension)
        if kind != (_OBJECT_ID, _ALTERNATIVE_NAMES):
            continue
        for tag, name in list(_elements(_first(value)))[:_MOST_NAMES]:
            if tag == _DNS_NAME:
                yield _printable(name.decode("ascii", "replace"))
            elif tag == _IP_ADDRESS:
                yield str(ipaddress.ip_address(name))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:_LONGEST_TEXT]
