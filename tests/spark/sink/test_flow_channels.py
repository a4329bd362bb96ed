"""The channels of a stream through a flow: opened or created together, or none of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from spillable_stream import Channel
from spillable_stream.errors import NotAChannelError, OptionError, SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.sink.flow_channels import plan_flow
from spillable_stream.spark.sink.sink_options import SinkOptions
from tests.spark.sink.test_flow_plan import CONF, plan, write_conf


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
