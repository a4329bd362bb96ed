"""Stores of every kind: in memory, in a directory, and of servers that run as long as the tests."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from demo.cluster.moto import S3_ENVIRONMENT, make_bucket, moto_server
from spillable_stream.objects import credentials
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import Store
from tests.support.cloud_stores import SECRET, Answer
from tests.support.memory_store import MemoryStore
from tests.support.servers.azurite import azure_environment, azurite_server, make_container
from tests.support.servers.gcs_stub import GcsStub
from tests.support.servers.http_stub import HttpStub
from tests.support.servers.radosgw import make_rgw_bucket, radosgw_server, rgw_environment

KINDS = ("memory", "directory", "s3", "gcs", "azurite", "radosgw", "cloud")
CLOUD = "SPILLABLE_TEST_STORE"
_numbers = count(1)


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3."""
    with moto_server(tmp_path_factory.mktemp("moto")) as url:
        yield url


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Azure Blob Storage."""
    with azurite_server(tmp_path_factory.mktemp("azurite")) as url:
        yield url


@pytest.fixture(scope="session")
def radosgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Ceph cluster's S3."""
    with radosgw_server(tmp_path_factory.mktemp("ceph")) as url:
        yield url


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsStub]:
    """A Google Cloud Storage with a bucket named "bucket", and an environment that leads there."""
    with GcsStub(page=3) as stub:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", stub.url)
        yield stub


@pytest.fixture
def cloud_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the settings of whoever runs the tests, and plant secrets."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(credentials, "_factories", {})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"key-{SECRET}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"session-{SECRET}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"sv=2023&sig={SECRET}")
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", SECRET)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], HttpStub]]:
    """Run a server that answers so, and lead all clouds there."""
    with ExitStack() as stack:

        def serve(answer: Answer) -> HttpStub:
            stub: HttpStub = stack.enter_context(HttpStub(answer))
            monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)
            monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", stub.url)
            monkeypatch.setenv("GOOGLE_BASE_URL", stub.url)
            return stub

        yield serve


@pytest.fixture
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Require that no record of a test shows a planted secret."""
    caplog.set_level(logging.DEBUG)
    yield
    assert SECRET not in caplog.text


@pytest.fixture
def set_environment(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Set environment variables for this test."""

    def set_environment(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_environment


@pytest.fixture
def cloud() -> Iterator[Store]:
    """A store in a cloud, under the location that an environment variable names; it is emptied."""
    if not os.environ.get(CLOUD):
        pytest.skip(f"needs a store in a cloud: say where one is in {CLOUD}, as s3://bucket/path")
    location = Location.parse(f"{os.environ[CLOUD]}/{uuid.uuid4()}")
    store = CloudStore(location)
    yield store
    for info in list(store.list("")):
        store.delete(info.key)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, set_environment: Callable[[dict[str, str]], None]) -> Store:
    """An empty store of each kind."""
    name = f"bucket-{next(_numbers)}"
    if request.param == "memory":
        return MemoryStore()
    if request.param == "directory":
        return DirectoryStore(tmp_path / "root" / "orders")
    if request.param == "cloud":
        return request.getfixturevalue("cloud")  # type: ignore[no-any-return]
    if request.param == "gcs":
        request.getfixturevalue("gcs")
        return CloudStore(Location("gs", "bucket", "deep/orders"))
    if request.param == "azurite":
        url = request.getfixturevalue("azurite")
        set_environment(azure_environment(url))
        make_container(url, name)
        return CloudStore(Location("az", name, "deep/orders"))
    if request.param == "radosgw":
        url = request.getfixturevalue("radosgw")
        set_environment(rgw_environment(url))
        make_rgw_bucket(url, name)
        return CloudStore(Location("s3", name, "deep/orders"))
    url = request.getfixturevalue("moto")
    set_environment(S3_ENVIRONMENT | {"AWS_ENDPOINT_URL": url})
    make_bucket(url, name)
    return CloudStore(Location("s3", name, "deep/orders"))
