"""No channel is inside of another one's directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel, OptionError, SpillableError
from spillable_stream.archive.backup import backup
from spillable_stream.archive.restore import restore
from spillable_stream.log.nesting import channel_around, require_apart
from spillable_stream.storage.filesystem import FileSystem
from tests.support.events import peek, put


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


def test_a_restore_inside_of_a_channel_is_refused(outer: Path, tmp_path: Path) -> None:
    backup(outer, tmp_path / "copy")
    with pytest.raises(OptionError, match=f"is inside of {outer}"):
        restore(tmp_path / "copy", outer / "c", new_identity=True)
    assert not (outer / "c").exists()
    with Channel(outer, create=False) as channel:
        assert peek(channel) == [b"a"]


def test_a_backup_inside_of_any_directory_of_a_channel_is_refused(outer: Path, tmp_path: Path) -> None:
    Channel(tmp_path / "c", minimum_required_space=0).close()
    for place in (tmp_path / "disk" / "copy", outer / "copy"):
        with pytest.raises(OptionError, match="is inside of"):
            backup(tmp_path / "c", place)
        assert not place.exists()


def test_what_another_program_left_is_not_taken_for_a_channel(tmp_path: Path) -> None:
    (tmp_path / "channel.json").write_text('{"name": "alerts"}')
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
