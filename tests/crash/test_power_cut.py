"""Real power cuts: the file system under a channel stops at any moment and is mounted again."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from benchmarks.power_cut.mounts import kernel_log
from spillable_stream import Channel, SpillableError
from spillable_stream.engine.local import memory_tier
from spillable_stream.errors import MemoryLossWarning, TornTailWarning
from spillable_stream.integrity.verify import verify
from spillable_stream.state.ranges import count_of
from tests.lab.calls import Call, Moment, Recorder, watching
from tests.lab.children import Child, wait_until
from tests.lab.contents import changes, contents, files_that_count
from tests.lab.harness import DISK, MEMORY
from tests.lab.ledger import Found, LedgerFile, Outcome, check
from tests.lab.machine import FILE_SYSTEMS, Machine, missing
from tests.lab.mutants import broken
from tests.lab.size import sized
from tests.lab.workload import CONFIGURATIONS, OPTIONS, Program, put, take
from tests.support.damage import age_head

_HEAD_BYTES = 512
_HEADS_WRITTEN_BACK = 0.03  # of all moments, where that is wanted
_FEW_IDS = mock.patch.object(memory_tier, "_RESERVED_IDS", 500)  # a lost memory tier puts so many in doubt


def _name(call: Call) -> str:
    return Path(call.path).name


# Right after which call, or half way through which write, the power is cut.
_CALLS: dict[str, Callable[[Call], bool]] = {
    "a new file": lambda c: c.name == "open" and c.more == "create" and _name(c).startswith(("log-", "segment")),
    "a sync": lambda c: c.name == "sync" and "/data/" in c.path,
    "a roll": lambda c: c.name == "sync" and _name(c) == "data",
    "a checkpoint's sync": lambda c: c.name == "sync" and "/checkpoint/" in c.path,
    "a checkpoint's rename": lambda c: c.name == "rename" and _name(c).startswith("checkpoint-"),
    "the removal of a file": lambda c: c.name == "unlink" and _name(c).startswith(("log-", "segment", "checkpoint-")),
    "a link": lambda c: c.name == "rename" and _name(c) == "memory",
}
_FIRST_CALLS: dict[str, Callable[[Call], bool]] = {
    "a new directory": lambda c: c.name == "mkdir",
    "the identity's rename": lambda c: c.name == "rename" and _name(c) == "channel.json",
}
_FIRST = (*_FIRST_CALLS, "the first open")  # happen to new channels only
_OFTEN = ("any", "an acknowledgement", "half a write")
MOMENTS = [m for i, moment in enumerate((*_CALLS, *_FIRST)) for m in (_OFTEN[i % 3], moment)]


def moments_after(call: Call | None) -> list[str]:
    """Return which of the moments follow a system call."""
    return [moment for moment, chosen in {**_CALLS, **_FIRST_CALLS}.items() if call is not None and chosen(call)]


class Cutter:
    """Cuts the power at a chosen moment and dies with it; a ledger, and a watcher of system calls.

    Args:
        machine: whose power.
        ledger: where lines of the ledger go.
        moment: one of `MOMENTS`.
        number: at the how manieth of these moments.
        on_disk: where to write down which events are on disk.
        written_back: the file that the kernel happens to write before, if any.
        head: the head, where the kernel happens to write it at moments before; else None.
    """

    def __init__(
        self,
        machine: Machine,
        ledger: Path,
        moment: str,
        number: int,
        on_disk: Path,
        written_back: Path | None,
        head: Path | None = None,
    ) -> None:
        self._machine = machine
        self._ledger = LedgerFile(ledger)
        self._moment = moment
        self._left = number
        self._on_disk = LedgerFile(on_disk)
        self._written_back = written_back
        self._head = head
        self._rng = random.Random(number)
        self._last: Call | None = None
        self.program: Program | None = None

    def happened(self, moment: str) -> None:
        """Cut the power if it was the chosen moment."""
        if moment == self._moment:
            self._left -= 1
            if self._left == 0:
                self._machine.cut(self._written_back)
                os.kill(os.getpid(), signal.SIGKILL)

    def __call__(self, moment: Moment) -> None:
        """Look at a system call; the one before it is over."""
        if self._head is not None and self._rng.random() < _HEADS_WRITTEN_BACK:
            _write_back(self._head)
        for name in moments_after(self._last):
            self.happened(name)
        self._last = moment.call() if moment.when == "before" else None
        if moment.when == "half":
            self.happened("half a write")

    def write(self, *words: object) -> None:
        """Append a line to the ledger; with an acknowledgement goes what is on disk then."""
        self._ledger.write(*words)
        if words[0] == "ack":
            assert self.program is not None and self.program.channel is not None
            blocks = self.program.channel.engine().state.blocks.disk
            self._on_disk.write(*(f"{b.first_id}-{b.last_id}" for b in blocks))
            self.happened("an acknowledgement")


def _write_back(head: Path) -> None:
    """Let the kernel write a head to the disk now, as it does whenever it likes."""
    try:
        fd = os.open(head, os.O_RDONLY)
    except FileNotFoundError:
        return
    os.fdatasync(fd)
    os.close(fd)


def power_cut_cycles(
    directory: Path,
    kind: str,
    cycles: int,
    seed: int,
    configurations: Sequence[str] = DISK,
    mutant: str = "",
    *,
    reboot: bool = True,
) -> list[str]:
    """Return what is wrong after one of many power cuts; nothing if every promise was kept after all of them.

    Args:
        directory: where everything goes, empty.
        kind: one of the machine's `FILE_SYSTEMS`.
        cycles: how many cuts.
        seed: chooses moments and sizes.
        configurations: which of the workload's take turns.
        mutant: how the package is broken.
        reboot: whether the machine is started again then. Else the disk alone is lost and mounted again: memory, boot
            and host are what they were, and the head is as it was when the kernel wrote it last.
    """
    with _FEW_IDS, broken(mutant), Machine(directory, kind) as machine:
        laboratory = _Laboratory(directory, machine, seed, configurations, reboot)
        for cycle in range(cycles):
            try:
                wrong = laboratory.cycle(cycle)
            except SpillableError as e:
                wrong = [f"the channel can't be used: {e!r}; {kernel_log()}"]
            if wrong:
                return [f"seed {seed}, {laboratory.said}: {w}" for w in wrong]
    return []


class _Laboratory:
    """One channel after the other, whose power is cut again and again."""

    def __init__(
        self, directory: Path, machine: Machine, seed: int, configurations: Sequence[str], reboot: bool
    ) -> None:
        self._reboot = reboot
        self._directory = directory
        self._machine = machine
        self._rng = random.Random(seed)
        self._configurations = configurations
        self._channels = 0
        self._lost: set[tuple[int, int]] = set()  # and reported by now
        self._lost_count = 0
        self.said = ""

    def cycle(self, cycle: int) -> list[str]:
        """Start the program, cut the power, and return what is wrong then."""
        moment = MOMENTS[cycle % len(MOMENTS)]
        configuration = self._configurations[cycle % len(self._configurations)]
        if moment in _FIRST or not self._channels or self._rng.random() < 0.05:
            self._channels += 1
            self._lost, self._lost_count = set(), 0
            (self._directory / f"channel-{self._channels}").mkdir()
        number = 1 if moment in ("the first open", "the identity's rename") else self._rng.randint(1, 5)
        written_back = self._rng.choice([None, None, "head", "."])
        self.said = f"cycle {cycle}, {configuration}, channel {self._channels}, cut after {number} of {moment}"
        self.said += f", {written_back} was written" if written_back else ""
        started, failed = self._run(cycle, configuration, moment, number, written_back)
        if failed:
            return [failed]
        if self._reboot:
            self._machine.restart()
        else:
            self._machine.remount()
        if not started:
            return ["the program did not begin"]
        return self._wrong(cycle, configuration)

    @property
    def _path(self) -> Path:
        return self._machine.disk / f"channel-{self._channels}"

    @property
    def _ledgers(self) -> Path:
        return self._directory / f"channel-{self._channels}"

    def _options(self, configuration: str) -> dict[str, Any]:
        memory = {"memory_dir": self._machine.memory, "checkpoint_interval": 1 << 50}
        return {**OPTIONS, **CONFIGURATIONS[configuration], **memory}

    def _run(
        self, cycle: int, configuration: str, moment: str, number: int, written_back: str | None
    ) -> tuple[bool, str]:
        """Run the program until the power is cut; tell whether it began, and how it failed before."""
        ledger, on_disk = self._ledgers / f"{cycle}.ledger", self._ledgers / "disk"
        on_disk.unlink(missing_ok=True)
        lines, rounds = self._rng.randint(0, 60), self._rng.randint(1, 3)
        kept = self._path / written_back if written_back else None
        stderr = self._directory / "stderr"

        def run() -> None:
            warnings.simplefilter("ignore")
            faulthandler.disable()  # on a disk that is gone the mapped head is a signal
            head = None if self._reboot else self._path / "head"
            cutter = Cutter(self._machine, ledger, moment, number, on_disk, kept, head)
            memory = {"memory_dir": self._machine.memory}
            cutter.program = program = Program(self._path, cutter, configuration, rounds, cycle + 1, None, **memory)
            if moment == "any" and self._reboot:
                program.run()
                return
            with watching(cutter):
                for step in program.steps():
                    step()
                    cutter.happened("the first open")

        with Child(run, stderr, 300) as child:
            if moment == "any":
                wait_until(lambda: not child.alive() or (ledger.exists() and _lines(ledger) >= lines))
                time.sleep(self._rng.uniform(0, 0.01))
            else:
                child.wait()
            failed = not child.alive() and child.code not in (0, -signal.SIGKILL)
            if child.code != -signal.SIGKILL:
                before = [(path, path.read_bytes() if path.exists() else b"") for path in (ledger, on_disk)]
                self._machine.cut(kept)
                child.kill()
                for path, known in before:
                    _forget_answers(path, known)
        return ledger.exists(), f"the program failed: {stderr.read_text()[-2000:]}" if failed else ""

    def _wrong(self, cycle: int, configuration: str) -> list[str]:
        """Return what is wrong with what the cut left: it opens, keeps every promise, and can be used."""
        head = self._path / "head"
        if self._reboot and head.exists() and head.stat().st_size >= _HEAD_BYTES:
            age_head(self._path)
        said = self._said_to_be_lost()
        wrong, found = self._wrong_contents(configuration)
        wrong += self._wrong_losses(found, configuration, said)
        once = files_that_count(self._path)
        again, _ = self._wrong_contents(configuration)
        wrong += [f"a second open changed {name}" for name in changes(once, files_that_count(self._path))]
        self._go_on(cycle, configuration)
        return wrong + again + self._wrong_contents(configuration)[0]

    def _said_to_be_lost(self) -> int | None:
        """Return how many events `verify` says are lost, None if there is no channel yet."""
        return verify(self._path).loss.count if (self._path / "channel.json").exists() else None

    def _wrong_contents(self, configuration: str) -> tuple[list[str], Found]:
        outcome = Outcome.read(self._ledgers.glob("*.ledger"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            warnings.simplefilter("ignore", MemoryLossWarning)
            with Channel(self._path, **self._options(configuration)) as channel:
                found = contents(channel)
                return check(outcome, found), found

    def _wrong_losses(self, found: Found, configuration: str, said: int | None) -> list[str]:
        """Return the events that are reported lost though they were on disk, or there was nothing else.

        Args:
            found: what the channel holds.
            configuration: one of the workload's.
            said: how many events `verify` said are lost, before the channel was opened.
        """
        before, self._lost = self._lost, {*found.lost, *found.doubtful}
        new = self._lost - before
        lost, self._lost_count = count_of(found.lost) - self._lost_count, count_of(found.lost)
        if said is not None and said != lost:
            return [f"the open lost {lost} events; verify had said {said}"]
        if new and configuration == "disk":
            return [f"without a memory tier, {new} are reported lost"]
        if not self._reboot:  # the memory tier is there; one whose making was cut short held nothing yet
            first_ids = set(Outcome.read(self._ledgers.glob("*.ledger")).acknowledged.values())
            gone = [r for r in new if r in found.lost or any(r[0] <= i <= r[1] for i in first_ids)]
            return [f"the memory tier was there, and {gone} are reported lost"] if gone else []
        on_disk = self._ledgers / "disk"
        lines = on_disk.read_text().splitlines() if on_disk.exists() else []
        blocks = [tuple(map(int, block.split("-"))) for block in lines[-1].split()] if lines else []
        return [
            f"the events {a} to {b} are reported lost; {first} to {last} were on disk"
            for a, b in new
            for first, last in blocks
            if first <= b and a <= last
        ]

    def _go_on(self, cycle: int, configuration: str) -> None:
        """Put and take something."""
        ledger = LedgerFile(self._ledgers / f"{cycle}-more.ledger")
        with Channel(self._path, **self._options(configuration)) as channel:
            put(channel, ledger, f"more-{cycle}", 1, self._rng.randint(1, 5), 10)
            take(channel, ledger, self._rng.randint(1, 20))
        ledger.close()


def _forget_answers(ledger: Path, before: bytes) -> None:
    """Remove from a ledger what the program was told after the cut: a dead machine tells nobody anything.

    The kernel lives on, and now and then a sync that it shuts the file system down under returns success for nothing.
    """
    if ledger.exists():
        after = ledger.read_bytes()[len(before) :].splitlines(keepends=True)
        ledger.write_bytes(before + b"".join(line for line in after if line.startswith((b"put", b"take"))))


def _lines(ledger: Path) -> int:
    return ledger.read_bytes().count(b"\n")


def need(kind: str) -> None:
    """Skip a test where the machine can't cut the power of a kind of file system."""
    if why := missing(kind):
        pytest.skip(why)


