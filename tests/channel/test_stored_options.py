"""Options of a later open: those that differ are stored and obeyed at once, those that are fixed are refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, UnsafeStoreError
from spillable_stream.channel.option_change import check_capacities
from spillable_stream.channel.stored_options import options_to_be, store_options, stored_together
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.requests import Request
from spillable_stream.errors import OptionError, ReadonlyChannelError, StorageError
from spillable_stream.format.frame import Payload
from spillable_stream.objects.slots import Slots
from spillable_stream.option_types import ChannelOptions
from tests.support.events import put
from tests.support.faulty_store import FaultyStore
from tests.support.object_channels import URL, log_of, lose_slots, stores_in_memory
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
        check_capacities(Path("a"), ChannelOptions(overflow_capacity=0))
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


def test_options_of_several_opens_are_stored_together_at_the_end(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        Channel(path, keep_alive=2.0).close()
    with stored_together():
        opened = [Channel(path, keep_alive=3.0) for path in paths]
        with stored_together():
            opened.append(Channel(paths[0], retention_ms=5000))
        assert [channel.options["keep_alive"] for channel in opened] == [2.0, 2.0, 2.0]
        assert [options_to_be(channel.engine()).keep_alive for channel in opened] == [3.0, 3.0, 3.0]
    assert [channel.options["keep_alive"] for channel in opened] == [3.0, 3.0, 3.0]
    assert [channel.options["retention_ms"] for channel in opened] == [5000, 0, 5000]
    store_options(opened[0].engine(), {"keep_alive": 4.0})
    assert opened[0].options["keep_alive"] == 4.0, "at once again"
    for channel in opened:
        channel.close()


def test_none_is_stored_if_the_block_raises_and_none_of_a_handle_that_is_closed(tmp_path: Path) -> None:
    with Channel(tmp_path / "a", keep_alive=2.0) as there:
        with pytest.raises(ZeroDivisionError), stored_together(), Channel(tmp_path / "a", keep_alive=3.0):
            raise ZeroDivisionError
        assert there.options["keep_alive"] == 2.0
        with stored_together():
            Channel(tmp_path / "a", keep_alive=3.0).close()
        assert there.options["keep_alive"] == 2.0


def test_handles_that_together_would_leave_their_channel_no_room_are_refused_and_nothing_is_stored(
    tmp_path: Path,
) -> None:
    Channel(tmp_path / "a", memory_capacity=100, overflow_capacity=100).close()
    with pytest.raises(OptionError, match=f"of {tmp_path / 'a'} are both 0"), ExitStack() as stack, stored_together():
        for options in ({"memory_capacity": 0}, {"overflow_capacity": 0}):
            stack.enter_context(Channel(tmp_path / "a", **options))  # type: ignore[arg-type]
    assert capacities(tmp_path / "a") == (100, 100)


def test_room_that_a_handle_gave_that_was_closed_does_not_count(tmp_path: Path) -> None:
    Channel(tmp_path / "a", overflow_capacity=100, keep_alive=2.0).close()
    with pytest.raises(OptionError, match="both 0"), stored_together():
        other = Channel(tmp_path / "a", keep_alive=3.0)
        with Channel(tmp_path / "a", memory_capacity=100):
            without_disk = Channel(tmp_path / "a", overflow_capacity=0)
    assert capacities(tmp_path / "a") == (0, 100)
    assert other.options["keep_alive"] == 2.0, "of none of them is anything stored"
    other.close()
    without_disk.close()


def test_an_option_that_would_leave_no_room_with_one_that_was_stored_meanwhile_is_refused(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes can't both be right: the second one is refused under the commit lock."""
    with open_channel(memory_capacity=100, overflow_capacity=100) as one, open_channel() as other:
        engine = one.engine()
        before = engine.state.options

        def commit_late(request: Request) -> CommitResult:
            monkeypatch.undo()
            store_options(other.engine(), {"overflow_capacity": 0})
            return engine.commit(request)

        monkeypatch.setattr(engine, "commit", commit_late)
        with pytest.raises(OptionError, match="both 0"):
            store_options(engine, {"memory_capacity": 0})
        assert before.overflow_capacity == 100
        assert (one.options["memory_capacity"], one.options["overflow_capacity"]) == (100, 0)


def test_the_last_of_several_values_for_one_channel_counts(tmp_path: Path) -> None:
    with Channel(tmp_path / "a", keep_alive=2.0) as there:
        with stored_together():
            opened = [Channel(tmp_path / "a", keep_alive=seconds) for seconds in (3.0, 2.0)]
        assert there.options["keep_alive"] == 2.0
        with stored_together(), Channel(tmp_path / "a", keep_alive=5.0):
            opened.append(Channel(tmp_path / "a", keep_alive=5.0))
        assert there.options["keep_alive"] == 5.0, "the other handle that gave it was closed"
        for channel in opened:
            channel.close()


def capacities(path: Path) -> tuple[object, object]:
    """Return the capacities that a channel has stored."""
    with Channel(path, readonly=True) as view:
        return view.options["memory_capacity"], view.options["overflow_capacity"]


