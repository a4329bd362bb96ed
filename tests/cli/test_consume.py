"""``take`` and ``tail``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.cli import consume
from tests.support import pythons
from tests.support.command_line import ROOT, run, start
from tests.support.events import numbered, put, take
from tests.support.far_times import FAR, put_far_times


def channel_of(path: Path, count: int, **options: object) -> None:
    with Channel(path, minimum_required_space=0, **options) as channel:
        put(channel, *numbered(1, count))


def test_a_take_prints_a_body_a_line_and_commits_them(path: Path) -> None:
    channel_of(path, 5)
    done = run("take", path, "--group", "audit", "--max", 3)
    assert (done.exit_code, done.stdout) == (0, "1\n2\n3\n")
    assert run("take", path, "--group", "audit", "-n", 1).stdout == "4\n", "as tail and dead-letters list have it"
    assert run("take", path, "--group", "audit").stdout == "5\n"
    assert run("take", path, "--group", "audit").stdout == ""
    assert run("take", path, "--max", 1).stdout == "", "the group default came too late: no group was there to wait for"


def test_a_take_as_json_has_everything(path: Path) -> None:
    channel_of(path, 2)
    said = [json.loads(line) for line in run("take", path, "--json").stdout.splitlines()]
    assert [(e["id"], e["body"], e["headers"]) for e in said] == [(1, "1", {}), (2, "2", {})]


def test_a_take_of_a_typed_channel_prints_rows(path: Path) -> None:
    typed = Channel(path, schema=pa.schema([("n", pa.int64())]), minimum_required_space=0)
    with typed as channel, channel.put_transaction() as tx:
        tx.put({"n": 1})
    assert run("take", path).stdout == '{"n": 1}\n'


def test_a_take_needs_a_channel_and_never_makes_one(path: Path) -> None:
    done = run("take", path)
    assert done.exit_code == 2 and "NotAChannelError" in done.stderr and not path.exists()


def test_a_take_whose_pipe_breaks_returns_what_was_not_handed_over(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *[b"%06d" % i + b"x" * 1000 for i in range(3000)])
    process = start("take", path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(10)[:6] == b"000000"
    process.stdout.close()
    said = process.stderr.read().decode()
    assert process.wait(60) == 141
    assert "nobody reads the output any more: the last 1,000 events are back in the queue" in said
    with Channel(path, create=False) as channel:
        assert take(channel, 1)[0][:6] == b"000000", "nothing was committed: the first thousand never fit into the pipe"


def test_a_large_event_that_a_pipe_took_in_part_is_back_in_the_queue(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, bytes(8 << 20))
    for unbuffered in ("", "1"):  # as images of containers have it: then Python writes what the pipe takes, and no more
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
        with start("take", path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as taking:
            assert taking.stdout is not None and taking.stderr is not None
            taking.stdout.read(5)
            taking.stdout.close()
            said = taking.stderr.read()
        assert taking.returncode == 141 and b"the last 1 event is back in the queue" in said, (unbuffered, said)
    with Channel(path) as channel:
        assert len(take(channel, 1)) == 1


SECOND_COMMIT = """
import signal
from spillable_stream import errors
from spillable_stream.channel.consumer import Consumer
from spillable_stream.cli import main

commit, commits = Consumer.commit, []

def replaced(*args, **more):
    commits.append(args)
    if len(commits) == 2:
        {before}
    done = commit(*args, **more)
    if len(commits) == 2:
        {after}
    return done

