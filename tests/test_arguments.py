from __future__ import annotations

import threading
from datetime import timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from spillable_stream.arguments import (
    flag,
    function,
    instance,
    path_text,
    require_resolvable,
    seconds,
    text,
    timeout_seconds,
    whole_bytes,
    whole_milliseconds,
    whole_number,
)
from spillable_stream.errors import OptionError


def test_a_whole_number_is_any_integer_that_is_large_enough() -> None:
    assert [whole_number("n", n) for n in (1, np.int64(7), 2**70)] == [1, 7, 2**70]
    assert whole_number("n", 0, least=0) == 0


@pytest.mark.parametrize("value", [None, "3", b"3", 1.0, True, [], 0, -1])
def test_anything_else_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(OptionError, match=r"^limit must be an integer, 1 or more, not "):
        whole_number("limit", value)


def test_seconds_are_any_time_span() -> None:
    assert [seconds("t", s) for s in (0, 0.5, Fraction(1, 4), np.float32(2))] == [0, 0.5, 0.25, 2]
    assert [seconds("t", s) for s in ("5m", "3", timedelta(hours=1))] == [300, 3, 3600]
    assert seconds("t", float("inf")) == seconds("t", 10**400) == threading.TIMEOUT_MAX


@pytest.mark.parametrize(
    "value", [None, "soon", "-5m", float("nan"), True, 1j, [], np.timedelta64(3, "s"), np.timedelta64(3, "ns")]
)
def test_what_is_not_a_time_span_is_refused_by_its_name_with_what_is(value: object) -> None:
    wanted = r"^timeout_seconds must be seconds, or a number with ms, s, m, h or d, or a timedelta, not "
    with pytest.raises(OptionError, match=wanted):
        seconds("timeout_seconds", value)


@pytest.mark.parametrize("value", [-1, -0.1, "-1", timedelta(seconds=-1), float("-inf")])
def test_a_negative_time_is_refused_and_no_word_for_forever(value: object) -> None:
    with pytest.raises(OptionError, match=r"^t must be 0 or more, not .*; math\.inf means no limit$"):
        seconds("t", value)


def test_milliseconds_and_bytes_are_whole_numbers_or_have_a_unit() -> None:
    assert [whole_milliseconds("t", t, -1) for t in (-1, 5, "1.5s", timedelta(minutes=1))] == [-1, 5, 1500, 60_000]
    assert [whole_bytes("b", b) for b in (1, np.int64(7), "64KiB", "1.5 MiB")] == [1, 7, 65_536, 1_572_864]


def test_a_text_of_a_number_is_that_number_of_times_and_sizes_alike() -> None:
    assert (seconds("t", "30"), whole_milliseconds("t", "30", 0), whole_bytes("b", "4096")) == (30, 30, 4096)
    assert (whole_milliseconds("t", " -1 ", -1), whole_bytes("b", "1_000")) == (-1, 1000)


@pytest.mark.parametrize("value", [None, "5x", "1.5", "", "-2", 1.5, True, "5 weeks", -2, "9" * 400 + "d"])
def test_what_is_not_milliseconds_is_refused_by_its_name(value: object) -> None:
    wanted = r"^max_block_ms must be milliseconds, or a number with ms, s, m, h or d; or -1 for no limit, not "
    with pytest.raises(OptionError, match=wanted):
        whole_milliseconds("max_block_ms", value, -1)


@pytest.mark.parametrize("value", [None, "5x", "1.5", "", "0", 1.5, True, "5MB", 0, "9" * 400 + "KiB", "9" * 5000])
def test_what_is_not_bytes_is_refused_by_its_name(value: object) -> None:
    wanted = r"^max_bytes must be bytes, or a number with KiB, MiB, GiB or TiB; 1 or more, not "
    with pytest.raises(OptionError, match=wanted):
        whole_bytes("max_bytes", value)


