"""A put, a producer, a worker and a spool whose credentials expire: each says so, and goes on with new ones."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from demo.cluster.moto import S3_ENVIRONMENT, make_bucket
from spillable_stream import Channel, Event, Producer, SendFailedError, StorageError, register_credentials, verify
from spillable_stream.objects import credentials
from spillable_stream.objects.location import Location
from tests.support.events import numbered, put, take
from tests.support.servers.expiring_s3 import ExpiringS3, token
from tests.support.store_limits import SetLimits

SAYS = "(400 ExpiredToken): the credentials have expired: renew them, by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
SECRETS = (token(0), token(1), S3_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"])
_numbers = count(1)
Renew = Callable[[], None]


@pytest.fixture
def s3(moto: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[ExpiringS3]:
    """An S3 whose credentials stay valid until `expire`; in the end no log record has had one of them."""
    with ExpiringS3(moto, "/nowhere", lasts=1) as stub:
        for name, value in {**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": stub.url, "AWS_SESSION_TOKEN": token(0)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv(credentials.CREDENTIALS, raising=False)
        monkeypatch.setattr(credentials, "_factories", {})
        with caplog.at_level(logging.DEBUG):
            yield stub
    assert stub.refused
    assert not [secret for secret in SECRETS if secret in caplog.text]


@pytest.fixture
def place(moto: str, s3: ExpiringS3) -> str:
    """The address of a channel that is there."""
    bucket = f"expiring-{next(_numbers)}"
    make_bucket(moto, bucket)
    Channel(f"s3://{bucket}/orders").close()
    return f"s3://{bucket}/orders"


@pytest.fixture
def renew(s3: ExpiringS3, monkeypatch: pytest.MonkeyPatch) -> Renew:
    """Give the environment the newest credentials, which handles that are opened from now on use."""
    return lambda: monkeypatch.setenv("AWS_SESSION_TOKEN", token(s3.number))


def says_so(error: BaseException | str) -> bool:
    """Tell whether a text says what to do, in one line without a secret."""
    text = str(error)
    return SAYS in text and "\n" not in text and not [secret for secret in SECRETS if secret in text]


@pytest.fixture(autouse=True)
def no_owner_is_waited_for(set_limits: SetLimits) -> None:
    set_limits(answer_seconds=0)


def opened(place: str, **options: object) -> Channel:
    """Open a channel that waits for no interval."""
    return Channel(place, create=False, commit_interval=0, **options)  # type: ignore[arg-type]


def all_in(place: str) -> list[bytes]:
    assert not verify(place).findings
    with opened(place) as channel:
        return take(channel, group="check", limit=1_000)


def test_a_put_is_refused_in_one_sentence_and_stores_nothing(s3: ExpiringS3, place: str, renew: Renew) -> None:
    with opened(place) as channel:
        put(channel, b"before")
        s3.expire()
        with pytest.raises(StorageError) as raised:
            put(channel, b"refused")
        assert says_so(raised.value) and str(raised.value).endswith("; nothing was committed")
    renew()
    with opened(place) as channel:
        put(channel, b"after")
    assert all_in(place) == [b"before", b"after"]


def test_a_take_that_could_not_be_committed_is_taken_again(s3: ExpiringS3, place: str, renew: Renew) -> None:
    with opened(place) as channel:
        put(channel, *numbered(0, 4))
        assert take(channel, limit=1) == numbered(0, 1)
        with pytest.raises(StorageError) as raised, channel.take_transaction() as tx:
            assert len(tx.take_many(2)) == 2
            s3.expire()
        assert says_so(raised.value)
    renew()
    with opened(place) as channel:
        assert take(channel) == numbered(1, 3)


def test_a_producer_says_so_and_what_it_sends_again_is_stored_once(s3: ExpiringS3, place: str, renew: Renew) -> None:
    options = {"producer_id": "p", "retries": 1, "base_retry_backoff_ms": 1, "max_retry_backoff_ms": 1}
    with opened(place) as channel, Producer(channel, **options) as producer:
        producer.send_many([b"0"], sequence=1).result(60)
        s3.expire()
        with pytest.raises(SendFailedError) as raised:
            producer.send_many([b"1"], sequence=2).result(60)
        assert says_so(raised.value)
        assert not raised.value.result.in_doubt and "is not known" not in str(raised.value)
    renew()
    with opened(place) as channel, Producer(channel, **options) as producer:
        for number, body in enumerate(numbered(0, 3), 1):
            producer.send_many([body], sequence=number)
    assert all_in(place) == [b"0", b"1", b"2"]


def test_a_worker_ends_with_the_sentence_and_the_next_one_calls_the_rest(
    s3: ExpiringS3, place: str, renew: Renew, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[bytes] = []

    def work(event: Event) -> None:
        called.append(event.body)
        if len(called) == 3:
            s3.expire()

    with opened(place) as channel:
        put(channel, *numbered(0, 6))
        with pytest.raises(StorageError) as raised:
            channel.worker("w", work).run()
        assert says_so(raised.value)
    known = len(called)
    renew()
    with opened(place) as channel:
        worker = channel.worker("w", lambda event: called.append(event.body))
        worker.run(until_empty=True)
        assert channel.stats().groups["w"].lag == 0
    assert set(called) == set(numbered(0, 6)) and called[known:] == sorted(called[known:])
    assert "the former worker was killed, or could not say how it ended" in caplog.text


def test_a_spool_keeps_what_was_put_and_the_next_handle_ships_it_once(
    s3: ExpiringS3, place: str, renew: Renew, tmp_path: Path
) -> None:
    options = {"durability": "local", "spool": tmp_path / "spool", "minimum_required_space": 0}
    channel = opened(place, **options)
    put(channel, b"0")
    channel.flush()
    s3.expire()
    put(channel, b"1")
    with pytest.raises(StorageError) as raised:
        channel.flush()
    assert says_so(raised.value)
    with pytest.raises(StorageError, match=r"Nothing is lost, and this put stored nothing") as raised:
        put(channel, b"2")
    assert says_so(raised.value) and says_so(channel.stats().spool.trouble)
    assert channel.stats().spool.events == 1
    channel.close()
    renew()
    with opened(place, **options) as channel:
        put(channel, b"3")
        channel.flush()
    assert all_in(place) == [b"0", b"1", b"3"]


def test_a_producer_with_a_spool_says_so_too(s3: ExpiringS3, place: str, tmp_path: Path) -> None:
    with (
        opened(place, durability="local", spool=tmp_path / "spool", minimum_required_space=0) as channel,
        Producer(channel, retries=0, linger_ms=0) as producer,
    ):
        producer.send(b"0").result(60)
        s3.expire()
        put(channel, b"1")
        with pytest.raises(StorageError):
            channel.flush()
        with pytest.raises(SendFailedError) as raised:
            producer.send(b"2").result(60)
        assert says_so(raised.value) and not raised.value.result.in_doubt


def test_a_spool_whose_provider_gives_others_continues_by_itself(
    s3: ExpiringS3, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = [0]

    def factory(_: Location) -> Callable[[], dict[str, object]]:
        def given() -> dict[str, object]:  # of which a client asks for others five minutes before the end: each time
            ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
            return {"access_key_id": "k", "secret_access_key": "s", "token": token(newest[0]), "expires_at": ends}

        return given

    register_credentials("company", factory)
    monkeypatch.setenv(credentials.CREDENTIALS, "company")
    with opened(place, durability="local", spool=tmp_path / "spool", minimum_required_space=0) as channel:
        put(channel, b"0")
        channel.flush()
        s3.expire()
        put(channel, b"1")
        with pytest.raises(StorageError):
            channel.flush()
        newest[0] = s3.number
        deadline = time.monotonic() + 60
        while channel.stats().spool.trouble:  # its thread tries again
            assert time.monotonic() < deadline
            time.sleep(0.01)
        put(channel, b"2")
    assert all_in(place) == [b"0", b"1", b"2"]
