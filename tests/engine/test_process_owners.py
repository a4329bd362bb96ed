"""A group that another handle of the same process owns: nobody waits for itself, and the error says where it is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, GroupOwnedError
from spillable_stream.engine.process_owners import ProcessOwner, is_of_this_process, refusal_here, timeout_for
from spillable_stream.engine.store import object_owners
from spillable_stream.storage import lock
from spillable_stream.storage.lock import process_note
from tests.support.events import numbered, put, take
from tests.support.one_module import replace_in

Open = Callable[..., Channel]


@pytest.mark.parametrize(
    ("call", "do_instead"),
    [
        (lambda other: take(other, group="g"), "take with it, or use another group"),
        (lambda other: other.consumer("g"), "take with it, or use another group"),
    ],
    ids=["take", "consumer"],
)
def test_a_group_that_another_handle_of_this_thread_owns_is_refused_at_once_and_called_its_own(
    open_channel: Open, call: Callable[[Channel], Any], do_instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = open_channel(), open_channel()
    put(first, *numbered(0, 3))
    owner = first.consumer("g").owner
    for waits in (lock, object_owners):
        replace_in(monkeypatch, waits, "time", sleep=lambda _: pytest.fail("it waited for itself"))
    with pytest.raises(GroupOwnedError) as caught:
        call(other)
    assert caught.value.owner == owner
    thread = threading.current_thread().name
    assert str(caught.value).endswith(
        f"the group 'g' of {first.path} is owned by {owner}, which is this process: the thread "
        f"{thread!r} took with another handle of the channel. Close that handle first"
        f"{do_instead and ', '}{do_instead}"
    )
    first.close()
    assert take(other, group="g") == numbered(0, 3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda other: other.drop_group("g"), r"Close that handle first$"),
        (lambda other: other.seek("g", "earliest"), r"Close that handle first, or seek through its own handle$"),
    ],
    ids=["drop", "seek"],
)
def test_a_change_of_a_group_of_another_handle_says_that_it_is_of_this_process(
    open_channel: Open, call: Callable[[Channel], Any], said: str
) -> None:
    first, other = open_channel(), open_channel()
    first.consumer("g")
    with pytest.raises(GroupOwnedError, match=f"is this process: the thread .* another handle .* {said}"):
        call(other)


def test_a_group_that_another_thread_changes_is_not_said_to_be_its_last_owners(open_channel: Open) -> None:
    first, other = open_channel(), open_channel()
    take(first, group="g")
    first.close()
    with (
        other.engine().owners.without_owner("g"),
        pytest.raises(GroupOwnedError, match=r"another process or thread changes the group 'g' of .*; try again"),
    ):
        open_channel().seek("g", "earliest")


def test_another_thread_of_the_process_is_waited_for_and_named(open_channel: Open) -> None:
    first, other = open_channel(), open_channel()
    thread = threading.Thread(target=first.consumer, args=("g",), name="takes")
    thread.start()
    thread.join()
    with pytest.raises(GroupOwnedError, match=r"is this process: the thread 'takes' took"):
        other.consumer("g", owner_timeout_seconds=0.05)
    closing = threading.Timer(0.1, first.close)
    closing.start()
    other.consumer("g", owner_timeout_seconds=3600)
    closing.join()


def test_a_handle_that_nobody_has_any_more_gives_its_group_up(open_channel: Open, tmp_path: Path) -> None:
    lost: list[Any] = [Channel(tmp_path / "channel", create=True)]
    put(lost[0], *numbered(0, 3))
    lost[0].consumer("g")
    lost.append(lost)  # a circle, which only the garbage collector finds
    del lost
    with Channel(tmp_path / "channel") as again:
        assert take(again, group="g") == numbered(0, 3)


def test_only_a_live_group_of_this_process_is_held_here() -> None:
    note = f"{process_note()} since then, for a test"
    held = ProcessOwner(note)
    assert timeout_for(note, 5) == 0 and timeout_for(f"{process_note()} since now", 5) == 5
    assert refusal_here("g", "p", note, "") is not None
    held.close()
    assert timeout_for(note, 5) == 5 and refusal_here("g", "p", note, "") is None
    again = ProcessOwner(note)
    assert timeout_for(note, 5) == 0
    del again
    assert timeout_for(note, 5) == 5


def test_a_thread_that_has_the_ident_of_the_owners_is_not_the_owners() -> None:
    """A thread that ends leaves its ident to the next one; the handle may be closed by whoever has it now."""
    note, held, found = f"{process_note()} since then", list[ProcessOwner](), list[float]()
    for call in (lambda: held.append(ProcessOwner(note)), lambda: found.append(timeout_for(note, 5))):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert found == [5]


def test_the_note_of_another_process_is_not_of_this_one() -> None:
    assert is_of_this_process(f"{process_note()} since then")
    assert not is_of_this_process(f"pid {os.getpid()}0 on {os.uname().nodename} since then")
    assert not is_of_this_process("")


def test_an_owner_in_an_object_store_that_answers_is_said_to_be_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_owners, "_LOOK_SECONDS", 0.001)
    url = f"object+file://{tmp_path}/orders"
    with Channel(url) as first:
        owner = first.consumer("g").owner
        with (
            Channel(url) as other,
            pytest.raises(GroupOwnedError, match=r"is this process: .* Close that handle first, or use it$") as caught,
        ):
            other.take_transaction("g").__enter__().take()
        assert caught.value.owner == owner
