"""A small agent in one thread, killed at named moments: taildir, two channels and two sinks, while its log is rotated.

With a `Machine` the power of its disk can be cut at these moments, too; the log is on another disk, which stays.

What happens to the log is a script, step by step, so that a copy is seen empty, half created, whole, and truncated. The
steps of the script are no moments: a killed agent goes on with the next one.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from spillable_stream import Channel
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.errors import SpillableError
from spillable_stream.flow import part_puts, slot_file
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sinks import bucket_notes, file_roll, naming
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.file_roll import FileRoll
from spillable_stream.flow.sinks.hdfs import Hdfs
from spillable_stream.flow.sinks.output_file import OutputFile
from spillable_stream.flow.sources import position_file
from spillable_stream.flow.sources.taildir import TailDir
from tests.lab.children import Child, mutate
from tests.lab.machine import Machine
from tests.lab.patching import Patch, patch
from tests.support.damage import age_head

__all__ = [
    "Act",
    "Kill",
    "count_moments",
    "moment_names",
    "script",
    "wrong_after_kills",
    "wrong_after_power_cuts",
]


class Kill(NamedTuple):
    """When a run is killed.

    Args:
        number: at the so manieth moment, counted from 1; 0 for never.
        name: of those that are named so, as "before TakeTransaction.commit", "half OutputFile.append" and "after
            position_file.replace_file"; empty for all.
        cuts: whether the power of the disk is cut, too.
    """

    number: int
    name: str = ""
    cuts: bool = False


_MOMENTS: list[tuple[Any, str]] = [
    (PutTransaction, "commit"),
    (TakeTransaction, "commit"),
    (OutputFile, "append"),
    (OutputFile, "sync"),
    (position_file, "replace_file"),
    (position_file, "write_over"),
    (slot_file, "replace_file"),
    (slot_file, "write_over"),
    (naming, "rename"),
    (bucket_notes, "rename"),
    (bucket_notes, "cut_back"),
    (file_roll, "cut_back"),
]
# What may happen between the beginning of a call and its end: for others, nothing that matters.
_STEPS = {
    "OutputFile.append": ("half",),
    "slot_file.write_over": ("half", "unsynced"),
    "position_file.write_over": ("half", "unsynced"),
}
_FEW_LINES = 5  # less than a take has
_OPTIONS = {"memory_capacity": 0, "minimum_required_space": 0, "keep_alive": 0.0, "checkpoint_on_close": False}


class Act(NamedTuple):
    """What happens to the log.

    Args:
        name: "grow", "rename", "copy" or "truncate"; or "rest": nothing, before the agent has written all.
        number: the first line that it gets, or the number of the file that it becomes.
        count: how many lines, or how many hundredths of the file are copied.
    """

    name: str
    number: int
    count: int = 0


def script(seed: int, rotations: int) -> list[Act]:
    """Return the acts of a log; of three rotations two are a copy and a truncation. The first act gives few lines."""
    chance, acts, lines = random.Random(seed), [Act("grow", 0, _FEW_LINES)], _FEW_LINES
    for rotation in range(rotations):
        for _ in range(chance.randint(1, 4)):
            count = chance.randint(1, 30)
            acts.append(Act("grow", lines, count))
            lines += count
        if rotation % 3 == 1:
            acts.append(Act("rename", rotation))
        else:
            acts += [Act("rest", rotation)] if rotation == 0 else []  # so that each step of the copy is seen
            acts += [Act("copy", rotation, part) for part in sorted({0, chance.randint(0, 99), 100})]
            acts.append(Act("truncate", rotation))
    return [*acts, Act("grow", lines, 5)]


def do(act: Act, logs: Path) -> None:
    """Do an act."""
    log, old = logs / "app.log", logs / f"app.log.{act.number}"
    if act.name == "grow":
        with log.open("a") as f:
            f.writelines(f"line {act.number + i}\n" for i in range(act.count))
    elif act.name == "rename":
        log.rename(old)
    elif act.name == "copy":
        data = log.read_bytes()
        with old.open("ab") as f:
            f.write(data[f.tell() : len(data) * act.count // 100])
    elif act.name == "truncate":
        os.truncate(log, 0)


class _Inline:
    """Call threads whose only thread is the caller's, so that moments come in one order."""

    def __init__(self, *_: object) -> None:
        pass

    def begin(self, call: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call())
        return done

    def at_once(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        return [call() for call in calls]

    def close(self) -> None:
        pass


def moment_names() -> list[str]:
    """Return the names of all moments."""
    names = [_name(owner, method) for owner, method in _MOMENTS]
    return [f"{when} {name}" for name in names for when in ("before", *_STEPS.get(name, ("after",)))]


def _name(owner: Any, method: str) -> str:
    return f"{owner.__name__.rpartition('.')[2]}.{method}"


def watched(moment: Callable[[str], object]) -> Iterator[Patch]:
    """Yield patches that tell of the moments before, half way through, and after what changes files and channels."""

    def watch(owner: Any, method: str) -> Patch:
        name = _name(owner, method)

        def make(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                moment(f"before {name}")
                if method == "append":
                    file, data = arguments[0], memoryview(arguments[1])
                    real(file, data[: len(data) // 2])
                    moment(f"half {name}")
                    return real(file, data[len(data) // 2 :])
                if method == "write_over":
                    descriptor, slot, offset = arguments
                    os.pwrite(descriptor, slot[: len(slot.rstrip()) // 2], offset)
                    moment(f"half {name}")
                    os.pwrite(descriptor, slot, offset)
                    moment(f"unsynced {name}")
                    return real(*arguments)
                found = real(*arguments)
                moment(f"after {name}")
                return found

            return call

        return patch(owner, method, make)

    for owner, method in _MOMENTS:
        yield watch(owner, method)
    yield patch(part_puts, "CallThreads", lambda _: _Inline)


def run(place: Path, acts: list[Act], inputs: Path) -> None:
    """Be the agent until the script is done and everything is written.

    Args:
        place: where the agent has its files.
        acts: the script.
        inputs: where the log is, and how far the script is.
    """
    (inputs / "logs").mkdir(exist_ok=True)
    tail = TailDir(
        {"g": f"{inputs}/logs/app.*"}, position_file=place / "positions.json", batch_size=7, write_pos_interval=0
    )
    tail.name = "a1.r1"
    first = FileRoll(place / "out1", batch_size=11)
    second = Hdfs(
        str(place / "out2"), file_type="DataStream", roll_count=10, roll_size=0, roll_interval=0, batch_size=3
    )
    with (
        Channel(place / "c1", **_OPTIONS) as c1,
        Channel(place / "c2", overflow_capacity=20, transaction_capacity=20, **_OPTIONS) as c2,
        ChannelProcessor({"c1": c1, "c2": c2}, producer="a1.r1") as processor,
    ):
        sinks: list[tuple[Sink, Channel]] = [(first, c1), (second, c2)]
        for number, (sink, channel) in enumerate(sinks, 1):
            sink.name = f"a1.k{number}"
            sink.open(channel)
        tail.open(processor)
        progress = inputs / "acts"
        done = int(progress.read_text()) if progress.exists() else 0
        rests = False
        while done < len(acts) or not rests:
            if done < len(acts) and (rests or acts[done].name != "rest"):
                do(acts[done], inputs / "logs")
                done += 1
                progress.write_text(str(done))
            for _ in range(2):
                with suppress(SpillableError):  # the second channel is full
                    tail.poll(processor)
                    tail._save_changes()  # as it does where many files have changed
            for sink, _ in sinks:
                sink.process()
            rests = tail.finished and all(sink.found_nothing for sink, _ in sinks)
        tail.close()
        for sink, _ in sinks:
            sink.close()


class _Countdown:
    """Kills this process at a moment, and counts them all."""

    def __init__(self, kill: Kill, cut: Callable[[], object]) -> None:
        self.moments = 0
        self._left, self._name, self._cuts = kill
        self._cut = cut

    def __call__(self, name: str) -> None:
        self.moments += 1
        self._left -= self._name in ("", name)
        if self._left == 0 and self._name in ("", name):
            if self._cuts:
                self._cut()
            os.kill(os.getpid(), signal.SIGKILL)


def _agent(
    place: Path, acts: list[Act], mutant: str, kill: Kill, inputs: Path, cut: Callable[[], object] = lambda: None
) -> Child:
    def be() -> None:
        mutate(mutant)
        countdown = _Countdown(kill, cut)
        with ExitStack() as stack:
            for found in watched(countdown):
                stack.enter_context(found)
            run(place, acts, inputs)
        (inputs / "moments").write_text(str(countdown.moments))

    return Child(be, inputs / "stderr")


def count_moments(place: Path, acts: list[Act]) -> int:
    """Return how many moments an agent has that nobody kills."""
    place.mkdir()
    assert _agent(place, acts, "", Kill(0), place).wait() == 0, (place / "stderr").read_text()
    return int((place / "moments").read_text())


def wrong_after_kills(place: Path, acts: list[Act], kills: Iterable[Kill], mutant: str = "") -> list[str]:
    """Return what is wrong with the files of an agent that was killed and started again.

    Args:
        place: where everything goes, not there yet.
        acts: the log's script.
        kills: of each run, when it is killed; one more is not.
        mutant: how the package is broken.
    """
    place.mkdir(parents=True)
    for kill in (*kills, Kill(0)):
        child = _agent(place, acts, mutant, kill, place)
        if not child.killed_itself() and child.code != 0:
            return [f"the agent failed: {(place / 'stderr').read_text()[-2000:]}"]
    return _wrong(place, acts)


def wrong_after_power_cuts(
    directory: Path, kind: str, acts: list[Act], kills: Iterable[Kill], mutant: str = ""
) -> list[str]:
    """Return what is wrong with the files of an agent whose disk's power was cut, and that was started again.

    Args:
        directory: where everything goes, not there yet.
        kind: one of the machine's `FILE_SYSTEMS`.
        acts: the log's script.
        kills: of each run, when it is killed, and whether its disk is cut; one more is not.
        mutant: how the package is broken.
    """
    inputs = directory / "inputs"
    inputs.mkdir(parents=True)
    with Machine(directory, kind) as machine:
        for kill in (*kills, Kill(0)):
            child = _agent(machine.disk, acts, mutant, kill, inputs, machine.cut)
            if not child.killed_itself() and child.code != 0:
                return [f"the agent failed: {(inputs / 'stderr').read_text()[-2000:]}"]
            if kill.cuts and child.killed_itself():
                machine.restart()
                for head in machine.disk.glob("c?/head"):
                    if head.stat().st_size:
                        age_head(head.parent)
        return _wrong(machine.disk, acts)


def _wrong(place: Path, acts: list[Act]) -> list[str]:
    """Return what is wrong with the files of an agent that is done."""
    expected = Counter(f"line {a.number + i}" for a in acts if a.name == "grow" for i in range(a.count))
    wrong = []
    for out in ("out1", "out2"):
        files = [p for p in (place / out).iterdir() if not p.name.startswith(".")]
        found = Counter(line for p in files for line in p.read_text().splitlines())
        wrong += [f"{out} has {list(found - expected)} more than once"] if found - expected else []
        wrong += [f"{out} lacks {list(expected - found)}"] if expected - found else []
        wrong += [f"{p.name} was left open" for p in files if p.suffix == ".tmp"]
    return wrong
