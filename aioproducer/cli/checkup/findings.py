"""What a check finds: good, doubtful or bad, in words for people and a code for scripts.

Owns: `Finding`, `TroubleError`, the verdict over many findings. Must not know: how anything is
checked, how findings are shown.

Invariants: a failure says what to do; a code means the same thing in every release (they are listed
in `CODES`); nothing here holds a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aioproducer._printable import printable
from aioproducer.cli.exit_codes import ExitCode

_LONGEST_TEXT = 2000


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: What was looked at: name, port, tls, ...
        about: Where: a broker's address, a topic.
        code: A key of `CODES`, or `ok` and `skipped`.
        found: What was found.
        advice: What to do about it.
        details: More lines, as those of a certificate chain.
        exit_code: What a failure ends the command with.
    """

    check: str
    about: str
    status: Status
    code: str
    found: str
    advice: str | None = None
    details: tuple[str, ...] = ()
    exit_code: ExitCode = ExitCode.OK

    def __post_init__(self) -> None:
        """Make printable what brokers and names have in it."""
        for name in ("about", "found", "advice"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, printable(text, _LONGEST_TEXT))
        details = tuple(printable(each, _LONGEST_TEXT) for each in self.details)
        object.__setattr__(self, "details", details)

    @classmethod
    def good(cls, check: str, about: str, found: str, *details: str) -> Finding:
        """All is well."""
        return cls(check, about, Status.OK, "ok", found, details=details)

    @classmethod
    def skipped(cls, check: str, about: str, why: str, advice: str | None = None) -> Finding:
        """It was not looked at."""
        return cls(check, about, Status.SKIP, "skipped", why, advice)

    def as_dict(self) -> dict[str, Any]:
        """Its facts for scripts."""
        return {
            "check": self.check,
            "about": self.about,
            "status": str(self.status),
            "code": self.code,
            "found": self.found,
            "advice": self.advice,
            "details": list(self.details),
        }


class TroubleError(Exception):
    """A check went wrong, and is known to mean this."""

    def __init__(
        self,
        code: str,
        found: str,
        advice: str | None = None,
        *details: str,
        status: Status = Status.FAIL,
        exit_code: ExitCode = ExitCode.REFUSED,
    ) -> None:
        super().__init__(found)
        self.code: str = code
        self.found: str = found
        self.advice: str = advice or CODES[code]
        self.details: tuple[str, ...] = details
        self.status: Status = status
        self.exit_code: ExitCode = exit_code

    def finding(self, check: str, about: str) -> Finding:
        """It as the outcome of a check."""
        return Finding(
            check,
            about,
            self.status,
            self.code,
            self.found,
            self.advice,
            self.details,
            self.exit_code if self.status is Status.FAIL else ExitCode.OK,
        )


def verdict(findings: Iterable[Finding]) -> tuple[Status, ExitCode]:
    """The worst of them, and what the first failure ends the command with."""
    found = list(findings)
    failed = [each for each in found if each.status is Status.FAIL]
    if failed:
        return Status.FAIL, failed[0].exit_code
    warned = any(each.status is Status.WARN for each in found)
    return (Status.WARN if warned else Status.OK), ExitCode.OK


CODES: Mapping[str, str] = {
    "options-refused": "correct the option",
    "name-unresolved": "check the spelling, /etc/hosts, and which DNS servers this machine asks",
    "name-slow": "check which DNS servers this machine asks, and whether they can be reached",
    "port-refused": "is the broker running, and is this the port of one of its listeners?",
    "port-silent": "something swallows the packets: look at firewalls, security groups, routes "
    "and VPNs between here and there",
    "port-unreachable": "check the address, and the routes from here to there",
    "address-silent": "connecting by this name costs a timeout now and then: take the address out "
    "of the DNS, or open the way to it",
    "tls-not-spoken": "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of "
    "the brokers' TLS listener",
    "tls-expected": "set security.protocol to SSL or SASL_SSL, or use the port of another listener",
    "certificate-expired": "renew the broker's certificate; if it is fresh, this machine's clock "
    "is wrong",
    "certificate-not-yet-valid": "set this machine's clock, or wait until the certificate is valid",
    "certificate-expires-soon": "renew the broker's certificate in time",
    "authority-unknown": "name the authority that signed it in ssl.truststore.location or "
    "ssl.truststore.certificates",
    "host-name-mismatch": "connect by a name the certificate has, or have one issued for this name",
    "certificate-refused": "look at the certificates below",
    "client-certificate-refused": "give a certificate the broker trusts in ssl.keystore.*, or "
    "other TLS versions or cipher suites",
    "tls-failed": "compare TLS versions and cipher suites with those of the broker's listener",
    "hung-up": "look at the broker's log; a listener of another kind, a balancer without brokers "
    "or a firewall may do that, too",
    "no-answer": "the port is open but nobody answers: is it Kafka's, and is the broker well?",
    "not-kafka": "use a port that Kafka listens on",
    "versions-unsupported": "upgrade the broker or this client",
    "sasl-expected": "set security.protocol to SASL_SSL or SASL_PLAINTEXT, and sasl.mechanism to "
    "one that is offered",
    "sasl-not-expected": "set security.protocol to PLAINTEXT or SSL for this port",
    "mechanism-not-offered": "set sasl.mechanism to one that is offered",
    "credentials-exposed": "use security.protocol=SASL_SSL, or a SCRAM mechanism",
    "credentials-refused": "check user name and password (or token), and that this user exists",
    "credentials-unavailable": "check where the credentials come from",
    "authentication-failed": "look at the broker's log for the reason",
    "metadata-refused": "look at the broker's log for the reason",
    "clusters-differ": "name servers of one cluster only in bootstrap.servers",
    "no-brokers": "wait until the brokers have found together; look at their logs",
    "advertised-unreachable": "set advertised.listeners on the broker to a name and port that can "
    "be reached from here",
    "advertised-refused": "the broker is there but refuses us at the address it advertises; is "
    "that the right listener?",
    "address-shared": "each broker needs an address of its own in advertised.listeners",
    "topic-missing": "create it with aioproducer topics create",
    "topic-name-invalid": "use letters, digits, '.', '_' and '-', at most 249 of them",
    "topic-unauthorized": "grant this principal DESCRIBE and WRITE on the topic",
    "partition-without-leader": "bring the brokers back that hold its replicas",
    "too-few-in-sync": "acks=all fails until enough replicas are in sync: bring the brokers back "
    "that lag or are down",
    "under-replicated": "bring the brokers back that lag or are down",
    "topic-unavailable": "try again in a moment; look at the brokers' logs",
    "write-unauthorized": "grant this principal WRITE on the topic",
    "write-failed": "see the reason",
    "transactional-id-unauthorized": "grant this principal DESCRIBE and WRITE on the transactional "
    "id",
    "coordinator-unavailable": "wait until the cluster's __transaction_state topic has its leaders",
    "transaction-state-unknown": "look at it with the cluster's own tools",
    "clock-skewed": "set the clocks: run an NTP client on this machine and on the brokers",
    "native-core-missing": "install a wheel, or a C compiler and then the package anew; see that "
    "no source tree is found before the installed package",
    "out-of-time": "give more with --timeout, or see above what is slow",
}
"""Every trouble, and what to do about it where nothing better is known."""
