"""Channels that are opened together: in which order, and what is left where one can't be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, ChannelClosedError, NotAChannelError, OptionError, SpillableError, StorageError
from spillable_stream.channel import several_channels
from spillable_stream.channel.open_arguments import OpenArguments, PlannedChannel
from spillable_stream.channel.several_channels import WantedChannel, check_channel, find_or_create, open_channels
from spillable_stream.log.nesting import PlannedDirectories
from tests.support.events import put, take
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import stores_in_memory


def test_channels_are_opened_in_their_order_and_created_if_they_are_missing(tmp_path: Path) -> None:
    with Channel(tmp_path / "b") as there:
        put(there, b"x")
    paths = [tmp_path / name for name in "abc"]
    opened = open_channels([WantedChannel(path, {"overflow_capacity": 5}) for path in paths])
    assert [channel.path for channel in opened] == paths
    assert [channel.options["overflow_capacity"] for channel in opened] == [5, 5, 5]
    assert take(opened[1]) == [b"x"]
    for channel in opened:
        channel.close()
    assert open_channels([]) == []


def test_one_that_is_given_twice_is_created_once(tmp_path: Path) -> None:
    one, other = open_channels([WantedChannel(tmp_path / "a"), WantedChannel(str(tmp_path / "a"))])
    assert one.uuid == other.uuid
    one.close()
    other.close()


@pytest.mark.parametrize("first", [True, False])
def test_none_is_created_if_another_one_cannot_be_opened_or_made(tmp_path: Path, first: bool) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "stranger").write_text("x")
    Channel("object+file://" + str(tmp_path / "objects")).close()
    Channel(tmp_path / "there").close()
    before = sorted(tmp_path.rglob("*"))
    for path, options in (
        (tmp_path / "file", {}),
        (tmp_path / "file" / "below", {}),
        (tmp_path / "full", {}),
        (tmp_path / "objects", {}),
        (f"object+file://{tmp_path}/there", {}),
        (f"object+file://{tmp_path}/file/below", {}),
        (tmp_path / "new", {"overflow_capacity": 0}),
        (tmp_path / "new", {"commit_interval": 5}),
        (tmp_path / "new", {"data_dirs": [str(tmp_path / "file")]}),
        (f"object+file://{tmp_path}/new", {"memory_capacity": 5}),
    ):
        bad, good = WantedChannel(path, options), [WantedChannel(tmp_path / name) for name in ("a", "b")]
        with pytest.raises(SpillableError):
            open_channels([bad, *good] if first else [*good, bad])
        assert sorted(tmp_path.rglob("*")) == before, f"{path} {options}"


def test_none_is_created_if_one_would_be_in_a_directory_of_another_one(tmp_path: Path) -> None:
    a, b, disk, spool = tmp_path / "a", tmp_path / "b", tmp_path / "disk", tmp_path / "spool"
    for pair in (
        [WantedChannel(a), WantedChannel(a / "b")],
        [WantedChannel(a, {"data_dirs": [disk]}), WantedChannel(b, {"data_dirs": [disk / "b"]})],
        [WantedChannel(a, {"backup_checkpoint_dir": disk}), WantedChannel(b, {"backup_checkpoint_dir": disk})],
        [WantedChannel(a), WantedChannel(f"object+file://{a}")],
        [WantedChannel(a), WantedChannel(f"object+file://{a}/b")],
        [WantedChannel(spool), WantedChannel(f"object+file://{b}", {"spool": spool / "b", "durability": "local"})],
    ):
        for wanted in (pair, pair[::-1]):
            with pytest.raises(SpillableError):
                open_channels(wanted)
            assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_no_channel_of_a_cloud_is_created_if_two_would_have_one_spool(tmp_path: Path) -> None:
    spool = {"spool": tmp_path / "spool", "durability": "local"}
    one = WantedChannel("s3://bucket/a", spool)
    for other in (
        WantedChannel("s3://bucket/b", spool),
        WantedChannel("s3://bucket/b", {**spool, "spool": tmp_path / "spool" / "b"}),
        WantedChannel(tmp_path / "spool"),
    ):
        with stores_in_memory() as stores:
            for wanted in ([one, other], [other, one]):
                with pytest.raises(OptionError, match=r"would be .* s3://bucket/"):
                    open_channels(wanted)
            assert not [path for path in tmp_path.rglob("*") if path.is_file()]
            assert not [key for store in stores.values() for key in store.objects]


NUMBERS, TEXTS = (pa.schema([("x", kind)]) for kind in (pa.int64(), pa.string()))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"mode": "0770"}),
        ({"data_dirs": ["/one"]}, {"data_dirs": ["/two"]}),
        ({}, {"checkpoint_dir": "/elsewhere"}),
        ({"backup_checkpoint_dir": "/one"}, {"backup_checkpoint_dir": "/two"}),
        ({"memory_capacity": 0}, {"overflow_capacity": 0}),
        ({}, {"schema": NUMBERS}),
        ({"schema": NUMBERS}, {"schema": TEXTS}),
    ],
)
def test_none_is_created_if_one_is_given_twice_and_could_not_be_opened_the_second_time(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    first, second = ({k: placed(tmp_path, v) for k, v in options.items()} for options in (first, second))
    for other in ([], [WantedChannel(tmp_path / "b")]):
        with pytest.raises(SpillableError):
            open_channels([WantedChannel(tmp_path / "a", first), *other, WantedChannel(tmp_path / "a", second)])
        assert not list(tmp_path.iterdir())


def placed(directory: Path, value: Any) -> Any:
    """Return an option's value with its directories inside of one."""
    if isinstance(value, list):
        return [placed(directory, one) for one in value]
    return f"{directory}{value}" if isinstance(value, str) and value.startswith("/") else value


