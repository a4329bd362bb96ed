"""A channel that a storage failure closed is opened again, and what uses it is started anew: each line comes once."""

from __future__ import annotations

import errno
import gzip
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import flow
from spillable_stream.flow import assembling, assembly
from spillable_stream.flow.metrics import flume_json, prometheus_text
from spillable_stream.flow.running_flow import RunningFlow
from spillable_stream.flow.wired import AgentChannel
from tests.support.broken_disk import SYNCS, BrokenDisk, broken_disk
from tests.support.events import put
from tests.support.flow_agents import CONFIGURATION, agent, log, write, written
from tests.support.waiting import wait_until


def fails(running: flow.Agent) -> bool:
    """Tell whether c2 has failed, after a round of the agent's wait."""
    running.wait(0.001)
    return "c2" in running.troubles()


def works(running: flow.Agent) -> bool:
    """Tell whether c2 is open and all works, after a round of the agent's wait."""
    running.wait(0.001)
    return running.troubles() == {}


@pytest.mark.usefixtures("retried_soon")
def test_a_channel_that_a_storage_failure_closed_is_opened_again_and_each_line_comes_once(
    place: Path, broken_c2: BrokenDisk, caplog: pytest.LogCaptureFixture
) -> None:
    with agent(place) as running:
        log(place, "1")
        wait_until(lambda: written(place, "out2") == ["1"])
        failed, k1, uuid = running.channels["c2"].channel, running.sinks["k1"], running.channels["c2"].channel.uuid
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "2")
        wait_until(lambda: fails(running))
        assert "a storage failure has closed it at 20" in running.troubles()["c2"]
        found = json.loads(flume_json(running))["CHANNEL.c2"]
        assert (found["Unhealthy"], found["ReopenedCount"]) == ("1", "0")
        wait_until(lambda: fails(running) and "c2 can't be opened again, and is tried again in" in caplog.text)
        log(place, "3")
        broken_c2.works()
        wait_until(lambda: works(running))
        assert running.channels["c2"].channel is not failed and failed._open.has_ended
        assert running.channels["c2"].channel.uuid == uuid
        assert running.sinks["k1"] is k1, "what does not use the channel runs on"
        log(place, "4")
        wait_until(lambda: written(place, "out2")[-1:] == ["4"] == written(place)[-1:])
        assert written(place) == written(place, "out2") == ["1", "2", "3", "4"]
        assert 'spillable_flow_channel_reopened_total{agent="a1",name="c2"} 1' in prometheus_text(running)
        assert 'spillable_flow_channel_unhealthy{agent="a1",name="c2"} 0' in prometheus_text(running)
    assert caplog.text.count("a storage failure has closed the channel c2, and what uses it is at a standstill") == 1
    assert caplog.text.count("the channel c2 is open again") == 1


@pytest.mark.usefixtures("retried_soon")
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["fails", "is full"])
@pytest.mark.parametrize("kind", ["file", "SPILLABLEMEMORY", "spool"])
def test_each_line_comes_once_wherever_the_disk_broke_and_whatever_was_in_memory(
    place: Path, broken_c2: BrokenDisk, kind: str, number: int, first: int
) -> None:
    write(place, of_kind(kind))
    lines = [str(i) for i in range(40)]
    with agent(place) as running:
        log(place, *lines[:10])
        wait_until(lambda: written(place, "out2") == lines[:10])
        broken_c2.breaks(first, (*SYNCS, "open"), number)
        for line in lines[10:30]:
            log(place, line)
        wait_until(lambda: not running.wait(0.001) and broken_c2.failed)
        broken_c2.works()
        log(place, *lines[30:])
        wait_until(lambda: works(running) and written(place, "out2")[-1:] == lines[-1:] == written(place)[-1:])
    assert written(place) == written(place, "out2") == lines


def of_kind(kind: str) -> str:
    """Return the configuration with c2 of a type, or in a store behind a spool whose disk may break."""
    if kind != "spool":
        capacity = "a1.channels.c2.memoryCapacity = 3\na1.channels.c2.overflowCapacity = 1000\n"
        return CONFIGURATION.replace("c2.type = file", f"c2.type = {kind}") + (capacity if kind != "file" else "")
    store = """path = object+file://{dir}/store
a1.channels.c2.durability = local
a1.channels.c2.spool = {dir}/c2"""
    return CONFIGURATION.replace("checkpointDir = {dir}/c2", store)


COMPRESSED = """
a1.sinks.k2.type = hdfs
a1.sinks.k2.hdfs.path = {dir}/out2
a1.sinks.k2.hdfs.fileType = CompressedStream
a1.sinks.k2.hdfs.codeC = gzip
a1.sinks.k2.hdfs.rollInterval = 1
"""


