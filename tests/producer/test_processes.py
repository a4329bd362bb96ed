"""Forks, exits and signals: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path

import pytest

from spillable_stream import Channel, Producer
from spillable_stream.errors import ProducerBusyError, SendFailedError
from spillable_stream.producer.target import ChannelTarget
from tests.events import peek
from tests.producer.fakes import PATIENCE_SECONDS, FakeTarget


def in_a_fork(do: object) -> None:
    """Run something in a forked child, which must end by itself, and well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(20)
            do()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forked_child_sends_as_a_producer_of_its_own(path: Path) -> None:
    with Producer(path, linger_ms=60_000) as producer:
        parents = producer.send(b"the parent's")
        before = producer.producer_id

        def child() -> None:
            assert isinstance(parents.exception(0), SendFailedError)
            producer.send(b"the child's").add_done_callback(lambda f: called.set())
            assert producer.producer_id != before
            producer.close(PATIENCE_SECONDS)
            assert called.is_set()

        called = threading.Event()
        in_a_fork(child)
        assert not parents.done()
    with Channel(path) as channel:
        assert sorted(peek(channel)) == [b"the child's", b"the parent's"]


def test_a_forked_child_that_sends_nothing_ends_nothing(path: Path) -> None:
    with Producer(path) as producer:
        future = producer.send(b"x")
        producer._pipeline._mutex.slot[0] = 1  # as if another thread were inside
        in_a_fork(lambda: (producer.stats(), producer.flush(), producer.close(), producer.close(0)))
        producer._pipeline._mutex.slot.clear()
        assert future.result(PATIENCE_SECONDS).successful


def test_futures_in_a_forked_child_say_whose_they_are() -> None:
    target = FakeTarget()
    target.hold()
    with Producer(target, linger_ms=0) as producer:
        sent = [producer.send(b"x") for _ in range(3)]
        sent[0].add_done_callback(lambda f: None)

        def child() -> None:
            assert futures.wait(sent, 5).not_done == set()
            error = sent[0].exception(0)
            assert isinstance(error, SendFailedError) and "the parent process's to send" in str(error)

        in_a_fork(child)
        target.let_go()
        assert all(f.result(PATIENCE_SECONDS).successful for f in sent)


def test_a_forked_child_can_not_be_the_same_producer_while_the_parent_is(path: Path) -> None:
    with Producer(path, producer_id="me") as producer:
        producer.send(b"x").result(PATIENCE_SECONDS)

        def child() -> None:
            with pytest.raises(ProducerBusyError):
                producer.send(b"y")

        in_a_fork(child)
        producer.send(b"z").result(PATIENCE_SECONDS)
    Producer(path, producer_id="me").close()


def test_a_forked_child_that_lives_on_does_not_keep_the_parents_name(path: Path) -> None:
    with Producer(path, producer_id="me") as producer:
        end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(end[1])
            os.read(end[0], 1)
            os._exit(0)
        os.close(end[0])
        producer.send(b"x")
    Producer(path, producer_id="me").close()
    os.close(end[1])
    os.waitpid(pid, 0)


def test_a_name_is_free_at_the_close_though_a_forked_child_has_yet_to_close_its_copy_of_the_lock(path: Path) -> None:
    producer = Producer(path, producer_id="me")
    (target,) = producer._targets.values()
    assert isinstance(target, ChannelTarget)
    (lock,) = target._claims.values()
    copy = os.dup(lock.file.fileno())  # as a fork does
    producer.close()
    Producer(path, producer_id="me").close()
    os.close(copy)


FORGETS = """
import sys
from spillable_stream import Producer
producer = Producer(sys.argv[1], linger_ms=60_000)
for i in range(100):
    producer.send(b"%d" % i)
"""


def test_an_exit_sends_what_a_program_forgot(path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORGETS, path], check=True, timeout=60)
    with Channel(path) as channel:
        assert len(peek(channel)) == 100


TERMINATED = """
import sys, time
from spillable_stream import Producer
from spillable_stream.termination import exit_on_sigterm
with exit_on_sigterm(), Producer(sys.argv[1], linger_ms=60_000) as producer:
    for i in range(100):
        producer.send(b"%d" % i)
    print("sent", flush=True)
    time.sleep(60)
"""


def test_sigterm_sends_what_lingers_when_that_was_asked_for(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", TERMINATED, path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "sent\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 128 + signal.SIGTERM
    with Channel(path) as channel:
        assert len(peek(channel)) == 100
