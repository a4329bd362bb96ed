"""What the flow's constructors are given with a wrong type or value is refused there, by its name, in one sentence."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import flow
from spillable_stream.flow.interceptors.regex_extractor import Millis, PassThrough
from spillable_stream.flow.sink_processors import Default
from tests.test_wrong_arguments import HUGE, NAN, NO_COUNT, NO_FLAG, NO_FUNCTION, NO_OBJECT, NO_PATH, NO_TEXT

NO_PORT = (None, "5", -1, 65536, NAN, 3.7, True, b"x", [])
NO_SIZE = tuple(v for v in NO_COUNT if v != 0)
NO_TEXT_AT_ALL = (None, *NO_TEXT)
NO_LIST = (5, "c1", b"c1", True, {}, [5], [b"x"], [None], NAN)
NO_MAP = (5, "x", b"x", True, [], ["a"], {1: "x"}, {"a": 5}, {"a": None}, NAN)
NO_LISTS = (5, "x", [], {"a": "c1"}, {1: ["c1"]}, {"a": [5]}, {"a": 5})
NO_FLAGS = (5, "x", [], {"2XX": "false"}, {404: True}, {"404": 0})
NO_MILLISECONDS = NO_SIZE
NO_PATH_TEXT = (None, *NO_TEXT, "", "\0")

Make = Callable[..., object]
TAIL = {"g": "/nowhere/.*"}

# Of each constructor: how it is called with one more argument, and the wrong values of each argument.
CONSTRUCTORS: dict[str, tuple[Make, dict[str, tuple[Any, ...]]]] = {
    "Timestamp": (flow.Timestamp, {"header_name": NO_TEXT_AT_ALL, "preserve_existing": NO_FLAG}),
    "Host": (flow.Host, {"host_header": NO_TEXT_AT_ALL, "use_ip": NO_FLAG, "preserve_existing": NO_FLAG}),
    "Static": (flow.Static, {"key": NO_TEXT_AT_ALL, "value": NO_TEXT_AT_ALL, "preserve_existing": NO_FLAG}),
    "Uuid": (flow.Uuid, {"header_name": NO_TEXT_AT_ALL, "preserve_existing": NO_FLAG, "prefix": NO_TEXT_AT_ALL}),
    "RemoveHeader": (flow.RemoveHeader, {
        "with_name": NO_TEXT, "from_list": NO_TEXT, "from_list_separator": (*NO_TEXT_AT_ALL, "("),
        "matching": (*NO_TEXT, "(")}),
    "SearchReplace": (lambda search_pattern="x", **o: flow.SearchReplace(search_pattern, **o), {
        "search_pattern": (*NO_TEXT_AT_ALL, "", "("), "replace_string": (*NO_TEXT_AT_ALL, "$9"),
        "charset": (*NO_TEXT_AT_ALL, "nope")}),
    "RegexFilter": (flow.RegexFilter, {"regex": (*NO_TEXT_AT_ALL, "("), "exclude_events": NO_FLAG}),
    "RegexExtractor": (lambda regex="(x)", serializers=("a",): flow.RegexExtractor(regex, serializers), {
        "regex": (*NO_TEXT_AT_ALL, "("), "serializers": (None, *NO_LIST, [])}),
    "PassThrough": (PassThrough, {"name": NO_TEXT_AT_ALL}),
    "Millis": (lambda name="x", pattern="yyyy", **o: Millis(name, pattern, **o), {
        "name": NO_TEXT_AT_ALL, "pattern": NO_TEXT_AT_ALL, "time_zone": (*NO_TEXT, "Nowhere/City", "../x")}),
    "InterceptorChain": (flow.InterceptorChain, {
        "interceptors": (None, 5, "x", b"x", True, ["timestamp"], [flow.Timestamp]), "surroundings": (None, *NO_OBJECT),
        "names": (None, *NO_LIST)}),
    "JavaPattern": (flow.JavaPattern, {"pattern": (*NO_TEXT_AT_ALL, "(")}),
    "Replicating": (flow.Replicating, {"optional": (None, *NO_LIST)}),
    "Multiplexing": (lambda mapping={"a": ["c"]}, **o: flow.Multiplexing(mapping=mapping, **o), {
        "header": NO_TEXT_AT_ALL, "mapping": (None, *NO_LISTS), "default": (None, *NO_LIST), "optional": NO_LISTS}),
    "LoadBalancing": (flow.LoadBalancing, {"policy": (*NO_TEXT_AT_ALL, "", "x")}),
    "Failover": (flow.Failover, {
        "priority": (5, "x", [], {"k": "5"}, {5: 5}, {"k": NAN}), "maxpenalty": NO_MILLISECONDS}),
    "LoadBalance": (flow.LoadBalance, {
        "selector": (None, *NO_TEXT, "", "x", "os:path"), "backoff": NO_FLAG,
        "selector_max_time_out": NO_MILLISECONDS}),
    "EventTimes": (flow.EventTimes, {
        "ttl": ("soon", NAN, True, 0, -1, b"x", HUGE), "ttl_header": NO_TEXT,
        "deliver_after": ("soon", NAN, True, -1, b"x", HUGE), "deliver_after_header": NO_TEXT,
        "deliver_at_header": NO_TEXT}),
    "TailDir": (lambda filegroups=TAIL, **o: flow.TailDir(filegroups, **o), {
        "filegroups": (None, *NO_MAP), "listed_filegroups": NO_LIST, "position_file": NO_PATH,
        "headers": (5, "x", [], {"g": "x"}, {"g": {1: "x"}}, {"g": {"a": 1}}, {1: {}}),
        "byte_offset_header": NO_FLAG, "skip_to_end": NO_FLAG, "idle_timeout": NO_MILLISECONDS,
        "write_pos_interval": NO_MILLISECONDS, "batch_size": NO_COUNT, "max_batch_count": NO_COUNT,
        "backoff_sleep_increment": NO_MILLISECONDS, "max_backoff_sleep": NO_MILLISECONDS,
        "cache_pattern_matching": NO_FLAG, "file_header": NO_FLAG, "file_header_key": NO_TEXT_AT_ALL,
        "now": (None, *NO_FUNCTION)}),
    "SpoolDir": (lambda spool_dir="/nowhere", **o: flow.SpoolDir(spool_dir, **o), {
        "spool_dir": NO_PATH, "file_suffix": NO_TEXT_AT_ALL, "delete_policy": (*NO_TEXT_AT_ALL, "x"),
        "file_header": NO_FLAG, "file_header_key": NO_TEXT_AT_ALL, "basename_header": NO_FLAG,
        "basename_header_key": NO_TEXT_AT_ALL, "include_pattern": (*NO_TEXT_AT_ALL, "("),
        "ignore_pattern": (*NO_TEXT_AT_ALL, "("), "tracker_dir": NO_TEXT_AT_ALL,
        "tracking_policy": (*NO_TEXT_AT_ALL, "x"), "consume_order": (*NO_TEXT_AT_ALL, "x"),
        "poll_delay": NO_MILLISECONDS, "recursive_directory_search": NO_FLAG, "max_backoff": NO_MILLISECONDS,
        "batch_size": NO_COUNT, "input_charset": (*NO_TEXT_AT_ALL, "nope"),
        "decode_error_policy": (*NO_TEXT_AT_ALL, "x"), "deserializer": (*NO_TEXT_AT_ALL, "x"),
        "deserializer_max_line_length": NO_COUNT, "deserializer_output_charset": (*NO_TEXT_AT_ALL, "nope"),
        "deserializer_max_blob_length": NO_COUNT}),
    "Exec": (lambda command="true", **o: flow.Exec(command, **o), {
        "command": (*NO_TEXT_AT_ALL, "", " "), "shell": NO_TEXT, "restart": NO_FLAG,
        "restart_throttle": NO_MILLISECONDS, "log_std_err": NO_FLAG, "batch_size": NO_COUNT,
        "batch_timeout": NO_MILLISECONDS, "charset": (*NO_TEXT_AT_ALL, "nope")}),
    "Netcat": (lambda bind="", port=0, **o: flow.Netcat(bind, port, **o), {
        "bind": NO_TEXT_AT_ALL, "port": NO_PORT, "max_line_length": NO_COUNT, "ack_every_event": NO_FLAG,
        "encoding": (*NO_TEXT_AT_ALL, "nope")}),
    "NetcatUdp": (lambda port=0, **o: flow.NetcatUdp(port, **o), {
        "port": NO_PORT, "bind": NO_TEXT_AT_ALL, "remote_address": NO_TEXT}),
    "Http": (lambda port=0, **o: flow.Http(port, **o), {
        "port": NO_PORT, "bind": NO_TEXT_AT_ALL, "handler": (*NO_TEXT_AT_ALL, "x"), "handler_properties": NO_MAP,
        "ssl": NO_FLAG, "keystore": NO_TEXT, "keystore_password": NO_TEXT, "keystore_type": NO_TEXT}),
    "Seq": (flow.Seq, {
        "batch_size": NO_COUNT, "total_events": NO_COUNT, "backoff_sleep_increment": NO_MILLISECONDS,
        "max_backoff_sleep": NO_MILLISECONDS}),
    "Stress": (flow.Stress, {
        "size": NO_SIZE, "max_total_events": (None, "5", -2, NAN, True), "max_successful_events": (None, "5", -2),
        "max_events_per_second": NO_SIZE, "batch_size": NO_COUNT, "backoff_sleep_increment": NO_MILLISECONDS,
        "max_backoff_sleep": NO_MILLISECONDS, "now": (None, *NO_FUNCTION), "sleep": (None, *NO_FUNCTION)}),
    "SyslogTcp": (lambda port=0, **o: flow.SyslogTcp(port, **o), {
        "port": NO_PORT, "host": NO_TEXT_AT_ALL, "event_size": (*NO_COUNT, 9), "keep_fields": (None, "x", 5, ["x"], {}),
        "client_ip_header": NO_TEXT, "client_hostname_header": NO_TEXT, "ssl": NO_FLAG, "keystore": NO_TEXT,
        "keystore_password": NO_TEXT, "keystore_type": NO_TEXT, "now": (None, *NO_FUNCTION)}),
    "SyslogUdp": (lambda port=0, **o: flow.SyslogUdp(port, **o), {
        "port": NO_PORT, "host": NO_TEXT_AT_ALL, "event_size": (*NO_COUNT, 9), "keep_fields": (None, "x", 5, ["x"], {}),
        "client_ip_header": NO_TEXT, "client_hostname_header": NO_TEXT, "now": (None, *NO_FUNCTION)}),
    "MultiportSyslogTcp": (lambda ports=(0,), **o: flow.MultiportSyslogTcp(ports, **o), {
        "ports": (None, 5, "5", b"5", [], ["5"], [-1], [65536], [True], [5, 5], {}), "host": NO_TEXT_AT_ALL,
        "event_size": (*NO_COUNT, 9), "keep_fields": (None, "x", 5, ["x"], {}), "client_ip_header": NO_TEXT,
        "client_hostname_header": NO_TEXT, "batch_size": NO_COUNT, "port_header": NO_TEXT,
        "charset_default": (*NO_TEXT_AT_ALL, "nope"),
        "charset_port": (5, "x", [], {5140: "UTF-8"}, {"x": "UTF-8"}, {"5140": "nope"}),
        "ssl": NO_FLAG, "keystore": NO_TEXT, "keystore_password": NO_TEXT, "keystore_type": NO_TEXT,
        "now": (None, *NO_FUNCTION)}),
    "FileRoll": (lambda directory="/nowhere", **o: flow.FileRoll(directory, **o), {
        "directory": NO_PATH, "roll_interval": NO_SIZE, "serializer": (None, 5, NAN, "x", [], flow.Timestamp),
        "serializer_append_newline": NO_FLAG, "batch_size": NO_COUNT, "path_manager": (*NO_TEXT_AT_ALL, "x"),
        "path_manager_prefix": NO_TEXT_AT_ALL, "path_manager_extension": NO_TEXT_AT_ALL, "channel": NO_TEXT_AT_ALL}),
    "Hdfs": (lambda path="/nowhere", **o: flow.Hdfs(path, **o), {
        "path": NO_PATH_TEXT, "file_prefix": NO_TEXT_AT_ALL, "file_suffix": NO_TEXT_AT_ALL,
        "in_use_prefix": NO_TEXT_AT_ALL, "in_use_suffix": NO_TEXT_AT_ALL, "empty_in_use_suffix": NO_FLAG,
        "roll_interval": NO_SIZE, "roll_size": NO_SIZE, "roll_count": NO_SIZE, "idle_timeout": NO_SIZE,
        "batch_size": NO_COUNT, "file_type": (*NO_TEXT_AT_ALL, "x"), "codec": (*NO_TEXT, "x"),
        "write_format": (*NO_TEXT_AT_ALL, "x"), "round": NO_FLAG, "round_value": NO_COUNT,
        "round_unit": (*NO_TEXT_AT_ALL, "day"), "time_zone": (*NO_TEXT, "Nowhere/City"),
        "use_local_time_stamp": NO_FLAG, "max_open_files": NO_COUNT, "close_tries": NO_SIZE, "retry_interval": NO_SIZE,
        "serializer": (None, 5, "x", []), "serializer_properties": NO_MAP, "channel": NO_TEXT_AT_ALL,
        "now": (None, *NO_FUNCTION)}),
    "Parquet": (lambda path="/nowhere", **o: flow.Parquet(path, **o), {
        "path": NO_PATH_TEXT, "file_prefix": NO_TEXT_AT_ALL, "file_suffix": NO_TEXT_AT_ALL,
        "in_use_suffix": NO_TEXT_AT_ALL, "roll_interval": NO_SIZE, "roll_size": NO_SIZE, "roll_count": NO_SIZE,
        "idle_timeout": NO_SIZE, "batch_size": NO_COUNT, "round": NO_FLAG, "round_value": NO_COUNT,
        "round_unit": (*NO_TEXT_AT_ALL, "day"), "time_zone": (*NO_TEXT, "Nowhere/City"),
        "use_local_time_stamp": NO_FLAG, "max_open_files": NO_COUNT, "close_tries": NO_SIZE, "retry_interval": NO_SIZE,
        "compression": (*NO_TEXT_AT_ALL, "x"), "row_group_events": NO_COUNT, "channel": NO_TEXT_AT_ALL,
        "now": (None, *NO_FUNCTION)}),
    "HttpSink": (lambda endpoint="http://nowhere/", **o: flow.HttpSink(endpoint, **o), {
        "endpoint": (*NO_TEXT_AT_ALL, "", "nowhere", "ftp://nowhere/"), "connect_timeout": NO_COUNT,
        "request_timeout": NO_COUNT, "content_type_header": NO_TEXT_AT_ALL, "accept_header": NO_TEXT_AT_ALL,
        "default_backoff": NO_FLAG, "default_rollback": NO_FLAG, "default_increment_metrics": NO_FLAG,
        "backoff": NO_FLAGS, "rollback": NO_FLAGS, "increment_metrics": NO_FLAGS, "max_requests": (*NO_COUNT, 257),
        "channel": NO_TEXT_AT_ALL}),
    "Logger": (flow.Logger, {"max_bytes_to_log": NO_SIZE, "channel": NO_TEXT_AT_ALL}),
    "Null": (flow.Null, {"batch_size": NO_COUNT, "log_every_n_events": NO_COUNT, "channel": NO_TEXT_AT_ALL}),
    "ChannelSink": (lambda path="/nowhere", **o: flow.ChannelSink(path, **o), {
        "path": NO_PATH, "batch_size": NO_COUNT, "channel": NO_TEXT_AT_ALL}),
    "Sink": (flow.Sink, {"channel": NO_TEXT_AT_ALL}),
    "BatchSink": (lambda batch_size=1, **o: flow.BatchSink(batch_size, **o), {
        "batch_size": NO_COUNT, "channel": NO_TEXT_AT_ALL}),
    "PolledSource": (flow.PolledSource, {
        "backoff_sleep_increment": NO_MILLISECONDS, "max_backoff_sleep": NO_MILLISECONDS}),
    "SinkGroup": (lambda sinks={"k": flow.Null()}, processor=Default(), **o: flow.SinkGroup(  # noqa: B008
        sinks, processor, **o), {
        "sinks": (None, 5, [flow.Null()], {"k": 5}, {5: flow.Null()}, {"k": flow.Null}),
        "processor": (None, *NO_OBJECT, "failover", flow.Failover), "name": NO_TEXT_AT_ALL}),
    "Agent": (flow.Agent, {
        "sources": (None, 5, flow.Seq(), [flow.Seq()], {}), "sinks": (None, 5, flow.Null(), [5], {"k": flow.Null()}),
        "sink_groups": (None, 5, [flow.Null()]), "channels": (5, "x", [], {"a": "x"}, {"a": None}),
        "name": NO_TEXT_AT_ALL, "shutdown_timeout_seconds": (None, "soon", -1, NAN, True, b"x", timedelta(-1))}),
    "Agent.from_properties": (
        lambda paths="/nowhere/x.conf", name="a1", **o: flow.Agent.from_properties(paths, name=name, **o), {
        "paths": (*NO_PATH[:1], 5, b"x", {}, [5], [None], "\0"), "name": NO_TEXT_AT_ALL, "system": NO_MAP,
        "environment": NO_MAP, "mapped": NO_MAP, "shutdown_timeout_seconds": (None, "soon", NAN, True)}),
    "load": (lambda paths="/nowhere/x.conf", **o: flow.load(paths, **o), {
        "paths": (None, 5, b"x", {}, [5], "\0", []), "name": NO_TEXT, "system": NO_MAP, "environment": NO_MAP,
        "mapped": NO_MAP}),
    "Graph": (flow.Graph, {"loaded": (None, *NO_OBJECT)}),
    "Monitoring": (lambda agent=flow.Agent(), port=0, **o: flow.Monitoring(agent, port, **o), {  # noqa: B008
        "agent": (None, *NO_OBJECT), "port": NO_PORT, "host": NO_TEXT_AT_ALL, "prometheus": NO_FLAG}),
}  # fmt: skip
# These need a channel.
WITH_CHANNEL = {
    "ChannelProcessor": {
        "channels": (None, 5, [], {}, {"c": "/data/c"}, {5: None}),
        "interceptors": (None, 5, "x", ["timestamp"], [flow.Timestamp]),
        "selector": ("x", 5, flow.Replicating, []),
        "producer": NO_TEXT,
        "name": NO_TEXT,
        "division": (None, *NO_TEXT),
        "dead_letter": (5, "/data/dead", ss.Channel),
        "surroundings": (None, *NO_OBJECT),
        "times": (5, "x", [], {"c": 5}, {"other": flow.EventTimes()}),
    },
    "Source": {
        "source": (None, *NO_OBJECT, flow.Seq, flow.Null()),
        "processor": (None, *NO_OBJECT),
        "name": NO_TEXT_AT_ALL,
    },
}
ALL = [(name, argument) for name, (_, wrong) in CONSTRUCTORS.items() for argument in wrong]


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path_factory.mktemp("wrong") / "c", minimum_required_space=0) as made:
        yield made


def refuse(make: Callable[[], object], argument: str, value: object) -> None:
    with pytest.raises(ss.OptionError) as caught:
        make()
        pytest.fail(f"{value!r} was accepted as {argument}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "argument"), ALL)
def test_a_wrong_argument_of_a_component_is_refused_by_its_constructor(
    name: str, argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, wrong = CONSTRUCTORS[name]
    for value in wrong[argument]:
        refuse(lambda value=value: make(**{argument: value}), argument, value)
    assert not list(tmp_path.iterdir()), "something was created"


@pytest.mark.parametrize("argument", WITH_CHANNEL["ChannelProcessor"])
def test_a_wrong_argument_of_a_processor_is_refused_by_its_constructor(channel: ss.Channel, argument: str) -> None:
    for value in WITH_CHANNEL["ChannelProcessor"][argument]:
        given = {"channels": {"c": channel}, argument: value}
        refuse(lambda given=given: flow.ChannelProcessor(**given), argument, value)


@pytest.mark.parametrize("argument", WITH_CHANNEL["Source"])
def test_a_wrong_argument_of_a_source_of_an_agent_is_refused_by_its_constructor(
    channel: ss.Channel, argument: str
) -> None:
    with flow.ChannelProcessor({"c": channel}) as processor:
        for value in WITH_CHANNEL["Source"][argument]:
            given = {"source": flow.Seq(), "processor": processor, argument: value}
            refuse(lambda given=given: flow.Source(**given), argument, value)


def test_every_argument_of_every_public_constructor_is_in_the_table() -> None:
    free = {"EventInterceptor", "EventSource", "Interceptor", "Selector", "SinkProcessor"}  # they take nothing
    for name in flow.__all__:
        if name in free:
            assert "__init__" not in vars(getattr(flow, name)), f"{name} takes arguments now"
            continue
        known = WITH_CHANNEL[name] if name in WITH_CHANNEL else CONSTRUCTORS[name][1]
        assert set(inspect.signature(getattr(flow, name)).parameters) == set(known), name


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: flow.FileRoll("/out", batch_size="100"), "batch_size must be an integer, 1 or more, not '100'"),
        (lambda: flow.Netcat("", 70_000), "port must be an integer from 0 to 65,535, not 70000"),
        (lambda: flow.Host(use_ip="false"), "use_ip must be True or False, not 'false'"),
        (lambda: flow.Multiplexing(mapping={"a": "c1"}), "mapping['a'] must be a list of str, not 'c1'"),
        (lambda: flow.Replicating(optional="c1"), "optional must be a list of str, not 'c1'"),
        (lambda: flow.RegexExtractor("(x)", "level"),
         "serializers must be a list of str or PassThrough or Millis, not 'level'"),
        (lambda: flow.TailDir("/var/log/.*"), "filegroups must be a dict, or another mapping, not '/var/log/.*'"),
        (lambda: flow.TailDir({5: "x"}), "a key of filegroups must be a str of valid Unicode, not 5"),
        (lambda: flow.SyslogTcp(0, keep_fields=5), "keep_fields must be a str or a list of str, not 5"),
        (lambda: flow.FileRoll("/out", serializer=5), "serializer must be a str or an object with encode(), not 5"),
        (lambda: flow.HttpSink("http://x/", rollback={"2XX": "false"}),
         "rollback['2XX'] must be True or False, not 'false'"),
        (lambda: flow.Agent(sinks=[5]), "sinks[0] must be an instance of Sink, not 5"),
    ],
)  # fmt: skip
def test_the_sentence_names_the_argument_and_what_it_must_be(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ss.OptionError, match=f"^{re.escape(sentence)}$"):
        make()


def test_what_is_right_is_taken_as_before() -> None:
    """NumPy's integers, paths as text or not, any mapping and sequence, and what stands for a serializer."""
    import numpy as np

    class Upper:
        def encode(self, batch: object) -> bytes:
            return b""

    assert flow.FileRoll(Path("/out"), batch_size=np.int64(5), serializer=Upper()).batch_size == 5
    assert flow.Multiplexing("h", {"a": ("c1",)}, default=["c2"]).named() == {"c1", "c2"}
    assert flow.TailDir({"g": "/nowhere/.*"}, headers={"g": {"a": "b"}}, position_file="x")
    assert flow.InterceptorChain(iter([flow.Timestamp()])).interceptors
    with pytest.raises(TypeError, match="unexpected keyword argument 'nope'"):
        flow.FileRoll("/out", nope=5)  # type: ignore[call-arg]
