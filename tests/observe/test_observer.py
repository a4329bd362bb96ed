"""Many channels at a time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path

import pytest

from spillable_stream import Channel, ChannelStats, OptionError
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observed_channel import ObservedChannel
from spillable_stream.observe.observer import Observer
from tests.support.damage import log_file
from tests.support.events import put

Open = Callable[..., Channel]


def hold_up(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let looks at a channel hang until an event is set, and return it."""
    free, real = threading.Event(), channel.stats

    def stats() -> ChannelStats:
        assert free.wait(60)
        return real()

    monkeypatch.setattr(channel, "stats", stats)
    return free


def test_each_channel_is_one_observation_in_order_and_a_failure_is_one_too(tmp_path: Path) -> None:
    good, bad, missing = (tmp_path / name for name in ("good", "bad", "missing"))
    for path in (good, bad):
        with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
            put(channel, b"a")
    log_file(bad).write_bytes(bytes(4096))
    (bad / "channel.json").write_text("no")
    (tmp_path / "file").write_text("no channel")
    with Observer([bad, good, missing, tmp_path / "file", "s4://nowhere/x"]) as observer:
        found = observer.observe()
        assert [seen.path for seen in found] == [
            str(p) for p in (bad, good, missing, tmp_path / "file", "s4://nowhere/x")
        ]
        assert [seen.stats is not None for seen in found] == [False, True, False, False, False]
        assert all(seen.problem.partition(": ")[2] for seen in found if seen.stats is None)


def test_nothing_to_look_at_and_the_same_twice_are_refused(path: Path) -> None:
    with pytest.raises(OptionError, match="at least one channel"):
        Observer([])
    with pytest.raises(OptionError, match=f"{path} is given twice"):
        Observer([path, str(path)])


