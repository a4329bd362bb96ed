"""Every state that a power cut can leave of a program: rebuilt, opened, checked.

After each operation of a recorded program `images` says what the disk may hold. Each such image is
written into a directory and opened, every other one as after a reboot and the rest as after a remount:
boot and host are what they were, and the head is of any moment before. What the channel then holds must
fit what the ledger said up to that operation, and the channel must go on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from spillable_stream import Channel
from spillable_stream.format.head_page import parse_head
from tests.lab.contents import changes, files_that_count
from tests.lab.disk import Disk, Image, images
from tests.lab.keeping import upkeep_by_hand
from tests.lab.recorder import Note, Operation, Recording, recording
from tests.lab.subject import Subject, Verdict, subject
from tests.lab.workload import OPTIONS
from tests.support.damage import remove_memory_under

__all__ = ["CrashStates", "Failure"]

CHANNEL = "channel"
_CRASHES_KEPT = 0.01


@dataclass
class Failure:
    """A state in which something was wrong.

    Args:
        wrong: what.
        history: the operations up to the crash.
        image: what the disk held.
        rebooted: whether the machine was started again; else the disk alone was mounted again.
        seed: with which the states were chosen.
    """

    wrong: list[str]
    history: list[Operation | Note]
    image: Image
    rebooted: bool
    seed: int

    def __str__(self) -> str:
        names = {p: len(c) if isinstance(c, bytes) else c for p, c in self.image.names.items()}
        last = "\n".join(f"  {i:4} {o}" for i, o in list(enumerate(self.history))[-40:])
        crash = f"{'reboot' if self.rebooted else 'remount'} after operation {len(self.history)}"
        return f"seed {self.seed}, {crash}\n{last}\n{names}\n" + "\n".join(self.wrong)


@dataclass
class CrashStates:
    """The states of one program and what was wrong in them.

    Args:
        directory: where the program runs and the states are rebuilt, best in memory.
        configuration: one that has a `subject`.
        seed: chooses the program's steps and the states.
        samples: how many arbitrary subsets are tried after an operation (`images`).
        every: after which operations: 1 for each, 5 for every fifth. After the others, 0 are tried.
        looked_every: after which operations it is looked at all where 0 are tried: 1 for each, 5 for every fifth.
        used_every: which states are also opened again and used: 1 for each, 3 for every third.
        first: after which operation it is looked at first.
        most: with how many failures it ends.

    Attributes:
        states: how many distinct states were opened.
        failures: those in which something was wrong.
    """

    directory: Path
    configuration: str = "disk"
    seed: int = 1
    samples: int = 10
    every: int = 1
    looked_every: int = 1
    used_every: int = 1
    first: int = 1
    most: int = 3
    states: int = 0
    failures: list[Failure] = field(default_factory=list)
    _boots: int = 0
    _found: dict[int, Any] = field(default_factory=dict)
    _rebooted: dict[int, bool] = field(default_factory=dict)
    _crashes: list[tuple[Image, list[str]]] = field(default_factory=list)

    @property
    def _subject(self) -> Subject[Any]:
        return subject(self.configuration)

    def count_syncs(self) -> int:
        """Return how many syncs the program does on an empty disk."""
        with self._recorded(Image({}), 1) as record:
            return record.syncs

    def run(self, rounds: int = 1, failing_sync: int = 0) -> None:
        """Record a program on an empty disk, and check every state of it.

        Args:
            rounds: of the program.
            failing_sync: which of its syncs fails; 0 for none.
        """
        self._run(Image({}), [], rounds, failing_sync)

    def run_after_a_crash(self, rounds: int = 1) -> None:
        """Record a program that begins with what a crash left, its recovery included, and check every state of it."""
        assert self._crashes, f"no crash is left that was kept to go on from, of {self.states} states: try another seed"
        image, lines = self._crashes.pop()
        self._run(image, lines, rounds)

    def _run(self, image: Image, before: list[str], rounds: int, failing_sync: int = 0) -> None:
        with self._recorded(image, rounds, failing_sync) as record:
            self.check_all(Disk.of(image), before, record.operations)

    @contextlib.contextmanager
    def _recorded(self, image: Image, rounds: int, failing_sync: int = 0) -> Iterator[Recording]:
        """Run the program on what a disk holds; what it leaves in memory is there until the end."""
        root = self.directory / "program"
        root.mkdir()
        image.write(root)
        self._boots += 1
        with recording(root, failing_sync) as record, self._boot(), upkeep_by_hand(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record.know(Disk.of(image).inodes())
            program = self._subject.program(root / CHANNEL, record, rounds, self.seed + 1000 * self._boots)
            if failing_sync:
                program.run_whatever_fails()
            else:
                program.run()
            self._require_boot(root / CHANNEL / "head")
        yield record
        remove_memory_under(root)
        shutil.rmtree(root)

    def _boot(self) -> Any:
        """Let what is written into the head be of a boot that only the program knows, and who is told of it."""
        boot = f"boot {self._boots}".encode().ljust(16)
        return mock.patch("spillable_stream.log.head.boot_id", lambda: boot)

    def _require_boot(self, head: Path) -> None:
        """Prove that the head is of the boot that only the program knows: else no state would be one after a reboot."""
        found = parse_head(head.read_bytes()) if head.exists() else None
        assert found is None or found.boot.startswith(b"boot"), found

    def check_all(self, disk: Disk, before: list[str], operations: list[Operation | Note]) -> None:
        """Check every state of a program.

        Args:
            disk: what there was before it.
            before: the ledger up to then.
            operations: what it did.
        """
        rng = random.Random(self.seed)
        lines = list(before)
        for i, operation in enumerate(operations, 1):
            if isinstance(operation, Note):
                lines.append(operation.line)
            else:
                disk.do(operation)
                if operation.name == "store":
                    continue
            samples = 0 if i % self.every else self.samples
            if i < self.first or (not samples and i % self.looked_every):
                continue
            verdict = self._subject.verdict([lines])
            for image in images(disk, rng, samples):
                if len(self.failures) >= self.most:
                    return
                rebooted = self._is_rebooted(image)
                wrong = self._check(image, verdict, rebooted)
                if wrong:
                    self.failures.append(Failure(wrong, operations[:i], image, rebooted, self.seed))
                if rng.random() < _CRASHES_KEPT:
                    self._crashes.append((image, list(lines)))

    def _is_rebooted(self, image: Image) -> bool:
        """Choose how an image is opened: every other one that is new as after a reboot."""
        return self._rebooted.setdefault(image.key(), len(self._rebooted) % 2 == 0)

    def _check(self, image: Image, verdict: Verdict[Any], rebooted: bool) -> list[str]:
        key = image.key()
        wrong: list[str] = []
        if key not in self._found:
            self.states += 1
            with contextlib.nullcontext() if rebooted else self._boot():
                self._found[key], wrong = self._open(image, verdict)
        found = self._found[key]
        return wrong if found is None else wrong + verdict.wrong(found)

    def _open(self, image: Image, verdict: Verdict[Any]) -> tuple[Any, list[str]]:
        """Return what the channel of an image holds, if it opens, and what is wrong with how it goes on."""
        root = self.directory / "state"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        image.write(root)
        path = root / CHANNEL
        options = {} if f"{CHANNEL}/channel.json" in image.names else OPTIONS  # else the open changes them
        try:
            with upkeep_by_hand(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with Channel(path, **options) as channel:
                    found = self._subject.contents(channel)
                if self.states % self.used_every:
                    return found, []
                healed = files_that_count(path)
                with Channel(path) as channel:
                    wrong = [f"a second open changed {name}" for name in changes(healed, files_that_count(path))]
                    wrong += verdict.goes_on(channel, found)
                    _clean(channel)
                wrong += _left_behind(path)
        except Exception:  # whatever it is, the channel should have opened
            return None, [traceback.format_exc(limit=-6)]
        return found, wrong


def _clean(channel: Channel) -> None:
    """Make checkpoints, until nothing is left that nothing needs."""
    channel.checkpoint()
    engine = channel.engine()
    with engine.committing():
        engine.log.tiers.disk.roll(engine.state.small)
        engine.follower.catch_up()
    channel.checkpoint()


def _left_behind(path: Path) -> Iterator[str]:
    """Say which files are there though nothing needs them: everything was taken and there are two checkpoints."""
    allowed = 2 + 2  # data files from the older checkpoint on
    names = sorted(files_that_count(path))
    data = [n for n in names if n.startswith("data/log-")]
    if len(data) > allowed:
        yield f"data files were left behind: {data}"
    for name in names:
        if ".tmp" in name or "segment." in name:
            yield f"{name} was left behind"
    if len([n for n in names if n.startswith("checkpoint/checkpoint-")]) > 2:
        yield f"checkpoints were left behind: {names}"
    if (path / "memory").is_symlink():
        yield "the link to the memory tier was left behind"
