"""A channel is given its directories when it is created, when it is repaired, and where a copy lacks some."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream import (
    Channel,
    ChannelBusyError,
    ChannelClosedError,
    DataLossError,
    DiskSpaceError,
    ForeignDirectoryError,
    LockUnsupportedError,
    StorageError,
)
from spillable_stream.format.file_names import CLAIM_LOCK
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log import claim
from spillable_stream.log.claim import (
    make_directories,
    make_missing,
    own_again,
    own_backup,
    require_unowned,
    restore_home,
)
from spillable_stream.log.directories import Directories
from spillable_stream.log.directory_ownership import ownership_fault
from spillable_stream.log.identity_file import planned_layout
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner_file import OWNER_FILE, DirectoryOwner, read_owner, write_owner
from spillable_stream.log.unproven_directories import unowned_directories
from spillable_stream.option_types import CreationOptions
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.channels import first_bytes, snapshot, spread
from tests.support.events import put, take
from tests.support.fake_files import DeadDirectory, DyingFileSystem
from tests.support.mounts import unmount

FS = FileSystem()


Open = Callable[..., Channel]


def test_one_checkpoint_directory_is_not_given_to_two_channels(tmp_path: Path) -> None:
    shared = str(tmp_path / "checkpoints")
    with Channel(tmp_path / "one", checkpoint_dir=shared, minimum_required_space=0) as one:
        put(one, b"x")
        with pytest.raises(ForeignDirectoryError, match=r"is checkpoint of the channel .* at .*/one; give every"):
            Channel(tmp_path / "two", checkpoint_dir=shared)
    assert not (tmp_path / "two" / "channel.json").exists()


def test_a_copy_of_identity_and_data_alone_is_created_whole(path: Path, open_channel: Open, tmp_path: Path) -> None:
    with open_channel() as channel:
        put(channel, b"a")
    copy = tmp_path / "copy"
    shutil.copytree(path / "data", copy / "data")
    shutil.copy(path / "channel.json", copy)
    assert first_bytes(copy) == [b"a"]
    assert first_bytes(copy) == [b"a"]


def test_a_repair_of_a_copy_does_not_take_directories_that_are_in_use(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    (tmp_path / "copy" / OWNER_FILE).unlink()
    with Channel(path, minimum_required_space=0) as channel:
        before = {d: read_owner(FS, tmp_path / d) for d in ("d0", "d1")}
        path.rename(tmp_path / "hidden")  # as in another container
        try:
            with pytest.raises(ChannelBusyError, match=r"d\d is held by another copy of"):
                repair(tmp_path / "copy", claim=[tmp_path / "d0", tmp_path / "d1"])
        finally:
            (tmp_path / "hidden").rename(path)
        assert {d: read_owner(FS, tmp_path / d) for d in ("d0", "d1")} == before
        put(channel, b"c")
    assert first_bytes(path) == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("settles_soon")
def test_an_owner_file_that_was_removed_from_under_handles_is_not_created_again(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"a")
    (path / OWNER_FILE).unlink()
    with pytest.raises(ChannelBusyError, match=r"owner.json was removed while the channel was open"):
        Channel(path)
    with pytest.raises(ChannelClosedError, match="was moved, removed or replaced"):
        channel.engine().log.directories.require_in_place()
    channel.close(checkpoint=False)
    assert first_bytes(path) == [b"a"]


def test_a_claim_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    path, rows = tmp_path / "channel", tmp_path / "rows"
    rows.mkdir()
    (rows / CLAIM_LOCK).touch()
    with Channel(path, data_dirs=[str(rows)], minimum_required_space=0) as channel:
        put(channel, b"a")
    assert not (rows / CLAIM_LOCK).exists()
    (rows / CLAIM_LOCK).touch()
    assert verify(path).findings == ()
    assert first_bytes(path) == [b"a"]


def test_a_directory_that_a_killed_claim_left_becomes_a_channel(path: Path) -> None:
    path.mkdir()
    (path / CLAIM_LOCK).touch()
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    assert first_bytes(path) == [b"a"]


def test_a_claim_ends_with_an_error_where_another_process_keeps_claiming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_CLAIM_SECONDS", 0.0)
    rows = tmp_path / "rows"
    rows.mkdir()
    lock = FileLock.open(FS, rows / CLAIM_LOCK)
    assert lock.try_acquire()
    with pytest.raises(ChannelBusyError, match=f"another process has been claiming {rows} for more than"):
        Channel(tmp_path / "channel", data_dirs=[str(rows)], minimum_required_space=0)
    assert not (tmp_path / "channel").exists()
    lock.close()
    Channel(tmp_path / "channel", data_dirs=[str(rows)], minimum_required_space=0).close()


@pytest.fixture
def no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on a file system without locks."""
    directory, real = tmp_path / "without locks", FileLock.try_acquire

    def try_acquire(lock: FileLock, *, shared: bool = False) -> bool:
        if lock.path.parent == directory:
            raise LockUnsupportedError(f"the file system of {lock.path} does not lock files")
        return real(lock, shared=shared)

    monkeypatch.setattr(FileLock, "try_acquire", try_acquire)
    return directory


