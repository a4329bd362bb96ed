"""A signal closes channels: a real process is sent it, by its ID."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.termination import Terminated, calling_on_sigterm, exit_on_sigterm, interrupting_on_signals
from tests.support import pythons

PUTS = """
import sys, time
from spillable_stream import Channel, Event
from spillable_stream.termination import exit_on_sigterm

with exit_on_sigterm(), Channel(sys.argv[1], memory_capacity=1_000, minimum_required_space=0) as channel:
    for first in range(0, 100, 10):
        with channel.put_transaction() as tx:
            tx.put_many(Event(b"%d" % i) for i in range(first, first + 10))
    with channel.put_transaction() as tx:
        tx.put(Event(b"never committed"))
        print(*channel.stats().drain_order, flush=True)
        time.sleep(600)
"""


def test_what_is_in_memory_is_moved_to_disk(path: Path) -> None:
    with pythons.Popen([sys.executable, "-c", PUTS, path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "100\n"  # all in memory
        memory = Path(os.readlink(path / "memory"))
        assert memory.is_dir()
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 128 + signal.SIGTERM
    assert not memory.exists() and not (path / "memory").is_symlink()
    with Channel(path, create=False) as channel:
        order = channel.stats().drain_order
        assert sum(order) == -100 and max(order) < 0
        with channel.take_transaction() as tx:
            assert [event.body for event in tx.take_many(1_000)] == [b"%d" % i for i in range(100)]


def terminate_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_second_signal_does_not_disturb_the_end() -> None:
    ended = []
    with pytest.raises(SystemExit) as caught, exit_on_sigterm():
        try:
            terminate_self()
        finally:
            terminate_self()
            try:
                raise ValueError
            except ValueError:
                terminate_self()
            ended.append(True)
    assert caught.value.code == 143 and ended == [True]


def test_it_can_be_as_ctrl_c_is_once() -> None:
    ended = []
    with pytest.raises(Terminated), interrupting_on_signals():
        try:
            terminate_self()
        finally:
            terminate_self()
            ended.append(True)
    assert ended == [True] and issubclass(Terminated, KeyboardInterrupt)


def test_a_terminal_that_is_closed_ends_a_verb_unless_hangups_are_ignored() -> None:
    with pytest.raises(Terminated) as caught, interrupting_on_signals():
        os.kill(os.getpid(), signal.SIGHUP)
    assert caught.value.number == signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with interrupting_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_was_swallowed_can_be_sent_again() -> None:
    with exit_on_sigterm():
        for _ in range(2):
            with pytest.raises(SystemExit):
                terminate_self()


def test_the_old_handler_is_back_after_the_block() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    try:
        with exit_on_sigterm():
            pass
        terminate_self()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == [signal.SIGTERM]


def test_another_thread_is_refused() -> None:
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            with exit_on_sigterm():
                pass
        except ValueError as e:
            errors.append(e)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(errors) == 1


def test_sigterm_makes_a_call_while_the_block_runs_and_the_old_handler_is_back() -> None:
    before, calls = signal.getsignal(signal.SIGTERM), []
    with calling_on_sigterm(lambda: calls.append(1)):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert calls == [1, 1] and signal.getsignal(signal.SIGTERM) == before


def test_outside_of_the_main_thread_sigterm_stays_as_it_is() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def within() -> None:
        with calling_on_sigterm(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=within)
    thread.start()
    thread.join()
    assert seen == [before]


def test_blocks_that_run_at_once_are_all_called_and_the_old_handler_is_back_after_the_last_of_them() -> None:
    with exit_on_sigterm():
        before, calls = signal.getsignal(signal.SIGTERM), list[str]()
        first, second = (
            calling_on_sigterm(lambda: calls.append("first")),
            calling_on_sigterm(lambda: calls.append("second")),
        )
        first.__enter__()
        second.__enter__()
        terminate_self()
        first.__exit__(None, None, None)
        terminate_self()
        second.__exit__(None, None, None)
        assert calls == ["first", "second", "second"]
        assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_ends_a_child_that_was_forked_within_a_block() -> None:
    with calling_on_sigterm(lambda: None):
        child = os.fork()
        if not child:
            terminate_self()
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
