"""Every kind of end of a process, with 1,000 sends in flight: what is in the channel, and what was told.

The rows are those of the table in docs/producer.md ("The end"). Each is a real process.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from spillable_stream import Channel
from tests.support.events import peek

SENT = 1_000
UNKNOWN = "unknown"

# What every program begins with. `tell` notes what a callback hears, in a file that outlives the process.
BEGIN = """
import atexit, concurrent.futures, contextlib, gc, logging, multiprocessing, os, signal, sys, threading, time, _thread
from spillable_stream import AsyncProducer, Channel, Producer, ProducerHandler
from spillable_stream.errors import ProducerClosedError, ProducerError, SendFailedError
from spillable_stream.producer import process_end
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.target import ChannelTarget
from spillable_stream.termination import exit_on_sigterm

path, told = sys.argv[1:3]
out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def tell(result):
    os.write(out, b"stored\\n" if result.successful else b"failed\\n")

class Slow(ChannelTarget):
    def commit(self, *args):
        began.set()
        time.sleep(0.05)
        assert go_on.wait(20)
        return super().commit(*args)

class Stuck(ChannelTarget):
    def commit(self, *args):
        began.set()
        begun.release()
        time.sleep(3600)

began, go_on, begun = threading.Event(), threading.Event(), threading.Semaphore(0)
go_on.set()

def make(target=None, commits=Slow):  # two batches are being committed then, one waits for a thread, and 100 linger
    return Producer(commits(path if target is None else target), linger_ms=60_000, batch_count_threshold=300,
                    io_thread_count=2)

def send(producer):
    futures = [producer.send(b"%d" % i, callback=tell) for i in range(1000)]
    assert began.wait(20)
    return futures

def both_stuck():
    assert all(begun.acquire(timeout=20) for _ in range(2))

def signal_now(number):
    signal.raise_signal(number)
    time.sleep(60)

def signal_amid_wait(number):  # when the main thread waits for a producer; nothing is committed before
    go_on.clear()
    threading.Thread(target=send_signal, args=(number, threading.get_ident()), daemon=True).start()

def send_signal(number, to):
    looks = 0
    while looks < 3:
        time.sleep(0.01)
        looks = looks + 1 if is_asleep(to) else 0
    os.kill(os.getpid(), number)
    go_on.set()

def is_asleep(thread):  # in the kernel, too: Python sees a signal that comes just before only when the wait ends
    code = getattr(sys._current_frames()[thread].f_back, "f_code", None)
    with open(f"/proc/self/task/{threading.main_thread().native_id}/stat") as stat:
        return code is Clock.wait.__code__ and ") S" in stat.read()
"""


@dataclass(frozen=True)
class End:
    """How a process ends, and what then holds.

    Args:
        program: what it does after `BEGIN`.
        code: its exit code.
        stored: how many events are in the channel; "unknown" where only what was told to be stored must be there.
        told: how many callbacks were told that their event is stored.
        failed: how many were told that it is not.
        error: what is in its standard error.
    """

    program: str
    code: int = 0
    stored: int | str = SENT
    told: int = SENT
    failed: int = 0
    error: str = ""


CHILD = """
def child():
    producer = make()
    send(producer)

if __name__ == "__main__":
    process = multiprocessing.get_context({method!r}).Process(target=child)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""

