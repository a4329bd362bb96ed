"""A resumable export to one file."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, ChannelBusyError, OptionError, Progress, StorageError, progress
from spillable_stream.cli import export_file
from spillable_stream.cli.export_file import Export
from spillable_stream.cli.export_plan import ExportPlan
from tests.support.events import numbered, put


def plan(channel: Channel, last_id: int = 20, format: str = "jsonl") -> ExportPlan:
    return ExportPlan(channel.uuid, 1, last_id, format, ["body", "write_order_id"])


def interrupt(_: Progress) -> None:
    raise KeyboardInterrupt


def bodies(out: Path) -> list[str]:
    return [json.loads(line)["body"] for line in out.read_text().splitlines()]


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_an_export_that_stops_after_any_batch_has_every_event_once(
    path: Path, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "_PART_BYTES", 1)
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0)

    with Channel(path, minimum_required_space=0) as channel:
        for i in range(10):
            put(channel, *[b"%d" % n * 200_000 for n in range(2 * i, 2 * i + 2)])
        outs = [tmp_path / f"whole.{format}", tmp_path / f"stopped.{format}"]
        assert Export(channel, outs[0], plan(channel, format=format)).run() == 20
        stops = 0
        while True:
            work = Export(channel, outs[1], plan(channel, format=format))
            seen: list[Progress] = []

            def stop_second(now: Progress, seen: list[Progress] = seen) -> None:
                seen.append(now)
                if len(seen) == 3:  # the first one is told before anything is read
                    raise KeyboardInterrupt

            try:
                assert work.run(stop_second) == 20
                break
            except KeyboardInterrupt:
                stops += 1
        assert stops > 5
        assert outs[0].read_bytes() == outs[1].read_bytes()
        assert (seen[-1].what, seen[-1].unit, seen[-1].total) == ("export", "events", 20)


def test_columns_that_come_meanwhile_are_left_out(path: Path, tmp_path: Path) -> None:
    import pyarrow as pa

    with Channel(path, minimum_required_space=0, schema=pa.schema([("body", pa.string())])) as channel:
        with channel.put_transaction() as tx:
            tx.put({"body": "x"})
        settled = plan(channel, 1, "csv")
        channel.evolve(pa.schema([("body", pa.string()), ("more", pa.int64())]))
        Export(channel, tmp_path / "f.csv", settled).run()
    assert (tmp_path / "f.csv").read_text() == "body,write_order_id\nx,1\n"


def test_an_export_that_is_killed_as_it_removes_its_parts_is_not_continued_without_them(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "_PART_BYTES", 1)
    out, remove = tmp_path / "f.jsonl", os.unlink

    def killed(file: Any, *args: Any, **more: Any) -> None:
        if Path(os.fsdecode(file)).name.startswith("part-"):
            raise KeyboardInterrupt
        remove(file, *args, **more)

    with Channel(path, minimum_required_space=0) as channel:
        for i in range(4):
            put(channel, *[b"%d" % n * 600_000 for n in range(2 * i, 2 * i + 2)])
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "unlink", killed)
            Export(channel, out, plan(channel, 8)).run()
        assert len(bodies(out)) == 8
        min((tmp_path / "f.jsonl.partial").glob("part-*")).unlink()  # in which order they go is the file system's
        put(channel, b"later")
        assert Export(channel, out, plan(channel, 9)).run() == 9
    assert len(bodies(out)) == 9
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("f.")] == ["f.jsonl"]


def test_each_name_is_durable_before_the_next_change_so_that_no_part_is_missing_between_others(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power may keep a later change of a directory and forget an earlier one that was not synced."""
    monkeypatch.setattr(export_file, "_PART_BYTES", 1)
    steps = list[str]()
    replace, sync_directory = os.replace, export_file.sync_directory

    def replaced(file: Path, to: Path) -> None:
        steps.append(to.name[:9])
        replace(file, to)

    def synced(directory: Path) -> None:
        steps.append("sync")
        sync_directory(directory)

    left = tmp_path / "f.jsonl.partial"
    left.mkdir()
    (left / "part-1-2-2").touch()
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a" * 600_000, b"b" * 600_000)
        put(channel, b"c" * 600_000, b"d" * 600_000)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replaced)
            patch.setattr(export_file, "sync_directory", synced)
            assert Export(channel, tmp_path / "f.jsonl", plan(channel, 4)).run() == 4
    parts = steps.count("part-0000")
    assert parts > 1
    assert steps == ["sync", "plan.json", "sync", *["part-0000", "sync"] * parts, "sync", "f.jsonl", "sync"]


