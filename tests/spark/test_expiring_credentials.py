"""Queries between channels in a store whose credentials expire while they run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from demo.cluster.moto import S3_ENVIRONMENT, make_bucket, moto_server
from tests.support.servers.expiring_s3 import ExpiringS3, token
from tests.support.spark.cluster import Driver, JobFailedError, driver
from tests.support.spark.versions import needs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    needs(4, 2, "the trigger availableNow in several batches"),
]

SOURCE, TARGET = "s3://bucket/source", "s3://bucket/target"
SECRET = "hunter2-key"  # without a word by which Spark hides it
SESSION_TOKENS = token(0).removesuffix("0")  # what all of them begin with
ROWS, ROWS_A_BATCH = 1_000, 100
CONFIGURATION = {"spark.master": "local[2]", "spark.ui.enabled": "false"}
PROVIDER = """
import datetime
from pathlib import Path

NEWEST = Path({newest!r})
KEY = {{"access_key_id": "k", "secret_access_key": {secret!r}}}

def factory(location):
    def credentials():  # of which a client asks for others five minutes before the end: each time
        expires_at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1)
        return {{**KEY, "token": NEWEST.read_text(), "expires_at": expires_at}}
    return credentials
"""


@pytest.fixture
def moto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an S3 with a bucket, and an environment with the first credentials."""
    with moto_server(tmp_path) as url:
        make_bucket(url, "bucket")
        credentials = {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": token(0)}
        environment = {**S3_ENVIRONMENT, **credentials, "AWS_ALLOW_HTTP": "true"}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("SPILLABLE_CREDENTIALS", raising=False)
        yield url


def put_rows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill the source, straight in the server, which checks no credentials."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with ss.Channel(SOURCE, schema=pa.schema([("id", pa.int64())])) as channel, channel.put_transaction() as tx:
        tx.put_batch(pa.record_batch({"id": pa.array(range(ROWS))}))


def move(by: Driver, checkpoint: Path) -> Any:
    return by.do("stream", source=SOURCE, target=TARGET, checkpoint=checkpoint, maxEventsPerTrigger=str(ROWS_A_BATCH))


def ids(url: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the rows of the target, in order."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with ss.Channel(TARGET, create=False) as channel, channel.take_transaction(group="check") as tx:
        return [row["id"] for row in tx.take_many(2 * ROWS)]


def logging_events(directory: Path) -> dict[str, str]:
    """Return the configuration of a session that writes its event log into a directory, as plain text."""
    directory.mkdir()
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    return {**CONFIGURATION, **events, "spark.eventLog.dir": directory.as_uri()}


def require_no_secret(checkpoint: Path, events: Path, driver_log: Path) -> None:
    """Require that none of a query's files shows a secret, whatever the files of Spark are called."""
    for place in (checkpoint, events, driver_log):
        files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
        written = b"".join(file.read_bytes() for file in files)
        assert written, f"{place} is empty"
        for secret in (SECRET, SESSION_TOKENS):
            assert secret.encode() not in written, f"{secret} is in {place}"


def test_a_query_whose_credentials_expire_says_so_and_continues_with_new_ones(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_rows(moto, monkeypatch)
    with ExpiringS3(moto, "/bucket/target", lasts=4) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
        events = logging_events(tmp_path / "events")
        with driver(tmp_path, events) as first, pytest.raises(JobFailedError) as raised:
            move(first, tmp_path / "checkpoint")
        require_no_secret(tmp_path / "checkpoint", tmp_path / "events", tmp_path / "driver.log")
        said = raised.value.explained
        assert "s3://bucket/" in said
        assert "(400 ExpiredToken): the credentials have expired: renew them, by AWS_ACCESS_KEY_ID" in said
        assert token(0) not in str(raised.value) and SECRET not in str(raised.value)
        assert s3.number == 1 and s3.refused
        there = ids(moto, monkeypatch)
        assert there == list(range(len(there))) and 0 < len(there) < ROWS and len(there) % ROWS_A_BATCH == 0

        s3.lasts = ROWS
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
        monkeypatch.setenv("AWS_SESSION_TOKEN", token(1))
        (tmp_path / "second").mkdir()
        with driver(tmp_path / "second", CONFIGURATION) as second:
            move(second, tmp_path / "checkpoint")
    assert ids(moto, monkeypatch) == list(range(len(there), ROWS))  # what the group has not taken yet


def test_a_query_whose_credentials_a_provider_renews_does_not_notice(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_rows(moto, monkeypatch)
    newest = tmp_path / "newest"

    def renew(number: int) -> None:
        other = newest.with_suffix(".new")
        other.write_text(token(number))
        other.replace(newest)  # whole at any time: a worker may read it now

    renew(0)
    (tmp_path / "company_vault.py").write_text(PROVIDER.format(newest=str(newest), secret=SECRET))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SPILLABLE_CREDENTIALS", "company_vault:factory")
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    with ExpiringS3(moto, "/bucket/target", lasts=3, overlap=2, on_next=renew) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
        with driver(tmp_path, logging_events(tmp_path / "events")) as only:
            assert move(only, tmp_path / "checkpoint") == ROWS // ROWS_A_BATCH
        require_no_secret(tmp_path / "checkpoint", tmp_path / "events", tmp_path / "driver.log")
        assert s3.number >= 3  # the first and the second credentials have expired meanwhile
        assert s3.refused == []
    assert ids(moto, monkeypatch) == list(range(ROWS))
