"""Names a process so that another one on the same host can tell that it is gone; nobody elsewhere can."""

from __future__ import annotations

import os
from pathlib import Path

from spillable_stream.storage.boot import boot_id

__all__ = ["NO_PROCESS", "has_no_process", "is_gone", "process_name"]

NO_PROCESS = "none"
"""The name of a process that is gone, as every host can tell."""

_ENDED = "ended"  # and its parent does not know it yet


def process_name() -> str:
    """Return a name for this process, which no other has: the boot, the namespace of its ID, its ID and its start.

    "" where the system does not tell (it is not Linux).
    """
    started = _start_of(os.getpid())
    space = _namespace()
    return f"{boot_id().hex()} {space} {os.getpid()} {started}" if started and space else ""


def is_gone(name: str) -> bool:
    """Tell whether a process has ended for certain: it was one of this boot and namespace, and is not there now.

    Args:
        name: what `process_name` returned to it.
    """
    if name == NO_PROCESS:
        return True
    boot, _, rest = name.partition(" ")
    space, _, rest = rest.partition(" ")
    pid, _, started = rest.partition(" ")
    if not started or not pid.isdigit() or (boot, space) != (boot_id().hex(), _namespace()):
        return False
    now = _start_of(int(pid))
    return has_no_process(int(pid)) or (bool(now) and now != started)


def has_no_process(pid: int) -> bool:
    """Tell whether no process has an ID now, as far as this process can see."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is another user's, or no process has such a number
        pass
    return False


def _namespace() -> str:
    """Return the namespace of this process's ID; "" if /proc shows another one's."""
    try:
        return os.readlink("/proc/self/ns/pid") if os.readlink("/proc/self") == str(os.getpid()) else ""
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return when a process started, in ticks since the boot; "" if that can't be read: the process may be hidden."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return _ENDED if state in "ZX" else started