ENDS = {
    "close": End("producer = make(); send(producer); producer.close()"),
    "a with block": End("with make() as producer: send(producer)"),
    "an exception in a with block": End("with make() as producer: send(producer); 1 / 0", 1, error="ZeroDivisionError"),
    "a forgotten reference": End(
        "warnings = __import__('warnings'); warnings.simplefilter('always')\nproducer = make(); send(producer)\n"
        "del producer; gc.collect()",
        error="was forgotten, but not closed",
    ),
    "a normal exit": End(
        "__import__('warnings').simplefilter('always'); producer = make(); send(producer)", error="was never closed"
    ),
    "a normal exit where warnings are errors": End(
        "__import__('warnings').simplefilter('error'); producer = make(); send(producer)", error="was never closed"
    ),
    "sys.exit": End("producer = make(); send(producer); sys.exit(3)", 3),
    "sys.exit in a function, amid a close": End(
        "signal.signal(signal.SIGUSR1, lambda *a: sys.exit(3))\n"
        "producer = make(); send(producer); signal_amid_wait(signal.SIGUSR1); producer.close()",
        3,
    ),
    "an unhandled exception": End("producer = make(); send(producer); 1 / 0", 1, error="ZeroDivisionError"),
    "Ctrl-C during work": End("producer = make(); send(producer); signal_now(signal.SIGINT)", -signal.SIGINT),
    "Ctrl-C during work, in a with block": End(
        "with make() as producer: send(producer); signal_now(signal.SIGINT)", -signal.SIGINT
    ),
    "Ctrl-C during a close": End(
        "producer = make(); send(producer); signal_amid_wait(signal.SIGINT); producer.close()", -signal.SIGINT
    ),
    "Ctrl-C during a flush": End(
        "producer = make(); send(producer); signal_amid_wait(signal.SIGINT); producer.flush()", -signal.SIGINT
    ),
    "Ctrl-C, and again during the close that follows": End(
        "with make() as producer: send(producer); signal_amid_wait(signal.SIGINT); signal_now(signal.SIGINT)",
        -signal.SIGINT,
    ),
    "Ctrl-C during a close, and the channel's handle is closed": End(
        "with Channel(path) as channel, make(channel) as producer: send(producer); signal_amid_wait(signal.SIGINT)",
        -signal.SIGINT,
    ),
    "Ctrl-C at the exit": End(
        "producer = make(); send(producer); signal_amid_wait(signal.SIGINT)",
        error="KeyboardInterrupt",
    ),
    "Ctrl-C at an exit that is stuck": End(
        "producer = make(commits=Stuck); send(producer); signal_amid_wait(signal.SIGINT)",
        stored=0,
        told=0,
        failed=SENT,
        error="1,000 events were not stored before the process ended",
    ),
    "SIGTERM": End("producer = make(); send(producer); signal_now(signal.SIGTERM)", -signal.SIGTERM, stored=UNKNOWN),
    "SIGTERM with exit_on_sigterm": End(
        "with exit_on_sigterm(), make() as producer: send(producer); signal_now(signal.SIGTERM)", 143
    ),
    "SIGTERM with exit_on_sigterm twice, and no with block": End(
        "with exit_on_sigterm(), exit_on_sigterm(): producer = make(); send(producer); signal_now(signal.SIGTERM)", 143
    ),
    "SIGTERM with exit_on_sigterm during a close": End(
        "with exit_on_sigterm(): producer = make(); send(producer); signal_amid_wait(signal.SIGTERM); producer.close()",
        143,
    ),
    "SIGKILL": End(
        "producer = make(); send(producer); os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, stored=UNKNOWN
    ),
    "SIGKILL after a flush": End(
        "producer = make(); send(producer); producer.flush(); os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL
    ),
    "os._exit": End("producer = make(); send(producer); os._exit(0)", stored=UNKNOWN),
    "a callback that raises SystemExit": End(
        "producer = make(); send(producer); producer.send(b'1000', callback=lambda r: sys.exit(5)); producer.close()",
        stored=SENT + 1,
        error="a callback of a producer raised",
    ),
    "a callback that raises KeyboardInterrupt": End(
        "def stop(result): raise KeyboardInterrupt\n"
        "producer = make(); send(producer); producer.send(b'1000', callback=stop); producer.close()",
        stored=SENT + 1,
        error="a callback of a producer raised",
    ),
    "a callback that interrupts the main thread during a close": End(
        "go_on.clear(); producer = make(); producer.send(b'1000', callback=lambda r: _thread.interrupt_main())\n"
        "send(producer); go_on.set(); producer.close()",
        -signal.SIGINT,
        stored=SENT + 1,
    ),
    "a callback that sends SIGTERM during a close": End(
        "with exit_on_sigterm():\n"
        "    go_on.clear(); producer = make()\n"
        "    producer.send(b'1000', callback=lambda r: os.kill(os.getpid(), signal.SIGTERM))\n"
        "    send(producer); go_on.set(); producer.close()",
        143,
        stored=SENT + 1,
    ),
    "a callback that closes the producer": End(
        "go_on.clear(); producer = make(); producer.send(b'1000', callback=lambda r: producer.close())\n"
        "send(producer); go_on.set(); producer.flush()",
        stored=SENT + 1,
    ),
    "a thread pool that works on when the main thread is done": End(
        "def work(): time.sleep(0.1); send(producer)\n"
        "producer = make(); concurrent.futures.ThreadPoolExecutor(1).submit(work)"
    ),
    "a handler at the exit that sends": End("producer = make(); atexit.register(send, producer)"),
    "a child of multiprocessing, forked": End(CHILD.format(method="fork")),
    "a child of multiprocessing, from the fork server": End(CHILD.format(method="forkserver")),
    "a child of multiprocessing, spawned": End(CHILD.format(method="spawn")),
    "a child of multiprocessing that raises": End(
        CHILD.format(method="fork").replace("send(producer)", "send(producer); 1 / 0"), 1, error="ZeroDivisionError"
    ),
    "a child of multiprocessing that sends as what its parent made": End(
        "producer = make(); producer.send(b'1000')\n"
        "process = multiprocessing.get_context('fork').Process(target=lambda: send(producer))\n"
        "process.start(); process.join(); sys.exit(process.exitcode)",
        stored=SENT + 1,
    ),
    "a child of multiprocessing whose callbacks put into a queue": End(
        "queue = multiprocessing.get_context('fork').Queue()\n"
        "def work():\n"
        "    producer = make(); producer.send(b'1000', callback=lambda result: queue.put(result.successful))\n"
        "    send(producer)\n"
        "process = multiprocessing.get_context('fork').Process(target=work); process.start()\n"
        "print(queue.get(timeout=20), file=sys.stderr); process.join()",
        stored=SENT + 1,
        error="True\n",
    ),
    "a module of a child from the fork server": End(
        "if multiprocessing.parent_process() is None and __name__ == '__mp_main__': producer = make(); send(producer)\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.set_start_method('forkserver'); multiprocessing.set_forkserver_preload(['os'])\n"
        "    process = multiprocessing.Process(target=print); process.start(); process.join()",
    ),
    "ProcessPoolExecutor": End(
        "def work():\n    global producer\n    producer = make(); send(producer)\n"
        "if __name__ == '__main__':\n"
        "    with concurrent.futures.ProcessPoolExecutor(1) as pool: pool.submit(work).result()"
    ),
    "a forked child and sys.exit": End(
        "pid = os.fork()\nif pid == 0: producer = make(); send(producer); sys.exit(3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
        3,
    ),
    "a forked child and os._exit": End(
        "pid = os.fork()\nif pid == 0: producer = make(); send(producer); os._exit(3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
        3,
        stored=UNKNOWN,
    ),
    "a stuck commit": End(
        "process_end.AT_EXIT_SECONDS = 0.3\nproducer = make(commits=Stuck)\nfutures = send(producer); both_stuck()",
        stored=0,
        told=0,
        failed=SENT,
        error="1,000 events were not stored before the process ended, and their futures have failed with them; 600 of",
    ),
    "a stuck commit beside a handler of logging": End(
        "process_end.AT_EXIT_SECONDS = 0.3\n"
        "producer = make(commits=Stuck)\n"
        "logging.getLogger().addHandler(ProducerHandler(producer)); send(producer)\n"
        "healthy = Producer(path + '2'); logging.getLogger().addHandler(ProducerHandler(healthy))\n"
        "logging.getLogger('shop').warning('x')",
        stored=0,
        told=0,
        failed=SENT,
        error="1,001 events were not stored before the process ended",
    ),
    "a stuck commit after a close that timed out": End(
        "process_end.AT_EXIT_SECONDS = 0.3\n"
        "producer = make(commits=Stuck); send(producer); both_stuck()\n"
        "with contextlib.suppress(ProducerError): producer.close(0)",
        stored=0,
        told=0,
        failed=SENT,
        error="600 events were not stored before the process ended",
    ),
    "a stuck callback": End(
        "process_end.AT_EXIT_SECONDS = process_end.TELLING_SECONDS = 0.3\n"
        "def look(): print([future.result(0).successful for future in futures].count(True), file=sys.stderr)\n"
        "atexit.unregister(process_end._end); atexit.register(look); atexit.register(process_end._end)\n"
        "producer = make(); futures = [producer.send(b'1000', callback=lambda result: time.sleep(3600))]\n"
        "futures += [producer.send(b'%d' % i) for i in range(1000)]\n"
        "with contextlib.suppress(ProducerError): producer.flush(0)\n"
        "with Channel(path) as channel:\n"
        "    while channel.stats().channel_size < 1001: time.sleep(0.01)",
        stored=SENT + 1,
        told=0,
        error="1001\n",
    ),
    "two producers on one channel": End(
        "producers = make(), make(); send(producers[0]); send(producers[1])", stored=2 * SENT, told=2 * SENT
    ),
    "an asyncio producer that was not closed": End(
        "import asyncio\nasync def main():\n    producer = AsyncProducer(make())\n"
        "    for i in range(1000): await producer.send(b'%d' % i)\n"
        "asyncio.run(main())",
        told=0,
    ),
    "Ctrl-C in an asyncio program": End(
        "import asyncio\nasync def main():\n    async with AsyncProducer(path, linger_ms=60_000) as producer:\n"
        "        for i in range(1000): await producer.send(b'%d' % i)\n"
        "        signal.raise_signal(signal.SIGINT); await asyncio.sleep(60)\n"
        "asyncio.run(main())",
        -signal.SIGINT,
        told=0,
    ),
}


