"""A change of options that other opens want too, take over, or take back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.channel import option_change
from spillable_stream.channel.stored_options import stored_together
from spillable_stream.errors import StorageError
from tests.support.forks import in_child


class HangingBlocks:
    """Blocks that store options of two channels, hang before those of the second one, and are given up.

    Args:
        place: where the channels are.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._go_on: dict[int, threading.Event] = {}
        self._threads: dict[int, threading.Thread] = {}

    def begin(self, block: int, **options: float) -> None:
        """Begin a block, and wait until it hangs."""
        hangs, self._go_on[block] = threading.Event(), threading.Event()
        self._threads[block] = threading.Thread(target=self._store, args=(options, hangs, self._go_on[block]))
        self._threads[block].start()
        assert hangs.wait(60)

    def fail(self, block: int) -> None:
        """Let a block fail, and wait for its end."""
        self._go_on[block].set()
        self._threads[block].join(60)
        assert not self._threads[block].is_alive()

    def _store(self, options: Any, hangs: threading.Event, go_on: threading.Event) -> None:
        asked = list[None]()

        def hang_at_second() -> None:
            asked.append(None)
            if len(asked) == 2:
                hangs.set()
                go_on.wait()
                raise StorageError("given up")

        opened: list[Channel] = []
        with pytest.raises(StorageError, match="given up"), stored_together(hang_at_second):
            opened += [Channel(self._place / name, **options) for name in ("a", "b")]
        for channel in opened:
            channel.close()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingBlocks]:
    for name in ("a", "b"):
        Channel(tmp_path / name, keep_alive=3.0, retention_ms=1000).close()
    yield HangingBlocks(tmp_path)
    assert not option_change._unsettled


def options_of_a(tmp_path: Path) -> tuple[object, object]:
    with Channel(tmp_path / "a", readonly=True) as view:
        return view.options["keep_alive"], view.options["retention_ms"]


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize("fails_within", [True, False])
def test_an_option_that_another_open_wants_too_stays_when_a_block_that_hung_takes_its_options_back(
    tmp_path: Path, hanging: HangingBlocks, is_together: bool, fails_within: bool
) -> None:
    """An agent ran from files with that option, and the channel had the value of files from long before."""
    hanging.begin(1, keep_alive=5.0, retention_ms=2000)
    with stored_together() if is_together else nullcontext():
        other = Channel(tmp_path / "a", keep_alive=5.0)
        if fails_within:  # the other block has not ended, and found its option stored
            hanging.fail(1)
    hanging.fail(1)
    with other:
        assert other.engine().follow().options.keep_alive == 5.0
    assert options_of_a(tmp_path) == (5.0, 1000)


@pytest.mark.parametrize("wanted", [{"keep_alive": 5.0}, {"keep_alive": 5.0, "retention_ms": 2000}])
def test_an_option_that_another_open_wants_stays_though_it_is_being_taken_back(
    tmp_path: Path,
    hanging: HangingBlocks,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wanted: dict[str, Any],
) -> None:
    """The block had looked whether the option was still as it had stored it."""
    store, opened = option_change._StoreOptions, list[Channel]()

    def late(*args: Any) -> object:
        if len(args) == 4:  # of one that takes options back
            opened.append(Channel(tmp_path / "a", **wanted))
        return store(*args)

    hanging.begin(1, keep_alive=5.0, retention_ms=2000)
    monkeypatch.setattr(option_change, "_StoreOptions", late)
    hanging.fail(1)
    opened[0].close()
    assert options_of_a(tmp_path) == (5.0, wanted.get("retention_ms", 1000))
    assert not caplog.records


@pytest.mark.parametrize("first", [1, 2])
def test_blocks_that_hung_leave_what_was_there_before_the_first_of_them_in_whatever_order_they_fail(
    tmp_path: Path, hanging: HangingBlocks, first: int
) -> None:
    hanging.begin(1, keep_alive=5.0, retention_ms=2000)
    hanging.begin(2, keep_alive=7.0)
    hanging.fail(first)
    hanging.fail(3 - first)
    assert options_of_a(tmp_path) == (3.0, 1000)


def test_a_block_that_is_refused_keeps_no_option_that_another_one_takes_back(
    tmp_path: Path, hanging: HangingBlocks
) -> None:
    def refuse() -> None:
        raise StorageError("refused")

    hanging.begin(1, keep_alive=5.0)
    with pytest.raises(StorageError, match="refused"), stored_together(refuse):
        other = Channel(tmp_path / "a", keep_alive=5.0)
    other.close()
    hanging.fail(1)
    assert options_of_a(tmp_path) == (3.0, 1000)


def test_a_forked_child_waits_for_no_thread_of_its_parent_that_stores_options(
    tmp_path: Path, hanging: HangingBlocks
) -> None:
    def open_one() -> bool:
        Channel(tmp_path / "c").close()
        with Channel(tmp_path / "c", keep_alive=5.0) as channel:
            return channel.options["keep_alive"] == 5.0 and not option_change._unsettled

    hanging.begin(1, keep_alive=5.0)
    with option_change._mutex:  # as where another thread has it
        in_child(open_one)
    hanging.fail(1)
