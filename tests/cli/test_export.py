"""``export``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from spillable_stream import Channel, verify
from spillable_stream.cli.export_file import Export
from tests.support.command_line import run, start
from tests.support.events import numbered, put
from tests.support.far_times import FAR, put_far_times


def test_a_file_has_the_events_with_their_ids_and_nothing_is_taken(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 5))
    done = run("export", path, tmp_path / "f.parquet")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'f.parquet'}: 5 events\n")
    table = pa.parquet.read_table(tmp_path / "f.parquet")
    assert table.column("body").to_pylist() == numbered(1, 5) and table.column("write_order_id").to_pylist() == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert run("export", path, tmp_path / "f.jsonl", "--from", 2, "--to", 3).exit_code == 0
    said = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text().splitlines()]
    assert said == [{"headers": {}, "body": str(i), "write_order_id": i} for i in (2, 3)]
    assert json.loads(run("export", path, tmp_path / "t.csv", "--from", "1h ago", "--json").stdout)["events"] == 5
    with Channel(path, create=False) as channel:
        assert channel.stats().channel_size == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["channel", "f.jsonl", "f.parquet", "t.csv"]


def test_a_typed_channel_is_a_table(path: Path, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("s")), ("l", pa.list_(pa.string()))])
    with Channel(path, schema=schema, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put({"n": 1, "at": None, "l": ["a", 'b"']})
    run("export", path, tmp_path / "f.parquet")
    assert pa.parquet.read_table(tmp_path / "f.parquet").select(["n", "l"]).to_pylist() == [{"n": 1, "l": ["a", 'b"']}]
    run("export", path, tmp_path / "f.csv")
    assert (tmp_path / "f.csv").read_text() == 'n,at,l,write_order_id\n1,,"[""a"", ""b\\""""]",1\n'


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_an_export_to_text_refuses_a_time_that_python_does_not_have_and_one_to_arrow_has_it(
    path: Path, tmp_path: Path, ending: str
) -> None:
    with Channel(path, schema=FAR.schema, minimum_required_space=0) as channel:
        put_far_times(channel)
    done = run("export", path, tmp_path / f"f.{ending}")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"SchemaError: {tmp_path / f'f.{ending}'} can't hold the events in this format (")
    assert run("export", path, tmp_path / "f.arrow").exit_code == 0
    with pa.ipc.open_file(str(tmp_path / "f.arrow")) as file:
        assert file.read_all().column("at").cast(pa.int64()).to_pylist() == [0, 1 << 40]


def test_csv_that_another_character_divides_is_put_back(path: Path, tmp_path: Path) -> None:
    row = {"a;b": "x;y", "t": 'tab\t"', "n": 1}
    schema = pa.Table.from_pylist([row]).schema
    with Channel(path, schema=schema, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put(row)
    for out, more in ((tmp_path / "f.csv", ["--delimiter", ";"]), (tmp_path / "f.tsv", [])):
        assert run("export", path, out, *more).exit_code == 0
        assert run("put", tmp_path / out.suffix, out, "--typed", *more).exit_code == 0
        with Channel(tmp_path / out.suffix, create=False) as channel, channel.take_transaction() as tx:
            assert tx.take() == row
    assert (tmp_path / "f.csv").read_text() == '"a;b";t;n;write_order_id\n"x;y";"tab\t""";1;1\n'


def test_nothing_to_export_is_a_file_without_rows(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0):
        pass
    for name in ("f.parquet", "f.jsonl", "f.csv"):
        assert run("export", path, tmp_path / name).stdout.endswith(": 0 events\n")
    assert pa.parquet.read_table(tmp_path / "f.parquet").num_rows == 0


def test_a_file_that_is_there_is_replaced_only_with_yes(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    (tmp_path / "f.csv").write_text("mine")
    assert run("export", path, tmp_path / "f.csv").exit_code == 2
    assert (tmp_path / "f.csv").read_text() == "mine"
    assert run("export", path, tmp_path / "f.csv", "--yes").exit_code == 0
    assert "write_order_id" in (tmp_path / "f.csv").read_text()


def test_an_export_that_was_interrupted_is_not_continued_for_other_events(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 9))
    out, begun = tmp_path / "f.jsonl", ["--from", "1h ago", "--to", "5"]
    with monkeypatch.context() as patch:
        patch.setattr(Export, "_write_part", lambda _: os.kill(os.getpid(), signal.SIGINT))
        assert run("export", path, out, *begun).exit_code == 130
    for other in ([], ["--from", "3"], ["--from", "1h ago"], ["--from", "1h ago", "--to", "6"]):
        done = run("export", path, out, *other)
        assert done.exit_code == 2 and "--from '1h ago' --to '5'" in done.stderr
        assert not out.exists()
    assert run("export", path, out, *begun).stdout == f"{out}: 5 events\n"
    assert run("export", path, out, "--from", 3, "--yes").stdout == f"{out}: 7 events\n"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_not_a_file_is_never_replaced(path: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A device, such as /dev/null, would be lost for all programs."""
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    make(tmp_path / "out")
    mode = (tmp_path / "out").stat().st_mode
    done = run("export", path, tmp_path / "out", "--format", "csv", "--yes")
    assert done.exit_code == 2 and "out is not a file" in done.stderr
    assert (tmp_path / "out").stat().st_mode == mode and not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("out", ["channel/channel.json", "channel/f.csv", "link/head", "channel/data/log-000001"])
def test_no_file_of_the_channel_itself_is_replaced(path: Path, tmp_path: Path, out: str) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    (tmp_path / "link").symlink_to(path)
    done = run("export", path, tmp_path / out, "--format", "csv", "--yes")
    assert done.exit_code == 2 and "is inside of" in done.stderr
    assert verify(path).healthy and not verify(path).findings


def test_a_format_that_is_not_known_is_status_2(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0):
        pass
    done = run("export", path, tmp_path / "f.txt")
    assert done.exit_code == 2 and "give --format" in done.stderr


def interrupted(path: Path, out: Path, number: int) -> tuple[int, bytes] | None:
    """Export, and send a signal once there is a part more; return the status and what is said, None if it is whole."""
    process = start("export", path, out, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    parts = f"{out.parent}/*.partial/part-*"  # the directory may go at any moment: pathlib's glob would fail
    deadline, before = time.monotonic() + 100, len(glob(parts))
    while len(glob(parts)) == before and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return None if out.exists() else (process.returncode, said)


def test_an_export_that_is_killed_leaves_no_file_and_is_continued(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.jsonl"
    with Channel(path, minimum_required_space=0) as channel:
        for i in range(20):
            put(channel, *[b"%05d" % n * 2000 for n in range(i * 1000, i * 1000 + 1000)])
    for number in (signal.SIGKILL, signal.SIGINT):
        while (ended := interrupted(path, out, number)) is None:  # a busy machine let it be whole before the signal
            out.unlink()
        status, said = ended
        assert status == (130 if number == signal.SIGINT else -9)
    assert b"the same command continues" in said
    with Channel(path, create=False) as channel:
        put(channel, b"later")
    done = run("export", path, out)
    assert done.exit_code == 0 and "continuing after the event" in done.stderr
    ids = [json.loads(line)["write_order_id"] for line in out.open()]
    assert ids == list(range(1, 20_001)), "those that were there when it began"
    assert not list(tmp_path.glob("*.partial"))