def test_copies_of_checkpoints_need_no_locks(tmp_path: Path, no_locks: Path) -> None:
    """The creation was refused."""
    options = {"backup_checkpoint_dir": str(no_locks), "minimum_required_space": 0}
    with Channel(tmp_path / "channel", **options) as channel:  # type: ignore[arg-type]
        put(channel, b"a")
        channel.checkpoint()
    assert any(file.name.startswith("checkpoint-") for file in no_locks.iterdir())
    assert owner_of(no_locks).role == "backup" and not (no_locks / CLAIM_LOCK).exists()


def test_a_directory_of_events_without_locks_is_refused_and_nothing_is_left(tmp_path: Path, no_locks: Path) -> None:
    with pytest.raises(LockUnsupportedError, match="does not lock files"):
        Channel(tmp_path / "channel", data_dirs=[str(no_locks)])
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The planned layout of a channel with a data directory and a backup of checkpoints elsewhere."""
    options = CreationOptions(data_dirs=[str(tmp_path / "d0")], backup_checkpoint_dir=str(tmp_path / "backup"))
    return planned_layout(tmp_path / "channel", options)


def owner_of(directory: Path) -> DirectoryOwner:
    found = read_owner(FS, directory)
    assert found is not None
    return found


def all_of(layout: Layout) -> list[Path]:
    assert layout.backup_checkpoint_dir is not None
    return [layout.path, *layout.directories().values(), layout.backup_checkpoint_dir]


def test_a_new_channels_directories_are_created_and_known_by_one_token(layout: Layout) -> None:
    make_directories(FS, layout)
    owners = [owner_of(d) for d in all_of(layout)]
    assert [o.role for o in owners] == ["home", "data-0", "checkpoint", "backup"]
    assert {(o.channel, o.token, o.home) for o in owners} == {(layout.channel, owners[0].token, str(layout.path))}
    assert [o.layout is not None for o in owners] == [True, False, False, False]
    assert (layout.path / "groups").is_dir()


def test_a_making_that_is_done_again_keeps_the_token(layout: Layout) -> None:
    make_directories(FS, layout)
    before = [owner_of(d) for d in all_of(layout)]
    make_directories(FS, layout)
    assert [owner_of(d) for d in all_of(layout)] == before


def test_a_making_that_was_cut_short_is_not_done_again_with_a_directory_in_another_role(layout: Layout) -> None:
    make_directories(FS, layout)
    other = replace(layout, data_dirs=(layout.checkpoint_dir,), checkpoint_dir=layout.data_dirs[0])
    with pytest.raises(
        ForeignDirectoryError, match=r"is checkpoint of the channel at .*, whose creation was cut short"
    ):
        make_directories(FS, other)


def test_a_channel_is_created_without_its_backup_directory_if_that_fails(
    layout: Layout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_directories(DeadDirectory(tmp_path / "backup"), layout)
    assert "there is no backup of checkpoints in" in caplog.text
    assert owner_of(layout.path).channel == layout.channel


def test_the_backup_directory_of_another_channel_is_left_alone(
    layout: Layout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "backup").mkdir()
    theirs = DirectoryOwner("another", "backup", "t", "/elsewhere", 1)
    write_owner(FS, tmp_path / "backup", theirs)
    make_directories(FS, layout)
    assert owner_of(tmp_path / "backup") == theirs
    assert "is backup of the channel another at /elsewhere" in caplog.text


@pytest.mark.parametrize("token", ["the channel's", "another"])
def test_a_backup_directory_follows_a_move_only_if_it_followed_the_channel_before(
    layout: Layout, tmp_path: Path, token: str
) -> None:
    make_directories(FS, layout)
    home, backup = owner_of(layout.path), owner_of(tmp_path / "backup")
    if token == "another":
        backup = replace(backup, token=token)
        write_owner(FS, tmp_path / "backup", backup)
    new = replace(backup, token="new", home="/moved")
    own_backup(FS, layout, new, moved_from=home)
    assert owner_of(tmp_path / "backup") == (backup if token == "another" else new)


@pytest.mark.parametrize("directory", ["d0", "channel/checkpoint", "backup"])
def test_a_directory_of_another_channel_is_refused_before_anything_is_created(
    layout: Layout, tmp_path: Path, directory: str
) -> None:
    require_unowned(FS, layout)
    (tmp_path / directory).mkdir(parents=True)
    write_owner(FS, tmp_path / directory, DirectoryOwner("another", "data-0", "t", "/elsewhere", 1))
    before = snapshot(tmp_path)
    with pytest.raises(ForeignDirectoryError, match=f"{directory} is data-0 of the channel another at /elsewhere"):
        require_unowned(FS, layout)
    assert snapshot(tmp_path) == before


def test_a_copys_missing_directories_are_created(layout: Layout) -> None:
    make_directories(FS, layout)
    owner = owner_of(layout.path)
    shutil.rmtree(layout.path / "groups")
    shutil.rmtree(layout.checkpoint_dir)
    make_missing(FS, layout, owner)
    assert (layout.path / "groups").is_dir()
    assert owner_of(layout.checkpoint_dir) == replace(owner, role="checkpoint", layout=None)


def test_a_missing_checkpoint_directory_elsewhere_is_not_made(layout: Layout, tmp_path: Path) -> None:
    """Its disk may not be mounted."""
    there = replace(layout, checkpoint_dir=tmp_path / "checkpoints")
    make_directories(FS, there)
    shutil.rmtree(there.checkpoint_dir)
    make_missing(FS, there, owner_of(there.path))
    assert not there.checkpoint_dir.exists()


def test_whoever_repairs_a_channel_gives_it_all_its_directories(layout: Layout) -> None:
    make_directories(FS, layout)
    token = owner_of(layout.path).token
    (layout.data_dirs[0] / OWNER_FILE).unlink()
    (layout.path / OWNER_FILE).write_text("damaged")
    own_again(FS, layout, claimed=layout.data_dirs[:1])
    owners = [owner_of(d) for d in all_of(layout)]
    assert len({o.token for o in owners}) == 1
    assert owners[0].token != token, "a copy that has the old one is not taken for this channel"


def test_a_repair_does_not_take_a_backup_directory_that_another_channel_is_claiming(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It wrote over the owner file of that one."""
    monkeypatch.setattr(claim, "_CLAIM_SECONDS", 0.0)
    make_directories(FS, layout)
    before = owner_of(tmp_path / "backup")
    lock = FileLock.open(FS, tmp_path / "backup" / CLAIM_LOCK)
    assert lock.try_acquire()
    own_again(FS, layout)
    lock.close()
    assert owner_of(tmp_path / "backup") == before
    assert f"another process has been claiming {tmp_path / 'backup'}" in caplog.text


