"""What was read is kept on a host's disk: found by its name, never believed if it is damaged, and never too much."""

from __future__ import annotations

import logging
import os
import pickle
import time
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream.objects import disk_cache
from spillable_stream.objects.disk_cache import DiskCache
from tests.support.threads import in_threads

CHANNEL = "0f0e0d0c-0b0a-0908-0706-050403020100"
KIB = 1 << 10


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "cache"), 256 * KIB)


def files_of(cache: DiskCache) -> list[Path]:
    return sorted(path for path in Path(cache.directory).rglob("*") if path.is_file())


def size_of(cache: DiskCache) -> int:
    return sum(path.stat().st_size for path in files_of(cache))


def keep(cache: DiskCache, key: str, data: bytes = b"data", offset: int = 0) -> Path:
    """Put a part of an object, and return its file."""
    before = set(files_of(cache))
    cache.put(CHANNEL, key, offset, pa.py_buffer(data))
    (path,) = set(files_of(cache)) - before
    return path


def found(cache: DiskCache, key: str, offset: int = 0, channel: str = CHANNEL) -> bytes | None:
    buffer = cache.get(channel, key, offset)
    return None if buffer is None else bytes(buffer)


def test_a_part_is_found_by_its_channel_its_key_and_where_it_begins(cache: DiskCache) -> None:
    keep(cache, "log/1", b"one")
    keep(cache, "log/1", b"later", offset=100)
    keep(cache, "segments/1-x:y/z", b"another")
    assert (found(cache, "log/1"), found(cache, "log/1", 100)) == (b"one", b"later")
    assert found(cache, "segments/1-x:y/z") == b"another"
    assert found(cache, "log/2") is found(cache, "log/1", 50) is found(cache, "log/1", channel="other") is None


def test_a_cache_that_was_sent_to_another_process_finds_the_same(cache: DiskCache) -> None:
    keep(cache, "log/1", b"one")
    assert found(pickle.loads(pickle.dumps(cache)), "log/1") == b"one"


@pytest.mark.parametrize("kind", ["a byte", "cut short", "empty", "longer", "another's"])
def test_a_damaged_file_is_removed_and_not_believed(
    cache: DiskCache, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = keep(cache, "log/1", b"some bytes")
    data = path.read_bytes()
    damaged = {"a byte": data[:-1] + b"X", "cut short": data[:-1], "empty": b"", "longer": data + b"X"}
    path.write_bytes(damaged.get(kind, b"n" * 200))
    with caplog.at_level(logging.WARNING):
        assert found(cache, "log/1") is None
    assert "is damaged, and was removed" in caplog.text
    assert files_of(cache) == []
    keep(cache, "log/1", b"some bytes")
    assert found(cache, "log/1") == b"some bytes"


def test_what_was_read_least_recently_goes_first(cache: DiskCache) -> None:
    paths = [keep(cache, f"log/{i}", bytes(60 * KIB)) for i in range(4)]
    for i, path in enumerate(paths):
        os.utime(path, (1000 + i, 1000 + i))
    assert found(cache, "log/0") is not None
    keep(cache, "log/4", bytes(60 * KIB))
    cache.sweep()
    assert [found(cache, f"log/{i}") is not None for i in range(5)] == [True, False, True, True, True]


def test_it_stays_about_as_small_as_it_should_whoever_puts(cache: DiskCache) -> None:
    for i in range(2000):  # each by a handle of its own: none of them knows what others have put
        DiskCache(cache.directory, cache.most_bytes).put(CHANNEL, f"log/{i}", 0, pa.py_buffer(bytes(4000)))
    assert 0 < size_of(cache) < 2 * cache.most_bytes


def test_small_files_count_as_what_they_take_on_disk(cache: DiskCache) -> None:
    for i in range(200):
        cache.put(CHANNEL, f"log/{i}", 0, pa.py_buffer(b"x"))
    cache.sweep()
    assert len(files_of(cache)) <= cache.most_bytes // 4096


def test_only_its_maker_may_read_it(cache: DiskCache) -> None:
    path = keep(cache, "log/1")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_put_that_was_killed_leaves_a_file_that_a_sweep_removes_in_time(cache: DiskCache) -> None:
    left = keep(cache, "log/1").with_name(".tmp-0123456789abcdef")
    left.write_bytes(b"half")
    cache.sweep()
    assert left.exists()
    hours_ago = time.time() - 7200
    os.utime(left, (hours_ago, hours_ago))
    cache.sweep()
    assert not left.exists() and found(cache, "log/1") == b"data"


def test_a_directory_that_cannot_be_used_is_said_once_and_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = DiskCache(str(tmp_path / "file" / "cache"), 256 * KIB)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            cache.put(CHANNEL, "log/1", 0, pa.py_buffer(b"x"))
            assert found(cache, "log/1") is None
    assert caplog.text.count("can't be used") == 1


def test_threads_that_put_read_and_sweep_at_once_get_what_was_put_or_nothing(cache: DiskCache) -> None:
    def work(number: int) -> None:
        for i in range(150):
            key = f"log/{i % 20}"
            data = key.encode() * 3000
            assert found(cache, key) in (None, data)
            cache.put(CHANNEL, key, 0, pa.py_buffer(data))
            if i % 30 == number:
                cache.sweep()

    in_threads(4, work)
    assert not [path for path in files_of(cache) if path.name.startswith(disk_cache._TEMPORARY)]
