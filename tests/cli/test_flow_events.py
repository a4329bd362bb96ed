from __future__ import annotations

import gzip
import json
import lzma
import re
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillable_stream import Channel
from spillable_stream.cli import app
from spillable_stream.cli.input_source import InputSource
from tests.support.command_line import start
from tests.support.waiting import wait_until


@pytest.fixture
def place(path: Path) -> Path:
    Channel(path, minimum_required_space=0).close()
    return path


def run(*arguments: object, stdin: bytes = b"", status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
    assert done.exit_code == status, done.output
    return done.output


def test_lines_are_sent_and_events_are_shown_without_being_taken(place: Path, tmp_path: Path) -> None:
    assert run("send", place, "--header", "a=1", stdin=b"one\r\ntwo") == "2 events are stored\n"
    (tmp_path / "f").write_bytes(b"three\nfour\nfive\n")
    assert run("send", place, "-F", tmp_path / "f", "--batch-size", "2") == "3 events are stored\n"
    for _ in range(2):
        shown = [json.loads(line) for line in run("tap", place, "--from-start", "--no-follow").splitlines()]
        assert [row["body"] for row in shown] == ["one", "two", "three", "four", "five"]
    assert shown[0] == {"headers": {"a": "1"}, "body": "one", "write_order_id": 1}


def test_lines_are_sent_in_as_many_transactions_as_they_need(path: Path, tmp_path: Path) -> None:
    Channel(path, minimum_required_space=0, transaction_capacity=2).close()
    assert run("send", path, stdin=b"1\n2\n3\n4\n5\n") == "5 events are stored\n"
    config = tmp_path / "flume.conf"
    config.write_text(
        "a1.sources = r1\na1.channels = c1\na1.sources.r1.type = http\na1.sources.r1.port = 1\n"
        "a1.sources.r1.channels = c1\na1.channels.c1.type = file\na1.channels.c1.transactionCapacity = 2\n"
        f"a1.channels.c1.minimumRequiredSpace = 0\na1.channels.c1.checkpointDir = {path}\n"
    )
    assert run("send", "-f", config, "-n", "a1", "--source", "r1", stdin=b"6\n7\n8\n") == "3 events are sent\n"
    with Channel(path) as channel:
        assert channel.stats().channel_size == 8


def test_a_long_line_that_comes_in_very_many_pieces_is_not_looked_through_again_with_each(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, line = InputSource.read, bytes(16 << 20)
    monkeypatch.setattr(InputSource, "read", lambda source, _: read(source, 64))
    assert run("send", place, stdin=b"first\n" + line + b"\r\n\nlast\r") == "4 events are stored\n"
    with Channel(place) as channel, channel.take_transaction() as tx:
        assert [event.body for event in tx.take_many(9)] == [b"first", line, b"", b"last"]


def test_a_tap_can_be_bounded(place: Path) -> None:
    run("send", place, "--header", "a=1", stdin=b"1\n2\n3\n4\n")
    run("send", place, stdin=b"5\n")
    every = run("tap", place, "--from-start", "--no-follow", "--every", "3").splitlines()
    assert [json.loads(row)["body"] for row in every] == ["1", "4"]
    some = run("tap", place, "--from-start", "--where", "a=1", "--limit", "2").splitlines()
    assert [json.loads(row)["body"] for row in some] == ["1", "2"]
    assert run("tap", place, "--no-follow") == ""


def test_a_header_without_a_value_is_refused_and_nothing_is_stored(place: Path) -> None:
    assert "'a' is not a header with a value" in run("send", place, "--header", "a", stdin=b"1\n", status=2)
    assert "'a' is not a header with a value" in run("tap", place, "--where", "a", "--no-follow", status=2)
    with Channel(place) as channel:
        assert channel.stats().last_id == 0


def test_a_channel_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # else an agent a1 of this user may be found
    run("tap", tmp_path / "none", status=2)
    run("send", tmp_path / "none", status=2)
    run("tap", "a1:r1", status=2)
    assert not (tmp_path / "none").exists()


def test_a_file_of_lines_that_is_not_there_was_not_tried(place: Path, tmp_path: Path) -> None:
    said = run("send", place, "-F", tmp_path / "none", status=2)
    assert "none can't be read: No such file or directory; check the path" in said


def test_a_batch_may_be_larger_than_any_input(place: Path) -> None:
    assert run("send", place, "--batch-size", 10**30, stdin=b"x\n") == "1 event is stored\n"


def test_compressed_lines_are_sent_and_what_cannot_be_decompressed_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "f.gz").write_bytes(gzip.compress(b"a\n"))
    run("send", place, "-F", tmp_path / "f.gz")
    run("send", place, stdin=gzip.compress(b"b\n"))
    assert "xz -dc" in run("send", place, stdin=lzma.compress(b"c\n"), status=2)
    assert [json.loads(row)["body"] for row in run("tap", place, "--from-start", "--no-follow").splitlines()] == [
        "a",
        "b",
    ]


def test_parquet_is_left_to_the_verb_that_reads_it(place: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"PAR1\x15")
    text = run("send", place, "--filename", tmp_path / "f", status=2)
    assert "is not text, but Parquet: `spillable put` reads it" in text and "--format" not in text


def test_lines_that_trickle_in_are_stored_as_they_come_and_an_interrupt_says_how_many(place: Path) -> None:
    process = start("send", place, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    with Channel(place, create=False, readonly=True) as channel:
        for data, stored in ((b"a\nb\nhalf", 2), (b" of c\nhalf", 3)):
            process.stdin.write(data)
            process.stdin.flush()
            wait_until(lambda stored=stored: channel.stats().channel_size == stored)
    process.send_signal(signal.SIGINT)  # it may come before the last put has returned, and behind the one before
    assert re.fullmatch(rb"interrupted: at least [23] events are stored\n", process.communicate(timeout=60)[1])
    assert process.returncode == 130


def test_lines_go_through_a_source_into_its_channels(tmp_path: Path) -> None:
    (tmp_path / "f.conf").write_text(f"""
a1.sources = r1
a1.channels = good bad other
a1.sources.r1.type = netcat
a1.sources.r1.bind = 127.0.0.1
a1.sources.r1.port = 1
a1.sources.r1.channels = good bad
a1.sources.r1.interceptors = i1
a1.sources.r1.interceptors.i1.type = regex_extractor
a1.sources.r1.interceptors.i1.regex = ^(\\\\w+)
a1.sources.r1.interceptors.i1.serializers = s1
a1.sources.r1.interceptors.i1.serializers.s1.name = level
a1.sources.r1.selector.type = multiplexing
a1.sources.r1.selector.header = level
a1.sources.r1.selector.mapping.ERROR = bad
a1.sources.r1.selector.default = good
a1.channels.good.type = file
a1.channels.good.checkpointDir = {tmp_path}/good
a1.channels.bad.type = file
a1.channels.bad.checkpointDir = {tmp_path}/bad
a1.channels.other.type = memory
""")
    through = ["send", "-f", tmp_path / "f.conf", "-n", "a1", "--source"]
    assert run(*through, "r1", stdin=b"ERROR a\nINFO b\nERROR c\n").endswith("3 events are sent\n")
    for name, bodies in (("good", ["INFO b"]), ("bad", ["ERROR a", "ERROR c"])):
        shown = run("tap", tmp_path / name, "--from-start", "--no-follow").splitlines()
        assert [json.loads(line)["body"] for line in shown] == bodies
    assert "no source 'r2' of a1 can run; there are: r1" in run(*through, "r2", status=2)


def test_a_channel_or_a_source_must_be_said(tmp_path: Path) -> None:
    for wrong in (["send"], ["send", tmp_path, "-f", "x"], ["send", "-f", "x", "-n", "a1"]):
        assert "give a PATH, or --conf-file, --name and --source" in run(*wrong, status=2)


def test_a_tap_counts_events_and_not_what_it_skipped(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    rows = [{"skipped": 7}, {"body": "1"}, {"skipped": 2}, {"body": "2"}, {"body": "3"}]
    monkeypatch.setattr("spillable_stream.flow.tap.tap", lambda *_, **__: iter(rows))
    assert [json.loads(line) for line in run("tap", str(place), "--limit", "2").splitlines()] == rows[:4]


def test_one_event_is_one(place: Path) -> None:
    assert run("send", place, stdin=b"x\n") == "1 event is stored\n"