def test_a_path_is_text_or_a_path_of_text() -> None:
    found = [path_text("path", p) for p in ("a", Path("a/b"), "s3://b/c", "ü\udcff")]
    assert found == ["a", "a/b", "s3://b/c", "ü\udcff"]


@pytest.mark.parametrize("value", [None, b"a", 3, [], object()])
def test_what_is_not_a_path_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(OptionError, match=r"^path must be a path, as a str or a pathlib\.Path, not "):
        path_text("path", value)


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_refused(value: str) -> None:
    with pytest.raises(OptionError, match="no file can have this name"):
        path_text("path", value)


def test_a_timeout_is_none_or_a_number_of_seconds_that_is_not_negative() -> None:
    assert [timeout_seconds(t) for t in (None, 0, 2.5)] == [None, 0.0, 2.5]
    for value in (-1, "soon", True, float("nan")):
        with pytest.raises(OptionError, match=r"^timeout_seconds must be "):
            timeout_seconds(value)


def test_a_flag_is_true_or_false_and_nothing_that_counts_as_such() -> None:
    assert [flag("f", f) for f in (True, False)] == [True, False]
    for value in (None, 0, 1, "true", [], object()):
        with pytest.raises(OptionError, match=r"^readonly must be True or False, not "):
            flag("readonly", value)


def test_text_is_a_str_of_valid_unicode() -> None:
    assert [text("t", t) for t in ("", "ü")] == ["", "ü"]
    for value in (None, 5, b"x", Path("x"), "\ud800"):
        with pytest.raises(OptionError, match=r"^note must be a str of valid Unicode, not "):
            text("note", value)


def test_a_function_is_whatever_can_be_called() -> None:
    assert function("f", print) is print
    with pytest.raises(OptionError, match=r"^callback must be a function, or another callable, not 5"):
        function("callback", 5)  # type: ignore[type-var]


def test_a_coroutine_function_is_none_since_nobody_would_await_it() -> None:
    async def tell() -> None: ...

    class Teller:
        async def __call__(self) -> None: ...

        async def tell(self) -> None: ...

    for call in (tell, partial(tell), Teller(), Teller().tell, partial(Teller())):
        with pytest.raises(
            OptionError, match=r"^the progress .*ell.* is a coroutine function, which nobody would await"
        ):
            function("progress", call)
    for other in (Path, Path().exists, partial(print), [].append):
        assert function("progress", other) is other


def test_an_instance_is_of_the_class_or_of_a_subclass() -> None:
    assert instance("i", True, int) is True
    with pytest.raises(OptionError, match=r"^ax must be an instance of int, not '5'"):
        instance("ax", "5", int)


def test_a_relative_path_is_refused_where_the_working_directory_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    require_resolvable("path", "orders")
    (tmp_path / "gone").rmdir()
    require_resolvable("path", str(tmp_path))
    with pytest.raises(OptionError, match="path can't be 'orders': it is relative, and the working directory was "):
        require_resolvable("path", "orders")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("~/orders", r"only a shell replaces ~, so give os.path.expanduser\('~/orders'\)"),
        ("~bob/orders", r"only a shell replaces ~bob, so give os.path.expanduser\('~bob/orders'\)"),
        ("$HOME/orders", r"only a shell replaces \$HOME, so give os.path.expandvars\('\$HOME/orders'\)"),
        ("${DATA}", r"only a shell replaces \$\{DATA\}, so give os.path.expandvars\('\$\{DATA\}'\)"),
    ],
)
def test_a_path_that_begins_as_only_a_shell_understands_it_is_refused_unless_it_exists(
    path: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=f"^path can't be .*: {said}$"):
        require_resolvable("path", path)
    Path(path).mkdir(parents=True)
    require_resolvable("path", path)


@pytest.mark.parametrize("path", ["/data/$x", "a$b/c", "a/$HOME", "./$HOME", "a~", "./~", "$", "$/x", "$-x"])
def test_the_letters_of_a_shell_are_letters_elsewhere_in_a_path(path: str) -> None:
    require_resolvable("path", path)
