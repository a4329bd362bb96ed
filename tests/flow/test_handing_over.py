"""What a source without numbers holds as its channel fails is put by the one that is started in its place."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import flow
from tests.support.broken_disk import SYNCS, BrokenDisk
from tests.support.events import take
from tests.support.flow_agents import CONFIGURATION, agent, log, write, written
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("retried_soon")

Send = Callable[[str], None]


SOURCES = {
    "netcat": "type = netcat\na1.sources.r1.bind = 127.0.0.1\na1.sources.r1.ack-every-event = false",
    "syslogtcp": "type = syslogtcp\na1.sources.r1.host = 127.0.0.1",
    "syslogudp": "type = syslogudp\na1.sources.r1.host = 127.0.0.1",
    "netcatudp": "type = netcatudp\na1.sources.r1.bind = 127.0.0.1",
    "exec": "type = exec\na1.sources.r1.batchTimeout = 0\na1.sources.r1.command = tail -n +1 -f {dir}/logs/app.log",
}


def write_source(place: Path, kind: str, channels: str = "c2") -> None:
    """Write the agent's file with a source of a type in the place of the one that has numbers."""
    text = SOURCES[kind].format(dir="{dir}") + ("" if kind == "exec" else "\na1.sources.r1.port = 0")
    before, _, rest = CONFIGURATION.partition("a1.sources.r1.type = TAILDIR\n")
    lines = [line for line in rest.splitlines() if not line.startswith("a1.sources.r1.")]
    write(place, f"{before}a1.sources.r1.{text}\na1.sources.r1.channels = {channels}\n" + "\n".join(lines))


def sends(stack: ExitStack, place: Path, kind: str, running: flow.Agent) -> Send:
    """Return what gives lines to the source."""
    if kind == "exec":
        return lambda line: log(place, line)
    source: Any = running.sources["r1"].source
    how = socket.SOCK_DGRAM if kind.endswith("udp") else socket.SOCK_STREAM
    client = stack.enter_context(socket.socket(socket.AF_INET, how))
    client.connect(("127.0.0.1", source.port))
    prefix = "<1>" if kind.startswith("syslog") else ""
    return lambda line: client.sendall(f"{prefix}{line}\n".encode())


def fails(running: flow.Agent) -> bool:
    """Tell whether c2 has failed, after a round of the agent's wait."""
    running.wait(0.001)
    return "c2" in running.troubles()


def works(running: flow.Agent) -> bool:
    """Tell whether c2 is open and all works, after a round of the agent's wait."""
    running.wait(0.001)
    return running.troubles() == {}


