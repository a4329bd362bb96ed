"""Repairs of directories that do not prove whose they are, of those elsewhere, and of the copies of checkpoints."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import BackupCheckpointWarning, Channel, ForeignDirectoryError
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.owner_file import OWNER_FILE, read_owner, write_owner
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import fill, first_bytes, snapshot, spread
from tests.support.damage import flip, log_file
from tests.support.events import put
from tests.support.fake_files import Call, DeadDirectory, FaultyFileSystem
from tests.support.mounts import unmount


@pytest.mark.parametrize("missing", [["d0"], ["d1"], ["d0", "d1"], ["images"]])
def test_a_directory_elsewhere_that_is_missing_is_waited_for_and_given_up_only_if_it_is_claimed(
    tmp_path: Path, missing: list[str]
) -> None:
    """Its disk may not be mounted. A repair said that it was done, and the channel was refused ever after."""
    path = spread(tmp_path, checkpoint_dir=str(tmp_path / "images"))
    left = {"d0": b"b", "d1": b"a"}
    for name in missing:
        shutil.rmtree(tmp_path / name)
        left.pop(name, None)
    before = snapshot(path)
    with pytest.raises(ForeignDirectoryError, match=rf"/{missing[0]}(, a directory of .*,)? is missing[.;]"):
        repair(path)
    assert snapshot(path) == before and not (tmp_path / missing[0]).exists()
    repair(path, claim=[tmp_path / name for name in missing])
    assert verify(path).healthy
    assert sorted(first_bytes(path)) == sorted(left.values())


def test_a_data_directory_inside_of_the_channel_that_is_gone_is_created_by_one_repair(path: Path) -> None:
    fill(path)
    shutil.rmtree(path / "data")
    repair(path, claim=path / "data")
    assert verify(path).healthy
    with Channel(path, create=False) as channel:
        put(channel, b"it lives on")


def with_backup(tmp_path: Path) -> Path:
    """Create a channel with a copy of its checkpoint elsewhere, closed, and return its path."""
    return spread(tmp_path, backup_checkpoint_dir=str(tmp_path / "backup"))


@pytest.mark.parametrize("whose", ["channel", "backup"])
@pytest.mark.parametrize("kind", ["damaged", "missing"])
def test_one_repair_mends_the_owner_file_and_a_damaged_copy_of_a_checkpoint(
    tmp_path: Path, whose: str, kind: str
) -> None:
    path = with_backup(tmp_path)
    (copy,) = (tmp_path / "backup").glob("checkpoint-*")
    flip(copy, 60)
    if kind == "damaged":
        (tmp_path / whose / OWNER_FILE).write_bytes(b"{")
    else:
        (tmp_path / whose / OWNER_FILE).unlink()
    report = repair(path, claim=[tmp_path / name for name in ("backup", "d0", "d1")])
    assert copy in {found.path for found in report.findings}
    assert verify(path).healthy
    assert first_bytes(path) == [b"a", b"b"]


@pytest.mark.parametrize("how", ["new", "of an older move"])
def test_a_directory_for_copies_of_checkpoints_that_the_warning_leaves_to_a_repair_is_the_channels_after_it(
    tmp_path: Path, how: str
) -> None:
    """The disk was replaced, and the directory created anew; or a copy of the channel took the channel's place."""
    path, backup = with_backup(tmp_path), tmp_path / "backup"
    if how == "new":
        shutil.rmtree(backup)
        backup.mkdir()
    else:
        owner = read_owner(FileSystem(), backup)
        assert owner is not None
        write_owner(FileSystem(), backup, replace(owner, token="0" * 32))
    with pytest.warns(BackupCheckpointWarning, match="not proven to be .*'spillable repair "), Channel(path) as channel:
        channel.checkpoint()
    report = repair(path, claim=tmp_path / "backup")
    assert [found.path for found in report.findings if found.severity == "warning"] == [backup / OWNER_FILE]
    assert verify(path).healthy and repair(path).quarantine is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Channel(path) as channel:
            channel.checkpoint()
    assert [*backup.glob("checkpoint-*")]


def test_a_mount_point_without_its_disk_is_a_note_and_no_repair_takes_it_unless_told_to(
    tmp_path: Path,
) -> None:
    path, backup = with_backup(tmp_path), tmp_path / "backup"
    unmount(backup)
    before = snapshot(path)
    for report in (verify(path), repair(path)):
        assert report.healthy and report.unowned == (backup,) and report.quarantine is None
        (note,) = [found for found in report.findings if found.path == backup]
        assert note.severity == "note" and "has no owner.json. Its disk may not be mounted" in note.text
    assert snapshot(path) == before and not [*backup.iterdir()]


