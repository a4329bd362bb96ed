"""Stores of clouds whose answers a test says, and errors that show no secret."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable

import pytest

from spillable_stream.objects.cloud_clients import RequestTimeouts
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import StoreError
from tests.support.servers.http_stub import Request, Response

__all__ = ["AZURE", "GOOGLE", "LOCATIONS", "S3", "SECRET", "Answer", "error_of", "failing", "impatient"]

SECRET = "hunter2secret"
S3, AZURE, GOOGLE = (Location.parse(f"{scheme}://bucket/orders") for scheme in ("s3", "az", "gs"))
LOCATIONS = pytest.mark.parametrize("location", [S3, AZURE, GOOGLE], ids=lambda location: location.scheme)
Answer = Callable[[Request], Response | None]


def failing(status: int, code: str = "") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{SECRET} of key-{SECRET}</Message></Error>".encode()
    return lambda _: Response(status, body, {"x-secret": SECRET, "content-type": "application/xml"})


def impatient(location: Location) -> CloudStore:
    return CloudStore(location, timeouts=RequestTimeouts(repeat_seconds=0))


def error_of(ask: Callable[[], object]) -> StoreError:
    """Return the error of a call, which shows no secret however it is looked at."""
    with pytest.raises(StoreError) as raised:
        ask()
    error = raised.value
    assert error.__cause__ is None and error.__context__ is None
    shown = [str(error), repr(error), repr(error.args), repr(vars(error)), *traceback.format_exception(error)]
    assert SECRET not in "".join(shown)
    assert SECRET.encode() not in pickle.dumps(error)
    return error
