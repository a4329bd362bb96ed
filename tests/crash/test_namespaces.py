"""Two containers that share a channel's directory and have each its own shared memory, under one name or under two."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.errors import ChannelBusyError, MemoryLossWarning, OtherHostError
from tests.lab.children import wait_until
from tests.lab.hosts import NEEDS_NAMESPACES, Host
from tests.support.damage import reboot
from tests.support.events import numbered, put, take

pytestmark = NEEDS_NAMESPACES
NAMES = pytest.mark.parametrize("name", ["one", "two"], ids=["one name", "two names"])
_OPTIONS: dict[str, Any] = {"minimum_required_space": 0, "memory_capacity": 1000, "byte_capacity": 1 << 20}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a directory that is not in shared memory, of which each container has its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        yield Path(place)


def fill_and_die(path: Path) -> None:
    """Put events into memory, take some, and be killed."""
    channel = Channel(path, **_OPTIONS)
    put(channel, *numbered(0, 20))
    assert take(channel, 5) == numbered(0, 5)
    assert channel.stats().memory.events == 15
    os.kill(os.getpid(), signal.SIGKILL)


def refused(path: Path, *errors: type[Exception]) -> None:
    """Open a channel whose memory is elsewhere, which must be refused; the disk tier may be recovered before."""
    for create in (True, False):
        with pytest.raises(errors):
            Channel(path, create=create)


def whole(path: Path) -> None:
    """Open a channel and take all that was put, with no word of a loss."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Channel(path, create=False) as channel:
            assert channel.stats().lost == channel.stats().doubtful == ()
            put(channel, b"20")
            assert take(channel) == numbered(5, 16)


@NAMES
@pytest.mark.parametrize("rebooted", [False, True], ids=["", "head lost"])
def test_what_is_in_the_memory_of_another_container_is_never_declared_lost(
    tmp_path: Path, name: str, rebooted: bool
) -> None:
    path = tmp_path / "channel"
    with Host(tmp_path, "one") as one, Host(tmp_path, name) as two:
        assert one.start(lambda: fill_and_die(path)).killed_itself()
        if rebooted:
            reboot(path)
        for _ in range(2):
            assert two.run(lambda: refused(path, OtherHostError)) == ""
        assert one.run(lambda: whole(path)) == ""
        assert two.run(lambda: Channel(path, create=False).close()) == ""  # it was closed: nothing is in memory


@NAMES
def test_a_channel_that_is_open_in_another_container_with_memory_there_is_refused(tmp_path: Path, name: str) -> None:
    path, stop = tmp_path / "channel", tmp_path / "stop"

    def live() -> None:
        with Channel(path, **_OPTIONS, lock_timeout=0.5) as channel:
            channel.engine().lock_timeout_seconds = 60.0
            put(channel, *numbered(0, 20))
            (tmp_path / "ready").touch()
            while not stop.exists():
                put(channel, b"more")
                time.sleep(0.01)
            assert len(take(channel, 1 << 20)) >= 20

    with Host(tmp_path, "one") as one, Host(tmp_path, name) as two, one.start(live) as child:
        assert wait_until(lambda: (tmp_path / "ready").exists() or not child.alive())
        assert child.alive(), (tmp_path / "stderr").read_text()
        before = os.listdir(path)

        def refused_while_live() -> None:
            with pytest.raises((OtherHostError, ChannelBusyError)):
                Channel(path)

        assert two.run(refused_while_live) == ""
        assert os.listdir(path) == before
        stop.touch()
        assert child.wait() == 0, (tmp_path / "stderr").read_text()


@NAMES
def test_a_channel_on_disk_goes_from_container_to_container(tmp_path: Path, name: str) -> None:
    path = tmp_path / "channel"

    def put_and_die(number: int) -> None:
        put(Channel(path, minimum_required_space=0), b"%d" % number)
        os.kill(os.getpid(), signal.SIGKILL)

    with Host(tmp_path, "one") as one, Host(tmp_path, name) as two:
        for i, host in enumerate((one, two, one)):
            assert host.start(lambda i=i: put_and_die(i)).killed_itself()  # type: ignore[misc]
    with Channel(path) as channel:
        assert take(channel) == numbered(0, 3)


def test_a_planted_memory_of_another_container_is_not_taken_for_the_channels(tmp_path: Path) -> None:
    """The other one's directory of that name is there, and holds what it held a while ago."""
    path, stale = tmp_path / "channel", tmp_path / "stale"

    def keep_a_copy() -> None:
        shutil.copytree(os.readlink(path / "memory"), stale)

    def plant() -> None:
        shutil.copytree(stale, os.readlink(path / "memory"))

    def some(do: Callable[[Channel], object]) -> Callable[[], None]:
        def run() -> None:
            do(Channel(path, **_OPTIONS))
            os.kill(os.getpid(), signal.SIGKILL)

        return run

    with Host(tmp_path, "one") as one, Host(tmp_path, "one") as two:
        assert one.start(some(lambda c: put(c, *numbered(0, 10)))).killed_itself()
        assert one.run(keep_a_copy) == ""
        assert one.start(some(lambda c: (put(c, *numbered(10, 10)), take(c, 5)))).killed_itself()
        assert two.run(plant) == ""
        two.run(lambda: Channel(path).close())  # refused, or not: nothing may be lost of it
        assert one.run(lambda: whole(path)) == ""


def test_when_the_other_container_is_gone_its_memory_can_be_given_up_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "channel"

    def give_up() -> None:
        (path / "memory").unlink()
        with pytest.warns(MemoryLossWarning), Channel(path) as channel:
            assert channel.stats().lost == ((6, 20),)
            put(channel, b"goes on")
            assert take(channel) == [b"goes on"]

    with Host(tmp_path, "one") as one, Host(tmp_path, "one") as two:
        assert one.start(lambda: fill_and_die(path)).killed_itself()
        one.stop()
        assert two.run(give_up) == ""