@pytest.mark.parametrize("kind", [k for k in SOURCES if k != "exec"])
def test_what_was_read_while_the_channel_was_closed_comes_in_order(
    place: Path, broken_c2: BrokenDisk, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_source(place, kind)
    with agent(place) as running, ExitStack() as stack:
        send = sends(stack, place, kind, running)
        send("1")
        wait_until(lambda: written(place, "out2") == ["1"])
        broken_c2.breaks(calls=(*SYNCS, "open"))
        send("2")
        wait_until(lambda: fails(running) and running.sources["r1"].source.counters.channel_write_fail > 0)
        send("3")
        send("4")
        broken_c2.works()
        wait_until(lambda: works(running))
        counters = running.sources["r1"].source.counters
        wait_until(lambda: "stored now, which a channel had refused" in caplog.text)
        assert counters.event_received_count == counters.event_accepted_count
        wait_until(lambda: written(place, "out2")[-1:] == ["4"])
    found = written(place, "out2")
    assert found[-2:] == ["3", "4"] and found[:2] == ["1", "2"] and len(found) <= 5, "2 was in doubt"
    assert "and lost" not in caplog.text


@pytest.mark.parametrize("ends", [True, False], ids=["has ended", "runs"])
def test_what_a_command_has_printed_comes_and_one_that_has_ended_is_not_run_again(
    place: Path, broken_c2: BrokenDisk, ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wait = f"while [ ! -e {place}/go ]; do sleep 0.01; done"
    last = "" if ends else f"; [ -e {place}/again ] || {{ touch {place}/again; sleep 1000; }}"
    (place / "command").write_text(f"echo 1; {wait}; echo 2; echo 3; touch {place}/printed{last}")
    write_source(place, "exec")
    configuration = (place / "flume.conf").read_text()
    command = f"sh {place}/command\na1.sources.r1.batchSize = 1"
    (place / "flume.conf").write_text(configuration.replace(f"tail -n +1 -f {place}/logs/app.log", command))
    with agent(place) as running:
        wait_until(lambda: written(place, "out2") == ["1"])
        process = running.sources["r1"].source._process  # type: ignore[union-attr]
        broken_c2.breaks(calls=(*SYNCS, "open"))
        (place / "go").touch()
        wait_until(lambda: fails(running) and (place / "printed").exists())
        wait_until(lambda: not ends or process.poll() is not None)
        broken_c2.works()
        wait_until(lambda: works(running) and "stored now, which a channel had refused" in caplog.text)
        wait_until(lambda: running.sources["r1"].source.finished)
        wait_until(
            lambda: written(place, "out2")[-3:] == ["1", "2", "3"] or (ends and written(place, "out2")[-1:] == ["3"])
        )
    found = written(place, "out2")
    assert found[:2] == ["1", "2"] and found.count("1") == (1 if ends else 2)
    assert "and lost" not in caplog.text


def test_what_no_source_takes_over_is_counted_and_named(
    place: Path, broken_c2: BrokenDisk, caplog: pytest.LogCaptureFixture
) -> None:
    write_source(place, "syslogtcp")
    with agent(place) as running, ExitStack() as stack:
        send = sends(stack, place, "syslogtcp", running)
        broken_c2.breaks(calls=(*SYNCS, "open"))
        send("1")
        wait_until(lambda: fails(running) and running.sources["r1"].source.counters.channel_write_fail > 0)
        source = running.sources["r1"].source
        running.stop()
        assert source.missed[-1].startswith("1 event is not stored, and lost: ")
    assert "1 event is not stored, and lost: " in caplog.text


def test_a_batch_that_one_channel_has_comes_to_the_other_one_only(
    place: Path, broken_c2: BrokenDisk, caplog: pytest.LogCaptureFixture
) -> None:
    write_source(place, "syslogtcp", channels="c1 c2")
    with agent(place) as running, ExitStack() as stack:
        send = sends(stack, place, "syslogtcp", running)
        send("1")
        wait_until(lambda: written(place, "out1") == written(place, "out2") == ["1"] and running.is_drained())
        broken_c2.breaks(calls=(*SYNCS, "open"))
        send("2")
        wait_until(lambda: fails(running) and written(place, "out1") == ["1", "2"])
        wait_until(lambda: running.sources["r1"].source.counters.channel_write_fail > 0)
        broken_c2.works()
        wait_until(lambda: works(running) and written(place, "out2")[-1:] == ["2"])
    assert written(place, "out1") == ["1", "2"]


BOUNDED = "file\na1.channels.c2.capacity = 1\na1.channels.c2.transactionCapacity = 1\na1.channels.c2.keep-alive = 0"


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "of another type"])
def test_a_changed_file_hands_over_to_a_source_of_the_name_and_else_the_events_are_named_as_lost(
    place: Path, is_removed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    write_source(place, "syslogtcp", channels="c2")
    text = (place / "flume.conf").read_text().replace("a1.sinks = k1 k2", "a1.sinks = k1")
    bounded = text.replace("file\na1.channels.c2.check", f"{BOUNDED}\na1.channels.c2.check")
    (place / "flume.conf").write_text(bounded)
    with agent(place) as running, ExitStack() as stack:
        send = sends(stack, place, "syslogtcp", running)
        counters = running.sources["r1"].source.counters
        send("1")
        wait_until(lambda: counters.event_accepted_count == 1)
        send("2")
        wait_until(lambda: counters.channel_write_fail > 0)
        send("3")
        other = bounded.replace("sources = r1", "sources = r2").replace("sources.r1", "sources.r2")
        same = bounded.replace("type = syslogtcp", "type = multiport_syslogtcp\na1.sources.r1.batchSize = 1")
        same = same.replace("r1.port = 0", "r1.ports = 0")
        (place / "flume.conf").write_text(other if is_removed else same)
        assert running.reload()
        channel, found = running.channels["c2"].channel, list[bytes]()
        wait_until(lambda: found.extend(take(channel)) or len(found) == (1 if is_removed else 3), 30)
        assert found == ([b"1"] if is_removed else [b"1", b"2", b"3"])
    assert ("2 events are not stored, and lost: " in caplog.text) == is_removed
