"""A certificate authority for tests, and what it signs.

Owns: making keys and certificates, writing them in the forms users have them in. Not here:
brokers, clients.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @cached_property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        return self.key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)
        ).decode()

    def pem_file(self, path: Path, password: str | None = None) -> Path:
        """Key and certificate in one file, as Java's PEM stores have them."""
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return path

    def pkcs12_file(self, path: Path, password: str) -> Path:
        data = pkcs12.serialize_key_and_certificates(
            b"me", self.key, self.certificate, None, _encryption(password)
        )
        path.write_bytes(data)
        return path


class Authority:
    """An authority that signs certificates for hosts and clients."""

    def __init__(self, name: str = "Test CA", signer: Authority | None = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            (signer or self)
            ._builder(self._name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key if signer is None else signer.identity.key, hashes.SHA256())
        )
        self.identity = Identity(key, certificate)

    @property
    def pem(self) -> str:
        return self.identity.certificate_pem

    def pkcs12_file(self, path: Path, password: str) -> Path:
        """The authority's certificate alone, as a trust store."""
        data = pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.identity.certificate, b"ca")], _encryption(password)
        )
        path.write_bytes(data)
        return path

    def issue(self, name: str, *hosts: str, expired: bool = False) -> Identity:
        """A certificate for hosts (names or addresses), or with none for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        # Python 3.13's default contexts want the signer's identifier (VERIFY_X509_STRICT).
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.identity.key.public_key())
        builder = (
            self._builder(subject, key, expired=expired)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(signer, critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Identity(key, builder.sign(self.identity.key, hashes.SHA256()))

    def server_context(
        self, identity: Identity, directory: Path, *, client_ca: str | None = None
    ) -> ssl.SSLContext:
        """For a server with this certificate; with `client_ca` it wants one from clients."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.pem_file(directory / "server.pem"))
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_ca)
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC) - (3 * _LIFE if expired else _LIFE / 2)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + _LIFE)
        )


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
