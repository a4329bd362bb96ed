"""What is created has its mode and its group; a directory is trusted if nobody else can have made it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spillable_stream.storage.access import Access
from tests.lab.users import NEEDS_USERS

GROUP = 65000


def _open_or_make(access: Access, path: Path, *, exclusive: bool = True) -> None:
    opened: list[int] = []
    access.open_or_make(path, os.O_RDWR, opened, exclusive=exclusive)
    os.close(opened[0])


def test_a_new_file_and_a_new_directory_get_the_mode(tmp_path: Path) -> None:
    access = Access(0o750)
    _open_or_make(access, tmp_path / "file")
    access.make_directory(tmp_path / "directory")
    assert [stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("file", "directory")] == [0o640, 0o750]


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o644)
    _open_or_make(Access(0o770), tmp_path / "file", exclusive=False)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    with pytest.raises(FileExistsError):
        _open_or_make(Access(), tmp_path / "file")


@NEEDS_USERS
def test_what_is_created_gets_the_group(tmp_path: Path) -> None:
    access = Access(0o770, GROUP)
    _open_or_make(access, tmp_path / "file")
    access.make_directory(tmp_path / "directory")
    assert [(tmp_path / n).stat().st_gid for n in ("file", "directory")] == [GROUP, GROUP]


@NEEDS_USERS
@pytest.mark.parametrize(
    ("user", "group", "mode", "private", "shared"),
    [
        (1, GROUP, 0o700, True, True),
        (1, 7, 0o700, True, True),
        (1, GROUP, 0o770, False, True),
        (2, GROUP, 0o770, False, True),
        (2, GROUP, 0o750, False, True),
        (2, GROUP, 0o2770, False, True),
        (2, 7, 0o770, False, False),
        (2, 7, 0o700, False, False),
        (1, 7, 0o770, False, False),
        (2, GROUP, 0o771, False, False),
        (1, GROUP, 0o777, False, False),
    ],
)
def test_a_directory_is_trusted_if_the_owner_or_the_group_alone_can_have_created_it(
    tmp_path: Path, user: int, group: int, mode: int, private: bool, shared: bool
) -> None:
    home, found = tmp_path / "home", tmp_path / "found"
    home.mkdir()
    os.chown(home, 1, GROUP)
    found.mkdir()
    os.chown(found, user, group)
    found.chmod(mode)
    assert Access().trusts(os.lstat(found), os.stat(home)) is private
    assert Access(0o770).trusts(os.lstat(found), os.stat(home)) is shared
    link = tmp_path / "link"
    link.symlink_to(found)
    assert not Access(0o770).trusts(os.lstat(link), os.stat(home))
