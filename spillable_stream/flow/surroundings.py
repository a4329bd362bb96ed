"""What a flow sees of the world around it: the clock, the host's name, and chance.

Interceptors and selectors ask nothing else, so a test of a configuration gives them a fixed world.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["REAL", "Surroundings"]


@dataclass(frozen=True, slots=True, repr=False)
class Surroundings:
    """The world around a flow.

    Args:
        now_ms: tells the time, in milliseconds since 1970.
        host_name: tells the host's canonical name; None if it is not known.
        host_address: tells the host's address; None likewise.
        monotonic: tells a time that never goes back, in seconds.
        random_bytes: returns as many random bytes as it is asked for.
    """

    now_ms: Callable[[], int]
    host_name: Callable[[], str | None]
    host_address: Callable[[], str | None]
    random_bytes: Callable[[int], bytes]
    monotonic: Callable[[], float] = time.monotonic

    def __repr__(self) -> str:
        return "Surroundings(…)"  # `help` shows it as a default


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _host_name() -> str | None:
    return socket.getfqdn() or None


def _host_address() -> str | None:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:  # the host's name is in no directory
        return None


REAL = Surroundings(_now_ms, _host_name, _host_address, os.urandom)
