"""A verb whose output can't be written says so, in one line and by a status that means just that.

A 1 would tell a script that a channel is damaged, and a 0 that it is healthy.
"""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from spillable_stream import Channel
from spillable_stream.cli import output
from spillable_stream.cli.app import ending
from spillable_stream.cli.output import (
    UNREAD,
    UNWRITTEN,
    forget_output,
    is_output_lost,
    mark_output,
    status_of_output,
    sync_output,
    system_error,
    untaken_output,
    watch_output,
    write_lines,
)
from tests.support import pythons
from tests.support.command_line import make_work, start
from tests.support.events import peek, put

FULL = b"standard output can't be written: No space left on device (errno 28); send it elsewhere\n"


SMALL_DISK = """
import errno, os
from spillable_stream.cli import main, output

class File(output.FileIO):  # more than 1,000 events of 100 bytes, and less than all
    def write(self, data):
        room = 120_000 - os.fstat(self.fileno()).st_size
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data[:room])

output.FileIO = File
main()
"""


@pytest.fixture
def full() -> Iterator[int]:
    """A file on a disk without room."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test watch a standard output of its own."""
    monkeypatch.setattr(output, "_output", None)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    yield


# Each is like another verb, which is fast enough for every run: a process takes half a second.
SLOW_VERBS = [
    "",
    "help",
    "stats --help",
    "version",
    "stats c",
    "stats missing --json",
    "describe c",
    "describe c --options",
    "verify c --json",
    "repair c",
    "groups list c",
    "groups create c g",
    "put c lines --json",
    "send c -F lines",
    "tail c",
    "tap c --from-start",
    "export c out.jsonl",
    "backup c copy",
    "alter c -o keepAlive=4",
    "dead-letters list c",
    "metrics c --port 0",
    "ui c --port 0",
    "validate -f flume.conf",
    "graph -f flume.conf",
    "check-store object+file://{here}/store --races 1",
]


