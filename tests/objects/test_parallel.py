from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from textwrap import dedent

import pytest

from spillable_stream.call_threads import CallThreads
from spillable_stream.objects import parallel
from spillable_stream.objects.parallel import MOST_AT_ONCE, begin, in_parallel
from spillable_stream.own_thread import NoThreadError
from tests.support.no_threads import no_threads

ROOT = "s3://bucket/orders"


def test_calls_are_under_way_at_the_same_time_and_their_results_in_order() -> None:
    all_here = threading.Barrier(MOST_AT_ONCE)

    def call(number: int) -> int:
        all_here.wait(30)
        return number

    assert in_parallel(ROOT, [lambda n=n: call(n) for n in range(MOST_AT_ONCE)]) == list(range(MOST_AT_ONCE))  # type: ignore[misc]


def test_a_single_call_needs_no_thread() -> None:
    assert in_parallel(ROOT, [threading.get_ident]) == [threading.get_ident()]
    assert begin(ROOT, threading.get_ident).result() != threading.get_ident()


def test_the_first_error_is_raised_once_all_have_ended() -> None:
    ended, may_end = list[str](), threading.Event()

    def fail(name: str) -> None:
        may_end.set()
        raise ValueError(name)

    def end_later() -> None:
        assert may_end.wait(30)
        ended.append("the last one")

    with pytest.raises(ValueError, match="first"):
        in_parallel(ROOT, [lambda: None, lambda: fail("first"), lambda: fail("second"), end_later])
    assert ended == ["the last one"]


def test_requests_that_one_store_does_not_answer_keep_none_of_another_store_waiting() -> None:
    answers = threading.Event()
    hanging = [begin("s3://away/orders", lambda: answers.wait(60)) for _ in range(2 * MOST_AT_ONCE)]
    try:
        assert begin(ROOT, lambda: "answered").result(60) == "answered"
        assert in_parallel(ROOT, [lambda: 1, lambda: 2]) == [1, 2]
        assert not any(request.done() for request in hanging)
    finally:
        answers.set()
    assert all(request.result(60) for request in hanging)


def test_more_requests_than_a_store_may_have_at_once_wait_in_their_order_and_can_be_cancelled() -> None:
    answers, made = threading.Event(), list[int]()
    for _ in range(MOST_AT_ONCE - 1):
        begin(ROOT, lambda: answers.wait(60))
    one = threading.Event()
    first = begin(ROOT, lambda: one.wait(60))
    waiting = [begin(ROOT, lambda n=n: made.append(n)) for n in range(4)]  # type: ignore[misc]
    try:
        assert waiting[1].cancel() and not made
        one.set()
        assert first.result(60)
        waiting[3].result(60)
        assert made == [0, 2, 3]
    finally:
        answers.set()


def test_requests_one_after_the_other_start_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store of their own: threads that still end the requests of another test would make some of these, too."""
    monkeypatch.setattr(parallel, "_shared", None)
    root = "s3://bucket/one-after-the-other"
    assert len({begin(root, threading.get_ident).result(60) for _ in range(200)}) == 1


def test_a_forked_child_has_threads_of_its_own() -> None:
    begin(ROOT, lambda: None).result()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            assert parallel._shared is None
            os.write(write, b"%d" % sum(in_parallel(ROOT, [lambda: 1, lambda: 2])))
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"3"
    os.close(read)
    assert in_parallel(ROOT, [lambda: 1, lambda: 2]) == [1, 2]


AT_THE_END = """
import atexit
from spillable_stream.objects.parallel import begin, in_parallel

def fail():
    raise ValueError("the second")

def late():
    print(in_parallel('orders', [lambda: 1, lambda: 2]), begin('orders', lambda: 3).result())
    print(repr(begin('orders', fail).exception()))

begin('orders', int).result()
atexit.register(late)
"""


def test_calls_at_the_end_of_the_process_which_has_no_more_threads_are_made_in_the_one_that_asks() -> None:
    found = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.stderr) == ("[1, 2] 3\nValueError('the second')\n", "")


def run_alone(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=60)


def test_a_process_ends_though_a_request_has_no_answer() -> None:
    done = run_alone("""
        import threading
        from spillable_stream.objects.parallel import begin

        for _ in range(3):
            begin('orders', threading.Event().wait)
        print("ended", flush=True)
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


@pytest.mark.parametrize("is_used", [False, True])
def test_what_a_process_does_at_its_end_may_send_requests(is_used: bool) -> None:
    """Such as a producer that ships what it has left."""
    done = run_alone(f"""
        import atexit

        def at_the_end():
            from spillable_stream.objects.parallel import in_parallel

            print(in_parallel('orders', [lambda n=n: n for n in range(5)]), flush=True)

        atexit.register(at_the_end)
        from spillable_stream.objects.parallel import begin

        {"begin('orders', lambda: None).result()" if is_used else ""}
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("[0, 1, 2, 3, 4]\n", "", 0)


def test_where_no_thread_can_be_started_calls_are_made_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_shared", None)
    with no_threads():
        assert in_parallel(ROOT, [threading.get_ident] * 3) == [threading.get_ident()] * 3
        with pytest.raises(ZeroDivisionError):
            in_parallel(ROOT, [lambda: 1, lambda: 1 // 0])


def test_what_the_handler_of_a_signal_raises_is_not_taken_for_the_lack_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise RuntimeError("of a handler")

    monkeypatch.setattr(CallThreads, "begin_work", interrupted)
    made: list[int] = []
    with pytest.raises(RuntimeError, match="of a handler"):
        in_parallel(ROOT, [partial(made.append, 1), partial(made.append, 2)])
    assert made == []


@pytest.mark.parametrize("has_threads", [True, False])
def test_interrupts_leave_the_store_all_its_threads(has_threads: bool) -> None:
    """However many come while other requests keep the count of those to the store."""
    root, made = f"s3://bucket/interrupted-{has_threads}", list[str]()
    requests = parallel._requests(root)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def no_thread(*_: object) -> None:
        raise NoThreadError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallThreads, "begin_work", interrupted if has_threads else no_thread)
        if not has_threads:
            patch.setattr(parallel._Requests, "_next", interrupted)
        for _ in range(MOST_AT_ONCE):
            with pytest.raises(KeyboardInterrupt):
                begin(root, lambda: made.append("of a request that failed"))
    begin(root, lambda: made.append("of the next one")).result(10)
    assert made == ["of the next one"] and requests is parallel._requests(root)
