from __future__ import annotations

from spillable_stream.flow.sources.base import SourceBase


def test_what_a_source_missed_is_kept_once_and_the_last_of_it() -> None:
    source = SourceBase()
    for i in range(30):
        source.miss(f"file {i}")
        source.miss(f"file {i}")
    assert list(source.missed) == [f"file {i}" for i in range(10, 30)]