def test_one_that_is_given_twice_need_not_be_given_all_of_it_twice(tmp_path: Path) -> None:
    first = {"mode": "0770", "data_dirs": [tmp_path / "data"], "schema": NUMBERS, "overflow_capacity": 5}
    wider = {"schema": pa.schema([("x", pa.int64()), ("y", pa.string())]), "overflow_capacity": 7}
    opened = open_channels([WantedChannel(tmp_path / "a", options) for options in (first, {}, wider, first)])
    assert {channel.uuid for channel in opened} == {opened[0].uuid}
    for channel in opened:
        channel.close()


def test_no_channel_of_a_cloud_is_created_if_its_spool_could_not_be_opened_the_second_time(tmp_path: Path) -> None:
    spool = {"spool": tmp_path / "spool", "durability": "local"}
    wanted = [WantedChannel("s3://bucket/a", {**spool, "data_dirs": [tmp_path / name]}) for name in "ab"]
    with stores_in_memory() as stores:
        with pytest.raises(OptionError, match="data_dirs is fixed when a channel is created"):
            open_channels(wanted)
        assert not list(tmp_path.iterdir())
        assert not [key for store in stores.values() for key in store.objects]


def test_a_channel_of_a_cloud_that_is_given_twice_with_one_spool_is_created_once(tmp_path: Path) -> None:
    wanted = WantedChannel("s3://bucket/a", {"spool": tmp_path / "spool", "durability": "local"})
    with stores_in_memory():
        for channel in open_channels([wanted, wanted]):
            channel.close()


def test_no_option_of_one_is_stored_if_another_one_cannot_be_opened_or_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with Channel(tmp_path / "there", keep_alive=2.0) as there:
        for bad in ({"path": tmp_path / "file"}, {"path": tmp_path / "new", "options": {"overflow_capacity": 0}}):
            with pytest.raises(SpillableError):
                open_channels([WantedChannel(tmp_path / "there", {"keep_alive": 5.0}), WantedChannel(**bad)])
            assert there.options["keep_alive"] == 2.0
        with pytest.raises(OptionError, match="refused by the caller"):
            open_channels([WantedChannel(tmp_path / "there", {"transaction_capacity": 7})], refuse)
        assert there.options["transaction_capacity"] != 7


def refuse(most_events: list[int]) -> None:
    assert most_events == [7], "what it will be"
    raise OptionError("refused by the caller")


def test_no_channel_is_created_if_one_of_their_stores_refuses() -> None:
    def seen_by(store: MemoryStore) -> FaultyStore:
        return FaultyStore(store, lambda _: Fault.REFUSED if "bad" in store.root else None)

    with stores_in_memory(seen_by) as stores:  # type: ignore[arg-type]
        with pytest.raises(StorageError):
            open_channels([WantedChannel("s3://bucket/good"), WantedChannel("s3://bad/orders")])
        assert not stores["s3://bucket/good"].objects


