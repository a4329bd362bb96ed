"""Changed files of an agent: what a reload restarts, and what it refuses."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream import flow
from spillable_stream.flow.part_puts import PartPuts
from spillable_stream.flow.routed_batch import RoutedBatch
from spillable_stream.flow.sinks.base import Sink, Taken
from spillable_stream.flow.sinks.output_file import OutputFile
from spillable_stream.flow.sources.base import BatchProcessor, SourceBase, Status
from tests.support.flow_agents import CONFIGURATION, agent, log, write, written
from tests.support.waiting import wait_until


def test_a_reload_restarts_only_what_has_changed(place: Path, running: flow.Agent) -> None:
    log(place, "1")
    wait_until(lambda: written(place, "out2") == ["1"])
    source, k1, k2 = running.sources["r1"], running.sinks["k1"], running.sinks["k2"]
    write(place, CONFIGURATION.replace("{dir}/out2", "{dir}/out3"))
    found = running.reload()
    assert found is not None
    assert (found.sources, found.sinks, found.channels) == (frozenset(), {"k2"}, frozenset())
    assert running.sources["r1"] is source and running.sinks["k1"] is k1 and running.sinks["k2"] is not k2
    log(place, "2")
    wait_until(lambda: written(place, "out3") == ["2"] and written(place) == ["1", "2"])


def test_a_reload_of_a_channel_restarts_what_uses_it_and_loses_nothing(place: Path, running: flow.Agent) -> None:
    log(place, "1")
    wait_until(lambda: written(place, "out2") == ["1"])
    write(place, CONFIGURATION + "a1.channels.c2.keep-alive = 1\n")
    found = running.reload()
    assert found is not None
    assert (found.sources, found.sinks, found.channels) == ({"r1"}, {"k2"}, {"c2"})
    log(place, "2")
    wait_until(lambda: written(place) == written(place, "out2") == ["1", "2"])


def test_a_channel_that_cannot_be_closed_keeps_nothing_from_starting_or_ending(
    place: Path, running: flow.Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[str] = []
    close = ss.Channel.close

    def fail(channel: ss.Channel) -> None:
        closed.append(Path(str(channel.path)).name)
        close(channel)
        raise ss.StorageError(f"can't write {channel.path}; free some space")

    monkeypatch.setattr(ss.Channel, "close", fail)
    write(place, CONFIGURATION + "a1.channels.c2.keep-alive = 1\n")
    assert running.reload() is not None
    log(place, "1")
    wait_until(lambda: written(place) == written(place, "out2") == ["1"])
    assert not running.stop()
    assert closed == ["c2", "c1", "c2"]
    assert "the channel c2 could not be closed: can't write" in caplog.text


def test_a_reload_starts_a_sink_when_the_one_before_has_ended_though_its_disk_hangs(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, hangs, sync = threading.Event(), threading.Event(), OutputFile.sync

    def hang(file: OutputFile) -> None:
        if file.path.parent.name == "out1":
            hangs.set()
            go_on.wait()
        sync(file)

    monkeypatch.setattr(OutputFile, "sync", hang)
    log(place, "1")
    with flow.Agent.from_properties(place / "flume.conf", name="a1", shutdown_timeout_seconds=0.01) as running:
        hangs.wait()
        before = running.sinks["k1"]
        for seconds in (7, 8):
            write(place, CONFIGURATION + f"a1.sinks.k1.sink.rollInterval = {seconds}\n")
            assert running.reload() is not None
        try:
            assert "has not ended" in running.troubles().get("a1.k1", "")
            running.supervisor._watched["a1.k1"].retry_at = 0
            running.supervisor.look()
            assert not running.sinks["k1"].alive
        finally:
            go_on.set()
        assert before.stop(60)
        running.shutdown_timeout_seconds = 60.0
        running.supervisor._watched["a1.k1"].retry_at = 0
        running.supervisor.look()
        log(place, "2")
        wait_until(lambda: written(place) == ["1", "2"])
        assert running.troubles() == {}


@pytest.mark.parametrize("text", ["a1.sources = r1", CONFIGURATION.replace("k2.type = file_roll", "k2.type = no_such")])
def test_a_reload_of_an_invalid_file_is_refused_and_it_runs_on(
    place: Path, running: flow.Agent, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    write(place, text)
    assert running.reload() is None
    assert "the changed configuration is refused" in caplog.text
    log(place, "1")
    wait_until(lambda: written(place) == written(place, "out2") == ["1"])


@pytest.mark.parametrize("rest", ["", "a1.sinks.k1.sink.rollInterval = 7\n"])
def test_a_reload_with_a_channel_that_cannot_be_opened_is_refused_and_it_runs_on(
    place: Path, running: flow.Agent, caplog: pytest.LogCaptureFixture, rest: str
) -> None:
    (place / "file").write_text("no directory")
    write(place, CONFIGURATION.replace("{dir}/c2", "{dir}/file") + rest)
    assert running.reload() is None
    assert "the changed configuration is refused" in caplog.text and f"{place}/file" in caplog.text
    log(place, "1")
    wait_until(lambda: written(place) == written(place, "out2") == ["1"])
    assert running.troubles() == {}
    (place / "file").unlink()
    found = running.reload()
    assert found is not None and found.channels == {"c2"}
    log(place, "2")
    wait_until(lambda: written(place)[-1:] == written(place, "out2")[-1:] == ["2"])


STORE = """object+file://{dir}/store
a1.channels.c2.durability = {durability}
a1.channels.c2.spool = {dir}/spool
a1.channels.c2.commitInterval = 1s"""


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("file", "{dir}/c2"),
        ("memory", "{dir}/c2"),
        ("SPILLABLEMEMORY", "{dir}/c2"),
        ("file", STORE.replace("{durability}", "local")),
        ("file", STORE.replace("{durability}", "memory")),
    ],
    ids=["file", "memory", "spillable", "spool", "memory_of_spool"],
)
def test_a_reload_of_a_channel_that_has_events_keeps_them(place: Path, kind: str, path: str) -> None:
    text = CONFIGURATION.replace("c2.type = file", f"c2.type = {kind}").replace(
        "a1.channels.c2.checkpointDir = {dir}/c2", f"a1.channels.c2.path = {path}"
    )
    if "store" in path:
        text = text.replace("a1.channels.c2.minimumRequiredSpace = 0\n", "")
    write(place, text.replace("k2.type = file_roll", f"k2.type = {__name__}.Refuses"))
    with agent(place) as running:
        log(place, *map(str, range(50)))
        wait_until(lambda: running.sources["r1"].source.counters.event_accepted_count == 50)
        write(place, text + "a1.channels.c2.keep-alive = 1\n")
        found = running.reload()
        assert found is not None and found.channels == {"c2"}
        wait_until(lambda: written(place, "out2") == list(map(str, range(50))))


class Refuses(flow.BatchSink):
    """A sink whose server is away."""

    def __init__(self) -> None:
        super().__init__(10)

    def write(self, taken: Taken) -> None:
        raise ss.StorageError("it is away")


def test_a_reload_drops_a_new_component_with_an_error_and_does_the_rest(
    place: Path, running: flow.Agent, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "a1.sinks.k3.type = no_such\na1.sinks.k3.channel = c2\na1.sinks.k1.sink.rollInterval = 7\n"
    write(place, CONFIGURATION.replace("a1.sinks = k1 k2", "a1.sinks = k1 k2 k3") + wrong)
    found = running.reload()
    assert found is not None and found.sinks == {"k1"}
    assert "unknown-type a1.sinks.k3" in caplog.text


def test_changed_files_are_found_while_it_waits(place: Path, running: flow.Agent) -> None:
    running.reload_seconds = 0.0
    waiting = threading.Thread(target=running.wait)
    waiting.start()
    write(place, CONFIGURATION.replace("{dir}/out2", "{dir}/out3-other"))
    log(place, "1")
    wait_until(lambda: written(place, "out3-other") == ["1"] or written(place, "out2") == ["1"])
    wait_until(lambda: "out3-other" in str(running._config.sinks))
    running.ask_to_stop()
    waiting.join(30)
    assert not waiting.is_alive()


class RefusedSink(Refuses):
    """A sink that can't be built."""

    def __init__(self) -> None:
        raise ValueError("there is no such server")


