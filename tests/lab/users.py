"""Other users of this machine: children that become one, and a directory that they can reach. Needs root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.children import Child
from tests.support.damage import remove_memory_under

__all__ = ["NEEDS_USERS", "NOBODY", "SOMEBODY", "common_directory", "run_as", "why_no_users"]


def why_no_users() -> str:
    """Return what this machine lacks to become other users, in a sentence; "" for nothing."""
    return "needs root, to become other users" if os.geteuid() != 0 else ""


NEEDS_USERS = pytest.mark.skipif(bool(why_no_users()), reason=why_no_users() or "-")
SOMEBODY, NOBODY = 65533, 65534


def run_as(user: int, do: Callable[[], object], stderr: Path, *groups: int) -> str:
    """Do something as a user; return what went wrong, "" if nothing did.

    Args:
        user: the user's ID, and the group's.
        do: what to do.
        stderr: where complaints go, a file that any user may write.
        groups: which groups the user is in too.
    """

    def become() -> None:
        os.setgroups(groups)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        do()

    stderr.touch()
    stderr.chmod(0o666)
    before = stderr.stat().st_size
    code = Child(become, stderr).wait()
    return "" if code == 0 else f"ended with {code}: {stderr.read_text()[before:][-3000:]}"


@contextmanager
def common_directory() -> Iterator[Path]:
    """A directory that every user may enter and make files in, as ``/tmp`` is."""
    directory = Path(tempfile.mkdtemp(prefix="crash-"))
    directory.chmod(0o1777)
    try:
        yield directory
    finally:
        remove_memory_under(directory)
        shutil.rmtree(directory)