def test_a_look_that_hangs_holds_up_no_other(
    open_channel: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = open_channel()
    free = hold_up(slow, monkeypatch)
    other = Channel(tmp_path / "other", minimum_required_space=0)
    with other, Observer([slow, other], timeout_seconds=0.05) as o:
        for _ in range(2):
            while (fine := (found := o.observe())[1]).stats is None:
                assert "has not answered" in fine.problem or fine.is_to_come  # as on a busy machine
            assert found[0].stats is None and "has not answered for more than 0.05 s" in found[0].problem
        free.set()
        while o.observe()[0].stats is None:
            pass


def test_of_more_channels_than_can_be_looked_at_at_once_the_others_have_their_turn(
    open_channel: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = open_channel()
    free = hold_up(slow, monkeypatch)
    monkeypatch.setattr("spillable_stream.observe.observer._MOST_THREADS", 1)
    other = Channel(tmp_path / "other", minimum_required_space=0)
    with other, Observer([slow, other], timeout_seconds=0.05) as observer:
        while (found := observer.observe())[0].is_to_come:  # its thread has yet to begin
            assert found[1].is_to_come
        assert "has not answered" in found[0].problem and found[1].is_to_come
        free.set()
        while any(seen.stats is None for seen in observer.observe()):
            pass


def test_channels_that_fit_a_pattern_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillable_stream.observe.channel_discovery._SEARCH_SECONDS", 0.0)
    with Observer([f"{tmp_path}/orders-*"]) as observer:
        (none,) = observer.observe()
        assert (none.path, none.problem) == (f"{tmp_path}/orders-*", "no channel fits it, so far")
        for name in ("orders-1", "orders-2"):
            Channel(tmp_path / name, minimum_required_space=0).close()
        assert [seen.stats is not None for seen in observer.observe()] == [True, True]
        shutil.rmtree(tmp_path / "orders-1")
        (left,) = observer.observe()
        assert left.path == f"{tmp_path}/orders-2" and left.stats is not None


def test_a_channel_that_is_gone_and_hangs_as_it_is_closed_takes_no_thread_from_the_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, close, closing = ObservedChannel.look, ObservedChannel.close, threading.Event()
    of_a, of_first, end_of_a = threading.Event(), threading.Event(), threading.Event()
    hanging: list[str] = []

    def look_or_hang(channel: ObservedChannel) -> Observation:
        if Path(channel.path).name == "a":
            assert of_a.wait(60)
            return Observation(channel.path, 0.0)
        if not hanging:
            hanging.append(channel.path)
            assert of_first.wait(60)
        return look(channel)

    def close_or_hang(channel: ObservedChannel) -> None:
        if Path(channel.path).name == "a":
            closing.set()
            assert end_of_a.wait(60)
        close(channel)

    monkeypatch.setattr(ObservedChannel, "look", look_or_hang)
    monkeypatch.setattr(ObservedChannel, "close", close_or_hang)
    monkeypatch.setattr("spillable_stream.observe.channel_discovery._SEARCH_SECONDS", 0.0)
    Channel(tmp_path / "a").close()
    with Observer([tmp_path / "*"], timeout_seconds=1.0) as observer:
        observer.observe()
        shutil.rmtree(tmp_path / "a")
        observer.observe()
        of_a.set()
        assert closing.wait(60)
        for name in "bc":
            Channel(tmp_path / name).close()
        assert [seen.path in hanging for seen in observer.observe() if seen.stats is None] == [True]
        of_first.set()
        end_of_a.set()


@pytest.mark.parametrize("hangs_in", ["look", "close"])
def test_a_close_does_not_wait_for_a_channel_that_is_gone_and_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs_in: str
) -> None:
    gates = {"look": threading.Event(), "close": threading.Event()}
    is_there = threading.Event()

    def hang(channel: ObservedChannel, call: str) -> Observation:
        if call == hangs_in:
            is_there.set()
        assert gates[call].wait(60)
        return Observation(channel.path, 0.0)

    for call in gates:
        monkeypatch.setattr(ObservedChannel, call, partialmethod(hang, call))
    monkeypatch.setattr("spillable_stream.observe.channel_discovery._SEARCH_SECONDS", 0.0)
    Channel(tmp_path / "a").close()
    observer = Observer([tmp_path / "*"], timeout_seconds=0.2)
    observer.observe()
    shutil.rmtree(tmp_path / "a")
    observer.observe()
    if hangs_in == "close":
        gates["look"].set()
    assert is_there.wait(60)
    closing = threading.Thread(target=observer.close, daemon=True)
    closing.start()
    closing.join(30)  # less than what hangs
    is_waiting = closing.is_alive()
    for gate in gates.values():
        gate.set()
    closing.join(60)
    assert not is_waiting and not closing.is_alive()


def test_a_channel_that_is_gone_and_hangs_as_it_is_closed_holds_up_no_look_and_no_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, free, done, close = threading.Event(), threading.Event(), threading.Event(), ObservedChannel.close

    def hang(channel: ObservedChannel) -> None:
        if Path(channel.path).name == "a":
            closing.set()
            assert free.wait(60)
        close(channel)

    def work() -> None:
        observer.observe()
        assert closing.wait(60)
        observer.observe()
        observer.close()
        done.set()

    monkeypatch.setattr(ObservedChannel, "close", hang)
    monkeypatch.setattr("spillable_stream.observe.channel_discovery._SEARCH_SECONDS", 0.0)
    for name in "ab":
        Channel(tmp_path / name).close()
    observer = Observer([tmp_path / "*"], timeout_seconds=0.2)
    while any(seen.stats is None for seen in observer.observe()):
        pass
    shutil.rmtree(tmp_path / "a")
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    has_ended = done.wait(30)
    free.set()
    thread.join(60)
    assert has_ended


def test_a_recent_look_is_used_again_if_that_is_wanted(open_channel: Open) -> None:
    now = [1000.0]
    channel = open_channel()
    with Observer([channel], clock=lambda: now[0]) as observer:
        first = observer.observe()
        now[0] += 0.4
        assert observer.observe(max_age_seconds=0.5) is first
        assert observer.observe() is not first
        second = observer.observe()
        now[0] += 0.6
        assert observer.observe(max_age_seconds=0.5) is not second


def test_it_does_not_write_and_leaves_the_channels_as_they_are(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    before = {p: (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"") for p in path.rglob("*")}
    with Observer([path]) as observer:
        assert observer.observe()[0].stats is not None
    after = {p: (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"") for p in path.rglob("*")}
    assert after == before


def test_a_channel_in_a_store_is_looked_at_like_one_on_a_disk(tmp_path: Path) -> None:
    address = f"object+file://{tmp_path}/orders"
    with Channel(address) as channel, Observer([address]) as observer:
        observer.observe()
        put(channel, b"a", b"b")
        (seen,) = observer.observe()
        assert seen.stats is not None and seen.stats.channel_size == 2
        assert seen.rates is not None and seen.rates.syncs > 0 and seen.rates.puts > 0


def test_a_process_ends_though_a_look_hangs(path: Path) -> None:
    Channel(path, minimum_required_space=0).close()
    program = """if True:
        import sys, threading
        from spillable_stream.observe.observed_channel import ObservedChannel
        from spillable_stream.observe.observer import Observer

        ObservedChannel.look = lambda self: threading.Event().wait()
        with Observer(sys.argv[1:], timeout_seconds=0.05) as observer:
            while not observer.observe()[0].problem.endswith("check its disk or its store"):
                pass  # it has yet to be found
            print(True, flush=True)
    """
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_a_close_does_not_wait_for_a_search_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    def hang(_: str) -> list[str]:
        assert free.wait(60)
        return []

    monkeypatch.setattr("spillable_stream.observe.channel_discovery.channels_matching", hang)
    observer = Observer([f"{tmp_path}/c*"], timeout_seconds=0.05)
    assert "has not been found out yet" in observer.observe()[0].problem
    closing = threading.Thread(target=observer.close, daemon=True)
    closing.start()
    closing.join(30)  # less than what hangs
    is_hanging = closing.is_alive()
    free.set()
    closing.join(60)
    assert not is_hanging and not closing.is_alive()