@pytest.mark.usefixtures("retried_soon")
def test_what_a_sink_holds_in_open_files_comes_once_though_its_channel_fails(
    place: Path, broken_c2: BrokenDisk
) -> None:
    write(place, CONFIGURATION.replace("a1.sinks.k2.sink.directory = {dir}/out2\n", "") + COMPRESSED)
    with agent(place) as running:
        log(place, "1", "2")
        (sink,) = running.sinks["k2"].sinks
        wait_until(lambda: sink.held_events() == 2 or len(unzipped(place / "out2")) == 2)
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "3", "4")
        wait_until(lambda: fails(running))
        broken_c2.works()
        wait_until(lambda: works(running) and len(unzipped(place / "out2")) >= 4)
    assert unzipped(place / "out2") == ["1", "2", "3", "4"]


def unzipped(place: Path) -> list[str]:
    """Return the lines of closed files, sorted."""
    return sorted(line for f in place.glob("*.gz") for line in gzip.decompress(f.read_bytes()).decode().split())


@pytest.mark.usefixtures("retried_soon")
def test_a_command_that_has_ended_is_not_run_again(place: Path, broken_c2: BrokenDisk) -> None:
    command = "a1.sources.x.type = exec\na1.sources.x.command = echo once\na1.sources.x.channels = c2\n"
    write(place, CONFIGURATION.replace("a1.sources = r1", "a1.sources = r1 x") + command)
    with agent(place) as running:
        wait_until(lambda: written(place, "out2") == ["once"] and running.sources["x"].finished)
        source = running.sources["x"]
        for n in "12":
            broken_c2.breaks(calls=(*SYNCS, "open"))
            log(place, n)
            wait_until(lambda: fails(running))
            broken_c2.works()
            wait_until(lambda: works(running))
        assert running.sources["x"] is source
        wait_until(lambda: written(place, "out2")[-1:] == ["2"])
    assert written(place, "out2") == ["once", "1", "2"]


class Untold(flow.PolledSource):
    """A source of the user's own that does not know whether it is finished."""

    starts = 0

    def open(self, processor: Any) -> None:
        type(self).starts += 1

    def poll(self, processor: Any) -> flow.Status:
        return flow.Status.BACKOFF

    @property
    def finished(self) -> bool:
        raise ZeroDivisionError

    @finished.setter
    def finished(self, value: bool) -> None: ...


@pytest.mark.usefixtures("retried_soon")
def test_a_source_that_can_not_say_whether_it_is_finished_is_started_again(place: Path, broken_c2: BrokenDisk) -> None:
    own = f"a1.sources.x.type = {__name__}.Untold\na1.sources.x.channels = c2\n"
    write(place, CONFIGURATION.replace("a1.sources = r1", "a1.sources = r1 x") + own)
    with agent(place) as running:
        wait_until(lambda: Untold.starts == 1)
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "1")
        wait_until(lambda: fails(running))
        broken_c2.works()
        wait_until(lambda: running.wait(0.001) is False and Untold.starts == 2)


@pytest.mark.usefixtures("retried_soon")
def test_two_channels_of_a_source_that_fail_together_are_opened_again_one_after_the_other(place: Path) -> None:
    delayed = "".join(f"a1.channels.{name}.deliverAfter = 1ms\n" for name in ("c1", "c2"))
    write(place, CONFIGURATION.replace("checkpointDir = {dir}/", "checkpointDir = {dir}/disk/") + delayed)
    with broken_disk(place / "disk") as disk, agent(place) as running:
        log(place, "1")
        wait_until(lambda: written(place) == written(place, "out2") == ["1"])
        disk.breaks(calls=(*SYNCS, "open"))
        for one in running.channels.values():
            with pytest.raises(ss.SpillableError):
                put(one.channel, b"?")  # whether it is stored is not known
            assert one.channel.failure()
        disk.works()
        log(place, "2")
        wait_until(lambda: works(running))
        wait_until(
            lambda: [[x for x in written(place, out) if x != "?"] for out in ("out1", "out2")] == [["1", "2"]] * 2
        )


@pytest.mark.usefixtures("retried_soon")
def test_a_channel_stays_closed_while_another_one_or_none_is_in_its_place(
    place: Path, broken_c2: BrokenDisk, caplog: pytest.LogCaptureFixture
) -> None:
    with agent(place) as running:
        log(place, "1")
        wait_until(lambda: written(place, "out2") == ["1"])
        uuid = running.channels["c2"].channel.uuid
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "2")
        wait_until(lambda: fails(running))
        (place / "c2").rename(place / "away")
        broken_c2.works()
        wait_until(lambda: fails(running) and f"the channel {uuid} was at {place}/c2, and nothing is" in caplog.text)
        assert not (place / "c2").exists()
        with ss.Channel(place / "c2", minimum_required_space=0) as other:
            wait_until(lambda: fails(running) and f"and the channel {other.uuid} is there now" in caplog.text)
            assert other.stats().last_id == 0
        shutil.rmtree(place / "c2")
        (place / "away").rename(place / "c2")
        wait_until(lambda: works(running) and written(place, "out2") == written(place) == ["1", "2"])


