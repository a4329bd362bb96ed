"""Calls that are under way at the same time."""

from __future__ import annotations

import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from spillable_stream.objects.parallel import MOST_AT_ONCE, in_parallel
from spillable_stream.spark.side_by_side import settled, side_by_side


def test_results_come_in_the_order_of_the_calls() -> None:
    assert side_by_side([lambda i=i: i for i in range(40)]) == list(range(40))
    assert side_by_side([]) == []


def test_calls_are_under_way_at_the_same_time() -> None:
    together = threading.Barrier(8)
    assert len(side_by_side([lambda: together.wait(60)] * 8)) == 8


def test_one_call_begins_no_thread() -> None:
    assert side_by_side([threading.get_ident]) == [threading.get_ident()]


def test_calls_may_begin_others_and_wait_for_them() -> None:
    assert side_by_side([lambda: side_by_side([lambda: 1] * 20)] * 20) == [[1] * 20] * 20


def test_the_first_error_is_raised_once_all_have_ended() -> None:
    ended = []

    def fail(number: int) -> None:
        ended.append(number)
        if number:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        side_by_side([lambda i=i: fail(i) for i in range(3)])
    assert sorted(ended) == [0, 1, 2]


def test_calls_that_wait_for_requests_of_their_own_do_not_keep_these_from_running() -> None:
    """In the pool of the requests they would: as many of them as it has threads leave none for what they wait for."""
    together = threading.Barrier(MOST_AT_ONCE)

    def call(number: int) -> int:
        together.wait(60)
        return sum(in_parallel("s3://bucket/orders", [lambda: number, lambda: 1]))

    calls = [lambda i=i: call(i) for i in range(MOST_AT_ONCE)]
    assert side_by_side(calls) == list(range(1, MOST_AT_ONCE + 1))


@pytest.mark.parametrize("others", [0, 2])
def test_settled_calls_tell_one_by_one_how_they_ended(others: int) -> None:
    def fail() -> None:
        raise ValueError("the first")

    first, *rest = settled([fail, *[lambda: None] * others])
    assert isinstance(first.exception(), ValueError)
    assert [future.exception() for future in rest] == [None] * others
    assert settled([]) == []


def test_ctrl_c_ends_a_process_though_a_call_hangs_and_begins_none_that_waits() -> None:
    program = """
        import os, signal, threading
        from spillable_stream.spark.side_by_side import side_by_side

        hanging = threading.Barrier(32)

        def hang():
            number = hanging.wait()
            while number == 0:
                os.kill(os.getpid(), signal.SIGINT)  # again, if it came just before the main thread waits
                threading.Event().wait(0.05)
            threading.Event().wait()

        def interrupt(*_):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupt)
        try:
            side_by_side([hang] * 32 + [lambda: print("one more")])
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