Consumer.commit = replaced
main()
"""
INTERRUPT = "signal.raise_signal(signal.SIGINT)"
ANOTHER_APPENDS = "open('out', 'ab').write(b'of another program'); "
UNTAKEN = "; what the file has from byte 100,007 on is not taken: 'truncate -s 100007' removes it\n"
UNKNOWN = "; it is not known whether what the file has from byte 100,007 on is taken\n"
OF_TWO = "; some of what the file has from byte 100,007 on may not be taken\n"


def appended(directory: Path, path: str, before: str, after: str = "pass") -> tuple[int, str]:
    """Append 1,500 events to a file, and do something about the second commit; return the status and what was said."""
    with Channel(path, **({} if "://" in path else {"minimum_required_space": 0})) as channel:
        put(channel, *[b"%099d" % i for i in range(1500)])
    (directory / "out").write_bytes(b"before\n")
    with open(directory / "out", "ab") as out:
        script = SECOND_COMMIT.format(before=before, after=after)
        command = [sys.executable, "-c", script, "take", path, "--group", "g"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = pythons.run(
            command, stdout=out, stderr=subprocess.PIPE, cwd=directory, env=environment, timeout=120, check=False
        )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("StorageError", UNTAKEN),
        ("CommitOutcomeUnknownError", UNKNOWN),
    ],
)
def test_a_take_into_a_file_whose_commit_fails_says_what_is_not_taken_of_what_it_has(
    tmp_path: Path, error: str, said: str
) -> None:
    status, found = appended(tmp_path, str(tmp_path / "c"), f"raise errors.{error}('refused')")
    assert (status, found) == (1, f"{error}: refused{said}")


@pytest.mark.parametrize(
    ("store", "before", "after", "said"),
    [
        ("", INTERRUPT, "pass", f"the group 'g' takes the event 1001 next{UNTAKEN}"),
        ("", "pass", INTERRUPT, "the group 'g' takes the event 1501 next\n"),
        ("object+file://", INTERRUPT, "pass", f"the group 'g' takes the event 1001 next{UNKNOWN}"),
        ("object+file://", "pass", INTERRUPT, "the group 'g' takes the event 1501 next\n"),
    ],
    ids=["before a commit", "after a commit", "before a commit in a store", "after a commit in a store"],
)
def test_ctrl_c_in_the_commit_of_a_take_into_a_file_says_what_is_not_taken_of_what_it_has(
    tmp_path: Path, store: str, before: str, after: str, said: str
) -> None:
    status, found = appended(tmp_path, f"{store}{tmp_path}/c", before, after)
    assert (status, found) == (130, f"interrupted: {said}")


def test_a_file_that_another_program_appends_to_is_never_advised_to_be_truncated(tmp_path: Path) -> None:
    status, found = appended(tmp_path, str(tmp_path / "c"), ANOTHER_APPENDS + "raise errors.StorageError('refused')")
    assert (status, found) == (1, f"StorageError: refused{OF_TWO}")


def test_a_take_that_waits_is_interrupted_in_one_line(path: Path) -> None:
    channel_of(path, 2)
    process = start("take", path, "--wait", 60, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and said.decode().startswith("interrupted: ")
    assert "Traceback" not in said.decode()


def test_a_tail_prints_the_last_events_and_takes_nothing(path: Path) -> None:
    channel_of(path, 30)
    assert run("tail", path, "-n", 2).stdout == "29\n30\n"
    assert run("tail", path).stdout.splitlines() == [str(i) for i in range(21, 31)]
    assert run("tail", path, "-n", 100).stdout.count("\n") == 30
    assert run("tail", path, "-n", 0).stdout == ""
    with Channel(path, create=False) as channel:
        assert channel.stats().channel_size == 30


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_tail_of_a_time_that_python_does_not_have_says_which_events_and_where_it_can_be_seen(
    path: Path, options: list[str]
) -> None:
    with Channel(path, schema=FAR.schema, minimum_required_space=0) as channel:
        put_far_times(channel)
    done = run("tail", path, *options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("SchemaError: Python has no object for a value among the events 1 to 2 (")
    assert "export" in done.stderr and "\n" not in done.stderr.strip()


def test_a_tail_begins_where_it_is_told(path: Path) -> None:
    channel_of(path, 5)
    assert run("tail", path, "--from", 4).stdout == "4\n5\n"
    assert run("tail", path, "--from", "1h ago").stdout.count("\n") == 5
    assert run("tail", path, "--from", "latest").stdout == ""
    done = run("tail", path, "--from", "soon")
    assert done.exit_code == 2 and "is not a place in a channel" in done.stderr


def test_a_tail_finds_enough_events_where_ids_are_missing(path: Path) -> None:
    channel_of(path, 20, memory_capacity=1000)
    with Channel(path, create=False) as channel:
        put(channel, *numbered(21, 5))
        channel.consumer("default")
        with channel.take_transaction() as first:
            first.take_many(5)
            with channel.take_transaction() as second:
                second.take_many(15)
            first.rollback()
        lines = run("tail", path, "-n", 7).stdout.splitlines()
        assert len(lines) == 7 and lines[-5:] == ["21", "22", "23", "24", "25"]


def test_a_tail_of_very_many_events_holds_few_of_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "_KEPT_BYTES", 1)
    with Channel(path) as channel:
        put(channel, *numbered(0, 5))
        put(channel, *numbered(5, 5))
    assert run("tail", path, "-n", "7").stdout.split() == [str(i) for i in range(3, 10)]
    assert run("tail", path, "-n", "70").stdout.split() == [str(i) for i in range(10)]


def test_a_tail_follows_what_comes(path: Path) -> None:
    channel_of(path, 2)
    process = start("tail", path, "-n", 1, "-f", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["id"] == 2
    with Channel(path, create=False) as channel:
        put(channel, b"new", b"newer")
        assert [json.loads(process.stdout.readline())["body"] for _ in range(2)] == ["new", "newer"]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0 and said == b""
