"""Forks the Pythons of a Spark session from a process that has imported what they need.

A session starts a daemon for each kind of its workers, and a process for each stream that it reads. Each would import
PySpark, and each worker Arrow and the package: more processor time than the tasks of a test take. So the first of a
JVM's Pythons forks a server, and each of them, the first one too, has the server fork a process that does its work. It
gives that its files, arguments, environment and process group, passes its signals on, and ends as it does. Workers
still descend from their JVM, and are of its session.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from typing import NoReturn

__all__ = ["is_served", "run_in_a_fork"]

_DAEMON = "pyspark.daemon"
_SERVED = (_DAEMON, "pyspark.sql.streaming.python_streaming_source_runner")

_IMPORTED = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyarrow",
    "spillable_stream.spark.datasource",
)
_LARGE = 1 << 20  # bytes of a request


def is_served() -> bool:
    """Tell whether a fork can do the work of this process: not where coverage is measured, for it tells of none."""
    if sys.platform != "linux" or any(name.startswith("COVERAGE_PROCESS_") for name in os.environ):
        return False
    return sys.orig_argv[1] == "-m" and sys.orig_argv[2] in _SERVED


def run_in_a_fork() -> None:
    """Have a fork of the server do the work of this process, and end as it does; return if the server ends first."""
    if sys.orig_argv[2] == _DAEMON:
        os.setpgid(0, 0)  # as it does itself: who kills the JVM's group kills no daemon
    server = _connected()
    request = [sys.orig_argv[2:], os.getcwd(), dict(os.environ), os.getpgrp(), os.getppid()]
    try:
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
        answer = server.recv(64)
    except OSError:
        answer = b""
    if not answer:
        server.close()
        return
    fork = int(answer)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(fork, number))
    status = int(server.recv(64) or b"1")
    os._exit(status if status >= 0 else 128 - status)


def _connected() -> socket.socket:
    """Return a connection to the JVM's server, which is forked if there is none."""
    jvm = os.getppid()
    with open(f"/proc/{jvm}/stat") as stat:
        began = stat.read().rpartition(")")[2].split()[19]
    address = f"\0spark-pythons-{jvm}-{began}"  # is gone when nobody listens any more
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.suppress(ConnectionRefusedError):
            connection.connect(address)
            return connection
        connection.close()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.suppress(OSError):  # another one was faster, and listens soon
            listener.bind(address)
            listener.listen(64)
            if os.fork() == 0:
                try:
                    os.setpgid(0, os.getpgid(jvm))  # else a fork's end hangs up a group with a stopped process
                    _Server(listener).serve()
                finally:
                    os._exit(1)
        listener.close()
        time.sleep(0.001)


class _Server:
    """Forks a daemon for each request, until the process that forked the server and all that it forked have ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._parent = os.pidfd_open(os.getppid())
        self._forks: dict[int, tuple[int, socket.socket]] = {}  # by a descriptor that is readable when one has ended
        self._poll = select.poll()

    def serve(self) -> NoReturn:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # else who reads what the first process says waits for the server too
            os.dup2(nothing, descriptor)
        os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # a process with threads should not fork
        for name in _IMPORTED:
            with contextlib.suppress(ImportError):  # not every PySpark has all of them
                importlib.import_module(name)
        gc.freeze()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._parent, select.POLLIN)
        accepts = True
        while accepts or self._forks:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._forks:
                    self._tell_the_end(descriptor)
                elif descriptor == self._parent:
                    accepts = False
                    self._poll.unregister(self._parent)
                    self._poll.unregister(self._listener)
                    self._listener.close()
                elif accepts:
                    self._accept()
        os._exit(0)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        request, files, _, _ = socket.recv_fds(connection, _LARGE, 3)
        if not request:
            connection.close()
            return
        fork = os.fork()
        if fork == 0:
            self._run(request, files)
        for file in files:
            os.close(file)
        ended = os.pidfd_open(fork)
        self._forks[ended] = fork, connection
        self._poll.register(ended, select.POLLIN)
        connection.send(str(fork).encode())

    def _tell_the_end(self, ended: int) -> None:
        fork, connection = self._forks.pop(ended)
        self._poll.unregister(ended)
        os.close(ended)
        status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        with contextlib.suppress(OSError):  # nobody waits for it any more
            connection.send(str(status).encode())
        connection.close()

    def _run(self, request: bytes, files: list[int]) -> NoReturn:
        """Do the work of the process that asked."""
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, max(int(name) for name in os.listdir("/proc/self/fd")) + 1)
        (module, *arguments), directory, environment, group, parent = json.loads(request)
        os.setpgid(0, group)
        os.getppid = lambda: parent  # the JVM
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = arguments
        sys.path.insert(0, directory)
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as e:
            os._exit(e.code if isinstance(e.code, int) else e.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
