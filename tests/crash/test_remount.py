"""The disk is lost and mounted again while the machine runs on; copies of it that a volume manager makes meanwhile.

Boot, host and memory are what they were, and the head may be as old as the kernel likes.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from spillable_stream import Channel, SpillableError
from spillable_stream.integrity.verify import verify
from tests.crash.test_power_cut import KINDS, need, power_cut_cycles
from tests.lab.children import Child
from tests.lab.copies import Writers, wrong_copy
from tests.lab.harness import DISK, MEMORY
from tests.lab.machine import Machine
from tests.lab.size import sized
from tests.support.events import numbered, put, take

SNAPSHOTS = pytest.mark.parametrize("kind", ["ext4", "xfs"])
_MEMORY = {"minimum_required_space": 0, "memory_capacity": 1000, "byte_capacity": 1 << 20}
_PAGE_OUT = 21  # of madvise


@KINDS
@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("configurations", [DISK, MEMORY], ids=["disk", "memory"])
def test_a_disk_that_is_lost_and_mounted_again_lacks_nothing(
    tmp_path: Path, kind: str, configurations: Sequence[str]
) -> None:
    need(kind)
    assert power_cut_cycles(tmp_path, kind, sized(8, 200), 20261123, configurations, reboot=False) == []


@pytest.mark.parametrize("configuration", ["disk", "small memory"])
def test_a_few_remounts_lose_nothing(tmp_path: Path, configuration: str) -> None:
    need("ext4")
    assert power_cut_cycles(tmp_path, "ext4", 6, 1, [configuration], reboot=False) == []


@SNAPSHOTS
@pytest.mark.parametrize("cut", [False, True], ids=["unmounted", "lost"])
def test_a_remount_under_another_device_number_keeps_the_memory_tier(tmp_path: Path, kind: str, cut: bool) -> None:
    need(kind)
    with Machine(tmp_path, kind) as machine:
        path, device = machine.disk / "channel", os.stat(machine.disk).st_dev

        def work() -> None:
            channel = Channel(path, memory_dir=machine.memory, **_MEMORY)
            put(channel, *numbered(0, 20))
            assert take(channel, 5) == numbered(0, 5)
            put(channel, *numbered(20, 10))
            os.kill(os.getpid(), signal.SIGKILL)

        assert Child(work, tmp_path / "stderr").killed_itself(), (tmp_path / "stderr").read_text()
        if cut:
            machine.cut()
        machine.remount()
        assert os.stat(machine.disk).st_dev != device
        report = verify(path)
        assert (report.healthy, report.loss.count) == (True, 0), report.findings
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Channel(path) as channel:
                assert channel.stats().lost == channel.stats().doubtful == ()
                assert take(channel) == numbered(5, 25)
        assert list(machine.memory.iterdir()) == []


@SNAPSHOTS
@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("configuration", ["disk", "tiny memory"])
def test_a_snapshot_of_the_volume_holds_what_was_acknowledged_before(
    tmp_path: Path, kind: str, configuration: str
) -> None:
    need(kind)
    need("xfs")  # on which the volume lies as a file that can be cloned
    assert snapshots(tmp_path, kind, configuration, sized(3, 100)) == []


def snapshots(directory: Path, kind: str, configuration: str, count: int, mutant: str = "") -> list[str]:
    """Return what is wrong with snapshots of a volume whose channel is in use, every other one of a frozen disk.

    Args:
        directory: where everything goes, empty.
        kind: one of the machine's `FILE_SYSTEMS`.
        configuration: one of the workload's.
        count: how many snapshots.
        mutant: how the package is broken in the programs.
    """
    with Machine(directory, kind, snapshots=True) as machine:
        options = {"memory_dir": machine.memory}
        with Writers(machine.disk / "channel", directory, configuration, mutant, **options) as writers:
            for i in range(count):
                writers.get_on(40)
                before = writers.lines()
                with machine.snapshot(frozen=i % 2 == 1) as copy:
                    after = writers.lines()
                    try:
                        wrong = wrong_copy(copy / "channel", before, after)
                    except SpillableError as e:
                        wrong = [f"the snapshot can't be used: {e!r}"]
                if wrong:
                    return [f"snapshot {i}: {w}" for w in wrong]
            assert writers.alive()
            writers.kill()
            return writers.wrong()


# ── a disk that is gone for good ────────────────────────────────────────────────────────────────


def _mappings() -> Iterator[tuple[int, int]]:
    """Yield address and size of what this process has mapped of files named "head"."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) .*/head$", line):
            begin, end = (int(text, 16) for text in match.groups())
            yield begin, end - begin


def _page_out_the_head() -> None:
    """Let the kernel reclaim the pages of the head, as it does when memory is short."""
    for address, size in _mappings():
        ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _PAGE_OUT)


_USES: dict[str, Callable[[Channel], object]] = {
    "put": lambda channel: put(channel, b"too late"),
    "take": lambda channel: take(channel),
    "begin": lambda channel: channel.put_transaction().begin(),
    "stats": lambda channel: channel.stats(),
    "checkpoint": lambda channel: channel.checkpoint(),
    "close": lambda channel: channel.close(),
}


_DEATHS: dict[str, Callable[[Machine], None]] = {
    "the file system stopped": Machine.cut,
    "the disk is gone": Machine.lose_the_disk,
}


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.slow)])
@pytest.mark.parametrize("death", _DEATHS)
@pytest.mark.parametrize("use", _USES)
def test_a_dead_disk_and_a_head_that_memory_forgot_give_an_error_and_no_signal(
    tmp_path: Path, kind: str, death: str, use: str
) -> None:
    need(kind)
    with Machine(tmp_path, kind) as machine:

        def work() -> None:
            channel = Channel(machine.disk / "channel", minimum_required_space=0)
            put(channel, b"safe")
            os.sync()
            _page_out_the_head()
            _DEATHS[death](machine)
            machine.forget_cache()
            try:
                _USES[use](channel)
            except SpillableError:
                os._exit(3)

        ended = Child(work, tmp_path / "stderr", 300).wait()
        assert ended in ((3,) if use == "put" else (0, 3)), (
            f"ended with {ended}: {(tmp_path / 'stderr').read_text()[-2000:]}"
        )
