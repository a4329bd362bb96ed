"""The channel of a spool: whose it may be, and what is left where it is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, OptionError, SchemaError, SpillableError, StorageError
from spillable_stream.channel import spool_channel
from spillable_stream.channel.spool_channel import SpooledChannel
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.objects.store import Store
from tests.support.events import put, take
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.object_channels import URL, stores_in_memory
from tests.support.spools import open_spooled, spool_of

TYPED = pa.schema([("name", pa.string()), ("count", pa.int64())])


def test_a_directory_that_is_not_a_spool_of_this_channel_is_refused(tmp_path: Path) -> None:
    with stores_in_memory():
        open_spooled(tmp_path / "spool").close()
    with Channel(tmp_path / "mine", minimum_required_space=0) as mine:
        put(mine, b"x")
    with Channel(tmp_path / "typed", schema=TYPED, minimum_required_space=0):
        pass
    for there, error, words in (
        ("spool", OptionError, "is the spool of another channel"),
        ("mine", OptionError, "its own events or groups, not a spool"),
        ("typed", SchemaError, " is a typed channel; the spool holds no events: remove it, or use"),
    ):
        with stores_in_memory(), pytest.raises(error, match=words):
            open_spooled(tmp_path / there)


def _a_file(path: Path) -> None:
    path.write_text("not a directory")


def _under_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("not a directory")


def _full_of_others_files(path: Path) -> None:
    path.mkdir()
    (path / "somebody's").write_text("x")


def _a_channel_with_events(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as other:
        put(other, b"x")


def _the_spool_of_another_channel(path: Path) -> None:
    with stores_in_memory():
        open_spooled(path).close()


def _a_channel_of_objects(path: Path) -> None:
    Channel(f"object+file://{path}").close()


def _a_typed_channel(path: Path) -> None:
    Channel(path, schema=TYPED, minimum_required_space=0).close()


def _a_channel_of_events(path: Path) -> None:
    Channel(path, minimum_required_space=0).close()


def _a_channel_of_other_columns(path: Path) -> None:
    Channel(path, schema=pa.schema([("name", pa.int64())]), minimum_required_space=0).close()


@pytest.mark.parametrize("durability", ["local", "memory"])
@pytest.mark.parametrize(
    ("wrong", "schema"),
    [
        (_a_file, None),
        (_under_a_file, None),
        (_full_of_others_files, None),
        (_a_channel_with_events, None),
        (_the_spool_of_another_channel, None),
        (_a_channel_of_objects, None),
        (_a_typed_channel, None),
        (_a_channel_of_events, TYPED),
        (_a_channel_of_other_columns, TYPED),
    ],
)
def test_no_channel_is_created_in_the_store_whose_spool_is_refused_and_the_other_channel_stays_as_it_is(
    tmp_path: Path, wrong: Callable[[Path], None], schema: pa.Schema | None, durability: str
) -> None:
    spool = tmp_path / "there" / "spool"
    spool.parent.mkdir()
    wrong(spool)
    before = contents(tmp_path)
    with stores_in_memory() as stores:
        for _ in range(2):
            with pytest.raises(SpillableError):
                Channel(URL, schema=schema, durability=durability, spool=spool, transaction_capacity=77)
        assert not stores[URL].objects
    assert contents(tmp_path) == before


def contents(directory: Path) -> dict[str, object]:
    """Return the files under a directory, and what the channel in it says of itself."""
    files: dict[str, object] = {str(path): None for path in directory.rglob("*") if "checkpoint-" not in path.name}
    with suppress(SpillableError), Channel(directory / "there" / "spool", readonly=True) as channel:
        files |= channel.options | {"schema": channel.schema}
    return files


def test_what_is_refused_as_the_spool_of_a_channel_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    spool, narrow = tmp_path / "there" / "spool", pa.schema([("name", pa.string())])
    with Channel(spool, schema=narrow, minimum_required_space=0) as other, other.put_transaction() as tx:
        tx.put({"name": "x"})
    before = contents(tmp_path)
    with stores_in_memory():
        Channel(URL, schema=TYPED, transaction_capacity=77).close()
        with pytest.raises(OptionError, match="its own events or groups, not a spool"):
            open_spooled(spool, durability="memory")
    assert contents(tmp_path) == before


def test_a_spool_with_columns_that_its_channel_lacks_is_refused_before_it_takes_what_cannot_be_shipped(
    tmp_path: Path,
) -> None:
    def refuse(request: Request) -> Fault | None:
        return Fault.REFUSED if refuses and request.kind == "create" and request.key.startswith("log/") else None

    def seen_by(store: Store) -> FaultyStore:
        return FaultyStore(store, refuse)

    refuses, spool = [True], tmp_path / "spool"
    with stores_in_memory(seen_by) as stores:
        with pytest.raises(StorageError):
            Channel(URL, schema=pa.schema([("label", pa.string())]), durability="local", spool=spool)
        refuses.clear()
        with pytest.raises(SchemaError, match=r"has the column 'label', which s3://bucket/orders lacks.* remove it"):
            Channel(URL, schema=TYPED, durability="local", spool=spool)
        assert not stores[URL].objects
        Channel(URL, schema=TYPED).close()
        with pytest.raises(SchemaError, match="has the column 'label', which s3://bucket/orders lacks"):
            Channel(URL, durability="local", spool=spool)


def test_a_spool_whose_close_an_interrupt_hits_while_it_is_prepared_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it is busy for as long as somebody keeps the error, as a notebook does."""
    close, interrupts = LocalEngine.close, [KeyboardInterrupt()]

    def interrupted(engine: LocalEngine, *, forked: bool = False) -> None:
        if interrupts:
            raise interrupts.pop()
        close(engine, forked=forked)

    with stores_in_memory(), monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as kept:
        patch.setattr(LocalEngine, "close", interrupted)
        open_spooled(tmp_path / "spool")
    with Channel(tmp_path / "spool", create=False, lock_timeout=0.1) as spool:
        assert not spool.stats().channel_size
    assert kept.tb is not None, "the error was kept"


