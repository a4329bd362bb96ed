"""Directories without an owner file, which a repair gives to a channel only if somebody names them."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, DataLossError, ForeignDirectoryError, OptionError, StorageError
from spillable_stream.integrity.findings import Severity
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity, write_identity
from spillable_stream.log.owner_file import OWNER_FILE, DirectoryOwner, read_owner, write_owner
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import contents, contents_of_copy, fill, first_bytes, snapshot, spread
from tests.support.damage import flip, log_file
from tests.support.events import numbered, peek, put
from tests.support.mounts import NEEDS_MOUNTS, unmount

FS = FileSystem()


def owner_of(directory: Path) -> DirectoryOwner:
    found = read_owner(FS, directory)
    assert found is not None
    return found


@pytest.mark.parametrize("missing", [["d0"], ["d1"], ["d0", "d1"], ["images"]])
def test_no_repair_takes_a_mount_point_without_its_disk_for_a_directory_that_was_emptied(
    tmp_path: Path, missing: list[str]
) -> None:
    """It gave up the events on that disk, and the disk was refused when it was back."""
    path = spread(tmp_path, checkpoint_dir=str(tmp_path / "images"))
    away = {name: unmount(tmp_path / name, away=f"disk of {name}") for name in missing}
    before = snapshot(tmp_path)
    first = tmp_path / missing[0]
    claims = " ".join(f"--claim {tmp_path}/{name}" for name in missing)
    gives = f"'spillable repair {path} {claims}' gives the channel"
    if missing == ["d0", "d1"]:
        said = f"are not proven to be its own: {first} has no owner.json; {tmp_path}/d1 has no owner.json"
        advice = (
            "Some disks may not be mounted: mount them. If they are the ones to continue with, "
            f"{gives} the directories as they are"
        )
        refusal = f"directories of the channel {path} {said}. {advice}"
    else:
        advice = (
            f"Its disk may not be mounted: mount it. If it is mounted, or lost for good, {gives} the directory as it is"
        )
        refusal = f"{first}, a directory of the channel {path}, has no owner.json. {advice}"
    with pytest.raises(ForeignDirectoryError, match=re.escape(refusal)):
        repair(path)
    unproven = f"{first} of the channel {path} is not proven to be this channel's"
    with pytest.raises(ForeignDirectoryError, match=re.escape(unproven)) as opened:
        Channel(path)
    assert advice in str(opened.value)
    report = verify(path)
    assert report.unrepairable == refusal and report.unowned == tuple(away_from(path, missing))
    assert snapshot(tmp_path) == before
    for name in missing:
        (tmp_path / name).rmdir()
        away[name].rename(tmp_path / name)
    assert verify(path).healthy and sorted(first_bytes(path)) == [b"a", b"b"]


def away_from(path: Path, names: list[str]) -> list[Path]:
    return [path.parent / name for name in names]


@pytest.mark.parametrize(("claimed", "left"), [("d0", [b"a"]), ("d1", [b"b"])])
def test_a_directory_whose_disk_is_lost_is_the_channels_as_it_is_when_it_is_claimed(
    tmp_path: Path, claimed: str, left: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spread(tmp_path)
    unmount(tmp_path / claimed)
    monkeypatch.chdir(tmp_path)
    report = repair(path, claim=claimed)
    assert report.loss.count == 1 and verify(path).healthy and repair(path, claim=claimed).healthy
    assert first_bytes(path) == left


def test_a_data_directory_in_the_channel_may_be_a_mount_point_too(path: Path) -> None:
    fill(path)
    before = contents_of_copy(path)
    away = unmount(path / "data")
    with pytest.raises(ForeignDirectoryError, match=rf"{path}/data, a directory .* has no owner\.json"):
        repair(path)
    (path / "data").rmdir()
    with pytest.raises(ForeignDirectoryError, match=f"{path}/data, a directory .* is missing"):
        repair(path)
    (path / "data").symlink_to(away.with_name("not there"))
    with pytest.raises(ForeignDirectoryError, match=f"{path}/data, a directory .* is missing"):
        repair(path)
    (path / "data").unlink()
    away.rename(path / "data")
    assert verify(path).healthy and contents(path) == before


@pytest.mark.parametrize("directory", ["elsewhere", "channel"])
def test_only_a_directory_of_the_channel_is_claimed(tmp_path: Path, directory: str) -> None:
    path = spread(tmp_path)
    with pytest.raises(
        OptionError, match=f"{directory} can't be claimed: it is not a directory .*; give one of {tmp_path}/d0, "
    ):
        repair(path, claim=tmp_path / directory)


def test_a_channel_of_the_first_releases_is_not_given_an_empty_directory_either(tmp_path: Path) -> None:
    path = spread(tmp_path)
    for file in tmp_path.rglob(OWNER_FILE):
        file.unlink()
    write_identity(FS, replace(read_identity(FS, path), owned=False))
    away = unmount(tmp_path / "d0")
    with pytest.raises(ForeignDirectoryError, match=r"/d0, a directory of the channel .*, has no owner\.json"):
        repair(path)
    (tmp_path / "d0").rmdir()
    away.rename(tmp_path / "d0")
    assert sorted(first_bytes(path)) == [b"a", b"b"]


@NEEDS_MOUNTS
@pytest.mark.parametrize("mounted", ["d0", "d1", "images", "channel/data"])
def test_no_repair_takes_the_mount_point_of_a_real_disk(
    request: pytest.FixtureRequest, tmp_path: Path, mounted: str
) -> None:
    disk, backing = tmp_path / mounted, tmp_path / "backing"
    disk.mkdir(parents=True)
    backing.mkdir()
    request.addfinalizer(lambda: subprocess.run(["umount", "--lazy", disk], capture_output=True))
    subprocess.run(["mount", "--bind", backing, disk], check=True)
    if mounted == "channel/data":
        with Channel(tmp_path / "channel", minimum_required_space=0) as channel:
            put(channel, b"a", b"b")
    else:
        spread(tmp_path, checkpoint_dir=str(tmp_path / "images"))
    path = tmp_path / "channel"
    subprocess.run(["umount", disk], check=True)
    with pytest.raises(
        ForeignDirectoryError, match=rf"^{disk}, a directory of the channel .*, has no owner\.json\. Its disk"
    ):
        repair(path)
    assert not [*disk.iterdir()]
    subprocess.run(["mount", "--bind", backing, disk], check=True)
    assert verify(path).healthy and sorted(first_bytes(path)) == [b"a", b"b"]


@pytest.mark.parametrize("claim", [True, [True], [""], b"backup"])
def test_what_names_no_directory_claims_none(tmp_path: Path, claim: object) -> None:
    path, backup = spread(tmp_path, backup_checkpoint_dir=str(tmp_path / "backup")), tmp_path / "backup"
    unmount(backup)
    with pytest.raises(OptionError, match=r"claim must be the paths? |claim must be a path|claim is empty"):
        repair(path, claim=claim)  # type: ignore[arg-type]
    assert not [*backup.iterdir()]


class Mount:
    """A disk at a directory, as far as a channel sees it: what is mounted there, and what is below the mount point.

    Args:
        directory: where it is, mounted.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._hidden = directory.with_name(f"{directory.name} without its disk")
        self._hidden.mkdir()

    def swap(self) -> None:
        """Unmount the disk, or mount it again."""
        spare = self._directory.with_name("spare")
        for source, target in (
            (self._directory, spare),
            (self._hidden, self._directory),
            (spare, self._hidden),
        ):
            source.rename(target)


