"""A Kerberos realm of the tests' own, by the programs of Debian's krb5-kdc.

Owns: the realm's files and its key distribution centre's process. Not here: brokers, clients.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aioproducer.testing.kafka.ports import free_ports

REALM = "AIOPRODUCER.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"
_START_S = 15.0


def missing_programs() -> list[str]:
    """Return what is not installed."""
    return [name for name in PROGRAMS if _find(name) is None]


@dataclass(frozen=True)
class Realm:
    """A running realm."""

    directory: Path
    config: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which programs find this realm."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
        }

    def keytab(self, principal: str) -> Path:
        """Makes a principal with a random key, and the file that holds the key."""
        path = self.directory / f"{principal.replace('/', '_')}.keytab"
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def run(self, program: str, *args: str) -> None:
        subprocess.run(
            [_find(program) or program, *args],
            env=os.environ | self.environment,
            check=True,
            capture_output=True,
            timeout=60,
        )


@contextmanager
def running_realm(directory: Path) -> Iterator[Realm]:
    """A realm with its key distribution centre on loopback while the block runs."""
    (port,) = free_ports(1, "127.0.0.1")
    config = directory / "krb5.conf"
    config.write_text(
        f"""[libdefaults]
  default_realm = {REALM}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  default_ccache_name = FILE:{directory}/ccache
[realms]
  {REALM} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {REALM}
  127.0.0.1 = {REALM}
"""
    )
    (directory / "kdc.conf").write_text(
        f"""[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {REALM} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
    acl_file = {directory}/acl
    max_life = 1h
  }}
"""
    )
    realm = Realm(directory, config)
    realm.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    with (directory / "kdc.log").open("wb") as log:
        kdc = subprocess.Popen(
            [_find("krb5kdc") or "krb5kdc", "-n", "-r", REALM],
            env=os.environ | realm.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _await_port(port)
        yield realm
    finally:
        kdc.kill()
        kdc.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_PLACES}")