def test_a_repair_creates_nothing_in_the_place_of_a_disk_that_is_not_mounted_any_more(layout: Layout) -> None:
    make_directories(FS, layout)
    elsewhere = layout.data_dirs[0]
    assert not elsewhere.is_relative_to(layout.path)
    shutil.rmtree(elsewhere)
    with pytest.raises(
        ForeignDirectoryError, match=f"{elsewhere}, a directory of the channel .*, is missing. Its disk"
    ):
        own_again(FS, layout)
    assert not elsewhere.exists()


def test_a_repair_does_not_give_a_channel_the_directory_of_another(layout: Layout) -> None:
    make_directories(FS, layout)
    before = owner_of(layout.path)
    write_owner(FS, layout.data_dirs[0], DirectoryOwner("another", "data-0", "t", "/elsewhere", 1))
    with pytest.raises(ForeignDirectoryError, match=r"d0 can't be given to the channel .*: it belongs to the channel"):
        own_again(FS, layout)
    assert owner_of(layout.path) == before


def test_the_channels_own_owner_file_is_not_written_anew_where_a_directory_is_elsewhere(layout: Layout) -> None:
    make_directories(FS, layout)
    (layout.path / OWNER_FILE).unlink()
    with pytest.raises(ForeignDirectoryError, match=r"owner.json is missing, and .*/d0 does not prove .* elsewhere"):
        restore_home(FS, layout)
    assert not (layout.path / OWNER_FILE).exists()


