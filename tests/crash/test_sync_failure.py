"""Syncs that fail, for real and injected: never tried again, and nothing that they cover is acknowledged.

python -m tests.crash.test_sync_failure CHANNEL LEDGER SEED CONFIGURATION MUTANT
"""

from __future__ import annotations

import random
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from spillable_stream import Channel, SpillableError
from spillable_stream.errors import MemoryLossWarning, TornTailWarning
from tests.lab.calls import NEEDS_STRACE, strace
from tests.lab.children import mutate
from tests.lab.contents import contents
from tests.lab.ledger import LedgerFile, Outcome, check, whole_lines
from tests.lab.machine import THIN, THIN_METADATA_BYTES, Machine, missing
from tests.lab.size import sized
from tests.lab.workload import CONFIGURATIONS, OPTIONS, Program, put

_GRAIN = 8  # frames begin and end at multiples of it
ROOM_BYTES = 24 << 20  # under a file system of 64 MiB
_SYNC = re.compile(r"f(?:data)?sync\(\d+<([^>]*)>\) += (-?\d+)")
_WRITE = re.compile(r"pwritev2?\(\d+<([^>]*)>, .*, (\d+)\) += (\d+)")
_TRUNCATE = re.compile(r"ftruncate\(\d+<([^>]*)>, (\d+)\) += 0")
_UNLINK = re.compile(r'unlink(?:at)?\((?:AT_FDCWD(?:<[^>]*>)?, )?"([^"]*)"')
_LEDGER = re.compile(r'write\(\d+<[^>]*\.ledger>, "(\w+)')


def flood(path: Path, ledger: LedgerFile, seed: int) -> None:
    """Put until the disk has failed several times; each failure must be one of this package's errors."""
    rng = random.Random(seed)
    options = {
        **OPTIONS,
        "max_file_size": rng.choice([1 << 20, 1 << 30]),
        "max_inline_bytes": rng.choice([8000, 1 << 20]),
    }
    errors = number = 0
    channel: Channel | None = None
    while errors < 6:
        try:
            channel = channel or Channel(path, **options)
            number += 1
            put(channel, ledger, f"flood-{errors}", number, rng.randint(1, 20), rng.choice([100, 20_000]))
        except SpillableError as e:
            errors += 1
            ledger.write("error", repr(e))
            if channel is not None and channel.engine().log.lock.failed:
                with suppress(SpillableError):
                    channel.close()
                channel = None


