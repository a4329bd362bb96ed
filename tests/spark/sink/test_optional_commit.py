"""The commit of a micro-batch in optional channels: once, as a whole, and without a trace where it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import Event
from spillable_stream.engine.local.local_port import LocalPort
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.spark.sink import channel_commit, optional_commit
from spillable_stream.spark.sink.flow_writer import FlowStreamWriter
from tests.spark.sink.test_flow_plan import plan
from tests.spark.sink.test_flow_writer import staged, stored
from tests.spark.sink.test_optional_channels import LARGE, staged_of_may


@pytest.mark.parametrize("step", ["open", "commit"])
def test_of_a_micro_batch_that_an_optional_channel_refuses_no_staged_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = FlowStreamWriter(plan(tmp_path))
    found, publish, visit = staged(writer, [LARGE]), LocalPort.publish, channel_commit.visit
    failing = [step]

    def fail(port: LocalPort, *arguments: Any) -> bool:
        if Path(port._engine.path).name == "may":
            raise StorageError("the disk failed")
        return publish(port, *arguments)

    def fail_once(path: str, **options: Any) -> Any:
        if Path(path).name == "may" and failing:
            raise StorageError(f"the {failing.pop()} failed")
        return visit(path, **options)

    if step == "commit":
        monkeypatch.setattr(LocalPort, "publish", fail)
    else:
        monkeypatch.setattr(channel_commit, "visit", fail_once)
    assert len(staged_of_may(tmp_path)) == 1
    writer.commit(found, 1)
    assert "the optional channel may does not get the batch 1 (1 event): the " in caplog.text
    assert (stored(tmp_path)["ok"], stored(tmp_path)["may"]) == ([LARGE], [])
    assert staged_of_may(tmp_path) == []


def test_a_query_that_reads_an_optional_channel_of_its_flow_is_refused_before_any_channel_has_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = FlowStreamWriter(plan(tmp_path))
    found = staged(writer, [b"ERROR b"])
    for part in found[0].of_shards.values():
        part.query = "query"

    def refuse(channel: ss.Channel, query: str | None) -> None:
        if Path(str(channel.path)).name == "may":
            raise OptionError(f"the query {query} reads it")

    monkeypatch.setattr(optional_commit, "refuse_self_read", refuse)
    with pytest.raises(OptionError, match="the query query reads it"):
        writer.commit(found, 1)
    assert stored(tmp_path) == {"ok": [], "errors": [], "may": [], "dead": []}


def test_a_repeated_micro_batch_is_once_in_an_optional_channel(tmp_path: Path) -> None:
    for _ in range(2):
        writer = FlowStreamWriter(plan(tmp_path))
        writer.commit(staged(writer, [b"INFO a"]), 1)
    assert stored(tmp_path)["may"] == [b"INFO a"]
    with ss.Channel(tmp_path / "may") as may, may.put_transaction() as tx:
        tx.put(Event(b"open to others"))
