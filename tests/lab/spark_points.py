"""The Spark source and sink with bombs in them: ``format("spillable_kill")`` dies, or misbehaves, at a named step.

A bomb is a file in the pipeline's directory, ``bombs/STEP.WHEN``, where WHEN is "before" or "after".
It holds how many calls of the step it lets pass, and what it does then (`EFFECTS`); whoever counts to
zero removes it first, so that it goes off once. A file ``mutant`` names one of `MUTANTS`.

Spark's workers import this module, so it needs no more than the package.
"""

from __future__ import annotations

import fcntl
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from spillable_stream.engine.port import SinkBatch
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.sink.channel_commit import OpenCommit
from spillable_stream.spark.sink.flow_writer import FlowStreamWriter
from spillable_stream.spark.sink.sharded_writer import ShardedStreamWriter
from spillable_stream.spark.sink.spark_writers import StreamWriter
from spillable_stream.spark.sink.writer import SpillableStreamWriter
from spillable_stream.spark.source.stream_reader import SpillableStreamReader

__all__ = [
    "EFFECTS",
    "MUTANTS",
    "SEVERAL",
    "KillDataSource",
    "arm",
    "channels_of",
    "is_armed",
    "is_stored",
    "kill_session",
    "kind_of",
    "place_of",
    "place_to_read",
    "step",
]

SEVERAL = {("gather", "source"): 2, ("shards", "target"): 3, ("flow", "target"): 3}
"""How many channels some kinds of pipelines have at an end; all others have one."""

_STORE = "object+file://"
_WAIT_SECONDS = 600.0  # of what waits to be woken, should nobody do it


def is_stored(pipeline: Path) -> bool:
    """Tell whether a pipeline's channels are in an object store: the second word of its directory's name says so."""
    return pipeline.name.split(" ")[1:2] == ["stored"]


def place_of(pipeline: Path, name: str) -> str:
    """Return the path or the address of a pipeline's channel."""
    return f"{_STORE if is_stored(pipeline) else ''}{pipeline / name}"


def kind_of(pipeline: Path) -> str:
    """Return the kind of a pipeline: the first word of its directory's name."""
    return pipeline.name.split(" ")[0]


def channels_of(pipeline: Path, end: str) -> list[str]:
    """Return the paths or the addresses of a pipeline's channels at an end, "source" or "target"."""
    several = SEVERAL.get((kind_of(pipeline), end))
    names = [end] if several is None else [f"{end}-{i}" for i in range(several)]
    return [place_of(pipeline, name) for name in names]


def place_to_read(pipeline: Path, end: str) -> str:
    """Return by what all of them are read."""
    return place_of(pipeline, end if SEVERAL.get((kind_of(pipeline), end)) is None else f"{end}-*")


def _pipeline_of(place: str) -> Path:
    return Path(place.removeprefix(_STORE)).parent


def arm(pipeline: Path, step: str, when: str, effect: str, passes: int = 0) -> Path:
    """Place a bomb.

    Args:
        pipeline: the pipeline's directory.
        step: a method of the reader or the writer; "proven", where the reader commits what Spark's asking proves;
            "channel", where one of the channels that a batch is for has it; or "offsets" or "commits", which the
            driver watches.
        when: "before" or "after".
        effect: one of `EFFECTS`.
        passes: how many calls come through first.
    """
    bomb = pipeline / "bombs" / f"{step}.{when}"
    fresh = bomb.with_name(f"new {bomb.name}")
    fresh.write_text(f"{passes} {effect}")
    fresh.rename(bomb)
    return bomb


def is_armed(pipeline: Path, step: str = "") -> bool:
    """Tell whether a bomb, or one at a step, has not gone off yet."""
    return any(name.startswith(step) for name in os.listdir(pipeline / "bombs"))


def step(pipeline: Path, name: str, when: str) -> None:
    """Pass a step, if the bomb there lets it."""
    effect = _counted_down(pipeline / "bombs" / f"{name}.{when}")
    if effect:
        EFFECTS[effect](pipeline)


