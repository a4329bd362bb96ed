"""Options of a later open: those that differ are stored and obeyed at once, those that are fixed are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.channel.stored_options import check_capacities, store_options
from spillable_stream.errors import OptionError, ReadonlyChannelError
from spillable_stream.format.frame import Payload
from spillable_stream.objects.slots import Slots
from spillable_stream.option_types import ChannelOptions
from tests.support.store_limits import SetLimits

Open = Callable[..., Channel]


def test_only_an_option_that_differs_is_stored(open_channel: Open) -> None:
    engine = open_channel(keep_alive=2.0).engine()
    before = engine.positions
    store_options(engine, {"keep_alive": 2.0})
    assert engine.positions == before
    store_options(engine, {"keep_alive": 3.0, "retention_ms": 5000})
    assert (engine.state.options.keep_alive, engine.state.options.retention_ms) == (3.0, 5000)


def test_the_handle_that_changes_an_option_obeys_it_at_once(open_channel: Open) -> None:
    engine = open_channel().engine()
    store_options(engine, {"max_file_size": 4096})
    assert engine.log.tiers.disk.max_file_size_bytes == 4096
    store_options(engine, {"retention_bytes": 1 << 20, "max_file_size": 1 << 30})
    assert engine.log.tiers.disk.max_file_size_bytes == (1 << 20) // 8


@pytest.mark.parametrize(
    "given",
    [{"mode": "0750"}, {"data_dirs": ["/elsewhere"]}, {"checkpoint_dir": "/elsewhere"}],
    ids=lambda g: next(iter(g)),
)
def test_what_is_fixed_is_refused_if_it_differs(open_channel: Open, given: dict[str, object]) -> None:
    engine = open_channel().engine()
    with pytest.raises(OptionError, match=f"{next(iter(given))} is fixed when a channel is created"):
        store_options(engine, {**given, "keep_alive": 9.0})
    assert engine.state.options.keep_alive != 9.0


def test_directories_that_differ_are_named_as_paths(open_channel: Open, path: Path) -> None:
    engine = open_channel().engine()
    with pytest.raises(OptionError, match=rf"{path} has {path / 'data'}, not /one, /two$"):
        store_options(engine, {"data_dirs": ["/one", "/two"]})


def test_what_is_fixed_may_be_given_as_it_is(open_channel: Open, path: Path) -> None:
    engine = open_channel().engine()
    store_options(engine, {"mode": "0700", "checkpoint_dir": str(path / "checkpoint")})


def test_a_handle_that_only_looks_changes_nothing(open_channel: Open, path: Path) -> None:
    open_channel().close()
    with Channel(path, readonly=True) as view:
        store_options(view.engine(), {"retention_ms": 0})
        with pytest.raises(ReadonlyChannelError, match="another value of retention_ms"):
            store_options(view.engine(), {"retention_ms": 5000})


def test_a_channel_that_could_hold_nothing_is_refused(open_channel: Open) -> None:
    with pytest.raises(OptionError, match="both 0"):
        check_capacities(ChannelOptions(overflow_capacity=0))
    engine = open_channel().engine()
    with pytest.raises(OptionError, match="both 0"):
        store_options(engine, {"overflow_capacity": 0})
    assert engine.state.options.overflow_capacity


def test_an_open_that_was_paused_while_its_slot_was_collected_stores_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits
) -> None:
    """Nothing of the user's is at stake: to store an option twice does no harm."""
    url = f"object+file://{tmp_path}/channel"
    create = Slots.create
    with Channel(url, gc_delay=0) as other:
        set_limits(worth_a_trim=1)

        def work_while_it_is_paused(self: Slots, number: int, data: Payload) -> bool:
            monkeypatch.undo()
            for _ in range(4):
                with other.put_transaction() as tx:
                    tx.put(Event(b"event"))
                with other.take_transaction() as taking:
                    taking.take()
                other.checkpoint()
            return create(self, number, data)

        monkeypatch.setattr(Slots, "create", work_while_it_is_paused)
        with Channel(url, keep_alive=7.0) as paused:
            assert paused.engine().state.options.keep_alive == 7.0
            with paused.put_transaction() as tx:
                tx.put(Event(b"next"))
        assert other.stats().channel_size == 1
        assert other.engine().follow().options.keep_alive == 7.0
