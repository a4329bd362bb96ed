"""What a stream through a flow needs of its configuration is checked where Spark shows errors well."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from spillable_stream import Channel
from spillable_stream.errors import NotAChannelError, OptionError, SchemaError
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


def test_no_channel_is_created_if_another_one_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "errors").write_text("not a channel")
    with pytest.raises(NotAChannelError, match="it is a file"):
        plan(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["errors", "flume.conf"]


def test_an_optional_channel_that_cannot_be_opened_keeps_no_stream_from_the_others(tmp_path: Path) -> None:
    (tmp_path / "may").write_text("not a channel")
    found = plan(tmp_path)
    assert found.optional["may"].plan is None and "it is a file" in found.optional["may"].why_not
    (tmp_path / "may").unlink()
    assert plan(tmp_path).optional["may"].plan is not None


def test_no_channel_has_another_option_if_another_one_cannot_be_opened(tmp_path: Path) -> None:
    plan(tmp_path)
    shutil.rmtree(tmp_path / "errors")
    (tmp_path / "errors").write_text("not a channel")
    with pytest.raises(NotAChannelError, match="it is a file"):
        plan(tmp_path, CONF, keep_alive=7)
    for name in ("ok", "may", "dead"):
        with Channel(tmp_path / name, create=False) as channel:
            assert channel.options["keep_alive"] == 0, name
    (tmp_path / "errors").unlink()
    (tmp_path / "errors-data").rename(tmp_path / "old")
    plan(tmp_path, CONF, keep_alive=7)
    with Channel(tmp_path / "ok", create=False) as channel:
        assert channel.options["keep_alive"] == 7


def test_a_source_that_does_not_run_is_refused(tmp_path: Path) -> None:
    given = {"flow": write_conf(tmp_path), "agent": "a1", "source": "r2"}
    with pytest.raises(OptionError, match=r"has no source a1\.r2 that runs"):
        plan_flow(SinkOptions.parse(given, stream=True), struct_type(EVENT_SCHEMA))


def test_a_selector_that_a_repetition_would_not_follow_is_refused(tmp_path: Path) -> None:
    text = "".join(line + "\n" for line in CONF.splitlines() if "selector" not in line)
    with pytest.raises(OptionError, match="has a load_balancing selector, which a stream can't use"):
        plan(tmp_path, text + "a1.sources.r1.selector.type = load_balancing\n")


def test_rows_that_are_not_events_are_refused(tmp_path: Path) -> None:
    given = {"flow": write_conf(tmp_path), "agent": "a1", "source": "r1"}
    with pytest.raises(SchemaError, match="no column 'id'"):
        plan_flow(SinkOptions.parse(given, stream=True), StructType([StructField("id", LongType())]))


@pytest.mark.parametrize(
    ("given", "stream", "says"),
    [
        ({"flow": "f"}, True, "flow, agent and source belong together"),
        ({"flow": "f", "agent": "a", "source": "r"}, False, "flow is for a stream"),
        ({"flow": "f", "agent": "a", "source": "r", "memoryCapacity": "1"}, True, "its file describes the channels"),
        ({"flow": "f", "agent": "a", "source": "r", "mergeSchema": "true"}, True, "leave out shards, shardBy, mergeS"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: dict[str, str], stream: bool, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        SinkOptions.parse(given, stream=stream)