def test_the_channels_own_owner_file_is_written_anew_from_what_is_within(tmp_path: Path) -> None:
    layout = planned_layout(tmp_path / "channel", CreationOptions())
    make_directories(FS, layout)
    before = owner_of(layout.path)
    (layout.path / OWNER_FILE).unlink()
    shutil.rmtree(layout.checkpoint_dir)
    restore_home(FS, layout)
    assert owner_of(layout.path) == before


@pytest.mark.parametrize("home", ["whole", "damaged"])
@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_a_repair_of_owner_files_that_is_killed_anywhere_is_done_by_the_same_again(
    tmp_path: Path, what: str, home: str
) -> None:
    """A directory that got a new token before the others, or after them, needs nobody's word but that it needed."""
    finished = False
    for number in range(100):
        layout = spread_layout(tmp_path / str(number))
        first = layout.data_dirs[0]
        (first / OWNER_FILE).unlink() if what == "missing" else (first / OWNER_FILE).write_text("damaged")
        if home == "damaged":
            (layout.path / OWNER_FILE).write_text("damaged")
        claimed = list(unowned_directories(FS, layout))
        assert claimed == (list(layout.data_dirs) if home == "damaged" else [first])
        finished = owned_again_unless_killed(layout, number, claimed)
        assert {*unowned_directories(FS, layout)} <= {*claimed}, f"killed at call {number}"
        own_again(FS, layout, claimed=claimed)
        assert are_proven(layout), f"killed at call {number}"
        if finished:
            break
    assert finished and number > 3


def test_what_a_killed_claim_left_in_a_mount_point_does_not_pass_for_the_disk_later(tmp_path: Path) -> None:
    """When the disk is back, an open or a claim gives it the channel's token, and what is below it keeps its own."""
    finished = False
    for number in range(100):
        layout = spread_layout(tmp_path / str(number))
        disk = layout.data_dirs[0]
        away = unmount(disk)
        finished = owned_again_unless_killed(layout, number, [disk])
        disk.rename(tmp_path / "mount point")
        away.rename(disk)
        if unowned_directories(FS, layout):
            own_again(FS, layout, claimed=[disk])
        directories = Directories(FS, layout)
        assert directories.try_first()
        directories.prove(first=True)
        directories.close()
        assert are_proven(layout), f"killed at call {number}"
        disk.rename(away)
        (tmp_path / "mount point").rename(disk)
        assert unowned_directories(FS, layout) == (disk,), f"killed at call {number}"
        if finished:
            break
    assert finished and number > 3


def spread_layout(base: Path) -> Layout:
    """Create the directories of a channel with two data directories elsewhere."""
    base.mkdir()
    data = [str(base / "d0"), str(base / "d1")]
    layout = planned_layout(base / "channel", CreationOptions(data_dirs=data))
    make_directories(FS, layout)
    return layout


def owned_again_unless_killed(layout: Layout, number: int, claimed: list[Path]) -> bool:
    """Give a channel its directories, killed where a file gets its name, and tell whether it was done by then."""
    try:
        own_again(DyingFileSystem(number, only="rename"), layout, claimed=claimed)
    except StorageError:
        return False
    return True


def are_proven(layout: Layout) -> bool:
    home = owner_of(layout.path)
    return not any(
        ownership_fault(FS, layout, role, directory, owner_of(directory), home)
        for role, directory in layout.directories().items()
    )


def test_a_claim_of_a_link_that_leads_nowhere_changes_nothing_and_says_what_to_create(tmp_path: Path) -> None:
    """The channel was refused from then on: the other directories had a new token."""
    layout = spread_layout(tmp_path / "base")
    second = layout.data_dirs[1]
    shutil.rmtree(second)
    second.symlink_to(tmp_path / "gone")
    before = snapshot(tmp_path)
    with pytest.raises(StorageError, match=f"{second} is a link to {tmp_path}/gone, which is not .* create its target"):
        own_again(FS, layout, claimed=[second])
    assert snapshot(tmp_path) == before


def test_a_claim_of_a_directory_that_can_not_be_written_changes_no_other(tmp_path: Path) -> None:
    layout = spread_layout(tmp_path / "base")
    second = layout.data_dirs[1]
    (second / OWNER_FILE).unlink()
    before = snapshot(tmp_path)
    with pytest.raises(StorageError):
        own_again(DeadDirectory(second, readable=True), layout, claimed=[second])
    assert snapshot(tmp_path) == before


