"""What a handle knows of slots that it has not applied."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from spillable_stream import Channel
from spillable_stream.objects.slots import slot_key
from tests.support.events import numbered, peek, put, take
from tests.support.interrupts import Interrupts
from tests.support.object_channels import asked, collect_now, in_thread, store_of

Open = Callable[..., Channel]


def test_a_look_between_an_append_and_its_effect_loads_nothing(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_handle()
    put(channel, b"0")
    engine, store, seen = channel.engine(), store_of(channel), list[int]()
    apply_own = engine.follower.apply_own

    def looked_at(*arguments: object) -> None:
        in_thread(lambda: seen.append(engine.follow().last_id)).join()
        apply_own(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.follower, "apply_own", looked_at)
    state = engine.state
    store.forget_counts()
    for number in (1, 2):
        put(channel, b"%d" % number)
    assert (seen, engine.state.last_id) == ([2, 3], 3)
    assert engine.state is state
    assert not {("get", "hint"), ("list", "checkpoints/")} & set(asked(store))


def test_a_handle_that_slept_while_slots_were_collected_loads_the_state_anew(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    for number in range(5):
        put(other, b"%d" % number)
    take(other)
    collect_now(other)
    put(other, *numbered(5, 2))
    state, store = channel.engine().state, store_of(channel)
    store.forget_counts()
    assert channel.engine().follow().last_id == 8
    assert channel.engine().state is not state
    assert (store.counts["list"], slot_key(1)) == (0, asked(store)[1][1])  # the hint said where to begin
    assert not {("get", slot_key(number)) for number in range(2, 6)} & set(asked(store)[2:])
    put(channel, b"7")
    assert take(other) == numbered(5, 3)


def ids(channel: Channel) -> list[int]:
    """Return the IDs of all events, by where each of them is."""
    return [i for b in channel.engine().follow().blocks.disk for i in range(b.first_id, b.first_id + b.count)]


@pytest.mark.parametrize(
    "others_come",
    [pytest.param(False, id="a commit"), pytest.param(True, id="a look, and a commit", marks=pytest.mark.slow)],
)
def test_an_interrupt_anywhere_lets_no_id_be_given_out_twice(
    open_handle: Open, others_come: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does this handle lose sight of an event."""
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)  # of interrupts while something is freed
    other = open_handle()
    for number in count(1):
        channel = open_handle(gc_delay=3600)  # it looks at nothing before a commit
        channel.stats()
        if others_come:
            put(other, b"of another")
        files = (f"/engine/store/{name}.py" for name in ("known_slots", "object_appends", "object_looks"))
        interrupts = Interrupts(number, *files)
        interrupts.run(partial(put, channel, b"interrupted"))
        put(channel, b"next")
        reader = open_handle()
        found = peek(reader)
        reader.close()
        assert found.count(b"next") == number, number
        assert ids(channel) == ids(other) == list(range(1, len(found) + 1)), number
        if not interrupts.hit:
            break
    assert number > 20
