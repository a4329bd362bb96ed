from __future__ import annotations

import posixpath

import pytest

from spillable_stream.flow.configuration.options import Kind
from tests.support.flow_configurations import SMALL, agent, found, read, running


def test_an_agent_without_a_fault_has_no_finding() -> None:
    loaded = read(SMALL)
    assert running(loaded.agents["a1"]) == "a1: r1 | c1 | k1 | " and found(loaded) == []


def test_names_of_a_list_count_once_and_twice_is_found() -> None:
    loaded = read(SMALL.replace("a1.sources = r1", "a1.sources = r1 r1"))
    assert len(loaded.agents["a1"].sources) == 1
    assert found(loaded) == ["2 warning listed-twice a1"]


def test_channels_of_a_source_are_in_the_order_of_the_file() -> None:
    text = SMALL.replace("channels = c1", "channels = c2 c1") + "    a1.channels.c2.type = memory\n"
    assert agent(text).sources[0].channels == ("c2", "c1")


def test_a_bad_component_is_dropped_and_the_rest_runs() -> None:
    text = (
        SMALL.replace("= r1", "= r1 r2").replace("= k1", "= k1 k2")
        + """
    a1.sources.r2.type = no
    a1.sources.r2.channels = c1
    a1.sinks.k2.type = null
    a1.sinks.k2.channel = c9
    """
    )
    config = agent(text)
    assert running(config) == "a1: r1 | c1 | k1 | "
    assert [(d.kind, d.name, d.type, d.channels) for d in config.dropped] == [
        (Kind.SOURCE, "r2", "no", ("c1",)),
        (Kind.SINK, "k2", "null", ("c9",)),
    ]
    assert "no source of type 'no'" in config.dropped[0].reason


def test_an_agent_needs_no_sink_and_no_source_but_one_of_them() -> None:
    without_sink = agent(SMALL.replace("a1.sinks = k1", ""))
    assert running(without_sink) == "a1: r1 | c1 |  | " and without_sink.valid
    without_source = agent(SMALL.replace("a1.sources = r1", ""))
    assert running(without_source) == "a1:  | c1 | k1 | " and without_source.valid
    neither = agent(SMALL.replace("a1.sinks = k1", "").replace("a1.sources = r1", ""))
    assert running(neither) == "a1:  |  |  | " and not neither.valid


def test_nothing_runs_without_a_channel() -> None:
    config = agent(SMALL.replace("c1.type = memory", "c1.type = file\n    a1.channels.c1.capacity = x"))
    assert running(config) == "a1:  |  |  | "


@pytest.mark.parametrize(
    ("batch", "capacity", "runs"), [("", "", True), ("101", "", False), ("101", "101", True), ("", "1", True)]
)
def test_a_batch_must_fit_a_transaction_of_the_channel(batch: str, capacity: str, runs: bool) -> None:
    text = SMALL
    text += f"    a1.sources.r1.batchSize = {batch}\n" if batch else ""
    text += (
        f"    a1.channels.c1.transactionCapacity = {capacity}\n    a1.channels.c1.capacity = 200\n" if capacity else ""
    )
    assert bool(agent(text).sources) is runs


def test_a_sinks_default_batch_counts() -> None:
    text = SMALL + "    a1.channels.c1.transactionCapacity = 99\n"
    assert running(agent(text)) == "a1: r1 | c1 |  | "
    assert "11 error batch-too-large a1.sinks.k1" not in found(read(text))
    assert "8 error batch-too-large a1.sinks.k1" in found(read(text))


def test_dead_letters_go_to_a_channel_that_runs() -> None:
    text = (
        SMALL.replace("channels = c1", "channels = c1 dl", 1)
        + """
    a1.channels.dl.type = memory
    a1.sources.r1.deadLetter = dl
    a1.sinks.k1.deadLetter = dl
    """
    )
    config = agent(text)
    assert (config.sources[0].dead_letter, config.sinks[0].dead_letter) == ("dl", "dl")
    assert running(config) == "a1: r1 | c1 dl | k1 | "
    config = agent(text.replace("deadLetter = dl", "deadLetter = ld"))
    assert (config.sources[0].dead_letter, config.sinks[0].dead_letter) == ("", "")
    assert running(config) == "a1: r1 | c1 | k1 | "
    config = agent(text.replace("deadLetter = dl", "deadLetter = c1"))
    assert (config.sources[0].dead_letter, config.sinks[0].dead_letter) == ("", "")


def test_interceptors_are_in_the_order_of_their_list() -> None:
    text = (
        SMALL
        + """
    a1.sources.r1.interceptors = b a
    a1.sources.r1.interceptors.a.type = host
    a1.sources.r1.interceptors.b.type = static
    a1.sources.r1.interceptors.b.key = k
    """
    )
    interceptors = agent(text).sources[0].interceptors
    assert [(i.name, i.type, i.keywords) for i in interceptors] == [("b", "static", {"key": "k"}), ("a", "host", {})]


def test_an_interceptor_that_is_listed_only_drops_its_source() -> None:
    loaded = read(SMALL + "    a1.sources.r1.interceptors = i1\n")
    assert found(loaded)[-1] == "10 error not-described a1.sources.r1.interceptors.i1"
    assert not loaded.agents["a1"].sources