def test_every_moment_comes_while_the_program_runs(tmp_path: Path) -> None:
    recorder = Recorder()
    with watching(recorder):
        Program(tmp_path / "channel", recorder, "small memory", rounds=1).run()
    met = {moment for call in recorder.calls for moment in moments_after(call)}
    assert met == {*_CALLS, *_FIRST_CALLS}


KINDS = pytest.mark.parametrize("kind", FILE_SYSTEMS)


@KINDS
def test_a_cut_takes_what_was_not_synced_and_nothing_else(tmp_path: Path, kind: str) -> None:
    need(kind)
    with Machine(tmp_path, kind) as machine:
        (machine.memory / "gone").mkdir()
        with (machine.disk / "synced").open("wb") as file:
            file.write(b"synced")
            file.flush()
            os.fsync(file.fileno())
        (machine.disk / "not synced").write_bytes(b"gone")
        machine.cut()
        with pytest.raises(OSError):
            (machine.disk / "later").touch()
        machine.restart()
        assert (machine.disk / "synced").read_bytes() == b"synced"
        assert not (machine.disk / "not synced").exists() and not list(machine.memory.iterdir())


@KINDS
@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("configurations", [DISK, MEMORY], ids=["disk", "memory"])
def test_power_cuts_lose_nothing_that_was_promised(tmp_path: Path, kind: str, configurations: Sequence[str]) -> None:
    need(kind)
    assert power_cut_cycles(tmp_path, kind, sized(8, 200), 20261122, configurations) == []
