"""A restore to an S3, on loopback, whose process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import spillable_stream as ss
from demo.cluster.moto import S3_ENVIRONMENT, make_bucket, moto_server
from spillable_stream import Channel
from spillable_stream.cli import app
from tests.support.events import numbered, put, take

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal, sys
import spillable_stream as ss
from spillable_stream.archive import store_restore
from tests.support.faulty_store import FaultyStore

copy, to, kind, key = sys.argv[1:]

def die(request):
    if request.kind == kind and request.key.startswith(key):
        os.kill(os.getpid(), signal.SIGKILL)

open_store = store_restore.open_store
store_restore.open_store = lambda location: FaultyStore(open_store(location), after=die)
ss.restore(copy, to, new_identity=True)
"""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("moto")) as url, pytest.MonkeyPatch.context() as environment:
        for name, value in (S3_ENVIRONMENT | {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}).items():
            environment.setenv(name, value)
        make_bucket(url, "bucket")
        yield "s3://bucket"


def bodies(channel: Channel) -> list[bytes]:
    return [body for batch in channel.read() for body in batch.column("body").to_pylist()]


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("list", ""),
        ("create", "check/"),
        ("upload", "segments/"),
        ("finish", "segments/"),
        ("get_range", "segments/"),
        ("create", "log/"),
        ("create", "channel.json"),
    ],
    ids=lambda value: value.strip("/") or "all",
)
def test_a_restore_that_was_killed_is_run_again_by_the_command(bucket: str, path: Path, kind: str, key: str) -> None:
    copy, to = f"{bucket}/{kind}-{key}copy", f"{bucket}/{kind}-{key}restored"
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 100))
        take(channel, 30)
        ss.backup(channel, copy)
        expected = bodies(channel)
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, copy, to, kind, key],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = CliRunner().invoke(app, ["restore", copy, to, "--new-identity", "--json"])
    if key == "channel.json":  # all was done, and nobody was told
        assert again.exit_code == 1 and "is there" in again.stdout
    else:
        assert again.exit_code == 0, again.stderr
    assert ss.verify(to).healthy
    with Channel(to, create=False) as restored:
        assert bodies(restored) == expected
        assert len(take(restored, 1000)) == 70