def _counted_down(bomb: Path) -> str:
    """Return what a bomb does if it goes off now."""
    try:
        file = bomb.open("r+")
    except FileNotFoundError:
        return ""
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        if not text or not bomb.exists():  # another was faster
            return ""
        passes, effect = text.split(" ", 1)
        if passes == "0":
            bomb.unlink()
            return effect
        file.seek(0)
        file.write(f"{int(passes) - 1} {effect}")
        file.truncate()
        return ""


# ── what a bomb does ────────────────────────────────────────────────────────────────────────────


def kill_worker(_: Path) -> None:
    """Kill this Python worker alone."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_session(_: Path) -> None:
    """Kill the driver and all that it started, this process last."""
    session = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    os.kill(os.getpid(), signal.SIGKILL)


def kill_jvm(_: Path) -> None:
    """Kill the JVM above this worker, a driver's or an executor's, or below this driver; this process goes on."""
    pid, jvm = os.getpid(), 0
    while pid > 1 and not jvm:
        pid = _status(pid)[1]
        jvm = pid if pid and _status(pid)[0] == "java" else 0
    if not jvm:
        every = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        jvm = next(pid for pid in every if _status(pid) == ("java", os.getpid()))
    os.kill(jvm, signal.SIGKILL)


def _status(pid: int) -> tuple[str, int]:
    """Return a process's name, and who started it."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        return name, int(rest.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return "", 0


def outlive_jvm(pipeline: Path) -> None:
    """Kill the JVM, notice nothing, and go on when woken: a zombie of the worst kind."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kill_jvm(pipeline)
    wait(pipeline)


def wait(pipeline: Path) -> None:
    """Go on when there is a file ``wake``."""
    (pipeline / "waiting").touch()
    deadline = time.monotonic() + _WAIT_SECONDS
    while not (pipeline / "wake").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def fail(pipeline: Path) -> None:
    """Fail this call."""
    raise RuntimeError(f"{pipeline.name} fails on purpose")


EFFECTS: dict[str, Callable[[Path], None]] = {
    "worker": kill_worker,
    "driver": kill_session,
    "jvm": kill_jvm,
    "executor": kill_jvm,
    "zombie": outlive_jvm,
    "wait": wait,
    "fail": fail,
}


# ── where the steps are ─────────────────────────────────────────────────────────────────────────


def _stepped(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def passing(self: Any, *arguments: Any, **named: Any) -> Any:
        pipeline = _pipeline_of(self._path)
        step(pipeline, method.__name__, "before")
        result = method(self, *arguments, **named)
        if method.__name__ != "latestOffset" or result != (arguments or [None])[0]:  # an idle poll is no step
            step(pipeline, method.__name__, "after")
        return result

    return passing


class KillReader(SpillableStreamReader):
    """The source with a bomb before and after everything that Spark calls."""

    def watch_commits(self) -> None:
        """Have a bomb before and after each commit of what Spark's asking proves."""
        commit = self._query.finished.commit_proven

        def commit_proven(proven_id: int) -> None:
            if self._query.consumer().position() >= proven_id:  # an idle poll is no step
                return commit(proven_id)
            pipeline = _pipeline_of(self._path)
            step(pipeline, "proven", "before")
            commit(proven_id)
            step(pipeline, "proven", "after")

        self._query.finished.commit_proven = commit_proven  # type: ignore[method-assign]

    @_stepped
    def initialOffset(self) -> Any:
        began = _pipeline_of(self._path) / "began"
        if self._is("starts anew") and began.exists() and began.read_text() != str(os.getpid()):
            return self.reportLatestOffset()
        began.write_text(str(os.getpid()))
        return super().initialOffset()

    @_stepped
    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:
        return super().latestOffset(start, limit)

    @_stepped
    def partitions(self, start: Any, end: Any) -> Any:
        if self._is("reads past the batch"):
            start = max(start, getattr(self, "_past", start), key=lambda given: self._query.parse(given).event_id)
            end = self._past = self.reportLatestOffset()
        return super().partitions(start, end)

    @_stepped
    def commit(self, end: Any) -> None:
        super().commit(end)

    def read(self, partition: Any) -> Iterator[Any]:
        pipeline = _pipeline_of(self._path)
        step(pipeline, "read", "before")
        yield from super().read(partition)
        step(pipeline, "read", "after")

    def _is(self, mutant: str) -> bool:
        return _mutant(self._path) == mutant