@pytest.mark.parametrize("leave_mount_point", [True, False])
def test_the_repair_of_other_damage_takes_no_mount_point_and_the_disk_is_the_channels_when_it_is_back(
    tmp_path: Path, leave_mount_point: bool
) -> None:
    """The channel was given the mount point, and its disk was refused until a second repair."""
    path, backup = with_backup(tmp_path), tmp_path / "backup"
    away = unmount(backup, leave_mount_point=leave_mount_point)
    flip(tmp_path / "d1" / "log-000001", 60)
    assert not repair(path).healthy
    assert not leave_mount_point or not [*backup.iterdir()]
    if leave_mount_point:
        backup.rmdir()
    away.rename(backup)
    assert verify(path).healthy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_bytes(path) == [b"a", b"b"]


@pytest.mark.parametrize("leave_mount_point", [True, False])
def test_a_repair_of_owner_files_leaves_a_mount_point_without_its_disk_alone(
    tmp_path: Path, leave_mount_point: bool
) -> None:
    path, backup = with_backup(tmp_path), tmp_path / "backup"
    away = unmount(backup, leave_mount_point=leave_mount_point)
    (path / OWNER_FILE).write_bytes(b"{")
    repair(path, claim=[tmp_path / "d0", tmp_path / "d1"])
    assert verify(path).healthy
    assert [*backup.iterdir()] == [] if leave_mount_point else not backup.exists()
    if leave_mount_point:
        backup.rmdir()
    away.rename(backup)
    assert not verify(path).healthy  # the owner files have a new token since
    repair(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_bytes(path) == [b"a", b"b"]


def test_a_directory_of_a_log_without_an_owner_file_may_be_one_whose_disk_is_not_mounted(tmp_path: Path) -> None:
    path = spread(tmp_path)
    (tmp_path / "d0" / OWNER_FILE).unlink()
    (found,) = [found for found in verify(path).findings if found.path == tmp_path / "d0" / OWNER_FILE]
    assert found.text.endswith("it has no owner.json. Its disk may not be mounted")


def test_a_damaged_owner_file_of_the_backup_is_mended(tmp_path: Path) -> None:
    path = with_backup(tmp_path)
    owner = tmp_path / "backup" / OWNER_FILE
    owner.write_bytes(b"{")
    report = repair(path)
    assert [found.path for found in report.findings if found.severity == "warning"] == [owner]
    assert verify(path).healthy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_bytes(path) == [b"a", b"b"]


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(("whose", "kind"), [("copy", "damaged"), ("copy", "missing"), ("backup", "damaged")])
def test_a_repair_of_a_copy_leaves_the_checkpoints_in_the_backup_of_its_original_alone(
    tmp_path: Path, whose: str, kind: str, opened: bool
) -> None:
    backup = {"backup_checkpoint_dir": str(tmp_path / "backup")}
    path, copy = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, minimum_required_space=0, **backup) as channel:
        put(channel, b"a")
    shutil.copytree(path, copy)
    if opened:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BackupCheckpointWarning)
            assert first_bytes(copy) == [b"a"]
    with Channel(path, max_file_size=1000) as channel:
        put(channel, b"b" * 600)
        put(channel, b"c" * 600)
    if kind == "damaged":
        flip(tmp_path / whose / OWNER_FILE, 60)
    else:
        (tmp_path / whose / OWNER_FILE).unlink()
    if whose == "copy":
        flip(log_file(copy), 60)
    before = snapshot(tmp_path / "backup")
    healthy = verify(copy).healthy
    report = repair(copy)
    assert snapshot(tmp_path / "backup") == before
    assert report.healthy is healthy is (whose == "backup")
    assert verify(copy).healthy
    repair(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_bytes(path) == [b"a", b"b", b"c"]


def test_a_copy_is_known_for_one_after_its_repair(tmp_path: Path) -> None:
    """A second repair took what the first one had left to the original."""
    path, copy = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, backup_checkpoint_dir=str(tmp_path / "backup"), minimum_required_space=0) as channel:
        put(channel, b"a")
    shutil.copytree(path, copy)
    for directory in (copy, tmp_path / "backup"):
        flip(directory / OWNER_FILE, 60)
    before = snapshot(tmp_path / "backup")
    repair(copy)
    assert verify(copy).healthy and repair(copy).healthy
    assert snapshot(tmp_path / "backup") == before


@pytest.mark.parametrize("kind", ["damaged", "missing"])
def test_a_repair_of_a_copy_leaves_a_data_directory_that_does_not_say_whose_it_is_to_the_original(
    tmp_path: Path, kind: str
) -> None:
    path, copy = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, data_dirs=[str(tmp_path / "d0")], minimum_required_space=0) as channel:
        put(channel, b"a")
    shutil.copytree(path, copy)
    if kind == "damaged":
        flip(tmp_path / "d0" / OWNER_FILE, 60)
    else:
        (tmp_path / "d0" / OWNER_FILE).unlink()
    before = snapshot(tmp_path / "d0")
    with pytest.raises(ForeignDirectoryError, match=r"d0 can't be given .* is a copy of the channel at .*/channel,"):
        repair(copy)
    assert snapshot(tmp_path / "d0") == before
    repair(path, claim=tmp_path / "d0")
    assert first_bytes(path) == [b"a"]


