"""`aioproducer doctor`: what is wrong between here and a cluster, and what to do about it."""

from __future__ import annotations

from functools import partial

from rich.text import Text

from aioproducer.cli import options
from aioproducer.cli.checkup import Checkup, Finding, Scope, Status, verdict
from aioproducer.cli.console import print_json, print_text
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.groups import grouped
from aioproducer.cli.interrupts import Interrupts, run_command
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red", Status.SKIP: "dim"}
_INDENT = 6

EXAMPLES = options.examples(
    "aioproducer doctor -b kafka.example:9092",
    "aioproducer doctor -b kafka.example:9093 --config client.properties -t orders",
    "aioproducer doctor --config client.properties -t orders --write",
    "aioproducer doctor -t orders --json | jq '.findings[] | select(.status == \"fail\")'",
)


@grouped
def doctor(
    *,
    scope: Scope,
    as_json: options.AsJson = False,
    connection: options.Connection,
) -> int:
    """Find out why a cluster cannot be used, and what to do.

    Follows the steps of a producer: names, ports, TLS, versions, SASL, the addresses that brokers
    advertise, the topic, the permission to write, the clock. Nothing is changed or written without
    --write. The exit code is that of the first failure, or 0 if there are only warnings.
    """
    if scope.write and scope.topic is None:
        raise ConfigError("--write needs a --topic to write to")
    return run_command(partial(_doctor, connection.config(), scope, as_json=as_json))


async def _doctor(
    config: ProducerConfig, scope: Scope, _: Interrupts, *, as_json: bool
) -> ExitCode:
    checkup = Checkup(config, scope, (lambda _: None) if as_json else _show)
    await checkup.run()
    status, code = verdict(checkup.findings)
    if as_json:
        findings = [each.as_dict() for each in checkup.findings]
        print_json({"verdict": str(status), "exit_code": int(code), "findings": findings})
    else:
        print_text(_summary(checkup.findings, status))
    return code


def _show(finding: Finding) -> None:
    about = f" {finding.about}" if finding.about else ""
    print_text(
        Text.assemble(
            (f"{finding.status:<5}", _STYLES[finding.status]),
            (f" {finding.check}{about}", "bold"),
            f": {finding.found}",
        )
    )
    for detail in finding.details:
        print_text(Text(detail, "dim"), indent=_INDENT)
    if finding.advice is not None:
        print_text(Text(f"-> {finding.advice}", "cyan"), indent=_INDENT)


def _summary(findings: list[Finding], status: Status) -> Text:
    failed = sum(each.status is Status.FAIL for each in findings)
    warned = sum(each.status is Status.WARN for each in findings)
    if status is Status.OK:
        return Text("all is well", _STYLES[status])
    counts = [f"{failed} failed" if failed else "", f"{warned} to check" if warned else ""]
    return Text(", ".join(filter(None, counts)), _STYLES[status])