# Each is like another end, which is fast enough for every run: a process takes a second.
SLOW_ENDS = {
    "an exception in a with block",
    "sys.exit",
    "sys.exit in a function, amid a close",
    "a normal exit where warnings are errors",
    "Ctrl-C during work, in a with block",
    "Ctrl-C during a flush",
    "Ctrl-C, and again during the close that follows",
    "Ctrl-C during a close, and the channel's handle is closed",
    "Ctrl-C at an exit that is stuck",
    "Ctrl-C in an asyncio program",
    "SIGTERM with exit_on_sigterm twice, and no with block",
    "SIGTERM with exit_on_sigterm during a close",
    "SIGKILL after a flush",
    "a callback that raises KeyboardInterrupt",
    "a callback that interrupts the main thread during a close",
    "a callback that sends SIGTERM during a close",
    "a child of multiprocessing, from the fork server",
    "a child of multiprocessing, spawned",
    "a child of multiprocessing that raises",
    "a child of multiprocessing that sends as what its parent made",
    "a child of multiprocessing whose callbacks put into a queue",
    "a module of a child from the fork server",
    "ProcessPoolExecutor",
    "a forked child and os._exit",
    "a stuck commit beside a handler of logging",
    "a stuck commit after a close that timed out",
    "a stuck callback",
    "two producers on one channel",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_ENDS else []) for name in ENDS]
)
def test_the_end_of_a_process(name: str, path: Path, tmp_path: Path) -> None:
    end = ENDS[name]
    program, told = tmp_path / "program.py", tmp_path / "told"
    program.write_text(BEGIN + end.program + "\n")
    forks = "ignore:This process:DeprecationWarning"  # of Python 3.12: libraries of Arrow's have threads
    command = [sys.executable, "-W", forks, str(program), str(path), str(told)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == end.code, found.stderr
    assert end.error in found.stderr
    assert found.stderr == "" or end.error or end.code == -signal.SIGINT
    heard = Counter(told.read_text().split() if told.exists() else [])
    with Channel(path) as channel:
        stored = Counter(peek(channel))
    if end.stored == UNKNOWN:
        assert heard["stored"] <= stored.total() < SENT and not heard["failed"]
    else:
        assert stored.total() == end.stored and set(stored.values()) <= {1, 2}
        assert set(stored) >= {b"%d" % i for i in range(SENT)} or not stored
        assert (heard["stored"], heard["failed"]) == (end.told, end.failed)


FIRST = """
import atexit
atexit.register(lambda: thread.join(30))  # the first to be registered runs last: after the producer's end
"""
DAEMON = """
def work():
    numbers = iter(range(10**9))
    try:
        for number in numbers:
            producer.send(b"%d" % number)
            os.write(out, b"%d\\n" % number)
    except ProducerClosedError:
        os.write(out, b"refused\\n")

producer = Producer(path)
thread = threading.Thread(target=work, daemon=True)
thread.start()
producer.send(b"x").result()
"""


def test_a_thread_that_still_sends_at_the_exit_is_refused_and_what_it_sent_before_is_stored(
    path: Path, tmp_path: Path
) -> None:
    program, told = tmp_path / "program.py", tmp_path / "told"
    program.write_text(FIRST + BEGIN + DAEMON)
    subprocess.run([sys.executable, str(program), str(path), str(told)], check=True, timeout=60)
    *accepted, refused = told.read_bytes().splitlines()
    assert refused == b"refused"
    with Channel(path) as channel:
        stored = [body for batch in channel.read() for body in batch.column("body").to_pylist()]
    assert sorted([*accepted, b"x"]) == sorted(stored)  # often more than one take has


LATE = """
import atexit, sys

def late():
    from spillable_stream.errors import ProducerClosedError
    for do in (lambda: Producer(sys.argv[1] + "2"), lambda: producer.send(b"late")):
        try:
            do()
        except ProducerClosedError as e:
            print(e)

atexit.register(late)
from spillable_stream import Producer
producer = Producer(sys.argv[1])
"""


def test_after_the_end_no_producer_is_created_and_nothing_is_accepted(path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", LATE, path], check=True, timeout=60, capture_output=True, text=True)
    assert found.stdout.splitlines()[0].startswith("the process is ending: its producers are closed")
    assert found.stdout.splitlines()[1:] == ["the producer is closed; create a new one"] and found.stderr == ""


BEHIND = """
import sys
from spillable_stream import Channel, Event, Producer

producer = Producer(sys.argv[1], linger_ms=60_000)
producer.send(b"x", callback=lambda result: print(result.successful, result.error_message))
with Channel(sys.argv[1], commit_interval=0) as other:
    for _ in range(5):
        with other.put_transaction() as tx:
            tx.put(Event(b"of another writer"))
"""


def test_at_the_end_events_are_stored_behind_those_that_others_have_put_to_a_store_meanwhile(tmp_path: Path) -> None:
    """Each look at the store reads what is new with some threads, and a process that ends has no more."""
    command = [sys.executable, "-c", BEHIND, f"object+file://{tmp_path}/store"]
    found = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("True \n", "")


REOPENED = """
import sys
from spillable_stream import Channel, Producer

with Channel(sys.argv[1], retention_ms=3_600_000, minimum_required_space=0) as channel:
    producer = Producer(channel, linger_ms=60_000)
    producer.send(b"x", callback=lambda result: print(result.successful, result.error_message))
"""


def test_at_the_end_events_are_stored_whose_channel_was_closed_and_needs_a_thread(path: Path) -> None:
    """A channel that keeps events has one, and Python 3.12 and later begin none at the end."""
    found = subprocess.run([sys.executable, "-c", REOPENED, path], timeout=60, capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("True \n", "")