def test_an_export_of_something_else_is_not_continued(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 20))
        work = Export(channel, tmp_path / "f.jsonl", plan(channel))
        with pytest.raises(KeyboardInterrupt):
            work.run(interrupt)
        with pytest.raises(OptionError, match="is what remains of an export of the channel"):
            Export(channel, tmp_path / "f.jsonl", ExportPlan("another", 1, 20, "jsonl", ["body"]))
        with pytest.raises(KeyboardInterrupt):
            Export(channel, tmp_path / "f.csv", plan(channel, format="csv")).run(interrupt)
        with pytest.raises(OptionError, match="to csv with the delimiter ',', --from 'earliest': continue that one"):
            Export(channel, tmp_path / "f.csv", replace(plan(channel, format="csv"), delimiter=";"))
        for text in ("{", "[" * 200_000):
            (tmp_path / "f.jsonl.partial" / "plan.json").write_text(text)
            with pytest.raises(OptionError, match=r"plan\.json can't be read"):
                Export(channel, tmp_path / "f.jsonl", plan(channel))


def test_of_two_exports_to_one_file_at_once_one_is_refused_and_the_other_is_whole(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 20))
        out, refused = tmp_path / "f.jsonl", list[str]()

        def export_too(_: Progress) -> None:
            with pytest.raises(ChannelBusyError) as e:
                Export(channel, out, plan(channel)).run()
            refused.append(str(e.value))

        later = Export(channel, out, plan(channel))
        assert Export(channel, out, plan(channel)).run(export_too) == 20
        said = f"another export is writing {out}: wait until it ends, or give another file"
        assert refused and set(refused) == {said}
        whole = out.read_bytes()
        assert len(bodies(out)) == 20
        with pytest.raises(ChannelBusyError, match=f"{out} was written meanwhile"):
            later.run()  # it looked before the other one began, and nobody was asked whether to replace its file
        assert not list(tmp_path.glob("*.partial"))
        assert later.run(any_file=True) == 20 and out.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir() if file != path] == ["f.jsonl"]


def test_a_file_that_somebody_writes_while_an_export_is_under_way_is_not_replaced(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 20))
        out = tmp_path / "f.jsonl"

        def write(_: Progress) -> None:
            out.write_text("their file")  # another size than that of the agreed: a clock may be coarse

        for before in (False, True):
            if before:
                out.write_text("agreed")
            work = Export(channel, out, plan(channel))
            assert work.replaces == before
            with pytest.raises(ChannelBusyError, match="was written meanwhile"):
                work.run(write)
            assert out.read_text() == "their file"
            out.unlink()
            assert Export(channel, out, plan(channel)).run() == 20, "what was done is continued"


def test_a_file_that_somebody_writes_right_before_an_export_gets_its_name_is_not_replaced(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, directory = tmp_path / "f.jsonl", tmp_path / "f.jsonl.partial"
    synced = export_file.sync_directory

    def write(which: Path) -> None:
        synced(which)
        if (directory / "joined").exists():
            out.write_text("theirs")

    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 20))
        with monkeypatch.context() as patch, pytest.raises(ChannelBusyError, match="was written meanwhile"):
            patch.setattr(export_file, "sync_directory", write)
            Export(channel, out, plan(channel)).run()
        assert out.read_text() == "theirs" and (directory / "plan.json").exists()
        out.unlink()
        work = Export(channel, out, plan(channel))
        assert work.done_id == work.plan.last_id, "what was done is continued"
        assert work.run() == 20 and not directory.exists()


@pytest.mark.parametrize("sync", [1, 2, 3], ids=["plan", "part", "file"])
def test_an_export_that_a_full_disk_refuses_leaves_no_half_of_a_file_there(
    path: Path, tmp_path: Path, sync: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count(1)

    def refuse(_: object) -> None:
        if next(calls) == sync:
            raise OSError(errno.ENOSPC, "No space left on device")

    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 20))
        work = Export(channel, tmp_path / "f.jsonl", plan(channel))
        monkeypatch.setattr(export_file, "_sync", refuse)
        with pytest.raises(StorageError, match="No space left"):
            work.run()
        left = {file.name.partition("-")[0] for file in (tmp_path / "f.jsonl.partial").iterdir()}
        assert left == {1: set(), 2: {"plan.json"}, 3: {"plan.json", "part"}}[sync]
        assert Export(channel, tmp_path / "f.jsonl", plan(channel)).run() == 20
    assert len(bodies(tmp_path / "f.jsonl")) == 20


def test_a_file_whose_name_the_disk_could_not_sync_is_said_to_be_whole(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to be run again, which asked whether to replace the file."""
    out, synced = tmp_path / "f.jsonl", export_file.sync_directory

    def refuse(directory: Path) -> None:
        if directory == out.parent:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        synced(directory)

    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 20))
        work = Export(channel, out, plan(channel))
        with monkeypatch.context() as failing:
            failing.setattr(export_file, "sync_directory", refuse)
            with pytest.raises(StorageError, match=r"is whole, but .*Input/output.*export once more with --yes"):
                work.run()
        assert work.is_whole and len(bodies(out)) == 20
        assert Export(channel, out, plan(channel)).run(any_file=True) == 20
    assert not out.with_name("f.jsonl.partial").exists()


def test_a_directory_that_refuses_is_named(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 20))
        with pytest.raises(StorageError, match=r"exporting to .* failed: No such file"):
            Export(channel, tmp_path / "nowhere" / "f.jsonl", plan(channel)).run()
