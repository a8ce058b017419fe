"""The dashboard and the alert rules in examples/: their queries name metrics that exist."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml
from support.children import ROOT
from support.programs import example

from aioproducer.config import OPTIONS
from aioproducer.runtime.observability.rows import PRODUCER_ROWS
from aioproducer.testing import run_virtual
from aioproducer.testing.virtual import VirtualKafka

prometheus: Any = pytest.importorskip("prometheus_client", reason="needs the extra `metrics`")

FOLDER = ROOT / "examples/observability"
PROMTOOL = shutil.which("promtool")
OF_PROMETHEUS = {"job", "instance"}
VARIABLES = {"$job", "$client", "$topic", "$__rate_interval"}
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool (package prometheus)")

_SERIES = re.compile(r"kafka_producer_\w+")
_CHOSEN = re.compile(r"(kafka_producer_\w+)\{([^}]*)\}")
_GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The metrics of a producer that has sent a record, with their labels."""
    from aioproducer.metrics.prometheus import ProducerCollector

    async def scenario(kafka: VirtualKafka) -> dict[str, set[str]]:
        async with kafka.producer() as producer:
            await producer.send_and_wait("orders", b"x")
            families = list(ProducerCollector(producer).collect())
        return {sample.name: set(sample.labels) for each in families for sample in each.samples}

    found: dict[str, set[str]] = run_virtual(scenario, topics={"orders": 1})
    return found


def rules() -> list[dict[str, Any]]:
    text = (FOLDER / "rules.yml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def provisioned(name: str) -> Any:
    return yaml.safe_load((FOLDER / "grafana/provisioning" / name).read_text(encoding="utf-8"))


def dashboard() -> Any:
    file = FOLDER / "grafana/dashboards/producer.json"
    return json.loads(file.read_text(encoding="utf-8"))


def panels() -> Iterator[dict[str, Any]]:
    for each in dashboard()["panels"]:
        yield from (each, *each["panels"]) if each["type"] == "row" else (each,)


def queries() -> list[str]:
    of_panels = [target["expr"] for each in panels() for target in each.get("targets", ())]
    variables = dashboard()["templating"]["list"]
    chosen = [each["query"]["query"] for each in variables if each["type"] == "query"]
    return [*of_panels, *chosen, *(rule["expr"] for rule in rules())]


def test_every_query_names_metrics_and_labels_that_exist(exported: dict[str, set[str]]) -> None:
    for query in queries():
        named = set(_SERIES.findall(query))
        assert named or query.startswith("up{"), query
        assert named <= set(exported), query
        for series, labels in _CHOSEN.findall(query):
            assert set(re.findall(r"(\w+)=", labels)) <= exported[series] | OF_PROMETHEUS, query
        for labels in _GROUPED.findall(query):
            grouped = {label.strip() for label in labels.split(",")}
            for series in named:
                assert grouped <= exported[series] | OF_PROMETHEUS, query
        assert set(re.findall(r"\$\w+", query)) <= VARIABLES


def test_every_metric_of_the_table_is_on_the_dashboard() -> None:
    asked = set(_SERIES.findall(" ".join(queries())))
    for row in PRODUCER_ROWS:
        name = f"kafka_producer_{row.name}".replace("-", "_")
        total = re.sub("_rate$", "_total", name)
        assert name in asked or total in asked, row.name


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout of the repository")
def test_the_dashboard_is_generated_from_the_table() -> None:
    from tools.dashboard import TARGET, text

    assert TARGET.read_text(encoding="utf-8") == text(), "run `python -m tools.dashboard`"


def test_panels_have_a_title_a_description_and_a_place() -> None:
    shown = [each for each in panels() if each["type"] != "row"]
    assert len(shown) > 30
    assert len({each["id"] for each in panels()}) == len(list(panels()))
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels()]
    assert len(set(places)) == len(places)
    for each in shown:
        assert each["title"] and each["description"].endswith("."), each["title"]
        assert all(target["legendFormat"] for target in each["targets"])
        assert each["datasource"]["uid"] == "${datasource}"


def test_alerts_say_what_happens_and_are_in_the_readme() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
        assert f"| `{rule['alert']}` | " in readme
    assert readme.count("| `Producer") == len(rules())


def test_options_that_the_readme_and_the_alerts_name_exist() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    texts = [rule["annotations"]["description"] for rule in rules()]
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", readme))
    named |= {word for text in texts for word in re.findall(r"\b[a-z]+_[a-z_]+\b", text)}
    assert "on_delivery_error" in named
    assert named <= {*OPTIONS, "producer_byte_rate"}  # the quota's name in Kafka


def test_grafana_is_provisioned_with_the_dashboard_and_prometheus() -> None:
    provisioning = FOLDER / "grafana/provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards/aioproducer.yml").read_text())[
        "providers"
    ]
    assert provider["options"]["path"] == "$DASHBOARDS"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["type"] == "prometheus"
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "DASHBOARDS=$PWD/grafana/dashboards" in readme


def test_prometheus_reads_the_port_of_the_program() -> None:
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    assert configuration["rule_files"] == ["rules.yml"]
    (job,) = configuration["scrape_configs"]
    assert job["job_name"] == "orders"
    assert job["static_configs"] == [{"targets": ["localhost:8001"]}]
    assert '"--port", type=int, default=8001' in (FOLDER / "app.py").read_text(encoding="utf-8")


@needs_promtool
@pytest.mark.parametrize(
    "command",
    ["check rules rules.yml", "check config prometheus.yml", "test rules rules_test.yml"],
)
def test_promtool_accepts(command: str) -> None:
    done = subprocess.run(
        [str(PROMTOOL), *command.split()],
        check=False,
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_the_program_exports_its_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    program = example("observability/app.py")
    running = asyncio.create_task(program.main(0, 200, fail=False))
    try:
        async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as client:
            printed = ""
            while "/metrics" not in printed:
                await asyncio.sleep(0.05)
                printed += capsys.readouterr().out
            address = printed.split()[0].replace("localhost", "127.0.0.1")
            text = ""
            while not re.search(r"record_acknowledged_total\{.*\} [1-9]", text):
                text = (await client.get(address)).text
    finally:
        running.cancel()
        await asyncio.wait({running})
    assert 'kafka_producer_topic_record_send_total{client_id="orders",topic="invoices"}' in text
