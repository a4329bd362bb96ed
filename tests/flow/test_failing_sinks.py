"""Groups of a real agent's sinks whose servers really go down and come back: failover and load_balance, in real time.

The numbers are Flume's: a sink is out for 2 seconds after its first failure, and for 4 after the second in a row.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer, ThreadingTCPServer

import pytest

from spillable_stream import flow
from tests.support.waiting import wait_until

CONFIGURATION = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1 k2
a1.sinkgroups = g1
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = g
a1.sources.r1.filegroups.g = {dir}/logs/.*
a1.sources.r1.positionFile = {dir}/positions.json
a1.sources.r1.channels = c1
a1.channels.c1.type = file
a1.channels.c1.checkpointDir = {dir}/c1
a1.channels.c1.minimumRequiredSpace = 0
a1.sinkgroups.g1.sinks = k1 k2
"""
SINK = """
a1.sinks.{name}.type = http
a1.sinks.{name}.endpoint = http://127.0.0.1:{port}/
a1.sinks.{name}.channel = c1
a1.sinks.{name}.rollback.2XX = false
a1.sinks.{name}.backoff.2XX = false
"""
FAILOVER = """
a1.sinkgroups.g1.processor.type = failover
a1.sinkgroups.g1.processor.priority.k1 = 10
a1.sinkgroups.g1.processor.priority.k2 = 5
"""


class Server:
    """A server that can go down, and come back at the same port."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.port = 0
        self.up()

    def up(self) -> None:
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server: TCPServer = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def hang_up(self) -> list[float]:
        """Go down, and come back as a server that answers nobody; return when it was asked, in seconds."""
        asked_at = list[float]()

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                asked_at.append(time.monotonic())

        class AtTheSamePort(ThreadingTCPServer):
            allow_reuse_address = True

        self.down()
        self._server = AtTheSamePort(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return asked_at


class Flow:
    """A running agent with a group of two sinks, and what its log says."""

    def __init__(self, place: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.servers = Server(), Server()
        self.sent: list[str] = []
        self._place, self._caplog = place, caplog
        (place / "logs").mkdir()

    def start(self, processor: str) -> flow.Agent:
        sinks = "".join(SINK.format(name=f"k{i}", port=s.port) for i, s in enumerate(self.servers, 1))
        text = CONFIGURATION.format(dir=self._place) + sinks + processor
        (self._place / "flume.conf").write_text(text)
        agent = flow.Agent.from_properties(self._place / "flume.conf", name="a1")
        assert not agent.findings or all(f.severity.value != "error" for f in agent.findings)
        agent.start()
        return agent

    def send(self) -> str:
        line = f"line {len(self.sent)}"
        with (self._place / "logs" / "app").open("a") as f:
            f.write(line + "\n")
        self.sent.append(line)
        return line

    def send_until(self, ready: Callable[[], bool]) -> None:
        """Send a line whenever all before it have come, until something is so."""

        def look() -> bool:
            if len({*self.servers[0].got, *self.servers[1].got}) == len(self.sent):
                self.send()
            return ready()

        wait_until(look)

    def said(self, text: str) -> int:
        return sum(text in r.getMessage() for r in self._caplog.records)


@contextmanager
def stopping(agent: flow.Agent) -> Iterator[None]:
    try:
        yield
    finally:
        agent.stop()


@pytest.fixture
def running(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Flow]:
    caplog.set_level(logging.INFO)
    made = Flow(tmp_path, caplog)
    yield made
    for server in made.servers:
        with suppress(OSError):
            server.down()


@pytest.mark.slow
def test_failover_leaves_a_dead_sink_out_for_flumes_times_and_returns_to_it_at_once(running: Flow) -> None:
    first, second = running.servers
    agent = running.start(FAILOVER)
    with stopping(agent):
        running.send_until(lambda: len(first.got) >= 3)
        assert not second.got, "the sink with the lower priority was asked"
        first.down()
        running.send_until(lambda: running.said("the sink k1 failed, and is left out for 4 s") == 1)
        assert running.said("the sink k1 failed, and is left out for 2 s") == 1
        assert second.got
        first.up()
        running.send_until(lambda: running.said("the sink k1 works again") == 1)
        after = len(second.got)
        line = running.send()
        wait_until(lambda: line in first.got)
        assert len(second.got) == after, "it did not return to the sink with the higher priority"
        wait_until(lambda: {*first.got, *second.got} == {*running.sent})


@pytest.mark.slow
def test_load_balance_with_backoff_leaves_a_dead_sink_out_for_flumes_time(running: Flow) -> None:
    first, second = running.servers
    agent = running.start("""
a1.sinkgroups.g1.processor.type = load_balance
a1.sinkgroups.g1.processor.backoff = true
a1.sinkgroups.g1.processor.selector = round_robin
""")
    with stopping(agent):
        running.send_until(lambda: len(first.got) >= 3 and len(second.got) >= 3)
        asked_at = first.hang_up()
        running.send_until(lambda: len(asked_at) >= 2)
        assert asked_at[1] - asked_at[0] >= 2, "it was asked while it was left out"
        assert running.said("the sink k1 failed, and the next one is asked") == 1
        first.down()
        first.up()
        before = len(first.got)
        running.send_until(lambda: running.said("the sink k1 works again") == 1 and len(first.got) > before + 3)
        wait_until(lambda: {*first.got, *second.got} == {*running.sent})


@pytest.mark.slow
def test_where_both_sinks_are_dead_nothing_is_lost_and_it_is_said(running: Flow) -> None:
    first, second = running.servers
    agent = running.start(FAILOVER)
    with stopping(agent):
        running.send_until(lambda: len(first.got) >= 1)
        first.down()
        second.down()
        for _ in range(20):
            running.send()
        wait_until(lambda: any("All sinks failed" in text for text in agent.troubles().values()))
        second.up()
        wait_until(lambda: set(running.sent) == {*first.got, *second.got}, 60)
        wait_until(lambda: agent.troubles() == {}, 60)
