"""How much of a trace comes to Spark."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Iterator

import pytest

from spillable_stream.errors import OptionError, SpillableError, StorageError
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.short_trace import short_traces
from spillable_stream.spark.stream_reader import SpillableStreamReader


@short_traces
class Source:
    """A source in small."""

    def partitions(self, start: int, end: int = 0) -> int:
        return self._look(start)

    def read(self, partition: int) -> Iterator[int]:
        yield 1
        self._look(partition)

    def _look(self, start: int) -> int:
        if start < 0:
            raise KeyError(start)
        if start == 0:
            try:
                raise OSError("no disk")
            except OSError as e:
                raise StorageError("the disk failed") from e
        return start


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]  # without the test's own


def test_own_error_has_one_frame_and_nothing_that_it_came_from() -> None:
    with pytest.raises(StorageError, match="the disk failed") as e:
        Source().partitions(0)
    assert frames(e.value) == ["call"]
    assert "OSError" not in "".join(traceback.format_exception(e.value))


def test_own_error_of_an_iterator_has_one_frame() -> None:
    rows = Source().read(0)
    assert next(rows) == 1
    with pytest.raises(StorageError) as e:
        next(rows)
    assert frames(e.value) == ["_short_iterator"]


def test_any_other_error_keeps_its_trace() -> None:
    with pytest.raises(KeyError) as e:
        Source().partitions(-1)
    assert frames(e.value)[-2:] == ["partitions", "_look"]
    rows = Source().read(-1)
    next(rows)
    with pytest.raises(KeyError) as e:
        next(rows)
    assert frames(e.value)[-2:] == ["read", "_look"]


def test_trace_is_in_the_log_for_whoever_debugs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "spillable_stream"), pytest.raises(StorageError):
        Source().partitions(0)
    logged = caplog.records[-1].exc_info
    assert logged
    assert [frame.name for frame in traceback.extract_tb(logged[2])][-1] == "_look"


def test_methods_look_as_they_were_to_spark_which_asks_for_their_parameters() -> None:
    assert list(inspect.signature(Source().partitions).parameters) == ["start", "end"]
    assert list(inspect.signature(SpillableStreamReader.latestOffset).parameters) == ["self", "start", "limit"]
    assert inspect.isgeneratorfunction(inspect.unwrap(Source.read))
    assert Source().partitions(3) == 3


def test_source_raises_with_one_frame() -> None:
    with pytest.raises(OptionError) as e:
        SpillableDataSource({}).schema()
    assert frames(e.value) == ["call"]
    assert isinstance(e.value, SpillableError)
