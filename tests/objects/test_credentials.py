"""Named providers of credentials."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import register_credentials
from spillable_stream.errors import OptionError
from spillable_stream.objects import credentials
from spillable_stream.objects.credentials import (
    CREDENTIALS,
    CredentialsProvider,
    FailedProviderError,
    chosen_provider,
    provider_of,
)
from spillable_stream.objects.location import Location
from tests.support.forks import in_child

PLACE = Location("s3", "bucket", "orders")
SECRET = "hunter2-secret"


@pytest.fixture(autouse=True)
def no_providers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(credentials, "_factories", {})
    yield


def test_a_provider_is_created_for_the_location_and_asked_each_time() -> None:
    asked: list[Location] = []

    def factory(location: Location) -> CredentialsProvider:
        asked.append(location)
        return lambda: {"token": f"token {len(asked)}", "expires_at": dt.datetime.max}

    register_credentials("company", factory)
    provider = provider_of("company", PLACE)
    assert asked == [PLACE]
    asked.append(PLACE)
    assert provider()["token"] == "token 2"


def test_a_provider_is_imported_by_the_process_that_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "company_credentials.py").write_text(
        "def factory(location):\n    return lambda: {'token': str(location)}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert provider_of("company_credentials:factory", PLACE)()["token"] == str(PLACE)


@pytest.mark.parametrize("name", ["no_such_module:factory", "json:no_such_factory", ":factory"])
def test_a_provider_that_cannot_be_imported_is_named(name: str) -> None:
    with pytest.raises(OptionError, match=f"SPILLABLE_CREDENTIALS is '{name}', which this process can't import"):
        provider_of(name, PLACE)


def test_the_environment_says_which_provider_a_process_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CREDENTIALS, raising=False)
    assert chosen_provider() == ""
    monkeypatch.setenv(CREDENTIALS, "company")
    assert chosen_provider() == "company"


def test_credentials_without_an_end_do_not_expire() -> None:
    register_credentials("company", lambda _: lambda: {"token": "t"})
    assert provider_of("company", PLACE)() == {"token": "t", "expires_at": None}


def test_a_later_provider_of_the_same_name_counts() -> None:
    for token in ("first", "second"):
        register_credentials("company", lambda _, token=token: lambda: {"token": token})
    assert provider_of("company", PLACE)()["token"] == "second"


def test_a_child_that_is_forked_while_a_thread_registers_a_provider_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    class Factories(dict[str, Any]):
        def __setitem__(self, name: str, factory: object) -> None:
            if name == "slow":
                has_begun.set()
                assert may_end.wait(300)
            super().__setitem__(name, factory)

    def register() -> bool:
        register_credentials("company", lambda _: lambda: {"token": "t"})
        return provider_of("company", PLACE)()["token"] == "t"

    monkeypatch.setattr(credentials, "_factories", Factories())
    other = threading.Thread(target=register_credentials, args=("slow", lambda _: dict))
    other.start()
    try:
        assert has_begun.wait(60)
        in_child(register)
    finally:
        may_end.set()
        other.join()


def test_how_early_to_renew_may_be_said_by_the_provider() -> None:
    class Provider:
        refresh_threshold = dt.timedelta(minutes=1)

        def __call__(self) -> Mapping[str, Any]:
            return {"token": "t"}

    register_credentials("company", lambda _: Provider())
    assert provider_of("company", PLACE).refresh_threshold == dt.timedelta(minutes=1)  # type: ignore[attr-defined]


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    register_credentials("company", lambda _: dict)
    with pytest.raises(OptionError, match=r"no provider of credentials named 'compani', only \['company'\]"):
        provider_of("compani", PLACE)
    with pytest.raises(OptionError, match="needs a name"):
        register_credentials("", lambda _: dict)


@pytest.mark.parametrize("when", ["made", "asked", "answered"])
def test_what_fails_is_named_without_its_words(when: str) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError(SECRET)

    factories: dict[str, Any] = {"made": fail, "asked": lambda _: fail, "answered": lambda _: lambda: SECRET}
    register_credentials("company", factories[when])
    with pytest.raises(FailedProviderError, match="the provider of credentials 'company' failed: ") as raised:
        provider_of("company", PLACE)()
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in repr(error)
        error = error.__cause__ or error.__context__