def on_a_disk(tmp_path: Path) -> tuple[Path, Path, Mount]:
    """Create a channel with five events on a disk, and return its path, the disk's, and how to unmount it."""
    path, disk = tmp_path / "channel", tmp_path / "disk"
    with Channel(path, data_dirs=[str(disk)], minimum_required_space=0) as channel:
        put(channel, *numbered(0, 5))
    return path, disk, Mount(disk)


def put_more(path: Path, *bodies: bytes) -> None:
    with Channel(path, create=False, minimum_required_space=0) as channel:
        put(channel, *bodies)


def refused_as_another_state(path: Path, disk: Path) -> None:
    """Prove that neither a repair nor an open takes a directory as it is."""
    advice = (
        "The newer one may be on a disk that is not mounted: mount it; or the channel was restored from a backup. "
        f"If this is the one to continue with, 'spillable repair {path} --claim {disk}' gives the channel the "
        "directory as it is"
    )
    before = snapshot(path, disk)
    with pytest.raises(ForeignDirectoryError) as refused:
        repair(path)
    said = f"{disk}, a directory of the channel {path}, is of an older or another state of it. {advice}"
    assert str(refused.value) == said == verify(path).unrepairable and verify(path).unowned == (disk,)
    assert snapshot(path, disk) == before
    with pytest.raises(ForeignDirectoryError, match=re.escape(advice)):
        Channel(path, create=False)


