"""A channel in a bucket that refuses for a while, and in buckets with versions, locks, policies and rules."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from demo.cluster.moto import S3_ENVIRONMENT
from spillable_stream import Channel, Event, StorageError, UnsafeStoreError, verify
from spillable_stream.engine.store import object_checkpointing
from spillable_stream.objects import credentials
from spillable_stream.objects.checkpoints import HINT
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.location import Location
from spillable_stream.objects.slots import LOG, slot_key
from tests.support.events import numbered, put, take
from tests.support.servers.azurite import azure_environment, break_lease, lease_blob, make_container
from tests.support.servers.gcs_stub import GcsStub
from tests.support.servers.radosgw import rgw_environment
from tests.support.servers.refusing_s3 import RefusingS3
from tests.support.threads import in_threads

Set = Callable[[dict[str, str]], None]
_numbers = count(1)


@pytest.fixture(autouse=True)
def trims_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each slot that nobody needs be worth a record."""
    monkeypatch.setattr(object_checkpointing, "_WORTH_A_TRIM", 1)


@pytest.fixture
def s3(moto: str, set_environment: Set, monkeypatch: pytest.MonkeyPatch) -> Iterator[RefusingS3]:
    """An S3 that refuses nothing until a test says what; nor at the end."""
    with RefusingS3(moto) as stub:
        set_environment({**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": stub.url})
        monkeypatch.delenv(credentials.CREDENTIALS, raising=False)
        yield stub
        stub.lacks = ()


def client_of(url: str, environment: dict[str, str]) -> Any:
    """Return a client that configures buckets."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


@pytest.fixture
def buckets(moto: str) -> Any:
    """A client that configures the buckets of the S3."""
    return client_of(moto, S3_ENVIRONMENT)


@pytest.fixture
def ceph_buckets(radosgw: str, set_environment: Set, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client that configures the buckets of a Ceph cluster, in which this test's channels are."""
    set_environment(rgw_environment(radosgw))
    monkeypatch.delenv(credentials.CREDENTIALS, raising=False)
    return client_of(radosgw, rgw_environment(radosgw))


def new_bucket(buckets: Any, **more: Any) -> str:
    name = f"rules-{next(_numbers)}"
    buckets.create_bucket(Bucket=name, **more)
    return name


@pytest.fixture
def place(s3: RefusingS3, buckets: Any) -> str:
    """The address of a place without a channel."""
    return f"s3://{new_bucket(buckets)}/orders"


def collecting(place: str) -> Channel:
    """Return a channel each of whose checkpoints deletes all that it may."""
    return Channel(place, commit_interval=0, gc_delay=0)


def use(channel: Channel, times: int) -> set[str]:
    """Put an event, take it, and create a checkpoint, so often; return what the checkpoints raised."""
    said = set[str]()
    for n in range(times):
        put(channel, b"%d" % n)
        assert take(channel) == [b"%d" % n]
        try:
            channel.checkpoint()
        except StorageError as e:
            said.add(str(e).partition(": ")[2])
    return said


def keys(place: str, prefix: str = "") -> list[str]:
    return [info.key for info in CloudStore(Location.parse(place)).list(prefix)]


# ── it refuses for a while ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "RequestTimeTooSkewed", "the clock of this host"),
        (301, "PermanentRedirect", "is in another region: set AWS_REGION"),
        (403, "AccessDenied", "kms:GenerateDataKey"),
        (400, "KMS.DisabledException", "a key that can't be used: enable it"),
        (400, "ExpiredToken", "have expired"),
        (400, "InvalidRequest", "set AWS_CHECKSUM_ALGORITHM=SHA256"),
    ],
)
def test_a_put_that_is_refused_says_why_at_once_and_stores_nothing_and_the_next_one_succeeds(
    s3: RefusingS3, place: str, status: int, code: str, words: str
) -> None:
    with Channel(place, commit_interval=0) as channel:
        put(channel, b"before")
        s3.lacks, s3.refusal = ("write",), (status, code)
        with pytest.raises(StorageError) as raised:
            put(channel, b"refused")
        assert words in str(raised.value) and "\n" not in str(raised.value)
        assert raised.value.stored_nothing and s3.refused == 1
        s3.lacks = ()
        put(channel, b"after")
        assert take(channel) == [b"before", b"after"]
    assert verify(place).healthy


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (409, "ConditionalRequestConflict"),
        (503, "SlowDown"),
        (429, "TooManyRequests"),
        (400, "RequestTimeout"),
        (400, "ThrottlingException"),
        (500, "InternalError"),
    ],
)
def test_a_put_that_is_put_off_is_stored_once(s3: RefusingS3, place: str, status: int, code: str) -> None:
    with Channel(place, commit_interval=0) as channel:
        put(channel, b"before")
        s3.lacks, s3.refusal, s3.times = ("write",), (status, code), 2
        put(channel, b"put off")
        assert s3.refused == 2
        assert take(channel) == [b"before", b"put off"]
    assert verify(place).healthy


