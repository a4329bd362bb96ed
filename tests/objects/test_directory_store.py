"""A store in a directory: what is durable when, and what a crash and a full disk leave."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spillable_stream import Channel
from spillable_stream.errors import DiskSpaceError, StorageError, says_nothing_stored
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.store import ObjectMissingError, StoreError, uploading
from spillable_stream.storage.filesystem import FileSystem
from tests.support.events import peek, put
from tests.support.fake_files import FaultyFileSystem, nth
from tests.support.mounts import NEEDS_MOUNTS, mounted_small


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def store(root: Path, fs: FaultyFileSystem) -> DirectoryStore:
    return DirectoryStore(root, fs)


def temporaries(root: Path) -> list[Path]:
    return [path for path in root.rglob(".*")]


def with_errno(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def test_everything_belongs_to_its_user_alone(store: DirectoryStore, root: Path) -> None:
    store.create("log/1", b"data")
    store.replace("hint", b"data")
    upload = store.upload("segments/1")
    upload.finish()
    modes = {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}
    assert modes == {".": 0o700, "log": 0o700, "segments": 0o700, "log/1": 0o600, "hint": 0o600, "segments/1": 0o600}


def test_a_name_that_exists_since_an_earlier_request_made_it_is_that_of_the_new_object(
    store: DirectoryStore, fs: FaultyFileSystem, root: Path
) -> None:
    """A network file system repeats a request whose answer was lost."""
    link = os.link

    def repeated(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    with mock.patch("os.link", repeated):
        assert store.create("log/1", b"data")
        assert [call.name for call in fs.calls[-2:]] == ["sync_directory", "remove"]
        assert not store.create("log/1", b"another's")
        store.replace("hint", b"hint")
    assert bytes(store.get("hint")) == b"hint"
    assert bytes(store.get("log/1")) == b"data"
    assert temporaries(root) == []


def test_a_new_object_is_synced_before_it_has_its_name_and_the_name_before_it_is_told(
    store: DirectoryStore, fs: FaultyFileSystem, root: Path
) -> None:
    store.create("log/0", b"of before")
    fs.calls.clear()
    link = os.link

    def linking(source: Path, target: Path) -> None:
        fs.before("link", target)
        link(source, target)

    with mock.patch("os.link", linking):
        store.create("log/1", b"data")
    assert [call.name for call in fs.calls] == ["create", "write", "sync", "link", "sync_directory", "remove"]
    assert fs.calls[-2].file == "log" and temporaries(root) == []
    fs.calls.clear()
    store.replace("log/1", b"data")
    assert [call.name for call in fs.calls] == ["create", "write", "sync", "rename", "sync_directory", "remove"]
    assert temporaries(root) == []


def test_directories_that_are_created_are_synced_into_their_parents(
    store: DirectoryStore, fs: FaultyFileSystem, root: Path
) -> None:
    store.create("log/1", b"data")
    synced = [call.file for call in fs.calls if call.name == "sync_directory"]
    assert {root.parent.name, "root", "log"} <= set(synced) and synced[-1] == "log"


def test_a_directory_that_a_killed_process_made_is_synced_into_its_parents(
    store: DirectoryStore, fs: FaultyFileSystem, root: Path
) -> None:
    (root / "log").mkdir(parents=True)
    store.create("log/1", b"data")
    assert {"root", root.parent.name} <= {call.file for call in fs.calls if call.name == "sync_directory"}


@pytest.mark.parametrize("call", ["create", "write", "sync"])
def test_a_creation_that_fails_before_its_name_is_there_has_not_happened(
    store: DirectoryStore, fs: FaultyFileSystem, root: Path, call: str
) -> None:
    for do in (lambda: store.create("log/1", b"data"), lambda: store.replace("log/1", b"data")):
        with fs.failing(nth(call, 1)), pytest.raises(StoreError, match="log/1") as raised:
            do()
        assert not raised.value.may_have_happened
    assert temporaries(root) == [] and list(store.list("")) == []
    assert store.create("log/1", b"data")


@pytest.mark.parametrize(
    ("number", "words", "lasting"),
    [
        (errno.ENOSPC, "make room", False),
        (errno.EACCES, "no permission", True),
        (errno.EROFS, "read-only", True),
        (errno.EPERM, "makes no hard links", True),
        (errno.EOPNOTSUPP, "makes no hard links", True),
    ],
)
def test_a_link_that_the_system_refuses_has_not_happened(
    store: DirectoryStore, root: Path, number: int, words: str, lasting: bool
) -> None:
    with mock.patch("os.link", side_effect=with_errno(number)), pytest.raises(StoreError, match=words) as raised:
        store.create("log/1", b"data")
    assert (raised.value.may_have_happened, raised.value.is_lasting) == (False, lasting)
    assert temporaries(root) == [] and list(store.list("")) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
def test_a_link_that_a_server_may_have_made_may_have_happened(store: DirectoryStore, number: int) -> None:
    with mock.patch("os.link", side_effect=with_errno(number)), pytest.raises(StoreError) as raised:
        store.create("log/1", b"data")
    assert (raised.value.may_have_happened, raised.value.is_lasting) == (True, False)


@pytest.mark.parametrize("call", ["pwritev", "link", "fdatasync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_behind_and_is_the_error_of_one(
    store: DirectoryStore, root: Path, number: int, call: str
) -> None:
    store.create("log/0", b"data")
    for write in (store.create, store.replace):
        with mock.patch(f"os.{call}", side_effect=with_errno(number)), pytest.raises(DiskSpaceError) as raised:
            write("log/1", b"data")
        error = pickle.loads(pickle.dumps(raised.value))
        assert isinstance(error, StoreError) and "make room" in str(error)
        assert (error.may_have_happened, error.stored_nothing) == (False, True)
    assert temporaries(root) == [] and [info.key for info in store.list("")] == ["log/0"]


def test_a_name_that_no_room_is_left_to_make_durable_may_be_there(store: DirectoryStore, fs: FaultyFileSystem) -> None:
    store.create("log/0", b"data")
    with mock.patch.object(fs, "sync_directory", side_effect=full()), pytest.raises(StoreError) as raised:
        store.create("log/1", b"data")
    assert raised.value.may_have_happened and not isinstance(raised.value, DiskSpaceError)
    assert bytes(store.get("log/1")) == b"data"


def full() -> StorageError:
    error = DiskSpaceError("no room")
    error.__cause__ = with_errno(errno.ENOSPC)
    return error


@pytest.mark.parametrize(
    ("size_bytes", "writes"),
    [(1000, 0), (5000, 0), (5000, 1)],
    ids=["in a slot", "staged", "staged, full later"],
)
def test_a_put_to_a_full_disk_is_refused_at_once_as_one_to_a_channel_on_a_disk(
    root: Path, size_bytes: int, writes: int
) -> None:
    real, left = os.pwritev, [None] * writes

    def write(*arguments: Any) -> int:
        if not left:
            raise with_errno(errno.ENOSPC)
        left.pop()
        return real(*arguments)

    with Channel(f"object+file://{root}", commit_interval=0, max_inline_bytes=2000) as channel:
        put(channel, b"before")
        with mock.patch("os.pwritev", write), pytest.raises(DiskSpaceError, match="make room") as raised:
            put(channel, os.urandom(size_bytes))
        assert says_nothing_stored(raised.value) and "discarded" not in str(raised.value)
        assert temporaries(root) == []
        put(channel, b"after")
        assert peek(channel) == [b"before", b"after"]


def test_a_channel_that_a_full_disk_has_no_room_for_is_refused_at_once(root: Path) -> None:
    with (
        mock.patch("os.pwritev", side_effect=with_errno(errno.ENOSPC)),
        pytest.raises(DiskSpaceError, match="make room"),
    ):
        Channel(f"object+file://{root}")
    assert not root.exists()


@NEEDS_MOUNTS
def test_a_file_system_that_is_full_refuses_what_has_no_room_and_takes_what_has(tmp_path: Path) -> None:
    with mounted_small(tmp_path / "small", 2 << 20) as small, Channel(f"object+file://{small}/orders") as channel:
        put(channel, b"before")
        with pytest.raises(DiskSpaceError):
            put(channel, os.urandom(2 << 20))
        put(channel, b"after")
        assert peek(channel) == [b"before", b"after"]


@pytest.mark.parametrize("create", [True, False])
def test_a_name_whose_sync_failed_may_be_there(store: DirectoryStore, fs: FaultyFileSystem, create: bool) -> None:
    store.create("log/0", b"data")
    with fs.failing(nth("sync_directory", 1)), pytest.raises(StoreError) as raised:
        (store.create if create else store.replace)("log/1", b"data")
    assert raised.value.may_have_happened and not raised.value.is_lasting


def upload(store: DirectoryStore, key: str, data: bytes) -> None:
    with uploading(store, key) as upload:
        upload.write(data)


@pytest.mark.parametrize("write", [DirectoryStore.create, DirectoryStore.replace, upload])
@pytest.mark.parametrize("is_there", [False, True])
def test_whoever_reads_an_object_whose_name_may_not_be_durable_makes_it_durable_first(
    store: DirectoryStore, fs: FaultyFileSystem, write: Callable[[DirectoryStore, str, bytes], object], is_there: bool
) -> None:
    store.create("log/0", b"data")
    if is_there and write is not DirectoryStore.create:
        store.create("log/1", b"before")
    with fs.failing(nth("sync_directory", 1)), pytest.raises(StoreError):
        write(store, "log/1", b"data")
    for read in (lambda: store.get("log/1"), lambda: store.get_range("log/1", 0, 4)):
        fs.calls.clear()
        assert bytes(read()) == b"data"
        assert fs.count("sync_directory", "log") == 1
        with fs.failing(nth("sync_directory", 1)), pytest.raises(StoreError):
            read()
    fs.calls.clear()
    store.get("log/0")
    assert fs.count("sync_directory") == 0


@pytest.mark.parametrize("write", [DirectoryStore.create, DirectoryStore.replace, upload])
def test_a_deleted_object_leaves_nothing_though_its_name_was_never_durable(
    store: DirectoryStore, fs: FaultyFileSystem, write: Callable[[DirectoryStore, str, bytes], object], root: Path
) -> None:
    """Its temporary name kept its bytes for an hour: those of a backup on a disk that could not be synced."""
    store.create("log/0", b"data")
    with fs.failing(nth("sync_directory", 1)), pytest.raises(StoreError):
        write(store, "log/1", b"data")
    with fs.failing(nth("sync_directory", 1)), pytest.raises(StoreError):
        write(store, "log/2", b"other")
    assert len(temporaries(root)) == 2
    store.delete("log/1")
    assert len(temporaries(root)) == 1 and bytes(store.get("log/2")) == b"other"
    store.delete("log/2")
    assert temporaries(root) == []


def test_a_file_that_is_being_written_stays_though_it_got_the_inode_of_a_deleted_object(
    store: DirectoryStore, fs: FaultyFileSystem, root: Path
) -> None:
    """As ext4 does at once, where the creator of the object removes its temporary name meanwhile."""
    store.create("log/0", b"data")
    with fs.failing(nth("sync_directory", 1)), pytest.raises(StoreError):
        store.create("log/1", b"data")
    [temporary], unlink, uploads = temporaries(root), os.unlink, list[Any]()

    def raced(path: Path) -> None:
        unlink(path)
        if path == root / "log" / "1":
            unlink(temporary)
            uploads.append(store.upload("log/2"))

    with mock.patch("os.unlink", raced):
        store.delete("log/1")
    uploads[0].write(b"other")
    uploads[0].finish()
    assert bytes(store.get("log/2")) == b"other"


@pytest.mark.parametrize("upload", [False, True])
def test_a_crash_leaves_no_part_of_an_object(root: Path, upload: bool) -> None:
    child = os.fork()
    if not child:
        store = DirectoryStore(root)
        store.create("log/1", b"whole")
        if upload:
            store.upload("log/2").write(b"par")
            os._exit(0)
        with mock.patch("os.link", side_effect=lambda *_: os._exit(0)):
            store.create("log/2", b"part")
    assert os.waitpid(child, 0)[1] == 0
    assert len(temporaries(root)) == 1
    store = DirectoryStore(root)
    assert [info.key for info in store.list("")] == ["log/1"]
    with pytest.raises(ObjectMissingError):
        store.get("log/2")
    assert store.create("log/2", b"new")


def test_what_crashes_left_is_swept_when_it_is_old(root: Path) -> None:
    DirectoryStore(root).create("log/1", b"data")
    old, new = root / "log" / ".tmp-old", root / "log" / ".tmp-new"
    for path in (old, new):
        path.write_bytes(b"left")
    os.utime(old, (0, 0))
    DirectoryStore(root).create("log/2", b"data")
    assert temporaries(root) == [new]


def test_an_old_temporary_that_became_an_object_is_swept_only_after_its_directorys_sync(
    root: Path, fs: FaultyFileSystem
) -> None:
    DirectoryStore(root).create("log/1", b"data")
    os.link(root / "log" / "1", root / "log" / ".tmp-old")
    os.utime(root / "log" / "1", (0, 0))
    DirectoryStore(root, fs).create("log/2", b"data")
    last = [call.name for call in fs.calls[: [call.file for call in fs.calls].index(".tmp-old")]][-1]
    assert last == "sync_directory" and DirectoryStore(root).get("log/1").to_pybytes() == b"data"


def test_a_directory_that_was_removed_is_created_again(store: DirectoryStore, root: Path) -> None:
    store.create("log/1", b"data")
    store.delete("log/1")
    (root / "log").rmdir()
    assert store.create("log/1", b"again")
    assert bytes(store.get("log/1")) == b"again"


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/./b", "a/.tmp-1", "a\0b"])
def test_a_key_that_is_not_a_path_below_the_root_is_refused(store: DirectoryStore, root: Path, key: str) -> None:
    asked: list[Callable[[], object]] = [
        lambda: store.create(key, b""),
        lambda: store.replace(key, b""),
        lambda: store.upload(key),
        lambda: store.get(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.delete(key),
    ]
    for ask in asked:
        with pytest.raises(StoreError, match="can't be the key") as raised:
            ask()
        assert raised.value.is_lasting and not raised.value.may_have_happened
    assert not root.exists()


def test_a_name_that_is_too_long_is_said_to_be(store: DirectoryStore) -> None:
    with pytest.raises(StoreError, match="shorter names") as raised:
        store.create("segments/" + "x" * 300, b"")
    assert raised.value.is_lasting


def test_a_link_to_elsewhere_is_not_an_object(store: DirectoryStore, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"of others")
    store.create("log/1", b"data")
    (root / "log" / "2").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError):
        store.get("log/2")
    assert [info.key for info in store.list("")] == ["log/1"]


class Unlooked:
    """A directory with a file that the disk does not let anybody look at."""

    def __enter__(self) -> list[Any]:
        answers = {
            "is_dir.return_value": False,
            "is_file.return_value": True,
            "stat.side_effect": with_errno(errno.EIO),
        }
        file = mock.Mock(**answers)
        file.name = "1"
        return [file]

    def __exit__(self, *_: object) -> None:
        pass


def test_what_the_system_refuses_to_read_list_or_delete_is_a_store_error(
    store: DirectoryStore, fs: FaultyFileSystem
) -> None:
    store.create("log/1", b"data")
    with fs.failing(nth("read", 1)), pytest.raises(StoreError, match=r"reading .*log/1"):
        store.get("log/1")
    refused = with_errno(errno.EACCES)
    with mock.patch("os.scandir", side_effect=refused), pytest.raises(StoreError, match=r"listing .* no permission"):
        list(store.list(""))
    with (
        mock.patch("os.scandir", lambda _: Unlooked()),
        pytest.raises(StoreError, match=r"listing .*Input/output error"),
    ):
        list(store.list(""))
    with mock.patch("os.unlink", side_effect=refused), pytest.raises(StoreError, match=r"deleting .* no permission"):
        store.delete("log/1")
    with mock.patch("os.open", side_effect=refused), pytest.raises(StoreError, match=r"reading .* no permission"):
        store.get("log/1")


def test_an_upload_that_fails_leaves_nothing_once_it_is_discarded(
    store: DirectoryStore, fs: FaultyFileSystem, root: Path
) -> None:
    for call in ("write", "sync", "rename"):
        upload = store.upload("segments/1")
        with fs.failing(nth(call, 1)), pytest.raises(StoreError) as raised:
            upload.write(b"data")
            upload.finish()
        assert not raised.value.may_have_happened
        upload.discard()
    assert temporaries(root) == [] and list(store.list("")) == []


def test_an_upload_that_was_begun_before_a_fork_fails_in_the_child_and_not_in_the_parent(root: Path) -> None:
    store = DirectoryStore(root)
    upload = store.upload("segments/1")
    upload.write(b"data")
    child = os.fork()
    if not child:
        try:
            upload.write(b"of the child")
        except StoreError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    upload.finish()
    assert bytes(store.get("segments/1")) == b"data"


def test_a_pickle_has_the_directory_only(store: DirectoryStore, root: Path) -> None:
    store.create("log/1", b"data")
    back = pickle.loads(pickle.dumps(store))
    assert back.root == store.root == f"object+file://{root}"
    assert bytes(back.get("log/1")) == b"data"


def test_a_directory_is_an_ordinary_one_of_the_file_system(root: Path) -> None:
    """A missing root is an empty store; nothing is created by looking."""
    store = DirectoryStore(root, FileSystem())
    assert list(store.list("")) == [] and list(store.list("log/")) == []
    store.delete("log/1")
    with pytest.raises(ObjectMissingError):
        store.get("log/1")
    assert not root.exists()
    assert issubclass(StoreError, StorageError)
