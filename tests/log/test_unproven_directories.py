"""What is said about directories that nothing proves to be the channel's: each command in it works."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, ForeignDirectoryError
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.log.unproven_directories import require_claimed, unowned_directories
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import first_bytes, spread
from tests.support.command_line import run
from tests.support.damage import flip
from tests.support.mounts import unmount

FS = FileSystem()


def lose(tmp_path: Path, *names: str) -> Path:
    path = spread(tmp_path)
    for name in names:
        unmount(tmp_path / name, away=f"disk of {name}")
    return path


def of_other_state(tmp_path: Path, *names: str) -> Path:
    """Claim mount points, put there, and mount the disks that belong there."""
    path = lose(tmp_path, *names)
    assert run("repair", path, "--yes", *(f"--claim={tmp_path / name}" for name in names)).exit_code == 0
    for name in names:
        (tmp_path / name).rename(tmp_path / f"mount point of {name}")
        (tmp_path / f"disk of {name}").rename(tmp_path / name)
    return path


def one_of_each(tmp_path: Path) -> Path:
    path = of_other_state(tmp_path, "d0")
    unmount(tmp_path / "d1", away="disk of d1")
    return path


def damaged(tmp_path: Path, *names: str) -> Path:
    path = spread(tmp_path)
    for name in names:
        flip(tmp_path / name / OWNER_FILE, 60)
    return path


def without(tmp_path: Path, *names: str) -> Path:
    path = spread(tmp_path)
    for name in names:
        (tmp_path / name / OWNER_FILE).unlink()
    return path


@pytest.mark.parametrize(
    "made",
    [
        lambda base: lose(base, "d0"),
        lambda base: lose(base, "d0", "d1"),
        lambda base: of_other_state(base, "d0"),
        lambda base: of_other_state(base, "d0", "d1"),
        one_of_each,
        lambda base: damaged(base, "d1"),
        lambda base: damaged(base, "channel"),
        lambda base: damaged(base, "channel", "d0"),
        lambda base: without(base, "channel"),
        lambda base: without(base, "d0", "d1"),
    ],
)
def test_the_command_that_a_refused_open_or_a_repair_gives_opens_the_channel(
    tmp_path: Path, made: Callable[[Path], Path]
) -> None:
    """It named one directory of several, or a claim that was refused."""
    path = made(tmp_path)
    with pytest.raises(ForeignDirectoryError) as refused:
        Channel(path, create=False)
    (said,) = commands(str(refused.value))
    assert commands(run("repair", path).stderr) == commands(verify(path).unrepairable) == [said]
    assert run(*said, "--yes").exit_code == 0
    first_bytes(path)
    assert verify(path).healthy


def test_the_command_can_be_pasted_where_paths_have_a_space_and_a_quote(tmp_path: Path) -> None:
    base = tmp_path / "Ann's disks"
    base.mkdir()
    path = lose(base, "d0")
    with pytest.raises(ForeignDirectoryError) as refused:
        Channel(path, create=False)
    said = re.findall(r"'(spillable repair .*)' gives the channel", str(refused.value))
    assert [shlex.split(command) for command in said] == [
        ["spillable", "repair", str(path), "--claim", str(base / "d0")]
    ]


def test_the_command_that_is_given_for_the_rest_of_the_claims_names_those_that_were_given(tmp_path: Path) -> None:
    path = lose(tmp_path, "d0", "d1")
    refused = run("repair", path, "--claim", tmp_path / "d1", "--yes")
    (said,) = commands(refused.stderr)
    assert run(*said, "--yes").exit_code == 0
    assert verify(path).healthy


@pytest.mark.parametrize(("older", "tells"), [(False, True), (True, True), (False, False)])
def test_what_an_open_of_a_copy_beside_its_original_advises_works(tmp_path: Path, older: bool, tells: bool) -> None:
    """It advised a claim that a repair refused."""
    path, copy = spread(tmp_path), tmp_path / "copy"
    shutil.copytree(path, copy)
    if older:
        path = path.rename(tmp_path / "moved")
        first_bytes(path)
    if not tells:
        (tmp_path / "d1" / OWNER_FILE).unlink()
        unmount(tmp_path / "d0")
    with pytest.raises(ForeignDirectoryError, match=f"move {path} away") as refused:
        Channel(copy, create=False)
    assert "--claim" not in str(refused.value)
    with pytest.raises(ForeignDirectoryError, match=f"can't be given to the channel .* move {path} away"):
        raise ForeignDirectoryError(verify(copy).unrepairable)
    if tells:
        places = {"DIR": str(tmp_path / "backup"), "PATH": str(tmp_path / "second")}
        for words in commands(str(refused.value)):
            assert run(*(places.get(word, word) for word in words)).exit_code == 0
        assert first_bytes(tmp_path / "second") == [b"a", b"b"]
    path.rename(tmp_path / "away")
    if older or not tells:
        with pytest.raises(ForeignDirectoryError) as refused:
            Channel(copy, create=False)
        (said,) = commands(str(refused.value))
        assert run(*said, "--yes").exit_code == 0
    first_bytes(copy)
    assert verify(copy).healthy


def test_disks_that_were_exchanged_have_to_be_mounted_where_they_belong(tmp_path: Path) -> None:
    path = spread(tmp_path)
    for source, target in (("d0", "x"), ("d1", "d0"), ("x", "d1")):
        (tmp_path / source).rename(tmp_path / target)
    with pytest.raises(ForeignDirectoryError, match=r"it is data-1 of .* Mount the disk that belongs there") as refused:
        Channel(path)
    assert not commands(str(refused.value))
    assert "Mount the disk that belongs there" in verify(path).unrepairable


def test_a_directory_of_another_channel_does_not_make_this_one_a_copy(tmp_path: Path) -> None:
    path, other = spread(tmp_path / "one"), spread(tmp_path / "two")
    unmount(tmp_path / "one" / "d0", leave_mount_point=False)
    (tmp_path / "two" / "d0").rename(tmp_path / "one" / "d0")
    said = f"it belongs to the channel .* at {other}. Mount the disk that belongs there; or remove .*d0/{OWNER_FILE} if"
    with pytest.raises(ForeignDirectoryError, match=said):
        Channel(path)


def test_each_of_several_directories_is_named_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    layout = read_identity(FS, one_of_each(tmp_path))
    said = (
        f"{tmp_path}/d0 is of an older or another state of it; {tmp_path}/d1 has no owner.json. Some disks may not be "
        "mounted: mount them. A newer state of some may be on a disk that is not mounted: mount it; or the "
        "channel was restored"
    )
    with pytest.raises(ForeignDirectoryError, match=re.escape(said)):
        require_claimed(FS, layout, unowned_directories(FS, layout), ())


def commands(text: str) -> list[list[str]]:
    """Return the arguments of each command of this package that a text gives."""
    return [found.split() for found in re.findall(r"'spillable ([^']*)'", text)]
