from __future__ import annotations

import threading
from pathlib import Path

from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lru import LruCache

FS = FileSystem()


def test_what_was_used_last_is_kept() -> None:
    made: list[str] = []
    recent: LruCache[str] = LruCache(2)

    def get(key: str) -> str:
        return recent.get(key, lambda: made.append(key) or key.upper())  # type: ignore[func-returns-value]

    assert [get(k) for k in "abacab"] == list("ABACAB")
    assert made == list("abcb")
    recent.forget("a")
    recent.forget("unknown")
    get("b")
    get("a")
    assert made == list("abcba")
    recent.clear()
    get("b")
    assert made == list("abcbab")


def test_a_file_that_is_pushed_out_closes_when_nobody_uses_it(tmp_path: Path) -> None:
    recent: LruCache[File] = LruCache(1)

    def opened(name: str) -> File:
        return recent.get(name, lambda: FS.open(tmp_path / name, create=True))

    used = opened("a")
    opened("b")
    used.write(0, [b"still open"])
    assert (tmp_path / "a").read_bytes() == b"still open"
    descriptor = used.fileno()
    link = Path("/proc/self/fd", str(descriptor))
    assert link.readlink() == tmp_path / "a"
    del used
    assert not link.exists() or link.readlink() != tmp_path / "a"


def test_many_threads_use_it_at_once() -> None:
    recent: LruCache[int] = LruCache(3)
    wrong: list[int] = []

    def use(start: int) -> None:
        for i in range(3_000):
            key = (start + i) % 7
            if recent.get(key, lambda key=key: key) != key:  # type: ignore[misc]
                wrong.append(key)
            if i % 11 == 0:
                recent.forget(key)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
