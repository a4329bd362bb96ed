"""A kill at every system call by which a fixed program changes files, half way through writes, and at every publish."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest

from spillable_stream import Channel, SpillableError
from spillable_stream.errors import MemoryLossWarning, TornTailWarning
from tests.lab import mutants
from tests.lab.calls import NEEDS_STRACE, Call, Moment, Recorder, Watcher, kill_at, read_trace, strace, watching
from tests.lab.children import Child, mutate
from tests.lab.contents import changes
from tests.lab.harness import FATES, KEPT_HEADS, left_behind
from tests.lab.keeping import upkeep_by_hand
from tests.lab.ledger import LedgerFile, whole_lines
from tests.lab.size import sized
from tests.lab.subject import DELAYING, KEEPING, SPREAD, subject
from tests.lab.workload import OPTIONS, Program
from tests.support.damage import keep_head, reboot

SEED = 3
BOTH = pytest.mark.parametrize("configuration", ["disk", "small memory"])
ALL = pytest.mark.parametrize(
    "configuration",
    [
        "disk",
        "small memory",
        f"{KEEPING}disk",
        f"{KEEPING}small memory",
        f"{DELAYING}disk",
        f"{DELAYING}small memory",
        f"{SPREAD}{KEEPING}disk",
    ],
)


@ALL
@pytest.mark.crash
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("turn", range(sized(ci=1, full=len(FATES))))
def test_a_kill_at_any_call_loses_nothing_and_the_channel_continues(
    shared_memory: Path, configuration: str, turn: int
) -> None:
    """In CI every thirty-second moment has one of the fates; on demand each has all of them, in turns."""
    last, wrong = count_moments(shared_memory, configuration), []
    assert last > 300
    for i, fate in enumerate(FATES):
        points = range(1 + (i + turn) % len(FATES), last + 1, sized(ci=32, full=1) * len(FATES))
        wrong += kill_points(shared_memory / f"{i}", configuration, points, fate=fate)
    assert wrong == []


@NEEDS_STRACE
@BOTH
def test_strace_sees_every_call_that_the_recipe_knows_of(shared_memory: Path, configuration: str) -> None:
    recorder, here = Recorder(), shared_memory / "recorded"
    here.mkdir()
    with watching(recorder):
        Program(here / "channel", recorder, configuration, rounds=1, seed=SEED).run()
    recorded = [c for c in recorder.calls if Path(c.path).is_relative_to(here) or "/spillable-" in c.path]
    assert [_shape(c) for c in recorded if _changes(c)] == [
        _shape(c) for c in _traced(shared_memory, configuration) if _changes(c)
    ]


@NEEDS_STRACE
@BOTH
@pytest.mark.crash
@pytest.mark.timeout(3000)
def test_a_kill_by_strace_at_any_call_loses_nothing(shared_memory: Path, configuration: str) -> None:
    calls, wrong = _traced(shared_memory, configuration), []
    step = max(1, len(calls) // sized(ci=3, full=len(calls)))
    for i in range(step // 2, len(calls), step):
        call, here = calls[i], shared_memory / str(i)
        here.mkdir()
        inject = f"--inject={call.syscall}:signal=KILL:when={call.number}"
        if strace(_program(here, configuration), here / "trace", inject) != -9:
            wrong.append(f"nothing was killed at {call}")
        wrong += [f"{call}: {what}" for what in wrong_with(here, configuration)]
    assert wrong == []


def count_moments(directory: Path, configuration: str) -> int:
    """Return how many moments the program has."""
    recorder = Recorder()
    with upkeep_by_hand(), watching(recorder):
        subject(configuration).program(directory / "counted", recorder, rounds=1, seed=SEED).run()
    return recorder.moments


def kill_points(
    directory: Path, configuration: str, points: Iterable[int], mutant: str = "", fate: str = ""
) -> list[str]:
    """Return what is wrong after the program was killed at some of its moments, each time on a channel of its own.

    Args:
        directory: where the channels go.
        configuration: one that has a `subject`.
        points: the moments, counted from 1.
        mutant: how the package is broken.
        fate: what else happens then, one of `FATES`.
    """
    wrong: list[str] = []
    for point in points:
        here = directory / f"{configuration}-{point}"
        here.mkdir(parents=True)

        def run(here: Path = here, point: int = point) -> None:
            mutate(mutant)
            ledger = LedgerFile(here / "killed.ledger")
            with upkeep_by_hand(), watching(_keeping_heads(here, kill_at(point))):
                subject(configuration).program(here / "channel", ledger, rounds=1, seed=SEED).run()

        child = Child(run, here / "stderr")
        if not child.killed_itself() and not (mutant and child.code == 0):  # which makes fewer calls perhaps
            wrong.append(f"{point}: the program was not killed: {(here / 'stderr').read_text()}")
        with mutants.broken(mutant):
            wrong += [f"{point}, {fate or 'killed'}: {what}" for what in wrong_with(here, configuration, fate)]
    return wrong


def _keeping_heads(directory: Path, watcher: Watcher) -> Watcher:
    """Return a watcher that keeps what the head says before each publish, where something may lie behind its end."""

    def watch(moment: Moment) -> None:
        if moment.name == "publish":
            keep_head(directory / "channel", directory / KEPT_HEADS)
        watcher(moment)

    return watch


def wrong_with(directory: Path, configuration: str, fate: str = "") -> list[str]:
    """Return what is wrong with what a killed program left: it opens, keeps every promise, and goes on for good.

    Args:
        directory: the one that the program had for its channel and its ledger.
        configuration: the program's.
        fate: what happens first, one of `FATES`.
    """
    path, wrong = directory / "channel", []
    try:
        with upkeep_by_hand(), warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            warnings.simplefilter("ignore", MemoryLossWarning)
            if (path / "channel.json").exists():
                FATES[fate](path)
                wrong += _wrong_contents(directory, configuration)
                once = _files(path)
                wrong += _wrong_contents(directory, configuration)
                wrong += [f"{name} was changed by a second open" for name in changes(once, _files(path))]
            more = LedgerFile(directory / "more.ledger")
            subject(configuration).program(path, more, rounds=0, seed=SEED + 1).run()
        with upkeep_by_hand(), warnings.catch_warnings(record=True) as warned:
            reboot(path)
            wrong += _wrong_contents(directory, configuration)
        return wrong + [f"a clean close left something to warn of: {w.message}" for w in warned]
    except SpillableError as e:
        return [*wrong, f"the channel can't be used: {e!r}"]


def _wrong_contents(directory: Path, configuration: str) -> list[str]:
    path, tested = directory / "channel", subject(configuration)
    verdict = tested.verdict(map(whole_lines, sorted(directory.glob("*.ledger"))))
    never_due = {"checkpoint_interval": 1 << 50}  # what an open does must not depend on when it is
    with Channel(path, **{**OPTIONS, **never_due, **tested.options}) as channel:
        found, uuid = tested.contents(channel), channel.uuid
    return verdict.wrong(found) + left_behind(path, uuid)


def _files(path: Path) -> dict[str, bytes]:
    """Return the files but for locks, which say who held them last, and the head, which any open writes."""
    files = (p for p in sorted(path.rglob("*")) if p.is_file() and p.suffix != ".lock" and p.name != "head")
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


def _program(directory: Path, configuration: str) -> list[str]:
    """Return Python's arguments for the program in a process of its own."""
    paths = [str(directory / "channel"), str(directory / "killed.ledger")]
    return ["-m", "tests.lab.workload", *paths, configuration, "1", str(SEED)]


def _traced(directory: Path, configuration: str) -> list[Call]:
    """Return the calls of the program on the channel's files."""
    here, trace = directory / "traced", directory / "trace"
    here.mkdir()
    assert strace(_program(here, configuration), trace) == 0
    memory = {Path(c.more) for c in read_trace(trace, here) if c.name == "symlink"}  # every tier has a name of its own
    return [c for c in read_trace(trace, here, *memory) if not c.path.endswith(".ledger")]


def _changes(call: Call) -> bool:
    """Tell whether a call may change a file, or make it durable; neither what only looks nor a cache is watched."""
    if call.syscall == "pwrite64":  # the head, who waits for a lock, and which lock files belong together
        return False
    return call.name not in ("open", "close", "ledger", "publish") or call.more == "create"


def _shape(call: Call) -> tuple[str, str]:
    """Return a call without what differs from run to run."""
    name = re.sub(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*", "UUID", Path(call.path).name)
    return call.name, "parent" if name in ("recorded", "traced") else name
