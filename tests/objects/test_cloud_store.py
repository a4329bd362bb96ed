"""A store in a cloud, against servers that fail: what is told, what is repeated, and that no secret ever shows."""

from __future__ import annotations

import base64
import hashlib
import pickle
import signal
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice

import pytest

from spillable_stream import register_credentials
from spillable_stream.objects import cloud_clients, cloud_listing, cloud_store
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.cloud_clients import RequestTimeouts
from spillable_stream.objects.cloud_store import PART_BYTES, CloudStore
from spillable_stream.objects.location import Location
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.store import ObjectMissingError, StoreError, uploading
from tests.support.cloud_stores import AZURE, GOOGLE, LOCATIONS, S3, SECRET, Answer, error_of, failing, impatient
from tests.support.interrupts import interrupt_main
from tests.support.servers.gcs_stub import GcsStub
from tests.support.servers.http_stub import HttpStub, Request, Response
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("cloud_settings", "no_secret_is_logged")


@LOCATIONS
@pytest.mark.parametrize(
    ("status", "code", "words", "may_have_happened"),
    [
        (403, "AccessDenied", "may not write there: allow", False),
        (403, "", "may not write there: allow", False),
        (403, "SignatureDoesNotMatch", "or they have expired: check", False),
        (401, "", "or they have expired: check", False),
        (400, "ExpiredToken", "have expired", False),
        (403, "RequestTimeTooSkewed", "clock of this host", False),
        (404, "NoSuchBucket", "'bucket' does not exist: create it", False),
        (404, "ContainerNotFound", "'bucket' does not exist: create it", False),
        (404, "", "'bucket' does not exist: create it", False),
        (301, "PermanentRedirect", "another region", False),
        (400, "AuthorizationHeaderMalformed", "another region", False),
        (501, "NotImplemented", "only if there is none", False),
        (400, "KMS.DisabledException", "a key that can't be used", False),
        (413, "", "larger than the store allows", False),
        (400, SECRET, "refused the request", False),
        (500, "InternalError", "busy, or failed inside", True),
        (503, "SlowDown", "busy, or failed inside", True),
    ],
)
def test_a_creation_that_the_store_refuses_says_why_and_whether_it_may_have_happened(
    serve: Callable[[Answer], HttpStub], location: Location, status: int, code: str, words: str, may_have_happened: bool
) -> None:
    stub = serve(failing(status, code))
    error = error_of(lambda: CloudStore(location).create("log/1", b"data"))
    assert words in str(error) and f"{location}/log/1" in str(error)
    assert error.may_have_happened is may_have_happened
    assert error.is_lasting is not may_have_happened
    assert len(stub.requests) == 1, "a creation is sent once, whatever comes back"


@LOCATIONS
@pytest.mark.parametrize("status", [409, 412])
def test_a_creation_that_finds_an_object_or_a_conflict_is_false(
    serve: Callable[[Answer], HttpStub], location: Location, status: int
) -> None:
    stub = serve(failing(status))
    assert CloudStore(location).create("log/1", b"data") is False
    (request,) = stub.requests
    assert request.method == "PUT" and request.path.endswith("/bucket/orders/log/1") and request.body == b"data"
    assert request.headers.get("if-none-match") == "*" or request.headers.get("x-goog-if-generation-match") == "0"


