"""``put``."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow import feather, parquet

from spillable_stream import Channel
from spillable_stream.cli import input_source
from tests.lab.size import sized
from tests.support.command_line import bodies, run, start


@pytest.mark.parametrize("name", [None, "day-1"])
def test_a_file_that_changed_is_named_as_the_user_knows_it(path: Path, tmp_path: Path, name: str | None) -> None:
    file, given = tmp_path / "app.log", [] if name is None else ["--name", name]
    for content in (b"a\nb", b"a\nb and more\n"):
        file.write_bytes(content)
        done = run("put", path, file, *given)
    called = file if name is None else f"the input of the load {name!r}"
    assert done.exit_code == 1 and f"ProducerSequenceError: {called} has changed since" in done.stderr


def test_a_line_is_an_event_and_a_missing_channel_is_created(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_bytes(b"one\ntwo\n")
    done = run("put", path, file)
    assert (done.exit_code, done.stdout) == (0, f"{path}: stored 2 events, 1 to 2\n")
    assert run("put", path, file).stdout == f"{path}: stored 0 events; 2 stored before\n"
    assert bodies(path) == [b"one", b"two"]


def test_standard_input_is_stored_each_time_unless_it_has_a_name(path: Path) -> None:
    for _ in range(2):
        assert run("put", path, input="a\n").exit_code == 0
    for stored in (2, 0):
        said = json.loads(run("put", path, "-", "--name", "june", "--json", input="x\ny\n").stdout)
        assert (said["stored"], said["name"]) == (stored, "load-june")
    assert bodies(path) == [b"a", b"a", b"x", b"y"]


def test_a_pipe_with_a_path_is_like_standard_input_and_no_row_of_it_counts_as_stored_before(
    path: Path, tmp_path: Path
) -> None:
    """Its next rows may be those of before: whoever writes it sends them again because they are to be stored again."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        june = ["--name", "june"]
        loads = [("a\nb\n", [], 2), ("a\nb\n", [], 2), ("x\n", [], 1), ("j\n", june, 1), ("j\n", june, 0)]
        for text, more, stored in loads:
            written = pool.submit(pipe.write_text, text)
            said = json.loads(run("put", path, pipe, "--json", *more).stdout)
            written.result()
            assert (said["stored"], said["name"]) == (stored, "load-june" if more else "")
    assert bodies(path) == [b"a", b"b", b"a", b"b", b"x", b"j"]