class KillWriter(StreamWriter[Any]):
    """A sink with a bomb before and after a task's staging, in its middle, and around the driver's commit."""

    @property
    def _path(self) -> str:
        """The path of a channel in the pipeline's directory."""
        channels = getattr(self._plan, "channels", None)
        path: str = channels[0].path if channels else self._plan.path
        return path

    @_stepped
    def write(self, iterator: Iterator[Any]) -> Any:
        staged = super().write(_midway(_pipeline_of(self._path), iterator))
        if self._is("publishes in write"):
            self._publish([staged], -1, None)
            staged.frames, staged.segment = [], None
        return staged

    def commit(self, messages: list[Any], batchId: int) -> None:
        pipeline = _pipeline_of(self._path)
        step(pipeline, "publish", "before")
        if self._is("forgets the batch"):
            self._publish(messages, batchId, None)
        else:
            with mock.patch.object(OpenCommit, "publish", _publish_one):
                super().commit(messages, batchId)
        step(pipeline, "publish", "after")

    def _is(self, mutant: str) -> bool:
        return _mutant(self._path) == mutant


class KillChannelWriter(KillWriter, SpillableStreamWriter):
    """The sink of one channel."""


class KillShardedWriter(KillWriter, ShardedStreamWriter):
    """The sink of shards."""


class KillFlowWriter(KillWriter, FlowStreamWriter):
    """The sink that writes through a flow."""


_KILL_WRITERS: dict[type, type[KillWriter]] = {
    SpillableStreamWriter: KillChannelWriter,
    ShardedStreamWriter: KillShardedWriter,
    FlowStreamWriter: KillFlowWriter,
}


def _publish_one(self: OpenCommit, sink: SinkBatch | None, publish: Any = OpenCommit.publish) -> None:
    """Pass the step "channel" once one channel, of those that a batch is for, has it."""
    publish(self, sink)
    step(_pipeline_of(self._commit.path), "channel", "after")


def _midway(pipeline: Path, batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
    step(pipeline, "write", "midway")


class KillDataSource(SpillableDataSource):
    """The data source, with a reader and a writer of streams that can be killed."""

    @classmethod
    def name(cls) -> str:
        return "spillable_kill"

    def streamReader(self, schema: Any) -> Any:
        reader = super().streamReader(schema)
        if isinstance(reader, SpillableStreamReader):  # a set's has no bombs
            reader.__class__ = KillReader  # whatever it is made of
            reader.watch_commits()  # type: ignore[attr-defined]
        return reader

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        writer = super().streamWriter(schema, overwrite)
        if type(writer) in _KILL_WRITERS:  # and not one that says why there can be none
            writer.__class__ = _KILL_WRITERS[type(writer)]  # type: ignore[assignment]
        return writer


# ── the connector, broken on purpose ────────────────────────────────────────────────────────────

MUTANTS = {
    "starts anew": "after a restart, initialOffset says where the channel ends now",
    "forgets the batch": "the sink publishes a batch however often Spark commits it",
    "publishes in write": "a task publishes what it staged, and the driver's commit nothing",
    "reads past the batch": "a batch has what is there when it is planned, and so has more when it is planned again",
}


@functools.cache
def _mutant(path: str) -> str:
    file = _pipeline_of(path) / "mutant"
    return file.read_text() if file.exists() else ""
