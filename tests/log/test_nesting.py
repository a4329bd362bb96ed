"""No channel is inside of another one's directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import google_crc32c
import pytest

from spillable_stream import Channel, OptionError, SpillableError
from spillable_stream.archive.backup import backup
from spillable_stream.archive.restore import restore
from spillable_stream.log.nesting import (
    ChannelDirectory,
    PlannedDirectories,
    channel_around,
    require_apart,
    require_each_apart,
)
from spillable_stream.storage.filesystem import FileSystem
from tests.support.events import peek, put
from tests.support.fake_files import FaultyFileSystem


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """A channel whose data files are elsewhere."""
    path = tmp_path / "outer"
    with Channel(
        path,
        minimum_required_space=0,
        data_dirs=[tmp_path / "disk"],
        checkpoint_dir=tmp_path / "checkpoints",
        backup_checkpoint_dir=tmp_path / "copies",
    ) as channel:
        put(channel, b"a")
    return path


@pytest.mark.parametrize("place", ["outer", "outer/deep", "outer/groups", "disk", "checkpoints", "copies/deep"])
def test_a_channel_inside_of_a_directory_of_another_one_is_refused(outer: Path, tmp_path: Path, place: str) -> None:
    inside = tmp_path / place / "c"
    top = tmp_path / place.split("/")[0]
    for options in ({}, {"data_dirs": [tmp_path / "elsewhere"]}):
        with pytest.raises(OptionError, match=f"is inside of {top}, a channel's directory"):
            Channel(inside, minimum_required_space=0, **options)
    assert not inside.exists() and not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("option", ["data_dirs", "checkpoint_dir", "backup_checkpoint_dir"])
def test_a_directory_of_a_channel_inside_of_another_one_is_refused(outer: Path, tmp_path: Path, option: str) -> None:
    inside = outer / "d"
    with pytest.raises(OptionError, match=f"{inside} is inside of {outer}"):
        Channel(tmp_path / "c", minimum_required_space=0, **{option: [inside] if option == "data_dirs" else inside})
    assert not (tmp_path / "c").exists() and not inside.exists()


def test_a_directory_that_holds_a_channel_is_refused(tmp_path: Path) -> None:
    for name in ("orders", "groups", "quarantine"):  # a channel has directories of some such names
        parent = tmp_path / f"of-{name}"
        Channel(parent / name, minimum_required_space=0).close()
        with pytest.raises(SpillableError, match="holds"):
            Channel(parent, minimum_required_space=0)
        with pytest.raises(OptionError, match=f"{parent} holds {parent / name}, another channel's"):
            Channel(tmp_path / "c", minimum_required_space=0, data_dirs=[parent])
        assert [p.name for p in parent.iterdir()] == [name]


def test_a_link_hides_no_channel(outer: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(outer)
    with pytest.raises(OptionError, match=f"is inside of {outer}"):
        Channel(tmp_path / "link" / "c", minimum_required_space=0)


def test_a_channel_inside_of_one_of_objects_is_refused(tmp_path: Path) -> None:
    Channel(f"object+file://{tmp_path}/objects").close()
    with pytest.raises(OptionError, match=f"is inside of {tmp_path}/objects"):
        Channel(tmp_path / "objects" / "c", minimum_required_space=0)


def test_a_channel_of_objects_inside_of_another_one_is_refused_likewise(outer: Path, tmp_path: Path) -> None:
    Channel(f"object+file://{tmp_path}/objects").close()
    for place, top in (("outer/c", outer), ("objects/c", tmp_path / "objects")):
        with pytest.raises(OptionError, match=f"is inside of {top}, a channel's directory"):
            Channel(f"object+file://{tmp_path}/{place}")
        assert not (tmp_path / place).exists()


@pytest.mark.parametrize("form", ["{}", "object+file://{}"])
@pytest.mark.parametrize("place", ["backups", "events", "states", "other", "events/deep/down"])
def test_a_channel_inside_of_a_backup_is_refused(outer: Path, tmp_path: Path, form: str, place: str) -> None:
    copy = tmp_path / "copy"
    backup(outer, copy)
    before = sorted(copy.rglob("*"))
    refused = f"is inside of {copy}, a backup: give a place outside of it|is not a channel and not empty"
    with pytest.raises(SpillableError, match=refused):
        Channel(form.format(copy / place))
    with pytest.raises(SpillableError, match=f"is inside of {copy}, a backup"):
        restore(copy, form.format(copy / place / "restored"), new_identity=True)
    assert sorted(copy.rglob("*")) == before
    Channel(tmp_path / "beside", data_dirs=[tmp_path / "d"]).close()


@pytest.mark.parametrize("form", ["{}", "object+file://{}"])
def test_a_restore_inside_of_a_channel_is_refused(outer: Path, tmp_path: Path, form: str) -> None:
    backup(outer, tmp_path / "copy")
    with pytest.raises(OptionError, match=f"is inside of {outer}"):
        restore(tmp_path / "copy", form.format(outer / "c"), new_identity=True)
    assert not (outer / "c").exists()
    with Channel(outer, create=False) as channel:
        assert peek(channel) == [b"a"]


def test_a_backup_inside_of_any_directory_of_a_channel_is_refused(outer: Path, tmp_path: Path) -> None:
    Channel(tmp_path / "c", minimum_required_space=0).close()
    for place in (tmp_path / "disk" / "copy", outer / "copy"):
        with pytest.raises(OptionError, match="is inside of"):
            backup(tmp_path / "c", place)
        assert not place.exists()


@pytest.mark.parametrize("place", ["outer", "disk", "checkpoints", "copies"])
def test_a_backup_into_a_directory_of_another_channel_is_refused(outer: Path, tmp_path: Path, place: str) -> None:
    Channel(tmp_path / "c", minimum_required_space=0).close()
    before = sorted((tmp_path / place).iterdir())
    (tmp_path / "link").symlink_to(tmp_path / place)
    for to in (tmp_path / place, f"object+file://{tmp_path / place}", tmp_path / "link"):
        with pytest.raises(OptionError, match="is a channel's directory: give a place outside of it"):
            backup(tmp_path / "c", to)
    assert sorted((tmp_path / place).iterdir()) == before
    Channel(outer, create=False).close()


@pytest.mark.parametrize("form", ["{}", "object+file://{}"])
def test_a_channel_at_an_empty_directory_of_another_one_is_refused(tmp_path: Path, form: str) -> None:
    directory = tmp_path / "checkpoints"
    path, options = tmp_path / "a", {"checkpoint_on_close": False, "minimum_required_space": 0}
    Channel(path, checkpoint_dir=directory, **options).close()  # type: ignore[arg-type]
    with pytest.raises(SpillableError, match=rf"{directory}/owner.json .*if .* gone"):
        Channel(form.format(directory))
    assert [file.name for file in directory.iterdir()] == ["owner.json"]
    Channel(path, create=False).close()


@pytest.mark.parametrize("said", ['{"name": 1}', '{"format": 3}', '{"format": 12, "channel": "news"}', "[1]", "x"])
def test_what_another_program_left_is_not_taken_for_a_channel(tmp_path: Path, said: str) -> None:
    (tmp_path / "channel.json").write_text(said)
    (tmp_path / "owner.json").write_text('{"team": "billing"}')
    assert channel_around(FileSystem(), tmp_path / "c") is None
    Channel(tmp_path / "c", minimum_required_space=0).close()


def test_a_channel_that_is_there_opens_wherever_it_is(outer: Path, tmp_path: Path) -> None:
    Channel(tmp_path / "c", minimum_required_space=0).close()
    (tmp_path / "c").rename(outer / "c")
    Channel(outer / "c", create=False).close()
    with pytest.raises(OptionError, match="holds"):
        require_apart(FileSystem(), outer)


def test_the_own_directories_of_a_creation_that_was_cut_short_are_not_anothers(tmp_path: Path) -> None:
    fs, path = FileSystem(), tmp_path / "c"
    Channel(path, minimum_required_space=0, data_dirs=[path / "deep"]).close()
    (path / "channel.json").unlink()
    require_apart(fs, path, [path / "data"])


def test_a_channel_of_a_first_release_and_one_of_a_later_one_are_channels(outer: Path, tmp_path: Path) -> None:
    (outer / "owner.json").unlink()
    identity = json.loads((outer / "channel.json").read_bytes())
    del identity["checksum"]
    later = {**identity, "format": 99}
    sealed = {**later, "checksum": google_crc32c.value(json.dumps(later, sort_keys=True).encode())}
    for value in (identity, sealed):
        (outer / "channel.json").write_text(json.dumps(value))
        assert channel_around(FileSystem(), outer / "c") == ChannelDirectory(outer, identity["channel"])


def test_a_file_that_cannot_be_read_proves_nothing(outer: Path) -> None:
    fs = FaultyFileSystem()
    for name, left in (("channel.json", {"home": str(outer)}), ("owner.json", {})):
        with fs.failing(lambda call, name=name: call.file == name):
            found = channel_around(fs, outer / "c")
        assert found is not None and found.home == left.get("home")
    with fs.failing(lambda call: call.file in ("channel.json", "owner.json")):
        assert channel_around(fs, outer / "c") is None


def test_the_owner_file_of_a_channel_that_is_gone_is_named(outer: Path, tmp_path: Path) -> None:
    shutil.rmtree(outer)
    advice = rf"{tmp_path}/\w+/owner.json says so: remove it if the channel at {outer} is gone"
    for path, options in ((tmp_path / "disk" / "c", {}), (tmp_path / "c", {"data_dirs": [tmp_path]})):
        with pytest.raises(OptionError, match=advice):
            Channel(path, minimum_required_space=0, **options)
    (tmp_path / "disk" / "owner.json").unlink()
    Channel(tmp_path / "disk" / "c", minimum_required_space=0).close()


def test_a_link_to_a_channel_in_a_directory_is_not_held(outer: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "outer").symlink_to(outer)
    Channel(tmp_path / "c", minimum_required_space=0, data_dirs=[tmp_path / "links"]).close()


def test_a_creation_lists_a_directory_twice_and_looks_into_no_file_of_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "directory").mkdir(parents=True)
    for number in range(5):
        (disk / f"photo-{number}").write_text("x")
    fs = Looks()
    Channel(tmp_path / "c", minimum_required_space=0, data_dirs=[disk], fs=fs).close()
    assert fs.listed.count(disk) == 2, "before anything is created, and when its own directories say whose they are"
    assert [path.parent for path in fs.read if path.is_relative_to(disk / "directory")] == [disk / "directory"] * 4
    assert not [path for path in fs.read if "photo" in str(path)]


class Looks(FileSystem):
    """Notes which directories are searched for others, and which files are read."""

    def __init__(self) -> None:
        self.listed: list[Path] = []
        self.read: list[Path] = []

    def list_directories(self, directory: Path) -> list[str]:
        self.listed.append(directory)
        return super().list_directories(directory)

    def read_file(self, path: Path) -> bytes:
        self.read.append(path)
        return super().read_file(path)

    def exists(self, path: Path) -> bool:
        self.read.append(path)
        return super().exists(path)


def test_new_channels_that_would_be_in_each_others_directories_are_refused(tmp_path: Path) -> None:
    a, b, disk = tmp_path / "a", tmp_path / "b", tmp_path / "disk"
    fs = FileSystem()
    require_each_apart(fs, [PlannedDirectories(ds[0], ds) for ds in ([a, a / "data"], [b, disk], [a, a / "data"])])
    (tmp_path / "link").symlink_to(a)
    for channels, why in (
        ([[a, a / "data"], [a / "b"]], f"{a}/b would be inside of {a}, a directory of the channel {a}"),
        ([[a, disk], [disk / "b"]], f"{disk}/b would be inside of {disk}, a directory of the channel {a}"),
        ([[a], [b, tmp_path / "link" / "deep"]], f"{a}/deep would be inside of {a}"),
        ([[a, disk], [b, disk]], f"{disk} would be a directory of two channels, {a} and {b}"),
    ):
        with pytest.raises(OptionError, match=why):
            require_each_apart(fs, [PlannedDirectories(ds[0], ds) for ds in channels])
        with pytest.raises(OptionError, match="would be"):
            require_each_apart(fs, [PlannedDirectories(ds[0], ds) for ds in channels[::-1]])
