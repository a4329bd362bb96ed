"""S3 as moto plays it, in a process of its own."""

from __future__ import annotations

import contextlib
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from demo.cluster.processes import LOOPBACK, serving

# moto asks whether an object is there, and then writes it: of two requests at once, both may create it. At each request
# it also lists its own directory, which takes almost as long as all the rest.
_ONE_AT_A_TIME = """
import threading
import moto.backends
import moto.server

modules = [*moto.backends.list_of_moto_modules()]
moto.backends.list_of_moto_modules = lambda: modules
run, turn = moto.server.run_simple, threading.Lock()

def alone(app):
    def call(environ, start_response):
        with turn:
            return [b"".join(app(environ, start_response))]
    return call

moto.server.run_simple = lambda host, port, app, **named: run(host, port, alone(app), **named)
moto.server.main()
"""

__all__ = ["S3_ENVIRONMENT", "make_bucket", "moto_server"]

S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test-key",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_REGION": "us-east-1",
}


@contextlib.contextmanager
def moto_server(directory: Path, address: str = LOOPBACK, enter: Sequence[str] = ()) -> Iterator[str]:
    """Run the server at a host's address, and yield where.

    Args:
        directory: where its log goes.
        address: the address.
        enter: a command, with its arguments, that runs another one.
    """
    start = _ONE_AT_A_TIME
    with serving(
        lambda port: [*enter, sys.executable, "-c", start, "-H", address, "-p", str(port)],
        directory / "moto.log",
        address=address,
    ) as port:
        yield f"http://{address}:{port}"


def make_bucket(url: str, name: str) -> None:
    """Create a bucket; the server checks no signatures."""
    urllib.request.urlopen(urllib.request.Request(f"{url}/{name}", method="PUT"), timeout=30).close()