def test_a_claim_that_fails_creates_no_directory(tmp_path: Path) -> None:
    layout = spread_layout(tmp_path / "base")
    first, second = layout.data_dirs
    for directory in layout.data_dirs:
        shutil.rmtree(directory)
    second.symlink_to(tmp_path / "gone")
    with pytest.raises(StorageError, match="create its target"):
        own_again(FS, layout, claimed=[first, second])
    assert not first.exists()


def test_a_move_gives_the_directories_in_the_channel_its_new_token_and_they_still_say_where_they_were_copied_from(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "channel", tmp_path / "copy"
    Channel(path, minimum_required_space=0).close()
    shutil.copytree(path, copy)
    Channel(copy, create=False).close()
    home, data = owner_of(copy), owner_of(copy / "data")
    assert data.token == home.token != owner_of(path).token
    assert (data.home, home.home) == (str(path), str(copy))


def test_a_directory_in_the_channel_that_was_exchanged_has_the_token_of_the_others_once_an_open_has_read_it(
    tmp_path: Path,
) -> None:
    """Then what was in its place fits no more: neither is taken for the other when a disk comes and goes."""
    path = tmp_path / "channel"
    Channel(path, minimum_required_space=0).close()
    write_owner(FS, path / "data", replace(owner_of(path / "data"), token="another"))
    before = owner_of(path).token
    Channel(path, create=False).close()
    assert owner_of(path / "data").token == owner_of(path).token not in ("another", before)


@pytest.mark.usefixtures("settles_soon")
def test_another_handle_joins_the_one_that_has_settled_an_exchange(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    Channel(path, minimum_required_space=0).close()
    write_owner(FS, path / "data", replace(owner_of(path / "data"), token="another"))
    with Channel(path, create=False) as first, Channel(path, create=False) as second:
        put(first, b"a")
        put(second, b"b")
    assert first_bytes(path) == [b"a", b"b"]


class FullDirectory(FileSystem):
    """A file system on which one directory has no room for an owner file."""

    def __init__(self, directory: Path) -> None:
        self._full = directory / OWNER_FILE

    def write_atomically(self, path: Path, data: bytes) -> None:
        if path == self._full:
            raise DiskSpaceError(f"{path}: the disk is full")
        super().write_atomically(path, data)


@pytest.mark.usefixtures("settles_soon")
@pytest.mark.parametrize("full", ["channel", "channel/data", "d1", "channel/checkpoint"])
def test_an_open_on_a_full_disk_leaves_an_exchange_to_the_next_one(tmp_path: Path, full: str) -> None:
    """Takes make room there; the open was refused, as of each channel that 0.1.0 had moved."""
    path = tmp_path / "channel"
    directories = [str(path / "data"), str(tmp_path / "d1")]
    with Channel(path, data_dirs=directories, minimum_required_space=0) as channel:
        put(channel, b"a")
    write_owner(FS, path / "data", replace(owner_of(path / "data"), token="another"))
    with (
        Channel(path, create=False, fs=FullDirectory(tmp_path / full)) as channel,
        Channel(path, create=False) as other,
    ):
        put(other, b"b")
        assert take(channel, 10) == [b"a", b"b"]
    Channel(path, create=False).close()
    owners = [owner_of(Path(directory)) for directory in (path, path / "checkpoint", *directories)]
    assert len({owner.token for owner in owners}) == 1
    assert not any(owner.next for owner in owners)


def test_a_move_does_not_give_its_token_to_a_directory_that_was_exchanged_before_an_open_has_read_it(
    tmp_path: Path,
) -> None:
    path, moved = tmp_path / "channel", tmp_path / "moved"
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    write_owner(FS, path / "data", replace(owner_of(path / "data"), token="another"))
    (path / "data" / "log-000001").unlink()
    path.rename(moved)
    with pytest.raises(DataLossError):
        Channel(moved, create=False)
    assert owner_of(moved / "data").token == "another"


def test_an_open_that_is_killed_as_it_settles_an_exchange_leaves_that_to_the_next_one(tmp_path: Path) -> None:
    for number in range(100):
        path, killed = tmp_path / str(number), False
        Channel(path, minimum_required_space=0).close()
        write_owner(FS, path / "data", replace(owner_of(path / "data"), token="another"))
        try:
            Channel(path, create=False, fs=DyingFileSystem(number, only="rename")).close()
        except StorageError:
            killed = True
        Channel(path, create=False).close()
        assert owner_of(path / "data").token == owner_of(path).token != "another", f"killed at call {number}"
        assert owner_of(path).next == ""
        if not killed:
            break
    assert not killed and number > 3
