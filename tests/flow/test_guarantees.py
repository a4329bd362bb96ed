"""What docs/flow.md promises: the tests that hold each row of its table, and those of whole paths."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.channel import ChannelSink
from spillable_stream.flow.sinks.http import HttpSink
from spillable_stream.flow.sinks.logger import Logger
from spillable_stream.flow.sinks.null import Null
from spillable_stream.flow.sources.base import Status

TESTS = Path(__file__).parent.parent

HELD_BY = {
    "taildir, spooldir → required channels": [
        "flow/sources/test_taildir_restarts::test_a_crash_at_any_commit_leaves_each_line_once_in_both_channels",
        "flow/sources/test_taildir::test_a_full_second_channel_gets_each_line_once_though_the_batch_is_put_again",
        "flow/sources/test_spooldir::test_a_batch_that_only_one_channel_has_is_put_again_after_a_crash",
        "crash/test_flow_kill::test_an_agent_that_is_killed_at_any_moment_writes_each_line_once",
    ],
    "http with a key → required channels": [
        "flow/sources/test_http::test_a_request_with_a_key_is_stored_once_in_each_channel",
        "flow/sources/test_client_numbers::test_a_number_that_one_channel_has_goes_to_the_other_only",
    ],
    "http without a key, netcat with answers → channels": [
        "flow/sources/test_http::test_a_request_is_one_batch_and_is_answered_when_it_is_stored",
        "flow/sources/test_http::test_a_full_channel_is_answered_with_503_and_when_to_come_again",
        "flow/sources/test_netcat::test_each_line_is_an_event_and_is_answered_when_it_is_stored",
        "flow/sources/test_netcat::test_a_refused_batch_is_answered_with_the_reason",
    ],
    "exec, netcat without answers, syslog, datagrams → channels": [
        "flow/sources/test_held::test_a_batch_is_held_until_it_is_stored",
        "flow/sources/test_held::test_what_a_stopped_source_held_is_put_in_order_by_the_one_in_its_place_and_counts_there",
        "flow/test_handing_over::test_what_was_read_while_the_channel_was_closed_comes_in_order",
        "flow/test_handing_over::test_what_no_source_takes_over_is_counted_and_named",
        "flow/sources/test_exec::test_a_full_channel_holds_the_batch_and_the_pipe_is_not_read",
        "flow/sources/test_netcat::test_without_answers_a_refused_batch_is_held_until_it_is_stored",
        "flow/sources/test_datagrams::test_what_is_there_is_one_batch_and_a_failure_does_not_end_the_source",
    ],
    "any source, Spark → optional channels": [
        "flow/test_part_puts::test_an_optional_channel_that_is_full_is_passed_over_without_waiting",
        "flow/test_processor::test_an_optional_channel_never_gets_a_batch_twice",
        "flow/sources/test_client_numbers::test_an_optional_channel_gets_a_number_once_or_not_at_all",
    ],
    "channel → file_roll, hdfs, parquet": [
        "flow/sinks/test_file_roll::test_a_crash_at_any_step_writes_each_event_once",
        "flow/sinks/test_hdfs_crashes::test_a_crash_at_any_step_leaves_each_event_once_in_closed_files",
        "flow/sinks/test_on_s3::test_each_event_is_once_in_an_object_though_the_sink_dies",
        "flow/sinks/test_parquet::test_events_are_rows_and_are_committed_when_the_file_is_closed",
        "crash/test_flow_kill::test_an_agent_that_is_killed_at_any_moment_writes_each_line_once",
    ],
    "channel → channel, http": [
        "flow/test_guarantees::test_an_http_sink_that_dies_before_its_commit_posts_the_event_again_under_its_id",
        "flow/test_guarantees::test_a_channel_sink_that_dies_before_its_commit_puts_the_batch_again",
        "flow/sinks/test_http::test_a_server_that_does_not_answer_gets_the_event_again",
    ],
    "channel → logger, null": [
        "flow/test_guarantees::test_a_sink_that_dies_before_its_commit_gets_the_events_again",
    ],
    "any sink → its dead letters": [
        "flow/sinks/test_letter_box::test_events_that_are_letters_count_as_written_after_a_crash",
        "flow/sinks/test_http::test_a_dead_letter_is_there_once_though_its_take_was_not_committed",
        "flow/sinks/test_hdfs_crashes::test_a_dead_letter_is_there_once_though_the_sink_dies_before_its_commit",
    ],
    "Spark → flow → required channels": [
        "spark/sink/test_flow_writer::test_rows_go_where_the_flow_leads_and_a_repetition_changes_nothing",
        "spark/sink/test_flow_writer::test_a_batch_that_failed_in_one_channel_is_completed_by_its_repetition",
        "spark/sink/test_flow_writer::test_a_batch_that_some_channels_have_is_not_completed_by_another_configuration",
        "spark/sink/test_flow_writer::test_a_batch_is_refused_that_a_channel_has_which_the_file_named_otherwise",
        "spark/sink/test_flow_writer::test_a_stream_and_a_chain_on_a_real_spark",
    ],
}


def test_each_row_of_the_table_is_held_by_tests_that_are_there() -> None:
    table = (TESTS.parent / "docs" / "flow.md").read_text().partition("## What is promised")[2]
    rows = re.findall(r"^\| (.*? → .*?) \| ", table, re.MULTILINE)
    assert rows[1:] == list(HELD_BY)
    missing = []
    for name in {name for names in HELD_BY.values() for name in names}:
        module, _, test = name.partition("::")
        tree = ast.parse((TESTS / f"{module}.py").read_text())
        if test not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(name)
    assert not missing


# ── channels to sinks that can't tell what they have ────────────────────────────────────────


class Server(BaseHTTPRequestHandler):
    got: list[tuple[bytes, str]]

    def do_POST(self) -> None:
        self.got.append((self.rfile.read(int(self.headers["Content-Length"])), self.headers["Spillable-Event-Id"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[bytes, str]]]]:
    got: list[tuple[bytes, str]] = []
    listening = HTTPServer(("127.0.0.1", 0), type("Kept", (Server,), {"got": got}))
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}/", got
    listening.shutdown()
    listening.server_close()


@pytest.fixture
def channel(open_channel: Callable[..., Channel]) -> Channel:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"one"), Event(b"two")])
    return channel


def dies_before_its_commit(sink: Sink, channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sink do what it does until it would commit its take, and nothing after that."""

    def die(*_: object) -> None:
        raise StorageError("it dies")

    sink.open(channel)
    with monkeypatch.context() as patched:
        patched.setattr(TakeTransaction, "commit", die)
        with pytest.raises(StorageError, match="it dies"):
            sink.process()


