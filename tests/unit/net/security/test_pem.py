"""Keys and certificates in PEM and PKCS12, in every form that users have them in."""

from __future__ import annotations

import sys
from base64 import b64decode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12
from support.security.certificates import Authority
from support.security.leaks import secret

from aioproducer.errors import ConfigError
from aioproducer.net.security.pem import PemStore, parse_pem, read_store

AUTHORITY = Authority()
ME = AUTHORITY.issue("me")
PASSWORD = secret("the password of a store 31")
KEY_ON_AN_UNSUPPORTED_CURVE = """
MIGlAgEDMIGfBgkqhkiG9w0BBwGggZEEgY4wgYswgYgGCSqGSIb3DQEHAaB7BHkwdzB1BgsqhkiG
9w0BDAoBAaBmMGQCAQAwFAYHKoZIzj0CAQYJKyQDAwIIAQEBBEkwRwIBAQQUwQ1ORaSveH4pkzIP
nqgWUnaBr4GhLAMqAARdd8fjg/l//wckqRLGHwIq3cfHN4YQKpmDuMoCIbvbkg2JUP4qjnah
"""
"""A PKCS12 file: brainpoolP160r1."""


def block(label: str, body: str) -> str:
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"


def test_other_content_and_further_keys_are_ignored() -> None:
    parts = ["a comment", block("DH PARAMETERS", "AAAA"), ME.key_pem(), "between"]
    parts += [ME.certificate_pem, AUTHORITY.pem, AUTHORITY.issue("you").key_pem(), "after"]
    store = parse_pem("\n".join(parts), PASSWORD)
    assert store == PemStore((ME.certificate_pem, AUTHORITY.pem), ME.key_pem(), PASSWORD)


@pytest.mark.parametrize("end", [" ", "\\n", "\\r\\n", "\r\n", "\n"])
def test_line_ends_may_be_missing_or_escaped(end: str) -> None:
    text = (ME.key_pem() + ME.certificate_pem).replace("\n", end)
    assert parse_pem(text) == PemStore((ME.certificate_pem,), ME.key_pem())


def test_a_key_with_headers_stays_as_it_is() -> None:
    key = block("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAA AA")
    assert parse_pem(key).private_key == key


def test_a_body_has_lines_of_64_characters() -> None:
    assert parse_pem(block("CERTIFICATE", "A" * 129)).certificates == (
        block("CERTIFICATE", "\n".join(["A" * 64, "A" * 64, "A"])),
    )


def test_a_block_without_an_end_is_ignored() -> None:
    text = "-----BEGIN CERTIFICATE-----\nAAAA\n"
    assert parse_pem(text) == PemStore()
    assert parse_pem(text + ME.key_pem()) == PemStore((), ME.key_pem())
    assert parse_pem("-----BEGIN X PRIVATE KEY-----\n" * 2 + ME.certificate_pem) == PemStore(
        (ME.certificate_pem,)
    )


@pytest.mark.parametrize(
    ("kinds", "label", "is_read"),
    [(20, "PRIVATE KEY", True), (21, "PRIVATE KEY", False), (30, "PARAMETERS", True)],
)
def test_only_20_kinds_of_keys_without_an_end_are_passed_over(
    kinds: int, label: str, is_read: bool
) -> None:
    """Each of them takes a search to the end of the text."""
    unended = "".join(f"-----BEGIN {kind} {label}-----\n" for kind in range(kinds))
    assert parse_pem(unended + ME.certificate_pem).certificates == (
        (ME.certificate_pem,) if is_read else ()
    )


# -- files -----------------------------------------------------------------------------------------


def test_the_reason_why_a_store_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing cannot be read: No such file") as caught:
        read_store(str(tmp_path / "missing"), None)
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize("kind", [None, "PEM"])
def test_a_pem_file_has_the_given_password(tmp_path: Path, kind: str | None) -> None:
    key, path = ME.key_pem(PASSWORD), tmp_path / "me.pem"
    path.write_text(key + ME.certificate_pem)
    store = read_store(str(path), PASSWORD, kind)
    assert store == PemStore((ME.certificate_pem,), key, PASSWORD)


@pytest.mark.parametrize("kind", [None, "PKCS12", "JKS"])
def test_a_pkcs12_file_has_a_key_without_a_password(tmp_path: Path, kind: str | None) -> None:
    path = ME.pkcs12_file(tmp_path / "me.p12", PASSWORD)
    store = read_store(str(path), PASSWORD, kind)
    assert store == PemStore((ME.certificate_pem,), ME.key_pem())


def test_a_pkcs12_file_may_have_only_certificates(tmp_path: Path) -> None:
    path = AUTHORITY.pkcs12_file(tmp_path / "ca.p12", PASSWORD)
    assert read_store(str(path), PASSWORD) == PemStore((AUTHORITY.pem,))


def test_the_certificates_of_a_pkcs12_file_follow_its_own(tmp_path: Path) -> None:
    path = tmp_path / "me.p12"
    chain = [AUTHORITY.identity.certificate]
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"me", ME.key, ME.certificate, chain, NoEncryption())
    )
    store = read_store(str(path), None)
    assert store == PemStore((ME.certificate_pem, AUTHORITY.pem), ME.key_pem())


@pytest.mark.parametrize(
    ("password", "words"),
    [(None, "without a password"), ("wrong", "with the password given for it")],
)
def test_a_pkcs12_file_that_cannot_be_decrypted_is_refused(
    tmp_path: Path, password: str | None, words: str
) -> None:
    path = ME.pkcs12_file(tmp_path / "me.p12", PASSWORD)
    with pytest.raises(ConfigError, match=rf"me\.p12 cannot be read {words}"):
        read_store(str(path), password)


def test_a_pkcs12_file_with_a_key_that_the_package_does_not_support_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "me.p12"
    path.write_bytes(b64decode(KEY_ON_AN_UNSUPPORTED_CURVE))
    with pytest.raises(ConfigError, match=r"me\.p12 cannot be read by the package cryptography: C"):
        read_store(str(path), None)


def test_a_store_of_another_type_than_configured_is_refused(tmp_path: Path) -> None:
    path = ME.pkcs12_file(tmp_path / "me.p12", PASSWORD)
    with pytest.raises(ConfigError, match=r"me\.p12 is PKCS12, not PEM"):
        read_store(str(path), PASSWORD, "PEM")
    path.write_text(ME.certificate_pem)
    with pytest.raises(ConfigError, match=r"me\.p12 is PEM, not JKS"):
        read_store(str(path), PASSWORD, "JKS")


def test_a_pkcs12_file_without_the_package_for_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ME.pkcs12_file(tmp_path / "me.p12", PASSWORD)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ConfigError, match="takes the package cryptography to read"):
        read_store(str(path), PASSWORD)
