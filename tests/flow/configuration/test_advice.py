from __future__ import annotations

import pytest

from tests.support.flow_configurations import SMALL, found, read


def codes(text: str) -> set[str]:
    return {f.code for f in read(text).findings}


def source(*lines: str) -> str:
    return SMALL.replace("    a1.sources.r1.type = seq\n", "") + "".join(
        f"    a1.sources.r1.{line}\n" for line in lines
    )


def sink(*lines: str) -> str:
    return SMALL.replace("    a1.sinks.k1.type = null\n", "") + "".join(f"    a1.sinks.k1.{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("command", "needs_one"),
    [
        ("cat a.log | grep x", True),
        ("tail -F a.log 2>&1", True),
        ("echo $(date)", True),
        ("a && b", True),
        ("cat a.log", False),
        ("grep a|b x.log", False),
        ("curl http://x/?a=1&b=2", False),
    ],
)
def test_a_command_with_a_shells_signs_needs_a_shell(command: str, needs_one: bool) -> None:
    lines = ["type = exec", f"command = {command}"]
    assert ("no-shell" in codes(source(*lines))) is needs_one
    assert "no-shell" not in codes(source(*lines, "shell = /bin/sh -c"))


@pytest.mark.parametrize(
    ("command", "is_tail"),
    [
        ("tail -F /var/log/x", True),
        ("tail -f /x", True),
        ("/usr/bin/tail -n 0 -F /x", True),
        ("tail -n0 --follow=name /x", True),
        ("tail -F -c +0 /x", True),
        ("tail -100f /x", True),
        ("tail -n 5 /x", False),
        ("cat /x", False),
        ("./detail -f x", False),
    ],
)
def test_a_command_that_follows_a_file_is_found(command: str, is_tail: bool) -> None:
    assert ("tail" in codes(source("type = exec", f"command = {command}"))) is is_tail


@pytest.mark.parametrize(
    ("lines", "is_kept"),
    [
        ((), True),
        (("hdfs.rollCount = 0",), True),
        (("hdfs.rollSize = 0",), True),
        (("hdfs.rollSize = 5", "hdfs.rollCount = 5"), False),
    ],
)
def test_an_hdfs_sink_that_keeps_a_limit_of_a_few_lines_is_found(lines: tuple[str, ...], is_kept: bool) -> None:
    assert ("roll-defaults" in codes(sink("type = hdfs", "hdfs.path = /x", *lines))) is is_kept


@pytest.mark.parametrize("path", ["/x/%Y", "/x/%{h}/%d", "/x/%t", "/x%s"])
def test_a_time_in_the_path_needs_events_with_a_time(path: str) -> None:
    dated = sink("type = hdfs", f"hdfs.path = {path}")
    assert "no-timestamp" in codes(dated)
    assert "no-timestamp" not in codes(dated + "    a1.sinks.k1.hdfs.useLocalTimeStamp = true\n")
    interceptor = "    a1.sources.r1.interceptors = i\n    a1.sources.r1.interceptors.i."
    assert "no-timestamp" not in codes(dated + interceptor + "type = timestamp\n")
    other = interceptor + "type = timestamp\n    a1.sources.r1.interceptors.i.headerName = ts\n"
    assert "no-timestamp" in codes(dated + other)
    static = interceptor + "type = static\n    a1.sources.r1.interceptors.i.key = timestamp\n"
    assert "no-timestamp" not in codes(dated + static)
    assert "no-timestamp" in codes(dated + interceptor + "type = host\n")


@pytest.mark.parametrize("path", ["/x", "/x/%{Y}", "/x/%%Y", "/x/%[localhost]"])
def test_a_path_without_a_time_needs_none(path: str) -> None:
    assert "no-timestamp" not in codes(sink("type = hdfs", f"hdfs.path = {path}"))


def test_sources_that_may_set_a_time_are_trusted() -> None:
    text = sink("type = hdfs", "hdfs.path = /%Y").replace("type = seq", "type = syslogudp\n    a1.sources.r1.port = 1")
    assert "no-timestamp" not in codes(text)


@pytest.mark.parametrize(
    ("lines", "resends"),
    [
        ((), True),
        (("rollback.404 = false",), True),
        (("rollback.2XX = false",), False),
        (("rollback.2xx = false",), False),
        (("rollback.200 = false",), False),
        (("defaultRollback = false",), False),
        (("rollback.2XX = true", "rollback.200 = true"), True),
    ],
)
def test_an_http_sink_that_sends_again_what_was_accepted_is_found(lines: tuple[str, ...], resends: bool) -> None:
    assert ("http-resend" in codes(sink("type = http", "endpoint = http://x", *lines))) is resends