def test_a_mount_point_that_was_claimed_once_does_not_pass_for_its_disk_when_that_is_unmounted_again(
    tmp_path: Path,
) -> None:
    """A repair "did not lose any event" of 105, and left an empty channel."""
    path, disk, mount = on_a_disk(tmp_path)
    mount.swap()
    repair(path, claim=disk)
    mount.swap()
    refused_as_another_state(path, disk)
    assert repair(path, claim=disk).loss.count == 0
    put_more(path, *numbered(5, 100))
    mount.swap()
    refused_as_another_state(path, disk)
    report = verify(path)
    assert report.loss.lost == ((1, 105),)
    assert not [found for found in report.findings if "cut short" in found.text]
    left = snapshot(disk)
    mount.swap()
    assert verify(path).healthy
    with Channel(path, create=False) as channel:
        assert peek(channel, 200) == numbered(0, 105)
    mount.swap()
    assert snapshot(disk) == left
    assert repair(path, claim=disk).loss.lost == ((1, 105),) and verify(path).healthy


def test_a_disk_that_is_back_after_its_mount_point_was_claimed_is_not_taken_for_what_was_put_since(
    tmp_path: Path,
) -> None:
    """``--yes`` gave up what had been acknowledged since the claim."""
    path, disk, mount = on_a_disk(tmp_path)
    mount.swap()
    repair(path, claim=disk)
    put_more(path, b"n1", b"n2")
    mount.swap()
    refused_as_another_state(path, disk)
    mount.swap()
    assert verify(path).healthy
    with Channel(path, create=False) as channel:
        assert peek(channel) == [b"n1", b"n2"]
        ids = channel.stats().last_id
    mount.swap()
    ((first, last),) = repair(path, claim=disk).loss.lost
    assert first <= ids - 1 < ids <= last
    with Channel(path, create=False) as channel:
        assert peek(channel) == numbered(0, 5)


def test_a_claimed_state_that_only_the_head_is_newer_than_is_not_a_repair_that_was_cut_short(tmp_path: Path) -> None:
    path, disk, mount = on_a_disk(tmp_path)
    mount.swap()
    repair(path, claim=disk)
    mount.swap()
    repair(path, claim=disk)
    put_more(path, b"5")
    for checkpoint in (path / "checkpoint").glob("checkpoint-*"):
        checkpoint.unlink()
    mount.swap()
    report = verify(path)
    assert report.loss.lost == ((1, 6),) and not [found for found in report.findings if "cut short" in found.text]