@pytest.mark.parametrize(
    "verb",
    [
        "--help",
        "stats c --json",
        "verify c",
        "put c lines",
        "tail c -f",
        "top c --once",
        "create d",
        *(pytest.param(verb, marks=pytest.mark.slow) for verb in SLOW_VERBS),
    ],
)
def test_a_verb_whose_output_can_not_be_written_says_so_with_one_line_and_one_status(
    tmp_path: Path, full: int, verb: str
) -> None:
    make_work(tmp_path)
    words = verb.format(here=tmp_path).split()
    process = start(*words, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (UNWRITTEN, FULL)


def test_a_take_whose_output_can_not_be_written_takes_nothing_and_says_where_it_stands(
    tmp_path: Path, full: int
) -> None:
    make_work(tmp_path)
    process = start("take", "c", "--group", "g", stdout=full, stderr=subprocess.PIPE, cwd=tmp_path)
    _, said = process.communicate(timeout=120)
    assert process.returncode == UNWRITTEN
    assert said == FULL.strip() + b": the last 2 events are back in the queue\n"
    with Channel(tmp_path / "c", create=False) as channel:
        assert peek(channel, group="g") == [b"a", b"b"]


@pytest.mark.parametrize("how", ["r+b", "ab"], ids=["place", "append"])
def test_a_take_into_a_file_that_gets_full_says_what_is_not_taken_of_what_it_has(tmp_path: Path, how: str) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, *[b"%099d" % i for i in range(1500)])
    out = tmp_path / "out"
    out.write_bytes(b"before\n")
    with open(out, how) as file:
        file.seek(0, os.SEEK_END)
        command = [sys.executable, "-c", SMALL_DISK, "take", "c", "--group", "g"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = pythons.run(command, stdout=file, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, timeout=120)
    assert done.returncode == UNWRITTEN and out.stat().st_size == 120_000
    assert done.stderr.decode().endswith(
        "the last 500 events are back in the queue; what the file has from byte 100,007 on is not taken: "
        "'truncate -s 100007' removes it\n"
    )
    os.truncate(out, 100_007)
    assert out.read_bytes().count(b"\n") == 1001
    with Channel(tmp_path / "c", create=False) as channel:
        assert len(peek(channel, group="g")) == 500


@pytest.mark.parametrize(
    "verb", ["verify c", *(pytest.param(v, marks=pytest.mark.slow) for v in ("stats c", "stats missing", "nosuch"))]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_verb_that_can_say_nothing_at_all_has_the_status(
    tmp_path: Path, full: int, monkeypatch: pytest.MonkeyPatch, unbuffered: str, verb: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    make_work(tmp_path)
    process = start(*verb.split(), stdout=full, stderr=full, cwd=tmp_path)
    assert process.wait(120) == UNWRITTEN


def test_a_complaint_that_can_not_be_written_has_the_status_too(tmp_path: Path, full: int) -> None:
    for verb in ("stats missing", "nosuch"):
        process = start(*verb.split(), stdout=subprocess.DEVNULL, stderr=full, cwd=tmp_path)
        assert process.wait(120) == UNWRITTEN


def test_an_output_that_is_open_for_reading_only_is_one_that_can_not_be_written(tmp_path: Path) -> None:
    make_work(tmp_path)
    with open(tmp_path / "lines") as reading:
        process = start("verify", "c", stdout=reading, stderr=subprocess.PIPE, cwd=tmp_path)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said.count(b"\n")) == (UNWRITTEN, 1) and b"Bad file descriptor" in said


def test_a_loss_is_remembered_whoever_swallows_the_error(
    watched: None, full: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.dup(full), "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        watch_output()
        assert (is_output_lost(), status_of_output()) == (False, None)
        print("healthy", file=sys.stdout)
        for _ in range(2):
            assert status_of_output() == UNWRITTEN and is_output_lost()
        assert capsys.readouterr().err == FULL.decode(), "said once"


def test_where_nobody_reads_it_only_what_must_be_known_is_said(
    watched: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        watch_output()
        with pytest.raises(BrokenPipeError):
            write_lines([b"a"])
        assert status_of_output() == UNREAD and capsys.readouterr().err == ""
        assert status_of_output("2 events are back") == UNREAD
        assert capsys.readouterr().err == "nobody reads the output any more: 2 events are back\n"


def test_an_output_that_is_lost_is_for_the_program_to_end(
    watched: None, full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.dup(full), "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        watch_output()
        with pytest.raises(OSError, match="No space"), ending("/data/orders", as_json=True):
            typer.echo("healthy")
        forget_output()


def test_lines_in_a_file_are_synced_and_the_error_of_that_counts(
    watched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[int]()

    def refused(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) > 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refused)
    with open(tmp_path / "out", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        watch_output()
        write_lines([b"a", b"b"])
        sync_output()
        assert (tmp_path / "out").read_bytes() == b"a\nb\n" and not is_output_lost()
        with pytest.raises(OSError, match="Input/output"):
            sync_output()
        assert is_output_lost() and synced == [stream.fileno()] * 2


@pytest.mark.parametrize("size", [10, 100_000], ids=["buffered", "larger than the buffer"])
@pytest.mark.parametrize("how", ["w", "a"])
def test_what_a_file_has_since_the_mark_can_be_removed_as_long_as_nobody_else_writes_there(
    watched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, how: str
) -> None:
    with open(tmp_path / "out", how) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        watch_output()
        write_lines([b"taken"])
        sync_output()
        mark_output()
        assert untaken_output() == ""
        os.write(stream.fileno(), b"of another program")
        assert untaken_output() == "", "nothing of it was printed here"
        mark_output()
        write_lines([bytes(size)])
        sys.stdout.buffer.write(b"in the buffer")
        found = "what the file has from byte 24 on"
        assert untaken_output() == f"; {found} is not taken: 'truncate -s 24' removes it"
        assert untaken_output(is_known=False) == f"; it is not known whether {found} is taken"
        os.write(stream.fileno(), b"of another program")
        assert untaken_output() == f"; some of {found} may not be taken"


def test_a_pipe_is_not_synced(watched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as stream, open(reading, "rb") as read:
        monkeypatch.setattr(sys, "stdout", stream)
        watch_output()
        write_lines([b"a"])
        sync_output()
        assert read.readline() == b"a\n"


def test_what_is_printed_without_a_buffer_is_written_at_once(
    watched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by ``python -u``, which a supervisor of services may ask for."""
    with open(tmp_path / "out", "w") as stream:
        stream.reconfigure(write_through=True)
        monkeypatch.setattr(sys, "stdout", stream)
        watch_output()
        print("a sink's event")
        assert (tmp_path / "out").read_text() == "a sink's event\n"


def test_a_loss_is_not_that_of_a_later_verb_with_another_output(
    watched: None, full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.dup(full), "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        watch_output()
        print("lost", file=sys.stdout)
        assert status_of_output() == UNWRITTEN
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    watch_output()
    assert status_of_output() is None and not is_output_lost()


def test_a_stream_without_a_file_is_left_as_it_is(watched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stream)
    watch_output()
    assert sys.stdout is stream and not is_output_lost()
    sync_output()


def test_what_the_system_refused_is_a_sentence() -> None:
    assert system_error(OSError("the store gives no answer")) == "the store gives no answer"
    assert system_error(PermissionError(13, "Permission denied", "/x")) == "/x: Permission denied (errno 13)"
