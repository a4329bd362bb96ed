from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pyarrow as pa
import pytest

from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sources.http import Http
from tests.support.flow_processors import KeptBatches
from tests.support.waiting import wait_until


@contextmanager
def listening(kept: KeptBatches, **options: Any) -> Iterator[tuple[Http, httpx.Client]]:
    source = Http(0, bind="127.0.0.1", **options)
    source.start(kept)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{source.port}", timeout=30, trust_env=False) as client:
            yield source, client
    finally:
        source.stop()


EVENTS = [{"headers": {"a": "1"}, "body": "one"}, {"body": "ü"}, {"headers": {}}]


@pytest.mark.parametrize("charset", ["", "utf-8", "UTF-16", "utf-32"])
def test_a_request_is_one_batch_and_is_answered_when_it_is_stored(charset: str) -> None:
    kept = KeptBatches()
    headers = {"Content-Type": f"application/json; charset={charset}" if charset else "application/json"}
    with listening(kept) as (_, client):
        body = json.dumps(EVENTS, ensure_ascii=False).encode(charset or "utf-8")
        assert client.post("/", content=body, headers=headers).status_code == 200
    assert kept.bodies() == [b"one", "ü".encode(), b""]
    assert kept.headers() == [{"a": "1"}, {}, {}]
    assert len(kept.batches[0]) == 1


def test_get_is_taken_as_post_at_any_path() -> None:
    kept = KeptBatches()
    with listening(kept) as (_, client):
        assert client.request("GET", "/any/path", content=json.dumps(EVENTS[:1])).status_code == 200
    assert kept.bodies() == [b"one"]


@pytest.mark.parametrize("body", ["{", '{"body": "x"}', '[{"body": 1}]', '[{"headers": {"a": 1}}]', ""])
def test_a_malformed_request_is_answered_with_400_and_why(body: str) -> None:
    kept = KeptBatches()
    with listening(kept) as (source, client):
        answer = client.post("/", content=body)
        assert answer.status_code == 400
        assert "is not a JSON array" in answer.text
        assert source.counters.flume_counters()["EventReadFail"] == 1
        other = client.post("/", content="[]", headers={"Content-Type": "text/plain; charset=EBCDIC"})
        assert other.status_code == 400
    assert kept.batches[0] == []


def test_a_full_channel_is_answered_with_503_and_when_to_come_again() -> None:
    kept = KeptBatches()
    kept.full = {0}
    with listening(kept) as (_, client):
        answer = client.post("/", content=json.dumps(EVENTS))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


@pytest.mark.parametrize("error", [StorageError("the disk refused"), RuntimeError("a bug")])
def test_any_other_failure_is_answered_with_500(error: Exception) -> None:
    class Fails(KeptBatches):
        def process(self, batch: pa.RecordBatch, **_: Any) -> None:
            raise error

    with listening(Fails()) as (_, client):
        answer = client.post("/", content=json.dumps(EVENTS))
        assert answer.status_code == 500
        assert str(error) in answer.text


def test_a_request_with_a_key_is_stored_once() -> None:
    kept = KeptBatches()
    with listening(kept) as (_, client):
        for number in (1, 1, 2, 1):
            content = json.dumps([{"body": str(number)}])
            answer = client.post("/", content=content, headers={"Idempotency-Key": f"client/7/{number}"})
            assert answer.status_code == 200
        for key in ("1", "client/", "/1", "client/x", "client/0"):
            assert client.post("/", content="[]", headers={"Idempotency-Key": key}).status_code == 400
    assert kept.bodies() == [b"1", b"2"]


def test_a_blob_is_the_body_as_it_is_with_the_parameters_as_headers() -> None:
    kept = KeptBatches()
    options = {"handler": "org.apache.flume.sink.solr.morphline.BlobHandler"}
    with listening(kept, **options, handler_properties={"mandatoryParameters": "a, b"}) as (_, client):
        assert client.post("/?a=1&b=2", content=b"\x00\xff").status_code == 200
        assert client.post("/?a=1", content=b"x").status_code == 400
    assert kept.bodies() == [b"\x00\xff"]
    assert kept.headers() == [{"a": "1", "b": "2"}]
    with listening(kept, **options) as (_, client):
        assert client.post("/", content=b"no parameters").status_code == 200


def test_a_stop_answers_the_requests_under_way() -> None:
    release, answers = threading.Event(), []

    class Slow(KeptBatches):
        def process(self, batch: pa.RecordBatch, **keywords: Any) -> None:
            release.wait(30)
            super().process(batch, **keywords)

    kept = Slow()
    with listening(kept) as (source, client):
        post = threading.Thread(target=lambda: answers.append(client.post("/", content=json.dumps(EVENTS)).status_code))
        post.start()
        wait_until(lambda: source.counters.event_received_count == 3)
        stop = threading.Thread(target=source.stop)
        stop.start()
        release.set()
        stop.join(30)
        post.join(30)
    assert answers == [200]
    assert len(kept.bodies()) == 3


def test_a_port_in_use_and_an_unknown_handler_are_refused() -> None:
    with listening(KeptBatches()) as (source, _), pytest.raises(StorageError, match="cannot listen"):
        Http(source.port, bind="127.0.0.1").start(KeptBatches())
    with pytest.raises(OptionError, match="handler"):
        Http(0, handler="com.acme.Handler")
