"""`aioproducer perf`: how fast this machine, this configuration and this cluster are together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from aioproducer.cli import options
from aioproducer.cli.connecting import started_producer
from aioproducer.cli.console import megabytes, print_facts, print_json, say
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.groups import grouped, parameter
from aioproducer.cli.interrupts import Interrupts
from aioproducer.cli.missing_topic import await_topic
from aioproducer.cli.perf.display import check_picture, draw_picture, perf_display_for
from aioproducer.cli.perf.run import Measurement, PerfPlan, PerfRun, percentiles_ms
from aioproducer.cli.pointers import run_connected
from aioproducer.client.producer import Producer
from aioproducer.config import ProducerConfig

EXAMPLES = options.examples(
    "aioproducer perf -t test -n 1000000 -s 500",
    "aioproducer perf -t test --throughput 2000 --histogram latencies.png",
    "aioproducer perf -t test -X acks=1 -X compression.type=zstd --json",
)


@grouped
def perf(
    *,
    topic: options.Topic,
    num_records: Annotated[
        int, parameter("--num-records -n", "How many records to send.", min=1)
    ] = 100_000,
    record_size: Annotated[
        int,
        parameter("--record-size -s BYTES", "The size of each record's value.", min=0),
    ] = 1000,
    throughput: Annotated[
        float,
        parameter(
            "--throughput",
            "Records per second, evenly spread; 0 or -1: as fast as possible. Latencies are "
            "meaningful only below the fastest rate.",
            min=-1,
        ),
    ] = 0.0,
    histogram: Annotated[
        options.File,
        parameter("--histogram FILE.png", "Draw the latencies into this file; needs matplotlib."),
    ] = None,
    topic_timeout: options.TopicTimeout = options.TOPIC_TIMEOUT_S,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    connection: options.Connection,
) -> int:
    """Send generated records; show the rate and the percentiles of the latency.

    While it runs, it shows the last seconds, on a terminal as a table. A record's latency is the
    time from the call of send() to the acknowledgement, with the wait for memory. Values are
    random bytes, the same in every run. Ctrl-C stops sending; what was sent is reported.
    """
    if histogram is not None:
        check_picture(histogram)
    plan = PerfPlan(topic, num_records, record_size, throughput)
    run = partial(
        _perf,
        options.without_transactions(connection.config()),
        plan,
        wait=partial(await_topic, connection=connection, within_s=topic_timeout),
        as_json=as_json,
        quiet=quiet,
        picture=histogram,
    )
    return run_connected(run, connection)


async def _perf(
    config: ProducerConfig,
    plan: PerfPlan,
    interrupts: Interrupts,
    *,
    wait: Callable[[Producer, str], Awaitable[None]],
    as_json: bool,
    quiet: bool,
    picture: Path | None,
) -> int:
    measurement = Measurement()
    display = perf_display_for(plan, quiet=quiet)
    async with started_producer(config) as producer:
        await wait(producer, plan.topic)
        await producer.warm_up([plan.topic])
        run = PerfRun(
            producer, plan, measurement, every_s=display.every_s, on_interval=display.show
        )
        interrupts.on_stop(run.stop)
        with display:
            await run.run()
        metrics = producer.metrics()
    latencies = dict(percentiles_ms(measurement.latencies_s))
    if picture is not None:
        draw_picture(picture, plan, measurement.latencies_s, latencies)
        say(f"the latencies are drawn in {picture}")
    _report(plan, measurement, metrics, latencies, as_json=as_json)
    if interrupts.code is not None:
        return interrupts.code
    return ExitCode.SOME_FAILED if measurement.failed else ExitCode.OK


def _report(
    plan: PerfPlan,
    seen: Measurement,
    metrics: Mapping[str, float],
    latencies_ms: Mapping[str, float],
    *,
    as_json: bool,
) -> None:
    if not as_json:
        facts = {
            "records acknowledged": f"{seen.acknowledged:,}",
            "failed": f"{seen.failed:,}",
            "seconds": f"{seen.elapsed_s:,.2f}",
            "records/s": f"{seen.rate:,.0f}",
            "data/s": megabytes(seen.rate * plan.size),
            "records per batch": f"{metrics['records_per_batch_avg']:,.1f}",
            "retries": f"{metrics['record_retry_total']:,.0f}",
            **{f"latency {name}": f"{latency:,.1f} ms" for name, latency in latencies_ms.items()},
        }
        print_facts(f"{plan.size} byte records -> {plan.topic}", facts.items())
        return
    found = {
        "topic": plan.topic,
        "record_size": plan.size,
        "sent": seen.sent,
        "acknowledged": seen.acknowledged,
        "failed": seen.failed,
        "seconds": round(seen.elapsed_s, 3),
        "records_per_second": round(seen.rate, 1),
        "bytes_per_second": round(seen.rate * plan.size),
        "records_per_batch": round(metrics["records_per_batch_avg"], 1),
        "retries": metrics["record_retry_total"],
        "latency_ms": {name: round(value, 3) for name, value in latencies_ms.items()},
    }
    print_json(found)
