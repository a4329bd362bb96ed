from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.channel import option_change
from spillable_stream.channel.stored_options import stored_together
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.flow import assembling
from spillable_stream.flow.wired import Wired, agent_channel
from tests.support.waiting import wait_until


def test_a_try_that_is_under_way_has_not_closed_its_channel_and_does_so_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(assembling, "_LAST_SECONDS", 0.0)
    go_on, channel = threading.Event(), ss.Channel(tmp_path / "c")

    def assemble(begins: assembling.Begins) -> Wired:
        go_on.wait()
        return Wired({"c": agent_channel(channel)})

    attempt = assembling.Assembling("c", "the channel c is still being opened again", Wired(), assemble)
    assert not attempt.drop()
    assert "the channel c is still being opened again" in caplog.text
    go_on.set()
    wait_until(lambda: channel._open.has_ended)
    assert attempt.drop()


def test_a_stop_waits_for_a_try_that_takes_a_moment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A stop right after a change of a file failed, and warned of a loss."""
    go_on, channel = threading.Event(), ss.Channel(tmp_path / "c")

    class Ends(assembling.Assembling):
        def hangs(self) -> bool:
            go_on.set()
            return super().hangs()

    def assemble(begins: assembling.Begins) -> Wired:
        go_on.wait()
        return Wired({"c": agent_channel(channel)})

    assert Ends("c", "the channel c is still being opened again", Wired(), assemble).drop()
    assert channel._open.has_ended and not caplog.text


def test_a_try_that_hangs_names_the_component_at_which_it_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(assembling, "_LONG_SECONDS", 0.0)
    at_c2, go_on = threading.Event(), threading.Event()

    def assemble(begins: assembling.Begins) -> Wired:
        begins("the channel c1")
        begins("the channel c2")
        at_c2.set()
        go_on.wait()
        return Wired()

    attempt = assembling.Assembling("a1", "the configuration is still being assembled", Wired(), assemble)
    assert at_c2.wait(60) and attempt.hangs()
    assert "is still being assembled after 0 s, at the channel c2; check its disk" in caplog.text
    go_on.set()
    wait_until(attempt.drop)
    assert attempt.is_closed


def test_a_try_that_was_given_up_while_it_stored_options_restores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were those of a file that another one had replaced since, in all channels, and nobody restored them."""
    paths, begun, go_on = [tmp_path / "c1", tmp_path / "c2"], threading.Event(), threading.Event()
    for path in paths:
        ss.Channel(path, transaction_capacity=10).close()

    class Hangs(option_change._StoreOptions):
        def plan(self, plan: AppendPlan) -> CommitResult:
            begun.set()
            go_on.wait()
            return super().plan(plan)

    def assemble(begins: assembling.Begins) -> Wired:
        with ExitStack() as stack, stored_together(lambda: begins("the options that are stored")):
            for path in paths:
                stack.enter_context(ss.Channel(path, transaction_capacity=5))
        return Wired()

    monkeypatch.setattr(option_change, "_StoreOptions", Hangs)
    attempt = assembling.Assembling("a1", "the configuration is still being assembled", Wired(), assemble)
    assert begun.wait(60)
    attempt.give_up()
    go_on.set()
    wait_until(lambda: attempt.is_closed)
    with pytest.raises(ss.SpillableError, match="given up before the options"):
        attempt.result()
    for path in paths:
        with ss.Channel(path) as opened:
            assert opened.put_options().transaction_capacity == 10


def test_a_try_that_was_given_up_opens_nothing_more_and_stores_no_option(tmp_path: Path) -> None:
    """Else it would store options of a file that another one has replaced since."""
    begun, go_on = threading.Event(), threading.Event()
    channel = ss.Channel(tmp_path / "c", transaction_capacity=10)

    def assemble(begins: assembling.Begins) -> Wired:
        with stored_together(), ss.Channel(tmp_path / "c", transaction_capacity=5):
            begun.set()
            go_on.wait()
            begins("the options that are stored")
        return Wired()

    attempt = assembling.Assembling("a1", "the configuration is still being assembled", Wired(), assemble)
    assert begun.wait(60)
    attempt.give_up()
    go_on.set()
    wait_until(lambda: attempt.is_closed)
    with channel, pytest.raises(ss.SpillableError, match="given up before the options"):
        attempt.result()
    with ss.Channel(tmp_path / "c") as opened:
        assert opened.put_options().transaction_capacity == 10
