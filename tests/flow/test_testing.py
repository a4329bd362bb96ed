from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest

from spillable_stream import Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.errors import OptionError
from spillable_stream.flow import testing
from spillable_stream.flow.testing import ConfigurationTest, ExpectedChannel, read_tests, run_file, run_test

FLUME = """
    a1.sources = r1 r2
    a1.channels = c1 c2
    a1.sinks = k1 k2
    a1.sources.r1.type = seq
    a1.sources.r1.channels = c1 c2
    a1.sources.r1.interceptors = drop time host
    a1.sources.r1.interceptors.drop.type = regex_filter
    a1.sources.r1.interceptors.drop.regex = DEBUG
    a1.sources.r1.interceptors.drop.excludeEvents = true
    a1.sources.r1.interceptors.time.type = timestamp
    a1.sources.r1.interceptors.host.type = host
    a1.sources.r1.selector.type = multiplexing
    a1.sources.r1.selector.header = app
    a1.sources.r1.selector.mapping.shop = c2
    a1.sources.r1.selector.mapping.both = c1
    a1.sources.r1.selector.optional.both = c2
    a1.sources.r2.type = twitter
    a1.sources.r2.channels = c1
    a1.channels.c1.type = memory
    a1.channels.c2.type = memory
    a1.sinks.k1.type = null
    a1.sinks.k1.channel = c1
    a1.sinks.k2.type = null
    a1.sinks.k2.channel = c2
"""
EVENTS = [Event(b"x", {"app": "shop"}), Event(b"DEBUG y"), Event(b"z", {"app": "both"}), Event(b"nowhere")]
NOW = datetime(2026, 11, 25, 8, tzinfo=UTC)
STAMPED = {"timestamp": "1795593600000", "host": "192.0.2.1"}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "flume.conf"
    path.write_text(dedent(FLUME))
    return path


def test_events_reach_channels_as_the_interceptors_and_the_selector_send_them(conf: Path) -> None:
    routed = testing.route(conf, "a1", "r1", EVENTS, now=NOW)
    assert {name: [(e.body, dict(e.headers)) for e in events] for name, events in routed.items()} == {
        "c1": [(b"z", {"app": "both", **STAMPED})],
        "c2": [(b"x", {"app": "shop", **STAMPED}), (b"z", {"app": "both", **STAMPED})],
    }
    assert (routed.dropped, routed.dead) == (2, 0)


def test_events_may_be_a_batch(conf: Path) -> None:
    batch: pa.RecordBatch = batch_from_events(EVENTS)
    assert [e.body for e in testing.route(conf, "a1", "r1", batch)["c1"]] == [b"z"]


def test_an_event_that_an_interceptor_cannot_pass_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flow_strict.py").write_text(
        "from spillable_stream import flow\n"
        "class Strict(flow.EventInterceptor):\n"
        "    def intercept(self, event):\n"
        "        if event.body == b'bad':\n"
        "            raise ValueError('bad')\n"
        "        return event\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = dedent(FLUME).replace("drop.type = regex_filter", "drop.type = com.acme.Strict$Builder")
    text = "\n".join(line for line in text.splitlines() if "drop.regex" not in line and "excludeEvents" not in line)
    (tmp_path / "flume.conf").write_text(text)
    mapped = {"com.acme.Strict$Builder": "flow_strict:Strict"}
    routed = testing.route(tmp_path / "flume.conf", "a1", "r1", [Event(b"bad"), EVENTS[0]], mapped=mapped)
    assert (len(routed["c2"]), routed.dead, routed.dropped) == (1, 1, 0)


@pytest.mark.parametrize(
    ("agent", "source", "part"),
    [("a1", "r2", "the type twitter does not run here"), ("a1", "r3", "that run are r1"), ("a9", "r1", "no agent a9")],
)
def test_a_source_that_does_not_run_is_an_error_that_says_why(conf: Path, agent: str, source: str, part: str) -> None:
    with pytest.raises(OptionError, match=part):
        testing.route(conf, agent, source, EVENTS)


def a_test(**expected: object) -> ConfigurationTest:
    return ConfigurationTest(
        name="t", agent="a1", source="r1", events=tuple(EVENTS), now=NOW, **expected  # type: ignore[arg-type]
    )  # fmt: skip


def test_only_what_a_test_names_is_compared(conf: Path) -> None:
    assert run_test(a_test(), conf).failures == []
    good = ExpectedChannel((b"z",), ({"app": "both", **STAMPED},), 1)
    assert run_test(a_test(channels={"c1": good}, dropped=2, dead=0), conf).failures == []


