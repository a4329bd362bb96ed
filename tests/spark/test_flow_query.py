"""A Spark query as the sink of a running agent's channel: Spark's old pull sink in the file, or no sink at all."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spillable_stream import flow
from tests.support.waiting import wait_until

CONF = """
a1.sources = r1
a1.channels = c1 c2
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = g
a1.sources.r1.filegroups.g = {dir}/logs/.*
a1.sources.r1.positionFile = {dir}/positions.json
a1.sources.r1.interceptors = i1
a1.sources.r1.interceptors.i1.type = static
a1.sources.r1.channels = c1 c2
a1.channels.c1.type = {type}
a1.channels.c1.checkpointDir = {dir}/c1
a1.channels.c1.minimumRequiredSpace = 0
a1.channels.c2.type = file
a1.channels.c2.checkpointDir = {dir}/c2
a1.channels.c2.minimumRequiredSpace = 0
a1.sinks.k2.type = file_roll
a1.sinks.k2.sink.directory = {dir}/out
a1.sinks.k2.channel = c2
a1.sinks = k2"""
PULL_SINK = """ k1
a1.sinks.k1.type = org.apache.spark.streaming.flume.sink.SparkSink
a1.sinks.k1.hostname = localhost
a1.sinks.k1.port = 41415
a1.sinks.k1.channel = c1
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("sink", "kind"), [(PULL_SINK, "file"), ("\n", "SPILLABLEMEMORY")])
def test_a_query_takes_each_event_of_a_channel_that_the_agent_has_no_sink_for(
    spark: SparkSession, tmp_path: Path, sink: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "logs").mkdir()
    log, lines = tmp_path / "logs" / "app", [f"line {i}" for i in range(40)]
    log.write_text("".join(f"{line}\n" for line in lines[:20]))
    (tmp_path / "flume.conf").write_text(CONF.format(dir=tmp_path, type=kind) + sink)
    with flow.Agent.from_properties(tmp_path / "flume.conf", name="a1") as agent:
        wait_until(lambda: agent.channels["c1"].channel.stats().channel_size == 20)
        query = (
            spark.readStream.format("spillable")
            .option("group", "default")
            .load(str(tmp_path / "c1"))
            .selectExpr("cast(body as string) as body", "headers['key'] as key")
            .writeStream.format("memory")
            .queryName(f"taken_{kind}")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            with log.open("a") as f:
                f.writelines(f"{line}\n" for line in lines[20:])
            wait_until(lambda: spark.table(f"taken_{kind}").count() == 40, 120)
            rows = spark.table(f"taken_{kind}").collect()
            assert [(row.body, row.key) for row in rows] == [(line, "value") for line in lines]
            query.processAllAvailable()
        finally:
            query.stop()
        assert agent.is_drained(), "the agent waits for a channel that is a query's"
    written = "".join(p.read_text() for p in sorted((tmp_path / "out").glob("[0-9]*")))
    assert written.split("\n")[:-1] == lines