@pytest.mark.usefixtures("retried_soon")
def test_a_sink_that_is_started_anew_creates_no_channel_in_the_place_of_the_one_that_it_put_into(
    place: Path, broken_c2: BrokenDisk
) -> None:
    into = "a1.sinks.k2.type = channel\na1.sinks.k2.path = {dir}/target"
    roll = "a1.sinks.k2.type = file_roll\na1.sinks.k2.sink.directory = {dir}/out2"
    write(place, CONFIGURATION.replace(roll, into))
    with agent(place) as running:
        wait_until(lambda: works(running))
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "1")
        wait_until(lambda: fails(running))
        (place / "target").rename(place / "away")
        broken_c2.works()
        wait_until(lambda: not fails(running) and "and nothing is there now" in running.troubles().get("a1.k2", ""))
        assert not (place / "target").exists()
        (place / "away").rename(place / "target")
        with ss.Channel(place / "target", create=False) as target:
            wait_until(lambda: works(running) and target.stats().channel_size == 1)


@pytest.mark.usefixtures("retried_soon")
def test_a_stop_does_not_wait_for_a_disk_that_hangs_as_its_channel_is_opened_again(
    place: Path, broken_c2: BrokenDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, go_on, build = threading.Event(), threading.Event(), assembly.build_channels
    opened: list[ss.Channel] = []

    def hang(*arguments: Any) -> dict[str, AgentChannel]:
        hangs.set()
        go_on.wait()
        found = build(*arguments)
        opened.extend(one.channel for one in found.values())
        return found

    with agent(place) as running:
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "1")
        monkeypatch.setattr(assembly, "build_channels", hang)
        wait_until(lambda: fails(running) and hangs.is_set())
        assert running._exchanges is not None
        (attempt,) = running._exchanges.reopenings._tries.values()
        assert not attempt.is_over
        broken_c2.works()
    assert not attempt.is_over
    go_on.set()
    wait_until(lambda: attempt.is_closed)
    assert not opened, "nobody would use it"


TWO_SOURCES = """
a1.sources.r2.type = TAILDIR
a1.sources.r2.filegroups = g
a1.sources.r2.filegroups.g = {dir}/logs/app.*
a1.sources.r2.positionFile = {dir}/positions2.json
a1.sources.r2.channels = c2
"""