@pytest.mark.parametrize(
    ("expected", "failure"),
    [
        ({"channels": {"c1": ExpectedChannel(bodies=(b"y",))}}, "c1: bodies: expected (b'y',), got (b'z',)"),
        ({"channels": {"c1": ExpectedChannel(count=0)}}, "c1: count: expected 0, got 1"),
        ({"channels": {"c3": ExpectedChannel()}}, "c3 is not a channel of r1, which has c1, c2"),
        ({"dropped": 0}, "dropped: expected 0, got 2"),
        ({"dead": 1}, "dead: expected 1, got 0"),
    ],
)
def test_a_difference_is_a_failure(conf: Path, expected: dict[str, object], failure: str) -> None:
    assert run_test(a_test(**expected), conf).failures == [failure]


def test_headers_are_compared_whole(conf: Path) -> None:
    partly = ExpectedChannel(headers=({"app": "both"},))
    assert run_test(a_test(channels={"c1": partly}), conf).failures[0].startswith("c1: headers: expected")


TOML = """
    files = ["flume.conf"]
    [[test]]
    name = "shop"
    agent = "a1"
    source = "r1"
    now = 2026-11-25T08:00:00Z
    events = [{body = "x", headers = {app = "shop"}}, {}]
    dropped = 1
    dead = 0
    [test.channels.c2]
    bodies = ["x"]
    headers = [{app = "shop", timestamp = "1795593600000", host = "192.0.2.1"}]
    [test.channels.c1]
    count = 0
    [[test]]
    name = "other agent"
    agent = "a9"
    source = "r1"
    now = 1795593600000
    events = []
"""


def test_a_file_of_tests_is_read() -> None:
    files, (first, second) = read_tests(TOML)
    assert files == ["flume.conf"]
    assert first.now == second.now == NOW
    assert first.events == (Event(b"x", {"app": "shop"}), Event(b""))
    assert first.channels["c1"] == ExpectedChannel(count=0)
    assert (first.dropped, first.dead, second.dropped, second.dead) == (1, 0, None, None)


def test_a_file_of_tests_is_run_beside_its_configuration(conf: Path) -> None:
    path = conf.parent / "tests.toml"
    path.write_text(TOML)
    results = run_file(path)
    assert [result.name for result in results] == ["shop", "other agent"]
    assert not results[0].failures and "no agent a9" in results[1].failures[0]
    assert [result.name for result in run_file(path, name="a1")] == ["shop"]
    moved = path.rename(path.parent.joinpath("other.toml"))
    assert not run_file(moved, [str(conf)], name="a1")[0].failures


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("x = ", "it is not TOML"),
        ("files = []", "it has no test"),
        ("[[tests]]", "did you mean test?"),
        ("test = [3]", "must be a table"),
        ("[[test]]\nname = 3", "test 1 needs name: a text, not 3"),
        ("[[test]]\nname = 't'", "the test 't' needs agent"),
        ("[[test]]\nname = 't'\nagent = 'a'\nsource = 'r'\nevents = [{bodi = 'x'}]", "did you mean body?"),
        ("[[test]]\nname = 't'\nagent = 'a'\nsource = 'r'\nevents = [{headers = {a = 1}}]", "must be texts"),
        (
            "[[test]]\nname = 't'\nagent = 'a'\nsource = 'r'\nevents = []\ndropped = true",
            "needs dropped: a whole number, not True",
        ),
        ("[[test]]\nname='t'\nagent='a'\nsource='r'\nevents=[]\nchannels.c.bodies=[1]", "bodies must be texts"),
        ("files = [1]\n[[test]]", "names of files"),
    ],
)
def test_what_is_wrong_in_a_file_of_tests_is_said(content: str, part: str) -> None:
    with pytest.raises(OptionError) as error:
        read_tests(content)
    assert part in str(error.value)


def test_tests_without_a_configuration_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tests.toml"
    path.write_text("[[test]]\nname = 't'\nagent = 'a'\nsource = 'r'\nevents = []\n")
    with pytest.raises(OptionError, match="names no configuration"):
        run_file(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "it is not TOML: its byte 0 is not UTF-8"),
        (b"x = ", "it is not TOML: Invalid value"),
        (b"x = " + b"[" * 100_000, "it is not TOML"),
        (b"x = " + b"1" * 10_000, "it is not TOML"),
        (b"x" * ((16 << 20) + 1), "it has more than 16 MiB, as no file of tests has"),
        (b"", "it has no test"),
        (
            b'[[test]]\nname = "t"\nagent = "a"\nsource = "r"\nevents = []\nnow = 9223372036854775807\n',
            "the test 't': now is 9223372036854775807, and not milliseconds since 1970",
        ),
        (b'[[test]]\nname = "t"\nagent = "a"\nsource = "r"\nevents = []\n', "it names no configuration"),
    ],
)
def test_a_file_that_has_no_tests_is_refused_with_its_path(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "tests.toml"
    path.write_bytes(content)
    with pytest.raises(OptionError) as refused:
        run_file(path)
    assert str(refused.value).startswith(f"{path}: {said}")
