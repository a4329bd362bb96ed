"""Clients that the stores of a process share: where, for how long, and where not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from spillable_stream import register_credentials
from spillable_stream.objects import credentials, forked, shared_clients
from spillable_stream.objects.cloud_clients import CloudClients, RequestTimeouts
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.location import Location
from spillable_stream.objects.shared_clients import forget_clients
from spillable_stream.objects.store import StoreError
from tests.support.forks import in_child
from tests.support.servers.http_stub import HttpStub, Response

PLACE, BESIDE = Location.parse("s3://bucket/orders"), Location.parse("s3://bucket/deep/flights")
SECRET = "hunter2secret"
Serve = Callable[[Response], None]


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_factories", {})
    monkeypatch.setattr(shared_clients, "_shared", {})
    monkeypatch.delenv(credentials.CREDENTIALS, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Location]:
    """The locations for which clients were created."""
    locations: list[Location] = []
    real = shared_clients.make_clients

    def make(location: Location, timeouts: RequestTimeouts) -> CloudClients:
        locations.append(location)
        return real(location, timeouts)

    monkeypatch.setattr(shared_clients, "make_clients", make)
    return locations


def clients(location: Location = PLACE, at: float = 0.0) -> CloudClients:
    return shared_clients.shared_clients(location, RequestTimeouts(), lambda: at)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Run an S3 that gives everybody this answer."""
    with ExitStack() as stack:

        def serve(answer: Response) -> None:
            stub: HttpStub = stack.enter_context(HttpStub(lambda _: answer))
            monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)

        yield serve


def test_stores_of_a_bucket_share_what_is_created_once(serve: Serve, made: list[Location]) -> None:
    serve(Response(200, b"data", {"etag": '"x"', "last-modified": "Mon, 23 Nov 2026 12:00:00 GMT"}))
    for _ in range(3):
        for location in (PLACE, BESIDE):
            assert bytes(CloudStore(location).get("log/1")) == b"data"
    assert made == [PLACE]


def test_another_bucket_environment_or_timeout_has_clients_of_its_own(
    made: list[Location], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = clients()
    other = Location.parse("s3://other/orders")
    assert clients(other) is not first
    assert shared_clients.shared_clients(PLACE, RequestTimeouts(create_seconds=1.0)) is not first
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the next hour")
    assert clients() is not first
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    assert clients() is first
    assert made == [PLACE, other, PLACE, PLACE]


def test_each_location_has_its_providers_credentials_and_those_of_the_newest_one(
    made: list[Location], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(credentials.CREDENTIALS, "company")
    asked: list[Location] = []

    def factory(location: Location) -> Callable[[], dict[str, str]]:
        asked.append(location)
        return lambda: {"access_key_id": "key", "secret_access_key": SECRET}

    register_credentials("company", factory)
    first = clients(PLACE)
    assert clients(PLACE) is first and clients(BESIDE) is not first
    register_credentials("company", lambda location: factory(location))
    assert clients(PLACE) is not first
    assert set(asked) == {PLACE, BESIDE} and made == [PLACE, BESIDE, PLACE]


def test_a_factory_that_has_no_hash_is_known_by_what_it_is(
    made: list[Location], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(credentials.CREDENTIALS, "company")

    @dataclass
    class Company:
        region: str

        def __call__(self, location: Location) -> Callable[[], dict[str, str]]:
            return lambda: {"access_key_id": "key", "secret_access_key": SECRET}

    register_credentials("company", Company("eu"))
    first = clients(PLACE)
    assert clients(PLACE) is first
    register_credentials("company", Company("eu"))
    assert clients(PLACE) is not first


def test_a_variable_that_another_thread_takes_away_meanwhile_is_no_error(
    made: list[Location], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(dict[bytes, bytes]):
        def __iter__(self) -> Iterator[bytes]:
            return iter([*super().__iter__(), b"GONE"])

    monkeypatch.setattr(os, "environb", Gone(os.environb))
    assert clients() is clients()


def test_a_store_that_is_opened_minutes_later_has_new_ones(made: list[Location]) -> None:
    first = clients(at=0.0)
    assert clients(at=299.0) is first
    assert clients(at=301.0) is not first
    assert len(made) == 2


def test_no_more_than_some_are_kept(made: list[Location], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_clients, "_MOST_KEPT", 2)
    places = [Location.parse(f"s3://bucket-{number}/orders") for number in range(3)]
    for place in places:
        clients(place)
    clients(places[2])
    clients(places[0])
    assert made == [*places, places[0]]


@pytest.mark.parametrize(("code", "said"), [("ExpiredToken", "expired"), ("AccessDenied", "may not read")])
def test_credentials_that_are_refused_are_not_kept(serve: Serve, made: list[Location], code: str, said: str) -> None:
    """Those of a file may be others by now."""
    serve(Response(403, f"<Error><Code>{code}</Code></Error>".encode()))
    for _ in range(2):
        with pytest.raises(StoreError, match=said):
            CloudStore(PLACE).get("log/1")
    assert len(made) == 2


def test_a_missing_object_is_no_reason_to_make_new_ones(serve: Serve, made: list[Location]) -> None:
    serve(Response(404, b"<Error><Code>NoSuchKey</Code></Error>"))
    for _ in range(2):
        with pytest.raises(StoreError):
            CloudStore(PLACE).get("log/1")
    assert len(made) == 1


def test_what_cannot_be_created_is_tried_again(made: list[Location], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CHECKSUM_ALGORITHM", SECRET)
    for _ in range(2):
        with pytest.raises(StoreError, match="can't be opened with the settings"):
            clients()
    assert len(made) == 2
    monkeypatch.delenv("AWS_CHECKSUM_ALGORITHM")
    assert clients() is clients()


def test_threads_that_come_at_once_wait_for_one_that_makes_them(
    made: list[Location], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, began, go_on = shared_clients.make_clients, threading.Event(), threading.Event()

    def slow(location: Location, timeouts: RequestTimeouts) -> CloudClients:
        began.set()
        assert go_on.wait(60)
        return real(location, timeouts)

    monkeypatch.setattr(shared_clients, "make_clients", slow)
    found: list[CloudClients] = []
    threads = [threading.Thread(target=lambda: found.append(clients())) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert began.wait(60)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1 and len(made) == 1


def test_a_secret_is_in_no_key(made: list[Location]) -> None:
    clients()
    assert SECRET not in repr(shared_clients._shared)


def test_clients_that_are_forgotten_continue_for_those_that_have_them(made: list[Location]) -> None:
    first = clients()
    forget_clients(first)
    forget_clients(first)
    assert clients() is not first


def test_a_child_has_none_of_its_parents(made: list[Location]) -> None:
    clients()
    in_child(lambda: not shared_clients._shared)


class Dropped:
    """Clients that note that they were dropped, which in a forked child waits forever for threads of the parent."""

    count = 0

    def __del__(self) -> None:
        type(self).count += 1


def test_a_forked_child_has_new_clients_and_drops_none_of_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = shared_clients._Shared(0.0, None)
    shared.clients = Dropped()  # type: ignore[assignment]
    monkeypatch.setattr(forked._State, "pid", os.getpid())
    monkeypatch.setattr(shared_clients, "_shared", {"key": shared})
    del shared
    in_child(lambda: not shared_clients._shared and Dropped.count == 0)
