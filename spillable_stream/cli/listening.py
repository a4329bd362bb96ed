"""Where a verb that serves listens: its port, its host, and the link to it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import Annotated, NoReturn

import typer

from spillable_stream.cli.app import UNKNOWN, fail
from spillable_stream.cli.output import is_output_lost, say

__all__ = ["Port", "given_host", "link", "not_served", "say_problems"]

Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port; 0 for a free one.")]


_HINTS = {
    errno.EADDRINUSE: "; give another --port, or 0 for a free one",
    errno.EADDRNOTAVAIL: "; give --host an address of this host",
    errno.EACCES: "; give a --port above 1023",
    socket.EAI_NONAME: "; give --host a name or an address of this host",
}


def given_host(value: str) -> str:
    """Return a host as sockets take it: an address of IPv6 without the brackets that links have.

    An empty one is refused: a script's variable without a value would name every address.
    """
    host = value.removeprefix("[").removesuffix("]")
    if not host:
        raise typer.BadParameter("it is empty; give it a value")
    return host


def link(host: str, port: int, path: str) -> str:
    """Return the link to what is served.

    Args:
        host: the host: a name, or an address.
        port: the port.
        path: what is behind the slash.
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/{path}"


def say_problems(problems: Mapping[str, str], shown_as: str) -> None:
    """Say which channels can't be looked at: a wrong path is not seen from what is served until somebody looks there.

    Args:
        problems: why, by the path of each.
        shown_as: what is served of such a channel.
    """
    for path, problem in problems.items():
        where = "" if path in problem else f"{path}: "
        say(f"{where}{problem}; {shown_as} until it can be looked at")


def not_served(path: str, error: Exception, host: str, port: int) -> NoReturn:
    """Say why nothing is served, and exit.

    Args:
        path: the first channel, as it was given.
        error: what was raised.
        host: the host.
        port: the port.

    Raises:
        OSError: standard output can't be written, or nobody reads it.
    """
    if isinstance(error, OSError) and error.filename is None and not is_output_lost():
        error.filename = link(host, port, "")  # the system says of no address that it refused it
    hint = _HINTS.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    fail(path, error, False, UNKNOWN, hint)
