"""The whole examination of a cluster, in the order in which things have to work.

    each bootstrap server:  name > port > TLS > versions > SASL > the cluster it names
    each broker it names:   the same at the address it advertises
    the topic:              partitions, replicas, permission, the clock; --write: one record
    the transactional id:   its coordinator, its state

Invariants: every step and the whole are bounded; a step is reported as soon as it and those before
it are done; whatever was opened is closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from aioproducer.cli import options
from aioproducer.cli.checkup import advertised, clock, requests, topic, trial
from aioproducer.cli.checkup.findings import CheckFailedError, Finding, Status
from aioproducer.cli.checkup.probe import BrokerProbe
from aioproducer.cli.checkup.probe_context import ProbeContext
from aioproducer.cli.exit_codes import ExitCode, exit_code_for
from aioproducer.cli.groups import option
from aioproducer.config import ProducerConfig
from aioproducer.core.transactions.coordinator_queries import describe, find_coordinator
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorKind
from aioproducer.errors import AuthorizationError, ConfigError, KafkaError
from aioproducer.runtime.native import missing_core
from aioproducer.runtime.security_settings import principal_of
from aioproducer.types import Node
from aioproducer.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

_MOST_BROKERS = 50
"""More are not checked: a cluster of that size has other tools, too."""
_MOST_PARTITIONS = 20
"""The partitions whose newest records are read."""


@dataclass(frozen=True)
class Scope:
    """The scope of an examination; the bounds are in seconds."""

    topic: options.Text = option(
        None,
        "--topic -t TOPIC",
        "A topic to check: its partitions, its replicas, and whether you may write to it.",
        callback=options.kafka_text,
    )
    write: bool = option(
        False,
        "--write",
        "Write one small record to --topic. With a transactional.id, its transaction is aborted, "
        "and a running producer with this id is fenced.",
    )
    step_s: float = option(5.0, "--step-timeout SECONDS", "The time limit of each step.", min=0.1)
    total_s: float = option(
        60.0, "--timeout SECONDS", "The time limit of all steps together.", min=0.1
    )


class Checkup:
    """One examination; `findings` grows as it goes on."""

    def __init__(
        self, config: ProducerConfig, scope: Scope, on_finding: Callable[[Finding], None]
    ) -> None:
        self.findings: list[Finding] = []
        self._config = config
        self._scope = scope
        self._on_finding = on_finding
        self._probes: list[BrokerProbe] = []
        self._brokers: dict[int, BrokerProbe] = {}

    async def run(self) -> None:
        """Check the package, the options and the cluster; report each finding."""
        missing = missing_core()
        if missing is not None:
            failure = CheckFailedError("native-core-missing", missing, status=Status.WARN)
            self._report_failure("package", "aioproducer", failure)
        try:
            context = ProbeContext.of(self._config, self._scope.step_s)
        except ConfigError as error:
            failure = CheckFailedError(
                "options-refused", error.message, error.advice, exit_code=ExitCode.USAGE
            )
            self._report_failure("options", "", failure)
            return
        try:
            async with asyncio.timeout(self._scope.total_s):
                await self._examine(context)
        except TimeoutError:
            late = CheckFailedError(
                "out-of-time",
                f"not done within {self._scope.total_s:g} s",
                exit_code=ExitCode.UNREACHABLE,
            )
            self._report_failure("time", "", late)
        finally:
            await asyncio.gather(*(probe.close() for probe in self._probes))

    async def _examine(self, context: ProbeContext) -> None:
        canonical = context.settings.dns_canonical
        servers = [
            BrokerProbe(context, host, port, canonical=canonical)
            for host, port in self._config.bootstrap
        ]
        self._probes += servers
        reached = await self._probe_all(servers)
        cluster = await self._find_cluster(reached)
        if cluster is None:
            return
        # Brokers at the same place go by the name that they advertise.
        known = {} if canonical else {each.place: each for each in reached}
        await self._probe_advertised(context, cluster, known)
        broker = next(iter(self._brokers.values()), reached[0])
        if self._scope.topic is not None:
            await self._examine_topic(broker, self._scope.topic, cluster)
        else:
            self._report(
                Finding.skipped("topic", "", "none was named", "name one with --topic"),
                Finding.skipped("clock", "", "Kafka's time is only seen in records"),
            )
        if self._config.transactional_id is not None:
            await self._examine_transactional_id(broker, self._config.transactional_id)

    # -- the way to a cluster --------------------------------------------------------------------

    async def _probe_all(self, probes: Iterable[BrokerProbe]) -> list[BrokerProbe]:
        """Probe all servers at the same time; return those that were reached."""
        reached = []
        tasks = [(probe, asyncio.ensure_future(_run_steps(probe))) for probe in probes]
        try:
            for probe, task in tasks:
                findings = await task
                self._report(*findings)
                if all(each.status is not Status.FAIL for each in findings):
                    reached.append(probe)
        finally:
            await _cancel_running(task for _, task in tasks)
        return reached

    async def _find_cluster(self, reached: list[BrokerProbe]) -> MetadataResponse | None:
        """Return the servers' descriptions of their cluster, which should be one."""
        first: MetadataResponse | None = None
        for probe in list(reached):
            try:
                answer = await probe.ask(requests.cluster_and_topic(self._scope.topic))
                self._report(_cluster(probe.place, answer, first))
                first = first or answer
            except CheckFailedError as failure:
                explained = await self._explain_silence(probe, failure)
                self._report_failure("cluster", probe.place, explained)
                reached.remove(probe)
            except KafkaError as error:
                self._report_failure("cluster", probe.place, _refused("metadata-refused", error))
                reached.remove(probe)
        return first if first is not None and first.brokers else None

    async def _explain_silence(
        self, probe: BrokerProbe, failure: CheckFailedError
    ) -> CheckFailedError:
        """Explain a server that answered ApiVersions only: a SASL listener closes on others."""
        protocol = self._config.security_protocol
        if "SASL" in protocol or not (mechanisms := await probe.offered_mechanisms()):
            return failure
        return CheckFailedError(
            "sasl-expected",
            f"the listener wants SASL and offers {', '.join(sorted(mechanisms))}; "
            f"security.protocol={protocol} has none",
        )

    async def _probe_advertised(
        self, context: ProbeContext, cluster: MetadataResponse, known: Mapping[str, BrokerProbe]
    ) -> None:
        nodes = [Node(each.node_id, each.host, each.port) for each in cluster.brokers]
        nodes.sort(key=lambda node: node.id)
        self._report(*advertised.shared(nodes))
        hosts = [host for host, _ in self._config.bootstrap]
        tasks = []
        for node in nodes[:_MOST_BROKERS]:
            probe = BrokerProbe(context, node.host, node.port)
            if probe.place in known:
                self._brokers[node.id] = known[probe.place]
                self._report(_reachable(node, probe.place, "is reached as above"))
                continue
            self._probes.append(probe)
            tasks.append((node, probe, asyncio.ensure_future(_run_steps(probe))))
        try:
            for node, probe, task in tasks:
                findings = await task
                failed = next((each for each in findings if each.status is Status.FAIL), None)
                if failed is not None:
                    self._report(advertised.out_of_reach(node, failed, hosts))
                    continue
                self._brokers[node.id] = probe
                self._report(*(each for each in findings if each.status is Status.WARN))
                self._report(_reachable(node, probe.place, "can be reached"))
        finally:
            await _cancel_running(task for *_, task in tasks)

    # -- what is asked there ---------------------------------------------------------------------

    async def _examine_topic(
        self, broker: BrokerProbe, name: str, cluster: MetadataResponse
    ) -> None:
        found = next((each for each in cluster.topics if each.name == name), None)
        configs: Mapping[str, str] | None = None
        if found is not None:
            with suppress(CheckFailedError, KafkaError):
                configs = await broker.ask(requests.topic_configs(name, topic.MIN_IN_SYNC))
        principal = principal_of(self._config)()
        acks = str(self._config.acks)
        findings = list(topic.topic_findings(name, found, configs, acks=acks, principal=principal))
        self._report(*findings)
        if found is None or found.error_code or not found.partitions:
            return
        self._report(topic.write_permission(name, found, principal))
        written = []
        if self._scope.write:
            written = await trial.write_one(self._config, name, self._scope.step_s)
            self._report(*written)
        if not any(each.check == "clock" for each in written):
            await self._compare_clocks(name, found)

    async def _compare_clocks(self, name: str, found: MetadataResponseTopic) -> None:
        """Compare the clocks by the newest record of the first partitions, from their leaders."""
        newest: int | None = None
        for partition in found.partitions[:_MOST_PARTITIONS]:
            leader = self._brokers.get(partition.leader_id)
            if leader is None:
                continue
            try:
                query = requests.newest_timestamp(name, partition.partition_index)
                answer = await leader.ask(query)
                newest = answer if newest is None else max(newest, answer)
            except (CheckFailedError, KafkaError):
                continue
        self._report(clock.by_newest_record(name, time.time_ns() // 1_000_000, newest))

    async def _examine_transactional_id(self, broker: BrokerProbe, name: str) -> None:
        """Read the transactional id's state; requesting a producer id would fence its owner."""
        check, key = "transactional id", CoordinatorKey(CoordinatorKind.TRANSACTION, name)
        try:
            node = await broker.ask(find_coordinator(key))
            coordinator = self._brokers.get(node.id)
            if coordinator is None:
                failure = CheckFailedError(
                    "coordinator-unavailable",
                    f"its coordinator, broker {node.id}, cannot be reached (see above)",
                    exit_code=ExitCode.UNREACHABLE,
                )
                self._report_failure(check, name, failure)
                return
            state = await coordinator.ask(describe(name))
        except AuthorizationError as error:
            self._report_failure(check, name, _refused("transactional-id-unauthorized", error))
        except CheckFailedError as failure:
            self._report_failure(check, name, failure)
        except KafkaError as error:
            code = "coordinator-unavailable" if error.retriable else "transaction-state-unknown"
            self._report_failure(check, name, _refused(code, error, warns=not error.retriable))
        else:
            known = "not used yet" if state is None else f"state {state.state}"
            self._report(Finding.good(check, name, f"coordinated by broker {node.id}, {known}"))

    # -- reporting -------------------------------------------------------------------------------

    def _report(self, *findings: Finding) -> None:
        for finding in findings:
            self.findings.append(finding)
            self._on_finding(finding)

    def _report_failure(self, check: str, about: str, failure: CheckFailedError) -> None:
        self._report(failure.finding(check, about))


async def _run_steps(probe: BrokerProbe) -> list[Finding]:
    """Run the steps of a probe until one fails."""
    findings = []
    for check, step in probe.steps():
        try:
            findings.append(await step())
        except CheckFailedError as failure:
            findings.append(failure.finding(check, probe.place))
            if failure.status is Status.FAIL:
                break
    return findings


async def _cancel_running(tasks: Iterable[asyncio.Future[list[Finding]]]) -> None:
    """Cancel the tasks that still run, and wait for their end."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _cluster(place: str, answer: MetadataResponse, first: MetadataResponse | None) -> Finding:
    cluster_id = answer.cluster_id  # None or empty from old brokers, and some that are not Kafka
    if first is not None and first.cluster_id and cluster_id and cluster_id != first.cluster_id:
        found = f"cluster {cluster_id}, but the server before is of {first.cluster_id}"
        return CheckFailedError("clusters-differ", found).finding("cluster", place)
    if not answer.brokers:
        failure = CheckFailedError(
            "no-brokers",
            "it has no broker in its metadata, not even itself",
            exit_code=ExitCode.UNREACHABLE,
        )
        return failure.finding("cluster", place)
    count = f"{len(answer.brokers)} broker{'s' if len(answer.brokers) > 1 else ''}"
    name = f"cluster {cluster_id}" if cluster_id else "a cluster without an id"
    return Finding.good("cluster", place, f"{name}, {count}")


def _reachable(node: Node, place: str, how: str) -> Finding:
    return Finding.good("advertised", place, f"broker {node.id} {how}")


def _refused(code: str, error: KafkaError, *, warns: bool = False) -> CheckFailedError:
    return CheckFailedError(
        code,
        error.without_advice(),
        status=Status.WARN if warns else Status.FAIL,
        exit_code=exit_code_for(error),
    )