class Bytes:
    """Which bytes of a file were written since it was synced, and which of these a failed sync may have dropped."""

    def __init__(self) -> None:
        self.unsynced: set[int] = set()  # pages of so many bytes
        self.dropped: set[int] = set()

    def write(self, offset: int, size: int) -> None:
        """Note a write: what was dropped is there again if all of it is written."""
        pages = set(range(offset // _GRAIN, -(-(offset + size) // _GRAIN)))
        whole = set(range(-(-offset // _GRAIN), (offset + size) // _GRAIN))
        self.unsynced |= pages
        self.dropped -= whole

    def truncate(self, size: int) -> None:
        """Note a cut."""
        self.unsynced = {page for page in self.unsynced if page * _GRAIN < size}
        self.dropped = {page for page in self.dropped if page * _GRAIN < size}

    def sync(self, succeeded: bool) -> bool:
        """Note a sync and tell whether it can be believed."""
        if not succeeded:
            self.dropped |= self.unsynced
        self.unsynced = set()
        return not succeeded or not self.dropped


def wrong_syncs(trace: Iterable[str]) -> list[str]:
    """Return which syncs were tried again after they had failed, and which transactions that such ones cover count.

    A sync of a file is one that is tried again if what a failed one covered was not written again. Directories
    hold nothing that is written.

    Args:
        trace: the lines that strace wrote, with paths.
    """
    wrong: list[str] = []
    files: defaultdict[str, Bytes] = defaultdict(Bytes)
    begun = covered = False  # a transaction is being committed; a failed sync covers it
    for line in trace:
        if match := _SYNC.search(line):
            if not files[match[1]].sync(match[2] == "0"):
                wrong.append(f"{match[1]} was synced again after that had failed")
            if match[2] != "0":
                covered = begun and "/checkpoint/" not in f"{match[1]}/"  # that is written after the commit
        elif match := _WRITE.search(line):
            files[match[1]].write(int(match[2]), int(match[3]))
        elif match := _TRUNCATE.search(line):
            files[match[1]].truncate(int(match[2]))
        elif match := _UNLINK.search(line):
            files.pop(match[1], None)
        elif match := _LEDGER.search(line):
            if match[1] == "ack" and covered:
                wrong.append("a transaction was acknowledged though a sync for it had failed")
            begun, covered = match[1] in ("put", "take"), False
    return wrong


def failures(trace: Path) -> int:
    """Return how many syncs failed."""
    return sum(match[2] != "0" for match in map(_SYNC.search, trace.read_text(errors="replace").splitlines()) if match)


def fill_a_thin_disk(directory: Path, seed: int, mutant: str = "") -> list[str]:
    """Return what is wrong after a disk that is smaller than it says has failed.

    Args:
        directory: where everything goes, empty.
        seed: chooses sizes, and by its parity whether the file system fails with its files.
        mutant: how the package is broken.
    """
    trace, ledger = directory / "trace", directory / "flood.ledger"
    (directory / "machine").mkdir()
    with Machine(directory / "machine", THIN, ROOM_BYTES, seed % 2 * THIN_METADATA_BYTES) as machine:
        path = machine.disk / "channel"
        code = strace([*_program(path, ledger, seed, "flood"), mutant], trace)
        if code:
            return [f"the program ended with {code}"]
        wrong = wrong_syncs(trace.read_text(errors="replace").splitlines())
        machine.forget_cache()
        machine.make_room(1 << 30)
        machine.restart()
        lines = whole_lines(ledger)
        ledger.write_text("".join(f"{line}\n" for line in lines if not line.startswith("error")))
        return wrong + wrong_contents(path, "disk", [ledger])


def fail_a_sync(directory: Path, syscall: str, number: int, configuration: str, mutant: str = "") -> list[str] | None:
    """Return what is wrong after one sync of the program has failed, None if it has not so many.

    Args:
        directory: where everything goes, empty.
        syscall: "fdatasync" or "fsync".
        number: which one, from 1.
        configuration: one of the workload's.
        mutant: how the package is broken.
    """
    path, trace, ledger = (directory / name for name in ("channel", "trace", "program.ledger"))
    program = [*_program(path, ledger, 1, configuration), mutant]
    code = strace(program, trace, f"--inject={syscall}:error=EIO:when={number}")
    if code:
        return [f"the program ended with {code}"]
    if not failures(trace):
        return None
    wrong = wrong_syncs(trace.read_text(errors="replace").splitlines())
    return wrong + wrong_contents(path, configuration, [ledger])


def wrong_contents(path: Path, configuration: str, ledgers: Iterable[Path]) -> list[str]:
    """Return what is wrong with what a channel holds, opened again."""
    outcome = Outcome.read(ledgers)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            warnings.simplefilter("ignore", MemoryLossWarning)
            with Channel(path, **OPTIONS, **CONFIGURATIONS[configuration]) as channel:
                return check(outcome, contents(channel))
    except SpillableError as e:
        return [f"the channel can't be used: {e!r}"]


def _program(path: Path, ledger: Path, seed: int, configuration: str) -> list[str]:
    return ["-m", "tests.crash.test_sync_failure", str(path), str(ledger), str(seed), configuration]


@NEEDS_STRACE
@pytest.mark.crash
@pytest.mark.timeout(600)
def test_what_was_acknowledged_before_a_real_sync_failure_is_on_the_disk(tmp_path: Path) -> None:
    if why := missing(THIN):
        pytest.skip(why)
    failed = 0
    for seed in range(sized(3, 20)):
        directory = tmp_path / str(seed)
        directory.mkdir()
        assert (seed, fill_a_thin_disk(directory, seed)) == (seed, [])
        failed += failures(directory / "trace")
    assert failed, "the disks became read-only before a sync failed"


@NEEDS_STRACE
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("syscall", "numbers"), [("fdatasync", sized(4, 50)), ("fsync", sized(2, 30))])
def test_a_failed_sync_is_not_tried_again_and_covers_nothing(tmp_path: Path, syscall: str, numbers: int) -> None:
    tiers = ["disk", "small memory"]
    for number in range(1, numbers + 1):
        for configuration in tiers if sized(0, 1) else [tiers[number % 2]]:
            directory = tmp_path / f"{number}-{configuration}"
            directory.mkdir()
            wrong = fail_a_sync(directory, syscall, number, configuration)
            assert (number, configuration, wrong or []) == (number, configuration, [])


def test_the_trace_tells_on_who_tries_again() -> None:
    path = "/c/data/log-000001"
    sync, failed = f"1 fdatasync(5<{path}>) = 0", f"1 fdatasync(5<{path}>) = -1 EIO (Injected)"
    first, second = (f'1 pwritev(5<{path}>, [{{iov_base="x", iov_len=80}}], 1, {at}) = 80' for at in (0, 80))
    begin, answer, refused = (f'1 write(4</c/p.ledger>, "{word} p 1\\n", 8) = 8' for word in ("put", "ack", "not"))
    again = [f"{path} was synced again after that had failed"]
    assert wrong_syncs([begin, first, sync, answer, begin, second, failed, refused, begin, answer]) == []
    assert wrong_syncs([first, failed, f'1 unlink("{path}") = 0', sync]) == []
    assert wrong_syncs([first, failed, first, sync]) == wrong_syncs([failed, sync]) == []
    assert wrong_syncs([first, failed, f"1 ftruncate(5<{path}>, 0) = 0", sync]) == []
    assert wrong_syncs([begin, first, failed, refused, sync]) == wrong_syncs([first, failed, second, sync]) == again
    assert wrong_syncs([begin, failed, answer]) == ["a transaction was acknowledged though a sync for it had failed"]
    for behind in "/c/checkpoint/checkpoint-000001-000000000001.tmp", "/c/checkpoint":
        assert wrong_syncs([begin, first, sync, f"1 fsync(5<{behind}>) = -1 EIO (Injected)", answer]) == []


def main(path: str, ledger: str, seed: str, configuration: str, mutant: str) -> None:
    """Work on, whatever fails."""
    warnings.simplefilter("ignore")
    mutate(mutant)
    if configuration == "flood":
        flood(Path(path), LedgerFile(Path(ledger)), int(seed))
    else:
        Program(Path(path), LedgerFile(Path(ledger)), configuration, 1, int(seed)).run_whatever_fails()


if __name__ == "__main__":
    main(*sys.argv[1:])
