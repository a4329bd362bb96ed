"""Full disks of every size: puts fail clearly, the rest goes on, and with new room nothing was lost."""

from __future__ import annotations

import random
import resource
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.power_cut.mounts import MountError
from spillable_stream import Channel, Event, SpillableError
from spillable_stream.errors import ChannelFullError, DiskSpaceError, StorageError, TornTailWarning
from tests.lab.children import Child, mutate
from tests.lab.contents import CONSUMERS, contents
from tests.lab.ledger import LedgerLines, Outcome, check
from tests.lab.machine import mounted, resize
from tests.lab.size import sized
from tests.lab.workload import CONFIGURATIONS, OPTIONS, put, take
from tests.support.damage import reboot

ROOM_BYTES = 8 << 20
REQUIRED_BYTES = 64 << 10
_PUTS = 3000
_CLEAR = ("No space left on device", "File too large", "minimum_required_space", "overflow_capacity", "no room")


class FullDisk:
    """What is done on a disk that gets full, and what is wrong then.

    Args:
        path: the channel.
        make_room: makes the disk large.
        size_bytes: how large the disk is; chooses the sizes of events too.
        options: the channel's.
        takes_must: whether takes must work on the full disk, where anything could be put.
    """

    def __init__(
        self, path: Path, make_room: Callable[[], None], size_bytes: int, options: dict[str, Any], takes_must: bool
    ) -> None:
        self._path = path
        self._takes_must = takes_must
        self._make_room = make_room
        self._rng = random.Random(size_bytes)
        # Large disks get large events, but none larger than the room that puts must leave.
        self._scale = 1 if options["minimum_required_space"] else 1 + size_bytes // (64 << 10)
        inline_bytes = self._rng.choice([8000, 1 << 20])  # some disks get full by segments, some by the log
        self._options = {**OPTIONS, "max_inline_bytes": inline_bytes, "keep_alive": 0.01, **options}
        self._ledger = LedgerLines()
        self._number = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        """Fill the disk, go on, make room, go on."""
        try:
            channel = Channel(self._path, **self._options)
        except SpillableError as e:
            self._expect_clear("creation", e)
            self._make_room()
        else:
            channel = self._while_full(channel)
            self._make_room()
            self._go_on(channel)
        with Channel(self._path, **self._options) as channel:
            self._go_on(channel)
        reboot(self._path)
        with Channel(self._path, **self._options) as channel:
            self._check(channel)

    def _while_full(self, channel: Channel) -> Channel:
        """Put until the disk is full, then do all that needs no room."""
        try:
            channel.consumer(CONSUMERS)
            for _ in range(_PUTS):
                self._put(channel)
            self.wrong.append("the disk was never full")
        except SpillableError as e:
            self._expect_clear("a put", e)
        must = self._takes_must and self._number > 1
        for _ in range(5):
            self._try("a take", must, lambda: take(channel, self._ledger, self._rng.randint(1, 3)))
            self._try("the beginning of a take", must, lambda: self._roll_back_a_take(channel))
            self._try("the beginning of a put", False, lambda: self._roll_back_a_put(channel))
            self._try("a put", False, lambda: self._put(channel))
            self._try("a checkpoint", False, channel.checkpoint)
        self._try("looking", False, lambda: self._check(channel))  # which may have to make the consumers' group
        if self._rng.random() < 0.5:
            return channel
        self._try("closing", False, channel.close)
        if self._rng.random() < 0.5:
            reboot(self._path)
        try:
            return Channel(self._path, **self._options)
        except SpillableError as e:
            self._expect_clear("opening", e)
            self._make_room()
            return Channel(self._path, **self._options)

    def _go_on(self, channel: Channel) -> None:
        """Put and take on a disk that has room."""
        if channel.engine().log.lock.failed:
            channel.close()
            channel = Channel(self._path, **self._options)
        self._check(channel)
        for _ in range(3):
            self._try("with new room, a put", True, lambda: self._put(channel))
            self._try("with new room, a take", True, lambda: take(channel, self._ledger, 5))
        self._try("with new room, a checkpoint", True, channel.checkpoint)
        self._check(channel)
        channel.close()

    def _put(self, channel: Channel) -> None:
        self._number += 1
        count, padding = self._rng.choice([(1, 0), (3, 50), (20, 100), (5, 2000)])
        put(channel, self._ledger, "p", self._number, count, padding * self._scale)

    def _roll_back_a_take(self, channel: Channel) -> None:
        tx = channel.take_transaction(CONSUMERS)
        tx.begin()
        tx.take_many(3)
        self._try("the rollback of a take", True, tx.rollback)

    def _roll_back_a_put(self, channel: Channel) -> None:
        tx = channel.put_transaction()  # may create a memory tier, which takes room
        tx.begin()
        tx.put(Event(b"rolled back"))
        self._try("the rollback of a put", True, tx.rollback)

    def _try(self, what: str, must: bool, do: Callable[[], object]) -> None:
        """Do something that must work, or else fail clearly if it fails."""
        try:
            do()
        except SpillableError as e:
            if must:
                self.wrong.append(f"{what} failed: {e!r}")
            self._expect_clear(what, e)

    def _expect_clear(self, what: str, error: SpillableError) -> None:
        if not isinstance(error, StorageError | DiskSpaceError | ChannelFullError):
            self.wrong.append(f"{what} failed with {error!r}")
        elif str(self._path) not in str(error) or not any(words in str(error) for words in _CLEAR):
            self.wrong.append(f"{what} failed, and the error does not say why or where: {error!r}")

    def _check(self, channel: Channel) -> None:
        self.wrong += check(Outcome.of([self._ledger.lines]), contents(channel))


