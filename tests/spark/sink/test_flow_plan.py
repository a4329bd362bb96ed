"""What a stream through a flow needs of its configuration is checked where Spark shows errors well."""

from __future__ import annotations

import pickle
from pathlib import Path

from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.sink.flow_channels import plan_flow
from spillable_stream.spark.sink.flow_plan import FlowPlan
from spillable_stream.spark.sink.sink_options import SinkOptions

CONF = """
a1.sources = r1
a1.channels = ok errors may dead
a1.sources.r1.type = seq
a1.sources.r1.channels = ok errors may
a1.sources.r1.deadLetter = dead
a1.sources.r1.interceptors = i1 i2
a1.sources.r1.interceptors.i1.type = regex_extractor
a1.sources.r1.interceptors.i1.regex = ^(\\\\w+)
a1.sources.r1.interceptors.i1.serializers = s1
a1.sources.r1.interceptors.i1.serializers.s1.name = level
a1.sources.r1.interceptors.i2.type = tests.support.flow_batches.Picky
a1.sources.r1.selector.type = multiplexing
a1.sources.r1.selector.header = level
a1.sources.r1.selector.mapping.ERROR = errors
a1.sources.r1.selector.default = ok
a1.sources.r1.selector.optional.INFO = may
"""


def write_conf(directory: Path, text: str = CONF, keep_alive: int = 0) -> str:
    """Write a configuration whose channels are in a directory."""
    channels = "".join(
        f"a1.channels.{name}.type = file\na1.channels.{name}.checkpointDir = {directory / name}\n"
        f"a1.channels.{name}.dataDirs = {directory / name}-data\na1.channels.{name}.keep-alive = {keep_alive}\n"
        for name in ("ok", "errors", "may", "dead")
    )
    path = directory / "flume.conf"
    path.write_text(text + channels)
    return str(path)


def plan(directory: Path, text: str = CONF, keep_alive: int = 0) -> FlowPlan:
    return plan_of(write_conf(directory, text, keep_alive))


def plan_of(conf: str | Path) -> FlowPlan:
    given = {"flow": str(conf), "agent": "a1", "source": "r1", "keepAlive": "0"}
    return plan_flow(SinkOptions.parse(given, stream=True), struct_type(EVENT_SCHEMA))


def test_a_plan_names_the_channels_and_goes_to_the_tasks(tmp_path: Path) -> None:
    found = pickle.loads(pickle.dumps(plan(tmp_path)))
    assert found.names == ("ok", "errors", "dead")
    assert [Path(c.path).name for c in found.channels] == ["ok", "errors", "dead"]
    assert [(name, Path(c.plan.path).name) for name, c in found.optional.items() if c.plan] == [("may", "may")]
    assert [type(i).__name__ for i in found.chain().interceptors] == ["RegexExtractor", "Picky"]
    assert found.shown([0]) == "the channel ok" and found.shown([0, 1]) == "the channels ok, errors"
