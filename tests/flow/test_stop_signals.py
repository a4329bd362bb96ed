from __future__ import annotations

import os
import signal
import threading

from spillable_stream.flow.stop_signals import StopSignals


def test_signals_are_counted_in_the_block_and_as_before_behind_it() -> None:
    signals, before = StopSignals(), signal.getsignal(signal.SIGINT)
    with signals.watched():
        with signals.watched():
            os.kill(os.getpid(), signal.SIGTERM)
        for number in (signal.SIGINT, signal.SIGHUP):
            os.kill(os.getpid(), number)
    assert (signals.ends, signals.reloads) == (2, 1)
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_watches_nothing() -> None:
    before, during = signal.getsignal(signal.SIGTERM), []

    def watch() -> None:
        with StopSignals().watched():
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert during == [before]
