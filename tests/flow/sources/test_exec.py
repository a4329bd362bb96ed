from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.errors import ChannelFullError, OptionError, StorageError
from spillable_stream.flow.sources import exec as exec_module
from spillable_stream.flow.sources.event_columns import event_batch
from spillable_stream.flow.sources.exec import Exec
from spillable_stream.flow.sources.held import lose_unstored
from tests.support.flow_processors import KeptBatches, Routed
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


def run(command: str, **options: Any) -> KeptBatches:
    kept, source = KeptBatches(), Exec(command, **options)
    source.start(kept)
    wait_until(lambda: source.finished)
    assert source.alive
    source.stop()
    return kept


def test_each_line_is_an_event_in_batches() -> None:
    kept = run("seq 45", batch_timeout=60_000)
    assert kept.bodies() == [str(i).encode() for i in range(1, 46)]
    assert [b.num_rows for b in kept.batches[0]] == [20, 20, 5]


def test_small_batches_of_one_read_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made each by itself, those that were read behind a full channel held up a stop for half a minute."""
    made: list[int] = []

    def make(bodies: Any) -> Any:
        made.append(len(bodies))
        return event_batch(bodies)

    monkeypatch.setattr(exec_module, "event_batch", make)
    kept = run("seq 1001", batch_size=2)
    assert [b.num_rows for b in kept.batches[0]] == [2] * 500 + [1]
    assert kept.bodies() == [str(i).encode() for i in range(1, 1002)]
    assert sum(made) == 1001 and len(made) < 50


def test_without_a_shell_quotes_mean_nothing_and_with_one_they_do() -> None:
    assert run("echo 'a b'").bodies() == [b"'a b'"]
    assert run("echo 'a  b' | cat; printf end", shell="/bin/sh -c").bodies() == [b"a  b", b"end"]


def test_lines_stay_in_their_character_set_and_lose_their_ends_of_either_kind() -> None:
    assert run(r"printf '\344\r\n\nx\r'", shell="/bin/sh -c", charset="ISO-8859-1").bodies() == [b"\xe4", b"", b"x"]


@pytest.mark.parametrize(("command", "shell"), [("ls a\0b", None), ("ls a\0b", "/bin/sh -c"), ("ls", "/bin/\ud800 -c")])
def test_a_command_that_no_process_can_get_is_refused(command: str, shell: str | None) -> None:
    with pytest.raises(OptionError):
        Exec(command, shell=shell)


def test_a_command_that_ended_is_started_again() -> None:
    kept, source = KeptBatches(), Exec("echo x", restart=True, restart_throttle=1)
    source.start(kept)
    wait_until(lambda: len(kept.bodies()) >= 3)
    source.stop()
    assert set(kept.bodies()) == {b"x"}


def test_a_command_that_is_gone_when_it_is_to_start_again_is_missed_and_its_source_has_ended_not_finished(
    tmp_path: Path,
) -> None:
    command = tmp_path / "once"
    command.write_text("#!/bin/sh\nrm $0\necho x\n")
    command.chmod(0o755)
    kept, source = KeptBatches(), Exec(str(command), restart=True, restart_throttle=1)
    source.start(kept)
    wait_until(lambda: not source.alive)
    assert not source.finished, "a supervisor starts it again"
    with pytest.raises(OptionError, match="can't be started"):
        source.start(kept)
    command.write_text("#!/bin/sh\necho y\n")
    command.chmod(0o755)
    source.start(kept)
    wait_until(lambda: kept.bodies()[:2] == [b"x", b"y"])
    source.stop()
    (missed,) = source.missed
    assert missed.startswith(f"the command '{command}' can't be started")


def test_a_smaller_batch_is_put_after_the_timeout() -> None:
    kept, source = KeptBatches(), Exec("echo x; exec sleep 1000", shell="/bin/sh -c", batch_timeout=10)
    source.start(kept)
    wait_until(lambda: kept.bodies() == [b"x"])
    source.stop()


def test_a_full_channel_holds_the_batch_and_the_pipe_is_not_read(tmp_path: Path) -> None:
    """The command writes more than a pipe and one read hold, and notes how far it got."""
    got = tmp_path / "got"
    script = f"i=0; while [ $i -lt 300 ]; do printf '%01023d\\n' $i; i=$((i+1)); echo $i > {got}; done"
    kept = KeptBatches()
    kept.full = {0}
    source = Exec(script, shell="/bin/sh -c", batch_timeout=0)
    source.start(kept)
    wait_until(lambda: source.counters.channel_write_fail >= 3)
    assert int(got.read_text() or 0) < 300
    kept.full = set()
    wait_until(lambda: source.finished)
    source.stop()
    assert [int(b) for b in kept.bodies()] == list(range(300))


def test_the_whole_process_group_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_module, "_END_SECONDS", 0.2)
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 1000 & echo $! > {pids}; echo $$ >> {pids}; echo up; wait; sleep 1000"
    kept, source = KeptBatches(), Exec(script, shell="/bin/bash -c", batch_timeout=0)
    source.start(kept)
    wait_until(lambda: kept.bodies() == [b"up"])
    source.stop()
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: not _runs(pid))


def test_the_command_ends_with_it_though_a_channel_does_not_answer(tmp_path: Path) -> None:
    pid, go_on, hangs = tmp_path / "pid", threading.Event(), threading.Event()

    class Hanging(KeptBatches):
        def deliver(self, routed: Routed) -> None:
            hangs.set()
            go_on.wait()
            super().deliver(routed)

    kept, source = Hanging(), Exec(f"echo $$ > {pid}; echo up; sleep 1000", shell="/bin/sh -c", batch_timeout=0)
    source.start(kept)
    try:
        assert hangs.wait(60)
        stop = threading.Thread(target=source.stop, daemon=True)
        stop.start()
        wait_until(lambda: not _runs(int(pid.read_text())))
        assert stop.is_alive()
    finally:
        go_on.set()
    stop.join(60)
    assert kept.bodies() == [b"up"]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


def test_what_it_prints_to_standard_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spillable_stream.flow")
    run("echo trouble >&2", shell="/bin/sh -c", log_std_err=True)
    wait_until(lambda: "standard error: trouble" in caplog.text)


@pytest.mark.parametrize(("status", "level"), [(0, "INFO"), (127, "WARNING")])
def test_a_command_that_fails_is_a_warning_that_says_how_to_see_why(
    caplog: pytest.LogCaptureFixture, status: int, level: str
) -> None:
    caplog.set_level("INFO", "spillable_stream.flow")
    run(f"exit {status}", shell="/bin/sh -c")
    (found,) = (r for r in caplog.records if f"ended with status {status}" in r.getMessage())
    assert (found.levelname, "logStdErr = true" in found.getMessage()) == (level, status != 0)


def test_a_command_that_a_stop_ends_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spillable_stream.flow")
    source = Exec("sleep 1000")
    source.start(KeptBatches())
    source.stop()
    assert [r.levelname for r in caplog.records if "ended with status" in r.getMessage()] == ["INFO"]


@pytest.mark.parametrize("options", [{"command": " "}, {"command": "x", "charset": "none"}])
def test_a_wrong_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Exec(**options)


def test_a_command_that_is_not_there_is_refused_at_the_start() -> None:
    with pytest.raises(OptionError, match="no-such-command"):
        Exec("no-such-command -x").start(KeptBatches())


def test_a_stop_gives_a_batch_up_that_a_channel_refuses_and_does_not_wait_for_room_once_more() -> None:
    source = Exec("yes", batch_size=10)
    attempts: list[int] = []

    class Full(KeptBatches):
        def deliver(self, routed: Routed) -> None:
            attempts.append(routed.batch.num_rows)
            source._stopping.set()
            raise ChannelFullError("full")

    source.start(Full())
    wait_until(lambda: not source.alive)
    source.stop()
    assert attempts == [10]


def test_a_stop_puts_what_the_command_has_printed_and_nobody_has_read(tmp_path: Path) -> None:
    kept = Held()
    source = stopped_behind_a_line(kept, tmp_path)
    assert kept.bodies() == [b"1", *(b"%d" % i for i in range(3000))]
    assert not source.finished, "its command would have gone on"


def test_a_stop_counts_what_the_command_has_printed_where_a_channel_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Held()
    kept.full = {0}
    source = stopped_behind_a_line(kept, tmp_path)
    lose_unstored(source)
    assert "3,001 events are not stored, and lost" in caplog.text
    assert source.counters.flume_counters()["EventReceivedCount"] == 3001


class Held(KeptBatches):
    """Holds its first batch until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.holds, self.go_on = threading.Event(), threading.Event()

    def deliver(self, routed: Routed) -> None:
        self.holds.set()
        self.go_on.wait()
        super().deliver(routed)