def test_memory_in_front_of_files_is_a_note_and_a_file_channel_is_fine() -> None:
    text = sink("type = file_roll", "sink.directory = /x")
    assert found(read(text)) == ["8 note memory-channel a1.sinks.k1"]
    assert codes(text.replace("= memory", "= file")) == set()


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (("netcat", "0.0.0.0", 1), ("netcat", "127.0.0.1", 1), True),
        (("netcat", "127.0.0.1", 1), ("netcat", "127.0.0.1", 1), True),
        (("netcat", "127.0.0.1", 1), ("netcat", "127.0.0.2", 1), False),
        (("netcat", "127.0.0.1", 0), ("netcat", "127.0.0.1", 0), False),
        (("netcat", "0.0.0.0", 1), ("netcat", "0.0.0.0", 2), False),
        (("netcat", "0.0.0.0", 1), ("netcatudp", "0.0.0.0", 1), False),
        (("netcatudp", "0.0.0.0", 1), ("netcatudp", "0.0.0.0", 1), True),
    ],
)
def test_a_port_of_two_sources_is_found(one: tuple[str, str, int], other: tuple[str, str, int], clash: bool) -> None:
    text = SMALL.replace("a1.sources = r1", "a1.sources = x y")
    for name, (kind, address, port) in zip("xy", (one, other), strict=True):
        text += f"    a1.sources.{name}.type = {kind}\n    a1.sources.{name}.bind = {address}\n"
        text += f"    a1.sources.{name}.port = {port}\n    a1.sources.{name}.channels = c1\n"
    assert ("port-twice" in codes(text)) is clash


@pytest.mark.parametrize(
    ("one", "other", "clash"), [("", "", True), ("/p", "/p", True), ("/p", "", False), ("/p", "/q", False)]
)
def test_a_position_file_of_two_sources_is_found(one: str, other: str, clash: bool) -> None:
    text = SMALL.replace("a1.sources = r1", "a1.sources = x y")
    for name, file in (("x", one), ("y", other)):
        text += f"    a1.sources.{name}.type = TAILDIR\n    a1.sources.{name}.channels = c1\n"
        text += f"    a1.sources.{name}.filegroups = f\n    a1.sources.{name}.filegroups.f = /logs/{name}.*\n"
        text += f"    a1.sources.{name}.positionFile = {file}\n" if file else ""
    assert ("position-file-twice" in codes(text)) is clash


def test_a_secret_in_plain_text_is_found_and_not_shown() -> None:
    text = source("type = http", "port = 1", "keystore-password = hunter2")
    finding = next(f for f in read(text).findings if f.code == "secret")
    assert "hunter2" not in str(finding)
    assert "secret" not in codes(text.replace("hunter2", "${env:PASSWORD:-hunter2}"))


def test_a_file_with_a_secret_is_not_a_secret() -> None:
    assert "secret" not in codes(SMALL + "    a1.channels.c1.keyStorePasswordFile = /x\n")


def test_a_channel_without_a_sink_is_found_unless_it_is_for_dead_letters() -> None:
    text = SMALL.replace("channels = c1", "channels = c1 c2") + "    a1.channels.c2.type = memory\n"
    assert "no-sink" in codes(text)
    text = text.replace("sources.r1.channels = c1 c2", "sources.r1.channels = c1\n    a1.sinks.k1.deadLetter = c2")
    assert "no-sink" not in codes(text)


@pytest.mark.parametrize(
    ("pattern", "is_slow"),
    [("ERROR", False), ("^a.*b$", True), ("(?<=a)b", True), ("(a)\\\\1", True), ("[a-z]+ (ERROR|WARN)", False)],
)
def test_a_pattern_that_is_matched_body_by_body_is_a_note(pattern: str, is_slow: bool) -> None:
    text = (
        SMALL
        + f"""
    a1.sources.r1.interceptors = i1
    a1.sources.r1.interceptors.i1.type = regex_filter
    a1.sources.r1.interceptors.i1.regex = {pattern}
    """
    )
    assert ("regex" in codes(text)) is is_slow


@pytest.mark.parametrize(
    ("kind", "other", "is_found"),
    [("failover", "c2", True), ("failover", "c1", False), ("load_balance", "c2", False)],
)
def test_a_failover_group_whose_sinks_have_several_channels_is_found(kind: str, other: str, is_found: bool) -> None:
    text = f"""
        a1.channels = c1 c2
        a1.sources.r1.channels = c1 c2
        a1.channels.c2.type = memory
        a1.sinks = k1 k2 k3
        a1.sinks.k2.type = null
        a1.sinks.k2.channel = {other}
        a1.sinks.k3.type = null
        a1.sinks.k3.channel = c2
        a1.sinkgroups = g
        a1.sinkgroups.g.sinks = k1 k2
        a1.sinkgroups.g.processor.type = {kind}
    """
    assert ("failover-channels" in codes(SMALL + text)) == is_found
