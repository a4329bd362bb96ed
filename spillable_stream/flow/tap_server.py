"""Shows what passes the components of a running agent to other processes of its user, over a Unix socket.

The client sends one line, JSON: the component, and which events it wants. The server answers with lines: first
``{"tapped": …}`` or ``{"error": text}``, then ``{"row": …}`` for each event, or ``{"skipped": n}`` where more came than
could be shown.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import OptionError, SpillableError, StorageError
from spillable_stream.flow.agent import Agent
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.tap import Chosen, shown_row, tap
from spillable_stream.flow.tap_point import TapPoint
from spillable_stream.format.packing import NONSENSE
from spillable_stream.log_records import log_of
from spillable_stream.own_thread import NoThreadError, start_thread
from spillable_stream.readiness import has_input
from spillable_stream.shown_value import command, shown
from spillable_stream.system_errors import storage_error

__all__ = ["TapServer", "running_processes", "socket_directory", "tap_component"]

_log = log_of("spillable_stream.flow")

_LOOK_SECONDS = 0.2
_MOST_REQUEST_BYTES = 1 << 16


class _TapRequest(NamedTuple):
    """What a client wants to see.

    Args:
        component: a source, an interceptor as ``r1.i1``, a channel or a sink.
        every: 1 for all events, n for each n-th.
        where: headers that an event must have, with their values.
    """

    component: str
    every: int
    where: dict[str, str]


def socket_directory() -> Path:
    """Return the directory of this user's sockets.

    Raises:
        StorageError: it belongs to another user, or others can write there.
    """
    found = _place(os.environ)
    try:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        stat = found.lstat()
    except OSError as e:
        raise storage_error(f"can't create {found}", e, "set XDG_RUNTIME_DIR to a directory of yours") from e
    if stat.st_uid != os.getuid() or stat.st_mode & 0o077:
        raise StorageError(f"others may use {found}; give it to this user alone, with mode 700")
    return found


def running_processes(agent: str, environment: Mapping[str, str]) -> list[int]:
    """Return the IDs of the processes in which an agent of this user runs on this host, as far as their taps say so.

    Nothing is asked, created or removed.
    """
    found = [path.name.rpartition(".") for path in _place(environment).glob("*")]
    return sorted(int(pid) for name, _, pid in found if name == agent and pid.isdecimal() and _is_alive(int(pid)))


def _place(environment: Mapping[str, str]) -> Path:
    runtime = environment.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "spillable" if runtime else Path(tempfile.gettempdir()) / f"spillable-{os.getuid()}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


class TapServer:
    """Lets `tap_component` look at an agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._socket: socket.socket | None = None
        self._path = Path()
        self._ended = threading.Event()
        self._accepting: threading.Thread | None = None
        self._showing: list[threading.Thread] = []  # which the accepting thread alone changes

    def start(self) -> None:
        """Listen, at a socket with the agent's name and this process's ID; remove those of agents that were killed.

        Raises:
            StorageError: the socket can't be created, or no thread can be started.
        """
        directory = socket_directory()
        self._path = directory / f"{self._agent.name}.{os.getpid()}"
        try:
            for path in _sockets(directory):
                if (client := _connection(path)) is not None:
                    client.close()
            listening = _listening(self._path)
        except OSError as e:
            advice = f"set XDG_RUNTIME_DIR to {'a directory of yours' if e.errno else 'a shorter path'}"
            raise storage_error(f"can't listen on {self._path}", e, advice) from e
        self._socket = listening
        try:
            self._accepting = _begun(self._accept, listening)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Listen no more, and end what is being shown."""
        if self._socket is None:
            return
        self._ended.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._socket = None
        with suppress(OSError):  # what is left there is removed by the next agent that starts
            self._path.unlink()
        if self._accepting is not None:
            self._accepting.join()
        for thread in self._showing:
            thread.join()

    def _accept(self, listening: socket.socket) -> None:
        name, is_refused = self._agent.name, False
        while not self._ended.is_set():
            try:
                client, _ = listening.accept()
            except OSError as e:  # this process has no descriptor left, say; or it was closed
                if not (self._ended.is_set() or is_refused):
                    _log.of(name).warning("no tap can be begun now: %s", e)
                is_refused = True
                self._ended.wait(_LOOK_SECONDS)
                continue
            is_refused = False
            try:
                thread = _begun(self._serve, client)
            except NoThreadError as e:
                with client, suppress(OSError):
                    client.sendall(_line({"error": f"the agent has no thread for another tap: {e}"}))
                _log.of(name).warning("a tap is refused: %s", e)
            else:
                self._showing = [*(t for t in self._showing if t.is_alive()), thread]

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):  # the client has gone
            client.settimeout(30)
            try:
                request = _read_request(client)
                self._show(client, request)
            except SpillableError as e:
                client.sendall(_line({"error": str(e)}))

    def _show(self, client: socket.socket, request: _TapRequest) -> None:
        tapped = self._agent.channels.get(request.component)
        if tapped is not None:
            self._show_channel(client, request, tapped.channel)
        else:
            self._show_passing(client, request, self._point(request.component))

    def _show_channel(self, client: socket.socket, request: _TapRequest, channel: Channel) -> None:
        """Show what is put into a channel, until the client has gone or the agent ends."""
        rows = tap(channel, every=request.every, where=request.where, sleep=lambda s: self._pause(client, s))
        client.sendall(_line({"tapped": request.component}))
        with suppress(_Ended):
            for row in rows:
                client.sendall(_line({"row": row}))

    def _show_passing(self, client: socket.socket, request: _TapRequest, point: TapPoint) -> None:
        """Show what passes another component, likewise."""
        chosen = Chosen(request.every, request.where)
        client.sendall(_line({"tapped": request.component}))
        while not self._is_over(client):
            with point.listening() as listener:
                while not self._is_over(client):
                    batch, skipped = listener.next(_LOOK_SECONDS)
                    if skipped:
                        client.sendall(_line({"skipped": skipped}))
                    if batch is not None:
                        for row in chosen.rows(batch):
                            client.sendall(_line({"row": row}))
                    elif (now := self._point(request.component)) is not point:
                        point = now  # it was started again with a changed configuration
                        break

    def _point(self, component: str) -> TapPoint:
        """Return where the events of a component can be seen.

        Raises:
            OptionError: there is no such component.
        """
        found = _points(self._agent)
        if component not in found:
            names = ", ".join([*found, *self._agent.channels])
            raise OptionError(f"the agent {self._agent.name} has no component {shown(component)}; it has {names}")
        return found[component]

    def _is_over(self, client: socket.socket) -> bool:
        """Whether the client has gone, or the agent ends."""
        return self._ended.is_set() or has_input(client)

    def _pause(self, client: socket.socket, seconds: float) -> None:
        if self._ended.wait(0) or has_input(client, seconds):
            raise _Ended


def _begun(run: Callable[[socket.socket], None], argument: socket.socket) -> threading.Thread:
    thread = threading.Thread(target=run, args=(argument,), name="flow-tap", daemon=True)
    start_thread(thread)
    return thread


class _Ended(Exception):
    """Nobody looks any more."""


def _points(agent: Agent) -> dict[str, TapPoint]:
    """Return the places of an agent where events can be seen, by component."""
    found: dict[str, TapPoint] = {}
    for name, runner in agent.sources.items():
        if isinstance(runner.processor, ChannelProcessor):
            found[name] = runner.processor.entrance
            found |= {f"{name}.{i}": point for i, point in runner.processor.chain.taps.items()}
    for group in agent.sinks.values():
        found |= {sink.name.rpartition(".")[2]: sink.exit for sink in group.sinks}
    return found


def _read_request(client: socket.socket) -> _TapRequest:
    """Read what a client wants.

    Raises:
        OptionError: it is not a request.
    """
    text = b""
    while not text.endswith(b"\n") and len(text) < _MOST_REQUEST_BYTES:
        more = client.recv(_MOST_REQUEST_BYTES)
        if not more:
            break
        text += more
    try:
        found = json.loads(text)
        return _TapRequest(str(found["component"]), max(1, int(found["every"])), dict(found["where"]))
    except NONSENSE as e:
        raise OptionError(f"a tap's request can't be read ({e}); use the same version on both sides") from e


def _line(values: Mapping[str, Any]) -> bytes:
    return shown_row(values).encode() + b"\n"


# ── the other side ──────────────────────────────────────────────────────────────────────────


def tap_component(
    agent: str, component: str, *, every: int = 1, where: Mapping[str, str] | None = None
) -> Iterator[dict[str, object]]:
    """Iterate over events as they pass a component of an agent that runs, as rows; until the agent ends.

    Args:
        agent: the agent's name; as ``NAME.PID`` where several of this name run.
        component: a source, an interceptor of a source as ``r1.i1``, a channel or a sink.
        every: 1 for all events, n for each n-th.
        where: headers that an event must have, with their values.

    Yields:
        Rows, or ``{"skipped": n}`` where n events could not be shown in time.

    Raises:
        OptionError: no such agent runs, or several do; or it has no such component.
    """
    with _connected(agent) as server:
        with suppress(ConnectionError):  # it may have refused at once, and says why
            server.sendall(_line({"component": component, "every": every, "where": dict(where or {})}))
        for line in server.makefile("rb"):
            answer = json.loads(line)
            if "error" in answer:
                raise OptionError(answer["error"])
            if "tapped" not in answer:
                yield answer.get("row", answer)


def _listening(path: Path) -> socket.socket:
    """Return a new socket that listens at a path; raises OSError."""
    beginning = path.with_name(f".{path.name}")
    beginning.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(beginning))
        listening.listen()
        beginning.rename(path)  # only now: one that refuses a connection is a killed agent's
    except OSError:
        listening.close()
        with suppress(OSError):
            beginning.unlink()
        raise
    return listening


def _sockets(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if not path.name.startswith(".")]


def _connection(path: Path) -> socket.socket | None:
    """Return a connection to the agent of a socket; None if it was killed, and then remove the socket."""
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        path.unlink(missing_ok=True)
        return None
    return client


def _connected(agent: str) -> socket.socket:
    """Return a connection to an agent."""
    directory = socket_directory()
    found: dict[str, socket.socket] = {}
    for path in [p for p in _sockets(directory) if agent in (p.name, p.name.rpartition(".")[0])]:
        if (client := _connection(path)) is not None:
            found[path.name] = client
    if len(found) == 1:
        return next(iter(found.values()))
    for client in found.values():
        client.close()
    if found:
        raise OptionError(f"several agents {agent} run: say one of {', '.join(f'{name}:…' for name in sorted(found))}")
    raise OptionError(
        f"no agent {agent} of this user runs on this host; start it: {command('agent', '-n', agent, '-f', 'FILE')}"
    )