def fill_a_disk(
    directory: Path, size_bytes: int, configuration: str, required_bytes: int = 0, mutant: str = ""
) -> list[str]:
    """Return what is wrong on a disk of a size that gets full.

    Args:
        directory: where everything goes, empty.
        size_bytes: the size of the disk.
        configuration: one of the workload's.
        required_bytes: the channel's `minimumRequiredSpace`.
        mutant: how the package is broken.
    """
    disk = directory / "disk"
    disk.mkdir()
    with mounted(disk, size_bytes):
        options = {**CONFIGURATIONS[configuration], "minimum_required_space": required_bytes}
        takes_must = configuration == "disk"
        return _run(directory, disk, lambda: resize(disk, ROOM_BYTES), size_bytes, options, takes_must, mutant)


def limit_the_files(directory: Path, size_bytes: int, configuration: str, mutant: str = "") -> list[str]:
    """Return what is wrong where no file may be larger than a size; see `fill_a_disk`."""
    options, unlimited = (
        {**CONFIGURATIONS[configuration], "minimum_required_space": 0},
        resource.getrlimit(resource.RLIMIT_FSIZE)[1],
    )

    def make_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, unlimited))

    return _run(directory, directory, make_room, size_bytes, options, False, mutant, limit)


def _run(
    directory: Path,
    disk: Path,
    make_room: Callable[[], None],
    size_bytes: int,
    options: dict[str, Any],
    takes_must: bool,
    mutant: str,
    begin: Callable[[], None] = lambda: None,
) -> list[str]:
    """Do it in a child, which a full disk may kill, and return what is wrong."""
    memory = directory / "memory"
    memory.mkdir()
    found = directory / "found"
    full = FullDisk(disk / "channel", make_room, size_bytes, {**options, "memory_dir": memory}, takes_must)

    def run() -> None:
        mutate(mutant)
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", TornTailWarning)  # what was not committed was taken back
        begin()
        try:
            full.run()
        except Exception:
            full.wrong.append(traceback.format_exc())
        make_room()
        found.write_text("\n".join(full.wrong))

    with Child(run, directory / "stderr", 300) as child:
        if child.wait():
            return [f"the program died: {child.code}, {(directory / 'stderr').read_text()}"]
    return found.read_text().splitlines()


def sample(sizes: range, count: int) -> list[int]:
    """Return some of many sizes: all of the smallest, for which the least has room, and every so manieth."""
    few = len(sizes) - count
    return sorted({*sizes[: count // 2], *sizes[count // 2 :: max(1, 2 * few // count + 2)]}) if few > 0 else [*sizes]


DISKS, FILES = range(4 << 10, (2 << 20) + 1, 4 << 10), range(64, (32 << 10) + 1, 64)
TIERS = pytest.mark.parametrize("configuration", ["disk", "small memory"])


@pytest.fixture
def tmpfs(shared_memory: Path) -> Path:
    """Return a directory for disks; skipped where none can be mounted."""
    (probe := shared_memory / "probe").mkdir()
    try:
        with mounted(probe, DISKS[0]):
            return shared_memory
    except (OSError, MountError):
        pytest.skip("needs root, to mount small disks")


def sweep(directory: Path, sizes: list[int], fill: Callable[[Path, int], list[str]]) -> dict[int, list[str]]:
    """Return what is wrong, by size; nothing for most."""
    wrong = {}
    for size_bytes in sizes:
        (here := directory / str(size_bytes)).mkdir()
        if found := fill(here, size_bytes):
            wrong[size_bytes] = found
    return wrong


@TIERS
@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_full_disks_of_every_size_lose_nothing(tmpfs: Path, configuration: str) -> None:
    sizes = sample(DISKS, sized(16, len(DISKS)))
    assert sweep(tmpfs, sizes, lambda here, size: fill_a_disk(here, size, configuration)) == {}


@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_takes_continue_where_puts_must_leave_room(tmpfs: Path) -> None:
    sizes = [size for size in sample(DISKS, sized(8, len(DISKS))) if size > 2 * REQUIRED_BYTES]
    assert sweep(tmpfs, sizes, lambda here, size: fill_a_disk(here, size, "disk", REQUIRED_BYTES)) == {}


@TIERS
@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_files_limited_to_every_size_lose_nothing(shared_memory: Path, configuration: str) -> None:
    sizes = sample(FILES, sized(16, len(FILES)))
    assert sweep(shared_memory, sizes, lambda here, size: limit_the_files(here, size, configuration)) == {}


def test_a_few_full_disks_and_limited_files_lose_nothing(shared_memory: Path) -> None:
    sizes = [64, 448, 512, 4096, 30_000]
    assert sweep(shared_memory, sizes, lambda here, size: limit_the_files(here, size, "disk")) == {}
