"""A head that goes backwards or is damaged while it counts, and what killed writers left behind its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, SpillableError
from tests.lab.calls import stop_at, watching
from tests.lab.children import Child
from tests.lab.contents import CONSUMERS
from tests.lab.uses import TIERS, USES, options_of, roll
from tests.support.damage import kill, log_file
from tests.support.events import numbered, peek, put, take

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