def test_a_clock_that_was_set_back_makes_no_repair_take_the_newest_log_for_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the repair began was older by the clock than the head and the checkpoint of a restored home."""
    path, disk, _ = on_a_disk(tmp_path)
    shutil.copytree(path, tmp_path / "backup", symlinks=True)
    clock, clock_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: clock() - 7200)
    monkeypatch.setattr(time, "time_ns", lambda: clock_ns() - 7200 * 10**9)
    flip(disk / "log-000001", (disk / "log-000001").read_bytes().index(numbered(0, 5)[2]))
    repair(path)
    put_more(path, *numbered(100, 50))
    shutil.rmtree(path)
    (tmp_path / "backup").rename(path)
    with pytest.raises(DataLossError):
        Channel(path, create=False)
    repair(path)
    with Channel(path, create=False) as channel:
        assert peek(channel, 200)[-50:] == numbered(100, 50)
        assert channel.stats().last_id >= 55


def test_a_data_directory_in_the_channel_of_an_older_state_costs_no_event_in_silence(path: Path) -> None:
    """It follows the channel, whatever its token is: the log itself says that it is not the newest."""
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 5))
    mount = Mount(path / "data")
    mount.swap()
    repair(path, claim=path / "data")
    mount.swap()
    put_more(path, *numbered(5, 100))
    mount.swap()
    with pytest.raises(DataLossError):
        Channel(path, create=False)
    assert verify(path).loss.lost == ((1, 105),)
    with pytest.raises(ForeignDirectoryError, match=r"/data, a directory of .*, is of an older or another state of it"):
        repair(path)
    mount.swap()
    assert verify(path).healthy
    mount.swap()
    assert repair(path, claim=path / "data").loss.lost == ((1, 105),) and verify(path).healthy


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_claimed_directory_in_the_channel_needs_no_second_claim(path: Path, is_damaged: bool) -> None:
    """It kept its token, so the report of the repair said that it would change nothing."""
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    write_owner(FS, path / "data", replace(owner_of(path / "data"), token="another"))
    if is_damaged:
        flip(log_file(path), 40)
    report = repair(path, claim=path / "data")
    assert report.unrepairable == "" and report.unowned == ()
    assert owner_of(path / "data").token == owner_of(path).token
    found = verify(path)
    assert found.healthy and found.unowned == ()


@pytest.mark.parametrize("damaged", ["channel", "disk"])
def test_a_damaged_owner_file_makes_no_older_state_the_newest(tmp_path: Path, damaged: str) -> None:
    """A repair took the disk that had come back, and gave up what was put since."""
    path, disk, mount = on_a_disk(tmp_path)
    mount.swap()
    repair(path, claim=disk)
    put_more(path, b"n1", b"n2")
    mount.swap()
    flip(tmp_path / damaged / OWNER_FILE, 60)
    said = "may be of an older state: .*/channel/owner.json, which" if damaged == "channel" else "owner.json that can't"
    with pytest.raises(ForeignDirectoryError, match=f"{disk}, a directory of .*{said}.* --claim {disk}'"):
        repair(path)
    mount.swap()
    if damaged == "channel":  # nothing proves the right one, either
        repair(path, claim=disk)
    assert verify(path).healthy
    with Channel(path, create=False) as channel:
        assert peek(channel) == [b"n1", b"n2"]


def test_a_claim_that_can_not_be_met_leaves_no_quarantine(tmp_path: Path) -> None:
    path, disk, _ = on_a_disk(tmp_path)
    disk.rename(tmp_path / "away")
    disk.symlink_to(tmp_path / "nowhere")
    before = snapshot(tmp_path)
    with pytest.raises(StorageError, match="create its target"):
        repair(path, claim=disk)
    assert snapshot(tmp_path) == before


def test_a_claim_of_a_directory_that_is_none_of_the_channels_is_refused_before_the_channel_is_read(
    tmp_path: Path,
) -> None:
    path = spread(tmp_path)
    told: list[object] = []
    with pytest.raises(OptionError, match="d5 can't be claimed: it is not a directory of the channel"):
        repair(path, claim=tmp_path / "d5", progress=told.append)
    assert not told


def of_the_first_releases(path: Path) -> Path:
    """Make a channel one without owner files, as the first releases created it."""
    for file in path.parent.rglob(OWNER_FILE):
        file.unlink()
    write_identity(FS, replace(read_identity(FS, path), owned=False))
    return path


def with_an_empty_data_directory(tmp_path: Path) -> Path:
    """Create a channel of the first releases whose first data directory never had a file, without checkpoints."""
    path, data = tmp_path / "channel", [str(tmp_path / "d0"), str(tmp_path / "d1")]
    images = str(tmp_path / "images")
    with Channel(path, data_dirs=data, checkpoint_dir=images, minimum_required_space=0) as channel:
        put(channel, b"a" * 9)
        put(channel, b"b")
    of_the_first_releases(path)
    for checkpoint in (tmp_path / "images").iterdir():
        checkpoint.unlink()
    assert not [*(tmp_path / "d0").iterdir()]
    return path


def test_a_data_directory_of_the_first_releases_that_never_had_a_file_may_be_empty(tmp_path: Path) -> None:
    path = with_an_empty_data_directory(tmp_path)
    report = verify(path)
    assert report.healthy and report.unrepairable == "" and report.unowned == ()
    assert first_bytes(path) == [b"a", b"b"]


@pytest.mark.parametrize("name", ["d0", "images"])
def test_a_directory_of_the_first_releases_that_is_missing_is_found_and_given_up_if_it_is_claimed(
    tmp_path: Path, name: str
) -> None:
    """The open refused it, and told to run a verify, which found the channel healthy."""
    path, missing = with_an_empty_data_directory(tmp_path), tmp_path / name
    missing.rmdir()
    with pytest.raises(ForeignDirectoryError, match=f"{missing} is not proven .* missing.* 'spillable verify {path}'"):
        Channel(path, create=False)
    report = verify(path)
    assert [(found.path, found.severity) for found in report.findings] == [(missing, Severity.DAMAGE)]
    assert f"'spillable repair {path} --claim {missing}'" in report.unrepairable
    with pytest.raises(ForeignDirectoryError, match=f"--claim {missing}"):
        repair(path)
    repair(path, claim=missing)
    assert verify(path).healthy and first_bytes(path) == [b"a", b"b"]


def test_other_damage_of_such_a_channel_is_repaired(tmp_path: Path) -> None:
    path = with_an_empty_data_directory(tmp_path)
    file = tmp_path / "d1" / "log-000001"
    flip(file, file.read_bytes().index(b"a" * 9))
    assert repair(path).loss.lost == ((1, 1),)
    assert verify(path).healthy and first_bytes(path) == [b"b"]


@pytest.mark.parametrize("missing", ["d0", "d1"])
@pytest.mark.parametrize("leave_mount_point", [True, False])
def test_a_data_directory_of_the_first_releases_is_missed_if_files_of_it_are(
    tmp_path: Path, missing: str, leave_mount_point: bool
) -> None:
    path = of_the_first_releases(spread(tmp_path))
    unmount(tmp_path / missing, leave_mount_point=leave_mount_point)
    with pytest.raises(ForeignDirectoryError, match=f"/{missing}, a directory of the channel"):
        repair(path)
    assert verify(path).unowned == (tmp_path / missing,)


@pytest.mark.parametrize("leave_mount_point", [True, False])
def test_a_claim_after_which_nothing_could_be_repaired_changes_nothing(tmp_path: Path, leave_mount_point: bool) -> None:
    """It created the directory, and gave all of them a new token, before it said so."""
    path, disk = tmp_path / "channel", tmp_path / "disk"
    with Channel(path, data_dirs=[str(disk)], checkpoint_dir=str(disk), minimum_required_space=0) as channel:
        put(channel, b"a")
    unmount(disk, away="away", leave_mount_point=leave_mount_point)
    before = snapshot(tmp_path)
    with pytest.raises(ForeignDirectoryError, match="Its disk may not be mounted"):
        repair(path)
    with pytest.raises(CorruptionError, match="no data files, and no checkpoint that can be read"):
        repair(path, claim=disk)
    assert snapshot(tmp_path) == before