def test_a_line_about_a_name_that_is_not_listed_may_mean_one_that_is() -> None:
    assert "did you mean r1?" in "".join(map(str, read(SMALL + "    a1.sources.ri.batchSize = 5\n").findings))
    added = read(SMALL + "    a1.sources.r2.type = seq\n").findings
    assert "add r2 to a1.sources" in "".join(map(str, added))


def looping(*sinks: tuple[str, str], channels: str = "c1 c2", **environment: str) -> list[str]:
    """Return the findings about sinks of type channel, each with its channel and its path."""
    text = SMALL.replace("a1.sources.r1.channels = c1", f"a1.sources.r1.channels = {channels}")
    text = text.replace("a1.channels = c1", f"a1.channels = {channels}").replace(
        "a1.sinks = k1", "a1.sinks = k1 s0 s1 s2"
    )
    text = text.replace("c1.type = memory", "c1.type = file")
    text += "    a1.channels.c1.path = /d/c1\n    a1.channels.c2.type = file\n    a1.channels.c2.path = s3://b/c2\n"
    text += "    a1.channels.c3.type = file\n"
    for i, (channel, path) in enumerate(sinks):
        for line in ("type = channel", f"channel = {channel}", f"path = {path}"):
            text += f"    a1.sinks.s{i}.{line}\n"
    loaded = read(text, **environment)
    dropped = {f"a1.sinks.{d.name}" for d in loaded.agents["a1"].dropped}
    loops = [f for f in loaded.findings if f.code == "channel-loop"]
    assert all(f.component in dropped for f in loops)
    return [f.component for f in loops]


@pytest.mark.parametrize("path", ["/d/c1", "/d/./c1/", "/d/x/../c1"])
def test_a_sink_into_its_own_channel_does_not_run(path: str) -> None:
    assert looping(("c1", path)) == ["a1.sinks.s0"]


def test_a_sink_into_its_own_channel_is_known_by_its_address_and_in_the_users_directories() -> None:
    assert looping(("c2", "s3://b/c2/")) == ["a1.sinks.s0"]
    home = "~/.local/share/spillable-stream/a1/c3"
    for path in (home, home.replace("~", "/home/me")):
        assert looping(("c3", path), channels="c1 c3", HOME="/home/me") == ["a1.sinks.s0"]


def test_a_sink_into_its_own_channel_is_known_by_a_path_from_the_working_directory() -> None:
    assert looping(("c1", posixpath.relpath("/d/c1"))) == ["a1.sinks.s0"]


def test_a_sink_that_closes_a_circle_does_not_run_and_one_into_another_channel_does() -> None:
    assert looping(("c1", "s3://b/c2"), ("c2", "/d/c1")) == ["a1.sinks.s1"]
    assert looping(("c1", "s3://b/c2"), ("c2", "/d/other"), ("c2", "/d/c1")) == ["a1.sinks.s2"]
    assert looping(("c1", "s3://b/c2"), ("c2", "/d/c10")) == []


@pytest.mark.parametrize(
    ("type_lines", "name", "runs"),
    [
        ("type = taildir\n    a1.sources.{}.filegroups = g\n    a1.sources.{}.filegroups.g = /d/.*", "r@1", False),
        ("type = taildir\n    a1.sources.{}.filegroups = g\n    a1.sources.{}.filegroups.g = /d/.*", "日志-1", True),
        ("type = spooldir\n    a1.sources.{}.spoolDir = /d", "r/1", False),
        ("type = spooldir\n    a1.sources.{}.spoolDir = /d", "r" * 126, False),
        ("type = netcat\n    a1.sources.{}.bind = h\n    a1.sources.{}.port = 1", "r@1", True),
    ],
)
def test_a_source_that_its_channels_remember_has_a_name_that_they_can(type_lines: str, name: str, runs: bool) -> None:
    """Else the agent would not start, and nothing would say which line is wrong."""
    text = SMALL.replace("= r1", f"= {name}").replace("sources.r1.type = seq", f"sources.{name}.{type_lines}")
    loaded = read(text.replace("{}", name).replace("sources.r1.channels", f"sources.{name}.channels"))
    assert [source.name for source in loaded.agents["a1"].sources] == ([name] if runs else [])
    if not runs:
        (error,) = [f for f in loaded.findings if f.severity == "error"]
        assert (error.code, error.line) == ("bad-value", 5) and "rename it" in error.text


def test_the_name_of_an_interceptor_may_have_dots() -> None:
    text = """
    a1.sources.r1.interceptors = a.b
    a1.sources.r1.interceptors.a.b.type = host
    """
    loaded = read(SMALL + text)
    assert [i.name for i in loaded.agents["a1"].sources[0].interceptors] == ["a.b"] and found(loaded) == []


def test_a_selector_without_the_word_type_is_found() -> None:
    loaded = read(SMALL + "    a1.sources.r1.selector = multiplexing\n")
    assert [str(f) for f in loaded.findings] == [
        "flume.conf:10: warning unknown-property a1.sources.r1: nothing reads selector: write "
        "a1.sources.r1.selector.type = multiplexing"
    ]
