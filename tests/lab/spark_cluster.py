"""A small standalone Spark cluster on this host: two workers at two addresses, so that Spark speculates."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.lab.spark_lab import LONG_SECONDS, ROOT
from tests.lab.spark_processes import end_session
from tests.support.spark.class_archive import with_archive

__all__ = ["cluster"]

_MASTER = "127.0.0.1"
_WORKERS = ["127.0.0.2", "127.0.0.3"]  # Spark starts no second attempt of a task on the host of the first


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """Start a master and two workers of one core each, and yield the master's URL."""
    launch = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
    with socket.socket() as free, contextlib.ExitStack() as stack:
        free.bind((_MASTER, 0))
        port = free.getsockname()[1]
        free.close()
        log = stack.enter_context((directory / "cluster.log").open("a"))

        def run(name: str, host: str, *arguments: str) -> None:
            process = subprocess.Popen(
                [launch, f"org.apache.spark.deploy.{name}", "--host", host, "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={
                    **{k: v for k, v in os.environ.items() if k != "SPARK_LOCAL_IP"},
                    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
                    "JDK_JAVA_OPTIONS": with_archive(),
                    "SPARK_HOME": pyspark.__path__[0],
                },
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(end_session, process.pid)

        url = f"spark://{_MASTER}:{port}"
        run("master.Master", _MASTER, "--port", str(port))
        _wait_for(port)
        for host in _WORKERS:
            run("worker.Worker", host, "--cores", "1", "--memory", "1g", "--work-dir", str(directory / "work"), url)
        yield url


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + LONG_SECONDS
    while True:
        try:
            socket.create_connection((_MASTER, port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "the master does not listen"
            time.sleep(0.1)