def holding(put: Answer) -> Answer:
    """Return what answers with an object to a GET, and as given to a PUT."""
    about = {"etag": '"one"', "x-goog-generation": "7", "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
    return lambda request: Response(200, b"first", about) if request.method == "GET" else put(request)


@LOCATIONS
@pytest.mark.parametrize("status", [404, 409, 412])
def test_a_change_is_sent_under_the_condition_that_the_object_is_what_was_read(
    serve: Callable[[Answer], HttpStub], location: Location, status: int
) -> None:
    stub = serve(holding(failing(status)))
    assert impatient(location).change("channel.json", lambda data: bytes(data) + b", second") is False
    _, request, *_ = stub.requests
    assert (request.method, request.body) == ("PUT", b"first, second")
    assert request.headers.get("if-match") == '"one"' or request.headers.get("x-goog-if-generation-match") == "7"


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_change_is_sent_under_the_bare_etag_to_a_store_that_compares_its_quotes(
    serve: Callable[[Answer], HttpStub], is_changed: bool
) -> None:
    """Ceph does up to version 16 at least, and so does DigitalOcean, which is made of it."""

    def compare_as_sent(request: Request) -> Response | None:
        if request.headers["if-match"] != ("two" if is_changed else "one"):
            return failing(412, "PreconditionFailed")(request)
        return Response(200, headers={"etag": '"three"'})

    stub = serve(holding(compare_as_sent))
    assert impatient(S3).change("channel.json", lambda _: b"second") is not is_changed
    assert [r.headers.get("if-match") for r in stub.requests] == [None, '"one"', None, "one"]
    assert {r.body for r in stub.requests if r.method == "PUT"} == {b"second"}


@LOCATIONS
def test_a_change_is_sent_without_a_condition_to_a_store_that_refuses_conditions(
    serve: Callable[[Answer], HttpStub], location: Location
) -> None:
    def refuse_conditions(request: Request) -> Response | None:
        if {"if-match", "x-goog-if-generation-match"} & set(request.headers):
            return failing(501, "NotImplemented")(request)
        return Response(200, headers={"etag": '"two"', "x-goog-generation": "8"})

    stub = serve(holding(refuse_conditions))
    assert impatient(location).change("channel.json", lambda _: b"second") is True
    assert (stub.requests[-1].method, stub.requests[-1].body) == ("PUT", b"second")


@LOCATIONS
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_store_that_refuses_conditions_is_read_once_more_before_an_object_is_replaced(
    serve: Callable[[Answer], HttpStub], location: Location, is_removed: bool
) -> None:
    reads = 0

    def another_meanwhile(request: Request) -> Response | None:
        nonlocal reads
        if request.method == "PUT":
            return failing(501, "NotImplemented")(request)
        reads += 1
        if reads == 1:
            return holding(failing(501))(request)
        if is_removed:
            return failing(404)(request)
        return Response(200, b"another", {"etag": '"two"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"})

    stub = serve(another_meanwhile)
    assert impatient(location).change("channel.json", lambda _: b"second") is False
    assert [request.method for request in stub.requests] == ["GET", "PUT", "GET"]


@LOCATIONS
@pytest.mark.parametrize(
    ("status", "code"),
    [(409, "BlobImmutableDueToPolicy"), (412, "LeaseIdMissing"), (403, "ObjectUnderActiveHold"), (409, "BlobArchived")],
)
def test_a_creation_that_finds_an_object_which_is_protected_or_archived_is_false(
    serve: Callable[[Answer], HttpStub], location: Location, status: int, code: str
) -> None:
    """What is not there can't be, so it is another writer's, or one's own: whoever appends has to look."""
    serve(failing(status, code))
    assert CloudStore(location).create("log/1", b"data") is False


@LOCATIONS
def test_a_creation_that_is_told_that_the_store_is_asked_too_often_looks_once_whether_the_object_is_there(
    serve: Callable[[Answer], HttpStub], location: Location
) -> None:
    stub = serve(failing(429, "SlowDown"))
    error = error_of(lambda: CloudStore(location).create("log/1", b"data"))
    assert error.is_limited and error.may_have_happened and "busy, or failed inside" in str(error)
    assert [request.method for request in stub.requests] == ["PUT", "GET"]


def test_a_creation_that_comes_too_soon_after_another_ones_is_false_and_one_after_a_deletion_is_open(
    gcs: GcsStub,
) -> None:
    """Google takes one change of an object a second: whoever tried again until then would fall ever further behind."""
    gcs.write_seconds = 60.0
    store = CloudStore(GOOGLE)
    assert store.create("log/1", b"data")
    assert store.create("log/1", b"other") is False
    gcs.objects.clear()
    error = error_of(lambda: store.create("log/1", b"other"))
    assert error.is_limited and error.may_have_happened and "429" in str(error)
    assert [request.method for request in gcs.requests] == ["PUT", "PUT", "GET", "PUT", "GET"]


@LOCATIONS
def test_a_creation_whose_connection_breaks_may_have_happened_and_is_not_sent_again(
    serve: Callable[[Answer], HttpStub], location: Location
) -> None:
    stub = serve(lambda _: None)
    error = error_of(lambda: CloudStore(location).create("log/1", b"data"))
    assert error.may_have_happened and not error.is_lasting and "the connection broke" in str(error)
    assert len(stub.requests) == 1


@LOCATIONS
def test_a_creation_that_nobody_answers_may_have_happened(
    serve: Callable[[Answer], HttpStub], location: Location
) -> None:
    end = threading.Event()

    def hang(_: Request) -> None:
        end.wait(60)

    stub = serve(hang)
    error = error_of(
        lambda: CloudStore(location, timeouts=RequestTimeouts(create_seconds=0.2)).create("log/1", b"data")
    )
    end.set()
    assert error.may_have_happened and not error.is_lasting and "no answer in time" in str(error)
    wait_until(lambda: stub.requests)  # on a busy machine it comes late
    assert len(stub.requests) == 1


@LOCATIONS
def test_a_store_without_a_route_cannot_be_reached(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    error = error_of(lambda: CloudStore(location).create("log/1", b"data"))
    assert error.may_have_happened and "can't be reached" in str(error)
    assert "can't be reached" in str(error_of(lambda: impatient(location).get("log/1")))


@LOCATIONS
def test_an_address_with_a_password_that_leads_nowhere_is_not_shown(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"):
        monkeypatch.setenv(name, f"https://user:{SECRET}@[bad")
    error_of(lambda: impatient(location).create("log/1", b"data"))
    error_of(lambda: impatient(location).get("log/1"))


@LOCATIONS
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "may not {right} there: allow"),
        (404, "NoSuchBucket", "'bucket' does not exist"),
        (500, "InternalError", "busy, or failed inside"),
        (401, "", "does not accept them"),
        (409, "BlobImmutableDueToPolicy", "a lease, a hold or a retention policy"),
        (403, "InvalidObjectState", "has been archived"),
        (403, "KeyVaultEncryptionKeyNotFound", "a key that can't be used"),
    ],
)
def test_every_other_request_says_why_it_was_refused(
    serve: Callable[[Answer], HttpStub], location: Location, status: int, code: str, words: str
) -> None:
    serve(failing(status, code))
    store = impatient(location)

    def upload(size: int) -> None:
        upload = store.upload("segments/1")
        upload.write(bytes(size))
        upload.finish()

    asked: list[tuple[str, Callable[[], object]]] = [
        ("write", lambda: store.replace("log/1", b"data")),
        ("write", lambda: upload(10)),
        ("write", lambda: upload(PART_BYTES + 1)),
        ("read", lambda: store.get("log/1")),
        ("read", lambda: store.get_range("log/1", 0, 10)),
        ("delete", lambda: store.delete("log/1")),
        ("list", lambda: list(store.list("log/"))),
    ]
    for right, ask in asked:
        error = error_of(ask)
        assert words.format(right=right) in str(error), (right, str(error))
        assert not isinstance(error, ObjectMissingError)


@LOCATIONS
def test_what_is_not_a_creation_is_repeated(serve: Callable[[Answer], HttpStub], location: Location) -> None:
    answers = [Response(500), Response(503), None]
    headers = {"etag": '"x"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
    stub = serve(lambda _: answers.pop() if answers else Response(200, b"data", headers))
    assert bytes(CloudStore(location).get("log/1")) == b"data"
    assert len(stub.requests) == 4


@LOCATIONS
def test_a_busy_store_that_says_when_to_come_back_is_asked_again_and_a_creation_left_to_its_caller(
    serve: Callable[[Answer], HttpStub], location: Location
) -> None:
    busy = Response(503, b"", {"retry-after": "1"})
    answers = [busy, busy]
    headers = {"etag": '"x"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
    stub = serve(lambda _: answers.pop() if answers else Response(200, b"data", headers))
    error = error_of(lambda: CloudStore(location).create("log/1", b"data"))
    assert error.may_have_happened and not error.is_lasting and "try again later" in str(error)
    assert len(stub.requests) == 1
    assert bytes(CloudStore(location).get("log/1")) == b"data"
    assert len(stub.requests) == 3 and not answers


@LOCATIONS
def test_a_silent_store_is_asked_again(serve: Callable[[Answer], HttpStub], location: Location) -> None:
    end = threading.Event()
    headers = {"etag": '"x"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}

    def first_in_silence(_: Request) -> Response | None:
        if len(stub.requests) > 1:
            return Response(200, b"data", headers)
        end.wait(60)
        return None

    stub = serve(first_in_silence)
    assert bytes(CloudStore(location, timeouts=RequestTimeouts(silence_seconds=0.2)).get("log/1")) == b"data"
    end.set()
    assert len(stub.requests) >= 2, "and again, where an answer took as long"


FOUND = Response(
    200, b"data", {"etag": '"x"', "x-goog-generation": "7", "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
)


@pytest.fixture
def restarting(serve: Callable[[Answer], HttpStub], monkeypatch: pytest.MonkeyPatch) -> HttpStub:
    """A store that answers twice, is away for three requests, and answers again; clients send each once."""
    monkeypatch.setattr(cloud_clients, "_REPEATS", 0)
    return (stub := serve(lambda _: Response(503) if 2 < len(stub.requests) < 6 else FOUND))


@LOCATIONS
@pytest.mark.parametrize("ask", ["get", "replace", "change", "upload"])
def test_a_store_that_has_answered_is_waited_for_while_it_restarts(
    restarting: HttpStub, location: Location, ask: str
) -> None:
    def upload(store: CloudStore) -> None:
        with uploading(store, "log/1") as body:
            body.write(b"data")

    asks: dict[str, Callable[[CloudStore], object]] = {
        "get": lambda store: store.get("log/1"),
        "replace": lambda store: store.replace("log/1", b"data"),
        "change": lambda store: store.change("log/1", lambda _: b"new"),
        "upload": upload,
    }
    store = CloudStore(location)
    store.get("log/1")
    store.get("log/1")
    asks[ask](store)
    assert len(restarting.requests) == 6 + (ask == "change")


@pytest.mark.parametrize("removed", [0, 1, 4])
def test_a_listing_is_waited_for_while_the_store_restarts_in_its_midst(
    gcs: GcsStub, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    """The client's own listing ends at an error: what it gives after that is nothing."""
    monkeypatch.setattr(cloud_listing, "_PAGE", 3)
    monkeypatch.setattr(cloud_clients, "_REPEATS", 0)
    store = CloudStore(GOOGLE)
    keys = [f"log/{number}" for number in range(8)]
    for key in keys:
        store.replace(key, b"data")
    listing = store.list("log/")
    found = [next(listing).key for _ in range(3)]
    answer, before = gcs.answer, len(gcs.requests)
    gcs.answer = lambda request: Response(503) if len(gcs.requests) < before + 3 else answer(request)
    if removed:
        del gcs.objects["bucket", f"orders/log/{removed}"]
    rest = [info.key for info in listing]
    left = [key for key in keys if not removed or key != f"log/{removed}"]
    assert rest == left, "it begins anew, and keeps nothing of what it has told"
    assert found == keys[:3]
    assert len(gcs.requests) > before + 3, "it was away"


def test_a_listing_of_a_store_that_fails_in_its_midst_each_time_ends_with_the_error(
    gcs: GcsStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_listing, "_PAGE", 3)
    monkeypatch.setattr(cloud_clients, "_REPEATS", 0)
    monkeypatch.setattr(cloud_store, "_RESTART_SECONDS", 0.1)
    store = CloudStore(GOOGLE)
    for number in range(8):
        store.replace(f"log/{number}", b"data")
    answer = gcs.answer
    gcs.answer = lambda request: Response(503) if "continuation-token" in request.query else answer(request)
    with pytest.raises(StoreError, match="busy, or failed inside"):
        list(islice(store.list("log/"), 100))


def test_a_listing_keeps_nothing_of_what_it_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    page = [{"path": f"orders/log/{n:020}", "size": 1, "last_modified": datetime.now(UTC)} for n in range(1000)]
    store = CloudStore(S3)

    def pages(*_: object, **__: object) -> Iterator[list[dict[str, object]]]:
        for number in range(12):
            yield [found | {"path": f"{found['path']}-{number}"} for found in page]

    monkeypatch.setattr(store._obstore, "list", pages)
    listing, sizes = store.list("log/"), list[int]()
    tracemalloc.start()
    try:
        for _ in range(10):
            assert len(list(islice(listing, 1000))) == 1000
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[1] < 50_000, "eight pages of keys take ten times as much"


@LOCATIONS
def test_a_store_that_has_not_answered_yet_is_told_to_be_away_soon(
    serve: Callable[[Answer], HttpStub], location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_clients, "_REPEATS", 0)
    stub = serve(lambda _: Response(503) if len(stub.requests) < 3 else FOUND)
    store = CloudStore(location)
    assert not error_of(lambda: store.get("log/1")).is_lasting
    assert not error_of(lambda: list(store.list("log/"))).is_lasting
    assert len(stub.requests) == 2


@LOCATIONS
def test_a_creation_is_sent_once_also_to_a_store_that_restarts(restarting: HttpStub, location: Location) -> None:
    store = CloudStore(location)
    store.get("log/1")
    store.get("log/1")
    assert error_of(lambda: store.create("log/1", b"data")).may_have_happened
    assert len(restarting.requests) == 3


@LOCATIONS
def test_a_task_knows_that_a_store_has_answered_whoever_sent_it(restarting: HttpStub, location: Location) -> None:
    store = CloudStore(location)
    store.get("log/1")
    store.get("log/1")
    for there in (pickle.loads(pickle.dumps(store)), open_store(location, has_answered=True)):
        assert bytes(there.get("log/1")) == b"data"
        assert len(restarting.requests) == 6
        del restarting.requests[2:]


@LOCATIONS
def test_an_interrupt_ends_the_wait_for_a_store(
    restarting: HttpStub, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    store = CloudStore(location)
    store.get("log/1")
    store.get("log/1")
    monkeypatch.setattr(cloud_store, "Backoff", partial(Backoff, sleep=interrupt))
    with pytest.raises(KeyboardInterrupt):
        store.get("log/1")
    assert len(restarting.requests) == 3


@LOCATIONS
@pytest.mark.parametrize("ask", ["get", "create", "list"])
def test_ctrl_c_does_not_wait_for_a_silent_store_which_its_traceback_names(
    serve: Callable[[Answer], HttpStub], location: Location, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    monkeypatch.setattr(cloud_store, "_LONG_SECONDS", 0.0)
    silence = threading.Event()

    def interrupt(_: Request) -> None:
        interrupt_main()
        silence.wait(60)

    serve(interrupt)
    store = CloudStore(location)
    asks: dict[str, Callable[[], object]] = {
        "get": lambda: store.get("log/1"),
        "create": lambda: store.create("log/1", b"data"),
        "list": lambda: list(store.list("log/1")),
    }
    with pytest.raises(KeyboardInterrupt) as raised:
        asks[ask]()
    silence.set()
    place = f"{location}/log" if ask == "list" else f"{location}/log/1"
    assert raised.value.__notes__ == [f"{place} had no answer from the store for 0 s"]
    assert raised.value.__context__ is None, "which could show a credential"


@LOCATIONS
def test_what_a_signals_handler_raises_is_not_taken_for_an_answer_of_the_store(
    serve: Callable[[Answer], HttpStub], location: Location
) -> None:
    """Limits of time in schedulers of tasks raise an `Exception`, which a caller that tries again would swallow."""
    silence = threading.Event()

    def time_out(*_: object) -> None:
        raise TimeoutError("of the task")

    def send(_: Request) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        silence.wait(60)

    serve(send)
    before = signal.signal(signal.SIGUSR1, time_out)
    try:
        with pytest.raises(TimeoutError, match="of the task"):
            CloudStore(location).get("log/1")
    finally:
        silence.set()
        signal.signal(signal.SIGUSR1, before)


@LOCATIONS
def test_a_body_that_is_cut_short_is_an_error_and_no_object(
    serve: Callable[[Answer], HttpStub], location: Location
) -> None:
    headers = {"etag": '"x"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
    serve(lambda _: Response(200, bytes(100), headers, cut=50))
    error = error_of(lambda: impatient(location).get("log/1"))
    assert not isinstance(error, ObjectMissingError) and not error.is_lasting


def test_what_is_written_has_the_checksum_that_the_environment_asks_for(
    serve: Callable[[Answer], HttpStub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 wants one of whatever it locks as it is written."""
    monkeypatch.setenv("AWS_CHECKSUM_ALGORITHM", "SHA256")
    stub = serve(lambda _: Response(200, headers={"etag": '"x"'}))
    store = CloudStore(S3)
    store.create("log/1", b"data")
    store.replace("hint", b"data")
    upload = store.upload("segments/1")
    upload.write(b"data")
    upload.finish()
    sums = {request.headers.get("x-amz-checksum-sha256") for request in stub.requests}
    assert sums == {base64.b64encode(hashlib.sha256(b"data").digest()).decode()}
    assert len(stub.requests) == 3


def test_one_part_is_sent_as_its_bytes_and_not_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client asks each part of a list for its bytes, with Python's lock held."""
    store, sent = CloudStore(Location("s3", "bucket", "orders")), list[object]()
    monkeypatch.setattr(store._obstore, "put", lambda _, __, body, **___: sent.append(body))
    store.create("log/1", [b"one"])
    store.create("log/2", [b"one", b"two"])
    assert sent == [b"one", [b"one", b"two"]]


@LOCATIONS
def test_an_interrupt_is_not_an_answer(
    serve: Callable[[Answer], HttpStub], location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(lambda _: Response(200))
    store = CloudStore(location)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store._obstore, "put", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.create("log/1", b"data")


@LOCATIONS
def test_a_panic_of_the_client_is_an_error_that_leaves_it_open(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rust's panics are no `Exception`, so nobody above would catch one."""
    store = CloudStore(location)

    def panic(*_: object, **__: object) -> None:
        raise type("PanicException", (BaseException,), {})(SECRET)

    monkeypatch.setattr(store._obstore, "put", panic)
    error = error_of(lambda: store.create("log/1", b"data"))
    assert error.may_have_happened and not error.is_lasting


@pytest.mark.parametrize("key", ["a//b", "a/../b"])
def test_a_key_that_no_store_has_is_refused(gcs: GcsStub, key: str) -> None:
    error = error_of(lambda: CloudStore(GOOGLE).create(key, b""))
    assert error.is_lasting and not error.may_have_happened and not gcs.requests


# ── credentials ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("location", "mapping", "header", "value"),
    [
        (S3, {"access_key_id": "AKID", "secret_access_key": SECRET, "token": "t"}, "authorization", "Credential=AKID/"),
        (AZURE, {"token": "the-token"}, "authorization", "Bearer the-token"),
        (GOOGLE, {"token": "the-token"}, "authorization", "Bearer the-token"),
    ],
    ids=["s3", "az", "gs"],
)
def test_the_provider_that_the_environment_names_is_asked_for_credentials(
    serve: Callable[[Answer], HttpStub],
    location: Location,
    mapping: dict[str, str],
    header: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    stub = serve(lambda _: Response(200, headers={"etag": '"x"'}))
    register_credentials("company", lambda _: lambda: mapping)
    monkeypatch.setenv("SPILLABLE_CREDENTIALS", "company")
    assert CloudStore(location).create("log/1", b"data")
    assert value in stub.requests[0].headers[header]


@LOCATIONS
def test_a_provider_that_fails_is_named_without_its_words(
    serve: Callable[[Answer], HttpStub], location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = serve(lambda _: Response(200, headers={"etag": '"x"'}))

    def fail() -> dict[str, str]:
        raise RuntimeError(SECRET)

    register_credentials("company", lambda _: fail)
    monkeypatch.setenv("SPILLABLE_CREDENTIALS", "company")
    error = error_of(lambda: CloudStore(location).create("log/1", b"data"))
    assert "the provider of credentials failed: call it by itself" in str(error)
    assert not error.may_have_happened and not error.is_lasting and not stub.requests


@LOCATIONS
def test_a_pickle_has_the_location_only(serve: Callable[[Answer], HttpStub], location: Location) -> None:
    serve(lambda _: Response(200, headers={"etag": '"x"'}))
    store = CloudStore(location)
    assert store.create("log/1", b"data")
    pickled = pickle.dumps(store)
    assert SECRET.encode() not in pickled and b"obstore" not in pickled and b"127.0.0.1" not in pickled
    assert SECRET not in repr(store) + repr(vars(store))
    back = pickle.loads(pickled)
    assert back.root == store.root == str(location) and back.create("log/1", b"data")
