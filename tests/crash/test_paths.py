"""Paths that lead elsewhere under an open handle, files that a cleaner takes away, and a head that goes backwards."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, SpillableError
from spillable_stream.errors import ChannelClosedError, DataLossError
from tests.lab.calls import stop_at, watching
from tests.lab.children import Child, wait_until
from tests.lab.contents import CONSUMERS, changes, contents, files_that_count
from tests.lab.ledger import LedgerFile, Outcome, check
from tests.lab.size import sized
from tests.lab.workload import CONFIGURATIONS, OPTIONS
from tests.lab.workload import put as put_and_write
from tests.support.damage import kill, log_file
from tests.support.events import numbered, peek, put, take

TIERS = pytest.mark.parametrize("configuration", ["disk", "small memory"])


def options_of(configuration: str) -> dict[str, Any]:
    return {**OPTIONS, **CONFIGURATIONS[configuration], "checkpoint_interval": 1 << 50, "lock_timeout": 0.5}


def roll(channel: Channel) -> None:
    """Begin a new data file."""
    engine = channel.engine()
    with engine.committing():
        engine.log.tiers.disk.roll(engine.state.small)


# ── a path that leads to another channel ────────────────────────────────────────────────────────


def _rename_away(path: Path, other: Path) -> Path:
    old = path.with_name("old")
    path.rename(old)
    other.rename(path)
    return old


def _remove(path: Path, other: Path) -> Path:
    shutil.rmtree(path)
    other.rename(path)
    return path.with_name("nowhere")


def _switch_a_link(path: Path, other: Path) -> Path:
    old = Path(os.readlink(path))
    path.unlink()
    path.symlink_to(other)
    return old


def _switch_a_link_above(path: Path, other: Path) -> Path:
    old = Path(os.readlink(path.parent)) / path.name
    path.parent.unlink()
    path.parent.symlink_to(other.parent)
    other.rename(other.with_name(path.name))
    return old


# How a path is switched, from where it led to another channel; each returns where the first channel is then.
SWITCHES: dict[str, Callable[[Path, Path], Path]] = {
    "renamed": _rename_away,
    "removed": _remove,
    "a link": _switch_a_link,
    "a link above": _switch_a_link_above,
}
USES: dict[str, Callable[[Channel], object]] = {
    "put": lambda channel: put(channel, b"too late"),
    "a staged put": lambda channel: put(channel, b"x" * 20_000),
    "take": lambda channel: take(channel, 2, CONSUMERS),
    "checkpoint": Channel.checkpoint,
    "roll": roll,
    "flush": Channel.flush,
}
_DOES_NOTHING = {"flush"}  # on a channel without a memory tier


def _first_path(directory: Path, switch: str) -> Path:
    """Return the path of a channel that can be switched in one way, its directories made."""
    if switch == "a link":
        (directory / "first").mkdir()
        (directory / "channel").symlink_to(directory / "first")
        return directory / "channel"
    if switch == "a link above":
        (directory / "first").mkdir()
        (directory / "above").symlink_to(directory / "first")
        return directory / "above" / "channel"
    return directory / "channel"


def switched(directory: Path, configuration: str, switch: str, use: str) -> list[str]:
    """Return what is wrong after a handle was used whose path leads to another channel.

    Args:
        directory: where everything goes, empty.
        configuration: one of the workload's.
        switch: one of `SWITCHES`.
        use: one of `USES`, or "close".
    """
    path, other, options = _first_path(directory, switch), directory / "second" / "other", options_of(configuration)
    other.parent.mkdir()
    (directory / "memory").mkdir()
    options["memory_dir"] = directory / "memory"
    wrong: list[str] = []
    first = Channel(path, **options)
    take(first, 1, CONSUMERS)
    put(first, *numbered(0, 10))
    second = Channel(other, **options)
    take(second, 1, CONSUMERS)
    put(second, *numbered(100, 10))
    kill(second)  # so that its memory tier stays
    old = SWITCHES[switch](path, other)
    before = _everything(path)
    for what, do in ((use, USES[use]), ("close", Channel.close)) if use in USES else (("close", Channel.close),):
        try:
            do(first)
            if what != "close" and not (what in _DOES_NOTHING and configuration == "disk"):
                wrong.append("it went through")
        except ChannelClosedError:
            pass
        except SpillableError as e:
            wrong.append(f"{what} raised {e!r}")
    wrong += [f"{name} of the other channel was changed" for name in changes(before, _everything(path))]
    wrong += _wrong_events(path, numbered(100, 10)) + (_wrong_events(old, numbered(0, 10)) if old.exists() else [])
    return [f"{switch}, {use}: {w}" for w in wrong]


def _wrong_events(path: Path, expected: list[bytes]) -> list[str]:
    try:
        with Channel(path, create=False) as channel:
            found = peek(channel, 100, "reader")
    except SpillableError as e:
        return [f"{path} can't be used: {e!r}"]
    return [] if found == expected else [f"the events of {path} are not what they were: {found}"]


def _everything(path: Path) -> dict[str, bytes]:
    """Return the files of a channel with its head and what is behind the link to its memory tier."""
    files = dict(files_that_count(path.resolve()))
    files["head"] = (path / "head").read_bytes()
    if (path / "memory").exists():
        files.update({f"memory/{f.name}": f.read_bytes() for f in (path / "memory").iterdir()})
    return files


@TIERS
@pytest.mark.parametrize("switch", SWITCHES)
def test_a_handle_whose_path_leads_to_another_channel_touches_nothing_of_it(
    tmp_path: Path, configuration: str, switch: str
) -> None:
    wrong: list[str] = []
    for use in (*USES, "close"):
        (tmp_path / use).mkdir()
        wrong += switched(tmp_path / use, configuration, switch, use)
    assert wrong == []


@pytest.mark.parametrize("option", ["data_dirs", "checkpoint_dir"])
@pytest.mark.parametrize("use", ["put", "checkpoint", "roll", "close"])
def test_a_handle_one_of_whose_directories_was_switched_touches_nothing_in_the_new_one(
    tmp_path: Path, option: str, use: str
) -> None:
    """Another disk was mounted there, say, with the directory of another channel."""
    elsewhere, other = tmp_path / "elsewhere", tmp_path / "other elsewhere"
    options = options_of("disk")
    first, second = (
        Channel(tmp_path / name, **options, **{option: [str(at)] if option == "data_dirs" else str(at)})
        for name, at in (("first", elsewhere), ("second", other))
    )
    for channel in (first, second):
        put(channel, *numbered(0, 10))
        channel.checkpoint()
        channel.checkpoint()
    second.close()
    elsewhere.rename(tmp_path / "old")
    other.rename(elsewhere)
    before = files_that_count(elsewhere)
    try:
        (Channel.close if use == "close" else USES[use])(first)
        went_through = use != "close"
    except (ChannelClosedError, DataLossError):  # which says that the newest data file was replaced
        went_through = False
    assert changes(before, files_that_count(elsewhere)) == []
    if use != "close":
        kill(first)
    elsewhere.rename(other)
    (tmp_path / "old").rename(elsewhere)
    with Channel(tmp_path / "second") as channel:
        assert peek(channel) == numbered(0, 10)
    with Channel(tmp_path / "first") as channel:
        expected = [*numbered(0, 10), *([b"too late"] if use == "put" and went_through else [])]
        assert peek(channel) == expected
    assert not went_through or (use == "checkpoint") != (option == "checkpoint_dir"), "it went on in an old directory"


def test_a_handle_whose_directory_was_renamed_and_renamed_back_continues(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    with Channel(path, **options_of("disk")) as channel:
        put(channel, b"0")
        path.rename(tmp_path / "away")
        with pytest.raises(ChannelClosedError):
            put(channel, b"lost")
        (tmp_path / "away").rename(path)
    with Channel(path) as channel:
        put(channel, b"1")
        assert take(channel) == [b"0", b"1"]


# ── files that a cleaner takes away ─────────────────────────────────────────────────────────────

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


# ── a head that goes backwards ──────────────────────────────────────────────────────────────────

_MORE: dict[str, Callable[[Channel], object]] = {
    "put": lambda channel: put(channel, *numbered(5, 5)),
    "many puts": lambda channel: [put(channel, body) for body in numbered(5, 5)],
    "roll": lambda channel: (put(channel, *numbered(5, 5)), roll(channel)),
    "roll and put": lambda channel: (put(channel, *numbered(5, 2)), roll(channel), put(channel, *numbered(7, 3))),
    "checkpoint": lambda channel: (put(channel, *numbered(5, 5)), channel.checkpoint(), channel.checkpoint()),
}


def backwards(directory: Path, configuration: str, more: str, use: str, *, marked: bool) -> list[str]:
    """Return what is wrong after the head of a channel that two handles have open became what it was.

    Args:
        directory: where everything goes, empty.
        configuration: one of the workload's.
        more: what was done since, one of `_MORE`.
        use: what is done then, one of `USES`, or "open" or "close".
        marked: whether it is the head of a moment at which an append was under way.
    """
    path, options = directory / "channel", options_of(configuration)
    heads: list[bytes] = []
    first = Channel(path, **options)
    put(first, *numbered(0, 5))
    assert take(first, 1, CONSUMERS) == [b"0"]
    second = Channel(path, **options)
    if not marked:
        heads.append((path / "head").read_bytes())

    def keep(moment: Any) -> None:
        if (moment.when, moment.name) == ("before", "pwritev") and not heads:  # after the mark
            heads.append((path / "head").read_bytes())

    with watching(keep):
        _MORE[more](first)
    assert second.stats().last_id == 10
    with (path / "head").open("r+b") as head:
        head.write(heads[0])
    wrong, expected = [], numbered(1, 9)
    for name, channel in ("first", first), ("second", second):
        if use in USES and (use, name) != ("take", "second"):  # the group is the first one's
            with contextlib.suppress(SpillableError):
                USES[use](channel)
                wrong += [f"the {name} handle went on"] if name == "first" else []
                expected += [b"too late"] if use == "put" else []
    if use == "open":
        with contextlib.suppress(SpillableError):
            Channel(path).close()
    for channel in (first, second):
        with contextlib.suppress(SpillableError):
            channel.close()
    try:
        with Channel(path, create=False) as channel:
            held = peek(channel, 100, CONSUMERS)
            lost = channel.stats().lost
    except SpillableError as e:
        held, lost = [], ()
        wrong.append(f"it can't be used: {e!r}")
    if held != expected or lost:
        wrong.append(f"it holds {held}, and reports {lost}")
    return [f"{more}, {use}{', marked' if marked else ''}: {w}" for w in wrong]


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])  # one without, the next one with a mark
@TIERS
@pytest.mark.parametrize("use", ["put", "take", "checkpoint", "roll", "open", "close"])
def test_a_head_that_goes_backwards_under_live_handles_takes_nothing_back(
    tmp_path: Path, configuration: str, use: str, every: int
) -> None:
    """Whoever restores it, or a file system that loses a page, writes what the head said a while ago."""
    wrong: list[str] = []
    ways = [(more, marked) for i, more in enumerate(_MORE) for marked in (i % 2 == 0, i % 2 == 1)]
    for more, marked in ways[configuration != "disk" and every > 1 :: every]:
        directory = tmp_path / f"{more} {marked}"
        directory.mkdir()
        wrong += backwards(directory, configuration, more, use, marked=marked)
    assert wrong == []


def test_what_a_killed_writer_left_is_cut_and_what_it_had_acknowledged_is_not(tmp_path: Path) -> None:
    """Behind the published end there is at most one append of a writer that was killed; the head counts, it is held."""
    path, options = tmp_path / "channel", options_of("disk")
    with Channel(path, **options) as channel:
        put(channel, *numbered(0, 3))
        for i in range(3):

            def die(i: int = i) -> None:
                with Channel(path, **options) as mine:
                    put(mine, b"acknowledged %d" % i)
                    with watching(stop_at("before", "publish")):
                        put(mine, b"not acknowledged")

            with Child(die, tmp_path / "stderr") as child:
                assert child.wait_stopped(), (tmp_path / "stderr").read_text()
                child.kill()
        put(channel, b"last")
        expected = [*numbered(0, 3), *(b"acknowledged %d" % i for i in range(3)), b"last"]
        assert peek(channel) == expected
    assert log_file(path).exists()
    with Channel(path) as channel:
        assert peek(channel) == expected


def test_a_roll_that_was_killed_leaves_no_file_in_the_way(tmp_path: Path) -> None:
    """Somebody else has the channel open: nobody comes first, and the next holder of the lock cleans up."""
    path, options = tmp_path / "channel", options_of("disk")
    with Channel(path, **options) as channel:
        put(channel, b"a")

        def die() -> None:
            with Channel(path, **options) as mine, watching(stop_at("before", "fdatasync")):
                roll(mine)

        with Child(die, tmp_path / "stderr") as child:
            assert child.wait_stopped(), (tmp_path / "stderr").read_text()
            child.kill()
        assert log_file(path, 2).exists()
        put(channel, b"b")
        roll(channel)
        put(channel, b"c")
    with Channel(path) as channel:
        assert peek(channel) == [b"a", b"b", b"c"]


def test_a_head_that_is_damaged_while_it_counts_takes_nothing_back(tmp_path: Path) -> None:
    """The slot that is left is the one before: whoever believed it would write over the last commit."""
    for offset in range(0, 88, 13):
        path, options = tmp_path / f"{offset}", {**options_of("disk"), "lock_timeout": 0.05}
        first = Channel(path, **options)
        for body in (b"a", b"b", b"c"):
            put(first, body)
        head = bytearray((path / "head").read_bytes())
        newer = max((0, 128), key=lambda slot: int.from_bytes(head[slot : slot + 8], "little"))
        head[newer + offset] ^= 1
        (path / "head").write_bytes(head)
        expected = [b"a", b"b", b"c"]
        with contextlib.suppress(SpillableError), Channel(path, **options) as second:
            put(second, b"second")
            expected.append(b"second")
        with contextlib.suppress(SpillableError):
            put(first, b"first")
            expected.append(b"first")
        kill(first)
        with Channel(path) as channel:
            assert peek(channel) == expected
