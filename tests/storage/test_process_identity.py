"""A process that is gone is told from one that lives, and from one of which nothing is known."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from spillable_stream.storage import process_identity
from spillable_stream.storage.process_identity import is_gone, process_name

PROGRAM = """
import sys
from spillable_stream.storage.process_identity import process_name
print(process_name(), flush=True)
sys.stdin.readline()
"""


def test_this_process_is_not_gone() -> None:
    assert process_name() == process_name() != ""
    assert not is_gone(process_name())


def test_a_process_is_gone_once_it_was_killed_also_before_its_parent_knows() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        assert name.split()[2] == str(child.pid) and not is_gone(name)
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(name)
    assert is_gone(name)


def test_an_id_that_another_process_has_now_is_another_one() -> None:
    assert is_gone(f"{process_name()}0")


@pytest.mark.parametrize("name", ["", "x", "a b c d", "a b 1 2"])
def test_of_a_process_elsewhere_nothing_is_known(name: str) -> None:
    boot, space, pid, started = process_name().split()
    assert not is_gone(name)
    assert not is_gone(f"{'0' * 32} {space} {pid} {started}0")
    assert not is_gone(f"{boot} pid:[1] {pid} {started}0")


def test_a_process_that_is_hidden_or_another_users_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    boot, space, _, _ = process_name().split()
    monkeypatch.setattr(process_identity, "_start_of", lambda _: "")  # as where /proc hides it

    def refuse(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    for kill in (lambda pid, number: None, refuse):
        monkeypatch.setattr(os, "kill", kill)
        assert not is_gone(f"{boot} {space} 1 2")


def test_a_proc_of_another_namespace_names_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    name, read = process_name(), os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: "1" if path == "/proc/self" else read(path))
    assert process_name() == "" and not is_gone(f"{name}0")


def test_where_the_system_does_not_tell_there_is_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name = process_name()
    monkeypatch.setattr(process_identity, "_namespace", lambda: "")
    assert process_name() == "" and not is_gone(name)