def stopped_behind_a_line(kept: Held, place: Path) -> Exec:
    """Return a source that was stopped while its first line was being put, and its command had printed 3,000 more."""
    script = f"echo 1; while [ ! -e {place}/read ]; do sleep 0.01; done; seq 0 2999; touch {place}/printed; sleep 1000"
    source = Exec(script, shell="/bin/sh -c", batch_timeout=0)
    source.start(kept)
    assert kept.holds.wait(60)
    (place / "read").touch()
    wait_until((place / "printed").exists)
    stop_and_go_on(source, kept)
    return source


def stop_and_go_on(source: Exec, kept: Held) -> None:
    """Stop a source while it puts, and then let it."""
    stop = threading.Thread(target=source.stop, daemon=True)
    stop.start()
    wait_until(source._stopping.is_set)
    kept.go_on.set()
    stop.join(60)


def test_a_command_that_had_ended_before_the_stop_is_finished_though_its_last_lines_wait() -> None:
    kept, source = Held(), Exec("echo 1", batch_timeout=0)
    source.start(kept)
    wait_until(lambda: kept.holds.is_set() and source._process is not None and source._process.poll() is not None)
    stop_and_go_on(source, kept)
    assert source.finished and kept.bodies() == [b"1"]


def test_a_command_that_had_ended_before_the_stop_is_finished_though_what_waits_fills_the_pipe(tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"
    script = f"echo 1; while [ ! -e {go_on} ]; do sleep 0.01; done; head -c 65536 /dev/zero"
    kept, source = Held(), Exec(script, shell="/bin/sh -c", batch_timeout=0)
    source.start(kept)
    wait_until(kept.holds.is_set)
    go_on.touch()
    wait_until(lambda: source._process is not None and source._process.poll() is not None)
    stop_and_go_on(source, kept)
    assert source.finished and kept.bodies() == [b"1", bytes(65_536)]


@pytest.mark.parametrize("refused", [0, 1])
def test_a_command_for_which_there_is_no_thread_ends_again(refused: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the one that reads its output, nor that which reads its standard error."""
    source, spawned, popen = Exec("sleep 600", log_std_err=not refused), [], subprocess.Popen

    def noted(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        spawned.append(popen(*args, **options))
        return spawned[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    with no_threads(), pytest.raises(StorageError, match=r"can't start .*raise this user's limit"):
        source.start(KeptBatches())
    assert [process.returncode for process in spawned] == [-signal.SIGTERM]
    assert not source.alive
    source.stop()


def test_what_has_no_line_feed_for_long_is_cut_and_not_kept_in_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exec_module, "_LONGEST_LINE_BYTES", 100_000)
    kept = run("head -c 500000 /dev/zero; echo; echo short", shell="/bin/sh -c")
    *cut, rest, short = kept.bodies()
    assert b"".join([*cut, rest]) == bytes(500_000) and short == b"short"
    assert all(100_000 <= len(body) < 200_000 for body in cut)
    assert "has printed more than 100,000 bytes without a line feed" in caplog.text


def test_what_was_cut_is_put_at_once_though_its_batch_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a thousand of them would be in memory at once."""
    monkeypatch.setattr(exec_module, "_LONGEST_LINE_BYTES", 100_000)
    kept = run("head -c 500000 /dev/zero", batch_size=1000, batch_timeout=600_000)
    assert len(kept.batches[0]) == len(kept.bodies()) > 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_command_ends_with_the_thread_that_reads_it() -> None:
    """Else the next start would run a second one beside it."""

    class Interrupted(KeptBatches):
        def deliver(self, routed: Routed) -> None:
            raise KeyboardInterrupt

    source = Exec("echo 1; exec sleep 1000", shell="/bin/sh -c", batch_timeout=0)
    source.start(Interrupted())
    assert source._process is not None
    wait_until(lambda: not source.alive)
    assert source._process.poll() is not None
    source.stop()


def test_commands_that_follow_one_another_while_a_channel_refuses_are_not_run_before_it_takes_what_is_held() -> None:
    """Each start anew added what its command printed at once, and memory filled for as long as the channel failed."""
    refusing, runs = KeptBatches(full={0}), list[str]()

    class Noted(Exec):
        def _spawn(self) -> subprocess.Popen[bytes]:
            runs.append("")
            return super()._spawn()

    def started(before: Exec | None) -> Exec:
        source = Noted("echo 1; exec sleep 1000", shell="/bin/sh -c", batch_timeout=0)
        if before is not None:
            source.succeed(before, is_at_end=False)
        source.start(refusing)
        return source

    source = started(None)
    for _ in range(3):
        wait_until(lambda source=source: source.counters.channel_write_fail)
        source.stop()
        assert source.unstored.events == 1
        source = started(source)
    assert len(runs) == 1
    refusing.full = set()
    wait_until(lambda: refusing.bodies() == [b"1", b"1"])
    source.stop()
    assert len(runs) == 2
