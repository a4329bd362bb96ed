"""Files of a channel that a cleaner takes away, or puts copies of in their place, under open handles."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from spillable_stream import Channel, SpillableError
from tests.lab.calls import stop_at, watching
from tests.lab.children import Child, wait_until
from tests.lab.contents import contents
from tests.lab.ledger import LedgerFile, Outcome, check
from tests.lab.size import sized
from tests.lab.uses import TIERS, options_of
from tests.lab.workload import put as put_and_write

STRAYS = ("lock", "open.lock", "checkpoint.lock", "head", "owner.json", "the newest log file", "groups", "checkpoint")
HOW = ("removed", "replaced")
_MAY_BE_REFUSED = ("the newest log file", "owner.json", "checkpoint")  # without them nothing proves what it is


def _stray(path: Path, name: str) -> Path:
    if name != "the newest log file":
        return path / name
    return max((path / "data").glob("log-*"))


def _lose(lost: Path, how: str) -> None:
    copy = lost.with_name("copy")
    if how == "replaced":
        (shutil.copytree if lost.is_dir() else shutil.copy)(lost, copy)
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    if how == "replaced":
        copy.rename(lost)


def _use_until_refused(channel: Channel, directory: Path, producer: str, rng: random.Random, go: Path | None) -> None:
    """Put, wait for a file if it is given, and put on until it is refused."""
    ledger = LedgerFile(directory / f"{producer}.ledger")
    put_and_write(channel, ledger, producer, 1, 3, 10)
    channel.engine().lock_timeout_seconds = 0.5  # from now on it may be refused
    (directory / f"{producer} is ready").touch()
    while go is not None and not go.exists():
        time.sleep(0.002)
    with contextlib.suppress(SpillableError):
        for number in range(2, 12):
            put_and_write(channel, ledger, producer, number, rng.randint(1, 5), 100)
            os.sched_yield()
    with contextlib.suppress(SpillableError):
        channel.checkpoint()
    with contextlib.suppress(SpillableError):
        channel.close()


def lost_file(directory: Path, configuration: str, name: str, how: str, seed: int = 1) -> list[str]:
    """Return what is wrong after a file of a channel went away under open handles of two processes, and a third came.

    Args:
        directory: where everything goes, empty.
        configuration: one of the workload's.
        name: one of `STRAYS`.
        how: one of `HOW`: replaced is a file of the same contents in its place.
        seed: chooses sizes.
    """
    path, go = directory / "channel", directory / "go"
    options = {**options_of(configuration), "lock_timeout": 60}
    Channel(path, **options).close()
    wrong: list[str] = []

    def use(producer: str, wait: bool) -> None:
        rng = random.Random(f"{seed} {producer}")
        _use_until_refused(Channel(path, **options), directory, producer, rng, go if wait else None)

    stderr = directory / "stderr"
    with Child(lambda: use("first", True), stderr) as first, Child(lambda: use("second", True), stderr) as second:
        ready = [directory / f"{producer} is ready" for producer in ("first", "second")]
        assert wait_until(lambda: all(map(Path.exists, ready))), stderr.read_text()
        acknowledged = Outcome.read(directory.glob("*.ledger")).acknowledged.keys()
        lost = _stray(path, name)
        if not lost.exists():
            return []
        _lose(lost, how)
        with Child(lambda: use("third", False), stderr) as third:
            go.touch()
            wrong += [f"{p} ended with {c.wait()}" for p, c in (("first", first), ("second", second)) if c.wait() != 0]
            third.wait()  # which may be refused
    outcome = Outcome.read(directory.glob("*.ledger"))
    try:
        with Channel(path, create=False) as channel:
            wrong += check(outcome, contents(channel))
    except SpillableError as e:
        new = outcome.acknowledged.keys() - acknowledged
        if name not in _MAY_BE_REFUSED:
            wrong.append(f"the channel can't be used: {e!r}")
        if new and name == "the newest log file":
            wrong.append(f"{len(new)} transactions were acknowledged into a file that is gone")
    return wrong


@pytest.mark.parametrize("configuration", ["disk", pytest.param("small memory", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", STRAYS)
@pytest.mark.parametrize("how", HOW)
def test_a_file_that_a_cleaner_takes_away_under_open_handles_costs_nothing_more(
    tmp_path: Path, configuration: str, name: str, how: str
) -> None:
    for seed in range(sized(1, 40)):
        (tmp_path / f"{seed}").mkdir()
        assert lost_file(tmp_path / f"{seed}", configuration, name, how, seed) == []


@TIERS
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("moment", [("half", "pwritev"), ("before", "fdatasync"), ("before", "publish")])
def test_a_lock_that_goes_away_in_the_middle_of_an_append_lets_nobody_write_over_it(
    tmp_path: Path, configuration: str, how: str, moment: tuple[str, str]
) -> None:
    """One process stands still in an append while another comes, which finds a lock of that name free."""
    if moment[1] == "fdatasync" and configuration != "disk":
        moment = ("before", "pwritev")
    path, options = tmp_path / "channel", options_of(configuration)
    ledgers = [LedgerFile(tmp_path / f"{name}.ledger") for name in ("still", "other")]
    with Channel(path, **options) as channel:
        put_and_write(channel, ledgers[1], "other", 1, 3, 10)

        def stand_still() -> None:
            with Channel(path, **options) as mine, watching(stop_at(*moment)):
                put_and_write(mine, ledgers[0], "still", 1, 3, 10)

        with Child(stand_still, tmp_path / "stderr") as still:
            assert still.wait_stopped(), (tmp_path / "stderr").read_text()
            (path / "lock").unlink()
            if how == "replaced":
                (path / "lock").touch()
            with contextlib.suppress(SpillableError), Channel(path, **options) as newcomer:
                put_and_write(newcomer, ledgers[1], "other", 2, 5, 10)
            with contextlib.suppress(SpillableError):
                put_and_write(channel, ledgers[1], "other", 3, 2, 10)
            os.kill(still.pid, signal.SIGCONT)
            still.wait()
        with contextlib.suppress(SpillableError):
            channel.close()
    with Channel(path, create=False) as channel:
        found = contents(channel)
    assert check(Outcome.read(tmp_path.glob("*.ledger")), found) == []
