"""The advice for each kind of error: one table for errors, `aioproducer doctor` and the site.

`CHECKS` has the troubles that `doctor` distinguishes, by its codes; `ANSWERS` has those that only
show when a record or a transaction is answered. `ADVICE` has both. Options have their Python names;
`doctor` shows Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CHECKS: Final[Mapping[str, str]] = {
    "options-refused": "correct the option",
    "name-unresolved": "check the spelling, /etc/hosts, and which DNS servers this machine asks",
    "name-slow": "check which DNS servers this machine asks, and whether they can be reached",
    "port-refused": "start the broker, or correct host and port in bootstrap_servers: nothing "
    "listens there",
    "port-silent": "the packets are lost on the network: check firewalls, security groups, routes "
    "and VPNs between here and there, and host and port in bootstrap_servers",
    "port-unreachable": "check host and port in bootstrap_servers, and the routes from here to "
    "there",
    "address-silent": (
        "some connections to this name first wait for a timeout: remove the address from the "
        "DNS, or make it reachable"
    ),
    "proxy-failed": "check proxy_url, and whether the proxy may connect to the brokers",
    "proxy-credentials-refused": "check user name and password in proxy_url; retrying does not "
    "help",
    "tls-not-spoken": "set security_protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of "
    "the brokers' TLS listener",
    "tls-expected": "set security_protocol to SSL or SASL_SSL, or use the port of another listener",
    "certificate-expired": "renew the broker's certificate; if it is fresh, this machine's clock "
    "is wrong",
    "certificate-not-yet-valid": "set this machine's clock, or wait until the certificate is valid",
    "certificate-expires-soon": "renew the broker's certificate in time",
    "authority-unknown": "name the authority that signed it in ssl_truststore_location or "
    "ssl_truststore_certificates",
    "host-name-mismatch": "connect by a name the certificate has (in bootstrap_servers and in the "
    "brokers' advertised.listeners), or have one issued for this name",
    "certificate-weak": (
        "issue it, and its authority's certificate, with RSA of 2048 bits or more (or ECDSA) "
        "and SHA-256 or more: OpenSSL on this machine refuses weaker ones"
    ),
    "certificate-refused": "check the broker's certificates: `aioproducer doctor` shows them",
    "client-certificate-refused": "give a certificate the broker trusts in ssl_keystore_location, "
    "or other TLS versions or cipher suites",
    "tls-failed": "compare TLS versions and cipher suites with those of the broker's listener",
    "hung-up": (
        "read the broker's log; a listener of another kind, a load balancer without brokers "
        "or a firewall can also close connections"
    ),
    "no-answer": "check that the port is one of Kafka's listeners, and that the broker is well: it "
    "takes connections and does not answer",
    "not-kafka": "correct the host and port: this one belongs to another service",
    "versions-unsupported": "upgrade the side that is too old: the broker or this client",
    "sasl-expected": "set security_protocol to SASL_SSL or SASL_PLAINTEXT, and sasl_mechanism to "
    "one that is offered",
    "sasl-not-expected": "set security_protocol to PLAINTEXT or SSL, or use the port of a SASL "
    "listener",
    "mechanism-not-offered": "set sasl_mechanism to one that is offered",
    "credentials-exposed": "use security_protocol=SASL_SSL, or a SCRAM mechanism",
    "credentials-refused": "check user name and password (or token), and that this user exists; "
    "retrying does not help",
    "credentials-unavailable": "check where the credentials come from",
    "authentication-failed": "check the security options against the broker's listener, and read "
    "the broker's log; retrying does not help",
    "metadata-refused": "find the reason in the broker's log",
    "clusters-differ": "name servers of one cluster only in bootstrap_servers",
    "no-brokers": "wait until the brokers have formed a cluster; read their logs",
    "advertised-unreachable": "set advertised.listeners on the broker to a name and port that can "
    "be reached from here",
    "advertised-refused": (
        "the broker refuses this client at the address that it advertises: check that this is "
        "the right listener"
    ),
    "address-shared": "each broker needs its own address in advertised.listeners",
    "topic-missing": "create the topic (aioproducer topics create), or correct its name; the "
    "brokers do not create it",
    "topic-name-invalid": "use letters, digits, '.', '_' and '-', at most 249 of them",
    "topic-unauthorized": "grant this principal DESCRIBE and WRITE on the topic",
    "partition-without-leader": "bring the brokers back that hold its replicas",
    "too-few-in-sync": "acks=all fails until enough replicas are in sync: bring the brokers back "
    "that lag or are down",
    "under-replicated": "bring the brokers back that lag or are down",
    "topic-unavailable": "try again in a moment; read the brokers' logs",
    "write-unauthorized": "grant this principal WRITE on the topic",
    "write-failed": "see the reason",
    "transactional-id-unauthorized": "grant this principal DESCRIBE and WRITE on the transactional "
    "id",
    "coordinator-unavailable": "wait until the cluster's __transaction_state topic has its leaders",
    "transaction-state-unknown": "inspect it with the cluster's own tools",
    "clock-skewed": "set the clocks: run an NTP client on this machine and on the brokers",
    "native-core-missing": (
        "install a wheel, or install a C compiler and then the package again; check that "
        "Python does not import a source tree in place of the installed package"
    ),
    "out-of-time": "raise --timeout, or see above which step is slow",
}
"""By the codes of `aioproducer doctor`."""

ANSWERS: Final[Mapping[str, str]] = {
    "certificate-missing": "give PEM text or a PEM file with a block BEGIN CERTIFICATE",
    "client-certificate-missing": "give the client's certificate with its key: both in "
    "ssl_keystore_location, or ssl_keystore_certificate_chain and ssl_keystore_key",
    "broker-away": "bring the broker back, or check the network: it could be reached before",
    "topic-not-created-here": (
        "create the topic (aioproducer topics create), correct its name, or set "
        "allow_auto_create_topics=True: brokers do not create topics while it is False"
    ),
    "topic-refused": "correct the topic's name: clients cannot write to a topic of the brokers, "
    "such as __consumer_offsets, and names are letters, digits, '.', '_' and '-', up to 249",
    "partition-unknown": "choose a partition that exists, see partitions_for(topic), or add "
    "partitions to the topic",
    "not-authorized": "grant the principal this permission (an ACL of the cluster); until then "
    "every try fails the same way",
    "too-many-connections": "the broker limits the rate of new connections: set "
    "reconnect_backoff_ms to 1000, or start fewer producers at once",
    "over-quota": "send less, or raise the client's quota on the brokers",
    "record-too-large": "send smaller records, or raise max.message.bytes of the topic (and "
    "max_request_size here)",
    "batch-too-large": "lower batch_size, or raise segment.bytes of the topic",
    "too-few-replicas": "bring the missing replicas back, or lower min.insync.replicas of the "
    "topic: its value is more than the replicas in sync",
    "timestamp-refused": "set the clocks, or raise message.timestamp.before.max.ms or "
    "message.timestamp.after.max.ms of the topic",
    "record-refused": "correct the record: compacted topics need a key, and a topic may have its "
    "own policy",
    "codec-unsupported": "set compression_type to a codec that the brokers support (zstd needs "
    "Kafka 2.1), or upgrade them",
    "acks-refused": "set acks to 0, 1 or all",
    "policy-violated": "ask the operators of the cluster which policy forbids it; Azure Event Hubs "
    "answers so above the throughput of the namespace: send the record again later",
    "format-unsupported": (
        "raise message.format.version of the topic to 0.11 or later; Azure Event Hubs needs "
        "compression_type=none, except in its premium and dedicated tiers"
    ),
    "transaction-timeout-too-long": "lower transaction_timeout_ms, or raise the brokers' "
    "transaction.max.timeout.ms",
    "transaction-failed": "abort the transaction, then do its work again in a new one",
    "fenced": "close this producer; if no other one uses its transactional id, the broker has "
    "aborted the transaction after transaction_timeout_ms: do its work again with a new producer",
    "producer-ended": "close this producer, remove the cause, and start a new one",
    "not-connected": "try again later: the producer keeps trying to connect",
    "client-key-mismatch": "give the private key of this certificate",
    "client-key-encrypted": "give its password as ssl_key_password",
    "file-unreadable": "correct the path, or make the file readable for this process",
    "registry-unreachable": "check the URL given to SchemaRegistry, and that the registry runs and "
    "can be reached from here",
    "registry-elsewhere": (
        "check the URL given to SchemaRegistry, also its path: the server there does not "
        "answer as a schema registry"
    ),
    "registry-redirects": "give SchemaRegistry the URL of the registry itself: no redirect is "
    "followed",
    "registry-credentials-refused": "check the credentials given to SchemaRegistry",
    "registry-permission": "grant the registry's user the missing permission",
    "schema-missing": "register the schema when deploying, or set auto_register=True",
    "no-cluster": "check bootstrap_servers, and that the brokers' listeners can be reached from "
    "here",
    "would-block": "await send() instead, which waits",
    "buffer-exhausted": "send slower, or raise buffer_memory or max_block_ms",
    "batch-refused": "send the record again: the broker refused other records of its batch",
    "records-failed": "each delivery, on_delivery_error and the log say which, and why",
    "asyncio-needed": "run the program with asyncio.run(), or with anyio on its asyncio backend; a "
    "program of trio can use aioproducer.blocking.Producer in a thread",
    "task-cancelled": (
        "await close() before the event loop ends, and do not raise in signal handlers: "
        "asyncio.run() then cancels every task"
    ),
    "closed": "create a new producer to send more",
    "forked": "create and start a new producer after fork()",
    "commit-outcome-unknown": (
        "do not repeat its work yet: TransactionAdmin.finish(error.transaction, commit=True) "
        "returns when it is committed, and raises PreparedTransactionEndedError when it was "
        "aborted. Call it before you start another producer with its transactional_id: "
        "afterwards only a read_committed consumer can find out, by the records"
    ),
    "prepared-outcome-unknown": "search for its records with a read_committed consumer before "
    "doing its work again",
    "storage-failed": "check the broker's disks and its log",
    "broker-failed": "find the reason in the broker's log",
    "coordinator-away": "wait until the cluster's topic __transaction_state (for a group, "
    "__consumer_offsets) has its leaders; with fewer than three brokers, set "
    "transaction.state.log.replication.factor and transaction.state.log.min.isr on them",
    "feature-disabled": "turn the feature on in the brokers, or leave it out here",
}
"""Answers to records and transactions, and troubles that `doctor` does not check."""

ADVICE: Final[Mapping[str, str]] = {**CHECKS, **ANSWERS}


def joined(*advices: str | None) -> str | None:
    """Return one text of several, each once; None of none."""
    parts = [each.rstrip(".") for each in dict.fromkeys(advices) if each]
    return "; ".join(parts) or None