def test_many_who_create_a_channel_at_once_and_put_share_it_where_an_object_changes_once_in_a_while(
    gcs: GcsStub,
) -> None:
    """Google takes one change of an object a second, and answers 429 to the rest: of slots and of the identity, too."""
    gcs.write_seconds = 0.2

    def work(number: int) -> None:
        with Channel("gs://bucket/orders", commit_interval=0) as channel:
            for n in range(3):
                put(channel, b"%d of %d" % (n, number))
            with channel.put_transaction() as tx:  # the first one of them writes over the identity
                tx.put(Event(b"late"), deliver_after=3600)

    assert in_threads(4, work) == [None] * 4
    assert gcs.throttled
    with Channel("gs://bucket/orders", create=False) as channel:
        found = take(channel, 100)
        assert sorted(found) == sorted(b"%d of %d" % (n, number) for n in range(3) for number in range(4))
        assert channel.stats().delayed.events == 4
    assert verify("gs://bucket/orders").healthy


def test_events_in_an_object_that_was_archived_are_taken_once_it_is_restored(s3: RefusingS3, place: str) -> None:
    with Channel(place, commit_interval=0, checkpoint_on_close=False) as channel:
        put(channel, *numbered(0, 3))
    s3.lacks, s3.refusal = ("read",), (403, "InvalidObjectState")
    s3.under = f"orders/{slot_key(1)}"
    with pytest.raises(StorageError, match="has been archived: restore it, and let no rule of the bucket"):
        Channel(place, create=False)
    s3.lacks = ()
    with Channel(place, create=False) as channel:
        assert take(channel) == numbered(0, 3)


# ── rules of the bucket ─────────────────────────────────────────────────────────────────────────


MAY_NOT_DELETE = {"the credentials may not delete there: allow s3:DeleteObject"}


def test_objects_that_may_not_be_deleted_stay_and_go_once_they_may(
    s3: RefusingS3, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting(place) as channel:
        assert not use(channel, 2)
        s3.lacks = ("delete",)
        assert use(channel, 4) == MAY_NOT_DELETE
        channel.engine().checkpointing.monotonic = lambda: time.monotonic() + 3600  # type: ignore[attr-defined]
        with caplog.at_level(logging.WARNING):
            put(channel, b"4")  # a checkpoint is due, of which the put knows nothing
        assert (
            "objects that nobody needs stay until the store lets them go, which costs storage only: deleting"
            in caplog.text
        )
        stayed = len(keys(place))
        s3.lacks = ()
        assert take(channel) == [b"4"] and not use(channel, 3)
        assert len(keys(place)) < stayed
    assert verify(place).healthy


def test_a_policy_that_denies_deletions_only_ends_no_put_and_no_take(ceph_buckets: Any) -> None:
    bucket = new_bucket(ceph_buckets)
    place = f"s3://{bucket}/orders"
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    with collecting(place) as channel:
        assert not use(channel, 2)
        ceph_buckets.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
        assert use(channel, 4) == MAY_NOT_DELETE
        stayed = len(keys(place))
        ceph_buckets.delete_bucket_policy(Bucket=bucket)
        assert not use(channel, 3)
        assert len(keys(place)) < stayed
    assert verify(place).healthy


def test_what_somebody_leases_stays_and_what_is_behind_it_until_the_lease_ends(
    azurite: str, set_environment: Set
) -> None:
    container = f"rules-{next(_numbers)}"
    set_environment(azure_environment(azurite))
    make_container(azurite, container)
    place = f"az://{container}/orders"
    with collecting(place) as channel:
        assert not use(channel, 1)
        for key in (HINT, slot_key(1)):
            lease_blob(azurite, container, f"orders/{key}")
        (said,) = use(channel, 4)
        assert said.startswith("a lease, a hold or a retention policy keeps the object as it is")
        assert slot_key(0) not in keys(place) and {slot_key(1), slot_key(2)} <= set(keys(place))
        break_lease(azurite, container, f"orders/{slot_key(1)}")
        assert not use(channel, 3)
        assert slot_key(1) not in keys(place)
    assert verify(place).healthy


def test_a_bucket_that_keeps_versions_is_one_like_any_other(s3: RefusingS3, buckets: Any) -> None:
    bucket = new_bucket(buckets)
    buckets.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    place = f"s3://{bucket}/orders"
    with collecting(place) as channel:
        use(channel, 5)
        assert slot_key(0) not in keys(place, LOG)
    assert verify(place).healthy
    markers = buckets.list_object_versions(Bucket=bucket, Prefix=f"orders/{slot_key(0)}")["DeleteMarkers"]
    assert len(markers) == 1


def test_a_store_that_ignores_conditions_where_it_keeps_versions_is_refused(ceph_buckets: Any) -> None:
    """Ceph's did in version 16; in a bucket without versions it does not."""
    bucket = new_bucket(ceph_buckets)
    ceph_buckets.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    with pytest.raises(UnsafeStoreError, match="writers that they had created the same object"):
        Channel(f"s3://{bucket}/orders")