class RefusedSource(flow.PolledSource):
    """A source that can't be built."""

    def __init__(self) -> None:
        raise ValueError("there is no such server")


# What can be seen to be impossible only when it is opened or built, in the order in which components are opened.
REFUSALS = {
    "channel": "a1.channels.c3.path = {dir}/file\n",
    "sink": f"a1.sinks.k2.type = {__name__}.RefusedSink\n",
    "source": f"a1.sources.r2.type = {__name__}.RefusedSource\n",
    "class": "a1.sources.r2.type = queue.Queue\n",
}
REASONS = {"channel": "it is a file", "class": "queue.Queue is not a source"}
NEW_PARTS = """
a1.sources = r1 r2
a1.sources.r2.type = seq
a1.sources.r2.channels = c3
a1.channels = c1 c2 c3
a1.channels.c1.keep-alive = 1
a1.channels.c1.retentionMs = 1h
a1.channels.c3.type = file
a1.channels.c3.path = {dir}/c3
"""


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_refused_reload_stores_no_option_and_creates_no_channel(
    place: Path, running: flow.Agent, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    (place / "file").write_text("no directory")
    directory = "a1.sinks.k2.sink.directory = {dir}/out2\n"  # no argument of a sink of one's own
    text = CONFIGURATION.replace(directory, "") if refused == "sink" else CONFIGURATION
    before = {name: running.channels[name].channel.options for name in ("c1", "c2")}
    write(place, text + NEW_PARTS + REFUSALS[refused])
    assert running.reload() is None
    assert "the changed configuration is refused" in caplog.text
    assert REASONS.get(refused, "no such server") in caplog.text
    assert {name: running.channels[name].channel.options for name in ("c1", "c2")} == before
    assert not (place / "c3").exists()
    log(place, "1")
    wait_until(lambda: written(place) == written(place, "out2") == ["1"])


@pytest.mark.parametrize("new_name", ["c2", "c3"])
def test_a_reload_creates_no_channel_where_the_one_that_runs_is_away_as_behind_a_mount_point_without_its_disk(
    place: Path, running: flow.Agent, caplog: pytest.LogCaptureFixture, new_name: str
) -> None:
    log(place, "1")
    wait_until(lambda: written(place, "out2") == ["1"])
    (place / "c2").rename(place / "away")
    (place / "c2").mkdir()
    changed = CONFIGURATION.replace("c2", new_name).replace(f"{{dir}}/{new_name}", "{dir}/c2")
    write(place, changed + f"a1.channels.{new_name}.keep-alive = 1\n")
    assert running.reload() is None
    uuid = running.channels["c2"].channel.uuid
    assert f"the channel {uuid} was at {place}/c2, and nothing is there now: mount its disk" in caplog.text
    assert [*(place / "c2").iterdir()] == []
    with ss.Channel(place / "c2") as other:
        assert running.reload() is None
        assert f"and the channel {other.uuid} is there now" in caplog.text
    shutil.rmtree(place / "c2")
    (place / "away").rename(place / "c2")
    assert running.reload() is not None
    log(place, "2")
    wait_until(lambda: written(place) == written(place, "out2") == ["1", "2"])


BY_FIRST_LETTER = (
    CONFIGURATION.replace("i1.type = static", "i1.type = regex_extractor")
    + """
a1.sources.r1.interceptors.i1.regex = ^(.)
a1.sources.r1.interceptors.i1.serializers = s1
a1.sources.r1.interceptors.i1.serializers.s1.name = first
a1.sources.r1.selector.type = multiplexing
a1.sources.r1.selector.header = first
a1.sources.r1.selector.mapping.a = c1
a1.sources.r1.selector.mapping.b = c2
"""
)


ALL_TO_C1 = BY_FIRST_LETTER.replace("mapping.b = c2", "mapping.b = c1")
WITHOUT_C2 = ALL_TO_C1.replace("r1.channels = c1 c2", "r1.channels = c1")


@pytest.mark.parametrize("changed", [ALL_TO_C1, WITHOUT_C2], ids=["selector", "channels"])
def test_a_batch_that_one_channel_did_not_take_is_divided_anew_by_a_changed_file_and_nothing_is_lost(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, changed: str
) -> None:
    """As where a channel stays full, and somebody sends its events elsewhere."""
    put = PartPuts.put

    def refuse_c2(puts: PartPuts, routed: RoutedBatch, name: str, *given: object, **named: object) -> None:
        if name == "c2":
            raise ss.StorageError("it is full")
        put(puts, routed, name, *given, **named)  # type: ignore[arg-type]

    write(place, BY_FIRST_LETTER)
    log(place, "a1", "b1")
    monkeypatch.setattr(PartPuts, "put", refuse_c2)
    with agent(place) as running:
        wait_until(lambda: written(place) == ["a1"] and "it is full" in str(running.troubles()))
        write(place, changed)
        assert running.reload() is not None
        wait_until(lambda: "b1" in written(place))
        log(place, "a2", "b2")
        wait_until(lambda: written(place) == ["a1", "a1", "b1", "a2", "b2"])
    assert "be duplicated: {'c1': 1" in caplog.text


def test_a_channel_that_a_source_has_no_more_makes_nothing_come_twice_where_it_had_all(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(place, BY_FIRST_LETTER)
    log(place, "a1", "b1")
    with agent(place) as running:
        wait_until(lambda: written(place) == ["a1"] and written(place, "out2") == ["b1"])
        write(place, WITHOUT_C2)
        assert running.reload() is not None
        log(place, "a2", "b2")
        wait_until(lambda: written(place) == ["a1", "a2", "b2"])
    assert "batch 1 of a1.r1" not in caplog.text


class Exits(flow.BatchSink):
    """A sink that can't be built."""

    def __init__(self, sink_directory: str) -> None:
        sys.exit("a mistake")


def test_a_class_that_exits_as_it_is_built_lets_the_new_files_be_refused_and_the_agent_runs_as_it_did(
    place: Path, running: flow.Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """What it raised in the thread that builds it was raised again in the agent's, which ended."""
    k2 = running.sinks["k2"]
    write(place, CONFIGURATION.replace("sinks.k2.type = file_roll", f"sinks.k2.type = {__name__}.Exits"))
    assert running.reload() is None
    assert "Exits can't be built: a mistake" in caplog.text
    assert running.sinks["k2"] is k2 and k2.alive


class Unwilling(flow.PolledSource):
    """A source that takes nothing over."""

    def poll(self, processor: BatchProcessor) -> Status:
        return Status.BACKOFF

    def succeed(self, before: SourceBase, *, is_at_end: bool) -> bool:
        raise ValueError("no heir")


class UnwillingSink(flow.BatchSink):
    """A sink that takes nothing over."""

    def __init__(self) -> None:
        super().__init__(10)

    def write(self, taken: Taken) -> None:
        pass

    def succeed(self, before: Sink) -> None:
        raise ValueError("no heir")


def test_what_cannot_take_over_from_the_one_before_it_is_started_and_all_else_with_it(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reload raised, when what had run was ended and nothing else was started."""
    more = f"""
a1.sources = r1 r2
a1.sources.r2.type = {__name__}.Unwilling
a1.sources.r2.channels = c1
a1.sinks = k1 k2 k3
a1.sinks.k3.type = {__name__}.UnwillingSink
"""
    write(place, CONFIGURATION + more + "a1.sinks.k3.channel = c1\n")
    with agent(place) as running:
        interceptor = "a1.sources.r2.interceptors = i\na1.sources.r2.interceptors.i.type = host\n"
        write(place, CONFIGURATION + more + "a1.sinks.k3.channel = c2\na1.sinks = k1 k3\n" + interceptor)
        found = running.reload()
        assert found is not None and found.sources == {"r2"} and found.sinks == {"k2", "k3"}
        assert "a1.r2: it can't take over from the source before it" in caplog.text
        assert "a1.k3: it starts without what the sink before it knew" in caplog.text
        assert running.sources["r2"].alive and running.sinks["k3"].alive and running.troubles() == {}
        log(place, "1")
        wait_until(lambda: written(place) == ["1"])
