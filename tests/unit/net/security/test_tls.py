"""TLS contexts: trust, the client's certificate, versions and cipher suites."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from support.children import environment
from support.security.certificates import Authority
from support.security.leaks import secret

from aioproducer.errors import ConfigError
from aioproducer.net.security.pem import PemStore
from aioproducer.net.security.tls import (
    TlsContexts,
    TlsSettings,
    client_subject,
    make_context,
)

AUTHORITY = Authority("ca")
ME = AUTHORITY.issue("me")
PASSWORD = secret("the password of a key 52")
TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
NEWEST = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Shake hands in memory; raise what the client raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="broker.example")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass


def server_context(directory: Path, client_ca: str | None = None) -> ssl.SSLContext:
    identity = AUTHORITY.issue("broker", "broker.example")
    return AUTHORITY.server_context(identity, directory, client_ca=client_ca)


# -- trust -----------------------------------------------------------------------------------------


def hashed_name(authority: Authority) -> str:
    """The name under which OpenSSL finds an authority in a directory (`openssl rehash`)."""
    name = authority.identity.certificate.subject.public_bytes()
    text = authority.identity.certificate.subject.rfc4514_string().removeprefix("CN=").lower()
    canonical = name[2 : -len(text)] + text.encode()  # without the header of the sequence
    return f"{int.from_bytes(hashlib.sha1(canonical).digest()[:4], 'little'):08x}.0"


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_directory_of_hashed_certificates_is_trusted(tmp_path: Path, is_trusted: bool) -> None:
    directory = tmp_path / "ca"
    directory.mkdir()
    (directory / hashed_name(AUTHORITY)).write_text(
        AUTHORITY.pem if is_trusted else Authority("ca").pem
    )
    context = make_context(TlsSettings(truststore_location=str(directory)))
    if is_trusted:
        handshake(context, server_context(tmp_path))
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, server_context(tmp_path))


@pytest.mark.parametrize("name", ["ca.pem", "0123abcd", "0123abcd.x", "0123ABCD.0"])
def test_a_directory_without_hashed_certificates_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(AUTHORITY.pem)
    with pytest.raises(ConfigError, match="is a directory without certificates that OpenSSL finds"):
        make_context(TlsSettings(truststore_location=str(tmp_path)))


def test_a_directory_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ConfigError) as caught:
        make_context(TlsSettings(truststore_location=str(tmp_path)))
    assert caught.value.message == f"{tmp_path} cannot be read: Permission denied"


def test_a_malformed_certificate_is_refused() -> None:
    text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    with pytest.raises(ConfigError, match="ssl_truststore_certificates holds a malformed cert"):
        make_context(TlsSettings(truststore_certificates=text))


def test_a_store_in_a_file_counts_more_than_one_in_text(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(AUTHORITY.pem)
    other = Authority("other").pem
    settings = TlsSettings(truststore_location=str(path), truststore_certificates=other)
    handshake(make_context(settings), server_context(tmp_path))


def test_a_context_of_the_user_replaces_all_options() -> None:
    context = ssl.create_default_context()
    assert make_context(TlsSettings(context, truststore_location="/nowhere")) is context


# -- the client's certificate ----------------------------------------------------------------------


@pytest.mark.parametrize("option", ["keystore_password", "key_password"])
def test_one_password_opens_a_pkcs12_store_whatever_its_option(tmp_path: Path, option: str) -> None:
    path = ME.pkcs12_file(tmp_path / "me.p12", PASSWORD)
    settings = TlsSettings(
        truststore_certificates=AUTHORITY.pem, keystore_location=str(path), **{option: PASSWORD}
    )
    handshake(make_context(settings), server_context(tmp_path, AUTHORITY.pem))


@pytest.mark.parametrize("in_file", [True, False])
def test_a_separate_key_replaces_the_one_of_the_store(tmp_path: Path, in_file: bool) -> None:
    path, key = tmp_path / "me.pem", tmp_path / "key.pem"
    path.write_text(AUTHORITY.issue("you").key_pem() + ME.certificate_pem)
    key.write_text(ME.key_pem(PASSWORD))
    given = {"key_location": str(key)} if in_file else {"keystore_key": ME.key_pem(PASSWORD)}
    settings = TlsSettings(
        truststore_certificates=AUTHORITY.pem,
        keystore_location=str(path),
        key_password=PASSWORD,
        **given,
    )
    handshake(make_context(settings), server_context(tmp_path, AUTHORITY.pem))


@pytest.mark.parametrize(("password", "words"), [(None, ""), ("wrong", " with ssl_key_password")])
def test_a_key_that_cannot_be_read_is_refused(password: str | None, words: str) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    settings = TlsSettings(
        keystore_certificate_chain=ME.certificate_pem, keystore_key=key, key_password=password
    )
    with pytest.raises(ConfigError) as caught:
        make_context(settings)
    message = f"the client's private key or certificate cannot be read{words}"
    assert caught.value.message == message


def test_a_certificate_that_openssl_finds_too_weak_is_called_so() -> None:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    settings = TlsSettings(
        keystore_certificate_chain=certificate.public_bytes(Encoding.PEM).decode(),
        keystore_key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    )
    with pytest.raises(ConfigError) as caught:
        make_context(settings)
    assert caught.value.message == "OpenSSL refuses the client's certificate: ee key too small"
    assert "2048 bits" in str(caught.value)


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_the_key_is_written_to_a_file_only_on_systems_without_files_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_memory_files: bool
) -> None:
    written: list[str] = []
    make_directory = tempfile.TemporaryDirectory

    def recorded(*arguments: Any, **options: Any) -> Any:
        directory = make_directory(*arguments, dir=tmp_path, **options)
        written.append(directory.name)
        return directory

    monkeypatch.setattr(tempfile, "TemporaryDirectory", recorded)
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("this system has no files in memory")
    settings = TlsSettings(
        truststore_certificates=AUTHORITY.pem,
        keystore_certificate_chain=ME.certificate_pem,
        keystore_key=ME.key_pem(),
    )
    handshake(make_context(settings), server_context(tmp_path, AUTHORITY.pem))
    assert len(written) == (0 if has_memory_files else 1)
    assert not any(Path(path).exists() for path in written)


@pytest.mark.skipif(
    shutil.which("unshare") is None or not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can run a process without /proc, by unshare",
)
def test_the_clients_certificate_is_read_where_proc_is_not_mounted(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text(ME.certificate_pem)
    key.write_text(ME.key_pem())
    program = (
        "import sys; from pathlib import Path; "
        "from aioproducer.net.security.tls import TlsSettings, make_context; "
        "chain, key = (Path(each).read_text() for each in sys.argv[1:]); "
        "assert not Path('/proc/self').exists(); "
        "make_context(TlsSettings(keystore_certificate_chain=chain, keystore_key=key))"
    )
    without_proc = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
    ended = subprocess.run(
        [*without_proc, sys.executable, "-c", program, chain, key],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "unshare" in ended.stderr or "umount" in ended.stderr:
        pytest.skip(ended.stderr.strip())
    assert (ended.returncode, ended.stderr) == (0, "")


def test_no_certificate_or_secret_is_shown() -> None:
    names = [
        *("truststore_password", "truststore_certificates", "keystore_password"),
        *("keystore_certificate_chain", "keystore_key", "key_password"),
    ]
    settings = TlsSettings(truststore_location="/ca", **dict.fromkeys(names, PASSWORD))
    assert "truststore_location='/ca'" in repr(settings)
    assert PASSWORD not in repr(settings)
    assert PASSWORD not in repr(PemStore(("certificate",), PASSWORD, PASSWORD))


def test_the_subject_of_the_client_is_that_of_its_first_certificate(tmp_path: Path) -> None:
    assert client_subject(TlsSettings()) is None
    assert client_subject(TlsSettings(keystore_certificate_chain="nothing")) is None
    for chain in (ME.certificate_pem + AUTHORITY.pem, AUTHORITY.pem + ME.certificate_pem):
        assert client_subject(TlsSettings(keystore_certificate_chain=chain)) == "CN=me"
    path = ME.pem_file(tmp_path / "me.pem")
    assert client_subject(TlsSettings(keystore_location=str(path))) == "CN=me"


# -- versions and cipher suites --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "lowest", "highest"),
    [
        (("TLSv1.2",), TLS_1_2, TLS_1_2),
        (("TLSv1.3",), TLS_1_3, TLS_1_3),
        (("TLSv1.3", "TLSv1.2"), TLS_1_2, TLS_1_3),
    ],
)
def test_only_the_given_versions_are_used(
    versions: tuple[str, ...], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
) -> None:
    context = make_context(TlsSettings(versions=versions))
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)


@pytest.mark.parametrize(
    ("suites", "versions", "lowest", "highest"),
    [
        (NEWEST, ("TLSv1.2", "TLSv1.3"), TLS_1_3, TLS_1_3),
        ((*NEWEST, "ECDHE-RSA-AES128-GCM-SHA256"), ("TLSv1.2", "TLSv1.3"), TLS_1_2, TLS_1_3),
        (("ECDHE-RSA-AES128-GCM-SHA256",), ("TLSv1.2", "TLSv1.3"), TLS_1_2, TLS_1_2),
        (("ECDHE-RSA-AES128-GCM-SHA256",), ("TLSv1.2",), TLS_1_2, TLS_1_2),
        ((), ("TLSv1.2", "TLSv1.3"), TLS_1_2, TLS_1_3),
    ],
)
def test_versions_without_a_chosen_cipher_suite_are_not_used(
    suites: tuple[str, ...],
    versions: tuple[str, ...],
    lowest: ssl.TLSVersion,
    highest: ssl.TLSVersion,
) -> None:
    context = make_context(TlsSettings(versions=versions, cipher_suites=suites))
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)


@pytest.mark.parametrize("suites", [NEWEST[:1], (NEWEST[1], "ECDHE-RSA-AES128-GCM-SHA256")])
def test_suites_of_tls_1_3_are_chosen_where_python_can(
    monkeypatch: pytest.MonkeyPatch, suites: tuple[str, ...]
) -> None:
    """Python 3.15 has `SSLContext.set_ciphersuites`."""
    chosen: list[str] = []

    def choose(context: ssl.SSLContext, names: str) -> None:
        chosen.append(names)

    monkeypatch.setattr(ssl.SSLContext, "set_ciphersuites", choose, raising=False)
    make_context(TlsSettings(cipher_suites=suites))
    assert chosen == [suites[0]]


@pytest.mark.parametrize(
    ("version", "suites"),
    [("TLSv1.2", NEWEST), ("TLSv1.3", ("ECDHE-RSA-AES128-GCM-SHA256",))],
)
def test_suites_of_other_versions_than_the_allowed_ones_are_refused(
    version: str, suites: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=f"ssl_cipher_suites has none of {version}"):
        make_context(TlsSettings(versions=(version,), cipher_suites=suites))


@pytest.mark.parametrize("suite", ["AES128-SHA", "AES256-SHA256", "ECDHE-RSA-AES128-SHA"])
def test_any_suite_that_encrypts_and_authenticates_may_be_chosen(suite: str) -> None:
    context = make_context(TlsSettings(cipher_suites=(suite,)))
    assert suite in {each["name"] for each in context.get_ciphers()}


def test_only_five_of_the_suites_that_protect_nothing_are_named() -> None:
    with pytest.raises(ConfigError, match="these do not encrypt") as caught:
        make_context(TlsSettings(cipher_suites=("ALL", "eNULL", "aNULL")))
    assert caught.value.message.count(", ") == 5  # one of them in the sentence


def test_text_with_an_invisible_character_is_refused() -> None:
    def spoilt(pem: str) -> str:
        return f"{pem[:70]}\u200b{pem[70:]}"

    pair = {"keystore_certificate_chain": ME.certificate_pem, "keystore_key": ME.key_pem()}
    for given in (
        {"truststore_certificates": spoilt(AUTHORITY.pem)},
        pair | {"keystore_certificate_chain": spoilt(ME.certificate_pem)},
        pair | {"keystore_key": spoilt(ME.key_pem())},
    ):
        with pytest.raises(ConfigError, match="not ASCII"):
            make_context(TlsSettings(**given))


# -- reading again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["time", "size", "replaced", "gone"])
async def test_a_file_is_read_again_whatever_has_changed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(AUTHORITY.pem)
    os.utime(path, ns=(1, 1))
    contexts = TlsContexts(TlsSettings(truststore_location=str(path)))
    first = await contexts.current()
    assert await contexts.current() is first
    if kind == "time":
        os.utime(path, ns=(2, 2))
    elif kind == "size":
        path.write_text(AUTHORITY.pem + "\n")
        os.utime(path, ns=(1, 1))
    elif kind == "replaced":
        other = tmp_path / "other.pem"
        other.write_text(AUTHORITY.pem)
        os.utime(other, ns=(1, 1))
        other.replace(path)
    else:
        path.unlink()
    second = await contexts.current()
    assert (second is first) is (kind == "gone"), "the last good context stays in use"
    assert await contexts.current() is second


@pytest.mark.parametrize("option", ["truststore_location", "keystore_location", "key_location"])
def test_every_file_of_the_options_is_watched(option: str) -> None:
    assert "/a" in TlsSettings(**{option: "/a"}).files


def watched_store(folder: Path) -> tuple[Path, TlsContexts]:
    path = folder / "ca.pem"
    path.write_text(AUTHORITY.pem)
    return path, TlsContexts(TlsSettings(truststore_location=str(path)))


async def test_file_with_an_invisible_character_leaves_the_last_context_in_use(
    tmp_path: Path,
) -> None:
    path, contexts = watched_store(tmp_path)
    first = await contexts.current()
    path.write_text(f"{AUTHORITY.pem[:70]}\u200b{AUTHORITY.pem[70:]}", encoding="utf-8")
    assert await contexts.current() is first


async def test_changed_file_is_read_after_a_connection_that_was_given_up_meanwhile(
    tmp_path: Path,
) -> None:
    path, contexts = watched_store(tmp_path)
    first = await contexts.current()
    path.write_text(AUTHORITY.pem * 2)
    connecting = asyncio.create_task(contexts.current())
    await asyncio.sleep(0)  # it begins to read
    connecting.cancel()
    with contextlib.suppress(asyncio.CancelledError):  # it may have ended at once
        await connecting
    assert await contexts.current() is not first


async def test_connections_made_while_a_file_is_read_again_get_the_new_context(
    tmp_path: Path,
) -> None:
    path, contexts = watched_store(tmp_path)
    first = await contexts.current()
    path.write_text(AUTHORITY.pem * 2)
    one, other = await asyncio.gather(contexts.current(), contexts.current())
    assert one is other is not first
