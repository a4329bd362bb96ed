from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, flow
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow import tap_server
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sources.base import PolledSource, Status
from spillable_stream.flow.tap_server import TapServer, running_processes, socket_directory, tap_component
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


class Given(PolledSource):
    """Puts the batches that a test gives it."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.batches: list[list[Event]] = []

    def poll(self, processor: ChannelProcessor) -> Status:  # type: ignore[override]
        if not self.batches:
            return Status.BACKOFF
        processor.process(self.batches[0])
        del self.batches[0]
        return Status.READY


class OddOnly(flow.Interceptor):
    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pa.array([int(b) % 2 == 1 for b in batch.column(1).to_pylist()], pa.bool_()))


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Given]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.path.relpath(tmp_path))
    source = Given()
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        interceptors = [flow.Static(key="a", value="1"), flow.Static(key="b", value="2"), OddOnly()]
        processor = flow.ChannelProcessor({"c1": channel}, interceptors)
        sink = flow.Null(channel="c1")
        sink.name = "k1"
        agent = flow.Agent(sources=[flow.Source(source, processor, "r1")], sinks=[sink], name="a1")
        server = TapServer(agent)
        with agent:
            server.start()
            yield source
            server.stop()


def rows(component: str, source: Given, count: int, **which: object) -> list[dict[str, object]]:
    """Return the first rows that pass a component while a source puts the same batch again and again."""
    found: list[dict[str, object]] = []

    def look() -> None:
        for row in tap_component("a1", component, **which):  # type: ignore[arg-type]
            if row.keys() != {"skipped"}:
                found.append(row)
            if len(found) == count:
                return

    looking = threading.Thread(target=look)
    looking.start()

    def feed() -> bool:
        if not source.batches:
            source.batches.append([Event(str(n).encode()) for n in range(4)])
        return not looking.is_alive()

    wait_until(feed)
    return found


def test_what_comes_to_a_source_and_leaves_an_interceptor_is_shown(source: Given) -> None:
    assert [(r["body"], r["headers"]) for r in rows("r1", source, 2)] == [("0", {}), ("1", {})]
    assert rows("r1.i1", source, 1)[0]["headers"] == {"a": "1"}
    assert rows("r1.i2", source, 1)[0]["headers"] == {"a": "1", "b": "2"}
    assert [r["body"] for r in rows("r1.i3", source, 3)] == ["1", "3", "1"]


def test_what_passes_a_channel_and_a_sink_is_shown_and_may_be_chosen(source: Given) -> None:
    assert {r["body"] for r in rows("c1", source, 2)} == {"1", "3"}
    assert {r["body"] for r in rows("k1", source, 4)} == {"1", "3"}
    assert len({r["body"] for r in rows("k1", source, 3, every=2)}) == 1
    assert rows("k1", source, 1, where={"a": "1"})[0]["headers"] == {"a": "1", "b": "2"}


def test_an_agent_or_a_component_that_is_not_there_is_named(source: Given) -> None:
    with pytest.raises(OptionError, match=r"no component 'r2'; it has r1, r1\.i1, r1\.i2, r1\.i3, k1, c1"):
        next(tap_component("a1", "r2"))
    with pytest.raises(OptionError, match="no agent a2 of this user runs"):
        next(tap_component("a2", "r1"))


@pytest.mark.parametrize("request_", ["{", "[]", "[" * 60_000], ids=lambda text: text[:9])
def test_what_is_not_a_request_is_answered_with_the_reason(source: Given, request_: str) -> None:
    (path,) = socket_directory().iterdir()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(request_.encode() + b"\n")
        assert b"a tap's request can't be read" in client.makefile("rb").readline()


def test_a_socket_of_an_agent_that_was_killed_is_passed_over(source: Given) -> None:
    stale = socket_directory() / "a1.1"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(stale))
    assert rows("r1", source, 1)
    assert not stale.exists()


def test_of_several_agents_of_a_name_one_must_be_said(source: Given) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(socket_directory() / "a1.1"))
        other.listen()
        with pytest.raises(OptionError, match=f"say one of a1.1:…, a1.{os.getpid()}:…"):
            next(tap_component("a1", "r1"))


def test_a_directory_that_others_may_use_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "spillable").mkdir(mode=0o755)
    with pytest.raises(StorageError, match="others may use"):
        socket_directory()


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "make room on its file system"), (errno.EROFS, "set XDG_RUNTIME_DIR to a directory of yours")],
)
@pytest.mark.parametrize("call", ["socket.socket.bind", "pathlib.Path.unlink", "pathlib.Path.rename"])
def test_a_directory_that_takes_no_socket_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, number: int, advice: str
) -> None:
    """It was said to have too long a path, or the error of the system ended the agent."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.path.relpath(tmp_path))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    server = TapServer(flow.Agent(sources=[], sinks=[], name="a2"))
    with monkeypatch.context() as full:
        full.setattr(call, refuse)
        with pytest.raises(StorageError, match=f"can't listen on .*a2.* .{os.strerror(number)}.; {advice}"):
            server.start()
    server.start()
    assert [path.name for path in (tmp_path / "spillable").iterdir()] == [f"a2.{os.getpid()}"]
    server.stop()


