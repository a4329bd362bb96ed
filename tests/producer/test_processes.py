"""Forks, exits and signals: real processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import pytest

from spillable_stream import Channel, Producer
from spillable_stream.engine.local.local_port import LockedProducer
from spillable_stream.errors import OptionError, ProducerClosedError, SendFailedError, StorageError
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.target import ChannelTarget
from tests.support import pythons
from tests.support.events import peek
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget
from tests.support.forks import in_child
from tests.support.no_threads import no_threads


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
        in_child(child)
        assert not parents.done()
    with Channel(path) as channel:
        assert sorted(peek(channel)) == [b"the child's", b"the parent's"]


def test_a_forked_child_that_can_have_no_threads_says_so_and_sends_once_it_can(path: Path) -> None:
    with Producer(path) as producer:

        def child() -> None:
            with no_threads(named="-mover"), pytest.raises(StorageError, match="can't start new thread"):
                producer.send(b"refused")
            producer.send(b"sent").result(PATIENCE_SECONDS)
            producer.close(PATIENCE_SECONDS)

        in_child(child)
    with Channel(path) as channel:
        assert peek(channel) == [b"sent"]


def test_a_forked_child_that_sends_nothing_ends_nothing(path: Path) -> None:
    with Producer(path) as producer:
        future = producer.send(b"x")
        producer._pipeline._mutex.slot[0] = 1  # as if another thread were inside
        in_child(lambda: (producer.stats(), producer.flush(), producer.close(), producer.close(0)))
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

        in_child(child)
        target.let_go()
        assert all(f.result(PATIENCE_SECONDS).successful for f in sent)


def test_a_forked_child_of_a_named_producer_sends_without_a_name(path: Path) -> None:
    with Producer(path, producer_id="me") as producer:
        producer.send_many([b"1"], sequence=1).result(PATIENCE_SECONDS)

        def child() -> None:
            with pytest.raises(OptionError, match="in a forked child: the name is the parent's"):
                producer.send_many([b"2"], sequence=2)
            assert producer.last_sequence() == 0
            assert producer.send(b"the child's").result(PATIENCE_SECONDS).successful
            assert producer.producer_id != "me"
            producer.close(PATIENCE_SECONDS)

        in_child(child)
        assert producer.last_sequence() == 1
        producer.send_many([b"3"], sequence=3).result(PATIENCE_SECONDS)
    Producer(path, producer_id="me").close()
    with Channel(path) as channel:
        assert sorted(peek(channel)) == [b"1", b"3", b"the child's"]


def test_nobodys_code_runs_inside_of_a_fork() -> None:
    target = FakeTarget()
    target.hold()
    called: list[int] = []
    with Producer(target, linger_ms=0) as producer:
        future = producer.send(b"x", callback=lambda r: called.append(os.getpid()))
        future.add_done_callback(lambda f: called.append(os.getpid()))

        def child() -> None:
            assert future.done() and isinstance(future.exception(0), SendFailedError)
            assert not called
            future.add_done_callback(lambda f: called.append(os.getpid()))  # the child's own
            assert called == [os.getpid()]

        in_child(child)
        target.let_go()
        future.result(PATIENCE_SECONDS)
    assert called == [os.getpid()] * 2


def test_futures_of_a_producer_that_another_thread_closes_end_in_a_forked_child() -> None:
    target = FakeTarget()
    target.hold()
    producer = Producer(target, linger_ms=0)
    sent = [producer.send(b"x") for _ in range(3)]
    sent[0].add_done_callback(lambda f: None)
    closing = threading.Thread(target=producer.close)
    closing.start()
    while not producer._pipeline.buffer.closing:
        time.sleep(0)

    def child() -> None:
        assert futures.wait(sent, 5).not_done == set()
        assert "the parent process's to send" in str(sent[2].exception(0))
        with pytest.raises(ProducerClosedError):
            producer.send(b"y")

    in_child(child)
    target.let_go()
    closing.join()
    assert all(f.result(0).successful for f in sent)


def test_futures_whose_result_was_being_told_have_it_in_a_forked_child() -> None:
    told, go_on = threading.Event(), threading.Event()
    with Producer(FakeTarget(), linger_ms=0) as producer:
        sent = producer.send_many([b"x"], callback=lambda r: first.wait(PATIENCE_SECONDS))
        first = threading.Event()
        others = [SendFuture(sent.batch, 0) for _ in range(3)]
        for future in (sent, *others):
            future.add_done_callback(lambda f: (told.set(), go_on.wait(PATIENCE_SECONDS)))
        first.set()
        assert told.wait(PATIENCE_SECONDS)  # and so three of four are not yet

        def child() -> None:
            assert futures.wait([sent, *others], 5).not_done == set()
            assert all(f.result(0).successful for f in others)

        in_child(child)
        go_on.set()


FORKS_IN_A_CALLBACK = """
import os, sys
from spillable_stream import Producer
pids = []
def tell(result):
    with open(sys.argv[2], "a") as file:
        file.write(f"{'child' if os.getpid() != parent else 'parent'}\\n")
parent = os.getpid()
with Producer(sys.argv[1], linger_ms=60_000) as producer:
    for do in (tell, lambda r: pids.append(os.fork()), tell):  # the child returns, too
        producer.send(b"x", callback=do)
    producer.send(b"x").add_done_callback(tell)
    producer.flush(60)
    assert os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]) == 0
"""


def test_a_callback_that_forks_leaves_the_other_callbacks_to_the_parent(path: Path) -> None:
    """In a process of its own: the child ends with its thread, and libc then ends every library that was loaded."""
    called = path.with_name("called")
    pythons.run([sys.executable, "-c", FORKS_IN_A_CALLBACK, path, called], check=True, timeout=60)
    assert called.read_text().split() == ["parent"] * 3


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


def test_a_forked_child_leaves_the_name_of_a_producer_that_was_forgotten_to_the_parent(path: Path) -> None:
    target = ChannelTarget(path)
    producer = Producer(target, producer_id="me")
    pipeline = producer._pipeline
    with pytest.warns(ResourceWarning, match="was forgotten, but not closed"):
        del producer
        gc.collect()
    in_child(lambda: not target._claims)
    assert target._claims
    pipeline.shutdown.close(PATIENCE_SECONDS)
    Producer(path, producer_id="me").close()


def test_a_name_is_free_at_the_close_though_a_forked_child_has_yet_to_close_its_copy_of_the_lock(path: Path) -> None:
    producer = Producer(path, producer_id="me")
    (target,) = producer._targets
    assert isinstance(target, ChannelTarget)
    (claim,) = target._claims.values()
    assert isinstance(claim, LockedProducer)
    copy = os.dup(claim.lock.file.fileno())  # as a fork does
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
    subprocess.run([sys.executable, "-c", FORGETS, path], check=True, timeout=60)  # a fork has another order of ends
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
    time.sleep(600)
"""


def test_sigterm_sends_what_lingers_when_that_was_asked_for(path: Path) -> None:
    with pythons.Popen([sys.executable, "-c", TERMINATED, path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "sent\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 128 + signal.SIGTERM
    with Channel(path) as channel:
        assert len(peek(channel)) == 100