def test_a_store_that_was_tested_for_a_check_is_not_tested_again_to_create_a_channel() -> None:
    seen: list[FaultyStore] = []

    def seen_by(store: MemoryStore) -> FaultyStore:
        seen.append(FaultyStore(store))
        return seen[-1]

    with stores_in_memory(seen_by) as stores:  # type: ignore[arg-type]
        for channel in open_channels([WantedChannel(f"s3://bucket/{name}") for name in "ab"]):
            channel.close()
    tests = [s.inner.root for s in seen if any(request.key.startswith("check/") for request in s.requests)]
    assert sorted(tests) == sorted(stores) == ["s3://bucket/a", "s3://bucket/b"]


def test_those_that_were_there_are_closed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Channel(tmp_path / "there").close()
    (tmp_path / "file").write_text("x")
    made: list[Channel] = []

    def noted(*args: object, **options: object) -> Channel:
        made.append(Channel(*args, **options))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(several_channels, "Channel", noted)
    with pytest.raises(NotAChannelError):
        open_channels([WantedChannel(tmp_path / "there"), WantedChannel(tmp_path / "file")])
    [there] = made
    with pytest.raises(ChannelClosedError):
        there.stats()


def test_one_that_cannot_be_closed_leaves_no_other_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        Channel(tmp_path / name).close()
    (tmp_path / "file").write_text("x")
    closed: list[Path | str] = []

    class Stubborn(Channel):
        def close(self, **options: bool) -> None:
            super().close(**options)
            closed.append(self.path)
            if len(closed) < 3:
                raise StorageError("the disk is gone")

    monkeypatch.setattr(several_channels, "Channel", Stubborn)
    with pytest.raises(SpillableError):
        open_channels([WantedChannel(tmp_path / name) for name in ("a", "b", "c", "file")])
    assert sorted(map(str, closed)) == [str(tmp_path / name) for name in "abc"]


def test_all_are_looked_for_before_one_is_checked_and_checked_before_one_is_created() -> None:
    steps: list[str] = []

    def open_one(name: str, create: bool) -> str:
        steps.append(f"make {name}" if create else f"find {name}")
        if name != "b" and not create:
            raise NotAChannelError(name, is_missing=True)
        return name.upper()

    def check(name: str) -> PlannedChannel:
        steps.append(f"check {name}")
        arguments = OpenArguments(Path(name), {}, None, None, None)
        return PlannedChannel(PlannedDirectories(name, []), arguments, arguments.new_channel())

    assert find_or_create("abc", open_one, check, lambda calls: [call() for call in calls]) == ["A", "B", "C"]
    assert steps == ["find a", "find b", "find c", "check a", "check c", "make a", "make c"]


def test_one_alone_is_created_without_a_look_before() -> None:
    assert find_or_create(["a"], lambda name, create: (name, create), pytest.fail, pytest.fail) == [("a", True)]


def test_a_check_creates_nothing(tmp_path: Path) -> None:
    check_channel(tmp_path / "a" / "b", overflow_capacity=5)
    check_channel(f"object+file://{tmp_path}/objects")
    with pytest.raises(OptionError, match="memory_capacity is for channels on a disk"):
        check_channel(f"object+file://{tmp_path}/objects", memory_capacity=5)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not (tmp_path / "a").exists()


def test_a_spool_that_must_be_there_is_not_created_in_its_place(tmp_path: Path) -> None:
    spool = tmp_path / "disk" / "spool"
    wanted = WantedChannel(
        f"object+file://{tmp_path}/store", {"durability": "local", "spool": str(spool), "commit_interval": 0}
    )
    (channel,) = open_channels([wanted])
    again = wanted._replace(uuid=channel.uuid, has_spool=True)
    channel.close()
    spool.parent.rename(tmp_path / "away")
    with pytest.raises(NotAChannelError, match=f"the spool of the channel {again.uuid} was at {spool}, and nothing"):
        open_channels([again])
    assert not spool.exists()
    (tmp_path / "away").rename(spool.parent)
    open_channels([again])[0].close()