def test_standard_input_by_its_path_is_numbered_only_where_it_is_a_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    for stored in (1, 0):
        with (tmp_path / "f").open() as file:
            process = start("put", path, "/dev/stdin", "--json", stdin=file, stdout=subprocess.PIPE)
            assert json.loads(process.communicate(timeout=60)[0])["stored"] == stored
    process = start("put", path, "/dev/stdin", "--json", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert json.loads(process.communicate(b"b\n", timeout=60)[0])["name"] == ""


DOCUMENTS = ['[\n  {\n    "a": 1\n  }\n]\n', '\n{\n  "a": [\n    1\n  ]\n}', "{\r\n}\r\n"]


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize(
    ("name", "more"),
    [("f.json", []), ("f.jsonl", []), ("f.txt", []), ("-", []), ("-", ["--format", "jsonl"]), ("f.ndjson.gz", [])],
)
def test_the_lines_of_one_json_document_are_not_events_unless_they_are_said_to_be_lines(
    path: Path, tmp_path: Path, name: str, more: list[str], document: str
) -> None:
    written = gzip.compress(document.encode()) if name.endswith(".gz") else document.encode()
    file = name if name == "-" else tmp_path / name
    if file != "-":
        Path(file).write_bytes(written)
    done = run("put", path, file, *more, input=document)
    assert done.exit_code == 1 and not path.exists()
    assert "begins with a line that is not a whole value of JSON" in done.stderr and "--format lines" in done.stderr
    assert run("put", path, file, "--format", "lines", input=document).exit_code == 0
    assert bodies(path) == document.encode().removesuffix(b"\n").split(b"\n")


def test_a_put_that_fails_says_what_it_stored_for_a_program_too(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_source, "CHUNK_BYTES", 9)  # a line
    (tmp_path / "f.jsonl").write_text('{"n": 1}\n' * 20)
    assert run("put", path, tmp_path / "f.jsonl", "--typed").exit_code == 0
    with (tmp_path / "f.jsonl").open("a") as file:
        file.write('{"n": 3}\n{"n": "x"}\n')
    done = run("put", path, tmp_path / "f.jsonl", "--json")
    said = json.loads(done.stdout)
    assert (done.exit_code, said["error"], said["stored"], said["skipped"]) == (1, "SchemaError", 1, 20)
    (tmp_path / "f.jsonl").write_text('{"n": 9}\n')
    said = json.loads(run("put", path, tmp_path / "f.jsonl", "--json").stdout)
    assert (said["error"], said["stored"]) == ("ProducerSequenceError", 0)


def test_a_json_array_that_begins_with_an_element_is_refused_where_the_name_says_json(
    path: Path, tmp_path: Path
) -> None:
    (tmp_path / "f.json").write_text('[{"a": 1},\n{"a": 2}]\n')
    assert run("put", path, tmp_path / "f.json").exit_code == 1 and not path.exists()


def test_whole_values_of_json_in_lines_are_events(path: Path, tmp_path: Path) -> None:
    lines = [b'\xef\xbb\xbf{"a": NaN}', b"[1, 2]", b'"\xff"', b'{"half', b"[" * 100_000 + b"]" * 100_000]
    for i, line in enumerate(lines):
        (tmp_path / f"{i}.json").write_bytes(b"\n" + line if i else line)
        assert run("put", path, tmp_path / f"{i}.json").exit_code == (line == b'{"half')
    stored = [line.removeprefix(b"\xef\xbb\xbf") for line in lines if line != b'{"half']
    assert [body for body in bodies(path) if body] == stored


def packed(tool: str, text: bytes) -> bytes:
    if tool in ("xz", "bz2", "gzip"):
        return {"xz": lzma.compress, "bz2": bz2.compress, "gzip": gzip.compress}[tool](text)
    if tool in ("zip", "Parquet", "Arrow"):
        sink, table = io.BytesIO(), pa.table({"text": [text]})
        if tool == "zip":
            with zipfile.ZipFile(sink, "w") as archive:
                archive.writestr("f", text)
        elif tool == "Parquet":
            parquet.write_table(table, sink)
        else:
            feather.write_feather(table, sink)
        return sink.getvalue()
    return pa.compress(text, codec=tool, asbytes=True) if tool == "lz4" else bytes(pa.Codec(tool).compress(text))


@pytest.mark.parametrize("tool", ["gzip", "bz2", "zstd", "lz4"])
def test_compressed_text_is_known_by_its_first_bytes_where_no_name_says_it(
    path: Path, tmp_path: Path, tool: str
) -> None:
    (tmp_path / "app.log").write_bytes(packed(tool, b"one\ntwo\n"))
    assert run("put", path, input=packed(tool, b"first\n")).exit_code == 0
    assert run("put", path, tmp_path / "app.log").exit_code == 0
    assert bodies(path) == [b"first", b"one", b"two"]
    rows = packed(tool, b"n,s\n1,x\n")
    assert run("put", tmp_path / "rows", "--typed", "--format", "csv", input=rows).exit_code == 0
    assert run("tail", tmp_path / "rows").stdout == '{"n": 1, "s": "x"}\n'


@pytest.mark.parametrize(
    ("tool", "advice"),
    [("xz", "xz -dc"), ("zip", "unpack it"), ("Parquet", "--format parquet"), ("Arrow", "--format arrow")],
)
@pytest.mark.parametrize("name", ["-", "f.xz", "app.log"])
def test_what_is_not_text_and_cannot_be_decompressed_is_refused_before_anything_is_created(
    path: Path, tmp_path: Path, tool: str, advice: str, name: str
) -> None:
    content = packed(tool, b"one\ntwo\n")
    (tmp_path / name).write_bytes(content)
    done = run("put", path, "-" if name == "-" else tmp_path / name, input=content)
    assert done.exit_code == 2 and f"is not text, but {tool}: " in done.stderr and advice in done.stderr
    assert not path.exists()


def test_text_that_only_begins_as_what_is_none_is_text(path: Path) -> None:
    lines = [b"BZh is no name", b"BZh9", b"PK", b"PAR1", b"ARROW1", b"\x1f", b"\xfd7z"]
    for line in lines:
        assert run("put", path, input=line).exit_code == 0
    assert bodies(path) == lines


def test_one_load_runs_once_at_a_time(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        claim = channel.put_port().claim_producer("load-june")
        done = run("put", path, "-", "--name", "june", input="x\n")
        assert done.exit_code == 1
        assert "ProducerBusyError: another process is running this load (the producer 'load-june' of" in done.stderr
        claim.release()
    assert bodies(path) == []


def test_lines_that_trickle_in_are_stored_as_they_come(path: Path) -> None:
    process = start("put", path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not (path / "channel.json").exists() or bodies(path) != [b"first"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.communicate(b"second\n", timeout=60)
    assert process.returncode == 0 and bodies(path) == [b"first", b"second"]


def test_csv_that_trickles_in_is_stored_as_it_comes_and_ctrl_c_ends_the_wait_for_more(path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    with Channel(path, schema=schema, minimum_required_space=0) as channel:
        process = start("put", path, "--format", "csv", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        for text, rows in (("n,", 0), ("s\n1,a\n2,", 1), ("b", 1), ("b\n", 2)):
            process.stdin.write(text.encode())
            process.stdin.flush()
            deadline = time.monotonic() + 60
            while channel.stats().last_id < rows:
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert pa.Table.from_batches(channel.read()).select(schema.names).to_pylist() == [
            {"n": 1, "s": "a"}, {"n": 2, "s": "bb"},
        ]  # fmt: skip
        process.communicate()


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("csv", ["n,", "s\n", "1,a\n2", ",b\n"]), ("jsonl", ['{"n": 1, ', '"s": "a"}\n', '{"n": 2, "s": "b"', "}\n"])],
)
def test_rows_that_trickle_in_are_stored_as_they_come_also_in_a_new_channel(
    path: Path, kind: str, parts: list[str]
) -> None:
    process = start("put", path, "--typed", "--format", kind, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None

    def rows() -> list[dict[str, object]]:
        with Channel(path, create=False, readonly=True) as channel:
            return [row for batch in channel.read() for row in batch.drop_columns("write_order_id").to_pylist()]

    for part in parts:
        process.stdin.write(part.encode())
        process.stdin.flush()
        if part == parts[2]:
            deadline = time.monotonic() + 60
            while not (path / "channel.json").exists() or rows() != [{"n": 1, "s": "a"}]:
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.05)
    process.communicate(timeout=60)
    assert process.returncode == 0 and rows() == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]


def killed_again_and_again(path: Path, file: Path, kills: int, rows: int, signals: list[int], **options: int) -> None:
    """Create a channel, load a file into it, kill the load at random moments, and run it again to its end."""
    while not each_was_killed(path, file, kills, rows, signals, **options):  # as on a busy machine
        shutil.rmtree(path)


def each_was_killed(path: Path, file: Path, kills: int, rows: int, signals: list[int], **options: int) -> bool:
    """Do so, and tell whether each kill came in time; a load that was done before ends it."""
    with Channel(path, minimum_required_space=0, **options), Channel(path, create=False, readonly=True) as view:
        for i in range(kills):
            process = start("put", path, file, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wanted = rows * (i + 1) // (3 * kills)  # in the first third: it must not end before it is looked at
            while process.poll() is None:
                if view.stats().last_id >= wanted:
                    process.send_signal(signals[i % len(signals)])
                    process.wait()
                time.sleep(0.002)  # the load needs the processor, too
            if not process.returncode:
                return False
        done = run("put", path, file, "--json")
        said = json.loads(done.stdout)
        assert done.exit_code == 0 and said["stored"] + said["skipped"] == rows and said["skipped"]
    return True


@pytest.mark.parametrize(
    ("memory_capacity", "signals"),
    [
        (0, [signal.SIGKILL]),
        *(pytest.param(m, [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], marks=pytest.mark.slow) for m in (0, 10**6)),
    ],
)
def test_a_load_that_is_killed_and_run_again_stores_each_row_once(
    path: Path, tmp_path: Path, memory_capacity: int, signals: list[int]
) -> None:
    file, rows = tmp_path / "f", 130_000 * len(signals)  # as many to go after each kill
    file.write_bytes(b"".join(b"row %d\n" % i for i in range(rows)))
    options = {"transaction_capacity": 1000, "memory_capacity": memory_capacity}
    killed_again_and_again(path, file, len(signals), rows, signals, **options)
    assert bodies(path) == [b"row %d" % i for i in range(rows)]


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_a_load_of_ten_million_rows_that_is_killed_twenty_times_stores_each_row_once(
    path: Path, tmp_path: Path
) -> None:
    file, (rows, kills) = tmp_path / "f", sized(ci=(1_000_000, 4), full=(10_000_000, 20))
    with open(file, "wb") as out:
        out.writelines(b"row %d\n" % i for i in range(rows))
    killed_again_and_again(path, file, kills, rows, [signal.SIGKILL])
    following = 0
    with Channel(path, create=False, readonly=True) as channel:
        for batch in channel.read():
            for body in batch.column("body").to_pylist():
                assert body == b"row %d" % following
                following += 1
    assert following == rows


def test_events_are_put_with_a_delay(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a\nb\n")
    done = run("put", path, file, "--deliver-after", 3600)
    assert (done.exit_code, done.stdout) == (0, f"{path}: stored 2 events\n")
    with Channel(path) as channel:
        assert (channel.stats().last_id, channel.stats().delayed.events) == (0, 2)
    assert "delayed:       2 events, the next due at" in run("stats", path).stdout
    refused = run("put", path, file, "--name", "again", "--deliver-after", -1)
    assert refused.exit_code == 2
    assert "'-1' is too short" in refused.stderr


def test_a_time_to_live_and_a_delay_may_have_a_unit(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a\n")
    assert run("put", path, file, "--ttl", "1ms", "--deliver-after", "0.5s").exit_code == 0
    with Channel(path) as channel:
        assert channel.stats().delayed.events == 1
    for wrong in ("five", "5 minutes", "5x", "m"):
        refused = run("put", path, file, "--ttl", wrong)
        assert refused.exit_code == 2
        assert f"{wrong!r} is not a time: give seconds" in " ".join(refused.stderr.replace("│", "").split())


def test_a_channel_in_a_store_is_created_for_a_delay_that_can_be(tmp_path: Path) -> None:
    file, url = tmp_path / "lines.txt", f"object+file://{tmp_path}/store"
    file.write_text("a\nb\n")
    for seconds, said in ((-1, "'-1' is too short"), (10**9, "Nothing was put")):
        refused = run("put", url, file, "--deliver-after", seconds)
        assert (refused.exit_code, said in refused.stderr) == (2, True)
        assert not (tmp_path / "store").exists()
    assert run("put", url, file, "--deliver-after", 3600).exit_code == 0
    with Channel(url) as channel:
        assert (channel.stats().last_id, channel.stats().delayed.events) == (0, 2)
