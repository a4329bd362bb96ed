"""A channel whose credentials lack a right: each call says so at once, in one sentence, and makes nothing by halves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from demo.cluster.moto import S3_ENVIRONMENT, make_bucket
from spillable_stream import Channel, CommitOutcomeUnknownError, NotAChannelError, StorageError, verify
from spillable_stream.objects import credentials
from spillable_stream.spark.datasource import SpillableDataSource
from tests.support.events import numbered, put, take
from tests.support.servers.refusing_s3 import RIGHTS, RefusingS3

_numbers = count(1)
_ALLOW = {"read": "s3:GetObject", "write": "s3:PutObject", "delete": "s3:DeleteObject", "list": "s3:ListBucket"}


@pytest.fixture
def s3(moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RefusingS3]:
    """An S3 whose credentials have all rights until a test takes some away; it gives them back in the end."""
    with RefusingS3(moto) as stub:
        for name, value in {**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": stub.url}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv(credentials.CREDENTIALS, raising=False)
        yield stub
        stub.lacks = ()


@pytest.fixture
def place(moto: str, s3: RefusingS3) -> str:
    """The address of a place without a channel."""
    bucket = f"lacking-{next(_numbers)}"
    make_bucket(moto, bucket)
    return f"s3://{bucket}/orders"


def says_so(error: BaseException, right: str) -> bool:
    """Tell whether an error names the right in one line."""
    text = str(error)
    return f"the credentials may not {right} there: allow {_ALLOW[right]}" in text and "\n" not in text


@pytest.mark.parametrize("right", RIGHTS)
def test_no_channel_is_created_without_a_right(s3: RefusingS3, place: str, right: str) -> None:
    s3.lacks = (right,)
    with pytest.raises(StorageError) as raised:
        Channel(place)
    assert says_so(raised.value, right) and s3.refused <= 2
    s3.lacks = ()
    with pytest.raises(NotAChannelError):
        Channel(place, create=False)


@pytest.mark.parametrize("right", ["read", "list"])
def test_no_channel_is_opened_without_a_right_that_it_needs(s3: RefusingS3, place: str, right: str) -> None:
    Channel(place).close()
    s3.lacks = (right,)
    for readonly in (False, True):
        with pytest.raises(StorageError) as raised:
            Channel(place, create=False, readonly=readonly)
        assert says_so(raised.value, right)
    assert s3.refused == 2


def test_a_put_that_may_not_be_proven_says_so_at_once_and_is_not_doubled(s3: RefusingS3, place: str) -> None:
    with Channel(place, commit_interval=0) as channel:
        put(channel, b"before")
        s3.lacks = ("read",)
        with pytest.raises(CommitOutcomeUnknownError, match="the store refuses to tell") as raised:
            put(channel, b"stored")
        assert says_so(raised.value, "read") and s3.refused == 2
        for _ in range(2):
            with pytest.raises(StorageError) as raised:
                put(channel, b"not stored")
            assert says_so(raised.value, "read")
        s3.lacks = ()
        put(channel, b"after")
        assert take(channel) == [b"before", b"stored", b"after"]
    assert not verify(place).findings


@pytest.mark.parametrize("right", ["write", "delete", "list"])
def test_a_right_that_is_taken_away_ends_no_call_that_does_not_need_it(s3: RefusingS3, place: str, right: str) -> None:
    with Channel(place, commit_interval=0) as channel:
        put(channel, *numbered(0, 3))
        s3.lacks = (right,)
        assert channel.stats().channel_size == 3
        if right == "write":
            with pytest.raises(StorageError) as raised:
                put(channel, b"refused")
            assert says_so(raised.value, right) and s3.refused == 1 and raised.value.stored_nothing
        else:
            put(channel, b"3")
            assert take(channel) == numbered(0, 4) and not s3.refused


def test_a_handle_that_only_looks_needs_to_read_and_to_list(
    s3: RefusingS3, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Channel(place, retention_ms=3_600_000) as channel:
        put(channel, *numbered(0, 3))
    s3.lacks = ("write", "delete")
    with caplog.at_level(logging.INFO), Channel(place, create=False, readonly=True) as channel:
        assert channel.stats().channel_size == 3
        assert [body for batch in channel.read() for body in batch.column("body").to_pylist()] == numbered(0, 3)
    assert not verify(place).findings
    assert not s3.refused and not caplog.text


def test_a_batch_read_of_spark_needs_no_more(s3: RefusingS3, place: str, caplog: pytest.LogCaptureFixture) -> None:
    with Channel(place, retention_ms=3_600_000) as channel:
        put(channel, *numbered(0, 3))
    s3.lacks = ("write", "delete")
    with caplog.at_level(logging.INFO):
        source = SpillableDataSource({"path": place})
        reader = source.reader(source.schema())
        read = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [body for batch in read for body in batch.column("body").to_pylist()] == numbered(0, 3)
    assert not s3.refused and not caplog.text
    assert "spillable upkeep" not in [thread.name for thread in threading.enumerate()]
