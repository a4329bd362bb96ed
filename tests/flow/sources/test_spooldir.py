from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.errors import DeliveryError, NotAChannelError, OptionError, PutTooLargeError, StorageError
from spillable_stream.flow.interceptors.base import Interceptor
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sources import spool_directory, spooldir
from spillable_stream.flow.sources.base import Status
from spillable_stream.flow.sources.spooldir import SpoolDir
from tests.lab.users import NEEDS_USERS, NOBODY, common_directory, run_as
from tests.support.events import peek, take
from tests.support.flow_processors import KeptBatches


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "spool").mkdir()
    return tmp_path / "spool"


def add(spool: Path, name: str, data: bytes, age: int = 0) -> Path:
    path = spool / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def read_all(spool: Path, kept: KeptBatches | None = None, **options: Any) -> KeptBatches:
    kept = kept or KeptBatches()
    source = SpoolDir(spool, **options)
    source.open(kept)
    while source.poll(kept) is Status.READY:
        pass
    source.close()
    return kept


def names(spool: Path) -> list[str]:
    return sorted(str(p.relative_to(spool)) for p in spool.rglob("*") if p.is_file())


def test_files_are_read_the_oldest_first_and_renamed(spool: Path) -> None:
    add(spool, "b", b"3\n", age=1)
    add(spool, "a", b"1\n2", age=2)
    add(spool, "c", b"4\n", age=1)
    add(spool, ".hidden", b"x\n")
    add(spool, "old.COMPLETED", b"x\n")
    kept = read_all(spool)
    assert kept.bodies() == [b"1", b"2", b"3", b"4"]
    assert names(spool) == [".hidden", "a.COMPLETED", "b.COMPLETED", "c.COMPLETED", "old.COMPLETED"]


def test_batches_never_span_files_and_a_file_is_renamed_by_the_read_after_its_last_line(spool: Path) -> None:
    add(spool, "a", b"1\n2\n3\n", age=1)
    add(spool, "b", b"4\n")
    kept, source = KeptBatches(), SpoolDir(spool, batch_size=2)
    source.open(kept)
    seen = []
    while source.poll(kept) is Status.READY:
        seen.append((kept.batches[0][-1].num_rows, names(spool)))
    assert seen == [(2, ["a", "b"]), (1, ["a", "b"]), (1, ["a.COMPLETED", "b"])]


def test_a_carriage_return_stays_and_an_empty_file_is_an_empty_event(spool: Path) -> None:
    add(spool, "a", b"1\r\n\n", age=1)
    add(spool, "empty", b"")
    assert read_all(spool).bodies() == [b"1\r", b"", b""]


@pytest.mark.parametrize("text", ["abcdefg\nhi\nabcdef\n", "äbcdefg\nhi\näbcdéf\n"])
def test_a_longer_line_is_cut_into_several_events(spool: Path, text: str) -> None:
    add(spool, "a", text.encode())
    cut = [line[i : i + 3].encode() for line in text.splitlines() for i in range(0, len(line), 3)]
    assert read_all(spool, deserializer_max_line_length=3, batch_size=2).bodies() == cut


def test_names_are_chosen_by_patterns_and_directories_by_option(spool: Path) -> None:
    for name in ("a.log", "b.tmp", "c.txt", "below/d.log"):
        add(spool, name, name.encode())
    options = {"include_pattern": r".*\.(log|tmp)", "ignore_pattern": r".*\.tmp"}
    assert read_all(spool, **options).bodies() == [b"a.log"]
    assert read_all(spool, recursive_directory_search=True, **options).bodies() == [b"below/d.log"]


def test_the_order_can_be_youngest_first(spool: Path) -> None:
    add(spool, "old", b"old", age=2)
    add(spool, "new", b"new", age=1)
    assert read_all(spool, consume_order="youngest").bodies() == [b"new", b"old"]
    add(spool, "a", b"a")
    add(spool, "b", b"b")
    assert sorted(read_all(spool, consume_order="random").bodies()) == [b"a", b"b"]