def test_a_spool_that_gets_columns_while_another_handle_opens_it_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = TYPED.append(pa.field("one", pa.int64()))
    both, require_own = one.append(pa.field("two", pa.int64())), spool_channel._require_own
    with stores_in_memory(), open_spooled(tmp_path / "spool", schema=TYPED) as first:

        def late(local: Channel, spooled: SpooledChannel) -> None:
            require_own(local, spooled)
            first.evolve(both)

        Channel(URL, schema=one).close()
        monkeypatch.setattr(spool_channel, "_require_own", late)
        with open_spooled(tmp_path / "spool") as second, second.put_transaction() as tx:
            tx.put({"two": 2})
        assert spool_of(first)._local.engine().schemas()[-1].equals(both)


def test_a_channel_and_spool_that_another_process_creates_meanwhile_are_those_that_are_opened(tmp_path: Path) -> None:
    def seen_by(store: Store) -> FaultyStore:
        return FaultyStore(store, meanwhile)

    def meanwhile(request: Request) -> Fault | None:
        if waiting and request.kind == "list":
            waiting.clear()
            made.append(open_spooled(tmp_path / "spool"))
            put(made[0], b"1")
        return None

    waiting, made = [True], list[Channel]()
    with stores_in_memory(seen_by):
        with open_spooled(tmp_path / "spool") as second:
            assert second.uuid == made[0].uuid
            put(second, b"2")
        made[0].close()
        with Channel(URL) as channel:
            assert take(channel, 2) == [b"1", b"2"]


def test_a_spool_is_left_for_the_next_open_where_only_the_store_refuses_its_channel(tmp_path: Path) -> None:
    def refuse(request: Request) -> Fault | None:
        return Fault.REFUSED if refuses and request.kind == "create" and request.key.startswith("log/") else None

    def seen_by(store: Store) -> FaultyStore:
        return FaultyStore(store, refuse)

    refuses = [True]
    with stores_in_memory(seen_by) as stores:
        with pytest.raises(StorageError):
            open_spooled(tmp_path / "spool")
        assert not stores[URL].objects
        refuses.clear()
        with open_spooled(tmp_path / "spool") as channel:
            put(channel, b"1")
            channel.flush()
            assert take(channel) == [b"1"]
