from __future__ import annotations

import pyarrow as pa

from spillable_stream.objects.cache import ObjectCache


def of(size_bytes: int) -> pa.Buffer:
    return pa.py_buffer(bytes(size_bytes))


def kept(cache: ObjectCache, *keys: str) -> str:
    return "".join(key for key in keys if cache.get(key) is not None)


def test_the_least_recently_used_objects_go_first() -> None:
    cache = ObjectCache(100)
    for key in "abc":
        cache.put(key, of(30))
    assert cache.get("a") is not None
    cache.put("d", of(30))
    assert kept(cache, *"abcd") == "acd"
    cache.put("e", of(50))
    assert kept(cache, *"acde") == "de"


def test_an_object_that_would_take_half_of_the_room_drives_out_nothing() -> None:
    cache = ObjectCache(100)
    cache.put("a", of(50))
    cache.put("large", of(51))
    assert kept(cache, "a", "large") == "a"


def test_an_object_that_is_put_again_or_forgotten_takes_its_room_once() -> None:
    cache = ObjectCache(100)
    for _ in range(5):
        cache.put("a", of(40))
    cache.put("b", of(40))
    assert kept(cache, *"ab") == "ab"
    cache.forget("a")
    cache.forget("a")
    cache.put("c", of(50))
    assert kept(cache, *"abc") == "bc"
    cache.put("d", of(20))
    assert kept(cache, *"bcd") == "cd"


def test_a_cache_that_was_cleared_is_as_new() -> None:
    cache = ObjectCache(100)
    cache.put("a", of(50))
    cache.clear()
    assert cache.get("a") is None
    for key in "bc":
        cache.put(key, of(50))
    assert kept(cache, *"abc") == "bc"


def test_parts_of_an_object_are_forgotten_together() -> None:
    cache = ObjectCache(100)
    for key in ("a@0", "a@1", "b@0"):
        cache.put(key, of(30))
    cache.forget_all("a@")
    cache.put("c", of(50))
    assert kept(cache, "a@0", "a@1", "b@0", "c") == "b@0c"


def test_parts_are_put_together_when_they_are_read_and_count_as_large_as_they_are() -> None:
    cache = ObjectCache(100)
    cache.put("a", [b"x" * 20, of(20), b"y"])
    cache.put("b", of(50))
    assert cache.get("a") == pa.py_buffer(b"x" * 20 + bytes(of(20)) + b"y")
    assert cache.get("a") is cache.get("a")
    cache.put("c", [of(30), of(21)])  # more than half of the room
    assert cache.get("c") is None
    cache.put("d", of(10))
    assert cache.get("b") is None and cache.get("a") is not None


def test_what_was_asked_for_before_all_was_let_go_is_not_kept() -> None:
    cache = ObjectCache(100)
    before = cache.clears
    cache.put("a", of(10), before)
    cache.clear()
    cache.put("b", of(10), before)
    cache.put("c", of(10), cache.clears)
    cache.put("d", of(10))
    assert kept(cache, *"abcd") == "cd"