def test_files_can_be_removed_or_noted_in_a_tracker_directory(spool: Path) -> None:
    add(spool, "a", b"1")
    read_all(spool, delete_policy="immediate")
    assert names(spool) == []
    add(spool, "below/b", b"2")
    options = {"tracking_policy": "tracker_dir", "recursive_directory_search": True}
    kept = read_all(spool, **options)
    assert read_all(spool, kept, **options).bodies() == [b"2"]
    assert names(spool) == [".flumespool/below/b.COMPLETED", "below/b"]


def test_events_have_the_headers_of_their_file(spool: Path) -> None:
    add(spool, "a", b"1\n")
    kept = read_all(spool, file_header=True, basename_header=True)
    assert kept.headers() == [{"file": str(spool / "a"), "basename": "a"}]


def test_the_path_in_a_header_is_whole_where_the_directory_is_not(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(spool.parent)
    path = add(spool, "a", b"x\n")
    assert read_all(Path("spool"), file_header=True).headers() == [{"file": str(path)}]


def test_the_deserializer_that_is_not_here_is_refused_with_the_way_out(spool: Path) -> None:
    for name in ("AVRO", "org.apache.flume.serialization.AvroEventDeserializer$Builder"):
        with pytest.raises(OptionError, match="Spark's format `avro`"):
            SpoolDir(spool, deserializer=name)
    with pytest.raises(OptionError, match="give LINE or BlobDeserializer"):
        SpoolDir(spool, deserializer="XML")


def test_a_file_that_changes_is_set_aside_and_the_others_are_read(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(spool, "a", b"1\n2\n", age=1)
    add(spool, "b", b"3\n")
    kept, source = KeptBatches(), SpoolDir(spool, batch_size=1)
    source.open(kept)
    source.poll(kept)
    with (spool / "a").open("ab") as f:
        f.write(b"more\n")
    while source.poll(kept) is Status.READY:
        pass
    assert kept.bodies() == [b"1", b"2", b"3"]
    assert names(spool) == ["a.ASIDE", "b.COMPLETED"]
    assert "was changed while it was read, from 4 to 9 bytes" in caplog.text


@NEEDS_USERS
def test_a_file_that_this_user_may_not_read_is_set_aside_and_a_directory_that_it_may_not_list_passed_over() -> None:
    def read() -> None:
        kept, source = KeptBatches(), SpoolDir(spool, recursive_directory_search=True)
        source.open(kept)
        while source.poll(kept) is Status.READY:
            pass
        assert source.poll(kept) is Status.BACKOFF
        assert kept.bodies() == [b"1", b"2"]
        assert source.lag() == {"LagFiles": 0}
        assert set(source.missed) == {
            f"can't look at all that is in {spool}/closed (Permission denied); let this user enter it",
            f"can't list {spool}/lost+found (Permission denied); let this user read it",
            f"{spool}/secret is set aside as {spool}/secret.ASIDE: can't open {spool}/secret (Permission denied); "
            "let this user read such files",
        }

    with common_directory() as common:
        spool = common / "spool"
        add(spool, "lost+found/a", b"x\n")
        add(spool, "closed/a", b"x\n")
        add(spool, "secret", b"x\n", age=2).chmod(0o600)
        add(spool, "b", b"1\n", age=1)
        add(spool, "below/c", b"2\n")
        for path, mode in ((spool, 0o777), (spool / "below", 0o777), (spool / "lost+found", 0o700),
                           (spool / "closed", 0o744)):  # fmt: skip
            path.chmod(mode)
        assert not run_as(NOBODY, read, common / "stderr")
        assert names(spool) == [
            "b.COMPLETED", "below/c.COMPLETED", "closed/a", "lost+found/a", "secret.ASIDE",
        ]  # fmt: skip


@pytest.mark.parametrize("failing", range(6))
def test_a_disk_that_fails_is_named_and_asked_again_and_nothing_is_lost_or_doubled(
    spool: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Each piece is read and split, and each batch sealed: each of these reads fails once."""
    reads, pread = iter(range(1000)), os.pread

    def fail(*where: int) -> bytes:
        if next(reads) == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(*where)

    monkeypatch.setattr("spillable_stream.flow.sources.spooled_file._PIECE_BYTES", 4)
    monkeypatch.setattr(os, "pread", fail)
    add(spool, "a", b"1\n2\n3\n4\n")
    kept, source = KeptBatches(), SpoolDir(spool, batch_size=1)
    source.open(kept)
    with pytest.raises(StorageError, match=r"can't read .*/a at \d .*check the disk"):
        while True:
            source.poll(kept)
    while source.poll(kept) is Status.READY:
        pass
    assert kept.bodies() == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("failing", range(4))
def test_a_disk_that_fails_as_a_batch_is_read_again_in_smaller_ones_has_nothing_lost_or_doubled(
    spool: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    class Small(KeptBatches):
        def process(self, events: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> None:
            if events.num_rows > 1:
                raise PutTooLargeError("too large")
            super().process(events, number=number, note=note)

    reads, pread = iter(range(1000)), os.pread

    def fail(*where: int) -> bytes:
        if next(reads) == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(*where)

    monkeypatch.setattr(os, "pread", fail)
    add(spool, "a", b"1\n2\n3\n4\n")
    kept, source = Small(), SpoolDir(spool, batch_size=2, input_charset="latin-1")  # which is read at once
    source.open(kept)
    with pytest.raises(StorageError, match="check the disk"):
        while True:
            source.poll(kept)
    while source.poll(kept) is Status.READY:
        pass
    assert kept.bodies() == [b"1", b"2", b"3", b"4"]
    assert names(spool) == ["a.COMPLETED"]


def test_a_file_whose_completed_name_is_taken_is_set_aside(spool: Path) -> None:
    add(spool, "a", b"1\n")
    add(spool, "a.COMPLETED", b"other")
    add(spool, "a.ASIDE", b"another")
    assert read_all(spool).bodies() == [b"1"]
    assert names(spool) == ["a.1.ASIDE", "a.ASIDE", "a.COMPLETED"]
    assert (spool / "a.COMPLETED").read_bytes() == b"other"


def test_a_file_whose_completed_name_would_be_too_long_is_set_aside_and_the_others_are_read(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = "ä" * 127 + "x"  # 255 bytes
    add(spool, long, b"1\n", age=2)
    add(spool, long[:-1], b"2\n", age=1)
    add(spool, "b", b"3\n")
    assert read_all(spool).bodies() == [b"1", b"2", b"3"]
    assert names(spool) == ["b.COMPLETED", "ä" * 123 + ".1.ASIDE", "ä" * 124 + ".ASIDE"]
    assert "x was read, and" in caplog.text
    assert "is longer than a name can be: choose a shorter fileSuffix" in caplog.text


def test_a_file_whose_name_is_too_long_to_be_noted_is_named_and_the_others_are_read(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(spool, "a" * 250, b"1\n", age=1)
    add(spool, "b", b"2\n")
    assert read_all(spool, tracking_policy="tracker_dir").bodies() == [b"2"]
    assert f"can't note in {spool}/.flumespool that {spool}/{'a' * 250} was read; shorten its name" in caplog.text


def test_bytes_of_no_character_fail_the_file_or_are_replaced_or_left_out(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = b"good\nb\xffd\n"
    add(spool, "a", bad, age=1)
    add(spool, "b", b"other\n")
    assert read_all(spool).bodies() == [b"other"]
    assert "a is not UTF-8 at offset 6" in caplog.text
    add(spool, "c", bad)
    assert read_all(spool, decode_error_policy="REPLACE").bodies() == [b"good", "b\ufffdd".encode()]
    add(spool, "d", bad)
    assert read_all(spool, decode_error_policy="IGNORE").bodies() == [b"good", b"bd"]


@pytest.mark.parametrize("charset", ["ISO-8859-1", "UTF-16", "UTF-16-LE"])
def test_files_of_other_character_sets_become_utf_8(spool: Path, charset: str) -> None:
    add(spool, "a", "äö\nü\n".encode(charset))
    assert read_all(spool, input_charset=charset).bodies() == ["äö".encode(), "ü".encode()]


def test_a_whole_file_can_be_one_event(spool: Path) -> None:
    add(spool, "a", b"\x00\xff\n\n")
    assert read_all(spool, deserializer="BlobDeserializer").bodies() == [b"\x00\xff\n\n"]
    add(spool, "b", b"12345")
    assert read_all(spool, deserializer="blob", deserializer_max_blob_length=2).bodies() == [b"12", b"34", b"5"]


def test_a_batch_that_only_one_channel_has_is_put_again_after_a_crash(spool: Path) -> None:
    add(spool, "a", b"12345\n6\n78\n", age=1)
    add(spool, "b", b"9\n")
    options = {"batch_size": 2, "deserializer_max_line_length": 3}
    for stop in range(1, 6):
        kept = KeptBatches(2)
        source = SpoolDir(spool, **options)
        source.open(kept)
        kept.full = {1}
        for _ in range(stop):
            try:
                source.poll(kept)
            except DeliveryError:
                break
        for _ in range(stop):
            kept.full = set()
            again = SpoolDir(spool, **options)  # the last one was killed
            again.open(kept)
            again.poll(kept)
            kept.full = {1}
            with contextlib.suppress(DeliveryError):
                again.poll(kept)
        kept.full = set()
        read_all(spool, kept, **options)
        assert kept.bodies(0) == kept.bodies(1) == [b"123", b"45", b"6", b"78", b"9"], stop
        for done in spool.glob("*.COMPLETED"):
            done.rename(done.with_suffix(""))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_a_batch_that_only_one_channel_has_is_put_again_as_it_was_though_batches_are_larger_or_smaller_now(
    spool: Path, batch_size: int
) -> None:
    add(spool, "a", b"1\n2\n3\n4\n5\n6\n7\n")
    kept, killed = KeptBatches(2), SpoolDir(spool, batch_size=2)
    killed.open(kept)
    killed.poll(kept)
    kept.full = {1}
    with pytest.raises(DeliveryError):
        killed.poll(kept)
    kept.full = set()
    read_all(spool, kept, batch_size=batch_size)
    assert kept.bodies(0) == kept.bodies(1) == [b"%d" % i for i in range(1, 8)]


def test_a_file_whose_name_is_not_text_is_read_also_after_a_crash(spool: Path) -> None:
    add(spool, os.fsdecode(b"a\xff"), b"1\n2\n3\n")
    kept, options = KeptBatches(2), {"batch_size": 2, "basename_header": True, "file_header": True}
    killed = SpoolDir(spool, **options)
    killed.open(kept)
    kept.full = {1}
    with pytest.raises(DeliveryError):
        killed.poll(kept)
    kept.full = set()
    read_all(spool, kept, **options)
    assert kept.bodies(0) == kept.bodies(1) == [b"1", b"2", b"3"]
    assert kept.headers(1) == [{"basename": "a\ufffd", "file": f"{spool}/a\ufffd"}] * 3
    assert names(spool) == [os.fsdecode(b"a\xff.COMPLETED")]


def test_a_batch_that_could_not_be_made_comes_again(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> pa.RecordBatch:
        raise MemoryError

    add(spool, "a", b"1\n2\n3\n")
    kept, source = KeptBatches(), SpoolDir(spool, batch_size=2)
    source.open(kept)
    for _ in range(2):
        with monkeypatch.context() as short:
            short.setattr(spooldir, "event_batch", fails)
            with pytest.raises(MemoryError):
                source.poll(kept)
        assert source.poll(kept) is Status.READY
    assert kept.bodies() == [b"1", b"2", b"3"]


def test_a_batch_that_is_gone_after_a_crash_is_missed(spool: Path) -> None:
    path, kept = add(spool, "a", b"1\n"), KeptBatches(2)
    killed = SpoolDir(spool)
    killed.open(kept)
    kept.full = {1}
    with pytest.raises(DeliveryError):
        killed.poll(kept)
    os.unlink(path)
    again = SpoolDir(spool)
    again.open(kept)
    assert list(again.missed) == [f"{path} is gone, and some channels have not got its bytes 0 to 2"]


def test_a_batch_of_a_file_that_was_changed_after_a_crash_is_missed(spool: Path) -> None:
    path, kept = add(spool, "a", b"1\n"), KeptBatches(2)
    killed = SpoolDir(spool)
    killed.open(kept)
    kept.full = {1}
    with pytest.raises(DeliveryError):
        killed.poll(kept)
    with path.open("ab") as f:
        f.write(b"2\n")
    again = SpoolDir(spool)
    again.open(kept)
    assert f"{path} is not what it was, and some channels have not got its bytes 0 to 2" in again.missed
    assert names(spool) == ["a.ASIDE"]


@NEEDS_USERS
def test_a_file_that_this_user_may_not_read_for_a_while_after_a_crash_is_read_then_and_not_set_aside() -> None:
    def read() -> None:
        kept = KeptBatches(2)
        killed, again = SpoolDir(spool), SpoolDir(spool)
        killed.open(kept)
        kept.full = {1}
        with pytest.raises(DeliveryError):
            killed.poll(kept)
        killed.close()
        kept.full = set()
        (spool / "a").chmod(0o000)
        with pytest.raises(StorageError, match="let this user read such files"):
            again.open(kept)
        (spool / "a").chmod(0o600)
        again.open(kept)
        while again.poll(kept) is Status.READY:
            pass
        assert kept.bodies(0) == kept.bodies(1) == [b"1"]
        assert names(spool) == ["a.COMPLETED"] and not again.missed

    with common_directory() as common:
        spool = common / "spool"
        os.chown(add(spool, "a", b"1\n"), NOBODY, NOBODY)
        spool.chmod(0o777)
        assert not run_as(NOBODY, read, common / "stderr")


def test_a_file_that_a_killed_agent_had_marked_is_durably_marked_before_another_one_is_read(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, synced = KeptBatches(), list[Path]()
    add(spool, "a", b"1\n", age=1)
    read_all(spool, kept)
    monkeypatch.setattr(spool_directory, "sync_directory", synced.append)
    add(spool, "b", b"2\n")
    source = SpoolDir(spool)
    source.open(kept)
    assert source.poll(kept) is Status.READY
    source.close()
    assert kept.bodies() == [b"1", b"2"]
    assert synced == [spool]


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAChannelError, match="is not a directory; create it"):
        SpoolDir(tmp_path / "none").open(KeptBatches())


@pytest.mark.parametrize("charset", ["UTF-8", "ISO-8859-1"])
def test_a_new_file_of_the_name_and_inode_of_one_that_was_read_is_read(spool: Path, charset: str) -> None:
    kept, options = KeptBatches(), {"delete_policy": "immediate", "input_charset": charset}
    add(spool, "a", b"1\n2\n", age=9)
    assert read_all(spool, kept, **options).bodies() == [b"1", b"2"]
    assert names(spool) == []
    inode = os.stat(add(spool, "a", b"3\n4\n", age=5)).st_ino
    newest = kept.newest()
    assert newest is not None
    state = msgpack.unpackb(newest.note)
    state["state"][0] = inode  # file systems give the inode of a removed file to the next one
    kept._note = bytes(msgpack.packb(state))
    assert read_all(spool, kept, **options).bodies() == [b"1", b"2", b"3", b"4"]
    assert names(spool) == []


def test_a_file_that_was_changed_behind_what_was_read_of_it_is_still_set_aside_after_a_restart(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(spool, "a", b"1\n2\n", age=1)
    kept, source = KeptBatches(), SpoolDir(spool, batch_size=1)
    source.open(kept)
    source.poll(kept)
    source.close()
    with (spool / "a").open("ab") as f:
        f.write(b"more\n")
    assert read_all(spool, kept).bodies() == [b"1"]
    assert names(spool) == ["a.ASIDE"]
    assert "was changed while it was read, from 4 to 9 bytes" in caplog.text


def test_a_file_whose_lines_do_not_fit_a_channel_together_is_read_in_smaller_batches(
    spool: Path, tmp_path: Path
) -> None:
    lines = [bytes([65 + i]) * 300_000 for i in range(7)]
    add(spool, "a", b"\n".join(lines) + b"\n")
    with (
        Channel(tmp_path / "large", minimum_required_space=0) as large,
        Channel(tmp_path / "small", memory_capacity=100, overflow_capacity=0, byte_capacity=1 << 20) as small,
        ChannelProcessor({"large": large, "small": small}, producer="a1.r1") as processor,
    ):
        source = SpoolDir(spool, batch_size=5, deserializer_max_line_length=1 << 20)
        source.open(processor)
        found = []
        while source.poll(processor) is Status.READY:
            found += take(small, 10)
        source.close()
        assert found == lines and peek(large, 10) == lines
        counters = source.counters.flume_counters()
        assert counters["EventReceivedCount"] == counters["EventAcceptedCount"] == 7
    assert names(spool) == ["a.COMPLETED"]


@pytest.mark.parametrize("with_letters", [False, True])
def test_an_event_that_never_fits_goes_to_the_dead_letters_or_is_named(
    spool: Path, tmp_path: Path, with_letters: bool, caplog: pytest.LogCaptureFixture
) -> None:
    add(spool, "a", b"1\n" + b"x" * 1_000_000 + b"\n2\n")
    with (
        Channel(tmp_path / "dead", minimum_required_space=0) as dead,
        Channel(tmp_path / "small", memory_capacity=100, overflow_capacity=0, byte_capacity=1 << 20) as small,
        ChannelProcessor({"small": small}, producer="a1.r1", dead_letter=dead if with_letters else None) as processor,
    ):
        source = SpoolDir(spool, deserializer_max_line_length=1 << 20)
        source.open(processor)
        if with_letters:
            while source.poll(processor) is Status.READY:
                pass
            assert peek(small, 9) == [b"1", b"2"]
            with dead.take_transaction() as tx:
                letter = tx.take()
            assert len(letter.body) == 1_000_000 and letter.headers["deadletter.component"] == "a1.r1/small"
            assert letter.headers["deadletter.error"].startswith("PutTooLargeError: ")
            assert "Raise byte_capacity" in letter.headers["deadletter.error"]
            assert names(spool) == ["a.COMPLETED"]
        else:
            with pytest.raises(PutTooLargeError, match="1 event does not fit"):
                while source.poll(processor) is Status.READY:
                    pass
            assert peek(small, 9) == [b"1"] and names(spool) == ["a"]
            assert "the event a1.r1:2:0 can't pass" in caplog.text and "deadLetter channel" in caplog.text
        source.close()


class Ends(BaseException):
    """Ends the thread of a source."""


def test_a_source_whose_thread_ended_loses_no_file_that_comes_after_it(spool: Path, tmp_path: Path) -> None:
    """It numbered its batches from where its process had begun, and the channels took new files for what they had."""

    class EndsAt2(Interceptor):
        has_ended = False

        def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            if not self.has_ended and batch.column("body")[0].as_py() == b"2":
                self.has_ended = True
                raise Ends
            return batch

    add(spool, "a", b"1\n", age=2)
    add(spool, "b", b"2\n", age=1)
    with Channel(tmp_path / "c") as channel:
        with ChannelProcessor({"c": channel}, [EndsAt2()], producer="r1") as processor:
            source = SpoolDir(spool)
            source.open(processor)
            assert source.poll(processor) is Status.READY
            with pytest.raises(Ends):
                source.poll(processor)
            source.close()
            source.open(processor)
            while source.poll(processor) is Status.READY:
                pass
            source.close()
        assert peek(channel) == [b"1", b"2"]