def drain(sink: Sink, channel: Channel) -> None:
    sink.open(channel)
    while sink.process() is Status.READY:
        pass
    sink.close()


def test_an_http_sink_that_dies_before_its_commit_posts_the_event_again_under_its_id(
    server: tuple[str, list[tuple[bytes, str]]], channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, got = server
    answers = {"2XX": False}
    dies_before_its_commit(HttpSink(endpoint, rollback=answers, backoff=answers), channel, monkeypatch)
    assert channel.stats().channel_size == 2
    drain(HttpSink(endpoint, rollback=answers, backoff=answers), channel)
    first, second = (b"one", f"{channel.uuid}/1"), (b"two", f"{channel.uuid}/2")
    assert got == [first, first, second]
    assert channel.stats().channel_size == 0


def test_a_channel_sink_that_dies_before_its_commit_puts_the_batch_again(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = ChannelSink(str(tmp_path / "other"))
    dies_before_its_commit(dying, channel, monkeypatch)
    dying.close()
    drain(ChannelSink(str(tmp_path / "other")), channel)
    with Channel(tmp_path / "other", create=False) as other, other.take_transaction() as tx:
        assert [e.body for e in tx.take_many(9)] == [b"one", b"two"] * 2
    assert channel.stats().channel_size == 0


@pytest.mark.parametrize("kind", [Logger, Null])
def test_a_sink_that_dies_before_its_commit_gets_the_events_again(
    kind: type[Logger] | type[Null],
    channel: Channel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="spillable_stream.flow.events")
    dies_before_its_commit(kind(), channel, monkeypatch)
    assert channel.stats().channel_size == 2
    drain(kind(), channel)
    assert channel.stats().channel_size == 0
    if kind is Logger:
        assert [r.getMessage()[-4:-2] for r in caplog.records].count("ne") == 2
