from __future__ import annotations

import pickle
import textwrap
from pathlib import Path

import pytest

from spillable_stream import errors
from spillable_stream.errors import (
    CorruptionError,
    DataLossError,
    DeliveryError,
    DiskSpaceError,
    GroupOwnedError,
    MemoryLossWarning,
    NotAChannelError,
    OptionError,
    SendFailedError,
    SpillableError,
)
from spillable_stream.objects.store import StoreError

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("error", CLASSES, ids=lambda c: c.__name__)
def test_every_error_is_of_one_tree_and_documented(error: type[BaseException]) -> None:
    assert error.__doc__
    assert issubclass(error, Warning) or issubclass(error, SpillableError)
    if not issubclass(error, Warning) and error is not SpillableError:
        assert f"── {error.__name__}" in (errors.__doc__ or "")


def test_the_page_of_errors_shows_the_tree_of_the_module() -> None:
    page = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"
    tree = (errors.__doc__ or "").partition("::\n\n")[2].rpartition("\n\n")[0]
    assert f"```\n{textwrap.dedent(tree)}\n```" in page.read_text()


@pytest.mark.parametrize("error", CLASSES, ids=lambda c: c.__name__)
def test_every_error_survives_pickling(error: type[BaseException]) -> None:
    """Spark carries errors from its workers to the driver."""
    back = pickle.loads(pickle.dumps(error("what happened")))
    assert type(back) is error and str(back) == "what happened"


@pytest.mark.parametrize(
    "error",
    [
        NotAChannelError("nothing", is_missing=True),
        GroupOwnedError("owned", "pid 7"),
        DiskSpaceError("full"),
        CorruptionError("bad", "/file", 48),
        SendFailedError("failed", (1, 2)),
        DeliveryError("failed", {"a": ValueError("no")}, ("b",)),
        OptionError("wrong", "memory_capacity"),
        MemoryLossWarning("lost", ((1, 2),), ((3, 4),)),
        StoreError("refused", is_lasting=True),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_notes_and_all_that_it_says_when_it_is_pickled(error: Exception) -> None:
    error.stored_nothing = True  # type: ignore[attr-defined]
    error.add_note("what to do")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), repr(vars(back))) == (type(error), str(error), repr(vars(error)))


def test_corruption_says_once_what_to_do_unless_the_error_says_it_or_events_are_gone() -> None:
    for error, notes in (
        (CorruptionError("bad", "/data/c/data/log-000001"), ["see what is lost with 'spillable verify /data/c'"]),
        (CorruptionError("bad; run 'spillable repair'"), []),
        (DataLossError("events are gone"), []),
    ):
        error.advise("/data/c")
        error.advise("/data/c")
        assert getattr(error, "__notes__", []) == notes


def test_corruption_says_where() -> None:
    error = DataLossError("events are gone", "/data/log-000001", 48)
    assert str(error) == "events are gone [/data/log-000001, offset 48]"
    back = pickle.loads(pickle.dumps(error))
    assert (back.path, back.offset, str(back)) == (error.path, 48, str(error))
    assert str(CorruptionError("bad", "/file")) == "bad [/file]"
