"""Servers of our own on the loopback interface: Redis, as a list and as a stream, and NATS JetStream."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from abc import abstractmethod
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.store import Store

__all__ = ["Nats", "Redis", "RedisStream", "server_path"]

_PATIENCE_SECONDS = 10.0
_ATTEMPTS = 3
_STREAM, _GROUP = "queue", "group"
_NATS_BYTES = 4 << 30


def server_path(name: str) -> str | None:
    """Return where a server's program is, also where only root's PATH leads; None if it is not installed."""
    places = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]
    return shutil.which(name, path=os.pathsep.join(places))


class _Server(Store):
    """A server that the constructor starts, on a free port, and that `close` ends by its process ID.

    Args:
        name: the program.
        log: where its words go.
        arguments: what it gets beside its address.
    """

    def __init__(self, name: str, log: Path, arguments: list[str]) -> None:
        self._log = log
        for _ in range(_ATTEMPTS):
            if self._start(server_path(name) or name, arguments):
                return
            self.close()
            said = self._log.read_text(errors="replace").splitlines()
            if not any("listening" in line or "in use" in line for line in said):  # else it is another's port by now
                break
        raise RuntimeError(f"{name}: {said[-1] if said else 'no word of why'}")

    def _start(self, program: str, arguments: list[str]) -> bool:
        """Start the server and tell whether it serves."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with self._log.open("wb") as log:
            command = [program, *self._address(port), *arguments]
            self._server = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._server.poll() is None and time.monotonic() < deadline:
            if self._connect(port):
                return True
            time.sleep(0.01)
        return False

    @abstractmethod
    def _address(self, port: int) -> list[str]:
        """Return the arguments that make it listen on a port of the loopback interface only."""

    @abstractmethod
    def _connect(self, port: int) -> bool:
        """Connect, and tell whether it answers."""

    def close(self) -> None:
        """End the server."""
        self._server.kill()
        self._server.wait()


class Redis(_Server):
    """A list in Redis."""

    def __init__(self, directory: Path, memory: Path, arguments: str) -> None:
        super().__init__("redis-server", memory / "redis.log", ["--dir", str(directory), *arguments.split()])

    def _address(self, port: int) -> list[str]:
        return ["--bind", "127.0.0.1", "--port", str(port)]

    def _connect(self, port: int) -> bool:
        import redis

        self._client = redis.Redis(port=port)
        try:
            return bool(self._client.ping())
        except redis.RedisError:  # not there yet, or loading
            return False

    def put(self, bodies: list[bytes]) -> int:
        """Push them with one command."""
        self._client.rpush("queue", *bodies)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Pop them with one command."""
        found: Any = self._client.lpop("queue", count)
        return found or []

    def read(self) -> Iterator[bytes]:
        """Look at everything."""
        found: Any = self._client.lrange("queue", 0, -1)
        yield from found


class RedisStream(Redis):
    """A stream with one consumer group in Redis. Entries that are taken are acknowledged, and stay in the stream."""

    def __init__(self, directory: Path, memory: Path, arguments: str) -> None:
        import redis

        super().__init__(directory, memory, arguments)
        try:
            self._client.xgroup_create(_STREAM, _GROUP, id="0", mkstream=True)
        except redis.ResponseError as e:
            if "BUSYGROUP" not in str(e):
                raise

    def put(self, bodies: list[bytes]) -> int:
        """Add them in one MULTI transaction."""
        with self._client.pipeline(transaction=True) as pipe:
            for body in bodies:
                pipe.xadd(_STREAM, {b"body": body})
            pipe.execute()
        return 0

    def take(self, count: int) -> list[bytes]:
        """Read them with one command and acknowledge them with another."""
        found: Any = self._client.xreadgroup(_GROUP, "one", {_STREAM: ">"}, count)
        streams = list(found.values()) if isinstance(found, dict) else [entries for _, entries in found or []]
        entries = _flat(streams)
        if entries:
            self._client.xack(_STREAM, _GROUP, *(entry[0] for entry in entries))
        return [entry[1][b"body"] for entry in entries]

    def read(self) -> Iterator[bytes]:
        """Take everything."""
        while found := self.take(1_000):
            yield from found


def _flat(streams: list[Any]) -> list[Any]:
    """Return the entries of all streams; RESP3 has them in one list more than RESP2."""
    entries = [entry for stream in streams for entry in stream]
    return [e for entry in entries for e in entry] if entries and isinstance(entries[0], list) else entries


class Nats(_Server):
    """A stream in files, with one pull consumer, in a NATS server with JetStream.

    Args:
        directory: where the stream is.
        memory: where the log and the configuration are.
        sync_always: whether the server syncs every message before it acknowledges it (2.10 and later).
    """

    def __init__(self, directory: Path, memory: Path, sync_always: bool = False) -> None:
        self._loop = asyncio.new_event_loop()
        self._client: Any = None
        sync = "sync_interval: always" if sync_always else ""
        settings = memory / "nats.conf"
        settings.write_text(f'jetstream {{ store_dir: "{directory}", max_file: {_NATS_BYTES}, {sync} }}\n')
        super().__init__("nats-server", memory / "nats.log", ["--config", str(settings)])
        self._run(self._make())

    def _address(self, port: int) -> list[str]:
        return ["--addr", "127.0.0.1", "--port", str(port)]

    def _connect(self, port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        import nats

        self._client = self._run(nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False))
        return True

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    async def _make(self) -> None:
        """Create the stream and its consumer, whose last acknowledgement counts for all before it."""
        from nats.js.api import AckPolicy, ConsumerConfig, StorageType

        self._stream = self._client.jetstream()
        await self._stream.add_stream(name=_STREAM, subjects=[_STREAM], storage=StorageType.FILE)
        how = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=-1)
        self._consumer = await self._stream.pull_subscribe(_STREAM, durable=_GROUP, config=how)

    async def _put(self, bodies: list[bytes]) -> None:
        if len(bodies) == 1:
            await self._stream.publish(_STREAM, bodies[0])
            return
        await asyncio.gather(*[await self._stream.publish_async(_STREAM, body) for body in bodies])

    async def _take(self, count: int, timeout_seconds: float) -> list[bytes]:
        from nats.errors import TimeoutError as NothingThere

        try:
            messages = await self._consumer.fetch(count, timeout=timeout_seconds)
        except NothingThere:
            return []
        await messages[-1].ack_sync()
        return [message.data for message in messages]

    def put(self, bodies: list[bytes]) -> int:
        """Publish them and wait until all are acknowledged."""
        self._run(self._put(bodies))
        return 0

    def take(self, count: int) -> list[bytes]:
        """Fetch them and wait until the server has the acknowledgement."""
        found: list[bytes] = self._run(self._take(count, 1.0))
        return found

    def read(self) -> Iterator[bytes]:
        """Take everything."""
        while found := self.take(1_000):
            yield from found

    def close(self) -> None:
        """Disconnect, and end the server."""
        if self._client is not None and not self._loop.is_closed():
            self._run(self._client.close())
        if not self._loop.is_closed():
            self._loop.close()
        super().close()