def test_a_claim_of_the_originals_directory_for_copies_of_checkpoints_is_refused(tmp_path: Path) -> None:
    """It was passed over in silence."""
    path, copy = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, backup_checkpoint_dir=str(tmp_path / "backup"), minimum_required_space=0) as channel:
        put(channel, b"a")
    shutil.copytree(path, copy)
    with pytest.raises(ForeignDirectoryError, match=r"/backup can't be given .*copy: it belongs to the channel at"):
        repair(copy, claim=tmp_path / "backup")


def test_a_repair_reads_the_copies_of_checkpoints_before_it_removes_them(tmp_path: Path) -> None:
    """They alone say the schema here, and the copy of a file goes to the quarantine before the file does."""
    path, backup = tmp_path / "channel", tmp_path / "backup"
    rows = pa.table({"n": [1, 2, 3]})
    with (
        Channel(path, schema=rows.schema, backup_checkpoint_dir=str(backup), minimum_required_space=0) as channel,
        channel.put_transaction() as tx,
    ):
        tx.put_batch(rows)
    shutil.rmtree(path / "checkpoint")
    flip(log_file(path), 60)
    (backup / OWNER_FILE).write_bytes(b"{")
    copies = {found.name: found.read_bytes() for found in backup.iterdir()}
    report = repair(path)
    assert report.quarantine is not None and report.loss.lost == ()
    kept = {found.name: found.read_bytes() for found in (report.quarantine / "files" / "backup").iterdir()}
    assert kept == copies
    said = json.loads((report.quarantine / "report.json").read_text())["findings"]
    assert [found["text"] for found in said] == [found.text for found in report.findings]
    assert backup / OWNER_FILE in {found.path for found in report.findings}
    assert verify(path).healthy
    with Channel(path, create=False) as channel, channel.take_transaction() as taken:
        found = taken.take_batch(10)
    assert found is not None and found["n"].to_pylist() == [1, 2, 3]


def test_what_is_found_behind_a_damaged_owner_file_of_the_backup_is_in_the_loss(tmp_path: Path) -> None:
    path, backup = tmp_path / "channel", tmp_path / "backup"
    with Channel(path, backup_checkpoint_dir=str(backup), minimum_required_space=0) as channel:
        put(channel, b"a")
    shutil.copytree(path, tmp_path / "older")
    with Channel(path, max_file_size=1000) as channel:
        put(channel, b"b" * 600)
        put(channel, b"c" * 600)
    shutil.rmtree(path)
    (tmp_path / "older").rename(path)
    (backup / OWNER_FILE).write_bytes(b"{")
    report = repair(path)
    ((first, last),) = report.loss.doubtful
    assert report.loss.lost == ((2, 3),) and first == 4 and last > 1000, "a checkpoint that is found says what was put"
    assert report.quarantine is not None and [*(path / "quarantine").iterdir()] == [report.quarantine]
    assert {found.name for found in (report.quarantine / "files" / "backup").glob("checkpoint-*")}
    with Channel(path, create=False) as channel:
        assert put(channel, b"x") == (last + 1, last + 1)


@pytest.mark.parametrize("readable", [False, True])
def test_a_backup_that_refuses_does_not_stop_the_repair_of_owner_files(tmp_path: Path, readable: bool) -> None:
    path = with_backup(tmp_path)
    (path / OWNER_FILE).write_bytes(b"{")
    (tmp_path / "backup" / OWNER_FILE).write_bytes(b"{")
    flip(tmp_path / "d1" / "log-000001", 60)
    fs = DeadDirectory(tmp_path / "backup", readable=readable)
    repair(path, claim=[tmp_path / "d0", tmp_path / "d1"], fs=fs)
    assert verify(path, fs=fs).damaged is False
    assert first_bytes(path) == [b"a", b"b"]


def test_a_directory_that_a_repair_gives_to_a_channel_is_durable_above_it(tmp_path: Path) -> None:
    """Events that are acknowledged from now on would be in a directory that a power cut may take."""
    path = spread(tmp_path)
    shutil.rmtree(tmp_path / "d0")
    fs = FaultyFileSystem()
    repair(path, claim=tmp_path / "d0", fs=fs)
    names = [call for call in fs.calls if call.name in ("rename", "sync_directory")]
    names = names[names.index(Call("rename", "report.json")) :]  # from there on nothing else syncs the directory
    given = max(at for at, call in enumerate(names) if call == Call("rename", OWNER_FILE))
    assert Call("sync_directory", tmp_path.name) in names[:given]
