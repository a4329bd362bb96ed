"""Delayed events that no commit names can be read, by whoever knows whether they were put."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, repair
from spillable_stream.objects.slots import slot_key
from tests.support.command_line import run
from tests.support.damage import flip, log_file
from tests.support.delays import clock_of, put_late
from tests.support.events import put
from tests.support.object_damage import flip_at

Open = Callable[..., Channel]


def damage_a_commit(channel: Channel, path: Path) -> Path:
    """Put two transactions that wait, of which the commit of the second one is damaged then; return its side file."""
    clock_of(channel).begin_stretch(10_000)
    put_late(channel, 10_000, b"a")
    put_late(channel, 1_000_000, b"b", b"c")
    end = channel.engine().follower.positions.disk.offset
    put(channel, b"d")
    channel.close()
    flip(log_file(path), end - 10)
    return path / "data" / "delayed-000002"


def test_a_verb_prints_what_a_repair_keeps(open_channel: Open, path: Path) -> None:
    side_file = damage_a_commit(open_channel(), path)
    report = repair(path)
    assert isinstance(report.quarantine, Path)
    copy = report.quarantine / "files" / "data" / side_file.name
    for file in (side_file, copy):
        done = run("tail", path, "--delayed", file)
        assert (done.exit_code, done.stdout) == (0, "b\nc\n")
    first, _ = [json.loads(line) for line in run("tail", path, "--delayed", copy, "--json").stdout.splitlines()]
    assert (first["body"], first["headers"], first["deliver_at"][:2]) == ("b", {}, "20")


def test_a_row_may_have_columns_of_the_names_that_its_line_has(open_channel: Open, path: Path) -> None:
    columns = [(name, pa.string()) for name in ("due", "deliver_at", "row")]
    channel = open_channel(schema=pa.schema(columns))
    row = dict.fromkeys(dict(columns), "mine")
    with channel.put_transaction() as tx:
        tx.put_many([row], deliver_after=10_000)
    end = channel.engine().follower.positions.disk.offset
    with channel.put_transaction() as tx:
        tx.put(row)
    channel.close()
    flip(log_file(path), end - 10)
    repair(path)
    found = json.loads(run("tail", path, "--delayed", path / "data" / "delayed-000001", "--json").stdout)
    assert (found["row"], found["deliver_at"][:2]) == (row, "20")


def test_what_a_commit_names_is_left_out(open_channel: Open, path: Path) -> None:
    damage_a_commit(open_channel(), path)
    repair(path)
    done = run("tail", path, "--delayed", path / "data" / "delayed-000001")
    assert (done.exit_code, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("name", "text"),
    [("none", "there is no"), ("head", "no delayed events of this channel"), ("\udcff", "there is no")],
)
def test_what_is_not_a_side_file_is_refused_in_a_sentence(open_channel: Open, path: Path, name: str, text: str) -> None:
    open_channel().close()
    (path / "head").write_bytes(b"x" * 1000)
    done = run("tail", path, "--delayed", path / name)
    assert done.exit_code != 0 and text in done.stderr
    assert "Traceback" not in done.stderr


def test_so_it_is_in_a_store(tmp_path: Path) -> None:
    url = f"object+file://{tmp_path}/c"
    with Channel(url, commit_interval=0, checkpoint_on_close=False) as channel:
        clock_of(channel).begin_stretch(10_000)
        for seconds, body in ((10_000, b"a"), (20_000, b"b"), (30_000, b"c")):
            put_late(channel, seconds, body)
        put(channel, b"now")
    key = sorted(f"segments/{found.name}" for found in (tmp_path / "c" / "segments").iterdir())[1]
    slot = tmp_path / "c" / slot_key(2)
    slot.write_bytes(flip_at(slot.read_bytes(), slot.stat().st_size - 10))
    quarantine = str(repair(url).quarantine).partition("/c/")[2]
    for file in (key, f"{quarantine}/files/{key}"):
        done = run("tail", url, "--delayed", file)
        assert (done.exit_code, done.stdout) == (0, "b\n"), done.stderr
    assert run("tail", url, "--delayed", "segments/none").exit_code == 2


@pytest.mark.parametrize("more", [["-n", "1"], ["--follow"], ["--from", "latest"]])
def test_an_option_that_chooses_events_is_refused_beside_a_file_of_delayed_ones(path: Path, more: list[str]) -> None:
    Channel(path, minimum_required_space=0).close()
    done = run("tail", path, "--delayed", path / "data" / "delayed-000001", *more)
    assert done.exit_code == 2 and "leave out -n, --from and --follow" in done.stderr