def test_taps_end_though_their_socket_cannot_be_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.path.relpath(tmp_path))
    server = TapServer(flow.Agent(sources=[], sinks=[], name="a2"))
    server.start()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "unlink", refuse)
    server.stop()
    assert server._accepting is not None and not server._accepting.is_alive()


def test_an_agent_that_starts_removes_the_sockets_of_those_that_were_killed(source: Given, tmp_path: Path) -> None:
    directory = socket_directory()
    (running,) = directory.iterdir()
    for name in ("a1.1", "another.2"):
        killed = socket.socket(socket.AF_UNIX)
        killed.bind(str(directory / name))
        killed.close()
    server = TapServer(flow.Agent(sources=[], sinks=[], name="a2"))
    server.start()
    assert sorted(path.name for path in directory.iterdir()) == [running.name, f"a2.{os.getpid()}"]
    server.stop()
    assert list(directory.iterdir()) == [running]


def test_a_server_without_a_thread_is_refused_and_leaves_nothing(source: Given) -> None:
    agent = flow.Agent(name="a2")
    server = TapServer(agent)
    with no_threads(), pytest.raises(StorageError, match="can't start new thread"):
        server.start()
    assert not [path for path in socket_directory().iterdir() if "a2" in path.name]
    server.stop()


def test_a_tap_for_which_there_is_no_thread_is_refused_and_the_next_one_is_shown(source: Given) -> None:
    with no_threads(1, "flow-tap"):
        with pytest.raises(OptionError, match="no thread for another tap"):
            next(tap_component("a1", "r1"))
        assert rows("r1", source, 1)


def test_a_tap_that_is_refused_before_it_has_said_what_it_wants_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()
    with there:
        there.sendall(b'{"error": "no thread"}\n')
    monkeypatch.setattr(tap_server, "_connected", lambda agent: here)
    with pytest.raises(OptionError, match="no thread"):
        next(tap_component("a1", "r1"))


def test_a_server_that_stops_as_a_tap_comes_waits_for_the_end_of_its_thread(
    source: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, start, accepted = TapServer(flow.Agent(name="a2")), threading.Thread.start, threading.Event()
    ended: list[str] = []

    def serve(client: socket.socket) -> None:
        time.sleep(0.2)
        client.close()
        ended.append("the tap")

    def start_late(thread: threading.Thread) -> None:
        if getattr(thread, "_target", None) is serve:
            accepted.set()
            server._ended.wait(30)
        start(thread)

    monkeypatch.setattr(server, "_serve", serve)
    monkeypatch.setattr(threading.Thread, "start", start_late)
    server.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(socket_directory() / f"a2.{os.getpid()}"))
        assert accepted.wait(30)
        server.stop()
    assert ended == ["the tap"]


def test_an_agent_that_runs_is_found_by_its_name_alone(source: Given) -> None:
    assert running_processes("a1", os.environ) == [os.getpid()]
    assert running_processes("a2", os.environ) == []


def test_a_server_without_a_descriptor_for_a_client_says_so_once_and_listens_on(
    source: Given, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It listened no more for as long as the agent ran, and nobody was told."""
    accept, refused = socket.socket.accept, [1, 2]

    def scarce(listening: socket.socket) -> tuple[socket.socket, object]:
        if "/.a2" in listening.getsockname() and refused:
            refused.pop()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listening)

    monkeypatch.setattr(tap_server, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(socket.socket, "accept", scarce)
    server = TapServer(flow.Agent(name="a2"))
    server.start()
    wait_until(lambda: not refused)
    with pytest.raises(OptionError, match="the agent a2 has no component"):
        next(tap_component("a2", "r1"))
    server.stop()
    assert caplog.text.count("no tap can be begun now: [Errno 24]") == 1