@pytest.mark.usefixtures("retried_soon")
def test_a_channel_whose_disk_hangs_does_not_keep_another_one_closed(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, go_on, build = threading.Event(), threading.Event(), assembly.build_channels

    def hang(agent: str, configs: Any, *arguments: Any) -> dict[str, AgentChannel]:
        if configs[0].name == "c1":
            hangs.set()
            go_on.wait()
        return build(agent, configs, *arguments)

    monkeypatch.setattr(assembling, "_LONG_SECONDS", 0.05)
    text = CONFIGURATION.replace("a1.sources = r1", "a1.sources = r1 r2").replace(
        "r1.channels = c1 c2", "r1.channels = c1"
    )
    write(place, text.replace("checkpointDir = {dir}/", "checkpointDir = {dir}/disk/") + TWO_SOURCES)
    with broken_disk(place / "disk") as disk, agent(place) as running:
        log(place, "1")
        wait_until(lambda: written(place) == written(place, "out2") == ["1"])
        disk.breaks(calls=(*SYNCS, "open"))
        log(place, "2")
        wait_until(lambda: running.troubles().keys() >= {"c1", "c2"})
        monkeypatch.setattr(assembly, "build_channels", hang)
        wait_until(lambda: not running.wait(0.001) and hangs.is_set())
        disk.works()
        wait_until(lambda: not running.wait(0.001) and written(place, "out2") == ["1", "2"])
        assert "c1" in running.troubles() and "c2" not in running.troubles()
        assert "the channel c1 is still being opened again after 0.05 s" in caplog.text
        go_on.set()
        wait_until(lambda: works(running) and written(place) == ["1", "2"])
    assert written(place) == written(place, "out2") == ["1", "2"]


def test_a_stop_tells_that_a_channel_which_was_opened_again_could_not_be_closed(
    place: Path, broken_c2: BrokenDisk
) -> None:
    write(
        place,
        of_kind("SPILLABLEMEMORY")
        .replace("a1.sinks = k1 k2", "a1.sinks = k1")
        .replace("Capacity = 3", "Capacity = 30"),
    )
    with agent(place) as running:
        log(place, *"0123456789")
        channel = running.channels["c2"].channel
        wait_until(lambda: channel.stats().channel_size == 10)
        channel.engine().log.lock.failed = "of this test"  # with events in memory
        running.failed_channels.look(running.channels)
        assert running._exchanges is not None
        running._exchanges.begin_reopening(running.failed_channels, "c2")
        (attempt,) = running._exchanges.reopenings._tries.values()
        wait_until(lambda: attempt.is_over)
        broken_c2.breaks(calls=(*SYNCS, "ftruncate", "pwrite"))
        assert not running.stop()
        broken_c2.works()
    with ss.Channel(place / "c2", create=False) as again:
        assert again.stats().channel_size == 10


@pytest.mark.usefixtures("retried_soon")
def test_nothing_is_opened_again_after_a_stop_was_asked_for(
    place: Path, broken_c2: BrokenDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(place) as running:
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "1")
        wait_until(lambda: fails(running))
        monkeypatch.setattr(running._asked, "wait", lambda _seconds: running.ask_to_stop())
        monkeypatch.setattr(running, "_exchange", lambda: pytest.fail("a try began"))
        assert running.wait(60)


@pytest.mark.usefixtures("retried_soon")
def test_a_changed_file_that_comes_in_between_counts_and_the_channel_is_opened_again_by_it(
    place: Path, broken_c2: BrokenDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, go_on, build = threading.Event(), threading.Event(), assembly.build_channels

    def hang(*arguments: Any) -> dict[str, AgentChannel]:
        if threading.current_thread().name == "c2-assemble":  # not the reload of the files
            hangs.set()
            go_on.wait()
        return build(*arguments)

    with agent(place) as running:
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "1")
        monkeypatch.setattr(assembly, "build_channels", hang)
        wait_until(lambda: fails(running) and hangs.is_set())
        broken_c2.works()
        write(place, CONFIGURATION.replace("{dir}/out1", "{dir}/out3"))
        found = running.reload()
        assert found is not None and found.sinks == {"k1"}
        go_on.set()
        wait_until(
            lambda: works(running) and written(place, "out2") == ["1"] == written(place) + written(place, "out3")
        )
        log(place, "2")
        wait_until(lambda: written(place, "out2") == ["1", "2"] and written(place, "out3")[-1:] == ["2"])


@pytest.mark.usefixtures("retried_soon")
def test_an_optional_channel_stays_closed_and_stops_no_source(
    place: Path, broken_c2: BrokenDisk, caplog: pytest.LogCaptureFixture
) -> None:
    write(place, CONFIGURATION + "a1.sources.r1.selector.optional = c2\n")
    with agent(place) as running:
        log(place, "1")
        wait_until(lambda: written(place, "out2") == ["1"])
        source = running.sources["r1"]
        broken_c2.breaks(calls=(*SYNCS, "open"))
        log(place, "2")
        wait_until(lambda: fails(running))
        broken_c2.works()
        log(place, "3")
        wait_until(lambda: fails(running) and written(place) == ["1", "2", "3"])
        assert running.sources["r1"] is source
    assert "check its disk, and start the agent again" in caplog.text


def test_a_run_to_the_end_ends_with_a_failure_where_a_channel_fails(
    place: Path, broken_c2: BrokenDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log(place, "1")
    assert agent(place).run(once=True)

    def break_and_start(running: RunningFlow) -> None:
        broken_c2.breaks(calls=("fdatasync", "ftruncate"))
        start(running)

    start = RunningFlow.start
    monkeypatch.setattr(RunningFlow, "start", break_and_start)
    log(place, "2")
    assert not agent(place).run(once=True)
    assert "check its disk, and start the agent again" in caplog.text and "both are tried again" not in caplog.text
    monkeypatch.undo()
    broken_c2.works()
    assert agent(place).run(once=True)
    assert written(place) == written(place, "out2") == ["1", "2"]


def test_an_agent_of_objects_opens_nothing_again_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        broken_disk(tmp_path / "c") as disk,
        ss.Channel(tmp_path / "c", minimum_required_space=0) as channel,
        flow.Agent(channels={"c": channel}) as running,
    ):
        put(channel, b"0")
        disk.breaks(calls=(*SYNCS, "open"))
        with pytest.raises(ss.CommitOutcomeUnknownError), channel.put_transaction() as transaction:
            transaction.put(ss.Event(b"1"))
        assert not running.wait(0.001)
        assert [*running.troubles()] == ["c"]
        assert "check its disk, and start the agent again" in caplog.text
