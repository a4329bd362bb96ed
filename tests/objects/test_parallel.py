from __future__ import annotations

import os
import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from spillable_stream.objects import parallel
from spillable_stream.objects.parallel import MOST_AT_ONCE, begin, in_parallel
from tests.support.no_threads import no_threads


def test_calls_are_under_way_at_the_same_time_and_their_results_in_order() -> None:
    all_here = threading.Barrier(MOST_AT_ONCE)

    def call(number: int) -> int:
        all_here.wait(30)
        return number

    assert in_parallel([lambda n=n: call(n) for n in range(MOST_AT_ONCE)]) == list(range(MOST_AT_ONCE))  # type: ignore[misc]


def test_a_single_call_needs_no_thread() -> None:
    assert in_parallel([threading.get_ident]) == [threading.get_ident()]
    assert begin(threading.get_ident).result() != threading.get_ident()


def test_the_first_error_is_raised_once_all_have_ended() -> None:
    ended, may_end = list[str](), threading.Event()

    def fail(name: str) -> None:
        may_end.set()
        raise ValueError(name)

    def end_later() -> None:
        assert may_end.wait(30)
        ended.append("the last one")

    with pytest.raises(ValueError, match="first"):
        in_parallel([lambda: None, lambda: fail("first"), lambda: fail("second"), end_later])
    assert ended == ["the last one"]


def test_a_forked_child_has_threads_of_its_own() -> None:
    begin(lambda: None).result()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            assert parallel._shared is None
            os.write(write, b"%d" % sum(in_parallel([lambda: 1, lambda: 2])))
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"3"
    os.close(read)
    assert in_parallel([lambda: 1, lambda: 2]) == [1, 2]


AT_THE_END = """
import atexit
from spillable_stream.objects.parallel import begin, in_parallel

def fail():
    raise ValueError("the second")

def late():
    print(in_parallel([lambda: 1, lambda: 2]), begin(lambda: 3).result(), repr(begin(fail).exception()))

begin(int).result()
atexit.register(late)
"""


def test_calls_at_the_end_of_the_process_which_has_no_more_threads_are_made_in_the_one_that_asks() -> None:
    found = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.stderr) == ("[1, 2] 3 ValueError('the second')\n", "")


def run_alone(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=60)


def test_a_process_ends_though_a_request_has_no_answer() -> None:
    done = run_alone("""
        import threading
        from spillable_stream.objects.parallel import begin

        for _ in range(3):
            begin(threading.Event().wait)
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

            print(in_parallel([lambda n=n: n for n in range(5)]), flush=True)

        atexit.register(at_the_end)
        from spillable_stream.objects.parallel import begin

        {"begin(lambda: None).result()" if is_used else ""}
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("[0, 1, 2, 3, 4]\n", "", 0)


def test_where_no_thread_can_be_started_calls_are_made_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_shared", None)
    with no_threads():
        assert in_parallel([threading.get_ident] * 3) == [threading.get_ident()] * 3
        with pytest.raises(ZeroDivisionError):
            in_parallel([lambda: 1, lambda: 1 // 0])