def test_an_option_that_is_refused_is_refused_at_once_and_not_at_the_end(tmp_path: Path) -> None:
    Channel(tmp_path / "a").close()
    with stored_together():
        for options in ({"mode": "0750"}, {"overflow_capacity": 0}):
            with pytest.raises(OptionError):
                Channel(tmp_path / "a", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("others", [2.0, 9.0])
def test_what_was_stored_gets_its_old_value_again_where_the_disk_of_another_channel_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, others: float
) -> None:
    """But for what somebody else has stored meanwhile."""
    a, b, c = (Channel(tmp_path / name, keep_alive=2.0) for name in "abc")

    def fail(request: object) -> None:
        if others != 2.0:
            store_options(a.engine(), {"keep_alive": others})
        raise StorageError("the disk is gone")

    with pytest.raises(StorageError, match="the disk is gone"), stored_together():
        opened = [Channel(channel.path, keep_alive=3.0) for channel in (a, b, c)]
        monkeypatch.setattr(opened[1].engine(), "commit", fail)
    assert [channel.options["keep_alive"] for channel in (a, b, c)] == [others, 2.0, 2.0]
    assert not caplog.records
    monkeypatch.undo()
    for channel in (*opened, a, b, c):
        channel.close()


def test_an_old_value_is_stored_again_though_a_loss_waits_to_be_told() -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0, keep_alive=2.0) as channel:
        untold = log_of(channel).untold_loss

        def fail() -> None:
            with untold.block():
                raise UnsafeStoreError("lost")
            raise StorageError("the disk is gone")

        with pytest.raises(StorageError, match="the disk is gone"), stored_together():
            store_options(channel.engine(), {"keep_alive": 3.0}, then=fail)
        assert channel.options["keep_alive"] == 2.0
        assert untold.waiting is not None


def test_an_old_value_is_stored_again_where_that_meets_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    with stores_in_memory(FaultyStore), Channel(URL, commit_interval=0, keep_alive=2.0) as channel:

        def fail() -> None:
            lose_slots(channel)
            raise StorageError("the disk is gone")

        then: list[Callable[[], object]] = [fail, lambda: None]
        with pytest.raises(StorageError, match="the disk is gone"), stored_together():
            store_options(channel.engine(), {"keep_alive": 3.0}, then=lambda: then.pop(0)())
        assert channel.options["keep_alive"] == 2.0 and not then
        assert [r.levelname for r in caplog.records] == ["ERROR"] and "events are lost" in caplog.text
        assert log_of(channel).untold_loss.waiting is not None


def test_an_old_value_is_not_stored_again_where_each_attempt_meets_a_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0, keep_alive=2.0) as channel:

        def lose() -> None:
            raise UnsafeStoreError("lost")

        def fail() -> None:
            monkeypatch.setattr(channel.engine(), "follow", lose)
            raise StorageError("the disk is gone")

        with pytest.raises(StorageError, match="the disk is gone"), stored_together():
            store_options(channel.engine(), {"keep_alive": 3.0}, then=fail)
        monkeypatch.undo()
        assert caplog.messages == [f"{URL}: lost"] * 2 + [
            f"{URL}: keep_alive may have a new value, and the old one can't be stored: "
            "each attempt met a loss of events"
        ]


def test_an_old_value_that_is_stored_again_is_not_said_to_be_new_where_what_follows_fails(
    open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(keep_alive=2.0)

    def fail() -> None:
        raise StorageError("the disk is gone")

    with pytest.raises(StorageError, match="the disk is gone"), stored_together():
        store_options(channel.engine(), {"keep_alive": 3.0}, then=fail)
    assert channel.options["keep_alive"] == 2.0
    assert caplog.messages == [
        f"{channel.path}: the old value of keep_alive is stored again, and what follows that failed: the disk is gone"
    ]


def test_an_old_value_that_cannot_be_stored_again_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        Channel(tmp_path / name, keep_alive=2.0).close()
    errors = [StorageError("the disk is gone"), StorageError("it is still gone")]

    def fail(request: object) -> None:
        raise errors.pop(0)

    with pytest.raises(StorageError, match="the disk is gone"), stored_together():
        opened = [Channel(tmp_path / name, keep_alive=3.0) for name in "ab"]
        monkeypatch.setattr(opened[1].engine(), "commit", fail)
        of_first = opened[0].engine()
        monkeypatch.setattr(of_first.upkeep, "ensure", lambda: monkeypatch.setattr(of_first, "commit", fail))
    assert (
        f"{tmp_path / 'a'}: keep_alive may have a new value, and the old one can't be stored: it is still gone"
        in caplog.text
    )
    monkeypatch.undo()
    for channel in opened:
        channel.close()


def test_a_spool_and_its_channel_are_settled_together(tmp_path: Path) -> None:
    store, spool = f"object+file://{tmp_path}/store", tmp_path / "spool"

    def opened(durability: str, capacity: int) -> Channel:
        return Channel(store, spool=str(spool), durability=durability, transaction_capacity=capacity)

    def settings() -> list[object]:
        with Channel(store, create=False) as channel, Channel(spool, readonly=True) as local:
            has_memory = bool(local.options["memory_capacity"])
            return [channel.options["transaction_capacity"], local.options["transaction_capacity"], has_memory]

    opened("local", 50).close()
    with pytest.raises(ZeroDivisionError), stored_together(), opened("memory", 70):
        raise ZeroDivisionError
    assert settings() == [50, 50, False]
    for durability, capacity in (("memory", 70), ("local", 90)):
        with stored_together():
            channel = opened(durability, capacity)
        put(channel, b"x")
        assert settings() == [capacity, capacity, durability == "memory"]
        channel.close()
