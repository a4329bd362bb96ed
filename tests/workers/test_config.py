from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

from spillable_stream.errors import OptionError
from spillable_stream.workers.config import WorkerConfig, function_name

GOOD: dict[str, Any] = {"batch_size": None, "max_attempts": 5, "backoff": 1.0, "threads": 1, "timeout": None}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", 1.5),
        ("batch_size", True),
        ("max_attempts", 0),
        ("max_attempts", None),
        ("threads", 0),
        ("threads", 1001),
        ("backoff", -1),
        ("backoff", float("inf")),
        ("backoff", "1 week"),
        ("backoff", np.timedelta64(3, "ns")),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", 100_000),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"^{name} must be"):
        WorkerConfig.of(**{**GOOD, name: value})


@pytest.mark.parametrize("name", ["batch_size", "max_attempts", "threads"])
def test_counts_are_numbers_of_any_kind_as_elsewhere(name: str) -> None:
    config = WorkerConfig.of(**{**GOOD, name: np.int64(3)})
    assert (getattr(config, name), type(getattr(config, name))) == (3, int)
    with pytest.raises(OptionError, match=f"^{name} must be an integer(, 1 or more| from 1 to 1,000), not '3'$"):
        WorkerConfig.of(**{**GOOD, name: "3"})


def test_a_time_may_have_a_unit() -> None:
    config = WorkerConfig.of(**{**GOOD, "backoff": "500ms", "timeout": timedelta(minutes=5)})
    assert (config.backoff, config.timeout) == (0.5, 300.0)


class Callable:
    def __call__(self, event: object) -> None: ...


class AsyncCallable:
    async def __call__(self, event: object) -> None: ...


async def coroutine(event: object) -> None: ...


def test_each_form_takes_its_own_kind_of_function() -> None:
    config = WorkerConfig(**GOOD)
    config.check_function(print, is_async=False)
    config.check_function(Callable(), is_async=False)
    config.check_function(coroutine, is_async=True)
    config.check_function(AsyncCallable(), is_async=True)
    for function in (coroutine, AsyncCallable(), partial(AsyncCallable())):
        with pytest.raises(OptionError, match="is a coroutine function; run it with async_worker"):
            config.check_function(function, is_async=False)
    for other in (print, Callable()):
        with pytest.raises(OptionError, match="is not a coroutine function; run it with worker"):
            config.check_function(other, is_async=True)
    with pytest.raises(OptionError, match="a worker needs a function, not int"):
        config.check_function(1, is_async=False)  # type: ignore[arg-type]


def generator(event: object) -> Iterator[object]:
    yield event


async def async_generator(event: object) -> AsyncIterator[object]:
    yield event


def test_a_generator_function_is_refused_since_a_call_of_it_does_nothing() -> None:
    for function, is_async in ((generator, False), (async_generator, True), (partial(generator), False)):
        with pytest.raises(OptionError, match=r"a call of the generator function .* does nothing: don't yield"):
            WorkerConfig(**GOOD).check_function(function, is_async=is_async)


def without_arguments() -> None: ...


async def of_two(channel: object, event: object) -> None: ...


def test_a_function_that_cannot_be_called_with_one_argument_is_refused() -> None:
    """Every event would be a dead letter."""
    config = WorkerConfig(**GOOD)
    for function, is_async in ((without_arguments, False), (of_two, True), (lambda event, more: None, False)):
        with pytest.raises(OptionError, match="can't be called with one argument, the event or the batch"):
            config.check_function(function, is_async=is_async)
    for good in (partial(of_two, 1), of_two.__get__(1)):
        config.check_function(good, is_async=True)
    for plain in (dict.fromkeys, int, lambda event, more=1: None, lambda *events: None, [].append):
        config.check_function(plain, is_async=False)


def test_a_typed_channel_needs_a_function_for_batches() -> None:
    with pytest.raises(OptionError, match="is a typed channel, whose worker needs batch_size"):
        WorkerConfig(**GOOD).check_channel(True, 100, "/data/flights")
    WorkerConfig(**{**GOOD, "batch_size": 100}).check_channel(True, 100, "/data/flights")
    with pytest.raises(OptionError, match="at most transaction_capacity, 100, not 101"):
        WorkerConfig(**{**GOOD, "batch_size": 101}).check_channel(False, 100, "/data/orders")


def test_a_function_has_a_name_in_messages() -> None:
    assert function_name(coroutine) == "coroutine"
    assert function_name(Callable()) == "Callable"
